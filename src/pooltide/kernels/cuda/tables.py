"""What the GPU kernels are told about a problem: tables, divisions, vectors, pieces. Plain NumPy.

Sizes here decide how work is cut. They were chosen on an H200 (132 processors, 60 MB of cache).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...geometry import UNIT, Axis, tables
from ...problem.problem import Problem
from .device.average import INTERPRETED

Array = NDArray[Any]
BYTES = 16  # of a vector: what one instruction moves
LANES = 128  # of a program
ROWS = 16  # that a lane of 8 cells writes in one program, at least, where there is enough to do
PIECE = 8  # most cells of a segment
FEW = 2**20  # cells that one launch does best
LARGE = 32  # cells of a window from which on scattering is better
NEIGHBOURS = 16  # channels
PAYS = 10.0  # instructions for a byte that a gather may take
PROGRAMS = 132 * 32  # enough to fill the GPU twice over
MENDERS = 132 * 8  # programs that look for strays, and mostly find none


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def cuts(axes: tuple[Axis, ...], cells: int) -> Array:
    """A plane in pieces of whole slices, or of whole rows of one slice, of at most about `cells` cells.

    Each is (first cell, end, window ranges, first window, windows of a range, range to range).
    """
    d, h, w = axes
    slices = _even(d.length, cells // (h.length * w.length))
    rows = _even(h.length, cells // w.length)
    pieces = []
    for d0 in range(0, d.length, slices):
        d1 = min(d0 + slices, d.length)
        from_d, to_d = _between(d, d0, d1)
        for h0 in range(0, h.length, rows):
            h1 = min(h0 + rows, h.length)
            from_h, to_h = _between(h, h0, h1)
            whole = from_h == 0 and to_h == h.outputs
            ranges = 1 if whole else to_d - from_d
            windows = (to_h - from_h) * w.outputs * (to_d - from_d if whole else min(ranges, 1))
            first = (from_d * h.outputs + from_h) * w.outputs
            begin, end = (d0 * h.length + h0) * w.length, ((d1 - 1) * h.length + h1) * w.length
            pieces.append((begin, end, ranges, first, windows, h.outputs * w.outputs))
    return np.array(pieces)


def _even(length: int, most: int) -> int:
    """The length of shares of at most `most`; equal ones where they are few, as the last would be odd."""
    most = min(max(most, 1), length)
    shares = cdiv(length, most)
    return cdiv(length, shares) if shares <= 3 else most


def _between(axis: Axis, begin: int, end: int) -> tuple[int, int]:
    """The windows that hold one of the cells begin…end − 1: the first, and one past the last."""
    table = tables(axis)
    return int(table.first_window[begin]), int(table.first_window[end - 1] + table.window_count[end - 1])


@dataclass(frozen=True, slots=True)
class Lanes:
    inner: int
    vector: int  # elements of a group
    groups: int  # of a row
    count: int
    last: bool  # channels last
    columns: Array = field(compare=False)  # the kernels' `columns`
    reach: int  # windows that hold a column of a group, at most
    full: bool  # all columns of a group are in one window, and no more


def lanes_of(problem: Problem, layout: str, most: int = BYTES) -> Lanes:
    """Lanes of as many elements as a vector has, `most` at most, and a row a whole number of."""
    last = layout == "channels_last"
    width, inner = problem.axes[2].length, problem.batch[1] if last else 1
    vector = min(BYTES // problem.dtype.itemsize, most)
    while (inner if last else width) % vector:
        vector //= 2
    table = tables(problem.axes[2])
    first, count = (t.reshape(-1, 1 if last else vector) for t in (table.first_window, table.window_count))
    base = first[:, :1]
    columns = np.concatenate([base.ravel(), (first - base).ravel(), table.window_count])
    reach = max(int((first - base + count).max()), 1)
    full = bool((first == base).all() and (count == 1).all())
    groups = width * inner // vector
    lanes = problem.planes * width // vector
    return Lanes(inner, vector, groups, lanes, last, columns, reach, full)


def chunk_of(parts: int, most: int, lanes: Lanes) -> int:
    """How many of a plane's parts one program does: `most`, or fewer where programs would be too few."""
    blocks, chunk = cdiv(lanes.count, LANES), max(most, 1)
    while chunk > 1 and blocks * cdiv(parts, chunk) < PROGRAMS:
        chunk //= 2
    return chunk


def patch_of(problem: Problem) -> tuple[int, int] | None:
    """Columns and rows of a lane's patch, where windows are strided and their strides small, or None."""
    d, h, w = problem.axes
    if d != UNIT or h.adaptive or w.adaptive:
        return None
    vector = max(BYTES // problem.dtype.itemsize, 4)
    while vector > max(w.s, 4) and w.length % vector:
        vector //= 2
    taps = cdiv(h.reach, h.s) * cdiv(w.reach, w.s)
    if vector % w.s or taps > 25:
        return None
    tallest = 8 if h.s == 1 else max(4, h.s)
    heights = [r for r in range(h.s, tallest + 1, h.s) if reach(h, r)[1] * reach(w, vector)[1] <= 64]
    if not heights:
        return None

    def cost(r: int) -> float:
        quotients = reach(h, r)[1] * reach(w, vector)[1]
        return cdiv(h.length, r) * (6 * quotients + r * vector * (taps + 1))

    return vector, min(reversed(heights), key=cost)


def reach(axis: Axis, cells: int) -> tuple[int, int]:
    """The windows of `cells` neighbours, from a multiple of the stride on: the first, and how many."""
    first = (axis.p - axis.reach) // axis.s + 1
    return first, (cells - 1 + axis.p) // axis.s - first + 1


@dataclass(frozen=True, slots=True)
class Blocks:
    """An axis in blocks of `size` cells, and the windows of each: `reach` of them from `bases` on."""

    size: int
    reach: int
    bases: Array = field(compare=False)
    spans: tuple[
        tuple[int, int], ...
    ]  # of each cell of a block: the first of these windows, one past the last
    seen: int  # so many windows of every block are all windows of the axis

    @property
    def packed(self) -> tuple[int, int]:
        """The spans' ends, four bits each."""
        low, high = (sum(span[i] << 4 * n for n, span in enumerate(self.spans)) for i in (0, 1))
        return low, high


@lru_cache(maxsize=1024)
def blocks_of(axis: Axis, size: int) -> Blocks | None:
    """The axis cut so, or None where blocks have too many windows, or windows no cell."""
    cells = np.arange(cdiv(axis.length, size) * size)
    if axis.adaptive:
        table, cells = tables(axis), np.minimum(cells, axis.length - 1)
        first, end = table.first_window[cells], (table.first_window + table.window_count)[cells]
    else:  # as if there were windows beyond the ends: those of all blocks lie alike
        first, end = (cells + axis.p - axis.reach) // axis.s + 1, (cells + axis.p) // axis.s + 1
    first, end = first.reshape(-1, size), end.reshape(-1, size)
    bases = first[:, 0]
    low, high = (first - bases[:, None]).min(axis=0), (end - bases[:, None]).max(axis=0)
    reach = int(high.max())
    spans = tuple((int(a), int(b)) if a < b else (0, 0) for a, b in zip(low, high, strict=True))
    for seen in range(1, min(reach, 15) + 1 if reach <= 15 else 0):
        if np.isin(np.arange(axis.outputs), bases[:, None] + np.arange(seen)).all():
            return Blocks(size, reach, bases, spans, seen)
    return None


def magic(n: int) -> tuple[int, int]:
    """(m, s) with x // n = x·m >> 32 + s for all x < 2**31; m as a signed word."""
    shift = max((n - 1).bit_length() - 1, 0)
    magic = -(-(2 ** (32 + shift)) // n) if n > 1 else 0
    return (magic - 2**32 if magic >= 2**31 else magic), shift


def divisors(problem: Problem) -> tuple[Array, Array, Array]:
    """What each window's quotient is divided by, axis by axis; all but "chained" by the product."""
    found = [tables(axis) for axis in problem.axes]
    if problem.quotient == "override":
        d, h, w = problem.output_plane
        return np.ones(d), np.full(h, problem.divisor), np.ones(w)
    if problem.quotient == "extent":
        return found[0].extent, found[1].extent, found[2].extent
    d, h, w = (np.maximum(table.end - table.start, 1) for table in found)
    return d, h, w


@lru_cache(maxsize=1024)
def division(problem: Problem) -> tuple[int, int, int, int]:
    """The kernels' ways to divide: once by the product, or by d, h and w."""
    d, h, w = (np.unique(np.asarray(axis, dtype=np.float64)) for axis in divisors(problem))
    if problem.quotient == "chained":
        return 0, _way(problem, d), _way(problem, h), _way(problem, w)
    once = max(_way(problem, np.multiply.outer(np.multiply.outer(d, h), w)), 1)
    # The reciprocals of three divisors multiply to one that is too far off for way 2.
    deep = int(d.max() > 1)
    return (3 if once == 2 and deep else once), deep, 0, 0


def _way(problem: Problem, divisors: Array) -> int:
    values = [abs(x) for x in divisors.ravel().tolist()]
    if all(x == 1 for x in values):
        return 0
    if all(x in _POWERS for x in values):
        return 1
    easy = all(x < 2**20 and (x % 2 == 1 or x in _POWERS) for x in values)
    return 2 if easy and problem.dtype.name != "FLOAT64" and not INTERPRETED else 3


def signless(problem: Problem) -> bool:
    """Whether way 2 never makes -0: of -0 it makes +0, and halves by small divisors don't underflow."""
    small = all(bool(((axis > 0) & (axis < 2**7)).all()) for axis in divisors(problem)[1:])
    return division(problem)[0] == 2 and problem.dtype.itemsize == 2 and small


_POWERS = frozenset(2.0**i for i in range(64))


def segments_of(axis: Axis) -> Array:
    """Runs of at most PIECE cells in the same windows: (start, length, first window, windows) each."""
    table = tables(axis)
    change = (np.diff(table.first_window) != 0) | (np.diff(table.window_count) != 0)
    edges = np.concatenate([[0], np.flatnonzero(change) + 1])
    run = np.arange(axis.length) - np.repeat(edges, np.diff(np.append(edges, axis.length)))
    start = np.flatnonzero(run % PIECE == 0)
    length = np.diff(np.append(start, axis.length))
    return np.stack([start, length, table.first_window[start], table.window_count[start]], axis=1)


def bands_of(axis: Axis) -> Array | None:
    """The `edges` of bands, or None where a cell is in more than two windows."""
    table = tables(axis)
    if table.window_count.max() > 2:
        return None
    start, end = table.start, table.end
    following = np.append(start[1:], axis.length)
    both = np.maximum(start, np.append(0, end[:-1]))
    one = np.minimum(end, following)
    return np.stack([start, both - start, one - both, following - one], axis=1)


def window_of(axis: Axis) -> Array:
    """The window of every cell that is in one, else -1."""
    table = tables(axis)
    return np.where(table.window_count > 0, table.first_window, -1)


@dataclass(frozen=True, slots=True)
class Taps:
    """How patches read offsets whose windows lie alike in every block."""

    cells: tuple[int, int, int]  # the kernel's TAPS of d, h and w
    most: tuple[int, int]  # the most cells of a window on h and w
    corners: Array = field(compare=False)
    spans: Array = field(compare=False)


def taps_of(problem: Problem, blocks: tuple[Blocks, ...]) -> Taps | None:
    """None where indices are no offsets, or windows lie in too many ways."""
    if (offsets := problem.offset_tables) is None:
        return None
    if prod(offsets.most) > 31:
        return None
    taps, shifts, spans = [], [], []
    within = np.indices(offsets.most).reshape(3, -1)  # of each offset: d, h, w
    radix = (offsets.most[1] * offsets.most[2], offsets.most[2], 1)
    for i, (axis, cut) in enumerate(zip(problem.axes, blocks, strict=True)):
        step, most, first = problem.dilation[i], offsets.most[i], offsets.first_cell[i]
        k = axis.length // axis.outputs if axis.adaptive else axis.reach
        s, p = (k, 0) if axis.adaptive else (axis.s, axis.p)
        odd = axis.length % axis.outputs if axis.adaptive else most != (k - 1) // step + 1
        if odd or cut.size % s or most > 15:
            return None
        taps.append(0)
        for cell, window in np.ndindex(cut.size, cut.reach):
            at, rest = divmod(cell - (int(cut.bases[0]) + window) * s + p, step)
            taps[-1] |= (at if rest == 0 and 0 <= at < most else 15) << 64 * cell + 4 * window
        shifts.append((first - (np.arange(axis.outputs) * s - p)) // step * radix[i])
        cells = -(-(tables(axis).end - first) // step)
        spans.append(((within[i] < cells[:, None]) << np.arange(len(within[i]))).sum(axis=1))
    corners, found = np.concatenate([np.zeros(256), *shifts]), np.concatenate(spans)
    return Taps((taps[0], taps[1], taps[2]), offsets.most[1:], corners, found)


def corners_of(problem: Problem) -> Array:
    """The kernels' `corners`: nothing, unless indices are offsets."""
    if (offsets := problem.offset_tables) is None:
        return np.zeros(1, np.int32)
    _, height, width = problem.input_plane
    steps = (height * width, width, 1)
    firsts = [first * step for first, step in zip(offsets.first_cell, steps, strict=True)]
    return np.concatenate([np.maximum(offsets.jump, -(2**31)), *firsts])


def blocks_for(problem: Problem, last: bool) -> tuple[Blocks, Blocks, Blocks] | None:
    """How to cut the planes of an indexed problem into the patches of `gather`, or None where that won't pay.

    Scattering is better where windows are few, or problems so small that one launch is all they take. Where
    channels come `last`, they must be enough for lanes to be neighbours.
    """
    windows, plane = prod(problem.output_plane), prod(problem.input_plane)
    if last and problem.batch[1] < NEIGHBOURS:
        return None
    tables = problem.offset_tables
    if problem.cells < FEW or windows * LARGE < plane or (tables and tables.jump[-1] >= 0):
        return None
    deep = problem.axes[0].length > 1
    wide = tables is not None and not deep and problem.axes[2].length % 8 == 0
    sizes = itertools.product((1, 2, 4) if deep else (1,), range(1, 9), (8 if wide else 4,))
    cut = (_cut(problem.axes, size) for size in sizes)
    found = [(_cost(problem, last, blocks), blocks) for blocks in cut if blocks]
    if not found:
        return None
    cost, best = min(found, key=lambda choice: choice[0])
    return best if cost <= PAYS * problem.least_bytes / problem.cells else None


def _cut(axes: tuple[Axis, ...], sizes: tuple[int, ...]) -> tuple[Blocks, Blocks, Blocks] | None:
    d, h, w = (blocks_of(axis, size) for axis, size in zip(axes, sizes, strict=True))
    if d is None or h is None or w is None:
        return None
    return (d, h, w) if d.reach * h.reach * w.reach <= 36 and d.size * h.size * w.size <= 64 else None


def _cost(problem: Problem, last: bool, blocks: tuple[Blocks, ...]) -> float:
    """Instructions per cell, as counted in compiled kernels."""
    loads, seen = prod(b.reach for b in blocks), prod(b.seen for b in blocks)
    asked = prod(sum(high - low for low, high in b.spans) for b in blocks)
    stores = blocks[0].size * blocks[1].size * (blocks[2].size * 3 if last else 6)
    work = 60 + 12 * loads + (26 if problem.axes[0].length > 1 else 18) * seen + 3 * asked + stores
    return work * prod(len(b.bases) for b in blocks) / prod(problem.input_plane)
