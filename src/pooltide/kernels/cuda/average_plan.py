"""Which GPU kernel computes averages, on what grid: mean.cu, average_wide.cu or average.cu.

The public functions are planners. task.py says what a planner takes and returns; choice.py has their order.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...geometry import spans
from ..reference import as_float
from . import columns
from .columns import (
    TENSORS,
    Windows,
    column_options,
    column_parameters,
    may_pair,
    may_spread,
    power_below,
    results_to_spare,
    rows_as_planes,
    span_table,
    spread_walk,
    steady_axes,
    unrolled_cells,
    vector_of,
    walk_of,
    windows_of,
)
from .source import Argument, Source
from .tables import Array, cdiv, divider, is_ragged, uniform, way_of_division
from .task import Launch, Task

CELLS_IN_REGISTERS = 64  # that a thread reads for several averages
SUMS_IN_REGISTERS = 32  # of a thread that takes several channels
CELLS_TOGETHER = 8  # that a thread should load at once, from several slices where a slice has fewer
WIDE = 8  # cells: windows farther apart are read by whole warps
WIDE_THREADS = 128


def mean_average(task: Task) -> tuple[Launch, ...] | str:
    """The mean of whole planes, in 16 sums."""
    if task.problem.quotient != "mean":
        return "it is no mean of whole planes"
    inner, cells = task.inner, prod(task.problem.input_plane)
    channels = min(inner, 32)
    c_chunks = cdiv(inner, channels)
    threads = 16 * channels if inner > 1 else columns.THREADS
    grid = task.planes * c_chunks if inner > 1 else cdiv(task.planes, columns.THREADS // 16)
    parameters = (
        *TENSORS,
        *(("i64", "planes"), ("int", "cells"), ("int", "inner")),
        *(("Divider", "by_channels"), ("Divider", "by_c_chunks")),
    )
    defines = (*task.defines, ("INNER", int(inner > 1)), ("THREADS", threads))
    source = Source("mean.cu", "mean", parameters, defines)
    arguments = (task.planes, cells, inner, divider(channels), divider(c_chunks))
    return (Launch(source, grid, threads, threads * task.sum_bytes, (), arguments),)


def wide_average(task: Task) -> tuple[Launch, ...] | str:
    """A warp reads the rows of 32 windows together."""
    problem, outputs = task.problem, task.problem.output_plane
    d, h, w = (windows_of(axis) for axis in problem.axes)
    apart = w.length / w.outputs
    if task.inner > 1:
        return "channels are innermost, and neighbouring threads read neighbouring channels"
    if w.outputs > 1 and apart < WIDE:
        return f"windows are {apart:.0f} cells apart, near enough for neighbouring threads"
    if w.most <= WIDE // 2:
        return f"rows of windows have {w.most} cells, too few to read them together"
    if w.overlap > 2:
        return f"a row is read {w.overlap:.0f} times"
    total = task.planes * prod(outputs)
    if total >= 2**31:
        return f"{total} windows are more than a divider takes"
    lanes = max(min(power_below(2 * w.most - 1), 32), 16 if is_ragged(problem) else 8)
    warp_bytes = 32 * (8 + 4) + 32 * (lanes + 1) * task.sum_bytes
    parameters = (
        *TENSORS,
        ("const int*", "tables"),
        *(("i64", name) for name in ("total", "plane_elements")),
        *(("int", name) for name in ("H", "W", "Do", "Ho", "Wo", "warp_bytes")),
        *(("int", name) for name in ("most_d", "most_h", "most_w")),
        *(("Divider", f"by_{name}") for name in ("wo", "ho", "do")),
        *divisor_parameters(task),
    )
    divisors, numbers, options = division_of(task)
    arguments: tuple[Argument, ...] = (
        *(total, prod(problem.input_plane), h.length, w.length, *outputs, warp_bytes),
        *(d.most, h.most, w.most),
        *(divider(n) for n in reversed(outputs)),
        *numbers,
    )
    defines = (*task.defines, *options, ("LANES", lanes), ("THREADS", WIDE_THREADS))
    source = Source("average_wide.cu", "average_wide", parameters, defines)
    shared = WIDE_THREADS // 32 * warp_bytes
    grid = cdiv(total, WIDE_THREADS)
    return (Launch(source, grid, WIDE_THREADS, shared, (span_table((d, h, w), *divisors),), arguments),)


def column_average(task: Task) -> tuple[Launch, ...] | str:
    """A thread walks down a column of windows."""
    given, task = task, rows_as_planes(task)
    problem, (_, rows, steps) = task.problem, steady_axes(task)
    d, h, w = (windows_of(axis) for axis in problem.axes)
    ragged = is_ragged(problem)
    most = unrolled_cells(problem.axes[2], ragged)
    windows = windows_together(h)
    if task is not given and most:  # rows have no cells in common, but a thread loads several of them at once
        windows = min(max(columns.UNROLLED // most, 1), 4, h.outputs)
    vector = vector_of(task)
    if task.inner > 1:
        windows = min(windows, SUMS_IN_REGISTERS // vector, max(int(results_to_spare(task) / vector), 1))
    height = rows.k + (windows - 1) * rows.s
    unrolled = not rows.adaptive and 0 < most * height <= CELLS_IN_REGISTERS
    slices = min(max(CELLS_TOGETHER // (most * height), 1), power_below(d.most)) if unrolled else 1
    paired = unrolled and may_pair(task) and (steps.k + steps.s) * height <= CELLS_IN_REGISTERS
    vector = vector if paired or task.inner > 1 else 1
    clipped_w = bool((w.count != steps.k).any()) if paired else ragged or bool(w.clipped)
    spread = windows == 1 and may_spread(task, vector)
    shape = (
        spread_walk(task, columns.THREADS, vector)
        if spread
        else walk_of(task, columns.THREADS, windows, vector, windows)
    )
    divisors, numbers, options = division_of(task)
    defines = (
        *column_options(
            task, vector, steps.k if paired else most, (bool((h.count != rows.k).any()), clipped_w), spread
        ),
        *(("ROWS", rows.k if unrolled else 0), ("STRIDE", rows.s if unrolled else 0), ("WINDOWS", windows)),
        *(("PAIRED", int(paired)), ("STRIDE_W", steps.s if paired else 0)),
        *(("DEEP", int(d.most > 1 or d.empty)), ("SLICES", slices), *options, ("THREADS", columns.THREADS)),
    )
    parameters = (
        *TENSORS,
        *column_parameters(task),
        ("int", "padding"),
        ("int", "padding_w"),
        *divisor_parameters(task),
    )
    source = Source("average.cu", "average", parameters, defines)
    arguments = (*shape.arguments(task, vector), rows.p, steps.p, *numbers)
    table = span_table((d, h, w), *divisors)
    return (Launch(source, shape.grid(task), shape.block, 0, (table,), arguments),)


def windows_together(h: Windows) -> int:
    """How many windows below each other a thread adds together, as it reads the rows that they share once."""
    return min(4 if h.overlap >= 2 else 2 if h.overlap > 1.25 else 1, h.outputs)


def division_of(task: Task) -> tuple[tuple[Array, ...], list[float], tuple[tuple[str, int], ...]]:
    """The divisors per axis, those of all windows and their reciprocals, and the defines of quotients.h."""
    problem, divisors = task.problem, _divisors(task)
    same = (uniform(divisors) and not is_ragged(problem)) or problem.quotient == "override"
    numbers = _uniform(task, divisors) if same else [1.0, 1.0, 1.0]
    how = max(way_of_division(problem, np.array(numbers) if same else _all_divisors(task, divisors)), 1)
    options = (
        ("CHAINED", int(problem.quotient == "chained")),
        *((f"BY_{name}", int((axis != 1).any())) for name, axis in zip("DHW", divisors, strict=True)),
        *(("UNIFORM", int(same)), ("DIVISION", how)),
        ("SMALL", int(prod(int(axis.max(initial=1)) for axis in divisors) < 2**24)),
    )
    reciprocals = (1 / np.array(numbers, problem.dtype.accumulator)).tolist()
    return divisors, [*numbers, *reciprocals], options


def divisor_parameters(task: Task) -> tuple[tuple[str, str], ...]:
    """Those of quotients.h: the type of sums, as kernels would convert them again for each window."""
    kind = "float" if task.sum_bytes == 4 else "double"
    return tuple((kind, f"{what}_{name}") for what in ("divisor", "reciprocal") for name in "dhw")


def _divisors(task: Task) -> tuple[Array, ...]:
    """What each window's sum is divided by, axis by axis; ones for an override."""
    problem = task.problem
    found = [spans(axis) for axis in problem.axes]
    if problem.quotient == "override":
        return tuple(np.ones_like(start) for start, _, _ in found)
    return tuple(extent if problem.quotient == "extent" else end - start for start, end, extent in found)


def _all_divisors(task: Task, divisors: tuple[Array, ...]) -> Array:
    """All numbers by which a sum is divided."""
    d, h, w = (np.unique(axis) for axis in divisors)
    if task.problem.quotient == "chained":
        return np.concatenate([d, h, w])
    return np.unique(np.multiply.outer(np.unique(np.multiply.outer(d, h)), w))


def _uniform(task: Task, divisors: tuple[Array, ...]) -> list[float]:
    """The divisors of all windows as the sum's type holds them: on d, h and w, or their product and ones."""
    problem, dtype = task.problem, task.problem.dtype.accumulator
    if problem.quotient == "chained":
        return [float(as_float(int(axis[0]), dtype)) for axis in divisors]
    product = prod(int(axis[0]) for axis in divisors)
    divisor = problem.divisor if problem.quotient == "override" else product
    return [float(as_float(divisor, dtype)), 1.0, 1.0]
