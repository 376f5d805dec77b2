"""Planner of the gradient of maxima in channels-last volumes: scatter_channels.cu walks through the slices.

A box of cells reads the windows of all slices around it. A warp that walks keeps only the slices of one
window, so its tile has more rows and columns, and it reads each window less often.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from ....geometry import Axis
from ..kernel_tables import Array, cdiv, even_shares, longest_span, window_counts, windows_of_shares
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
    ring = longest_span(d)
    none = inf, 0, (0, 0, 0)
    tiles = (_best_tile(task, ring, lanes) for lanes in set(LANES) & LEGAL_LANES)
    cost, lanes, tile = min(tiles, default=none)
    if cost == inf:
        return f"a window has {ring} slices, too many cells for a warp"
    pieces = boxes(task.problem.axes, tile)
    linear = int(lanes == 32 and tile[2] == w.length)
    launch = tiles_launch(task, ring, pieces, min(WARPS, len(pieces)), linear, walk=1, lanes=lanes)
    return in_two_passes(task, launch)


def _best_tile(task: Task, ring: int, lanes: int) -> tuple[float, int, tuple[int, int, int]]:
    """The least cost, infinite if no tile fits a warp; the lanes; slices, rows and columns of a tile."""
    (d, h, w), facts, lag = task.problem.axes, task.facts, window_columns(task.problem.axes[2])[2]
    most = WALK_BYTES // (lanes * task.sum_bytes) // ring
    if most == 0:
        return inf, lanes, (0, 0, 0)
    depths, rows, widths = even_shares(d.length)[::-1], _Shares.of(h, most), _Shares.of(w, most)
    groups = cdiv(task.inner, lanes)
    shares: tuple[Any, Any, Any] = rows.shares[:, None], widths.shares, np.array(depths)[:, None, None]
    height, width, depth = shares
    windows: Any = np.maximum.reduceat(widths.windows, widths.begin)
    sizes = warp_sizes(task, ring * height * width, windows, lanes)[1]
    fit = np.clip(facts.shared_per_multiprocessor // (sizes + 512), 1, MOST_WARPS)
    written = d.length * h.length * cdiv(w.length, width)  # rows of all tiles
    steps, read = _of_slice(task, rows, widths, lag, 32 // lanes)
    taken = np.array([window_counts(d, n)[0] for n in depths])[:, None, None]
    tiles = cdiv(h.length, height) * cdiv(w.length, width) * cdiv(d.length, depth)
    linear = (lanes == 32) & (width == w.length)
    work = channels_work(task, taken * steps, taken * read, tiles, written, linear, lanes)
    waiting = _waiting(tiles * groups * task.planes / facts.multiprocessors, fit)
    kept = (height * width <= most) & (16 + WARPS * sizes <= facts.shared_per_block)
    cost = np.where(kept, work * (groups / cdiv(task.inner, 32)) * waiting, inf)
    best = np.unravel_index(int(cost.argmin()), cost.shape)
    tile = depths[best[0]], int(rows.shares[best[1]]), int(widths.shares[best[2]])
    return float(cost[best]), lanes, tile


def _waiting(warps: Any, fit: Any) -> Any:
    """How much longer `warps` of a multiprocessor take, of which `fit` run at a time, than alone."""
    full, rest = np.divmod(np.maximum(warps, 1.0), fit)
    time = full * (fit + WAITING) + np.where(rest > 0, rest + WAITING, 0.0)
    return time / warps


@dataclass(frozen=True, slots=True)
class _Shares:
    """Ways to cut an axis into shares; of each, the numbers of windows that shares read, and how often."""

    shares: Array
    windows: Array  # those of all ways, one after the other
    often: Array
    begin: Array  # where those of a way begin

    @classmethod
    def of(cls, axis: Axis, most: int) -> _Shares:
        found = sorted({n for n in (*even_shares(axis.length), most) if n <= axis.length})
        counted = [np.bincount(windows_of_shares(axis, n)) for n in found]
        windows = [counts.nonzero()[0] for counts in counted]
        often = [counts[at] for counts, at in zip(counted, windows, strict=True)]
        begin = np.cumsum([0, *map(len, windows[:-1])])
        return cls(np.array(found), np.concatenate(windows), np.concatenate(often), begin)

    def sums(self, numbers: Array) -> Array:
        """The sums of a number of each way's shares, along the first axis."""
        weights = self.often.reshape(-1, *[1] * (numbers.ndim - 1))
        return np.asarray(np.add.reduceat(numbers * weights, self.begin))


def _of_slice(task: Task, rows: _Shares, widths: _Shares, lag: int, turns: int) -> tuple[Array, Array]:
    """The steps of the tiles of a slice, and the windows that they read, for all cuts of rows and columns."""
    steps = steps_of(rows.windows[:, None], widths.windows, lag, turns)
    longest = np.maximum.reduceat(np.maximum.reduceat(steps, rows.begin), widths.begin, axis=1)
    units = np.vectorize(lambda steps: ahead(task, steps), otypes=[int])(longest)
    padded = {n: widths.sums(rows.sums(-(-steps // n) * n).T).T for n in set(units.flat)}
    taken = np.select([units == n for n in padded], list(padded.values()))
    return taken.astype(float), np.outer(rows.sums(rows.windows), widths.sums(widths.windows)).astype(float)
