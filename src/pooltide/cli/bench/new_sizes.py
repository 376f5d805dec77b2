"""Times the first call of new image sizes: what a detector's training pays for images of many sizes.

    python -m pooltide.cli.bench.new_sizes [--device cuda] [--sizes 200] [--seed 1] [--forward] [--steps]

Seven patched pools, forward and backward, of 2 images of 64 channels, with sides of 20 to 110 cells. Before
the first row, every pool ran once at one size. Prints, for each pool: milliseconds of a later call of a size,
how much longer the first one took, and on a GPU how many kernels were compiled. PyTorch comes first.
"collector": the longest pause of Python's garbage collector in a first call, which is part of the worst.
With `--steps`: training steps of a small detector in place of pools, on images with sides of 160 to 320, in
both layouts: the first step of a size ÷ a later step of it.
On the CPU the times are processor times of one thread, which other programs change little.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ... import torch as pt
from ...kernels.cuda.runtime import compiler
from .networks import Collect, Join, _conv

Step = Callable[[Any], Any]
POOLS: dict[str, tuple[Step, bool]] = {  # whether it is channels-last
    "max k3 s2 p1": (lambda x: F.max_pool2d(x, 3, 2, 1), False),
    "max k2 s2": (lambda x: F.max_pool2d(x, 2), False),
    "max k5 s1 p2": (lambda x: F.max_pool2d(x, 5, 1, 2), False),
    "average k3 s2 p1": (lambda x: F.avg_pool2d(x, 3, 2, 1), False),
    "adaptive average 6×6": (lambda x: F.adaptive_avg_pool2d(x, 6), False),
    "adaptive average 6×6, channels-last": (lambda x: F.adaptive_avg_pool2d(x, 6), True),
    "adaptive maximum 7×7": (lambda x: F.adaptive_max_pool2d(x, 7), False),
}
Sizes = list[tuple[int, int]]

pauses: list[float] = []  # when collections began, then their milliseconds


def watch_collector(phase: str, _: dict[str, int]) -> None:
    pauses.append(perf_counter() if phase == "start" else (perf_counter() - pauses.pop()) * 1e3)


def detector(channels_last: bool, device: str) -> Step:
    """A stem, a level that averages, an SPPF and heads of two kinds, as detectors have them."""
    torch.manual_seed(17)
    stem = [_conv(3, 16, 3, 2), nn.MaxPool2d(3, 2, 1), _conv(16, 32), nn.AvgPool2d(2)]
    pools = Collect(*(nn.MaxPool2d(5, 1, 2) for _ in range(3)))
    heads = [nn.Sequential(pool, nn.Flatten()) for pool in (nn.AdaptiveAvgPool2d(6), nn.AdaptiveMaxPool2d(7))]
    net = nn.Sequential(*stem, pools, _conv(128, 32, 1), Join(*heads))
    form = torch.channels_last if channels_last else torch.contiguous_format
    return net.to(device, memory_format=form)  # type: ignore[call-overload, no-any-return]


class Timer:
    """Times forward and backward of a step, in milliseconds; the second is the pause of the collector."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.clock = perf_counter if device == "cuda" else process_time

    def finish(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def __call__(self, step: Step, x: torch.Tensor) -> tuple[float, float]:
        self.finish()
        pauses.clear()
        start = self.clock()
        step(x).sum().backward()
        self.finish()
        return (self.clock() - start) * 1e3, sum(pauses)

    def of_sizes(self, step: Step, images: Iterable[torch.Tensor]) -> Iterator[tuple[float, float, float]]:
        """Yields the times of the first and of a later call of each size, and the pauses in the first."""
        for x in images:
            (first, collector), *later = [self(step, x) for _ in range(4)]
            yield first, min(time for time, _ in later), collector


def images(sizes: Sizes, channels: int, channels_last: bool, device: str) -> Iterator[torch.Tensor]:
    for size in sizes:
        x = torch.randn(2, channels, *size, device=device)
        yield (x.to(memory_format=torch.channels_last) if channels_last else x).requires_grad_()


def measure_pools(timer: Timer, sizes: Sizes) -> None:
    for pool, channels_last in POOLS.values():
        timer(pool, next(images([(19, 23)], 64, channels_last, timer.device)))
    pt.wait_for_kernels()
    print(f"{'':38}   later  first − later: median      p90    worst   collector   kernels   in all")
    for name, (pool, channels_last) in POOLS.items():
        before, start = compiler.loaded(), perf_counter()
        times = [*timer.of_sizes(pool, images(sizes, 64, channels_last, timer.device))]
        seconds = perf_counter() - start
        pt.wait_for_kernels()
        first, later, collector = np.array(times).T
        more = first - later
        figures = f"{np.median(later):8.2f} {np.median(more):22.2f} {np.quantile(more, 0.9):8.2f}"
        kernels = compiler.loaded() - before
        figures += f" {more.max():8.2f}"
        print(f"{name:38}{figures} {collector.max():11.1f} {kernels:9} {seconds:6.1f} s", flush=True)


def measure_steps(timer: Timer, sizes: Sizes) -> None:
    print(f"{'':16} later, ms   first ÷ later: median      p90    worst   above 1.5")
    for layout in ("planes", "channels-last"):
        net = detector(layout == "channels-last", timer.device)
        timer(net, next(images([(164, 228)], 3, layout == "channels-last", timer.device)))
        pt.wait_for_kernels()
        times = [*timer.of_sizes(net, images(sizes, 3, layout == "channels-last", timer.device))]
        first, later, _ = np.array(times).T
        ratio = first / later
        figures = f"{np.median(ratio):23.2f} {np.quantile(ratio, 0.9):8.2f} {ratio.max():8.2f}"
        print(f"{layout:16} {np.median(later):9.2f} {figures} {int((ratio > 1.5).sum()):11}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--forward", action="store_true")
    parser.add_argument("--steps", action="store_true")
    args = parser.parse_args()
    gc.callbacks.append(watch_collector)
    if args.device == "cpu":
        torch.set_num_threads(1)
    shortest, longest = (160, 321) if args.steps else (20, 111)
    rng = np.random.default_rng(args.seed)
    sizes = [(int(h), int(w)) for h, w in rng.integers(shortest, longest, (args.sizes, 2))]
    timer, measure = Timer(args.device), measure_steps if args.steps else measure_pools
    for patched in (False, True):
        with pt.patch(forward=args.forward) if patched else nullcontext():
            print(f"patch({'forward=True' if args.forward else ''})" if patched else "PyTorch")
            measure(timer, sizes)


if __name__ == "__main__":
    main()
