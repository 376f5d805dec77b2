"""Plans `scatter of channels`, scatter_channels.cu: a lane owns a channel, a warp keeps a tile of cells."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ....geometry import Axis, tables
from ..cost import Shape, fastest
from ..kernel_tables import Array, between, cdiv, divider, even_shares, shares, window_counts
from ..source import Source
from ..task import Launch, Task, Work
from .indices import WARP_BYTES, corners, window_bytes
from .ordered import rounded
from .two_passes import INDEXED, in_two_passes

ONE_CHANNEL = "lanes own channels, and images have one"
KERNEL = "scatter of channels"  # in costs.json


def scatter_channels(task: Task) -> tuple[Launch, ...] | str:
    """A lane owns a channel; a warp keeps a tile of cells of 32 channels."""
    return ONE_CHANNEL if task.inner == 1 else in_two_passes(task, channels_launch(task))


def channels_launch(task: Task) -> Launch:
    tile = channel_tile(task)
    parts = parts_of_axes(task.problem.axes, tile)
    warps = int(_warps(prod(map(len, parts))))
    return tiles_launch(task, tile[0], parts, warps, int(contiguous(task, tile)), walk=0)


def _warps(tiles: Any) -> Any:
    """How many warps a block has, so that few are idle."""
    few = [cdiv(tiles, n) * n <= 1.1 * tiles for n in (4, 3, 2)]
    return np.select(few, (4, 3, 2), np.minimum(tiles, 4))


_CHANNELS = (
    *INDEXED,
    ("const int*", "spans"),
    *(("int", name) for name in ("images", "D", "H", "W", "Do", "Ho", "Wo", "channels")),
    *(("int", name) for name in ("plane_windows", "plane_cells", "window_rows", "warp_bytes", "tiles")),
    *(("int", name) for name in ("parts", "redo", "together", "lag", "reach", "starts", "ring")),
    *(("Divider", name) for name in ("by_slice", "by_w", "by_wo")),
)


def tiles_launch(
    task: Task, ring: int, of_axes: list[Array], warps: int, linear: int, walk: int, lanes: int = 32
) -> Launch:
    """The launch of scatter_channels.cu: a warp keeps `ring` slices of a tile, of `lanes` channels."""
    problem, (d, h, w) = task.problem, task.problem.input_plane
    tiles, most = prod(map(len, of_axes)), [part.max(axis=0) for part in of_axes]
    sums, warp_bytes = warp_sizes(task, ring * int(most[1][1] * most[2][1]), int(most[2][3]), lanes)
    parts = cdiv(tiles, warps)
    starts, reach, lag = window_columns(problem.axes[2])
    kinds = _kinds(of_axes)
    steps = _steps(kinds, walk, lag, lanes)
    arguments = (
        *(task.planes, d, h, w, *problem.output_plane, task.inner, prod(problem.output_plane), d * h * w),
        *(problem.axes[0].outputs * problem.axes[1].outputs, warp_bytes, tiles, parts, 0, 1),
        *(lag, reach, sums, ring, divider(h * w), divider(w), divider(problem.axes[2].outputs)),
    )
    ways = (("DEEP", int(d > 1)), ("LANES", lanes), ("LINEAR", linear), ("ONES", int(w == 1)))
    more = (("PACK", pack_of(task)), ("WALK", walk), ("THREADS", 128))
    options = (*task.defines, ("AHEAD", int(ahead(task, steps.max()))), *ways, *more)
    source = Source("scatter_channels.cu", "scatter_channels", _CHANNELS, options)
    grid, shared = task.planes * cdiv(task.inner, lanes) * parts, 16 + warps * warp_bytes
    found = tables(problem.axes[0])
    spans = np.stack([found.start, found.end], axis=1).ravel()
    given = (_boxes(of_axes), corners(problem), np.concatenate([spans, starts]).astype(np.int32))
    work = _tiles_work(task, kinds, steps, dict(options), lanes, parts * warps)
    return Launch(source, grid, 32 * warps, shared, given, arguments, work=work)


def pack_of(task: Task) -> int:
    """Channels that a lane writes together."""
    pack = 16 // task.sum_bytes
    return pack if task.aligned and task.inner % pack == 0 else 1


def _tiles_work(
    task: Task, kinds: list[Array], steps: Array, options: dict[str, int], lanes: int, warps: int
) -> Work:
    (slices, of_d, often_d), (rows, of_h, often_h), (_, of_w, often_w) = kinds
    walk, n, often = options["WALK"], options["AHEAD"], often_d * often_h * often_w
    rounds = -(-steps // n) * (of_d if walk else 1)
    counts = (rounds, of_d * of_h * of_w, slices * rows, slices * walk, 1)
    taken, read, of_rows, walked, tiles = (float((count * often).sum()) for count in counts)
    return channels_work(task, n, taken, read, of_rows, walked, tiles, options["LINEAR"], lanes, warps)


def _kinds(of_axes: list[Array]) -> list[Array]:
    """Of each axis, the lengths and numbers of windows of its parts, and how often each pair occurs.

    They are broadcast against those of the other axes: a box has a part of each axis.
    """
    found = []
    for at, part in enumerate(of_axes):
        kinds, often = np.unique(part[:, 1] << 32 | part[:, 3], return_counts=True)
        shape = [3, 1, 1, 1]
        shape[1 + at] = len(kinds)
        found.append(np.stack([kinds >> 32, kinds & 0xFFFFFFFF, often]).reshape(shape))
    return found


def _steps(kinds: list[Array], walk: int, lag: int, lanes: int) -> Array:
    """Of a warp in each kind of tile; in a slice of windows, if it walks."""
    of_d, of_h, of_w = (numbers[1] for numbers in kinds)
    return steps_of(of_h if walk else of_d * of_h, of_w, lag, 32 // lanes)


def channels_work(
    task: Task,
    ahead: Any,
    rounds: Any,
    windows: Any,
    rows: Any,
    slices: Any,
    tiles: Any,
    linear: Any,
    lanes: Any,
    warps: Any,
) -> Work:
    """Of scatter_channels.cu, where so many warps share the tiles of an image.

    `rounds` of a warp load `ahead` windows each. `rows` of all tiles; `slices` of all tiles, if warps walk.
    """
    problem, groups = task.problem, task.planes * cdiv(task.inner, lanes)
    loads, cells = 32 * groups * rounds, groups * lanes * float(prod(problem.input_plane))
    steps, deep = loads * ahead, problem.axes[0].length > 1
    return (
        *(("steps", steps), ("loads", loads), ("steps in whole rows", steps * linear)),
        ("steps in slices", steps * deep * (1 - linear)),
        ("bytes of windows", groups * lanes * windows * window_bytes(problem)),
        *(("cells of lanes", cells), ("16-bit cells of lanes", cells * (problem.dtype.itemsize == 2))),
        ("cells without vectors", cells * (pack_of(task) == 1)),
        *(("rows", 32 * groups * rows), ("tiles", 32 * groups * tiles)),
        *(("slices", 32 * groups * slices), ("steps in groups", steps * (lanes < 32))),
        ("lanes", 32 * groups * warps),
    )


def warp_sizes(task: Task, cells: Any, columns: Any, lanes: int) -> tuple[Any, Any]:
    """Bytes of a warp's sums, and of all it keeps: groups of lanes need to know where columns begin."""
    sums = rounded(cells * lanes * task.sum_bytes)
    return sums, sums + (cdiv(columns, 4) * 16 if lanes < 32 else 0)


def window_columns(axis: Axis) -> tuple[Array, int, int]:
    """Where windows begin, how many cells the longest has, and how far apart windows share none."""
    found = tables(axis)
    starts = found.start if axis.adaptive else np.arange(axis.outputs) * axis.s - axis.p
    reach = int((found.end - found.start).max(initial=1)) if axis.adaptive else axis.reach
    if not axis.adaptive:
        return starts, reach, max(min(cdiv(reach, axis.s), axis.outputs), 1)
    shared = np.searchsorted(starts, starts + reach) - np.arange(len(starts))
    return starts, reach, int(shared.max(initial=1))


def steps_of(rows: Array, windows: Array, lag: int, turns: int) -> Array:
    """The steps of scatter_channels.cu for `rows` of so many windows, if groups of lanes take turns."""
    lags = np.minimum(lag, windows) if turns > 1 else 0
    rounds = (rows - 1) // turns
    steps = rounds * np.maximum(windows, turns * lags) + (rows - 1 - rounds * turns) * lags + windows
    return np.where((rows > 0) & (windows > 0), steps, 0)


def ahead(task: Task, steps: Any) -> Any:
    """How many windows a warp loads together. Each load of n windows takes about as long as n + 2 steps."""
    eight = cdiv(steps, 8) * (8 + 2) <= cdiv(steps, 4) * (4 + 2)
    # Of float64, and with offsets, a window takes more registers.
    return np.where(eight & (task.sum_bytes == 4) & (not task.problem.offsets), 8, 4)


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
        windows = windows * np.array([float(window_counts(axis, n)[0]) for n in shares]).reshape(shape)
        tiles = tiles * -(-length // boxes[at])
    d, h, w = (box.ravel() for box in np.broadcast_arrays(*boxes))
    windows, tiles = windows.ravel(), tiles.ravel()
    warps = _warps(tiles)
    parts, shared = cdiv(tiles, warps), 16 + warps * warp_sizes(task, d * h * w, 0, 32)[0]
    rows = tiles * d * h
    n = int(ahead(task, 64))
    linear = contiguous(task, (d, h, w)).astype(int)
    rounds = windows / n + tiles / 2  # the last round of a tile is half full
    work = channels_work(task, n, rounds, windows, rows, 0.0, tiles, linear, 32, parts * warps)
    shape_ = Shape(task.planes * cdiv(task.inner, 32) * parts, 32 * warps, shared, 40, work)
    best = fastest(task, KERNEL, shape_, (d * h * w <= most) & (shared <= task.facts.shared_per_block))
    best = best or 0
    return int(d[best]), int(h[best]), int(w[best])


def contiguous(task: Task, box: Any) -> Any:
    """Whether the cells of a tile follow each other in a plane: whole rows of a slice, or whole slices."""
    _, height, width = task.problem.input_plane
    return (box[2] == width) & ((box[0] == 1) | (box[1] == height))


def parts_of_axes(axes: tuple[Axis, ...], tile: tuple[int, int, int]) -> list[Array]:
    """Of each axis, for each part that tiles have: its first cell and length, and the same of its windows."""
    found = []
    for axis, share in zip(axes, tile, strict=True):
        begin, end = shares(axis.length, share)
        found.append(np.stack([begin, end - begin, *between(axis, begin, end)], axis=1))
    return found


def _boxes(of_axes: list[Array]) -> Array:
    """For each tile: its first cell on each axis, its lengths, and the same of the windows of its cells."""
    d, h, w = (part.astype(np.int32) for part in of_axes)
    of_slice = np.empty((len(h), len(w), 4, 3), np.int32)
    of_slice[..., 1], of_slice[..., 2] = h[:, None], w
    found = np.tile(of_slice.reshape(-1, 4, 3), (len(d), 1, 1, 1))
    found[..., 0] = d[:, None]
    return found.reshape(-1, 12)
