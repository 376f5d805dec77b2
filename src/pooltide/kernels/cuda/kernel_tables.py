"""The tables and tile sizes of the GPU kernels, computed on the host.

Functions take axes, lengths or a problem, and return NumPy tables or sizes. They touch no device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from math import isqrt
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ...cache import cached
from ...geometry import Axis, tables
from ...problem.problem import Problem

Array = NDArray[Any]
_POWERS = frozenset(2.0**i for i in range(64))


@overload
def cdiv(a: int, b: int) -> int: ...
@overload
def cdiv(a: Any, b: Any) -> Any: ...
def cdiv(a: Any, b: Any) -> Any:
    return -(-a // b)


def power_below(x: float) -> int:
    """The largest power of two that is at most x; 1 for less."""
    return 1 << max(int(x).bit_length() - 1, 0)


def even_share(length: int, most: int) -> int:
    """The length of equal shares, of at most `most` each; the last one may be shorter."""
    return cdiv(length, cdiv(length, min(max(most, 1), length)))


def even_shares(length: int) -> list[int]:
    """Sensible lengths of equal shares: all of it, a half, a third, … and of long axes a few cells."""
    parts = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
    found = {cdiv(length, n) for n in parts}
    return sorted(found | {n for n in (1, 2, 4, 8, 16) if n < min(found)}, reverse=True)


def each(function: Callable[[int], int], numbers: Any) -> Any:
    """The function's result for a number, or for each of an array; it is called once for equal numbers."""
    if not isinstance(numbers, np.ndarray):
        return function(numbers)
    distinct, at = np.unique(numbers, return_inverse=True)
    return np.array([function(n) for n in distinct.tolist()])[at]


@lru_cache(256)
def largest_divisor(n: int, most: int) -> int:
    """The largest number of at most `most` that divides n; 1 if n is 0. All planners of a task ask."""
    low = (d for d in range(1, min(isqrt(n), most) + 1) if n % d == 0)
    return max((d for pair in ((d, n // d) for d in low) for d in pair if d <= most), default=1)


def divider(n: int) -> tuple[int, int, int]:
    """(n, m, s) with x // n = x·m >> 32 + s for all x < 2**31, the Divider of device.h; m is 0 for n = 1."""
    shift = max((n - 1).bit_length() - 1, 0)
    return n, -(-(2 ** (32 + shift)) // n) if n > 1 else 0, shift


def between(axis: Axis, begin: Array, end: Array) -> tuple[Array, Array]:
    """The windows that hold one of the cells begin…end - 1: the first, and how many. Elementwise."""
    table = tables(axis)
    first = table.first_window[begin]
    return first, table.first_window[end - 1] + table.window_count[end - 1] - first


@cached()
def most_windows(axis: Axis) -> int:
    """The most windows that hold a cell, at least 1. Cached, because the tables of a long axis may not be."""
    return max(int(tables(axis).window_count.max(initial=1)), 1)


@cached()
def longest_span(axis: Axis) -> int:
    """The most cells from a window's first to its last inside the axis, at least 1."""
    table = tables(axis)
    return max(int((table.end - table.start).max(initial=1)), 1)


def shares(length: int, share: int) -> tuple[Array, Array]:
    """The first cell of every share of an axis, and one past its last."""
    begin = np.arange(0, length, share)
    return begin, np.minimum(begin + share, length)


def windows_of_shares(axis: Axis, share: int) -> Array:
    """For every share of `share` cells, how many windows hold one of its cells."""
    table = tables(axis)
    stop = table.first_window[share - 1 :: share] + table.window_count[share - 1 :: share]
    if axis.length % share:
        stop = np.append(stop, table.first_window[-1] + table.window_count[-1])
    found: Array = stop - table.first_window[::share]
    return found


@lru_cache(2048)
def window_counts(axis: Axis, share: int) -> tuple[int, int]:
    """The sum and the maximum of `windows_of_shares`: searches for a tile ask for them again and again."""
    counts = windows_of_shares(axis, share)
    return int(counts.sum()), int(counts.max())


def bands(axes: tuple[Axis, ...], cells: int) -> Array:
    """Returns the bands of a plane: whole slices, whole rows of a slice, or parts of a row.

    A band has about `cells` cells, at most. It is a row of the table: (first cell, end, number of window
    ranges, first window, windows in a range, distance from range to range). The ranges have every window that
    holds a cell of the band. If the band is a part of a row, they may have other windows, too.
    """
    d, h, w = axes
    slices, rows, columns = _shares_of_bands(axes, cells)
    d0, d1 = shares(d.length, slices)
    h0, h1 = shares(h.length, rows)
    i, j = (at.ravel() for at in np.meshgrid(np.arange(len(d0)), np.arange(len(h0)), indexing="ij"))
    (from_d, of_d), (from_h, of_h) = between(d, d0, d1), between(h, h0, h1)
    from_d, of_d, from_h, of_h = from_d[i], of_d[i], from_h[j], of_h[j]
    first = (from_d * h.outputs + from_h) * w.outputs
    begin = (d0[i] * h.length + h0[j]) * w.length
    if columns == w.length:
        whole = of_h == h.outputs
        ranges, count = np.where(whole, 1, of_d), np.where(whole, of_d, 1) * of_h * w.outputs
        end = ((d1[i] - 1) * h.length + h1[j]) * w.length
        apart = np.full_like(begin, h.outputs * w.outputs)
        return np.stack([begin, end, ranges, first, count, apart], axis=1)
    w0, w1 = shares(w.length, columns)
    from_w, of_w = between(w, w0, w1)
    last = ((from_d + of_d - 1) * h.outputs + from_h + of_h - 1) * w.outputs  # row of windows
    count = np.where((of_d * of_h == 0)[:, None], 0, (last - first)[:, None] + of_w)
    ends, one = (begin[:, None] + w0, begin[:, None] + w1), np.ones_like(count)
    found = (*ends, one, first[:, None] + from_w, np.maximum(count, 0), 0 * one)
    return np.stack(found, axis=2).reshape(-1, 6)


def _shares_of_bands(axes: tuple[Axis, ...], cells: int) -> tuple[int, int, int]:
    """The slices, rows and columns of a band."""
    d, h, w = axes
    slices = even_share(d.length, cells // (h.length * w.length))
    long = cells if d.length * h.length == 1 else 4 * cells  # parts of several rows read windows in vain
    columns = w.length if w.length <= long else even_share(w.length, cells)
    return slices, even_share(h.length, cells // w.length), columns


def windows_of_bands(axes: tuple[Axis, ...], cells: int) -> int:
    """How many windows all bands of `bands` read."""
    w, shares = axes[2], _shares_of_bands(axes, cells)
    d, h = (windows_of_shares(axis, share) for axis, share in zip(axes[:2], shares[:2], strict=True))
    if shares[2] == w.length:
        return int(d.sum()) * int(h.sum()) * w.outputs
    d, h, columns = d[d > 0], h[h > 0], windows_of_shares(w, shares[2])
    rows = int((d - 1).sum()) * axes[1].outputs * len(h) + int((h - 1).sum()) * len(d)
    return rows * w.outputs * len(columns) + len(d) * len(h) * int(columns.sum())


def uniform(by: Iterable[Array]) -> bool:
    """Whether all windows have the same divisors."""
    return all(len(axis) > 0 and bool((axis == axis[0]).all()) for axis in by)


def is_ragged(problem: Problem) -> bool:
    """Whether adaptive windows are not all of one length, a length apart.

    Kernels take such windows by tables, and are specialised on nothing that the image size decides: so a new
    size seldom needs a new kernel, also where its windows happen to be alike.
    """
    return any(axis.adaptive and axis.outputs and axis.length % axis.outputs for axis in problem.axes)


def has_empty_windows(problem: Problem) -> bool:
    """Whether some window has no cell: it ends before the axis or begins after it."""
    strided = (axis for axis in problem.axes if not axis.adaptive)
    return any(
        axis.reach <= axis.p or (axis.outputs - 1) * axis.s - axis.p >= axis.length for axis in strided
    )


@cached()
def same_divisors(problem: Problem) -> bool:
    """Whether kernels are specialised on one divisor for all windows."""
    return not is_ragged(problem) and uniform(divisors(problem))


@cached(lambda by: by)
def divisors(problem: Problem) -> tuple[Array, Array, Array]:
    """Returns the divisors of the windows on d, h and w.

    A gradient is divided by them in turn if the quotient is "chained", else by their product.
    """
    found = [tables(axis) for axis in problem.axes]
    if problem.quotient == "override":
        outputs = problem.output_plane
        return np.ones(outputs[0]), np.full(outputs[1], problem.divisor), np.ones(outputs[2])
    if problem.quotient == "extent":
        d, h, w = (table.extent for table in found)
    else:
        d, h, w = (np.maximum(table.end - table.start, 1) for table in found)
    if problem.quotient != "chained" and uniform((d, h, w)):
        product = int(d[0]) * int(h[0]) * int(w[0])
        by = product if product < 2**63 else float(product)
        return np.ones_like(d), np.full(len(h), by), np.ones_like(w)
    return d, h, w


@cached()
def rounded_twice(problem: Problem) -> str | None:
    """Why kernels that multiply divisors as sums would be wrong by a rounding; None if they are right."""
    most = [float(axis.max()) for axis in divisors(problem)]
    exact = 2.0 ** (
        53 if problem.dtype.accumulator.itemsize == 8 else 24
    )  # such numbers are sums without rounding
    d, h, w = most
    if problem.quotient == "chained" or sum(x > 1 for x in most) <= 1:
        return None
    if max(most) <= exact and (d == 1 or h * w <= exact):
        return None
    return "products of divisors would be rounded twice"


@cached()
def division(problem: Problem) -> tuple[int, int, int, int]:
    """Returns ONCE, BY_D, BY_H and BY_W of gradient_quotients.h: how a kernel divides."""
    ragged = is_ragged(problem)
    d, h, w = (np.unique(np.asarray(axis, dtype=np.float64)) for axis in divisors(problem))
    if problem.quotient == "chained":
        by_d, by_h, by_w = (way_of_division(problem, axis, ragged) for axis in (d, h, w))
        return 0, by_d, by_h, by_w
    once = max(way_of_division(problem, np.multiply.outer(np.multiply.outer(d, h), w), ragged), 1)
    # The reciprocals of three divisors multiply to one that is too far off for ways 2 and 3.
    deep = int(d.max() > 1)
    return (4 if once > 1 and deep else once), deep, 0, 0


def division_cost(problem: Problem) -> int:
    """The instructions that divide a gradient."""
    return sum((0, 1, 4, 7, 13)[how] for how in division(problem))


def way_of_division(problem: Problem, divisors: Array, ragged: bool) -> int:
    """HOW of division.h for these divisors; the same for all divisors of ragged windows."""
    values = {abs(x) for x in divisors.ravel().tolist()}
    if values <= {1}:
        return 0
    if problem.dtype.name == "FLOAT64" or not all(x < 2**20 and x == int(x) for x in values):
        return 4 if ragged or not values <= _POWERS else 1
    if ragged:
        return 3
    return 1 if values <= _POWERS else 2 if all(x % 2 == 1 or x in _POWERS for x in values) else 3
