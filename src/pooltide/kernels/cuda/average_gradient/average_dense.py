"""The planner of average_dense.cu, a gradient of averages: `dense_average`.

A thread computes several neighbouring cells, so that it reads each quotient from shared memory once for all
of them. `dense_average` takes a `Task` and returns the launch, or the reason against it (task.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from ....geometry import tables
from ..kernel_tables import cdiv, divider, division_cost, even_shares, window_counts
from ..source import Argument
from ..task import RESERVED, RESIDENT_BLOCKS, SECTOR, THREADS, Launch, Task
from .average_rows import POINTERS, SIZES, Rows, Tile, average_launch, folded, rows_of

KEPT_BYTES = 72 << 10  # of quotients and cells, so that three blocks share a multiprocessor
REGISTERS = {4: 56, 8: 28}  # sums and quotients of a thread, at most, by the bytes of each
STRAIGHT = 1500  # instructions that are written out one after another; for more, rows of windows are a loop
CHUNK = 8  # rows of windows that a thread loads at once
LOAD_COST = 2.0  # issue slots of a load from shared memory; an addition takes one
WINDOW_COST = 12  # of a quotient that a block keeps, without the division
CELL_COST = 8  # of a cell that is written
THREAD_COST = 150  # of a thread that finds its place
WARPS = 24  # of a multiprocessor, as each thread has so many registers
WAITING = 4  # with n warps on a multiprocessor, time grows as 1 + WAITING / n, because threads wait
BANKS = 32

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

    @property
    def cost(self) -> float:
        """Issue slots of a slice of windows."""
        return self.pack * (self.additions + LOAD_COST * self.lines * self.line) + 12


@dataclass(frozen=True, slots=True)
class Plan:
    """A tile of threads, and what follows from it: computed once, as a search asks for hundreds."""

    task: Task
    cells: Cells
    tile: Tile
    packs: int  # of all channels
    periods: tuple[int, int]  # of rows and of columns of a tile
    tiles: tuple[int, int, int, int, int]  # along rows, columns, slices, channels and planes
    slices: int  # of windows of a tile
    columns: int  # packs in a row of windows that exist, at most
    pitches: tuple[int, int, int]  # packs from a row of windows to the next, and of slices and planes
    kept: int  # bytes of quotients, in whole vectors
    flush: bool  # cells are written through shared memory

    @property
    def run(self) -> int:
        """Elements of a row that a tile has."""
        w = self.task.problem.axes[2].length
        return min(self.periods[1] * self.cells.columns.stride, w) * self.task.inner

    @property
    def contiguous(self) -> bool:
        """Whether a tile is contiguous in the result."""
        whole_rows, whole_slices = self.tiles[1] == 1, self.tiles[0] == 1
        return whole_rows and (whole_slices or self.tile.d == 1)

    @property
    def slice_vectors(self) -> int:
        """Vectors of 16 bytes of a slice of cells, or 0 if slices are no whole vectors."""
        _, h, w = self.task.problem.input_plane
        size = h * w * self.task.inner * self.task.problem.dtype.itemsize
        return size // 16 if self.task.aligned and size % 16 == 0 else 0

    @property
    def gap(self) -> int:
        """Vectors after each slice of cells in shared memory, without which lanes would wait for one bank."""
        whole = self.tiles[:2] == (1, 1) and self.tile.d * self.tile.share > 1
        return int(self.flush and whole and self.slice_vectors > 0 and self.slice_vectors % 2 == 0)

    @property
    def shared(self) -> int:
        if not self.flush:
            return self.kept
        of_tile = self.tile.size * self.cells.count * self.cells.pack * self.task.problem.dtype.itemsize
        return max(self.kept, of_tile + 32 + 16 * self.gap * self.tile.share * self.tile.d)

    @property
    def existing(self) -> int:
        """Rows of windows of a slice that exist, at most."""
        return min(self.periods[0] + self.cells.rows.most - 1, self.cells.rows.outputs)

    def cost(self, divide: float, held: float) -> float:
        """Issue slots of the whole problem. `divide`: of a division; `held`: windows that hold a slice."""
        tile, cells, facts = self.tile, self.cells, self.task.facts
        windows = tile.share * self.slices * self.existing * self.columns * cells.pack
        threads = cdiv(tile.size, 32) * 32
        idle = 0 if not self.flush or self.contiguous else cdiv(self.run, 32) * 32 / self.run
        of_cell = CELL_COST * (1 + idle)  # rows that are no multiple of a warp leave lanes idle
        of_thread = held * cells.cost + of_cell * cells.count * cells.pack + THREAD_COST
        work = windows * (WINDOW_COST + divide) + self.kept / 16 + threads * of_thread
        blocks = prod(self.tiles)
        by_memory = facts.shared_per_multiprocessor // (self.shared + RESERVED)
        fit = max(min(by_memory, WARPS * 32 // threads, RESIDENT_BLOCKS), 1)
        few = max(facts.multiprocessors * min(fit, 2) / blocks, 1.0)
        return work * blocks * few * (1 + WAITING * 32 / (fit * threads))


def plan_of(task: Task, cells: Cells, tile: Tile) -> Plan:
    packs, depth = task.inner // cells.pack, task.problem.axes[0]
    h, w = tile.h * cells.h, tile.w * cells.w
    tiles = (
        *(cdiv(cells.rows.periods, h), cdiv(cells.columns.periods, w), cdiv(depth.length, tile.d)),
        *(cdiv(packs, tile.c), cdiv(task.planes, tile.share)),
    )
    slices = window_counts(depth, tile.d)[1]
    line = w + cells.columns.most - 1
    columns = min(line, cells.columns.outputs) * tile.c
    pitches = _pitches(tile, slices, w * tile.c, columns, line * tile.c, h + cells.rows.most - 1)
    kept = cdiv(tile.share * pitches[2] * cells.pack * task.sum_bytes, 16) * 16
    flush = tile.c == packs and packs * cells.pack * task.problem.dtype.itemsize < SECTOR
    return Plan(task, cells, tile, packs, (h, w), tiles, slices, columns, pitches, kept, flush)


def _pitches(
    tile: Tile, slices: int, owned: int, columns: int, pitch: int, rows: int
) -> tuple[int, int, int]:
    """Packs from a row of windows to the next, from a slice to the next, and from a plane to the next.

    Neighbouring lanes own neighbouring columns, then slices, then planes. Gaps put the quotients that
    they read at the same time into different banks. `owned`: packs of a row that lanes own.
    """
    # Packs from the lanes of a slice to those of the next; any odd number if a lane has all columns.
    lanes = owned if tile.w > 1 or tile.c > 1 else columns | 1
    lines = rows * pitch
    slice_pitch = lines + (lanes - lines) % BANKS if tile.d > 1 or tile.share > 1 else lines
    plane = slices * slice_pitch
    return pitch, slice_pitch, plane + ((tile.d * lanes - plane) % BANKS if tile.share > 1 else 0)


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
    held = _held(task)

    def cost(cells: Cells) -> float:
        threads = cdiv(rows.periods, cells.h) * cdiv(columns.periods, cells.w)
        return threads * (held * cells.cost + CELL_COST * cells.count * cells.pack + THREAD_COST)

    # An odd number of columns keeps the lanes of a row in different banks.
    sizes = product(range(1, min(rows.periods, 6) + 1), (*range(1, 10, 2), columns.periods))
    found = [Cells(rows, columns, of_h, of_w, pack) for of_h, of_w in sizes if of_w <= columns.periods]
    most = REGISTERS[task.sum_bytes]
    return min((cells for cells in found if cells.registers <= most), key=cost, default=None)


def _best(task: Task, cells: Cells) -> Plan | None:
    """The tile that costs least; None if none fits."""
    divide = division_cost(task.problem)
    held = _held(task)
    most = min(KEPT_BYTES, task.facts.shared_per_block - RESERVED)
    plans = [plan for plan in _plans(task, cells) if plan.shared <= most]
    return min(plans, key=lambda plan: plan.cost(divide, held), default=None)


def _plans(task: Task, cells: Cells) -> Iterator[Plan]:
    packs = task.inner // cells.pack
    d = task.problem.axes[0].length
    h, w = cdiv(cells.rows.periods, cells.h), cdiv(cells.columns.periods, cells.w)
    sector = max(SECTOR // (cells.pack * task.problem.dtype.itemsize), 1)
    channels = {n for n in (packs, 4 * sector, 2 * sector, sector) if n <= min(packs, 64)} or {1}
    for c, of_d, of_h, of_w in product(channels, even_shares(d), even_shares(h), even_shares(w)):
        tile = Tile(1, of_d, of_h, of_w, c)
        if tile.size > THREADS:
            continue
        yield plan_of(task, cells, tile)
        if (c, of_d, of_h, of_w) == (packs, d, h, w):
            for share in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128):
                if share <= task.planes and share * tile.size <= THREADS:
                    yield plan_of(task, cells, Tile(share, of_d, of_h, of_w, c))


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
    items = tile.share * plan.slices * chunks * plan.columns
    arguments: tuple[Argument, ...] = (
        *(task.planes, *problem.input_plane, plan.packs, *problem.output_plane, rows.first, columns.first),
        *(rows.padding, columns.padding, *plan.periods, plan.kept // 16, items, *plan.pitches),
        *(divider(n) for n in (tile.share, tile.c, tile.w, tile.d, max(plan.columns, 1), max(chunks, 1))),
        *(divider(n) for n in (max(plan.slices, 1), max(plan.slice_vectors, 1), *plan.tiles[:4])),
    )
    of_d, grid, block = tables(problem.axes[0]), prod(plan.tiles), cdiv(tile.size, 32) * 32
    return average_launch(
        task,
        "average_dense",
        _DENSE,
        options,
        [of_d.first_window, of_d.window_count],
        arguments,
        grid=grid,
        block=block,
        shared=plan.shared,
        work=_work(plan, grid * block, items * grid),
        registers=min(24 + cells.registers * task.sum_bytes // 4, 255),
    )


def _work(plan: Plan, threads: int, items: int) -> tuple[tuple[str, float], ...]:
    """`items`: columns of CHUNK windows that blocks divide."""
    task, cells = plan.task, plan.cells
    windows, double, slices = items * CHUNK * cells.pack, task.sum_bytes // 4, _held(task)
    computed = threads * cells.count * cells.pack
    return (
        *(("windows", windows), ("divisions", windows * division_cost(task.problem) * double)),
        ("additions", threads * slices * cells.pack * cells.additions * double),
        ("shared loads", threads * slices * cells.pack * cells.lines * cells.line * double),
        *(("cells", computed), ("cells through shared memory", computed * plan.flush), ("threads", threads)),
    )
