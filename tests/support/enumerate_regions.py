"""Every small region: all boxes on a grid of quarter cells, through the compiled kernels.

    python tests/support/enumerate_regions.py [--share I/N] [--processes P]

Planes of 1 to 6 × 1 to 6 cells, output sizes 1 to 3, sampling ratios -1 to 3, aligned or not; x1, x2, y1 and y2 are
all multiples of 1/4 in the plane, so boxes may be empty or inverted, too. `roi_align` in float32 lies within a
written bound of a float64 result. Where torchvision is installed, all four pools and their gradients have its bits.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import multiprocessing
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import pooltide
from regions import Array, InTorchvision, RegionCall, align_in_float64, bits

AT_ONCE = 20000  # boxes of a forward
OF_GRADIENT = 40  # boxes of a gradient that is compared with float64: more would hide an error in rounding


class Setting(NamedTuple):
    plane: tuple[int, int]
    bins: tuple[int, int]
    ratio: int
    aligned: bool


def settings() -> Iterator[Setting]:
    sizes = range(1, 7)
    for h, w, ph, pw, ratio, aligned in itertools.product(
        sizes, sizes, (1, 2, 3), (1, 2, 3), range(-1, 4), (False, True)
    ):
        yield Setting((h, w), (ph, pw), ratio, aligned)


def boxes_of(plane: tuple[int, int]) -> Array:
    """All boxes of a plane, (K, 5)."""
    rows, columns = (np.arange(4 * n + 1) / 4 for n in plane)
    y1, y2, x1, x2 = (axis.ravel() for axis in np.meshgrid(rows, rows, columns, columns, indexing="ij"))
    return np.stack([np.zeros_like(x1), x1, y1, x2, y2], 1).astype(np.float32)


def align_call(setting: Setting, boxes: Array, channels: int = 2) -> RegionCall:
    seed = hash(setting) % 2**32
    x = np.random.default_rng(seed).standard_normal((1, channels, *setting.plane)).astype(np.float32)
    return RegionCall("roi_align", x, boxes, setting.bins, 1.0, setting.ratio, setting.aligned)


def check_in_float64(call: RegionCall, gradient: bool) -> None:
    """Raises AssertionError if a float32 result is further from the float64 one than the bound.

    A position has at most six roundings of numbers below 8, so it is wrong by less than 6 · 2**-22 < 2**-19.
    The interpolation changes by at most 2 · max|x| per cell and axis, so a sample is wrong by less than
    4 · 2**-19 · max|x|, and a sum of at most 49 samples rounds by less. In all: 2**-16 · max|x|.
    A term of a gradient is wrong by 2**-17 · |g| / samples, and a sum of n terms rounds by n · 2**-24 of their
    absolute sum, which is at most that of grad_output.
    """
    values, gradients = align_in_float64(call)
    error = np.abs(call.forward()[0] - values).max(initial=0)
    bound = 2.0**-16 * np.abs(call.x).max()
    assert error <= bound, f"forward of {call}: off by {error}, bound {bound}"
    if not gradient:
        return
    samples = (max(call.ratio, 7)) ** 2
    terms = len(call.boxes) * call.bins[0] * call.bins[1] * samples * 4
    bound = (2.0**-16 + terms * 2.0**-24) * np.abs(call.grad).sum()
    error = np.abs(call.gradient(None) - gradients).max(initial=0)
    assert error <= bound, f"gradient of {call}: off by {error}, bound {bound}"


def check_in_torchvision(call: RegionCall) -> int:
    """Raises AssertionError where torchvision has other bits; returns the number of compared results."""
    theirs = InTorchvision(call)
    try:
        found, places = theirs.forward()
    except (RuntimeError, ValueError) as error:
        if "vector" in str(error):  # a grid that is negative on one axis
            return 0
        raise
    values, indices = call.forward()
    np.testing.assert_array_equal(bits(values), bits(found.numpy()), err_msg=f"forward of {call}")
    if indices is not None:
        np.testing.assert_array_equal(indices, places.numpy(), err_msg=f"indices of {call}")
    got, expected = call.gradient(indices), theirs.gradient(places)
    np.testing.assert_array_equal(bits(got), bits(expected.numpy()), err_msg=f"gradient of {call}")
    return 2


def _others(call: RegionCall) -> Iterator[RegionCall]:
    """The other pools of the same boxes."""
    if call.ratio < 0 and not call.aligned:
        yield RegionCall("roi_pool", call.x, call.boxes, call.bins)
    parts = call.bins[0] * call.bins[1]
    x = np.concatenate([call.x] * parts, 1)
    if not call.aligned:
        yield RegionCall("ps_roi_align", x, call.boxes, call.bins, 1.0, call.ratio)
    if call.ratio < 0 and not call.aligned:
        yield RegionCall("ps_roi_pool", x, call.boxes, call.bins)


def check(setting: Setting) -> tuple[int, int]:
    """Checks all boxes of a setting; returns how many, and the number of arrays compared with torchvision's."""
    pooltide.set_num_threads(1)
    every, compared = boxes_of(setting.plane), 0
    if not (bare := importlib.util.find_spec("torchvision") is None):
        import torch

        torch.set_num_threads(1)
    for begin in range(0, len(every), AT_ONCE):
        call = align_call(setting, every[begin : begin + AT_ONCE])
        check_in_float64(call, gradient=False)
        few = np.random.default_rng(begin).permutation(call.boxes)[:OF_GRADIENT]
        check_in_float64(align_call(setting, few), gradient=True)
        # torchvision refuses a call with a box that is inverted on one axis, if aligned.
        _, x1, y1, x2, y2 = call.boxes.T
        if setting.aligned and setting.ratio <= 0:
            call = align_call(setting, call.boxes[(x1 <= x2) & (y1 <= y2)])
        for each in () if bare else (call, *_others(call)):
            compared += check_in_torchvision(each)
    return len(every), compared


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", default="0/1", help="I/N: every N-th setting, from the I-th")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    at, of = map(int, arguments.share.split("/"))
    chosen = list(settings())[at::of]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        boxes, compared = 0, 0
        for number, (more, results) in enumerate(pool.imap_unordered(check, chosen), 1):
            boxes, compared = boxes + more, compared + results
            if number % 100 == 0:
                print(f"{number} of {len(chosen)} settings, {boxes} regions", file=sys.stderr)
    print(f"{len(chosen)} settings, {boxes} regions, {compared} arrays with torchvision's bits")


if __name__ == "__main__":
    main()
