"""Times the first call of new image sizes: what a detector's training pays for images of many sizes.

    python tools/new_sizes.py [--device cuda] [--sizes 200] [--seed 1] [--forward]

Seven patched pools, forward and backward, of 2 images of 64 channels, with sides of 20 to 110 cells. Before
the first row, every pool ran once at one size. Prints, for each pool: milliseconds of the first call of a
size and of a later call of it, and on a GPU how many kernels were compiled. PyTorch comes first.
"collector": the longest pause of Python's garbage collector in a first call, which is part of the worst.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import pooltide.torch as pt

Pool = Callable[[Any], Any]
POOLS: dict[str, tuple[Pool, bool]] = {  # whether it is channels-last
    "max k3 s2 p1": (lambda x: F.max_pool2d(x, 3, 2, 1), False),
    "max k2 s2": (lambda x: F.max_pool2d(x, 2), False),
    "max k5 s1 p2": (lambda x: F.max_pool2d(x, 5, 1, 2), False),
    "average k3 s2 p1": (lambda x: F.avg_pool2d(x, 3, 2, 1), False),
    "adaptive average 6×6": (lambda x: F.adaptive_avg_pool2d(x, 6), False),
    "adaptive average 6×6, channels-last": (lambda x: F.adaptive_avg_pool2d(x, 6), True),
    "adaptive maximum 7×7": (lambda x: F.adaptive_max_pool2d(x, 7), False),
}


pauses: list[float] = []  # when collections began, then their milliseconds


def watch_collector(phase: str, _: dict[str, int]) -> None:
    pauses.append(perf_counter() if phase == "start" else (perf_counter() - pauses.pop()) * 1e3)


def step(pool: Pool, x: torch.Tensor, finish: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds of a forward and a backward, and those of Python's garbage collector in them."""
    finish()
    pauses.clear()
    start = perf_counter()
    pool(x).sum().backward()
    finish()
    return (perf_counter() - start) * 1e3, sum(pauses)


def images(height: int, width: int, channels_last: bool, device: str) -> torch.Tensor:
    x = torch.randn(2, 64, height, width, device=device)
    return (x.to(memory_format=torch.channels_last) if channels_last else x).requires_grad_()


def measure(device: str, sizes: list[tuple[int, int]]) -> None:
    from pooltide.kernels.cuda import compiler

    finish: Callable[[], Any] = torch.cuda.synchronize if device == "cuda" else lambda: None
    for pool, channels_last in POOLS.values():
        step(pool, images(19, 23, channels_last, device), finish)
    pt.wait_for_kernels()
    print(f"{'first call: median, p90, worst':>76}   collector   later: median   kernels   in all")
    for name, (pool, channels_last) in POOLS.items():
        before, start = len(compiler._kernels), perf_counter()
        times = []
        for height, width in sizes:
            x = images(height, width, channels_last, device)
            times.append([step(pool, x, finish) for _ in range(3)])
        seconds = perf_counter() - start
        pt.wait_for_kernels()
        (first, collector), (later, _) = np.array(times)[:, 0].T, np.array(times)[:, 2].T
        figures = f"{np.median(first):8.2f} {np.quantile(first, 0.9):8.2f} {first.max():8.2f} ms"
        kernels = len(compiler._kernels) - before
        figures += f"   {collector.max():6.1f} ms   {np.median(later):8.2f} ms   {kernels:7}"
        print(f"{name:46} {figures}   {seconds:5.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--forward", action="store_true")
    args = parser.parse_args()
    gc.callbacks.append(watch_collector)
    rng = np.random.default_rng(args.seed)
    sizes = [(int(h), int(w)) for h, w in rng.integers(20, 111, (args.sizes, 2))]
    print("PyTorch")
    measure(args.device, sizes)
    with pt.patch(forward=args.forward):
        print(f"patch({'forward=True' if args.forward else ''})")
        measure(args.device, sizes)


if __name__ == "__main__":
    main()
