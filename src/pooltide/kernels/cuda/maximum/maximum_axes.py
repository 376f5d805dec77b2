"""Maxima of large windows in planes, one axis after the other: maximum_axes.cu.

The public function is a planner. task.py says what a planner takes and returns; choice.py has their order.
boxes.py divides planes; boxes.h is the other side of both modules.
"""

from __future__ import annotations

from math import prod

from ..kernel_tables import cdiv, divider, is_ragged
from ..source import Argument, Source
from ..task import THREADS, Launch, Task
from ..windows.banks import most_batched
from ..windows.boxes import Tile, tile_of
from ..windows.columns import (
    TENSORS,
    Windows,
    not_in_planes,
    span_table,
    steady_axes,
    unrolled_cells,
    windows_of,
)
from .places import index_parameter, places_of

LONGEST = 128  # cells of a window on the w axis, which one thread compares: more were never measured
_PARAMETERS = (
    *(("const int*", "tables"), ("i64", "planes"), ("i64", "elements")),
    *(("int", name) for name in ("plane_elements", "share", "whole_h", "whole_w")),
    *(("int", name) for name in ("D", "H", "W", "Do", "Ho", "Wo")),
    *(("int", f"{name}_{axis}") for axis in "dhw" for name in "ksp"),
    *(("int", name) for name in ("box_d", "box_h", "box_w", "cells_d", "cells_h")),
    *(("int", name) for name in ("segments", "segment_rows", "segment")),
    *(("Divider", f"by_{name}") for name in ("parts_w", "parts_h", "parts_d", "box_h", "box_d", "lanes")),
    *(("Divider", f"by_{name}") for name in ("cells_h", "segment_rows", "vectors")),
    *(("int", name) for name in ("place_d", "place_h", "rows_from", "slices_from")),
)


def axis_maximum(task: Task) -> tuple[Launch, ...] | str:
    """Threads compare rows, then columns, then slices of windows in shared memory."""
    d, h, w = (windows_of(axis) for axis in task.problem.axes)
    axes = d, h, w
    if reason := _refusal(task, axes):
        return reason
    tile = tile_of(task, axes, d.most > 1)
    if isinstance(tile, str):
        return tile
    return _launch(task, axes, tile)


def _refusal(task: Task, axes: tuple[Windows, Windows, Windows]) -> str | None:
    """Why the kernel can't compare these windows; else None."""
    d, h, w = axes
    if d.most * h.most == 1:
        return "windows have one row"
    if w.most > LONGEST:
        return f"rows of windows have {w.most} cells, too many for one thread"
    return not_in_planes(task, axes)


def _launch(task: Task, axes: tuple[Windows, Windows, Windows], tile: Tile) -> tuple[Launch, ...] | str:
    blocks = cdiv(task.planes, tile.share) * prod(tile.parts)
    if blocks >= 2**31:
        return f"{blocks} blocks are more than a grid numbers"
    padded = tile.padded(axes)
    rows_from = tile.bytes(padded)
    shared = rows_from + tile.row_bytes + tile.slice_bytes
    if shared > task.facts.shared_per_block:
        return f"a tile takes {shared} bytes of shared memory"
    strides, w, elements = steady_axes(task), axes[2], prod(task.problem.input_plane)
    ragged = is_ragged(task.problem)
    arguments: tuple[Argument, ...] = (
        *(task.planes, task.planes * elements, elements),
        *(tile.share, int(tile.parts[1] == 1), int(tile.parts[2] == 1)),
        *(axis.length for axis in axes),
        *(axis.outputs for axis in axes),
        *(number for axis in strides for number in (axis.k, axis.s, axis.p)),
        *(*tile.box, *tile.cells[:2], tile.segments, tile.segment_rows, tile.segment),
        *(divider(n) for n in (*reversed(tile.parts), tile.box[1], tile.box[0], tile.lanes(THREADS))),
        *(divider(n) for n in (tile.cells[1], tile.segment_rows, tile.segment // tile.vector)),
        *(*places_of(task.problem.offsets, axes)[3:5], rows_from, rows_from + tile.row_bytes),
    )
    defines = (
        *(*task.defines, ("SLICES_FIRST", int(tile.deep)), ("SEGMENTED", int(tile.segments > 1))),
        *(
            ("COLUMNS", unrolled_cells(w.most, ragged, most_batched(tile.itemsize))),
            ("CLIPPED_W", int(ragged or w.clipped)),
        ),
        ("STEADY", int(not any(axis.adaptive for axis in strides))),
        *(("PADDED", int(padded)), ("THREADS", THREADS)),
    )
    parameters = (*TENSORS, *index_parameter(task), *_PARAMETERS)
    source = Source("maximum_axes.cu", "maximum_axes", parameters, defines)
    return (Launch(source, blocks, THREADS, shared, (span_table(axes),), arguments),)
