"""Draws pools as models have them: the same problems for the same seed, on every machine.

The first N problems of a seed do not depend on how many are drawn. Only integers are drawn, because powers
and logarithms of floats may differ between machines.
Planes have sides of 6 to 200 cells, rows of 1-D pools 16 to 8192. Every number that models often have
(kernels 2, 3, 5, 7; strides 1, 2 and the kernel; 64 or 256 channels; outputs 1 and 7) is drawn more often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TypeVar

import numpy as np

from ...acceptance.notation import Case, parse
from ...acceptance.words import joined, operator_of

T = TypeVar("T")
Sizes = tuple[int, ...]
KINDS = ("gradients", "forwards", "all", "regions")
CELLS = {"cpu": 1 << 23, "cuda": 1 << 26}  # of the largest problems; the smallest have a sixteenth of them
MIN_CELLS = 1 << 14  # for the largest problems: smaller ones have no room for a small plane
MAX_IMAGES = 1024

_OPERATORS = {"avg": 30, "max": 35, "adaptive_avg": 20, "adaptive_max": 15}
_AXES = {2: 14, 3: 5, 1: 1}
_CHANNELS = {3: 1, 16: 2, 32: 2, 64: 4, 96: 2, 128: 2, 192: 2, 256: 3, 512: 3, 1024: 1, 2048: 1}
_COMMON_SIZES = (7, 8, 14, 16, 17, 28, 32, 35, 56, 64, 112, 128)
_BANDS = (6, 12, 25, 50, 100, 201)  # all ranges between two neighbours are equally likely
_LENGTHS = (16, 64, 256, 1024, 4096, 8193)
_KERNELS = {2: 10, 3: 14, 4: 1, 5: 4, 6: 1, 7: 3, 8: 1, 9: 1, 10: 1, 11: 1, 12: 1, 13: 2}
_KERNELS_3D = {2: 10, 3: 10, 4: 1, 5: 2, 7: 1}
_REGIONS = {"roi_align": 10, "roi_pool": 3, "ps_roi_align": 2, "ps_roi_pool": 1}
_REGION_CELLS = 4  # times the most cells: elements of all regions
_IMAGE_SIDES = (480, 640, 800, 1088, 1345)
_DTYPES = {"cpu": {"f32": 2, "bf16": 1, "f16": 1}, "cuda": {"f32": 1, "bf16": 1}}


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which problems are drawn, and how many."""

    count: int
    seed: int
    kind: str = "gradients"  # one of KINDS
    device: str = "cpu"
    most_cells: int = CELLS["cpu"]


@dataclass(frozen=True, slots=True)
class DrawnProblem:
    forward: bool
    case: Case


def draw_problems(sampling: Sampling) -> list[DrawnProblem]:
    random = np.random.Generator(np.random.PCG64(sampling.seed))
    return [_draw(random, sampling) for _ in range(sampling.count)]


def _draw(random: np.random.Generator, sampling: Sampling) -> DrawnProblem:
    if sampling.kind == "regions":
        return _draw_regions(random, sampling)
    forward = _chance(random, 50) if sampling.kind == "all" else sampling.kind == "forwards"
    axes, name = _pick(random, _AXES), _pick(random, _OPERATORS)
    operator = operator_of(f"{name}{axes}d")
    maxima = operator.kind == "maximum_gradient"
    shape = _shape(random, axes, sampling.most_cells)
    words = [f"{name}{axes}d", joined(shape)]
    if operator.windows == "adaptive":
        words.append(_word("o", _outputs(random, shape[2:])))
    else:
        words += _windows(random, shape[2:], maxima)
    words.append(_pick(random, _DTYPES[sampling.device]))
    words += ["i64"] if maxima else []
    words += ["cl"] if _chance(random, 50) and axes > 1 else []
    return DrawnProblem(forward, parse(":".join(words)))


def _draw_regions(random: np.random.Generator, sampling: Sampling) -> DrawnProblem:
    """A pool over regions of a level of a feature pyramid, or, one time in three, its gradient's forward."""
    forward, name = _chance(random, 33), _pick(random, _REGIONS)
    level = _pick(random, {4: 4, 8: 3, 16: 2, 32: 1})
    plane = tuple(-(-_banded(random, _IMAGE_SIDES) // level) for _ in range(2))
    bins = _pick(random, {7: 6, 14: 2, 3: 1, 1: 1})
    channels, least = _pick(random, {256: 5, 64: 1, 128: 1, 512: 1, 1024: 1}), 1
    if name.startswith("ps_"):
        bins = _pick(random, {7: 2, 3: 1})
        channels, least = bins**2 * _pick(random, {2: 1, 8: 1, 21: 1}), bins**2
    images = _pick(random, {1: 3, 2: 3, 4: 1})
    while images * channels * prod(plane) > sampling.most_cells and max(images, channels // least) > 1:
        images, channels = (images // 2, channels) if images > 1 else (1, channels // least // 2 * least)
    boxes = 100 << int(random.integers(0, 5))
    boxes = min(boxes + int(random.integers(0, boxes)), 2000)
    boxes = min(boxes, max(_REGION_CELLS * sampling.most_cells // (channels // least * bins**2), 100))
    words = [f"{name}_forward" if forward else name, joined((images, channels, *plane)), f"o{bins}"]
    words += [f"boxes{boxes}", f"scale{1 / level!r}"]
    if name.endswith("align"):
        words += [f"ratio{_pick(random, {2: 2, -1: 1})}"]
    words += ["aligned"] if name == "roi_align" and _chance(random, 50) else []
    words.append(_pick(random, _DTYPES["cpu"]))  # on GPUs, too: torchvision has float16, and no bfloat16
    words += ["i32"] if name == "roi_pool" else []
    words += ["cl"] if _chance(random, 30) else []
    return DrawnProblem(forward, parse(":".join([*words, f"seed{int(random.integers(1, 1 << 16))}"])))


def _shape(random: np.random.Generator, axes: int, max_cells: int) -> Sizes:
    """N, C and the plane, with more than a sixteenth of `max_cells` and at most `max_cells`."""
    octave = max_cells >> _pick(random, {1: 1, 2: 1, 3: 1})
    cells = int(random.integers(octave, 2 * octave, endpoint=True))
    while True:
        plane = _plane(random, axes)
        common = _chance(random, 75)
        channels = _pick(random, _CHANNELS) if common else int(random.integers(3, 2048, endpoint=True))
        images = cells // (channels * prod(plane))
        if 1 <= images <= MAX_IMAGES:
            return images, channels, *plane


def _plane(random: np.random.Generator, axes: int) -> Sizes:
    if axes == 1:
        return (_banded(random, _LENGTHS),)

    def size() -> int:
        common = _chance(random, 50)
        return _COMMON_SIZES[int(random.integers(len(_COMMON_SIZES)))] if common else _banded(random, _BANDS)

    height = size()
    width = height if _chance(random, 67) else size()
    return (size(), height, width)[3 - axes :]


def _outputs(random: np.random.Generator, plane: Sizes) -> Sizes:
    """One cell, seven, a divisor of the size, or any number."""
    how = _pick(random, {"one": 3, "seven": 3, "even": 4, "any": 5})
    if how in ("one", "seven"):
        return tuple(1 if how == "one" else min(7, size) for size in plane)
    return tuple(_output(random, size, how == "even") for size in plane)


def _output(random: np.random.Generator, size: int, even: bool) -> int:
    if not even:
        return int(random.integers(1, size, endpoint=True))
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    return divisors[int(random.integers(len(divisors)))]


def _windows(random: np.random.Generator, plane: Sizes, maximum: bool) -> list[str]:
    sizes = _per_axis(random, _KERNELS_3D if len(plane) == 3 else _KERNELS, len(plane))
    kernel = tuple(map(min, sizes, plane))
    how = _pick(random, {"one": 30, "two": 30, "kernel": 25, "any": 15})
    stride = tuple(_stride(random, k, how) for k in kernel)
    how = _pick(random, {"none": 50, "half": 40, "any": 10})
    padding = tuple(_padding(random, k, how) for k in kernel)
    words = [_word("k", kernel), _word("s", stride), *([_word("p", padding)] if any(padding) else [])]
    words += ["ceil"] if _chance(random, 15) else []
    dilated = [2 * (k - 1) + 1 - 2 * p for k, p in zip(kernel, padding, strict=True)]
    if maximum:
        fits = all(window <= size for window, size in zip(dilated, plane, strict=True))
        return words + (["d2"] if _chance(random, 5) and fits else [])
    return words + (["nopad"] if _chance(random, 30) and any(padding) else [])


def _word(prefix: str, sizes: Sizes) -> str:
    return prefix + (str(sizes[0]) if len(set(sizes)) == 1 else joined(sizes))


def _per_axis(random: np.random.Generator, weights: Mapping[int, int], axes: int) -> Sizes:
    """One value for all axes, or, one time in five, a value for each."""
    if _chance(random, 80):
        return (_pick(random, weights),) * axes
    return tuple(_pick(random, weights) for _ in range(axes))


def _stride(random: np.random.Generator, kernel: int, how: str) -> int:
    if how == "any":
        return int(random.integers(1, kernel, endpoint=True))
    return {"one": 1, "two": min(2, kernel), "kernel": kernel}[how]


def _padding(random: np.random.Generator, kernel: int, how: str) -> int:
    if how == "any":
        return int(random.integers(0, kernel // 2, endpoint=True))
    return kernel // 2 if how == "half" else 0


def _banded(random: np.random.Generator, edges: Sizes) -> int:
    bands = list(pairwise(edges))
    return int(random.integers(*bands[int(random.integers(len(bands)))]))


def _chance(random: np.random.Generator, percent: int) -> bool:
    return bool(random.integers(100) < percent)


def _pick(random: np.random.Generator, weights: Mapping[T, int]) -> T:
    at = int(random.integers(sum(weights.values())))
    for value, weight in weights.items():
        if at < weight:
            return value
        at -= weight
    raise AssertionError("the weights add up")
