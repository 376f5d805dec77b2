"""Which GPU kernel computes a problem, on what grid, with which arguments. Pure: no device is touched.

    plan(problem, layout, facts) -> tuple[Launch, ...]     of the first kernel that does not refuse
    kernels(problem, layout, facts)                        the kernels up to that one, with their reasons

KERNELS is the ordered list. Each entry is a function that returns its launches, or the reason against it.
Kernels are specialised on dtypes and on the number of windows that hold a cell, never on sizes: sizes are
arguments, so that another batch or plane compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from ...geometry import Axis, tables
from ...problem.problem import Problem
from .driver import DeviceFacts
from .source import Source
from .tables import (
    Array,
    bands,
    between,
    cdiv,
    divider,
    division,
    divisors,
    even_share,
    shares,
    windows_of_shares,
)

ELEMENTS = {"FLOAT32": 0, "FLOAT64": 1, "FLOAT16": 2, "BFLOAT16": 3}
FEW_CHANNELS = 32  # fewer channels than lanes: pixels, not channels, fill a warp
BAND_BYTES = 8 << 10  # of sums that a warp keeps in shared memory
TILE_BYTES = 24 << 10  # the same, of 32 channels
THREADS = 256  # of a block that computes averages, at most
SHORT_WALK = 8  # rows, from which on a thread's preparations pay
SHORT_ROW = 512  # bytes: threads that each write one cell of a row leave vectors incomplete
UNROLLED = 16  # the most windows on the w axis that are worth unrolling
IN_REGISTERS = 36  # windows of a cell that a thread can keep


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel. A kernel's first parameters are the tensors, then come the tables."""

    source: Source
    grid: int
    block: int
    shared: int  # bytes
    tables: tuple[Array, ...]
    arguments: tuple[object, ...]
    counts: int = 0  # int32 numbers that the first of two launches leaves for the second


@dataclass(frozen=True, slots=True)
class Task:
    """A problem in a layout on a device: what the kernels choose by."""

    problem: Problem
    layout: str
    facts: DeviceFacts

    @property
    def inner(self) -> int:
        """Channels, if they are innermost, else 1."""
        return self.problem.batch[1] if self.layout == "channels_last" else 1

    @property
    def planes(self) -> int:
        """Planes, or images if channels are innermost."""
        return self.problem.planes // self.inner

    @property
    def sum_bytes(self) -> int:
        return self.problem.dtype.accumulator.itemsize

    @property
    def defines(self) -> tuple[tuple[str, int], ...]:
        element = ("ELEMENT", ELEMENTS[self.problem.dtype.name])
        return (element, ("INDEX", self.problem.index_bytes)) if self.problem.index_bytes else (element,)


Planner = Callable[[Task], "tuple[Launch, ...] | str"]


def plan(problem: Problem, layout: str, facts: DeviceFacts) -> tuple[Launch, ...]:
    """The launches of the first kernel that does not refuse."""
    for _, found in _walk(Task(problem, layout, facts)):
        if not isinstance(found, str):
            return found
    raise AssertionError("the last kernel of a kind refuses nothing")


def kernels(problem: Problem, layout: str, facts: DeviceFacts) -> list[tuple[str, str | None]]:
    """The kernels up to the chosen one, each with the reason against it; None: it is chosen."""
    walked = _walk(Task(problem, layout, facts))
    return [(name, found if isinstance(found, str) else None) for name, found in walked]


def _walk(task: Task) -> Iterator[tuple[str, tuple[Launch, ...] | str]]:
    for name, planner in KERNELS[task.problem.kind]:
        found = planner(task)
        yield name, found
        if not isinstance(found, str):
            return


# Gradients of averages


@dataclass(frozen=True, slots=True)
class Tile:
    """The cells of a block: `share` planes, `d` slices, `h` rows, `w` columns, `c` channels."""

    share: int
    d: int
    h: int
    w: int
    c: int

    def blocks(self, task: Task) -> int:
        d, h, w = task.problem.input_plane
        pairs = ((task.planes, self.share), (d, self.d), (h, self.h), (w, self.w), (task.inner, self.c))
        return prod(cdiv(length, share) for length, share in pairs)

    def contiguous(self, task: Task) -> bool:
        """Whether its cells are contiguous in memory, and rows so short that this matters."""
        _, h, w = task.problem.input_plane
        if (self.w, self.c) != (w, task.inner) or (self.d > 1 and self.h != h):
            return False
        return w * task.inner * task.problem.dtype.itemsize <= SHORT_ROW

    def staged(self, task: Task) -> int:
        """The most sums that a block keeps in shared memory."""
        d, h, w = (
            int(windows_of_shares(axis, share).max())
            for axis, share in zip(task.problem.axes, (self.d, self.h, self.w), strict=True)
        )
        return self.share * d * h * (w * self.c + 1)


def rolling_average(task: Task) -> tuple[Launch, ...] | str:
    """Quotients of a row of windows stay in registers for all rows of cells that they hold."""
    _, h, _ = task.problem.axes
    if h.adaptive or h.s != 1 or h.k == 1:
        return "rows of windows are not one row of cells apart"
    most = prod(_most(axis) for axis in task.problem.axes)
    if h.k > h.outputs:
        return "windows are longer than there are rows of windows"
    if most > IN_REGISTERS:
        return f"{most} windows hold a cell, of which a thread keeps at most {IN_REGISTERS}"
    tile = _staged_tile(task)
    return tile if isinstance(tile, str) else _average(task, tile, staged=True, roll=True)


def staged_average(task: Task) -> tuple[Launch, ...] | str:
    """Quotients are computed once and kept in shared memory."""
    tile = _staged_tile(task)
    return tile if isinstance(tile, str) else _average(task, tile, staged=True, roll=False)


def direct_average(task: Task) -> tuple[Launch, ...] | str:
    """Threads divide for themselves."""
    return _average(task, _column_tile(task, staged=False), staged=False, roll=False)


def _most(axis: Axis) -> int:
    """The most windows that hold a cell."""
    return max(int(tables(axis).window_count.max()), 1)


def _run_ends(axis: Axis) -> Array:
    """For every cell, one past the last of the following cells that are in the same windows."""
    table = tables(axis)
    change = (np.diff(table.first_window) != 0) | (np.diff(table.window_count) != 0)
    edges = np.append(np.flatnonzero(change) + 1, axis.length)
    return np.asarray(np.repeat(edges, np.diff(edges, prepend=0)))


def _column_tile(task: Task, staged: bool) -> Tile:
    """As many columns as a block has threads, and all rows."""
    threads, (d, h, w) = THREADS, task.problem.input_plane
    if task.inner >= 32:
        c = 32 if staged else even_share(task.inner, threads)
    else:
        c = task.inner
    columns = even_share(w, threads // c)
    share = min(threads // (w * c), task.planes) if w * c <= threads and c == task.inner else 1
    tile = Tile(share, d, h, columns, c)
    while tile.h > 8 and tile.blocks(task) < 8 * task.facts.multiprocessors:
        if tile.share > 1:
            tile = Tile(cdiv(tile.share, 2), tile.d, tile.h, tile.w, tile.c)
        elif tile.d > 1:
            tile = Tile(1, cdiv(tile.d, 2), tile.h, tile.w, tile.c)
        else:
            tile = Tile(1, 1, cdiv(tile.h, 2), tile.w, tile.c)
    return tile


def _staged_tile(task: Task) -> Tile | str:
    """The tile that stages the fewest windows, of those that leave room for enough blocks."""
    whole = _column_tile(task, staged=True)
    d, h, _ = task.problem.axes
    room = task.facts.shared_per_multiprocessor // task.sum_bytes
    for blocks in (8, 5, 3, 2, 1):
        limit = min(room // blocks, task.facts.shared_per_block // task.sum_bytes) - 512
        share = whole.share
        while share > 1:
            tile = Tile(share, d.length, h.length, whole.w, whole.c)
            if tile.staged(task) <= limit:
                return tile
            share //= 2
        best: tuple[float, Tile] | None = None
        for of_d, of_h in product(_even_shares(d.length), _even_shares(h.length)):
            tile = Tile(1, of_d, of_h, whole.w, whole.c)
            if tile.staged(task) > limit:
                continue
            read = float(windows_of_shares(d, of_d).sum() * windows_of_shares(h, of_h).sum())
            short = tile.blocks(task) < 4 * task.facts.multiprocessors and of_d * of_h > 8
            cost = read * (1.5 if short else 1.0)
            if best is None or cost < best[0]:
                best = cost, tile
        if best and (best[0] <= 1.4 * d.outputs * h.outputs or blocks == 1):
            return best[1]
    return "the windows of one row of cells are more than a block can keep"


def _even_shares(length: int) -> list[int]:
    """Sensible lengths of equal shares: all of it, a half, a third, …"""
    found = {cdiv(length, n) for n in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)}
    return sorted(n for n in found if n >= 1)


_AVERAGE = (
    *(("const Element*", "grad"), ("Element*", "out"), ("const int*", "tables"), ("const Sum*", "divisors")),
    ("long long", "planes"),
    *(("int", name) for name in ("D", "H", "W", "inner", "Do", "Ho", "Wo", "share", "tw", "tc", "w_chunks")),
    *(("int", name) for name in ("c_chunks", "d_chunk", "d_chunks", "h_chunk", "h_chunks", "d_walk")),
    *(("int", name) for name in ("d_walks", "h_walk", "padding", "tile_at")),
)


def _average(task: Task, tile: Tile, staged: bool, roll: bool) -> tuple[Launch, ...]:
    problem, (d, h, w) = task.problem, task.problem.axes
    owners = tile.share * tile.w * tile.c
    walkers = max(THREADS // owners, 1)
    d_walk = cdiv(tile.d, walkers)
    d_walks = cdiv(tile.d, d_walk)
    h_walk = max(cdiv(tile.h, walkers // d_walks), min(SHORT_WALK, tile.h))
    threads = cdiv(owners * d_walks * cdiv(tile.h, h_walk), 32) * 32
    columns = _most(w)
    sums = cdiv(tile.staged(task) * task.sum_bytes, 16) * 16 if staged else 0
    result = tile.share * tile.d * tile.h * tile.w * tile.c * problem.dtype.itemsize + 32
    flush = staged and tile.contiguous(task) and sums + result <= task.facts.shared_per_block - 1024
    shared = sums + (result if flush else 0)
    by = divisors(problem)
    once, by_d, by_h, by_w = division(problem)
    options = {
        "STAGED": int(staged),
        "COLUMNS": columns if columns <= UNROLLED else 0,
        "FLUSH": int(flush),
        "ROLL": int(roll),
        "ROWS": h.k if roll else 1,
        "SLICES": _most(d) if roll else 1,
        "UNIFORM": int(all(len(np.unique(axis)) == 1 for axis in by)),
        "ONCE": once,
        "BY_D": by_d,
        "BY_H": by_h,
        "BY_W": by_w,
        "THREADS": THREADS,
    }
    source = Source(
        "average_gradient.cu", "average_gradient", _AVERAGE, (*task.defines, *sorted(options.items()))
    )
    found = [tables(axis) for axis in (d, h, w)]
    cells = np.concatenate(
        [found[0].first_window, found[0].window_count]
        + [found[1].first_window, found[1].window_count, _run_ends(h)]
        + [found[2].first_window, found[2].window_count]
    ).astype(np.int32)
    values = np.concatenate(by).astype(problem.dtype.accumulator)
    pairs = np.stack([values, 1 / values], axis=1)
    arguments = (
        *(task.planes, d.length, h.length, w.length, task.inner, *problem.output_plane),
        *(tile.share, tile.w, tile.c, cdiv(w.length, tile.w), cdiv(task.inner, tile.c)),
        *(tile.d, cdiv(d.length, tile.d), tile.h, cdiv(h.length, tile.h)),
        *(d_walk, d_walks, h_walk, h.p if roll else 0, sums),
    )
    return (Launch(source, tile.blocks(task), threads, shared, (cells, pairs), arguments),)


# Gradients of maxima


def scatter_planes(task: Task) -> tuple[Launch, ...] | str:
    """A warp keeps whole planes in shared memory."""
    if task.inner >= FEW_CHANNELS:
        return "channels are innermost, and lanes can own channels"
    size = prod(task.problem.input_plane) * task.inner
    most = 2 * BAND_BYTES // task.sum_bytes
    if size > most:
        return f"a plane has {size} elements, of which a warp keeps at most {most}"
    warps = 4
    share = min(max(BAND_BYTES // task.sum_bytes // size, 1), cdiv(task.planes, warps))
    while share > 1 and cdiv(task.planes, share * warps) < 4 * task.facts.multiprocessors:
        share = cdiv(share, 2)
    warp_bytes = _rounded(share * size * task.sum_bytes)
    return (_scatter(task, share, warp_bytes, warps, 0, None, 0),)


def scatter_channels(task: Task) -> tuple[Launch, ...] | str:
    """A lane owns a channel; a warp keeps a tile of cells of 32 channels."""
    if task.inner < FEW_CHANNELS:
        return f"{task.inner} channels are innermost, fewer than a warp has lanes"
    tile = _channel_tile(task)
    warp_bytes = _rounded(prod(tile) * 32 * task.sum_bytes)
    pieces = _boxes(task.problem.axes, tile)
    groups = task.planes * cdiv(task.inner, 32)
    warps = min(3, len(pieces))
    parts = min(cdiv(len(pieces), warps), cdiv(6 * task.facts.multiprocessors, groups))
    problem = task.problem
    d, h, w = problem.input_plane
    arguments = (
        *(d, h, w, *problem.output_plane, task.inner, prod(problem.output_plane), d * h * w),
        *(problem.axes[0].outputs * problem.axes[1].outputs, warp_bytes, len(pieces), parts, 0),
        *(divider(h * w), divider(w), divider(problem.axes[2].outputs)),
    )
    options = (("DEEP", int(d > 1)), ("THREADS", 128))
    source = Source("scatter_channels.cu", "scatter_channels", _CHANNELS, (*task.defines, *options))
    grid, shared = groups * parts, 16 + warps * warp_bytes
    return _twice(
        source, _CHANNELS, Launch(source, grid, 32 * warps, shared, (pieces, _corners(problem)), arguments)
    )


def scatter_bands(task: Task) -> tuple[Launch, ...] | str:
    """A block computes a plane band by band, each in the shared memory of a warp."""
    problem, inner = task.problem, task.inner
    pieces = bands(problem.axes, max(BAND_BYTES // task.sum_bytes // inner, 1))
    pieces = pieces * np.array([inner, inner, 1, inner, inner, inner])
    warp_bytes = _rounded(int((pieces[:, 1] - pieces[:, 0]).max()) * task.sum_bytes)
    most = (task.facts.shared_per_block - 1024) // warp_bytes
    warps = max(min(8, len(pieces), most, task.facts.shared_per_multiprocessor // 2 // warp_bytes), 1)
    parts = min(cdiv(len(pieces), warps), cdiv(4 * task.facts.multiprocessors, task.planes))
    launch = _scatter(task, 1, warp_bytes, warps, len(pieces), pieces.astype(np.int32), parts)
    return _twice(launch.source, _PLANES, launch)


_INDEXED = (
    *(("const Element*", "grad"), ("const Index*", "indices"), ("Element*", "out")),
    *(("unsigned long long*", "faults"), ("int*", "counts")),
    *(("const int*", "pieces"), ("const int*", "corners")),
)
_PLANES = (
    *_INDEXED,
    ("long long", "planes"),
    *(("int", name) for name in ("plane_elements", "plane_windows", "plane_cells", "window_rows")),
    *(("int", name) for name in ("share", "warp_bytes", "bands", "parts", "redo")),
    *(("Divider", name) for name in ("by_plane_windows", "by_inner", "by_wo")),
)
_CHANNELS = (
    *_INDEXED,
    *(("int", name) for name in ("D", "H", "W", "Do", "Ho", "Wo", "channels", "plane_windows")),
    *(("int", name) for name in ("plane_cells", "window_rows", "warp_bytes", "tiles", "parts", "redo")),
    *(("Divider", name) for name in ("by_slice", "by_w", "by_wo")),
)


def _scatter(
    task: Task, share: int, warp_bytes: int, warps: int, bands: int, pieces: Array | None, parts: int
) -> Launch:
    problem, inner = task.problem, task.inner
    cells, windows = prod(problem.input_plane), prod(problem.output_plane)
    arguments = (
        *(task.planes, cells * inner, windows * inner, cells),
        *(problem.axes[0].outputs * problem.axes[1].outputs, share, warp_bytes, bands, parts, 0),
        *(divider(windows * inner), divider(inner), divider(problem.axes[2].outputs)),
    )
    options = (("BANDS", int(bands > 0)), ("INNER", int(inner > 1)), ("THREADS", 256))
    source = Source("scatter_planes.cu", "scatter_planes", _PLANES, (*task.defines, *options))
    grid = task.planes * parts if bands else cdiv(task.planes, share * warps)
    shared = (16 if bands else 0) + warps * warp_bytes
    tables = (np.zeros(1, np.int32) if pieces is None else pieces, _corners(problem))
    return Launch(source, grid, 32 * warps, shared, tables, arguments)


def _twice(source: Source, parameters: tuple[tuple[str, str], ...], launch: Launch) -> tuple[Launch, ...]:
    """The launch, and the same with `redo` set if blocks computed parts of planes."""
    numbers = [name for kind, name in parameters if not kind.endswith("*")]
    arguments = list(launch.arguments)
    if arguments[numbers.index("parts")] == 1:
        return (launch,)
    arguments[numbers.index("redo")] = 1
    first = Launch(
        source, launch.grid, launch.block, launch.shared, launch.tables, launch.arguments, launch.grid
    )
    return first, Launch(source, launch.grid, launch.block, launch.shared, launch.tables, tuple(arguments))


def _rounded(size: int) -> int:
    """Bytes for sums that begin anywhere in a vector of 16 bytes, as halves: 8 sums."""
    return cdiv(size, 32) * 32 + 64


def _channel_tile(task: Task) -> tuple[int, int, int]:
    """The box of cells that makes warps read the fewest windows."""
    most = TILE_BYTES // 32 // task.sum_bytes
    best: tuple[float, tuple[int, int, int]] | None = None
    read = [
        {
            share: float(windows_of_shares(axis, share).sum())
            for share in _even_shares(axis.length)
            if share <= most
        }
        for axis in task.problem.axes
    ]
    cells = prod(task.problem.input_plane)
    for d, h, w in product(*read):
        if d * h * w > most:
            continue
        tiles = prod(cdiv(n, s) for n, s in zip(task.problem.input_plane, (d, h, w), strict=True))
        cost = 3 * read[0][d] * read[1][h] * read[2][w] + cells + 24 * tiles
        if best is None or cost < best[0]:
            best = cost, (d, h, w)
    if best is None:  # rows of thousands of cells
        return 1, 1, most
    return best[1]


def _boxes(axes: tuple[Axis, ...], tile: tuple[int, int, int]) -> Array:
    """For each tile: its first cell on each axis, its lengths, and the same of the windows that hold its cells."""
    parts = []
    for axis, share in zip(axes, tile, strict=True):
        begin, end = shares(axis.length, share)
        parts.append(np.stack([begin, end - begin, *between(axis, begin, end)], axis=1))
    grid = np.meshgrid(*(np.arange(len(part)) for part in parts), indexing="ij")
    chosen = [part[at.ravel()] for part, at in zip(parts, grid, strict=True)]
    columns = [chosen[axis][:, column] for column in range(4) for axis in range(3)]
    return np.stack(columns, axis=1).astype(np.int32)


def _corners(problem: Problem) -> Array:
    """What cell_of in indices.h reads; nothing, unless indices are offsets."""
    if (offsets := problem.offset_tables) is None:
        return np.zeros(1, np.int32)
    _, height, width = problem.input_plane
    d, h, w = offsets.first_cell
    rows = (d[:, None] * height + h).ravel() * width
    return np.concatenate([np.maximum(offsets.jump, -(2**31)), rows, w]).astype(np.int32)


KERNELS: dict[str, tuple[tuple[str, Planner], ...]] = {
    "average_gradient": (
        ("rolling average", rolling_average),
        ("staged average", staged_average),
        ("direct average", direct_average),
    ),
    "maximum_gradient": (
        ("scatter of whole planes", scatter_planes),
        ("scatter of channels", scatter_channels),
        ("scatter of bands", scatter_bands),
    ),
}
