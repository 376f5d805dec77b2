"""Which kernel computes the gradient of maxima, scatter_planes.cu, scatter_channels.cu or gather_channels.cu.

The planners are `scatter_planes`, `gather_channels`, `scatter_channels` and `scatter_bands`, in this order.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from ...geometry import Axis, tables
from ...problem.problem import Problem
from .source import Argument, Source
from .tables import Array, bands, between, cdiv, divider, even_share, even_shares, shares, windows_of_shares
from .task import Launch, Task

# The largest `_reread` with which a gather is chosen, by whether windows are disjoint, and by element size.
GATHERED = {True: {2: 3.0, 4: 8.0, 8: 8.0}, False: {2: 4.0, 4: 4.5, 8: 4.5}}
GATHERED_BYTES = {True: 8, False: 16}  # least bytes of a thread's channels, by whether windows are disjoint
GATHERED_ROWS = 4  # least rows of a thread that gathers
GATHER_THREADS = 128  # threads of a block that gathers
FEW_CHANNELS = 12  # with fewer channels, too many lanes would be idle if each lane owned a channel
BAND_BYTES = 8 << 10  # bytes of sums that a warp keeps in shared memory
COMPARED = 8  # lanes to compare (NEAR of ordered.h), at most; for more, __match_any_sync is faster
FILLED_ROW = 0.85  # the least part of the lanes that must have windows if rows are padded
STEP = {True: 13, False: 18}  # what a window costs a warp, by whether tiles are contiguous
READ = 0.8  # what a byte of a window costs a warp: the second-level cache is slower than its instructions
TILE_BYTES = 8 << 10  # bytes of sums that a warp keeps for a tile of 32 channels


def scatter_planes(task: Task) -> tuple[Launch, ...] | str:
    """A warp keeps whole planes in shared memory."""
    if task.inner >= FEW_CHANNELS:
        return "channels are innermost, and lanes can own channels"
    size = prod(task.problem.input_plane) * task.inner
    apart = all(axis.disjoint for axis in task.problem.axes)
    most = (2 if apart else 1) * BAND_BYTES // task.sum_bytes
    if size > most:
        return f"a plane has {size} elements, of which a warp keeps at most {most}"
    warps = 4
    share = min(max(most // 2 // size, 1), cdiv(task.planes, warps))
    while share > 1 and cdiv(task.planes, share * warps) < 4 * task.facts.multiprocessors:
        share = cdiv(share, 2)
    warp_bytes = rounded(share * size * task.sum_bytes)
    return (_scatter(task, share, warp_bytes, warps, 0, None, 0),)


def scatter_channels(task: Task) -> tuple[Launch, ...] | str:
    """A lane owns a channel; a warp keeps a tile of cells of 32 channels."""
    if task.inner < FEW_CHANNELS:
        return f"{task.inner} channels are innermost, too few for the lanes of a warp"
    tile = channel_tile(task)[1]
    pieces = boxes(task.problem.axes, tile)
    few = [n for n in (4, 3, 2) if cdiv(len(pieces), n) * n <= 1.1 * len(pieces)]  # few idle warps
    warps = few[0] if few else min(len(pieces), 4)
    return channels_launches(task, tile[0], pieces, warps, int(contiguous(task, tile)), walk=0)


def channels_launches(
    task: Task, ring: int, pieces: Array, warps: int, linear: int, walk: int, lanes: int = 32
) -> tuple[Launch, ...]:
    """The launches of scatter_channels.cu: a warp keeps `ring` slices of a tile, of `lanes` channels."""
    problem, (d, h, w) = task.problem, task.problem.input_plane
    cells, columns = ring * int((pieces[:, 4] * pieces[:, 5]).max()), int(pieces[:, 11].max())
    sums, warp_bytes = warp_sizes(task, cells, columns, lanes)
    parts = cdiv(len(pieces), warps)
    starts, reach, lag = window_columns(problem.axes[2])
    rows = pieces[:, 10] if walk else pieces[:, 9] * pieces[:, 10]
    steps = int(steps_of(rows, pieces[:, 11], lag, 32 // lanes).max())
    arguments = (
        *(task.planes, d, h, w, *problem.output_plane, task.inner, prod(problem.output_plane), d * h * w),
        *(problem.axes[0].outputs * problem.axes[1].outputs, warp_bytes, len(pieces), parts, 0, 1),
        *(lag, reach, sums, ring, divider(h * w), divider(w), divider(problem.axes[2].outputs)),
    )
    pack = 16 // task.sum_bytes
    pack = pack if task.aligned and task.inner % pack == 0 else 1
    ways = (("DEEP", int(d > 1)), ("LANES", lanes), ("LINEAR", linear), ("ONES", int(w == 1)))
    more = (("PACK", pack), ("WALK", walk), ("THREADS", 128))
    options = (*task.defines, ("AHEAD", ahead(task, steps)), *ways, *more)
    source = Source("scatter_channels.cu", "scatter_channels", _CHANNELS, options)
    grid, shared = task.planes * cdiv(task.inner, lanes) * parts, 16 + warps * warp_bytes
    found = tables(problem.axes[0])
    spans = np.stack([found.start, found.end], axis=1).ravel()
    given = (pieces, corners(problem), np.concatenate([spans, starts]).astype(np.int32))
    return _twice(task, Launch(source, grid, 32 * warps, shared, given, arguments))


def warp_sizes(task: Task, cells: int, columns: int, lanes: int) -> tuple[int, int]:
    """Bytes of a warp's sums, and of all it keeps: groups of lanes need to know where columns begin."""
    sums = rounded(cells * lanes * task.sum_bytes)
    return sums, sums + (cdiv(columns, 4) * 16 if lanes < 32 else 0)


def window_columns(axis: Axis) -> tuple[Array, int, int]:
    """Where windows begin, how many cells the longest has, and how far apart windows share none."""
    found = tables(axis)
    starts = found.start if axis.adaptive else np.arange(axis.outputs) * axis.s - axis.p
    reach = int((found.end - found.start).max(initial=1)) if axis.adaptive else axis.reach
    shared = np.searchsorted(starts, starts + reach) - np.arange(len(starts))
    return starts, reach, int(shared.max(initial=1))


def steps_of(rows: Array, windows: Array, lag: int, turns: int) -> Array:
    """The steps of scatter_channels.cu for `rows` of so many windows, if groups of lanes take turns."""
    lags = np.minimum(lag, windows) if turns > 1 else 0
    rounds = (rows - 1) // turns
    steps = rounds * np.maximum(windows, turns * lags) + (rows - 1 - rounds * turns) * lags + windows
    return np.where((rows > 0) & (windows > 0), steps, 0)


def ahead(task: Task, steps: int) -> int:
    """How many windows a warp loads together. Each load of n windows takes about as long as n + 2 steps."""
    if task.sum_bytes == 8 or task.problem.offsets:  # a window takes more registers
        return 4
    return min((8, 4), key=lambda n: cdiv(steps, n) * (n + 2))


_GATHER = (
    *(("const Element*", "grad"), ("const Index*", "indices"), ("Element*", "out")),
    *(("unsigned long long*", "faults"), ("int*", "counts"), ("const int*", "windows")),
    *(("int", name) for name in ("images", "D", "H", "W", "Do", "Ho", "Wo", "channels", "plane_windows")),
    *(("int", name) for name in ("window_h", "window_w", "chunk", "share")),
    *(("Divider", name) for name in ("by_parts", "by_vectors", "by_w", "by_chunks", "by_d")),
)


def gather_channels(task: Task) -> tuple[Launch, ...] | str:
    """A thread owns channels of a column, and looks at all windows of its cells."""
    problem, inner = task.problem, task.inner
    again = scatter_channels(task)
    if isinstance(again, str):
        return again
    if any(axis.dilation > 1 for axis in problem.axes):
        return "windows have gaps"
    d, h, w = problem.input_plane
    vector = 16 // problem.dtype.itemsize if task.aligned else 1
    while inner % vector:
        vector //= 2
    apart = all(axis.disjoint for axis in problem.axes)
    if vector * problem.dtype.itemsize < GATHERED_BYTES[apart]:
        return f"a thread would take {vector} of {inner} channels"
    reread = _reread(problem)
    idle = max(min(32 / inner, 2), 1)  # lanes of a scatter for each one that has a channel
    if reread > (most := idle * GATHERED[apart][problem.dtype.itemsize]):
        return f"threads would read gradients and indices {reread:.1f} times, of at most {most:.0f}"
    columns = d * w * (inner // vector)  # of an image
    wanted = 2 * task.facts.multiprocessors * task.facts.threads_per_multiprocessor
    chunk = even_share(h, max(h * columns * task.planes // wanted, GATHERED_ROWS))
    threads = columns * cdiv(h, chunk)
    share = min(cdiv(GATHER_THREADS, threads), task.planes)
    parts = cdiv(share * threads, GATHER_THREADS)
    found = [tables(axis) for axis in problem.axes]
    spans = [np.stack([table.first_window, table.window_count], axis=1).ravel() for table in found]
    windows = np.concatenate([*spans, *(table.start for table in found)]).astype(np.int32)
    sizes = offsets.most if (offsets := problem.offset_tables) else (1, 1, 1)
    arguments = (
        *(task.planes, d, h, w, *problem.output_plane, inner, prod(problem.output_plane), *sizes[1:]),
        *(chunk, share, divider(parts), divider(inner // vector), divider(w), divider(cdiv(h, chunk))),
        divider(d),
    )
    columns_ = int(found[2].window_count.max())
    options = (
        ("COLUMNS", columns_ if columns_ <= 4 else 0),
        ("DISJOINT", int(apart)),
        ("THREADS", GATHER_THREADS),
        ("VECTOR", vector),
    )
    source = Source("gather_channels.cu", "gather_channels", _GATHER, (*task.defines, *options))
    grid = cdiv(task.planes, share) * parts
    first = Launch(source, grid, GATHER_THREADS, 0, (windows,), arguments, counts=grid)
    return first, redo(task, again[0], parts=parts, together=share * cdiv(inner, 32))


def _reread(problem: Problem) -> float:
    """Returns the bytes that a gather reads, divided by the least bytes that any kernel must move."""
    d, h, w = (int(tables(axis).window_count.sum()) for axis in problem.axes)
    # A thread keeps the window that it has read last; disjoint windows are read once in a column.
    apart = all(axis.disjoint for axis in problem.axes)
    visits = d * w * (problem.axes[1].outputs if apart else h)
    return visits * problem.planes * (problem.index_bytes + problem.dtype.itemsize) / problem.least_bytes


def scatter_bands(task: Task) -> tuple[Launch, ...] | str:
    """A block computes a plane band by band, each in the shared memory of a warp."""
    inner = task.inner
    pieces = _bands(task) * np.array([inner, inner, 1, inner, inner, inner])
    warp_bytes = rounded(int((pieces[:, 1] - pieces[:, 0]).max()) * task.sum_bytes)
    most = (task.facts.shared_per_block - 1024) // warp_bytes
    most = max(min(8, len(pieces), most, task.facts.shared_per_multiprocessor // 2 // warp_bytes), 1)
    warps = min(range(most, max(most // 2, 1) - 1, -1), key=lambda n: cdiv(len(pieces), n) * n)
    parts = min(cdiv(len(pieces), warps), cdiv(4 * task.facts.multiprocessors, task.planes))
    launch = _scatter(task, 1, warp_bytes, warps, len(pieces), pieces.astype(np.int32), parts)
    return _twice(task, launch)


def _bands(task: Task) -> Array:
    """Bands of the size that costs least: long ones read fewer windows twice, of short ones more fit."""
    found: list[tuple[float, int, Array]] = []
    for size, slow in ((1, 1.0), (1.5, 1.08), (2, 1.12), (3, 1.4)):
        pieces = bands(task.problem.axes, max(int(BAND_BYTES * size) // task.sum_bytes // task.inner, 1))
        read = float((pieces[:, 2] * pieces[:, 4]).sum())
        cost = (6 * read + prod(task.problem.input_plane)) * slow
        found.append((cost, len(found), pieces))
    return min(found)[2]


INDEXED = (
    *(("const Element*", "grad"), ("const Index*", "indices"), ("Element*", "out")),
    *(("unsigned long long*", "faults"), ("int*", "counts")),
    *(("const int*", "pieces"), ("const int*", "corners")),
)
_PLANES = (
    *INDEXED,
    ("const int*", "spans"),
    ("long long", "planes"),
    *(("int", name) for name in ("plane_elements", "plane_windows", "plane_cells", "window_rows")),
    *(("int", name) for name in ("share", "warp_bytes", "bands", "parts", "redo")),
    *(("int", f"{name}_{axis}") for axis in "dhw" for name in ("stride", "padding", "reach")),
    *(("Divider", name) for name in ("by_plane_windows", "by_inner", "by_wo", "by_ho", "by_h")),
    *(("Divider", name) for name in ("by_w", "by_row")),
)
_CHANNELS = (
    *INDEXED,
    ("const int*", "spans"),
    *(("int", name) for name in ("images", "D", "H", "W", "Do", "Ho", "Wo", "channels")),
    *(("int", name) for name in ("plane_windows", "plane_cells", "window_rows", "warp_bytes", "tiles")),
    *(("int", name) for name in ("parts", "redo", "together", "lag", "reach", "starts", "ring")),
    *(("Divider", name) for name in ("by_slice", "by_w", "by_wo")),
)


def _scatter(
    task: Task, share: int, warp_bytes: int, warps: int, bands: int, pieces: Array | None, parts: int
) -> Launch:
    problem, inner = task.problem, task.inner
    cells, windows = prod(problem.input_plane), prod(problem.output_plane)
    arguments: tuple[Argument, ...] = (
        *(task.planes, cells * inner, windows * inner, cells),
        *(problem.axes[0].outputs * problem.axes[1].outputs, share, warp_bytes, bands, parts, 0),
        *(number for axis in problem.axes for number in steps(axis)),
        *(divider(windows * inner), divider(inner)),
        *(divider(problem.axes[2].outputs), divider(problem.axes[1].outputs)),
        *(divider(problem.axes[1].length), divider(problem.axes[2].length), divider(padded_row(task))),
    )
    whole_rows = pieces is None or not (pieces[:, 3:5] % max(problem.axes[2].outputs, 1)).any()
    order = order_options(task, whole_rows)
    options = (("BANDS", int(bands > 0)), ("INNER", int(inner > 1)), *order, ("THREADS", 256))
    source = Source("scatter_planes.cu", "scatter_planes", _PLANES, (*task.defines, *options))
    grid = task.planes * parts if bands else cdiv(task.planes, share * warps)
    shared = (16 if bands else 0) + warps * warp_bytes
    tables = (np.zeros(1, np.int32) if pieces is None else pieces, corners(problem), spans_of(problem))
    return Launch(source, grid, 32 * warps, shared, tables, arguments)


def order_options(task: Task, whole_rows: bool = True) -> tuple[tuple[str, int], ...]:
    """The options of ordered.h. `whole_rows`: warps take windows of whole rows, so rows can be padded."""
    axes = task.problem.axes
    near, rows, padded = near_windows(task, whole_rows)
    return (
        ("DEEP", int(axes[0].length > 1 or axes[0].outputs > 1)),
        ("DISJOINT", int(all(axis.disjoint for axis in axes))),
        ("LONG_ROWS", int(near > 0 and (padded or axes[2].outputs >= 31 + near))),
        ("NEAR", near),
        ("NEAR_ROWS", rows),
        ("PADDED", int(padded)),
        ("TABLE", int(_uneven(axes))),
    )


def near_windows(task: Task, whole_rows: bool) -> tuple[int, int, bool]:
    """Returns NEAR, NEAR_ROWS and PADDED; NEAR is 0 if comparing lanes would be wrong or slower."""
    axes, none = task.problem.axes, (0, 1, False)
    if task.inner > 1 or all(axis.disjoint for axis in axes):
        return none
    d, h, w = (max(int(tables(axis).window_count.max(initial=1)), 1) for axis in axes)
    row, slice_ = axes[2].outputs, axes[1].outputs * axes[2].outputs
    filled = row < padded_row(task) <= row / FILLED_ROW or row == 32
    if whole_rows and filled and w - 1 <= COMPARED:
        return w, 1, True
    near_rows = [n for n in range(1, h) if n * row - w + 1 < 32]  # that a warp can have, besides the first
    if (near_rows and row < 2 * w - 1) or (d > 1 and slice_ - (h - 1) * row - w + 1 < 32):
        return none  # distances in a warp are not unique, or a warp can have windows of the next slice
    compared = w - 1 + len(near_rows) * (2 * w - 1)
    return (w, 1 + len(near_rows), False) if compared <= COMPARED else none


def padded_row(task: Task) -> int:
    """Windows of a row with its padding, so that equal columns of two rows are never in one warp."""
    w = task.problem.axes[2]
    near = max(int(tables(w).window_count.max(initial=1)), 1)
    return w.outputs if w.outputs >= 31 + near else 32 if w.outputs <= 32 else 31 + near


def _uneven(axes: tuple[Axis, ...]) -> bool:
    """Whether the windows of some axis are not all the same number of cells apart."""
    return any(axis.adaptive and axis.length % max(axis.outputs, 1) != 0 for axis in axes)


def spans_of(problem: Problem) -> Array:
    """p.spans of ordered.h; two unused zeros if `steps` describe the windows."""
    if not _uneven(problem.axes):
        return np.zeros(2, np.int32)
    found = [tables(axis) for axis in problem.axes]
    return np.concatenate([np.stack([t.start, t.end - t.start], axis=1) for t in found]).astype(np.int32)


def steps(axis: Axis) -> tuple[int, int, int]:
    """Stride, padding and reach of windows; zeros for an adaptive axis whose windows differ."""
    if not axis.adaptive:
        return axis.s, axis.p, axis.reach
    size = axis.length // axis.outputs if axis.length % axis.outputs == 0 else 0
    return size, 0, size


def _twice(task: Task, launch: Launch) -> tuple[Launch, ...]:
    """The launch, and the same with `redo` set if blocks computed parts of planes."""
    if _argument(launch, "parts") == 1:
        return (launch,)
    return replace(launch, counts=launch.grid), redo(task, launch)


def redo(task: Task, launch: Launch, **changed: int) -> Launch:
    """Returns the launch of the second pass (two_passes.h). `changed` has new values of arguments."""
    numbers = _numbers(launch)
    arguments = list(launch.arguments)
    for name, value in {"redo": 1, **changed}.items():
        arguments[numbers.index(name)] = value
    grid = min(launch.grid, 4 * task.facts.multiprocessors)
    return replace(launch, grid=grid, arguments=tuple(arguments), counts=0)


def _numbers(launch: Launch) -> list[str]:
    return [name for kind, name in launch.source.parameters if not kind.endswith("*")]


def _argument(launch: Launch, name: str) -> Argument:
    return launch.arguments[_numbers(launch).index(name)]


def rounded(size: int) -> int:
    """Bytes for sums that begin anywhere in a vector of 16 bytes, as halves: 8 sums."""
    return cdiv(size, 32) * 32 + 64


def channel_tile(task: Task) -> tuple[float, tuple[int, int, int]]:
    """The box of cells that costs least: large ones read fewer windows twice, of small ones more fit."""
    best: tuple[float, tuple[int, int, int]] | None = None
    for size, slow in ((TILE_BYTES, 1.12), (TILE_BYTES // 2, 1.0)):
        most = size // 32 // task.sum_bytes
        read = [
            {
                n: float(windows_of_shares(axis, n).sum())
                for n in (*even_shares(axis.length), most)
                if n <= most
            }
            for axis in task.problem.axes
        ]
        for box in product(*read):
            if prod(box) > most:
                continue
            lengths = zip(task.problem.input_plane, box, strict=True)
            tiles = prod(cdiv(length, n) for length, n in lengths)
            windows = prod(counts[n] for counts, n in zip(read, box, strict=True))
            rows, linear = box[0] * box[1] * tiles, contiguous(task, box)
            cost = channels_work(task, windows, windows, tiles, rows, linear) * slow
            if best is None or cost < best[0]:
                best = cost, (box[0], box[1], box[2])
    assert best is not None
    return best


def channels_work(
    task: Task, steps: float, windows: float, tiles: int, rows: int, linear: bool, lanes: int = 32
) -> float:
    """What a warp has to do for an image: `windows` to read in so many steps, and `rows` to write."""
    moved = READ * windows * (task.problem.index_bytes + task.problem.dtype.itemsize)
    written = 4 * prod(task.problem.input_plane)
    return STEP[linear] * steps + (moved + written) * lanes / 32 + 150 * tiles + 30 * rows


def contiguous(task: Task, box: tuple[int, ...]) -> bool:
    """Whether the cells of a tile follow each other in a plane: whole rows of a slice, or whole slices."""
    _, height, width = task.problem.input_plane
    return box[2] == width and (box[0] == 1 or box[1] == height)


def boxes(axes: tuple[Axis, ...], tile: tuple[int, int, int]) -> Array:
    """For each tile: its first cell on each axis, its lengths, and the same of the windows of its cells."""
    parts = []
    for axis, share in zip(axes, tile, strict=True):
        begin, end = shares(axis.length, share)
        parts.append(np.stack([begin, end - begin, *between(axis, begin, end)], axis=1))
    grid = np.meshgrid(*(np.arange(len(part)) for part in parts), indexing="ij")
    chosen = [part[at.ravel()] for part, at in zip(parts, grid, strict=True)]
    columns = [chosen[axis][:, column] for column in range(4) for axis in range(3)]
    return np.stack(columns, axis=1).astype(np.int32)


def corners(problem: Problem) -> Array:
    """What cell_of in indices.h reads; nothing, unless indices are offsets."""
    if (offsets := problem.offset_tables) is None:
        return np.zeros(1, np.int32)
    _, height, width = problem.input_plane
    d, h, w = offsets.first_cell
    rows = (d[:, None] * height + h).ravel() * width
    return np.concatenate([np.maximum(offsets.jump, -(2**31)), rows, w]).astype(np.int32)
