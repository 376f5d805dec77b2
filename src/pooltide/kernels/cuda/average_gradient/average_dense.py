"""The planner of average_dense.cu, a gradient of averages: `dense_average`.

A thread computes several neighbouring cells, so that it reads each quotient from shared memory once for all
of them. `dense_average` takes a `Task` and returns the launch, or the reason against it (task.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ....geometry import tables
from ..cost import Shape, fastest, nth
from ..cost import instructions as cost_of
from ..kernel_tables import cdiv, divider, division_cost, each, even_shares, window_counts
from ..source import Argument
from ..task import RESERVED, SECTOR, THREADS, Launch, Task, Work
from .average_rows import POINTERS, SIZES, Rows, Tile, average_launch, folded, rows_of

KEPT_BYTES = 72 << 10  # of quotients and cells, so that three blocks share a multiprocessor
REGISTERS = {4: 56, 8: 28}  # sums and quotients of a thread, at most, by the bytes of each
STRAIGHT = 1500  # instructions that are written out one after another; for more, rows of windows are a loop
CHUNK = 8  # rows of windows that a thread loads at once
BANKS = 32
KERNEL = "dense average"  # in costs.json

_DENSE = (
    *POINTERS,
    ("long long", "planes"),
    *SIZES,
    *(
        ("int", name)
        for name in (
            "first_h",
            "first_w",
            "padding_h",
            "padding_w",
            "tile_h",
            "tile_w",
            "kept_vectors",
            "items",
        )
    ),
    *(("int", name) for name in ("pitch", "slice_pitch", "plane_pitch")),
    *(("Divider", f"by_{name}") for name in ("share", "tc", "tw", "td", "columns", "chunks", "nd", "slice")),
    *(("Divider", f"by_tiles_{axis}") for axis in "hwdc"),
)


@dataclass(frozen=True)
class Cells:
    """What a thread computes: `h` × `w` periods of rows and columns, `pack` channels of each."""

    rows: Rows
    columns: Rows
    h: int
    w: int
    pack: int

    @property
    def count(self) -> int:
        return self.h * self.rows.stride * self.w * self.columns.stride

    @property
    def lines(self) -> int:
        """Rows of windows that hold the cells."""
        return self.h + self.rows.most - 1

    @property
    def line(self) -> int:
        """Windows in such a row."""
        return self.w + self.columns.most - 1

    @cached_property
    def additions(self) -> int:
        """Of a slice of windows: a window adds to each of its cells."""
        return self.h * self.rows.kernel * self.w * self.columns.kernel

    @property
    def registers(self) -> int:
        return (self.count + self.line) * self.pack


@dataclass(frozen=True, slots=True)
class Plan:
    """A tile of threads, and what follows from it; or arrays of these numbers, one for each of many tiles."""

    task: Task
    cells: Cells
    tile: Tile
    packs: int  # of all channels
    periods: tuple[Any, Any]  # of rows and of columns of a tile
    tiles: tuple[Any, ...]  # along rows, columns, slices, channels and planes
    slices: Any  # of windows of a tile
    existing: Any  # rows of windows of a slice that exist, at most
    columns: Any  # packs in a row of windows that exist, at most
    pitches: tuple[Any, Any, Any]  # packs from a row of windows to the next, and of slices and planes
    kept: Any  # bytes of quotients, in whole vectors
    flush: Any  # whether cells are written through shared memory
    gap: Any  # vectors after each slice of cells there, without which lanes would wait for one bank

    @property
    def shared(self) -> Any:
        of_tile = self.tile.size * self.cells.count * self.cells.pack * self.task.problem.dtype.itemsize
        through = of_tile + 32 + 16 * self.gap * self.tile.share * self.tile.d
        return np.maximum(self.kept, self.flush * through)

    @property
    def grid(self) -> Any:
        return prod(self.tiles)

    @property
    def block(self) -> Any:
        return cdiv(self.tile.size, 32) * 32

    @property
    def items(self) -> Any:
        """Columns of CHUNK windows that a block divides."""
        return self.tile.share * self.slices * cdiv(self.existing, CHUNK) * self.columns

    @property
    def lanes(self) -> Any:
        """Of the warps that write a row each, as the tile is not contiguous in the result."""
        d, h, w = self.task.problem.input_plane
        row = np.minimum(self.periods[1] * self.cells.columns.stride, w)
        rows = self.task.planes * d * h * self.tiles[1] * cdiv(row * self.task.inner, 32)
        apart = (self.tiles[1] > 1) | ((self.tiles[0] > 1) & (self.tile.d > 1))
        return 32 * rows * (self.flush & apart)

    @property
    def segments(self) -> Any:
        """In which lanes write and read channels-last memory, for each lane."""
        return (1 - self.flush) / np.minimum(self.tile.c, 32) * (self.task.inner > 1)

    @property
    def registers(self) -> int:
        return min(24 + self.cells.registers * self.task.sum_bytes // 4, 255)


def slice_vectors(task: Task) -> int:
    """Vectors of 16 bytes of a slice of cells, or 0 if slices are no whole vectors."""
    _, h, w = task.problem.input_plane
    size = h * w * task.inner * task.problem.dtype.itemsize
    return size // 16 if task.aligned and size % 16 == 0 else 0


def plan_of(task: Task, cells: Cells, tile: Tile) -> Plan:
    packs, depth = task.inner // cells.pack, task.problem.axes[0]
    h, w = tile.h * cells.h, tile.w * cells.w
    tiles = (
        *(cdiv(cells.rows.periods, h), cdiv(cells.columns.periods, w), cdiv(depth.length, tile.d)),
        *(cdiv(packs, tile.c), cdiv(task.planes, tile.share)),
    )
    slices = each(lambda n: window_counts(depth, n)[1], tile.d)
    lines, line = h + cells.rows.most - 1, w + cells.columns.most - 1
    columns = np.minimum(line, cells.columns.outputs) * tile.c
    pitches = _pitches(tile, slices, w * tile.c, columns, line * tile.c, lines)
    kept = cdiv(tile.share * pitches[2] * cells.pack * task.sum_bytes, 16) * 16
    flush = 1 * (tile.c == packs) * (packs * cells.pack * task.problem.dtype.itemsize < SECTOR)
    vectors = slice_vectors(task)
    whole = (tiles[0] == 1) & (tiles[1] == 1) & (tile.d * tile.share > 1)
    gap = flush * whole * (vectors > 0 and vectors % 2 == 0)
    existing = np.minimum(lines, cells.rows.outputs)
    return Plan(task, cells, tile, packs, (h, w), tiles, slices, existing, columns, pitches, kept, flush, gap)


def _pitches(
    tile: Tile, slices: Any, owned: Any, columns: Any, pitch: Any, rows: Any
) -> tuple[Any, Any, Any]:
    """Packs from a row of windows to the next, from a slice to the next, and from a plane to the next.

    Neighbouring lanes own neighbouring columns, then slices, then planes. Gaps put the quotients that
    they read at the same time into different banks. `owned`: packs of a row that lanes own.
    """
    # Packs from the lanes of a slice to those of the next; any odd number if a lane has all columns.
    lanes = np.where((tile.w > 1) | (tile.c > 1), owned, columns | 1)
    lines = rows * pitch
    slice_pitch = lines + np.where((tile.d > 1) | (tile.share > 1), (lanes - lines) % BANKS, 0)
    plane = slices * slice_pitch
    return pitch, slice_pitch, plane + np.where(tile.share > 1, (tile.d * lanes - plane) % BANKS, 0)


def dense_average(task: Task) -> tuple[Launch, ...] | str:
    """A block keeps quotients in shared memory, and a thread computes several neighbouring cells."""
    task = folded(task)
    _, h, w = task.problem.axes
    rows, columns = rows_of(h), rows_of(w)
    if not (rows.strided and columns.strided):
        return "windows are not a stride apart"
    cells = _cells(task, rows, columns)
    if cells is None:
        return "a thread would keep too many sums and quotients in registers"
    plan = _best(task, cells)
    if plan is None:
        return "the windows of a few cells are more than a block can keep"
    return _launches(plan)


def _held(task: Task) -> float:
    """Windows that hold a slice, on average."""
    return float(tables(task.problem.axes[0]).window_count.mean())


def _cells(task: Task, rows: Rows, columns: Rows) -> Cells | None:
    """The cells of a thread that cost least for each cell of a slice; None if no thread can keep any."""
    halves = task.problem.dtype.itemsize == 2
    pack = 2 if halves and task.aligned and task.inner % 2 == 0 else 1

    def cost(cells: Cells) -> Any:
        threads = cdiv(rows.periods, cells.h) * cdiv(columns.periods, cells.w)
        return cost_of(task, KERNEL, _of_threads(task, cells, threads))

    # An odd number of columns keeps the lanes of a row in different banks.
    sizes = product(range(1, min(rows.periods, 6) + 1), (*range(1, 10, 2), columns.periods))
    found = [Cells(rows, columns, of_h, of_w, pack) for of_h, of_w in sizes if of_w <= columns.periods]
    most = REGISTERS[task.sum_bytes]
    return min((cells for cells in found if cells.registers <= most), key=cost, default=None)


def _best(task: Task, cells: Cells) -> Plan | None:
    """The tile that costs least; None if none fits."""
    tiles = _tiles(task, cells)
    plans = plan_of(task, cells, Tile(*np.array(tiles).T))
    legal = plans.shared <= min(KEPT_BYTES, task.facts.shared_per_block - RESERVED)
    shape = Shape(plans.grid, plans.block, plans.shared, plans.registers, _work(plans))
    best = fastest(task, KERNEL, shape, legal)
    return None if best is None else replace(nth(plans, best), tile=nth(plans.tile, best))


def _tiles(task: Task, cells: Cells) -> list[tuple[int, ...]]:
    packs = task.inner // cells.pack
    d = task.problem.axes[0].length
    h, w = cdiv(cells.rows.periods, cells.h), cdiv(cells.columns.periods, cells.w)
    sector = max(SECTOR // (cells.pack * task.problem.dtype.itemsize), 1)
    channels = {n for n in (packs, 4 * sector, 2 * sector, sector) if n <= min(packs, 64)} or {1}
    lengths = product(even_shares(d), even_shares(h), even_shares(w), channels)
    found: list[tuple[int, ...]] = [(1, *tile) for tile in lengths if prod(tile) <= THREADS]
    if (whole := (d, h, w, packs)) in {tile[1:] for tile in found}:
        most = min(task.planes, THREADS // prod(whole))
        found += [(n, *whole) for n in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) if n <= most]
    return found


def _launches(plan: Plan) -> tuple[Launch, ...] | str:
    task, cells, tile = plan.task, plan.cells, plan.tile
    problem, rows, columns = task.problem, cells.rows, cells.columns
    straight = cells.pack * cells.additions + cells.lines * cells.line <= STRAIGHT
    options = (
        *(("PACK", cells.pack), ("INNER", int(task.inner > 1)), ("KERNEL_H", rows.kernel)),
        *(("STRIDE_H", rows.stride), ("PERIODS_H", cells.h), ("KERNEL_W", columns.kernel)),
        *(("STRIDE_W", columns.stride), ("PERIODS_W", cells.w), ("CHUNK", CHUNK)),
        *(("UNROLLED", cells.lines if straight else 1), ("FLUSH", int(plan.flush)), ("GAP", plan.gap)),
        ("THREADS", THREADS),
    )
    chunks = cdiv(plan.existing, CHUNK)
    arguments: tuple[Argument, ...] = (
        *(task.planes, *problem.input_plane, plan.packs, *problem.output_plane, rows.first, columns.first),
        *(rows.padding, columns.padding, *plan.periods, plan.kept // 16, plan.items, *plan.pitches),
        *(divider(n) for n in (tile.share, tile.c, tile.w, tile.d, max(plan.columns, 1), max(chunks, 1))),
        *(divider(n) for n in (max(plan.slices, 1), max(slice_vectors(task), 1), *plan.tiles[:4])),
    )
    of_d = tables(problem.axes[0])
    return average_launch(
        task,
        "average_dense",
        _DENSE,
        options,
        [of_d.first_window, of_d.window_count],
        arguments,
        grid=plan.grid,
        block=plan.block,
        shared=int(plan.shared),
        work=_work(plan),
        registers=plan.registers,
    )


def _work(plan: Plan) -> Work:
    """Of all blocks."""
    task, cells, threads = plan.task, plan.cells, plan.grid * plan.block
    windows, double = plan.items * plan.grid * CHUNK * cells.pack, task.sum_bytes // 4
    return (
        *(("windows", windows), ("divisions", windows * division_cost(task.problem) * double)),
        *_of_threads(task, cells, threads),
        ("cells through shared memory", threads * cells.count * cells.pack * plan.flush),
        ("lanes of rows", plan.lanes),
        (
            "segments of channels",
            (windows + threads * cells.count * cells.pack) / cells.pack * plan.segments,
        ),
    )


def _of_threads(task: Task, cells: Cells, threads: Any) -> Work:
    """The work of so many threads, less what depends on their tile."""
    taken = threads * _held(task) * cells.pack * (task.sum_bytes // 4)
    return (
        *(("additions", taken * cells.additions), ("shared loads", taken * cells.lines * cells.line)),
        *(("cells", threads * cells.count * cells.pack), ("threads", threads)),
    )
