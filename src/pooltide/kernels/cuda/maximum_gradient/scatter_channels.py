"""Plans `scatter of channels`, scatter_channels.cu: a lane owns a channel, a warp keeps a tile of cells."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ....cache import cached
from ....geometry import Axis, tables
from ..kernel_tables import Array, between, cdiv, divider, even_shares, shares, windows_of_shares
from ..source import Source
from ..task import Launch, Task, Work
from .indices import WARP_BYTES, corners, window_bytes
from .ordered import rounded
from .two_passes import INDEXED, in_two_passes

ONE_CHANNEL = "lanes own channels, and images have one"
STEP = {True: 13, False: 18}  # what a window costs a warp, by whether tiles are contiguous
READ = 0.8  # what a byte of a window costs a warp: the second-level cache is slower than its instructions
SLOW_TILE = 1.12  # how much longer tiles of more than half of that take, as fewer warps fit


def scatter_channels(task: Task) -> tuple[Launch, ...] | str:
    """A lane owns a channel; a warp keeps a tile of cells of 32 channels."""
    return ONE_CHANNEL if task.inner == 1 else in_two_passes(task, channels_launch(task))


def channels_launch(task: Task) -> Launch:
    tile = channel_tile(task)
    pieces = boxes(task.problem.axes, tile)
    few = [n for n in (4, 3, 2) if cdiv(len(pieces), n) * n <= 1.1 * len(pieces)]  # few idle warps
    warps = few[0] if few else min(len(pieces), 4)
    return tiles_launch(task, tile[0], pieces, warps, int(contiguous(task, tile)), walk=0)


_CHANNELS = (
    *INDEXED,
    ("const int*", "spans"),
    *(("int", name) for name in ("images", "D", "H", "W", "Do", "Ho", "Wo", "channels")),
    *(("int", name) for name in ("plane_windows", "plane_cells", "window_rows", "warp_bytes", "tiles")),
    *(("int", name) for name in ("parts", "redo", "together", "lag", "reach", "starts", "ring")),
    *(("Divider", name) for name in ("by_slice", "by_w", "by_wo")),
)


def tiles_launch(
    task: Task, ring: int, pieces: Array, warps: int, linear: int, walk: int, lanes: int = 32
) -> Launch:
    """The launch of scatter_channels.cu: a warp keeps `ring` slices of a tile, of `lanes` channels."""
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
    work = _channels_work(task, pieces, dict(options), lanes, parts * warps)
    return Launch(source, grid, 32 * warps, shared, given, arguments, work=work)


def _channels_work(task: Task, pieces: Array, options: dict[str, int], lanes: int, warps: int) -> Work:
    """Of scatter_channels.cu, where so many warps share the pieces of an image."""
    problem, facts, walk = task.problem, pieces.astype(np.int64), options["WALK"]
    (slices, rows, columns), (of_d, of_h, of_w) = facts[:, 3:6].T, facts[:, 9:12].T
    groups = task.planes * cdiv(task.inner, lanes)
    turns, lag = 32 // lanes, window_columns(problem.axes[2])[2]
    of_piece = -(-steps_of(of_h if walk else of_d * of_h, of_w, lag, turns) // options["AHEAD"])
    loads = 32 * groups * float((of_piece * (of_d if walk else 1)).sum())
    steps, cells = loads * options["AHEAD"], groups * lanes * float((slices * rows * columns).sum())
    return (
        *(("steps", steps), ("loads", loads), ("steps in whole rows", steps * options["LINEAR"])),
        ("steps in slices", steps * (options["DEEP"] and not options["LINEAR"])),
        ("bytes of windows", groups * lanes * float((of_d * of_h * of_w).sum()) * window_bytes(problem)),
        *(("cells of lanes", cells), ("16-bit cells of lanes", cells * (problem.dtype.itemsize == 2))),
        ("cells without vectors", cells * (options["PACK"] == 1)),
        *(("rows", 32 * groups * float((slices * rows).sum())), ("tiles", 32 * groups * len(pieces))),
        *(("slices", 32 * groups * float(slices.sum()) * walk), ("steps in groups", steps * (turns > 1))),
        ("lanes", 32 * groups * warps),
    )


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


@cached()
def channel_tile(task: Task) -> tuple[int, int, int]:
    """The box of cells that costs least: large ones read fewer windows twice, of small ones more fit."""
    most, lengths = WARP_BYTES // 32 // task.sum_bytes, task.problem.input_plane
    boxes: list[Array] = [np.ones((1, 1, 1), np.int64)] * 3
    windows: Any = 1.0
    tiles: Any = 1
    for at, (axis, length) in enumerate(zip(task.problem.axes, lengths, strict=True)):
        shares = [n for n in dict.fromkeys((*even_shares(length), most // 2, most)) if n <= min(most, length)]
        shape = [1, 1, 1]
        shape[at] = len(shares)
        boxes[at] = np.array(shares).reshape(shape)
        windows = windows * np.array([float(windows_of_shares(axis, n).sum()) for n in shares]).reshape(shape)
        tiles = tiles * -(-length // boxes[at])
    box = np.broadcast_arrays(*boxes)
    linear, cells = contiguous(task, box), box[0] * box[1] * box[2]
    cost = channels_work(task, windows, windows, tiles, box[0] * box[1] * tiles, linear)
    cost = np.where(cells > most, np.inf, cost * np.where(cells > most // 2, SLOW_TILE, 1.0))
    best = int(cost.argmin())
    return int(box[0].flat[best]), int(box[1].flat[best]), int(box[2].flat[best])


def channels_work(
    task: Task, steps: Any, windows: Any, tiles: Any, rows: Any, linear: Any, lanes: int = 32
) -> Any:
    """What a warp has to do for an image: `windows` to read in so many steps, and `rows` to write."""
    moved = READ * windows * window_bytes(task.problem)
    written = 4 * prod(task.problem.input_plane)
    step = STEP[False] + (STEP[True] - STEP[False]) * linear
    return step * steps + (moved + written) * lanes / 32 + 150 * tiles + 30 * rows


def contiguous(task: Task, box: Any) -> Any:
    """Whether the cells of a tile follow each other in a plane: whole rows of a slice, or whole slices."""
    _, height, width = task.problem.input_plane
    return (box[2] == width) & ((box[0] == 1) | (box[1] == height))


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
