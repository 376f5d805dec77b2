"""Which windows a block computes from a tile in shared memory (tile.h), for maxima and for averages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from ..kernel_tables import Array, cdiv, divider, even_share, is_ragged
from ..source import Argument, Source
from ..task import FEW_THREADS as THREADS
from ..task import Launch, Task
from . import columns
from .banks import BRANCHES, conflicts, gaps_help, lanes_at_once, most_batched, with_gaps
from .boxes import BLOCKS
from .columns import TENSORS, Windows, not_in_planes, span_table, steady_axes, unrolled_cells, windows_of

TILE_BYTES = (16 << 10, 24 << 10)  # the second where too few windows fit the first
FEWEST_WINDOWS = 32  # of a block, if possible, so that a warp has windows for all lanes
Axes = tuple[Windows, Windows, Windows]
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
class TileKernel:
    """What one of the two kernels has for itself: parameters, their values, and what it is specialised on."""

    entry: str
    pointers: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, str], ...]
    values: tuple[Argument, ...]
    options: tuple[tuple[str, int], ...]
    more: tuple[Array, ...]  # that follow the windows in the table


def staged(task: Task, kernel: Callable[[Axes], TileKernel]) -> tuple[Launch, ...] | str:
    """The launch of a kernel that reads its windows from a tile, or why there is none."""
    d, h, w = (windows_of(axis) for axis in task.problem.axes)
    axes = d, h, w
    tile = not_in_planes(task, axes) or _tile(task, axes)
    return tile if isinstance(tile, str) else _launch(task, axes, tile, kernel(axes))


def _launch(task: Task, axes: Axes, tile: _Tile, kernel: TileKernel) -> tuple[Launch, ...] | str:
    blocks = cdiv(task.planes, tile.share) * len(tile.parts)
    if blocks >= 2**31:
        return f"{blocks} blocks are more than a grid numbers"
    strides, itemsize = steady_axes(task), task.problem.dtype.itemsize
    first_cells = _first_cells(task, axes, tile)
    padded = gaps_help(first_cells, itemsize)
    elements, windows = prod(task.problem.input_plane), prod(task.problem.output_plane)
    arguments = (
        *(task.planes, task.planes * elements, elements, windows, tile.share),
        *(axis.length for axis in axes),
        *(axis.outputs for axis in axes),
        *(number for axis in strides for number in (axis.k, axis.s, axis.p)),
        *(divider(n) for n in (len(tile.parts), *(axis.outputs for axis in reversed(axes)))),
        *kernel.values,
    )
    defines = (
        *(*task.defines, *kernel.options, *_unrolled(task, axes)),
        ("WHOLE", int(tile.cells >= elements)),
        ("STEADY", int(not any(axis.adaptive for axis in strides))),
        *(("PADDED", int(padded)), ("THREADS", THREADS)),
    )
    parameters = (*TENSORS, *kernel.pointers, *_PARAMETERS, *kernel.numbers)
    source = Source(f"{kernel.entry}.cu", kernel.entry, parameters, defines)
    tables = (span_table(axes, *kernel.more), tile.parts.astype(np.int32).ravel())
    lanes = task.planes * windows * 32 / min(tile.windows, 32)  # of warps that have windows
    tight, loose = conflicts(first_cells, itemsize)
    read = lanes * min(tight, BRANCHES * loose) * prod(axis.most for axis in axes)
    size = cdiv(tile.cells * itemsize + 16 - itemsize, 16) * 16  # the first cell is anywhere in a vector
    shared = with_gaps(size, itemsize) if padded else size
    work = (("lanes of tiles", lanes), ("reads of tiles", read), ("threads of tiles", blocks * THREADS))
    return (Launch(source, blocks, THREADS, shared, tables, arguments, work=work),)


def _tile(task: Task, axes: tuple[Windows, ...]) -> _Tile | str:
    plane, windows = prod(task.problem.input_plane), prod(task.problem.output_plane)
    itemsize = task.problem.dtype.itemsize
    even = task.planes * plane * itemsize // (BLOCKS * task.facts.multiprocessors)
    for size in TILE_BYTES:
        cells = min(size, even) // itemsize
        if cells >= plane:
            share = even_share(task.planes, min(cells // plane, (2**31 - 1) // windows))
            found = _Tile(share, np.array([[0, windows, 0, plane]]), share * windows, share * plane)
        else:
            found = _part_of_plane(axes, cells)
        if found.windows >= FEWEST_WINDOWS or (size == TILE_BYTES[-1] and found.windows):
            return found
    return "not one window fits a block"


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


def _unrolled(task: Task, axes: tuple[Windows, ...]) -> tuple[tuple[str, int], ...]:
    (_, h, w), ragged = axes, is_ragged(task.problem)
    cells = unrolled_cells(w.most, ragged, most_batched(task.problem.dtype.itemsize))
    rows = columns.UNROLLED // cells if cells else 1
    rows = rows if ragged else even_share(h.most, rows)
    clipped_h = ragged or h.clipped or h.most % rows > 0
    clipped = (("CLIPPED_H", int(clipped_h)), ("CLIPPED_W", int(ragged or w.clipped)))
    return ("COLUMNS", cells), ("ROWS", rows), *clipped


def _first_cells(task: Task, axes: tuple[Windows, ...], tile: _Tile) -> Array:
    """The elements that lanes read at once: the first cells of the first windows."""
    d, h, w = axes
    shape = (tile.share, d.outputs, h.outputs, w.outputs)
    lanes = min(tile.windows, lanes_at_once(task.problem.dtype.itemsize))
    plane, od, oh, ow = np.unravel_index(tile.parts[0, 0] + np.arange(lanes), shape)
    row = (plane * d.length + d.first[od]) * h.length + h.first[oh]
    elements: Array = row * w.length + w.first[ow]
    return elements
