"""How warps add windows in ascending order: the options, tables and work of ordered.h."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....geometry import Axis, tables
from ....problem.problem import Problem
from ..kernel_tables import Array, cdiv, is_ragged, most_windows
from ..task import Task, Work

COMPARED = 8  # lanes to compare (NEAR of ordered.h), at most; for more, __match_any_sync is faster
MASK_BITS = 32  # ordered.h has a bit for each lane that is compared
FILLED_ROW = 0.85  # the least part of the lanes that must have windows if rows are padded


def rounded(size: Any) -> Any:
    """Bytes for sums that begin anywhere in a vector of 16 bytes, as halves: 8 sums."""
    return cdiv(size, 32) * 32 + 64


def lanes_of_windows(task: Task, options: dict[str, Any], windows: Any) -> Array:
    """The lanes of warps that take so many windows, 32 at a time, with those that have none."""
    if options["PADDED"]:
        windows = windows // task.problem.axes[2].outputs * padded_row(task)
    return -(-np.asarray(windows) // 32) * 32


def ordered_work(options: dict[str, Any], windows: Any) -> Work:
    """Of ordered.h, for so many windows."""
    near, rows, disjoint = options["NEAR"], options["NEAR_ROWS"], options["DISJOINT"]
    compared = near - 1 + (rows - 1) * (2 * near - 1) if near else 0
    return (
        *(("windows", windows), ("compared lanes", windows * compared)),
        *(
            ("disjoint windows", windows * disjoint),
            ("matched windows", windows * (not near and not disjoint)),
        ),
        ("windows with rows", windows * (near > 0 and not options["LONG_ROWS"])),
        *(("windows by table", windows * options["TABLE"]), ("windows in slices", windows * options["DEEP"])),
    )


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
        ("TABLE", int(is_ragged(task.problem))),
    )


def near_windows(task: Task, whole_rows: bool) -> tuple[int, int, bool]:
    """Returns NEAR, NEAR_ROWS and PADDED; NEAR is 0 if comparing lanes would be wrong or slower."""
    axes, none = task.problem.axes, (0, 1, False)
    if task.inner > 1 or all(axis.disjoint for axis in axes):
        return none
    d, h, w = (most_windows(axis) for axis in axes)
    row, slice_ = axes[2].outputs, axes[1].outputs * axes[2].outputs
    padded = padded_row(task)
    filled = (row < padded <= row / FILLED_ROW or row == 32) and axes[0].outputs * axes[
        1
    ].outputs * padded < 2**31
    most = min(COMPARED, MASK_BITS)
    if whole_rows and filled and w - 1 <= most:
        return w, 1, True
    near_rows = [n for n in range(1, h) if n * row - w + 1 < 32]  # that a warp can have, besides the first
    if (near_rows and row < 2 * w - 1) or (d > 1 and slice_ - (h - 1) * row - w + 1 < 32):
        return none  # distances in a warp are not unique, or a warp can have windows of the next slice
    compared = w - 1 + len(near_rows) * (2 * w - 1)
    return (w, 1 + len(near_rows), False) if compared <= most else none


def padded_row(task: Task) -> int:
    """Windows of a row with its padding, so that equal columns of two rows are never in one warp."""
    w = task.problem.axes[2]
    near = most_windows(w)
    return w.outputs if w.outputs >= 31 + near else 32 if w.outputs <= 32 else 31 + near


def spans_of(problem: Problem) -> Array:
    """p.spans of ordered.h; two unused zeros if `steps` describe the windows."""
    return all_spans(problem) if is_ragged(problem) else np.zeros(2, np.int32)


def all_spans(problem: Problem) -> Array:
    """The first cell of each window of each axis, and how many cells it spans."""
    found = [tables(axis) for axis in problem.axes]
    return np.concatenate([np.stack([t.start, t.end - t.start], axis=1) for t in found]).astype(np.int32)


def steps(axis: Axis) -> tuple[int, int, int]:
    """Stride, padding and reach of windows; zeros for an adaptive axis whose windows differ."""
    if not axis.adaptive:
        return axis.s, axis.p, axis.reach
    size = axis.length // axis.outputs if axis.length % axis.outputs == 0 else 0
    return size, 0, size
