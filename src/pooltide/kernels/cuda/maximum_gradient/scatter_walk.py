"""Planner of the gradient of maxima in channels-last volumes: scatter_channels.cu walks through the slices.

A box of cells reads the windows of all slices around it. A warp that walks keeps only the slices of one
window, so its tile has more rows and columns, and it reads each window less often.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ....geometry import Axis
from ..cost import Shape, fastest
from ..kernel_tables import Array, cdiv, each, even_shares, longest_span, window_counts, windows_of_shares
from ..task import Launch, Task
from .scatter_channels import (
    ONE_CHANNEL,
    ahead,
    channels_work,
    parts_of_axes,
    steps_of,
    tiles_launch,
    warp_sizes,
    window_columns,
)
from .two_passes import in_two_passes

WALK_BYTES = 12 << 10  # of sums that a warp keeps in shared memory, at most
WARPS = 2  # of a block
KERNEL = "scatter of channels in volumes"  # in costs.json
LANES = (32, 16, 8)  # channels of a tile; with fewer than 32, groups of lanes take rows of windows in turn


def walk_channels(task: Task) -> tuple[Launch, ...] | str:
    """A lane owns a channel; a warp walks through slices, and keeps a tile of those that a window has."""
    d, _, w = task.problem.axes
    if task.inner == 1:
        return ONE_CHANNEL
    if d.length == 1:
        return "images have one slice"
    ring = longest_span(d)
    best = _best(task, np.concatenate([_tiles(task, ring, lanes) for lanes in LANES], axis=1))
    if best is None:
        return f"a window has {ring} slices, too many cells for a warp"
    lanes, *tile = best
    parts = parts_of_axes(task.problem.axes, (tile[0], tile[1], tile[2]))
    linear = int(lanes == 32 and tile[2] == w.length)
    warps = min(WARPS, prod(map(len, parts)))
    launch = tiles_launch(task, ring, parts, warps, linear, walk=1, lanes=lanes)
    return in_two_passes(task, launch)


def _best(task: Task, tiles: Array) -> list[int] | None:
    """The lanes, slices, rows and columns of the tile that costs least."""
    d, h, w = task.problem.axes
    lanes, depth, height, width, size, ahead, steps, read = tiles
    taken = each(lambda n: window_counts(d, n)[0], depth)  # slices of windows
    across = cdiv(h.length, height) * cdiv(w.length, width)
    pieces = across * cdiv(d.length, depth)
    warps = np.minimum(WARPS, pieces)
    parts, linear = cdiv(pieces, warps), ((lanes == 32) & (width == w.length)).astype(int)
    slices, rows = d.length * across, d.length * h.length * cdiv(w.length, width)
    sizes = taken * steps // ahead, taken * read, rows, slices, pieces, linear, lanes, parts * warps
    grid = task.planes * cdiv(task.inner, lanes) * parts
    shape = Shape(grid, 32 * warps, 16 + warps * size, 40, channels_work(task, ahead, *sizes))
    best = fastest(task, KERNEL, shape, 16 + WARPS * size <= task.facts.shared_per_block)
    return None if best is None else tiles[:4, best].tolist()


def _tiles(task: Task, ring: int, lanes: int) -> Array:
    """Of each tile that a warp can keep, its lanes, slices, rows, columns and bytes.

    Then how many windows a warp loads together, the steps of all tiles of a slice, and the windows that they
    read.
    """
    (d, h, w), lag = task.problem.axes, window_columns(task.problem.axes[2])[2]
    most = WALK_BYTES // (lanes * task.sum_bytes) // ring
    if most == 0:
        return np.zeros((8, 0), np.int64)
    depths, rows, widths = np.array(even_shares(d.length)), _Shares.of(h, most), _Shares.of(w, most)
    height, width = rows.shares[:, None], widths.shares
    windows: Any = np.maximum.reduceat(widths.windows, widths.begin)
    size = warp_sizes(task, ring * height * width, windows, lanes)[1]
    of_slice = (height, width, size, *_of_slice(task, rows, widths, lag, 32 // lanes))
    found = np.broadcast_arrays(lanes, depths[:, None, None], *of_slice)
    return np.stack([one.ravel() for one in found])[:, np.tile((height * width <= most).ravel(), len(depths))]


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


def _of_slice(task: Task, rows: _Shares, widths: _Shares, lag: int, turns: int) -> tuple[Array, ...]:
    """For all cuts of rows and columns: windows loaded together, and the steps and windows of all tiles."""
    steps = steps_of(rows.windows[:, None], widths.windows, lag, turns)
    longest = np.maximum.reduceat(np.maximum.reduceat(steps, rows.begin), widths.begin, axis=1)
    units = ahead(task, longest)
    padded = {n: widths.sums(rows.sums(-(-steps // n) * n).T).T for n in set(units.flat)}
    taken = np.select([units == n for n in padded], list(padded.values()))
    return units, taken, np.outer(rows.sums(rows.windows), widths.sums(widths.windows))
