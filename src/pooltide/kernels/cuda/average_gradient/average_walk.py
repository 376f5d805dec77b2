"""Plans `staged average`, average_walk.cu, a gradient of averages: its tile and its variant."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ....geometry import tables
from ..cost import Shape, fastest, nth
from ..kernel_tables import (
    cdiv,
    divider,
    division_cost,
    each,
    even_share,
    even_shares,
    has_empty_windows,
    is_ragged,
    most_windows,
    shares,
    window_counts,
    windows_of_shares,
)
from ..source import Argument
from ..task import RESERVED, THREADS, Launch, Task, Work
from ..windows.columns import UNROLLED
from .average_rows import POINTERS, SIZES, Rows, Tile, average_launch, folded, rows_of, runs_of, window_tables

LONG_WALK = 64  # rows of a thread, from which on finding its place costs little
SHORT_ROW = 96  # bytes: threads that each write one cell of a row leave vectors incomplete
LARGE_RESULT = 24 << 10  # bytes of a result that are too many to keep in shared memory
ROLLED = 54  # quotients that a thread keeps in registers
KERNEL = "staged average"  # in costs.json


@dataclass(frozen=True, slots=True)
class AverageTask:
    """What the kernels of averages choose by."""

    task: Task
    rows: Rows
    pack: int  # channels that a thread takes together
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)

    def row_windows(self, share: int) -> tuple[int, int]:
        """The sum and the maximum of `Rows.windows`."""
        if share not in self.counts:
            windows = self.rows.windows(share)
            self.counts[share] = int(windows.sum()), int(windows.max())
        return self.counts[share]

    @property
    def packs(self) -> int:
        return self.task.inner // self.pack

    @property
    def cells(self) -> tuple[int, int, int]:
        """Slices, periods and columns of a plane."""
        d, _, w = self.task.problem.input_plane
        return d, self.rows.periods, w

    def width(self, tile: Tile) -> Any:
        """Packs in a row of windows that a block keeps."""
        return window_counts(self.task.problem.axes[2], tile.w)[1] * tile.c


@dataclass(frozen=True, slots=True)
class Walk:
    """How the threads of a block walk through a tile; or arrays of these numbers, for many tiles."""

    tile: Tile
    d_walk: Any  # slices of a thread
    d_walks: Any
    h_walk: Any  # and periods
    sums: Any  # bytes of quotients that a block keeps in shared memory
    result: Any  # bytes of cells that are written through it, or 0
    repeats: Any  # shares of planes that a block computes, so that finding its place costs little
    grid: Any
    block: Any
    idle: Any  # threads of a block ÷ those that have cells


def walk_of(a: AverageTask, tile: Tile) -> Walk:
    """`tile`: its columns and channels are numbers, the others arrays."""
    task, rows, (d, periods, w) = a.task, a.rows, a.cells
    owners = tile.share * tile.w * tile.c
    walkers = np.maximum(THREADS // owners, 1)
    d_walk = cdiv(tile.d, walkers)
    d_walks = cdiv(tile.d, d_walk)
    h_walk = np.maximum(cdiv(tile.h, walkers // d_walks), np.minimum(rows.fewest, tile.h))
    used = owners * d_walks * cdiv(tile.h, h_walk)
    block = cdiv(used, 32) * 32
    of_d = each(lambda n: window_counts(task.problem.axes[0], n)[1], tile.d)
    kept = (tile.share * of_d * each(lambda n: a.row_windows(n)[1], tile.h) + 1) * (a.width(tile) + 1)
    parts = cdiv(d, tile.d) * cdiv(periods, tile.h) * cdiv(w, tile.w) * cdiv(a.packs, tile.c)
    planes = cdiv(task.planes, tile.share)
    walked = tile.d * tile.h * (rows.stride if rows.strided else 1)
    enough = parts * planes // (8 * task.facts.multiprocessors)
    repeats = np.maximum(np.minimum(np.minimum(cdiv(LONG_WALK, walked), enough), planes), 1)
    return Walk(
        *(tile, d_walk, d_walks, h_walk, cdiv(kept * a.pack * task.sum_bytes, 16) * 16, _result(a, tile)),
        *(repeats, parts * cdiv(planes, repeats), block, block / np.maximum(used, 1)),
    )


def _result(a: AverageTask, tile: Tile) -> Any:
    """The bytes of the cells of a block, if it writes them through shared memory, else 0."""
    (_, periods, w), problem = a.cells, a.task.problem
    row = w * a.packs * a.pack * problem.dtype.itemsize
    if (tile.w, tile.c) != (w, a.packs) or row > SHORT_ROW:
        return 0 * tile.d

    def longest(share: int) -> int:
        if a.rows.strided:
            return min(share * a.rows.stride, problem.axes[1].length)
        begin, end = shares(periods, share)
        return int((a.rows.runs[end - 1, 1] - a.rows.runs[begin, 0]).max())

    size = tile.share * tile.d * each(longest, tile.h) * row + 32
    return size * (((tile.d == 1) | (tile.h == periods)) & (size <= LARGE_RESULT))


def _average_task(task: Task, rows: Rows, most: int = 4) -> AverageTask:
    """`most`: channels that a thread may take together."""
    pack = most if task.aligned else 1
    while pack > 1 and (task.inner % pack or pack * task.sum_bytes > 16):
        pack //= 2
    return AverageTask(task, rows, pack)


def staged_average(task: Task) -> tuple[Launch, ...] | str:
    """A block keeps quotients in shared memory, and a thread the last rows of them in registers if it can."""
    if has_empty_windows(task.problem):
        return "some windows have no cell"
    task = folded(task)
    rows = rows_of(task.problem.axes[1], is_ragged(task.problem))
    d, _, w = (most_windows(axis) for axis in task.problem.axes)
    kept = d * rows.most * w
    roll = rows.unrolled and kept <= ROLLED
    pack = 4 if not roll or 4 * kept <= ROLLED else 2 if 2 * kept <= ROLLED else 1
    a = _average_task(task, rows if roll else runs_of(task.problem.axes[1]), pack)
    walk = _best(a)
    return (
        "the windows of one row of cells are more than a block can keep" if walk is None else _launch(a, walk)
    )


def _column_tile(a: AverageTask) -> Tile:
    """About as many columns as a block has threads, and all rows."""
    d, periods, w = a.cells
    c = even_share(a.packs, 32 // a.pack) if a.packs > 32 // a.pack else a.packs
    columns = even_share(w, THREADS // c)
    share = min(THREADS // (w * c), a.task.planes) if w * c <= THREADS and c == a.packs else 1
    return Tile(max(share, 1), d, periods, columns, c)


def _best(a: AverageTask) -> Walk | None:
    """The walk that costs least; None if the windows of no tile fit a block."""
    whole, (d, periods, _) = _column_tile(a), a.cells
    parts = product([1], even_shares(d), even_shares(periods))
    tiles = [*((whole.share >> n, d, periods) for n in range(whole.share.bit_length() - 1)), *parts]
    share, of_d, of_h = np.array(tiles).T
    walks = walk_of(a, Tile(share, of_d, of_h, whole.w, whole.c))
    shared = walks.sums + walks.result
    shape = Shape(walks.grid, walks.block, shared, _registers(a), _work(a, walks))
    best = fastest(a.task, KERNEL, shape, shared <= a.task.facts.shared_per_block - RESERVED)
    return None if best is None else replace(nth(walks, best), tile=nth(walks.tile, best))


def _registers(a: AverageTask) -> int:
    held = prod(most_windows(axis) for axis in a.task.problem.axes) if a.rows.strided else 0
    return min(40 + held * a.pack * a.task.sum_bytes // 4, 255)


_AVERAGE = (
    *POINTERS,
    ("long long", "planes"),
    *SIZES,
    *(("int", name) for name in ("periods", "first_period", "padding", "d_chunk", "h_chunk", "d_walk")),
    *(("int", name) for name in ("d_walks", "h_walk", "width", "groups", "tile_at", "repeats")),
    *(("Divider", name) for name in ("by_share", "by_tw", "by_tc", "by_lanes", "by_do", "by_ho")),
    *(("Divider", name) for name in ("by_h_chunks", "by_d_chunks", "by_c_chunks", "by_w_chunks")),
)


def _launch(a: AverageTask, walk: Walk) -> tuple[Launch, ...] | str:
    task, rows, problem, tile = a.task, a.rows, a.task.problem, walk.tile
    d, h, w = problem.axes
    width = a.width(tile)
    lanes = min(max(width, 1), walk.block)
    columns = most_windows(w)
    pairs = not rows.strided and max(rows.most, most_windows(d), columns) <= 2
    all_rows = bool((rows.windows(tile.h) == rows.outputs).all())
    options: tuple[tuple[str, int], ...] = (
        *(("PACK", a.pack), ("COLUMNS", columns if columns <= UNROLLED else 0)),
        *(("ROLL", int(rows.strided)), ("FLUSH", int(walk.result > 0)), ("PAIRS", int(pairs))),
        ("LINEAR", int(problem.output_plane[0] == 1 or all_rows)),
        ("WHOLE", int(all_rows and bool((windows_of_shares(d, tile.d) == d.outputs).all()))),
        ("THREADS", THREADS),
    )
    if rows.strided:
        options = *options, ("KERNEL", rows.kernel), ("STRIDE", rows.stride)
    if rows.strided or pairs:
        options = *options, ("SLICES", most_windows(d))
    arguments: tuple[Argument, ...] = (
        *(task.planes, *problem.input_plane, a.packs, *problem.output_plane, rows.periods, rows.first),
        *(rows.padding, tile.d, tile.h),
        *(walk.d_walk, walk.d_walks, walk.h_walk, width, walk.block // lanes, walk.sums, walk.repeats),
        *(divider(n) for n in (tile.share, tile.w, tile.c, lanes, d.outputs, h.outputs)),
        *(divider(cdiv(n, s)) for n, s in ((rows.periods, tile.h), (d.length, tile.d))),
        *(divider(cdiv(n, s)) for n, s in ((a.packs, tile.c), (w.length, tile.w))),
    )
    return average_launch(
        task,
        "average_walk",
        _AVERAGE,
        options,
        window_tables(problem, rows),
        arguments,
        grid=walk.grid,
        block=walk.block,
        shared=walk.sums + walk.result,
        work=_work(a, walk),
        registers=_registers(a),
    )


def _work(a: AverageTask, walk: Walk) -> Work:
    problem, rows, double = a.task.problem, a.rows, a.task.sum_bytes // 4
    d, h, w = problem.axes
    divide, cells, planes = division_cost(problem), problem.cells, problem.planes
    of_d, of_h, of_w = (float(tables(axis).window_count.sum()) for axis in (d, h, w))  # windows of all cells
    of_runs = h.outputs if rows.strided else float(rows.runs[:, 3].sum())
    taken = planes * of_d * of_runs * of_w
    of_rows = each(lambda n: a.row_windows(n)[0], walk.tile.h)
    of_slices = each(lambda n: window_counts(d, n)[0], walk.tile.d)
    kept = planes * of_slices * of_rows * float(window_counts(w, walk.tile.w)[0])
    added = planes * of_d * of_h * of_w if rows.strided else taken
    return (
        *(("windows", kept), ("divisions", kept * divide * double)),
        *(("shared loads", taken * double / a.pack * walk.idle), ("additions", added * double * walk.idle)),
        *(("cells", cells / a.pack * walk.idle), ("cells through shared memory", cells * (walk.result > 0))),
        ("threads", walk.grid * walk.block * walk.repeats),
    )
