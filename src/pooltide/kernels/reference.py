"""The reference: plain NumPy in the shortest honest form. Slow, and obviously right.

`run` in float32 (float64 for FLOAT64) with one rounding at the end is the contract: these are the bits
that every other backend gives. acceptance/oracle.py runs it in float64 for all dtypes: golden results.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import cached
from ..geometry import Axis, cells_of_windows
from ..problem.problem import Problem
from ..problem.rounding import round_once
from . import Arrays, IndexFault

Array = NDArray[Any]
Index = tuple[int, int, int]
LAYOUTS = frozenset({"planes", "channels_last", "strided"})


def refuse(problem: Problem, layout: str) -> str | None:
    return None


def prepare(problem: Problem, layout: str, device: None) -> None:
    """Returns None: `run` takes arrays, not addresses."""


def scratch(problem: Problem) -> int:
    """Sums of half types are kept in float32 until all are done."""
    sums = problem.gradient and not problem.unpool
    return problem.cells * 4 if sums and problem.dtype.itemsize == 2 else 0


def run(problem: Problem, layout: str, arrays: Arrays, scratch: Array) -> IndexFault | None:
    out = arrays.out
    if problem.unpool:
        return _unpool(problem, arrays.grad_output if problem.gradient else arrays.input, arrays.indices, out)
    if not problem.gradient:
        _forward(problem, arrays.input, out, arrays.indices)
        return None
    total = scratch.view(np.float32).reshape(out.shape) if problem.dtype.itemsize == 2 else out
    fault = accumulate(problem, arrays.grad_output, arrays.indices, total)
    if total is not out:
        out[...] = round_once(total, out.dtype)
    return fault


def accumulate(
    problem: Problem, grad_output: Array, indices: Array | None, total: Array
) -> IndexFault | None:
    """The gradient in `total`'s dtype."""
    total[...] = 0
    g = grad_output.astype(total.dtype)
    with np.errstate(all="ignore"):
        if indices is not None:
            return _scatter(problem, g, indices, total)
        for o in np.ndindex(problem.output_plane):
            total[window_slices(problem, o)] += quotient(problem, o, g[(..., *o)])[..., None, None, None]
    return None


def _forward(problem: Problem, x: Array, out: Array, indices: Array | None) -> None:
    with np.errstate(all="ignore"):
        for o in np.ndindex(problem.output_plane):
            if problem.kind == "average":
                total = quotient(problem, o, _sum(problem, o, x))
                if problem.quotient not in ("chained", "mean"):
                    total = total + total.dtype.type(0)  # never -0, as in PyTorch
                out[(..., *o)] = round_once(total, out.dtype)
                continue
            out[(..., *o)], place = _maximum(problem, o, x)
            if indices is not None:
                indices[(..., *o)] = place


_cells_of_windows = cached(lambda tables: tables)(cells_of_windows)


def _range(axis: Axis, o: int) -> range:
    """The cells of window o on an axis."""
    first, count = (int(table[o]) for table in _cells_of_windows(axis))
    return range(first, first + count * axis.dilation, axis.dilation)


def window_slices(problem: Problem, o: Index) -> Any:
    """The cells of window o in every plane, as an index into (N, C, D, H, W)."""
    cells = (_range(axis, i) for axis, i in zip(problem.axes, o, strict=True))
    return (..., *(slice(c.start, c.stop, c.step) for c in cells))


def window_cells(problem: Problem, o: Index) -> Iterable[Index]:
    """The cells of window o, (d, h, w) ascending."""
    d, h, w = (_range(axis, i) for axis, i in zip(problem.axes, o, strict=True))
    return product(d, h, w)


def _sum(problem: Problem, o: Index, x: Array) -> Array:
    sums = np.zeros((16 if problem.quotient == "mean" else 1, *problem.batch), problem.dtype.accumulator)
    for i, (d, h, w) in enumerate(window_cells(problem, o)):
        sums[i % len(sums)] += x[..., d, h, w].astype(sums.dtype)
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    total: Array = sums[0]
    return total


def _maximum(problem: Problem, o: Index, x: Array) -> tuple[Array, Array]:
    """The largest cells of window o in all planes, and their indices or offsets."""
    first = [_range(axis, i).start for axis, i in zip(problem.axes, o, strict=True)]
    tables = problem.offset_tables
    sizes = problem.input_plane if tables is None else tables.most

    def place_of(cell: Index) -> int:
        if tables is None:
            i, j, k = cell
        else:
            i, j, k = ((c - f) // axis.dilation for c, f, axis in zip(cell, first, problem.axes, strict=True))
        return (i * sizes[1] + j) * sizes[2] + k

    value = np.full(problem.batch, -np.inf).astype(x.dtype)
    place = np.full(problem.batch, place_of((first[0], first[1], first[2])))
    for cell in window_cells(problem, o):
        candidate = x[(..., *cell)]
        wins = (candidate > value) | np.isnan(candidate)
        value = np.where(wins, candidate, value)
        place = np.where(wins, place_of(cell), place)
    return value, place


def quotient(problem: Problem, o: Index, value: Array) -> Array:
    """The value of window o, or its sum, divided by the divisor of the window."""
    windows = [axis.window(i) for axis, i in zip(problem.axes, o, strict=True)]
    valid, extent = [w.end - w.start for w in windows], [w.extent for w in windows]
    divisors = {"chained": valid, "extent": [prod(extent)], "override": [problem.divisor]}
    for divisor in divisors.get(problem.quotient, [prod(valid)]):
        value = value / as_float(divisor, value.dtype)
    return value


def as_float(divisor: int, dtype: np.dtype[Any]) -> Any:
    """An integer as a float, rounded once: NumPy's own conversion goes through float64."""
    if -(2**63) <= divisor < 2**63:
        return np.int64(divisor).astype(dtype)
    return dtype.type(float(divisor))


def _unpool(problem: Problem, source: Array, indices: Array, out: Array) -> IndexFault | None:
    cells, planes = prod(problem.input_plane), np.arange(problem.planes)
    wide = indices.astype(np.int64).reshape(problem.planes, prod(problem.output_plane))
    good = (wide >= 0) & (wide < cells)
    values = source.reshape(problem.planes, prod(source.shape[2:]))
    result = np.zeros((problem.planes, prod(out.shape[2:])), out.dtype)
    for q in range(wide.shape[1]):
        inside, index = planes[good[:, q]], wide[good[:, q], q]
        if problem.gradient:
            result[inside, q] = values[inside, index]
        else:
            result[inside, index] = values[inside, q]
    out[...] = result.reshape(out.shape)
    return _index_fault(wide, good)


def _index_fault(indices: Array, good: Array) -> IndexFault | None:
    """The first index that is not good."""
    if good.all():
        return None
    first = int(np.flatnonzero(~good)[0])
    return IndexFault(int((~good).sum()), first, int(indices.flat[first]))


def _scatter(problem: Problem, g: Array, indices: Array, total: Array) -> IndexFault | None:
    cells = prod(problem.input_plane)
    if tables := problem.offset_tables:
        indices = tables.indices(indices, problem.input_plane)
    wide = indices.astype(np.int64).reshape(problem.planes, prod(problem.output_plane))
    good = (wide >= 0) & (wide < cells)
    sums = np.zeros((problem.planes, max(cells, 1)), dtype=total.dtype)
    plane = np.broadcast_to(np.arange(problem.planes)[:, None], wide.shape)
    np.add.at(sums, (plane[good], wide[good]), g.reshape(wide.shape)[good])
    total[...] = sums[:, :cells].reshape(total.shape)
    return _index_fault(wide, good)
