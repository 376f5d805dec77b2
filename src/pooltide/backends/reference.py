"""The reference: plain NumPy in the shortest honest form. Slow, and obviously right.

`gradient` in float32 (float64 for FLOAT64) with one rounding at the end is the contract: these are
the bits that every other backend gives. In float64 for all dtypes it is the oracle.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..geometry import tables
from ..problem import Problem
from ..rounding import round_gradient, round_once
from . import IndexFault

Array = NDArray[Any]
LAYOUTS = frozenset({"planes", "channels_last", "strided"})


def refuse(problem: Problem) -> str | None:
    return None


def scratch(problem: Problem) -> int:
    """Sums of half types are kept in float32 until all are done."""
    return problem.cells * 4 if problem.dtype.itemsize == 2 else 0


def run(
    problem: Problem, layout: str, grad_output: Array, indices: Array | None, out: Array, scratch: Array
) -> IndexFault | None:
    total = scratch.view(np.float32).reshape(out.shape) if problem.dtype.itemsize == 2 else out
    fault = accumulate(problem, grad_output, indices, total)
    if total is not out:
        out[...] = round_once(total, out.dtype)
    return fault


def oracle(problem: Problem, grad_output: Array, indices: Array | None) -> tuple[Array, Array]:
    """The gradient in float64, and the same rounded once to the problem's dtype."""
    rounded = round_gradient(grad_output, problem.rounding)
    total = np.empty(problem.batch + problem.input_plane)
    accumulate(problem, rounded.astype(np.float64), indices, total)
    return total, round_once(total, problem.dtype.numpy)


def accumulate(
    problem: Problem, grad_output: Array, indices: Array | None, total: Array
) -> IndexFault | None:
    total[...] = 0
    g = grad_output.astype(total.dtype)
    with np.errstate(all="ignore"):
        if indices is not None:
            return _scatter(problem, g, indices, total)
        _spread(problem, g, total)
    return None


def _spread(problem: Problem, g: Array, total: Array) -> None:
    d, h, w = (tables(axis) for axis in problem.axes)
    for od, oh, ow in product(*map(range, problem.output_plane)):
        cells = np.s_[..., d.start[od] : d.end[od], h.start[oh] : h.end[oh], w.start[ow] : w.end[ow]]
        q = g[..., od, oh, ow]
        for divisor in _divisors(problem, (d, od), (h, oh), (w, ow)):
            q = q / as_float(divisor, g.dtype)
        total[cells] += q[..., None, None, None]


def as_float(divisor: int, dtype: np.dtype[Any]) -> Any:
    """An integer as a float, rounded once: NumPy's own way goes through float64."""
    if -(2**63) <= divisor < 2**63:
        return np.int64(divisor).astype(dtype)
    return dtype.type(float(divisor))


def _divisors(problem: Problem, *windows: Any) -> list[int]:
    valid = [int(table.end[o] - table.start[o]) for table, o in windows]
    extent = [int(table.extent[o]) for table, o in windows]
    return {
        "chained": valid,
        "extent": [prod(extent)],
        "valid": [prod(valid)],
        "override": [problem.divisor],
    }[problem.quotient]


def _scatter(problem: Problem, g: Array, indices: Array, total: Array) -> IndexFault | None:
    cells = prod(problem.input_plane)
    if offsets := problem.offsets:
        indices = offsets.indices(indices, problem.input_plane)
    wide = indices.astype(np.int64).reshape(problem.planes, prod(problem.output_plane))
    good = (wide >= 0) & (wide < cells)
    sums = np.zeros((problem.planes, max(cells, 1)), dtype=total.dtype)
    plane = np.broadcast_to(np.arange(problem.planes)[:, None], wide.shape)
    np.add.at(sums, (plane[good], wide[good]), g.reshape(wide.shape)[good])
    total[...] = sums[:, :cells].reshape(total.shape)
    if good.all():
        return None
    first = int(np.flatnonzero(~good)[0])
    return IndexFault(int((~good).sum()), first, int(wide.flat[first]))
