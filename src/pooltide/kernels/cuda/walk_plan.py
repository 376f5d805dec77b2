"""Planner of the gradient of maxima in channels-last volumes: scatter_channels.cu walks through the slices.

A box of cells reads the windows of all slices around it. A warp that walks keeps only the slices of one
window, so its tile has more rows and columns, and it reads each window less often.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from ...geometry import tables
from .scatter_plan import FEW_CHANNELS, boxes, channel_tile, channels_launches, channels_work, rounded
from .tables import Array, cdiv, even_shares, windows_of_shares
from .task import Launch, Task

WALK_BYTES = 12 << 10  # of sums that a warp keeps in shared memory, at most
WARPS = 2  # of a block
MOST_WARPS = 16  # the most warps of a multiprocessor; their registers limit the number
USUAL_WARPS = 24  # the same without a walk: the costs of `channel_tile` are for this number
ENOUGH_WARPS = 12  # warps that keep a multiprocessor busy
WAITING = 6  # with n warps on a multiprocessor, time grows as 1 + WAITING / n, because warps wait for memory
IDLE = 1.25  # half a warp computes a tile if whole warps would need more than IDLE times the lanes
# A walk is chosen if it costs at most this part of the cost of boxes, by element size and by whether windows
# begin in few slices. Both costs are estimates; that of a walk is too low for halves in few slices.
WORTH = {2: (0.78, 0.6), 4: (0.85, 0.85), 8: (0.78, 0.78)}
FEW_SLICES = 0.6  # windows for each slice, below which windows begin in few of the slices


def walk_channels(task: Task) -> tuple[Launch, ...] | str:
    """A lane owns a channel; a warp walks through slices, and keeps a tile of those that a window has."""
    d, _, w = task.problem.axes
    if task.inner < FEW_CHANNELS:
        return f"{task.inner} channels are innermost, too few for the lanes of a warp"
    if d.length == 1:
        return "images have one slice"
    span = tables(d)
    ring = max(int((span.end - span.start).max(initial=1)), 1)
    most = min(WALK_BYTES, task.facts.shared_per_block // WARPS - 128) // (32 * task.sum_bytes)  # cells
    if ring > most:
        return f"a window has {ring} slices, and a warp keeps at most {most} cells"
    cost, tile = _tile(task, ring, most)
    worth = WORTH[task.problem.dtype.itemsize][d.outputs < FEW_SLICES * d.length]
    if cost > worth * (usual := channel_tile(task)[0]):
        return f"a walk costs {cost / usual:.2f} of what boxes cost, of at most {worth}"
    lanes = _lanes(task)
    pieces = _whole_warps(boxes(task.problem.axes, tile), cdiv(d.length, tile[0]), 32 // lanes)
    warps = min(WARPS, len(pieces) * lanes // 32)
    return channels_launches(task, ring, pieces, warps, int(tile[2] == w.length), walk=1, lanes=lanes)


def _lanes(task: Task) -> int:
    """The lanes that compute a tile: all 32 of a warp, or 16 if that leaves fewer of them idle."""
    return 16 if cdiv(task.inner, 32) * 32 > IDLE * cdiv(task.inner, 16) * 16 else 32


def _whole_warps(pieces: Array, segments: int, together: int) -> Array:
    """Adds tiles without cells, so that each segment of slices has a multiple of `together` tiles."""
    found = pieces.reshape(segments, -1, 12)
    none = np.repeat(found[:, -1:], -found.shape[1] % together, axis=1)
    none[:, :, [4, 5, 10, 11]] = 0  # rows and columns of cells and of windows
    return np.concatenate([found, none], axis=1).reshape(-1, 12)


def _tile(task: Task, ring: int, most: int) -> tuple[float, tuple[int, int, int]]:
    """The tile that costs least, and its cost: slices to walk through, rows and columns."""
    axes, facts = task.problem.axes, task.facts
    lanes = _lanes(task)
    groups = task.planes * cdiv(task.inner, lanes)
    share = cdiv(task.inner, lanes) * lanes / (cdiv(task.inner, 32) * 32)  # lanes that boxes would take
    shares = [even_shares(axes[0].length), *([*even_shares(axis.length), most] for axis in axes[1:])]
    read = [
        {n: float(windows_of_shares(axis, n).sum()) for n in of_axis if n <= axis.length}
        for axis, of_axis in zip(axes, shares, strict=True)
    ]
    found = []
    for tile in product(*read):
        slices, rows, columns = tile
        if ring * rows * columns > most:
            continue
        parts = [cdiv(axis.length, n) for axis, n in zip(axes, tile, strict=True)]
        windows = prod(counts[n] for counts, n in zip(read, tile, strict=True))
        written = axes[0].length * axes[1].length * parts[2]  # rows of all tiles
        size = rounded(ring * rows * columns * 32 * task.sum_bytes) + 512  # bytes of a warp
        fit = max(min(facts.shared_per_multiprocessor // size, MOST_WARPS), 1)
        warps = prod(parts) * groups * lanes / 32
        few = max(facts.multiprocessors * min(fit, ENOUGH_WARPS) / warps, 1.0)
        work = channels_work(task, windows, prod(parts), written, columns == axes[2].length)
        waiting = (1 + WAITING / fit) / (1 + WAITING / USUAL_WARPS)
        found.append((work * share * few * waiting, (slices, rows, columns)))
    return min(found)
