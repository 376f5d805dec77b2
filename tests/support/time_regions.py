"""Times pools over regions and their gradients on the CPU against torchvision's, on problems as detectors have them.

    python tests/support/time_regions.py [--drawn N] [--seed S] [--threads T] [--pool P,P…]

Boxes are drawn by acceptance/boxes.py. Each time is the least of five, which alternate. Prints a line for each
problem, then the geometric mean and the least ratio, torchvision's time divided by ours, of each pool.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import geometric_mean
from typing import Any

import numpy as np
import torch

import pooltide
from pooltide.acceptance.boxes import draw_boxes
from regions import NAMES, InTorchvision, RegionCall

ROUNDS = 5
IMAGE = (800, 1088)  # pixels
MOST_WORK = 2e8  # samples or cells of a problem


def problem(name: str, random: np.random.Generator) -> RegionCall:
    while True:
        stride, n = 2 ** int(random.integers(2, 6)), int(random.integers(1, 5))
        bins = int(random.choice([3, 7] if name.startswith("ps_") else [7, 14]))
        channels = int(random.choice([8, 10, 21]) * bins**2)
        if not name.startswith("ps_"):
            channels = int(random.choice([64, 256, 512]))
        number = int(np.exp(random.uniform(np.log(100), np.log(2000))))
        plane = (IMAGE[0] // stride, IMAGE[1] // stride)
        if number * channels * bins**2 * 8 > MOST_WORK or n * channels * plane[0] * plane[1] > MOST_WORK / 4:
            continue
        x = random.standard_normal((n, channels, *plane), np.float32)
        boxes = draw_boxes(random, number, n, plane, 1 / stride).astype(np.float32)
        ratio, aligned = int(random.choice([-1, 2])), bool(random.integers(0, 2))
        return RegionCall(name, x, boxes, (bins, bins), 1 / stride, ratio, aligned and name == "roi_align")


def ratio_of(theirs: Callable[[], Any], ours: Callable[[], Any]) -> tuple[float, float]:
    """The seconds of both."""
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        theirs()
        middle = time.perf_counter()
        ours()
        seconds.append((middle - begin, time.perf_counter() - middle))
    return min(first for first, _ in seconds), min(second for _, second in seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--drawn", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pool", default=",".join(NAMES))
    options = parser.parse_args()
    pooltide.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    for name in options.pool.split(","):
        random = np.random.default_rng(options.seed)
        ratios: tuple[list[float], list[float]] = [], []
        for _ in range(options.drawn):
            call = problem(name, random)
            theirs, (_, indices) = InTorchvision(call), call.forward()
            _, places = theirs.forward()
            both = (
                (theirs.forward, call.forward),
                (lambda t=theirs, p=places: t.gradient(p), lambda c=call, i=indices: c.gradient(i)),
            )
            print(name, call.x.shape, f"{len(call.boxes)} regions of {call.bins}, ratio {call.ratio}", end="")
            for what, kept, pair in zip(("forward", "gradient"), ratios, both, strict=True):
                slow, fast = ratio_of(*pair)
                kept.append(slow / fast)
                print(f"; {what} {slow * 1e3:.2f} ms, ours {fast * 1e3:.2f}", end="")
            print(flush=True)
        for what, kept in zip(("forward", "gradient"), ratios, strict=True):
            print(f"{name} {what}: geometric mean {geometric_mean(kept):.2f}, least {min(kept):.2f}")


if __name__ == "__main__":
    main()
