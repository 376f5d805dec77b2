"""Finds where the errors of a result are: over the plane, the worst cells, and what those cells sum.

An error is the distance to the golden value in ULPs; it is infinite if only one of the two is NaN or Inf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..geometry import Axis, cells_of_windows, tables
from ..problem.problem import Problem
from ..problem.rounding import round_once
from .inputs import source_plane
from .ulps import ulp_distance

Array = NDArray[Any]
Position = tuple[int, ...]
Reader = Callable[[int], Array]  # number of a plane → its elements, flat
LARGEST_PLANE = 1 << 24
_MOST_CELLS = 10
_MOST_TERMS = 12


@dataclass(frozen=True, slots=True)
class Term:
    """An element of the source that makes a cell of the result: of grad_output, or of a forward's input."""

    position: Position  # in its plane: (d, h, w)
    value: float | None


@dataclass(frozen=True, slots=True)
class Cell:
    position: Position  # n, c, d, h, w
    actual: float
    golden: float
    ulp: float
    terms: tuple[Term, ...] = ()
    more: int = 0  # terms that are not listed


@dataclass(frozen=True, slots=True, eq=False)
class ErrorMap:
    errors: Array  # (D, H, W): the largest error over all planes
    worst: tuple[Cell, ...]
    problem: Problem | None
    axes: tuple[str, ...]  # the names of the last dimensions


def piece_size(plane: Position) -> int:
    """Cells of a piece of a file: whole planes, about a million cells."""
    return max(1, (1 << 20) // max(prod(plane), 1)) * max(prod(plane), 1)


def map_errors(
    pairs: Iterable[tuple[Array, Array]],
    batch: tuple[int, int],
    plane: Position,
    problem: Problem | None,
    axes: tuple[str, ...],
    source: Reader | None = None,
    indices: Reader | None = None,
) -> ErrorMap:
    """The errors of `pairs` (actual, golden): flat pieces of whole planes, in order."""
    cells = prod(plane)
    errors = np.zeros(cells)
    ranked: list[tuple[float, int, float, float]] = []
    start = 0
    for actual, golden in pairs:
        distance = distances(actual, golden)
        np.maximum(errors, distance.reshape(-1, cells).max(axis=0), out=errors)
        top = np.argsort(-distance, kind="stable")[:_MOST_CELLS]
        ranked += [
            (float(distance[i]), start + int(i), float(actual[i]), float(golden[i]))
            for i in top
            if distance[i] > 0
        ]
        ranked = sorted(ranked, key=lambda cell: (-cell[0], cell[1]))[:_MOST_CELLS]
        start += actual.size
    worst = []
    for ulp, flat, a, g in ranked:
        position = tuple(int(i) for i in np.unravel_index(flat, batch + plane))
        terms, more = _terms(problem, flat // cells, position[2:], source, indices) if problem else ((), 0)
        worst.append(Cell(position, a, g, ulp, terms, more))
    return ErrorMap(errors.reshape(plane), tuple(worst), problem, axes)


def distances(actual: Array, golden: Array) -> NDArray[np.float64]:
    rounded = round_once(golden, actual.dtype)
    with np.errstate(invalid="ignore"):  # NumPy warns of a signaling NaN
        a, g = actual.astype(np.float64), rounded.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(g)
    same = (a == g) | (np.isnan(a) & np.isnan(g))
    distance = np.where(same, 0.0, np.inf)
    distance[finite] = ulp_distance(actual[finite], rounded[finite])
    return distance


def _terms(
    problem: Problem, plane: int, cell: Position, source: Reader | None, indices: Reader | None
) -> tuple[tuple[Term, ...], int]:
    """The first elements that make a cell of the result, in order, and the number of further ones."""
    if problem.unpool:
        return (), 0
    if problem.kind == "maximum_gradient":
        if indices is None:
            return (), 0
        flat = int(np.ravel_multi_index(cell, problem.input_plane))
        hits = np.flatnonzero(indices(plane) == flat)
        at = [tuple(int(i) for i in np.unravel_index(q, problem.output_plane)) for q in hits[:_MOST_TERMS]]
        count = hits.size
    else:
        spans = [_span(problem.gradient, axis, i) for i, axis in zip(cell, problem.axes, strict=True)]
        at = list(islice(product(*spans), _MOST_TERMS))
        count = prod(map(len, spans))
    values = source(plane).reshape(source_plane(problem)) if source else None
    terms = tuple(Term(p, None if values is None else float(values[p])) for p in at)
    return terms, count - len(terms)


def _span(gradient: bool, axis: Axis, i: int) -> range:
    """The windows that hold cell i of a gradient, or the cells of window i of a forward."""
    if gradient:
        table = tables(axis)
        return range(int(table.first_window[i]), int(table.first_window[i] + table.window_count[i]))
    first, count = (int(table[i]) for table in cells_of_windows(axis))
    return range(first, first + count * axis.dilation, axis.dilation)
