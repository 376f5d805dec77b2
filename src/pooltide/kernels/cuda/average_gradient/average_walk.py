"""Plans `staged average`, average_walk.cu, a gradient of averages: its tile and its variant."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import inf, prod

from ....geometry import tables
from ..kernel_tables import (
    cdiv,
    divider,
    division_cost,
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
from ..task import THREADS, Launch, Task
from ..windows.columns import UNROLLED
from .average_rows import POINTERS, SIZES, Rows, Tile, average_launch, folded, rows_of, runs_of, window_tables

LONG_WALK = 64  # rows of a thread, from which on finding its place costs little
SHORT_ROW = 96  # bytes: threads that each write one cell of a row leave vectors incomplete
LARGE_RESULT = 24 << 10  # bytes of a result that are too many to keep in shared memory
ROLLED = 54  # quotients that a thread keeps in registers
WINDOW_COST = 14  # instructions of a thread that keeps a window's quotient,
CELL_COST = 15  # that computes a cell,
BLOCK_COST = 250  # and that finds its place
WAITING = 3  # with n blocks on a multiprocessor, time grows as 1 + WAITING / n, because threads wait


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

    def blocks(self, tile: Tile) -> int:
        lengths = (self.task.planes, *self.cells, self.packs)
        tiles = (tile.share, tile.d, tile.h, tile.w, tile.c)
        return prod(cdiv(length, share) for length, share in zip(lengths, tiles, strict=True))

    def width(self, tile: Tile) -> int:
        """Packs in a row of windows that a block keeps."""
        return window_counts(self.task.problem.axes[2], tile.w)[1] * tile.c

    def staged(self, tile: Tile) -> int:
        """Bytes of quotients that a block keeps in shared memory."""
        d = window_counts(self.task.problem.axes[0], tile.d)[1]
        kept = (tile.share * d * self.row_windows(tile.h)[1] + 1) * (self.width(tile) + 1)
        return cdiv(kept * self.pack * self.task.sum_bytes, 16) * 16


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
    tile = _staged_tile(a)
    return tile if isinstance(tile, str) else _average(a, tile)


def _column_tile(a: AverageTask) -> Tile:
    """About as many columns as a block has threads, and all rows."""
    d, periods, w = a.cells
    c = even_share(a.packs, 32 // a.pack) if a.packs > 32 // a.pack else a.packs
    columns = even_share(w, THREADS // c)
    share = min(THREADS // (w * c), a.task.planes) if w * c <= THREADS and c == a.packs else 1
    return Tile(max(share, 1), d, periods, columns, c)


def _staged_tile(a: AverageTask) -> Tile | str:
    """The tile with the fewest instructions, as far as they can be counted here."""
    whole, (d, periods, _) = _column_tile(a), a.cells
    axis, facts = a.task.problem.axes[0], a.task.facts
    width = window_counts(a.task.problem.axes[2], whole.w)[0] * whole.c * cdiv(a.packs, whole.c)
    cells = prod(a.task.problem.input_plane) * a.packs

    def cost(tile: Tile) -> float:
        """Instructions of threads per plane; more where the device can't hide how long they take."""
        size = a.staged(tile) + _flushes(a, tile)[1]
        if size > facts.shared_per_block - 1024:
            return inf
        blocks, resident = a.blocks(tile), min(facts.shared_per_multiprocessor // (size + 1024), 8)
        kept = window_counts(axis, tile.d)[0] * a.row_windows(tile.h)[0] * width
        work = WINDOW_COST * kept + CELL_COST * cells + BLOCK_COST * THREADS * blocks / a.task.planes
        few = max(4 * facts.multiprocessors / blocks, 1.0)
        return work * few * (1 + WAITING / resident)

    shares_ = [
        Tile(whole.share >> n, d, periods, whole.w, whole.c) for n in range(whole.share.bit_length() - 1)
    ]
    parts = product(even_shares(d), even_shares(periods))
    tiles = [*shares_, *(Tile(1, of_d, of_h, whole.w, whole.c) for of_d, of_h in parts)]
    best = min(tiles, key=cost)
    if cost(best) == inf:
        return "the windows of one row of cells are more than a block can keep"
    return best


_AVERAGE = (
    *POINTERS,
    ("long long", "planes"),
    *SIZES,
    *(("int", name) for name in ("periods", "first_period", "padding", "d_chunk", "h_chunk", "d_walk")),
    *(("int", name) for name in ("d_walks", "h_walk", "width", "groups", "tile_at", "repeats")),
    *(("Divider", name) for name in ("by_share", "by_tw", "by_tc", "by_lanes", "by_do", "by_ho")),
    *(("Divider", name) for name in ("by_h_chunks", "by_d_chunks", "by_c_chunks", "by_w_chunks")),
)


def _average(a: AverageTask, tile: Tile) -> tuple[Launch, ...] | str:
    task, rows, problem = a.task, a.rows, a.task.problem
    d, h, w = problem.axes
    owners = tile.share * tile.w * tile.c
    walkers = max(THREADS // owners, 1)
    d_walk = cdiv(tile.d, walkers)
    d_walks = cdiv(tile.d, d_walk)
    h_walk = max(cdiv(tile.h, walkers // d_walks), min(rows.fewest, tile.h))
    threads = cdiv(owners * d_walks * cdiv(tile.h, h_walk), 32) * 32
    width = a.width(tile)
    lanes = min(max(width, 1), threads)
    sums = a.staged(tile)
    flush, result = _flushes(a, tile)
    columns = most_windows(w)
    pairs = not rows.strided and max(rows.most, most_windows(d), columns) <= 2
    repeats = _repeats(a, tile)
    all_rows = bool((rows.windows(tile.h) == rows.outputs).all())
    options: tuple[tuple[str, int], ...] = (
        *(("PACK", a.pack), ("COLUMNS", columns if columns <= UNROLLED else 0)),
        *(("ROLL", int(rows.strided)), ("FLUSH", int(flush)), ("PAIRS", int(pairs))),
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
        *(d_walk, d_walks, h_walk, width, threads // lanes, sums, repeats),
        *(divider(n) for n in (tile.share, tile.w, tile.c, lanes, d.outputs, h.outputs)),
        *(divider(cdiv(n, s)) for n, s in ((rows.periods, tile.h), (d.length, tile.d))),
        *(divider(cdiv(n, s)) for n, s in ((a.packs, tile.c), (w.length, tile.w))),
    )
    planes = cdiv(task.planes, tile.share)
    grid = a.blocks(tile) // planes * cdiv(planes, repeats)
    idle = threads / max(owners * d_walks * cdiv(tile.h, h_walk), 1)
    held = prod(most_windows(axis) for axis in problem.axes) if rows.strided else 0
    return average_launch(
        task,
        "average_walk",
        _AVERAGE,
        options,
        window_tables(problem, rows),
        arguments,
        grid=grid,
        block=threads,
        shared=sums + result,
        work=_work(a, tile, flush, grid * threads * repeats, idle),
        registers=min(40 + held * a.pack * task.sum_bytes // 4, 255),
    )


def _work(
    a: AverageTask, tile: Tile, flush: bool, threads: int, idle: float
) -> tuple[tuple[str, float], ...]:
    """`idle`: threads of a block ÷ those that have cells."""
    problem, rows, double = a.task.problem, a.rows, a.task.sum_bytes // 4
    d, h, w = problem.axes
    divide, cells, planes = division_cost(problem), problem.cells, problem.planes
    of_d, of_h, of_w = (float(tables(axis).window_count.sum()) for axis in (d, h, w))  # windows of all cells
    of_runs = h.outputs if rows.strided else float(rows.runs[:, 3].sum())
    taken = planes * of_d * of_runs * of_w
    kept = planes * window_counts(d, tile.d)[0] * a.row_windows(tile.h)[0] * window_counts(w, tile.w)[0]
    added = planes * of_d * of_h * of_w if rows.strided else taken
    return (
        *(("windows", kept), ("divisions", kept * divide * double)),
        *(("shared loads", taken * double / a.pack * idle), ("additions", added * double * idle)),
        *(("cells", cells / a.pack * idle), ("cells through shared memory", cells * flush)),
        ("threads", threads),
    )


def _repeats(a: AverageTask, tile: Tile) -> int:
    """How many shares of planes a block computes, so that finding its place costs little."""
    rows = tile.d * tile.h * (a.rows.stride if a.rows.strided else 1)
    enough = a.blocks(tile) // (8 * a.task.facts.multiprocessors)
    return max(min(cdiv(LONG_WALK, rows), enough, cdiv(a.task.planes, tile.share)), 1)


def _flushes(a: AverageTask, tile: Tile) -> tuple[bool, int]:
    """Whether a block writes its cells through shared memory, and the bytes of them."""
    (_, periods, w), itemsize = a.cells, a.task.problem.dtype.itemsize
    row = w * a.packs * a.pack * itemsize
    if (tile.w, tile.c) != (w, a.packs) or (tile.d > 1 and tile.h != periods) or row > SHORT_ROW:
        return False, 0
    rows = min(tile.h * a.rows.stride, a.task.problem.axes[1].length) if a.rows.strided else None
    if rows is None:
        begin, end = shares(periods, tile.h)
        rows = int((a.rows.runs[end - 1, 1] - a.rows.runs[begin, 0]).max())
    size = tile.share * tile.d * rows * row + 32
    return (True, size) if size <= LARGE_RESULT else (False, 0)
