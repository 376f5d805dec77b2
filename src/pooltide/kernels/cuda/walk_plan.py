"""Planner of the gradient of maxima in channels-last volumes: scatter_channels.cu walks through the slices.

A box of cells reads the windows of all slices around it. A warp that walks keeps only the slices of one
window, so its tile has more rows and columns, and it reads each window less often.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ...geometry import Axis, tables
from .scatter_plan import (
    FEW_CHANNELS,
    ahead,
    boxes,
    channel_tile,
    channels_launches,
    channels_work,
    columns,
    rounded,
    steps_of,
)
from .tables import Array, cdiv, even_shares, windows_of_shares
from .task import Launch, Task

WALK_BYTES = 12 << 10  # of sums that a warp keeps in shared memory, at most
WARPS = 2  # of a block
MOST_WARPS = 16  # the most warps of a multiprocessor; their registers limit the number
USUAL_WARPS = 24  # the same without a walk: the costs of `channel_tile` are for this number
ENOUGH_WARPS = 12  # warps that keep a multiprocessor busy
WAITING = 6  # with n warps on a multiprocessor, time grows as 1 + WAITING / n, because warps wait for memory
LANES = (32, 16, 8)  # channels of a tile; with fewer than 32, groups of lanes take rows of windows in turn
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
    if ring > (most := _most_cells(task, min(LANES))):
        return f"a window has {ring} slices, and a warp keeps at most {most} cells"
    cost, lanes, tile = _tile(task, ring)
    worth = WORTH[task.problem.dtype.itemsize][d.outputs < FEW_SLICES * d.length]
    if cost > worth * (usual := channel_tile(task)[0]):
        return f"a walk costs {cost / usual:.2f} of what boxes cost, of at most {worth}"
    pieces = boxes(task.problem.axes, tile)
    linear = int(lanes == 32 and tile[2] == w.length)
    return channels_launches(task, ring, pieces, min(WARPS, len(pieces)), linear, walk=1, lanes=lanes)


def _most_cells(task: Task, lanes: int) -> int:
    """Cells of a tile of so many channels that a warp can keep."""
    return min(WALK_BYTES, task.facts.shared_per_block // WARPS - 128) // (lanes * task.sum_bytes)


def _tile(task: Task, ring: int) -> tuple[float, int, tuple[int, int, int]]:
    """The lanes and the tile that cost least, and their cost. A tile: slices to walk through, rows and columns."""
    (d, h, w), facts = task.problem.axes, task.facts
    slices = {n: float(windows_of_shares(d, n).sum()) for n in even_shares(d.length)}
    lag = columns(w)[2]
    found = []
    for lanes in LANES:
        most = _most_cells(task, lanes) // ring
        rows, widths = ({n: _counted(axis, n) for n in _shares(axis, most)} for axis in (h, w))
        groups = cdiv(task.inner, lanes)
        share = groups / cdiv(task.inner, 32)  # warps for each warp of boxes
        for (height, of_h), (width, of_w) in product(rows.items(), widths.items()):
            if height * width > most:
                continue
            steps, read = _of_slice(of_h, of_w, lag, 32 // lanes)
            size = rounded(ring * height * width * lanes * task.sum_bytes) + 512  # bytes of a warp
            fit = max(min(facts.shared_per_multiprocessor // size, MOST_WARPS), 1)
            waiting = (1 + WAITING / fit) / (1 + WAITING / USUAL_WARPS)
            flat = cdiv(h.length, height) * cdiv(w.length, width)  # tiles of a slice
            for depth, taken in slices.items():
                tiles = flat * cdiv(d.length, depth)
                few = max(facts.multiprocessors * min(fit, ENOUGH_WARPS) / (tiles * groups * task.planes), 1.0)
                written = d.length * h.length * cdiv(w.length, width)  # rows of all tiles
                linear = lanes == 32 and width == w.length
                work = channels_work(task, taken * steps, taken * read, tiles, written, linear, lanes)
                found.append((work * share * few * waiting, lanes, (depth, height, width)))
    return min(found)


def _shares(axis: Axis, most: int) -> set[int]:
    return {n for n in (*even_shares(axis.length), most) if n <= axis.length}


def _counted(axis: Axis, share: int) -> Array:
    """How many windows the shares of an axis read, and how many shares read so many."""
    return np.stack(np.unique(windows_of_shares(axis, share), return_counts=True))


def _of_slice(of_h: Array, of_w: Array, lag: int, turns: int) -> tuple[float, float]:
    """The steps of the tiles of a slice, and the windows that they read."""
    steps = steps_of(of_h[0][:, None], of_w[0], lag, turns)
    unit = ahead(int(steps.max()))
    padded = -(-steps // unit) * unit
    return float(of_h[1] @ padded @ of_w[1]), float((of_h[0] @ of_h[1]) * (of_w[0] @ of_w[1]))
