"""Times gradients of pools over regions on a GPU, against torchvision's, on problems as detectors have them.

    python -m pooltide.cli.bench.region_gradients [--drawn N] [--seed S] [--pool P,P…] [--dtype D,D…]

Boxes are drawn by acceptance/boxes.py: all sizes, in clusters; of half of the problems only those that a
feature pyramid sends to the level. Each time is the median of rounds, after the cache was overwritten. The
limit is the time of the bytes of grad_output, boxes and result, or of three operations for each corner of a
sample, whichever is longer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from math import exp, log
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import torch

from ... import torch as functions
from ...acceptance.boxes import draw_boxes
from .cuda_timing import FLUSH_BYTES, additions_per_second, elapsed_seconds

ROUNDS = 7
IMAGE = (800, 1088)  # pixels
MOST_BYTES = 1 << 30  # of grad_output


@dataclass(frozen=True)
class Drawn:
    pool: str
    shape: tuple[int, int, int, int]
    boxes: Any
    bins: int
    scale: float
    ratio: int

    def __str__(self) -> str:
        ratio = f":ratio{self.ratio}" if self.pool.endswith("align") else ""
        size = "x".join(map(str, self.shape))
        return f"{self.pool}:{size}:boxes{len(self.boxes)}:o{self.bins}:scale{self.scale:g}{ratio}"

    @property
    def channels(self) -> int:
        return self.shape[1] // (self.bins**2 if self.pool.startswith("ps_") else 1)

    @property
    def attributes(self) -> tuple[Any, ...]:
        return {"roi_align": (self.scale, self.ratio, True), "ps_roi_align": (self.scale, self.ratio)}.get(
            self.pool, (self.scale,)
        )


def drawn(pool: str, number: int, seed: int) -> Iterator[Drawn]:
    random = np.random.Generator(np.random.PCG64(seed))
    while number:
        level, images, bins = (
            int(random.integers(2, 6)),
            int(random.integers(1, 5)),
            int(random.choice([7, 14])),
        )
        channels = int(random.choice([64, 128, 256, 256, 512, 1024]))
        count = int(exp(random.uniform(log(100), log(2000))))
        plane, scale = (-(-IMAGE[0] >> level), IMAGE[1] >> level), 0.5**level
        if pool.startswith("ps_"):
            channels = bins * bins * int(random.integers(2, 22))
        pooled = channels // bins**2 if pool.startswith("ps_") else channels
        if 4 * count * pooled * bins**2 > MOST_BYTES:
            continue
        pyramid = random.random() < 0.5
        boxes = draw_boxes(random, count * (8 if pyramid else 1), images, plane, scale)
        if pyramid:
            boxes = boxes[_level(boxes) == level]
            boxes = boxes[np.sort(random.permutation(len(boxes))[:count])]
        number -= 1
        ratio = int(random.choice([0, 2]))
        yield Drawn(pool, (images, channels, *plane), boxes, bins, scale, ratio)


def _level(boxes: Any) -> Any:
    """The level of a pyramid with levels 2 to 5 that a box is sent to, as in torchvision."""
    size = np.sqrt((boxes[:, 3] - boxes[:, 1]) * (boxes[:, 4] - boxes[:, 2]))
    return np.clip(np.floor(4 + np.log2(np.maximum(size, 1e-3) / 224) + 1e-6), 2, 5)


def calls(problem: Drawn, dtype: torch.dtype) -> tuple[Callable[[], Any], Callable[[], Any] | None, int]:
    """Our gradient, torchvision's (None: it has none for the dtype), and the bytes that must move."""
    boxes = torch.from_numpy(problem.boxes).cuda().to(torch.float32 if dtype != torch.float64 else dtype)
    grad = torch.randn(len(boxes), problem.channels, problem.bins, problem.bins, device="cuda").to(dtype)
    vision, name, size = torch.ops.torchvision, problem.pool, (problem.bins, problem.bins)
    more: tuple[Any, ...] = ()
    indices: tuple[Any, ...] = ()
    x = torch.randn(problem.shape, device="cuda").to(dtype)
    if name == "roi_pool":
        indices = (functions.functional.roi_pool(x, boxes, size, problem.scale, True)[1],)
        ours = lambda: functions.roi_pool_backward(grad, problem.shape, boxes, *indices)  # noqa: E731
    else:
        function = getattr(functions, f"{name}_backward")
        ours = lambda: function(grad, problem.shape, boxes, *problem.attributes)  # noqa: E731
    if dtype == torch.bfloat16 or (dtype == torch.float16 and not name.endswith("align")):
        theirs = None
    else:
        rows = boxes.to(dtype)
        if name == "roi_align":
            more = (problem.scale, *size, *problem.shape, problem.ratio, True)
        else:
            ratio = (problem.ratio,) if name == "ps_roi_align" else ()
            indices = indices or (getattr(vision, name)(x, rows, problem.scale, *size, *ratio)[1],)
            more = (*indices, problem.scale, *size, *ratio, *problem.shape)
        operator = getattr(vision, f"_{name}_backward")
        theirs = lambda: operator(grad, rows, *more)  # noqa: E731
    nbytes = grad.nbytes + boxes.nbytes + x.nbytes + (indices[0].nbytes if name == "roi_pool" else 0)
    return ours, theirs, nbytes


def operations(problem: Drawn) -> float:
    """Three for each corner of a sample in the plane, and each channel; for pools one per element."""
    if not problem.pool.endswith("align"):
        return problem.channels * problem.bins**2 * len(problem.boxes)
    ends = problem.boxes[:, 1:] * problem.scale - 0.5
    samples = np.ones(len(ends))
    for axis in (0, 1):
        length = ends[:, axis + 2] - ends[:, axis]
        samples = samples * (problem.ratio or np.maximum(np.ceil(length / problem.bins), 0)) * problem.bins
    return 12 * problem.channels * float(np.sum(samples))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drawn", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pool", default="roi_align")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    import_module("torchvision")  # defines its operators
    flush = torch.empty(FLUSH_BYTES // 4, device="cuda")
    bandwidth = _bytes_per_second()
    for pool in options.pool.split(","):
        for name in options.dtype.split(","):
            _table(pool, name, options, bandwidth, flush)


def _bytes_per_second() -> float:
    """Those that a copy reads and writes."""
    source, target = torch.ones((2, 1 << 28), device="cuda")
    seconds = median(elapsed_seconds(lambda: target.copy_(source)) for _ in range(5))
    return float(8 * source.numel() / seconds)


def _table(pool: str, dtype_name: str, options: Any, bandwidth: float, flush: torch.Tensor) -> None:
    ratios, limits, dtype = [], [], getattr(torch, dtype_name)
    for problem in drawn(pool, options.drawn, options.seed):
        ours, theirs, nbytes = calls(problem, dtype)
        times: dict[str, float] = {}
        for name, run in (("ours", ours), ("torchvision", theirs)):
            if run is None:
                continue
            seconds = []
            for _ in range(ROUNDS + 1):
                flush.zero_()
                seconds.append(elapsed_seconds(run))
            times[name] = median(seconds[1:])
        far = ""
        if theirs is not None:
            a, b = ours().double(), theirs().double()
            off = float((a - b).abs().max() / b.abs().max().clamp_min(1e-30))
            far = "" if off < (1e-4 if dtype != torch.float16 else 0.1) else f"  differs by {off:.2g}"
            ratios.append(times["torchvision"] / times["ours"])
        limit = max(nbytes / bandwidth, operations(problem) / additions_per_second())
        limits.append(times["ours"] / limit)
        theirs_us = f"{times['torchvision'] * 1e6:9.1f}" if theirs is not None else "        -"
        ratio = f"{ratios[-1]:6.2f}" if theirs is not None else "     -"
        print(
            f"{problem!s:60} ours {times['ours'] * 1e6:8.1f} µs  torchvision {theirs_us} µs  {ratio} ×  "
            f"limit {limit * 1e6:7.1f} µs, ours ÷ limit {limits[-1]:5.2f}{far}",
            flush=True,
        )
    if ratios:
        print(f"{pool} {dtype_name}: geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    print(f"{pool} {dtype_name}: ours ÷ limit median {median(limits):.2f}, worst {max(limits):.2f}")


if __name__ == "__main__":
    main()
