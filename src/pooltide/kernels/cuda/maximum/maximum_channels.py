"""Maxima with channels innermost, one axis after the other: maximum_channels.cu.

The public function is a planner. task.py says what a planner takes and returns; choice.py has their order.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from math import prod

from ..kernel_tables import cdiv, divider, even_share
from ..source import Argument, Source
from ..task import THREADS, Launch, Task
from ..windows.boxes import BLOCKS, Cut, best_cuts, cuts_of
from ..windows.columns import TENSORS, Windows, not_neighbours, span_table, windows_of
from .places import index_parameter, places_of

ARRAY_BYTES = (24 << 10, 48 << 10)  # the second where the first would read too many cells twice
TWICE = (1.3, 2.0)  # how often a row is compared at most, on average, where boxes share rows
LONGEST = 64  # cells of a window on the w axis; no longer ones were measured, so their costs are unknown
LEAST_BYTES = 8 << 10
CHANNEL_BYTES = (64, 32)  # that a block takes of each cell
_PARAMETERS = (
    *(("const int*", "tables"), ("i64", "image_elements"), ("i64", "image_windows")),
    *(("int", name) for name in ("H", "W", "Do", "Ho", "Wo", "inner", "channels")),
    *(("int", name) for name in ("box_d", "box_h", "box_w", "cells_h", "slices_from", "place_d", "place_h")),
    *(("Divider", f"by_{name}") for name in ("chunks", "parts_w", "parts_h", "parts_d")),
    *(
        ("Divider", f"by_{name}")
        for name in ("vectors", "row_vectors", "channels", "box_w", "box_h", "cells_h")
    ),
)


def channel_maximum(task: Task) -> tuple[Launch, ...] | str:
    """Threads compare rows, then columns, then slices of windows, several channels at once."""
    d, h, w = axes = tuple(windows_of(axis) for axis in task.problem.axes)
    itemsize = task.problem.dtype.itemsize
    vector = 16 // itemsize if task.inner * itemsize % 16 == 0 else 1
    if reason := _refusal(task, axes, vector):
        return reason
    rows = d.length * h.length * w.outputs * task.problem.planes * itemsize  # bytes of all rows of windows
    fair = max(rows // (BLOCKS * task.facts.multiprocessors), LEAST_BYTES)
    found: tuple[Launch, ...] | str = ""
    ways = cuts_of(axes)
    for (size, twice), taken in product(zip(ARRAY_BYTES, TWICE, strict=True), CHANNEL_BYTES):
        channels = min(cdiv(even_share(task.inner, taken // itemsize), vector) * vector, task.inner)
        most = min(size, fair, task.facts.shared_per_block)
        fits = partial(_fits, most, channels * itemsize, d.most > 1)
        cuts = best_cuts(ways, fits, twice)
        found = _launch(task, axes, cuts, channels, vector) if cuts is not None else ""
        if found and not isinstance(found, str):
            return found
    return found or f"no box of windows fits {ARRAY_BYTES[-1]} bytes"


def _refusal(task: Task, axes: tuple[Windows, ...], vector: int) -> str | None:
    """Why the kernel can't compare these windows; else None."""
    if task.inner == 1:
        return "channels are not innermost"
    d, h, w = axes
    if d.most * h.most == 1:
        return "windows have one row"
    if w.most > LONGEST:
        return f"rows of windows have {w.most} cells, more than the {LONGEST} whose times are known"
    return not_neighbours(axes)


def _fits(most: int, channel_bytes: int, deep: bool, cuts: tuple[Cut, ...]) -> bool:
    return sum(_array_bytes(cuts, channel_bytes, deep)) <= most


def _array_bytes(cuts: tuple[Cut, ...], channel_bytes: int, deep: bool) -> tuple[int, int]:
    d, h, w = cuts
    rows = cdiv(d.cells * h.cells * w.box * channel_bytes, 16) * 16
    return rows, d.cells * h.box * w.box * channel_bytes if deep else 0


def _launch(
    task: Task, axes: tuple[Windows, ...], cuts: tuple[Cut, ...], channels: int, vector: int
) -> tuple[Launch, ...] | str:
    problem, (d, h, w) = task.problem, cuts
    chunks = cdiv(task.inner, channels)
    blocks = task.planes * chunks * d.parts * h.parts * w.parts
    if blocks >= 2**31:
        return f"{blocks} blocks are more than a grid numbers"
    deep = axes[0].most > 1
    rows, slices = _array_bytes(cuts, channels * problem.dtype.itemsize, deep)
    vectors = cdiv(channels, vector)
    arguments: tuple[Argument, ...] = (
        *(prod(problem.input_plane) * task.inner, prod(problem.output_plane)),
        *(*problem.input_plane[1:], *problem.output_plane, task.inner, channels),
        *(d.box, h.box, w.box, h.cells, rows, *places_of(problem.offsets, axes)[3:5]),
        *(divider(n) for n in (chunks, w.parts, h.parts, d.parts)),
        *(divider(n) for n in (vectors, w.box * vectors, channels, w.box, h.box, h.cells)),
    )
    defines = (*task.defines, ("VECTOR", vector), ("SLICES_FIRST", int(deep)), ("THREADS", THREADS))
    parameters = (*TENSORS, *index_parameter(task), *_PARAMETERS)
    source = Source("maximum_channels.cu", "maximum_channels", parameters, defines)
    return (Launch(source, blocks, THREADS, rows + slices, (span_table(axes),), arguments),)
