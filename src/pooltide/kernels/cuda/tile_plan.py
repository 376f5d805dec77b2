"""Which windows a block computes from a tile in shared memory: maximum_staged.cu and average_staged.cu.

The public functions are planners. task.py says what a planner takes and returns; choice.py has their order.
device/tile.h is the other side of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

import numpy as np

from . import columns
from .average_plan import division_of, divisor_parameters, windows_together
from .axis_plan import axis_maximum
from .banks import LINE, conflicts, gaps_help, lanes_at_once, with_gaps
from .columns import TENSORS, Windows, may_pair, may_spread, span_table, steady_axes, windows_of
from .maximum_plan import index_parameter, places_of, rolls
from .source import Argument, Source
from .tables import Array, cdiv, divider, even_share
from .task import Launch, Task

THREADS = 128
TILE_BYTES = (16 << 10, 24 << 10)  # the second where too few windows fit the first
# Windows of a block. Maxima: so that a warp has windows for all lanes. Averages: lanes without a window cost
# less than in `average of wide windows`, which takes 0.38 instructions of a warp per cell; here it is 5 per
# cell and warp, so 13 windows break even.
FEWEST_WINDOWS = 32
FEWEST_AVERAGES = 13
BLOCKS = 2  # of each multiprocessor, at least
# Limits for the average number of windows that hold a cell. Above MOST_OVERLAP, most kernels of columns.h are
# faster: they share comparisons or loads. Below LEAST_OVERLAP, no window would use most cells of a tile.
MOST_OVERLAP = 2
LEAST_OVERLAP = 0.5
# Averages with at most NARROW windows in a row, of at least LARGE cells, are staged even if they overlap
# more: without a tile, the lanes of a warp would read the cells of many planes, again for each window.
NARROW, LARGE = 4, 64
# Bytes. If windows are less than NEAR apart, in rows of at least LONG_ROW, threads read fast without a tile.
NEAR = 6
LONG_ROW = 128
FEWEST_CELLS = 6  # of a window; smaller ones are often read as fast without a copy
# Beyond these limits a tile is worth it where `_cycles_without_tile` is GAIN times `_cycles`.
GAIN = 2.0
# Cycles of a multiprocessor for 32 windows in a tile: instructions to find a window, and those of a cell.
FOUND, ADDED = 25, 1.5
SEARCHED_ROWS = 3  # of windows, from which on the place of a maximum is searched after its value
_PARAMETERS = (
    *(("const int*", "tables"), ("const int*", "parts"), ("i64", "planes"), ("i64", "elements")),
    *(("int", name) for name in ("plane_elements", "plane_windows", "share")),
    *(("int", name) for name in ("D", "H", "W", "Do", "Ho", "Wo")),
    *(("int", f"{name}_{axis}") for axis in "dhw" for name in "ksp"),
    *(("Divider", f"by_{name}") for name in ("parts", "wo", "ho", "do")),
)


@dataclass(frozen=True, slots=True)
class _Tile:
    """`share` planes, or a part of one: rows of (first window, windows, first cell, cells)."""

    share: int
    parts: Array
    windows: int  # of the largest tile
    cells: int


@dataclass(frozen=True, slots=True)
class _Own:
    """What one of the two kernels has for itself: parameters, their values, and what it is specialised on."""

    entry: str
    pointers: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, str], ...]
    values: tuple[Argument, ...]
    options: tuple[tuple[str, int], ...]
    more: tuple[Array, ...]  # that follow the windows in the table


def staged_maximum(task: Task) -> tuple[Launch, ...] | str:
    """Threads compare whole windows in shared memory."""
    axes = _windows(task)
    tile = _refusal(task, axes) or _tile(task, axes, FEWEST_WINDOWS)
    if isinstance(tile, str):
        return tile
    rows = min(steady_axes(task)[1].s, axes[1].most) if rolls(task) else axes[1].most
    if reason := _limits(task, axes, MOST_OVERLAP):
        if not isinstance(axis_maximum(task), str):
            return f"{reason}, and large ones are compared axis by axis"
        if slow := _no_gain(task, axes, tile, rows):
            return f"{reason}; {slow}"
    options = (("SEARCHED", int(axes[0].most * axes[1].most >= SEARCHED_ROWS)),)
    values = places_of(task.problem.offsets, axes)[3:5]
    numbers = (("int", "place_d"), ("int", "place_h"))
    own = _Own("maximum_staged", index_parameter(task), numbers, values, options, ())
    return _launch(task, axes, tile, own)


def staged_average(task: Task) -> tuple[Launch, ...] | str:
    """Threads add whole windows in shared memory, cell by cell."""
    axes = _windows(task)
    large = axes[2].outputs <= NARROW and _mean_cells(axes) >= LARGE
    tile = _refusal(task, axes) or _tile(task, axes, FEWEST_AVERAGES)
    if isinstance(tile, str):
        return tile
    together, h = windows_together(axes[1]), axes[1]
    rows = (h.most + (together - 1) * h.length / h.outputs) / together
    reason = _limits(task, axes, inf if large else MOST_OVERLAP)
    if reason and (slow := _no_gain(task, axes, tile, rows)):
        return f"{reason}; {slow}"
    divisors, values, options = division_of(task)
    own = _Own("average_staged", (), divisor_parameters(task), tuple(values), options, divisors)
    return _launch(task, axes, tile, own)


def _windows(task: Task) -> tuple[Windows, Windows, Windows]:
    d, h, w = (windows_of(axis) for axis in task.problem.axes)
    return d, h, w


def _launch(task: Task, axes: tuple[Windows, ...], tile: _Tile, own: _Own) -> tuple[Launch, ...] | str:
    blocks = cdiv(task.planes, tile.share) * len(tile.parts)
    if blocks >= 2**31:
        return f"{blocks} blocks are more than a grid numbers"
    strides, padded = steady_axes(task), _padded(task, axes, tile)
    elements, windows = prod(task.problem.input_plane), prod(task.problem.output_plane)
    arguments = (
        *(task.planes, task.planes * elements, elements, windows, tile.share),
        *(axis.length for axis in axes),
        *(axis.outputs for axis in axes),
        *(number for axis in strides for number in (axis.k, axis.s, axis.p)),
        *(divider(n) for n in (len(tile.parts), *(axis.outputs for axis in reversed(axes)))),
        *own.values,
    )
    defines = (
        *(*task.defines, *own.options, *_unrolled(axes), ("WHOLE", int(tile.cells >= elements))),
        ("STEADY", int(not any(axis.adaptive for axis in strides))),
        *(("PADDED", int(padded)), ("THREADS", THREADS)),
    )
    parameters = (*TENSORS, *own.pointers, *_PARAMETERS, *own.numbers)
    source = Source(f"{own.entry}.cu", own.entry, parameters, defines)
    tables = (span_table(axes, *own.more), tile.parts.astype(np.int32).ravel())
    return (Launch(source, blocks, THREADS, _shared(task, tile, padded), tables, arguments),)


def _refusal(task: Task, axes: tuple[Windows, ...]) -> str | None:
    """Why windows are not read from a tile; else None."""
    if task.inner > 1:
        return "channels are innermost, and neighbouring threads read neighbouring channels"
    if any(axis.dilation > 1 for axis in axes):
        return "the cells of a window are not neighbours"
    if any(axis.empty for axis in axes):
        return "some windows have no cell"
    overlap = prod(axis.overlap for axis in axes)
    return f"windows hold {overlap:.0%} of the cells" if overlap < LEAST_OVERLAP else None


def _limits(task: Task, axes: tuple[Windows, ...], most_overlap: float) -> str | None:
    """Why other kernels read these windows at least as well, unless rows are short; else None."""
    overlap, w, itemsize = prod(axis.overlap for axis in axes), axes[2], task.problem.dtype.itemsize
    if overlap > most_overlap:
        return f"a cell is in {overlap:.1f} windows"
    cells = _mean_cells(axes)
    if cells < FEWEST_CELLS:
        return f"windows have {cells:.0f} cells, too few to copy them"
    if w.length * itemsize >= LONG_ROW and w.length / w.outputs * itemsize < NEAR:
        return "neighbouring threads read neighbouring windows"
    return None


def _no_gain(task: Task, axes: tuple[Windows, ...], tile: _Tile, rows: float) -> str | None:
    """Why a tile saves too little; `rows` of a window are read by a thread that has no tile."""
    here, alone = _cycles(task, axes, tile), _cycles_without_tile(task, axes, rows)
    if alone >= GAIN * here:
        return None
    return f"32 windows take {here:.0f} cycles from a tile and {alone:.0f} without"


def _cycles(task: Task, axes: tuple[Windows, ...], tile: _Tile) -> float:
    """Cycles for 32 windows: shared memory serves a bank once per cycle, and 4 instructions are issued.

    Where a tile has gaps, most warps have lanes with a gap and lanes without, and run both branches.
    """
    cells = prod(axis.most for axis in axes)
    tight, loose = conflicts(_first_cells(task, axes, tile), task.problem.dtype.itemsize)
    padded = _padded(task, axes, tile)
    each = 2 * max(loose, ADDED) if padded else max(tight, ADDED)
    return (FOUND + each * cells) * 32 / min(tile.windows, 32)


def _cycles_without_tile(task: Task, axes: tuple[Windows, ...], rows: float) -> float:
    """Cycles for 32 windows of the kernels of columns.h: a load or store takes one for each line of memory.

    Where rows of windows are short, the lanes of a warp have columns of several planes, each with its lines.
    """
    d, h, w = axes
    pair = 2 if may_pair(task) else 1
    apart = w.length / w.outputs
    span = min(w.length, 32 * pair * apart) * task.problem.dtype.itemsize  # bytes of a plane for a warp
    window_rows = max(32 * pair / w.outputs, 1)
    lines = window_rows * (1 + span / LINE)
    if h.overlap <= 1 and may_spread(task, pair):
        lines = min(lines, 1 + window_rows * h.length / h.outputs * span / LINE)
    cells = d.most * rows * (w.most + (pair - 1) * apart)
    results = 2 if task.problem.index_bytes else 1
    return (cells + results) * lines / pair


def _mean_cells(axes: tuple[Windows, ...]) -> float:
    """The cells of a window, on average."""
    return prod(float(axis.count.mean()) for axis in axes)


def _tile(task: Task, axes: tuple[Windows, ...], fewest: int) -> _Tile | str:
    plane, windows = prod(task.problem.input_plane), prod(task.problem.output_plane)
    itemsize, most = task.problem.dtype.itemsize, 0
    even = task.planes * plane * itemsize // (BLOCKS * task.facts.multiprocessors)
    for size in TILE_BYTES:
        cells = min(size, even) // itemsize
        if cells >= plane:
            share = even_share(task.planes, cells // plane)
            found = _Tile(share, np.array([[0, windows, 0, plane]]), share * windows, share * plane)
        else:
            found = _part_of_plane(axes, cells)
        if found.windows >= fewest:
            return found
        most = found.windows
    return f"{most} windows fit a block, too few for its threads"


def _part_of_plane(axes: tuple[Windows, ...], cells: int) -> _Tile:
    """Windows of some slices, some rows of a slice, or part of a row; no windows where none fit."""
    cell = window = np.zeros((1, 1), np.int64)  # the first of each slice, then of each row
    for level, axis in enumerate(axes):
        inner = prod(other.length for other in axes[level + 1 :])
        inner_windows = prod(other.outputs for other in axes[level + 1 :])
        share = _fitting(axis, cells // inner)
        if share:
            begin = np.arange(0, axis.outputs, even_share(axis.outputs, share))
            end = np.append(begin[1:], axis.outputs)
            first, counts = axis.first[begin], (axis.first + axis.count)[end - 1] - axis.first[begin]
            parts = np.stack(
                np.broadcast_arrays(
                    (window * axis.outputs + begin) * inner_windows, (end - begin) * inner_windows,
                    (cell * axis.length + first) * inner, counts * inner,
                ),
                axis=-1,
            ).reshape(-1, 4)  # fmt: skip
            return _Tile(1, parts, int(parts[:, 1].max()), int(parts[:, 3].max()))
        if axis.most > 1:
            break
        cell = (cell * axis.length + axis.first).reshape(-1, 1)
        window = (window * axis.outputs + np.arange(axis.outputs)).reshape(-1, 1)
    return _Tile(1, np.zeros((0, 4), np.int64), 0, 0)


def _fitting(axis: Windows, cells: int) -> int:
    """How many consecutive windows need at most so many cells, wherever they begin."""
    end, low, high = axis.first + axis.count, 0, axis.outputs
    while low < high:
        middle = (low + high + 1) // 2
        fits = (end[middle - 1 :] - axis.first[: axis.outputs - middle + 1]).max() <= cells
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _unrolled(axes: tuple[Windows, ...]) -> tuple[tuple[str, int], ...]:
    _, h, w = axes
    cells = w.most if w.most <= columns.UNROLLED else 0
    rows = even_share(h.most, columns.UNROLLED // cells) if cells else 1
    clipped = (("CLIPPED_H", int(h.clipped or h.most % rows > 0)), ("CLIPPED_W", w.clipped))
    return ("COLUMNS", cells), ("ROWS", rows), *clipped


def _padded(task: Task, axes: tuple[Windows, ...], tile: _Tile) -> bool:
    """Whether gaps in the tile let the first windows be read with fewer conflicts."""
    return gaps_help(_first_cells(task, axes, tile), task.problem.dtype.itemsize)


def _first_cells(task: Task, axes: tuple[Windows, ...], tile: _Tile) -> Array:
    """The elements that lanes read at once: the first cells of the first windows."""
    d, h, w = axes
    shape = (tile.share, d.outputs, h.outputs, w.outputs)
    lanes = min(tile.windows, lanes_at_once(task.problem.dtype.itemsize))
    plane, od, oh, ow = np.unravel_index(tile.parts[0, 0] + np.arange(lanes), shape)
    row = (plane * d.length + d.first[od]) * h.length + h.first[oh]
    elements: Array = row * w.length + w.first[ow]
    return elements


def _shared(task: Task, tile: _Tile, padded: bool) -> int:
    """Bytes of a tile, whose first cell may be anywhere in a vector of 16 bytes."""
    itemsize = task.problem.dtype.itemsize
    size = cdiv(tile.cells * itemsize + 16 - itemsize, 16) * 16
    return with_gaps(size, itemsize) if padded else size
