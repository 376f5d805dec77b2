"""Planner of the gradient of maxima in channels-last volumes: scatter_channels.cu walks through the slices.

A box of cells reads the windows of all slices around it. A warp that walks keeps only the slices of one
window, so its tile has more rows and columns, and it reads each window less often.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from ....geometry import Axis, tables
from ..tables import Array, cdiv, even_shares, windows_of_shares
from ..task import Launch, Task
from .scatter_channels import (
    ONE_CHANNEL,
    ahead,
    boxes,
    channels_work,
    steps_of,
    tiles_launch,
    warp_sizes,
    window_columns,
)
from .two_passes import in_two_passes

WALK_BYTES = 12 << 10  # of sums that a warp keeps in shared memory, at most
WARPS = 2  # of a block
MOST_WARPS = 16  # the most warps of a multiprocessor; their registers limit the number
USUAL_WARPS = 24  # the same without a walk: the costs of `channel_tile` are for this number
WAITING = 6  # n warps on a multiprocessor take as long as n + WAITING that never wait for memory
LEGAL_LANES = {32, 16, 8}  # groups of a warp, whose lanes load up to 8 windows together
LANES = (32, 16)  # channels of a tile; with fewer than 32, groups of lanes take rows of windows in turn


def walk_channels(task: Task) -> tuple[Launch, ...] | str:
    """A lane owns a channel; a warp walks through slices, and keeps a tile of those that a window has."""
    d, _, w = task.problem.axes
    if task.inner == 1:
        return ONE_CHANNEL
    if d.length == 1:
        return "images have one slice"
    span = tables(d)
    ring = max(int((span.end - span.start).max(initial=1)), 1)
    found = list(_tiles(task, ring))
    if not found:
        return f"a window has {ring} slices, too many cells for a warp"
    _, lanes, tile = min(found)
    pieces = boxes(task.problem.axes, tile)
    linear = int(lanes == 32 and tile[2] == w.length)
    launch = tiles_launch(task, ring, pieces, min(WARPS, len(pieces)), linear, walk=1, lanes=lanes)
    return in_two_passes(task, launch)


def _tiles(task: Task, ring: int) -> Iterator[tuple[float, int, tuple[int, int, int]]]:
    """Costs, lanes and tiles that a warp can keep. A tile: slices to walk through, rows and columns."""
    (d, h, w), facts = task.problem.axes, task.facts
    slices = {n: float(windows_of_shares(d, n).sum()) for n in even_shares(d.length)}
    lag = window_columns(w)[2]
    for lanes in set(LANES) & LEGAL_LANES:
        most = WALK_BYTES // (lanes * task.sum_bytes) // ring
        rows, widths = ({n: _counted(axis, n) for n in _shares(axis, most)} for axis in (h, w))
        groups = cdiv(task.inner, lanes)
        share = groups / cdiv(task.inner, 32)  # warps for each warp of boxes
        for (height, of_h), (width, of_w) in product(rows.items(), widths.items()):
            _, size = warp_sizes(task, ring * height * width, int(of_w[0].max()), lanes)
            if height * width > most or 16 + WARPS * size > facts.shared_per_block:
                continue
            steps, read = _of_slice(task, of_h, of_w, lag, 32 // lanes)
            fit = max(min(facts.shared_per_multiprocessor // (size + 512), MOST_WARPS), 1)
            flat = cdiv(h.length, height) * cdiv(w.length, width)  # tiles of a slice
            written = d.length * h.length * cdiv(w.length, width)  # rows of all tiles
            linear = lanes == 32 and width == w.length
            for depth, taken in slices.items():
                tiles = flat * cdiv(d.length, depth)
                work = channels_work(task, taken * steps, taken * read, tiles, written, linear, lanes)
                warps = tiles * groups * task.planes / facts.multiprocessors
                yield work * share * _waiting(warps, fit), lanes, (depth, height, width)


def _waiting(warps: float, fit: int) -> float:
    """How much longer `warps` of a multiprocessor take, of which `fit` run at a time, than boxes' warps."""
    full, rest = divmod(max(warps, 1.0), fit)
    time = full * (fit + WAITING) + (rest + WAITING if rest else 0.0)
    return time / warps / (1 + WAITING / USUAL_WARPS)


def _shares(axis: Axis, most: int) -> set[int]:
    return {n for n in (*even_shares(axis.length), most) if 0 < n <= axis.length}


def _counted(axis: Axis, share: int) -> Array:
    """How many windows the shares of an axis read, and how many shares read so many."""
    return np.stack(np.unique(windows_of_shares(axis, share), return_counts=True))


def _of_slice(task: Task, of_h: Array, of_w: Array, lag: int, turns: int) -> tuple[float, float]:
    """The steps of the tiles of a slice, and the windows that they read."""
    steps = steps_of(of_h[0][:, None], of_w[0], lag, turns)
    unit = ahead(task, int(steps.max()))
    padded = -(-steps // unit) * unit
    return float(of_h[1] @ padded @ of_w[1]), float((of_h[0] @ of_h[1]) * (of_w[0] @ of_w[1]))
