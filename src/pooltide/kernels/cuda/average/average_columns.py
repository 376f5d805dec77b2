"""Plans `average of columns`, average_columns.cu: a thread walks down a column of windows."""

from __future__ import annotations

from ..kernel_tables import power_below
from ..task import Launch, Task
from ..windows import columns
from .quotients import MEAN, division_of, divisor_parameters

CELLS_IN_REGISTERS = 64  # that a thread reads for several averages
SUMS_IN_REGISTERS = 32  # of a thread that takes several channels
CELLS_TOGETHER = 8  # that a thread should load at once, from several slices where a slice has fewer


def column_average(task: Task) -> tuple[Launch, ...] | str:
    """A thread walks down a column of windows."""
    if task.problem.quotient == "mean":
        return MEAN
    given, task = task, columns.rows_as_planes(task)
    problem, (_, rows, steps) = task.problem, columns.steady_axes(task)
    d, h, w = (columns.windows_of(axis) for axis in problem.axes)
    ragged = columns.by_tables(task)
    most = columns.unrolled_cells(w.most, ragged)
    windows = windows_together(h)
    if task is not given and most:  # rows have no cells in common, but a thread loads several of them at once
        windows = min(max(columns.UNROLLED // most, 1), 4, h.outputs)
    vector = columns.vector_of(task)
    if task.inner > 1:
        windows = min(
            windows, SUMS_IN_REGISTERS // vector, max(int(columns.results_to_spare(task) / vector), 1)
        )
    height = rows.k + (windows - 1) * rows.s
    unrolled = not rows.adaptive and 0 < most * height <= CELLS_IN_REGISTERS
    slices = min(max(CELLS_TOGETHER // (most * height), 1), power_below(d.most)) if unrolled else 1
    paired = unrolled and columns.may_pair(task) and (steps.k + steps.s) * height <= CELLS_IN_REGISTERS
    vector = vector if paired or task.inner > 1 else 1
    clipped_w = bool((w.count != steps.k).any()) if paired else ragged or bool(w.clipped)
    spread = windows == 1 and columns.may_spread(task, vector)
    shape = (
        columns.spread_walk(task, columns.THREADS, vector)
        if spread
        else columns.walk_of(task, columns.THREADS, windows, vector, windows)
    )
    divisors, numbers, division = division_of(task, ragged)
    options = (
        *(("ROWS", rows.k if unrolled else 0), ("STRIDE", rows.s if unrolled else 0), ("WINDOWS", windows)),
        *(("PAIRED", int(paired)), ("STRIDE_W", steps.s if paired else 0)),
        *(("DEEP", int(d.most > 1 or d.empty)), ("SLICES", slices), *division, ("THREADS", columns.THREADS)),
    )
    return columns.column_launch(
        task,
        "average_columns",
        shape,
        vector,
        steps.k if paired else most,
        (bool((h.count != rows.k).any()), clipped_w),
        options,
        (("int", "padding"), ("int", "padding_w"), *divisor_parameters(task)),
        (rows.p, steps.p, *numbers),
        more=divisors,
    )


def windows_together(h: columns.Windows) -> int:
    """How many windows below each other a thread adds together, as it reads the rows that they share once."""
    return min(4 if h.overlap >= 2 else 2 if h.overlap > 1.25 else 1, h.outputs)
