"""Which windows a block computes from a tile in shared memory: maximum_staged.cu and average_staged.cu.

The public functions are planners. task.py says what a planner takes and returns; choice.py has their order.
boxes.py divides planes; device/tile.h is the other side of both modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from . import columns
from .average_plan import DIVISORS, division_of
from .boxes import Tile, bank_conflicts, tile_of
from .columns import TENSORS, Windows, span_table, steady_axes, windows_of
from .maximum_plan import index_parameter, places_of, rolls
from .source import Argument, Source
from .tables import Array, cdiv, divider
from .task import Launch, Task

THREADS = 256
FEWEST_WINDOWS = 32  # of a block, so that a warp has windows for all lanes
FEWEST_ROWS = 64  # of windows in a block, where threads compare rows first
# Limits for the average number of windows that hold a cell. Above MOST_OVERLAP, other kernels may be faster:
# they share comparisons or loads. Below LEAST_OVERLAP, no window would use most cells of a tile.
MOST_OVERLAP = 2
LEAST_OVERLAP = 0.5
# Bytes. If windows are less than NEAR apart, in rows of at least LONG_ROW, threads read fast without a tile.
NEAR = 6
LONG_ROW = 128
FEWEST_CELLS = 6  # of a window; smaller ones are read as fast without a copy
NARROW = 16  # windows: without a tile, threads read shorter rows slowly, NARROW_COST times as long
NARROW_COST = 4
LONGEST = 128  # cells of a window on the w axis, which one thread compares
MOST_CONFLICTS = 2  # lanes that wait for one bank of shared memory
# Instructions: to read and compare a cell, the same with its place, and what a thread does besides.
COMPARED, PLACED, BESIDES = 3, 7, 25
_PARAMETERS = (
    *(("const int*", "tables"), ("i64", "planes"), ("i64", "elements")),
    *(("int", name) for name in ("plane_elements", "share", "whole_h", "whole_w")),
    *(("int", name) for name in ("D", "H", "W", "Do", "Ho", "Wo")),
    *(("int", f"{name}_{axis}") for axis in "dhw" for name in "ksp"),
    *(("int", name) for name in ("box_d", "box_h", "box_w", "cells_d", "cells_h")),
    *(("int", name) for name in ("segments", "segment_rows", "segment")),
    *(("Divider", f"by_{name}") for name in ("parts_w", "parts_h", "parts_d", "box_h", "box_d", "lanes")),
    *(("Divider", f"by_{name}") for name in ("cells_h", "segment_rows", "vectors")),
)


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
    """Threads compare cells in shared memory, one axis after the other."""
    axes = _windows(task)
    d, h, _ = axes
    if reason := _refusal(task, axes) or _shared_comparisons(task, axes):
        return reason
    arrays = int(d.most * h.most > 1), int(d.most > 1)
    tile = tile_of(task, axes, arrays)
    if isinstance(tile, str):
        return tile
    rows = tile.rows * tile.box[2]
    if arrays[0] and rows < FEWEST_ROWS:
        return f"a block has {rows} rows of windows, too few for its threads"
    if not arrays[0] and tile.windows < FEWEST_WINDOWS:
        return f"{tile.windows} windows fit a block, too few for its threads"
    options = (("ROWS_FIRST", arrays[0]), ("SLICES_FIRST", arrays[1]))
    padded = bank_conflicts(task, axes, tile, bool(arrays[0])) > MOST_CONFLICTS
    rows_from = tile.bytes(padded)
    slices_from = rows_from + cdiv(tile.row_elements * task.problem.dtype.itemsize, 16) * 16
    values = (*places_of(task.problem.offsets, axes)[3:5], rows_from, slices_from)
    numbers = tuple(("int", name) for name in ("place_d", "place_h", "rows_from", "slices_from"))
    own = _Own("maximum_staged", index_parameter(task), numbers, values, options, ())
    return _launch(task, axes, tile, own, padded)


def staged_average(task: Task) -> tuple[Launch, ...] | str:
    """Threads add whole windows in shared memory, cell by cell."""
    axes = _windows(task)
    overlap, w = prod(axis.overlap for axis in axes), axes[2]
    reason = _refusal(task, axes)
    if reason is None and overlap > MOST_OVERLAP and w.outputs >= NARROW:
        reason = f"a cell is in {overlap:.1f} windows"
    tile = reason or tile_of(task, axes, (0, 0))
    if isinstance(tile, str):
        return tile
    if tile.windows < FEWEST_WINDOWS:
        return f"{tile.windows} windows fit a block, too few for its threads"
    divisors, values, options = division_of(task)
    own = _Own("average_staged", (), DIVISORS, tuple(values), options, divisors)
    return _launch(task, axes, tile, own, bank_conflicts(task, axes, tile, False) > MOST_CONFLICTS)


def _windows(task: Task) -> tuple[Windows, Windows, Windows]:
    d, h, w = (windows_of(axis) for axis in task.problem.axes)
    return d, h, w


def _refusal(task: Task, axes: tuple[Windows, ...]) -> str | None:
    """Why other kernels read these windows at least as well; else None."""
    if task.inner > 1:
        return "channels are innermost, and neighbouring threads read neighbouring channels"
    if any(axis.dilation > 1 for axis in axes):
        return "the cells of a window are not neighbours"
    if any(axis.empty for axis in axes):
        return "some windows have no cell"
    overlap, w, itemsize = prod(axis.overlap for axis in axes), axes[2], task.problem.dtype.itemsize
    if overlap < LEAST_OVERLAP:
        return f"windows hold {overlap:.0%} of the cells"
    cells = prod(float(axis.count.mean()) for axis in axes)
    if cells < FEWEST_CELLS:
        return f"windows have {cells:.0f} cells, too few to copy them"
    near = w.length * itemsize >= LONG_ROW and w.length / w.outputs * itemsize < NEAR
    if near and overlap <= MOST_OVERLAP:
        return "neighbouring threads read neighbouring windows"
    return None


def _shared_comparisons(task: Task, axes: tuple[Windows, ...]) -> str | None:
    """Why a thread compares windows that overlap faster without a tile; else None."""
    d, h, w = axes
    if w.most > LONGEST:
        return f"rows of windows have {w.most} cells, too many for one thread"
    overlap = prod(axis.overlap for axis in axes)
    if overlap <= MOST_OVERLAP:
        return None
    if rolls(task):
        return f"a cell is in {overlap:.1f} windows, which share rows in other kernels"
    windows = prod(axis.outputs for axis in axes)
    rows, slices = d.length * h.length * w.outputs / windows, d.length * h.outputs * w.outputs / windows
    here = rows * (COMPARED * w.most + BESIDES) + PLACED * (d.most + h.most + w.most) + 2 * BESIDES
    here += slices * (COMPARED * h.most + BESIDES) if d.most > 1 else 0
    alone = PLACED * d.most * h.most * w.most * (NARROW_COST if w.outputs < NARROW else 1)
    if here < alone:
        return None
    return f"one axis after the other takes {here:.0f} instructions, whole windows {alone}"


def _launch(
    task: Task, axes: tuple[Windows, ...], tile: Tile, own: _Own, padded: bool
) -> tuple[Launch, ...] | str:
    blocks = cdiv(task.planes, tile.share) * prod(tile.parts)
    if blocks >= 2**31:
        return f"{blocks} blocks are more than a grid numbers"
    strides, w = steady_axes(task), axes[2]
    arguments = (
        *(task.planes, task.problem.planes * prod(task.problem.input_plane), prod(task.problem.input_plane)),
        *(tile.share, int(tile.parts[1] == 1), int(tile.parts[2] == 1)),
        *(axis.length for axis in axes),
        *(axis.outputs for axis in axes),
        *(number for axis in strides for number in (axis.k, axis.s, axis.p)),
        *(*tile.box, *tile.cells[:2], tile.segments, tile.segment_rows, tile.segment),
        *(divider(n) for n in (*reversed(tile.parts), tile.box[1], tile.box[0], tile.lanes(THREADS))),
        *(divider(n) for n in (tile.cells[1], tile.segment_rows, tile.segment // tile.vector)),
        *own.values,
    )
    cells = w.most if w.most <= columns.UNROLLED else 0
    defines = (
        *(*task.defines, *own.options, ("COLUMNS", cells), ("CLIPPED_W", w.clipped)),
        ("SEGMENTED", int(tile.segments > 1)),
        ("STEADY", int(not any(axis.adaptive for axis in strides))),
        *(("PADDED", int(padded)), ("THREADS", THREADS)),
    )
    parameters = (*TENSORS, *own.pointers, *_PARAMETERS, *own.numbers)
    source = Source(f"{own.entry}.cu", own.entry, parameters, defines)
    shared = tile.bytes(padded) + tile.array_bytes
    if shared > task.facts.shared_per_block:
        return f"a tile takes {shared} bytes of shared memory"
    tables = (span_table(axes, *own.more),)
    return (Launch(source, blocks, THREADS, shared, tables, arguments),)
