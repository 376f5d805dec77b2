"""Faults of real kinds, put into right results: what a wrong kernel would give.

A fault gets a sample and returns a result, with the indices of maxima; None: the sample can't have the fault.
`summed` computes right results in other orders of addition, and sums in another dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.reference import Index, quotient, window_cells, window_slices
from ..operators.dtypes import DTYPES
from ..problem.problem import Problem
from ..problem.rounding import round_once
from .inputs import draw
from .notation import Case
from .oracle import Golden, golden_result
from .ulps import bits_of

Array = NDArray[Any]
Random = np.random.Generator
Result = tuple[Array, Array | None]  # values in the dtype of the problem, and the indices of a maximum
_MAX_STALE = 64  # cells


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A case with its inputs and its right result."""

    case: Case
    problem: Problem
    source: Array  # (N, C, D, H, W): grad_output, or the input of a forward
    indices: Array | None  # that are read
    golden: Golden

    def with_source(self, source: Array) -> Array:
        """The result of another source, in float64."""
        return golden_result(self.problem, source, self.indices).values

    def rounded(self, values: Array) -> Result:
        return round_once(values, self.problem.dtype.numpy), self.golden.indices


def summed(sample: Sample, dtype: np.dtype[Any], random: Random | None) -> Result | None:
    """The result by sums that are kept in `dtype` and rounded once; `random` gives the order of addition.

    None: the problem adds nothing.
    """
    problem, source = sample.problem, sample.source.astype(dtype)
    with np.errstate(all="ignore"):
        if problem.kind == "average":
            total = np.empty(problem.batch + problem.output_plane, dtype)
            for o in np.ndindex(problem.output_plane):
                cells = _ordered(list(window_cells(problem, o)), random)
                value = np.zeros(problem.batch, dtype)
                for cell in cells:
                    value = value + source[(..., *cell)]
                total[(..., *o)] = quotient(problem, o, value)
        elif problem.gradient:
            total = np.zeros(problem.batch + problem.input_plane, dtype)
            for o in _ordered(list(np.ndindex(problem.output_plane)), random):
                _add_window(sample, o, source[(..., *o)], total)
        else:
            return None
    return round_once(total, problem.dtype.numpy), None


def _ordered(items: list[Any], random: Random | None) -> list[Any]:
    return items if random is None else [items[i] for i in random.permutation(len(items))]


def _add_window(sample: Sample, o: Index, value: Array, total: Array) -> None:
    problem = sample.problem
    if sample.indices is None:
        total[window_slices(problem, o)] += quotient(problem, o, value)[..., None, None, None]
        return
    planes = total.reshape(problem.planes, prod(problem.input_plane))
    d, h, w = o
    places = sample.indices[..., d, h, w].astype(np.int64).reshape(-1)
    planes[np.arange(problem.planes), places] += value.reshape(-1)


def _wrong_divisor(sample: Sample, random: Random) -> Result | None:
    other = {"extent": "valid", "valid": "extent", "override": "extent"}.get(sample.problem.quotient)
    if other is None:
        return None
    problem = replace(sample.problem, quotient=other)
    return sample.rounded(golden_result(problem, sample.source, sample.indices).values)


def _swapped_axes(sample: Sample, random: Random) -> Result | None:
    *lead, height, width = sample.source.shape
    if min(height, width) < 2:
        return None
    source = sample.source.reshape(*lead, width, height).swapaxes(-1, -2)
    return sample.rounded(sample.with_source(np.ascontiguousarray(source)))


def _shifted_windows(sample: Sample, random: Random) -> Result:
    if sample.problem.gradient:
        return sample.rounded(np.roll(sample.golden.values, 1, -1))
    return sample.rounded(sample.with_source(np.roll(sample.source, 1, -1)))


def _missed_window(sample: Sample, random: Random) -> Result:
    at = random.integers(prod(sample.problem.batch + sample.problem.output_plane))
    return _without(sample, lambda windows: np.put(windows, at, 0))


def _missed_last_windows(sample: Sample, random: Random) -> Result | None:
    if sample.problem.axes[2].outputs < 2:
        return None
    return _without(sample, lambda windows: windows[..., -1].fill(0))


def _without(sample: Sample, clear: Callable[[Array], None]) -> Result:
    """The result without some windows: a gradient does not add them, a forward never writes them."""
    windows = (sample.source if sample.problem.gradient else sample.golden.values).copy()
    clear(windows)
    return sample.rounded(sample.with_source(windows) if sample.problem.gradient else windows)


def _lost_addition(sample: Sample, random: Random) -> Result | None:
    """One term of one sum is lost, as by a race of two threads."""
    problem, values = sample.problem, sample.golden.values.copy()
    n, c = (int(random.integers(size)) for size in problem.batch)
    d, h, w = (int(random.integers(size)) for size in problem.output_plane)
    o = d, h, w
    if problem.kind == "average":
        cells = list(window_cells(problem, o))
        term = sample.source[(..., *cells[random.integers(len(cells))])].astype(np.float64)
        values[(n, c, *o)] -= quotient(problem, o, term)[n, c]
    elif problem.gradient:
        lone = np.zeros(sample.source.shape)
        lone[(n, c, *o)] = sample.source[(n, c, *o)]
        terms = sample.with_source(lone.astype(sample.source.dtype)).reshape(-1)
        (places,) = np.nonzero(terms)
        if not places.size:
            return None
        at = random.choice(places)
        values.reshape(-1)[at] -= terms[at]
    else:
        return None
    return sample.rounded(values)


def _float16_sums(sample: Sample, random: Random) -> Result | None:
    """Float32 results whose sums were kept in float16."""
    return summed(sample, np.dtype(np.float16), None) if sample.problem.dtype.name == "FLOAT32" else None


def _stale_cells(sample: Sample, random: Random) -> Result:
    """Some cells are not written, and have the values of an earlier call."""
    data = replace(sample.case.data, seed=sample.case.data.seed + 1)
    before = golden_result(sample.problem, *draw(sample.problem, data)).values.reshape(-1)
    values = sample.golden.values.copy()
    count = int(random.integers(1, _MAX_STALE, endpoint=True))
    start = int(random.integers(max(1, values.size - count)))
    values.reshape(-1)[start : start + count] = before[start : start + count]
    return sample.rounded(values)


def _exchanged_planes(sample: Sample, random: Random) -> Result | None:
    planes = sample.golden.values.copy().reshape(sample.problem.planes, -1)
    if len(planes) < 2:
        return None
    first, second = random.permutation(len(planes))[:2]
    planes[[first, second]] = planes[[second, first]]
    return sample.rounded(planes.reshape(sample.golden.values.shape))


def _nan_routing(sample: Sample, random: Random) -> Result | None:
    """A NaN is dropped, or is in the neighbouring cell, or fills its row."""
    values = sample.golden.values
    nan = np.isnan(values)
    if not nan.any():
        return None
    how = random.integers(3)
    if how == 0:
        other = -np.inf if sample.problem.kind == "maximum" else 0
        source = np.where(np.isnan(sample.source.astype(np.float64)), other, sample.source)
        return sample.rounded(sample.with_source(source.astype(sample.source.dtype)))
    if how == 1:
        return sample.rounded(np.where(np.roll(nan, 1, -1), np.nan, np.where(nan, 0, values)))
    return sample.rounded(np.where(nan.any(-1, keepdims=True), np.nan, values))


def _rounded_to_zero(sample: Sample, random: Random) -> Result:
    values, nearest = sample.golden.values, sample.golden.rounded
    with np.errstate(invalid="ignore"):
        beyond = np.isfinite(values) & (np.abs(nearest.astype(np.float64)) > np.abs(values))
    words = bits_of(nearest)
    truncated: Array = (words - beyond.astype(words.dtype)).view(nearest.dtype)
    return truncated, sample.golden.indices


def _other_tie(sample: Sample, random: Random) -> Result | None:
    """The last of equal maxima, in place of the first."""
    if sample.golden.indices is None:
        return None
    places = np.arange(prod(sample.problem.input_plane)).reshape(sample.problem.input_plane)
    wide = replace(sample.problem, dtype=DTYPES["FLOAT64"])
    source = sample.source.astype(np.float64) + places * 2.0**-40
    return sample.golden.rounded, golden_result(wide, source, None).indices


FAULTS: dict[str, Callable[[Sample, Random], Result | None]] = {
    "wrong divisor": _wrong_divisor,
    "swapped axes": _swapped_axes,
    "shifted windows": _shifted_windows,
    "one window missed": _missed_window,
    "last windows missed": _missed_last_windows,
    "one addition lost": _lost_addition,
    "float16 sums": _float16_sums,
    "stale cells": _stale_cells,
    "planes exchanged": _exchanged_planes,
    "NaN routing": _nan_routing,
    "rounding towards zero": _rounded_to_zero,
    "index tie": _other_tie,
}
