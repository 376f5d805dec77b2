"""Which GPU kernel computes maxima, on what grid: maximum_reduce.cu or maximum.cu.

The public functions are planners. task.py says what a planner takes and returns; choice.py has their order.
"""

from __future__ import annotations

from math import prod

import numpy as np

from . import columns
from .columns import (
    TENSORS,
    Windows,
    column_options,
    column_parameters,
    may_pair,
    may_spread,
    power_below,
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
from .tables import cdiv, divider, even_share, is_ragged
from .task import Launch, Task

ROWS_IN_REGISTERS = 5  # of windows that share rows
REENTERED = 4  # windows' heights that a thread walks down at least, if it enters shared rows again
SECTION_BYTES = 48 << 10  # of shared memory that a block may take for longer windows
# Threads share a window where a cell is in few windows, and threads with a window each would read far apart.
MOST_OVERLAP = 4
NEAR = 8  # elements
MANY_CHANNELS = 32
FEWEST_CELLS = 16  # for one thread, where threads share a window
CHANNELS = 4  # that a thread takes at most: values and places take registers
CHANNELS_OF_HALVES = (4, 2)  # that a thread may take at once
MOST_THREADS = 1024  # of a block
SECTOR = 32  # bytes that memory moves at once
_PLACES = tuple(
    ("int", name) for name in ("dilation_d", "dilation_h", "dilation_w", "place_d", "place_h", "place_w")
)


def reduced_maximum(task: Task) -> tuple[Launch, ...] | str:
    """Several threads share a window."""
    axes = tuple(windows_of(axis) for axis in task.problem.axes)
    cells = float(np.prod([axis.count.mean() for axis in axes]))
    if cells < FEWEST_CELLS:
        return f"windows have {cells:.0f} cells, too few to share"
    overlap, rows = prod(axis.overlap for axis in axes), _merged(*axes)[2]
    apart = rows.length / rows.outputs * task.inner  # elements from window to window
    results = task.planes * task.inner * prod(task.problem.output_plane)
    resident = task.facts.multiprocessors * task.facts.threads_per_multiprocessor
    if overlap > MOST_OVERLAP and results * 8 > resident:
        return f"a cell is in {overlap:.0f} windows"
    if results >= resident and apart < NEAR:
        return "neighbouring threads read neighbouring windows"
    if results >= resident and task.inner >= MANY_CHANNELS:
        return "neighbouring threads read neighbouring channels"
    return _reduced(task, cells, results)


def _reduced(task: Task, cells: float, results: int) -> tuple[Launch, ...] | str:
    problem, inner, itemsize = task.problem, task.inner, task.problem.dtype.itemsize
    d, h, w = _merged(*(windows_of(axis) for axis in problem.axes))
    # Channels of a thread: halves alone would be loads of 2 bytes.
    vector = next(n for n in (*CHANNELS_OF_HALVES, 1) if n == 1 or (itemsize == 2 and inner % n == 0))
    lanes_c, parts, lanes_w = _lanes(task, h, w, cells, results // vector, vector)
    groups = max(columns.THREADS // (parts * lanes_c), 1)
    c_chunks = cdiv(inner // vector, lanes_c)
    total = task.planes * prod(problem.output_plane) * c_chunks
    if total >= 2**31:
        return f"{total} groups of threads are more than a grid numbers"
    arguments: tuple[Argument, ...] = (
        *(prod(problem.input_plane) * inner, prod(problem.output_plane) * inner, total, w.dilation * inner),
        *(h.length, w.length, d.outputs, h.outputs, w.outputs, inner),
        *(parts, parts.bit_length() - 1, lanes_w, lanes_w.bit_length() - 1, groups),
        *places_of(problem.offsets, (d, h, w)),
        *(divider(n) for n in (lanes_c, c_chunks, w.outputs, h.outputs, d.outputs)),
    )
    parameters = (
        *TENSORS,
        *index_parameter(task),
        ("const int*", "tables"),
        *(("i64", name) for name in ("plane_elements", "plane_windows", "total", "step")),
        *(("int", name) for name in ("H", "W", "Do", "Ho", "Wo", "inner")),
        *(("int", name) for name in ("parts", "log_parts", "lanes_w", "log_lanes_w", "groups")),
        *_PLACES,
        *(("Divider", f"by_{name}") for name in ("lanes_c", "c_chunks", "wo", "ho", "do")),
    )
    one = d.outputs * h.outputs * w.outputs == 1 and d.length * h.length == 1
    whole = one and w.count[0] == w.length
    unrolled = power_below(2 * cdiv(w.most, lanes_w) - 1)
    options = (
        ("VECTOR", vector),
        *(("WHOLE", int(whole and lanes_w == parts)), ("CELLS", unrolled if unrolled <= 8 else 0)),
        *(("WARP", int(32 % (parts * lanes_c) == 0)), ("THREADS", max(columns.THREADS, parts * lanes_c))),
    )
    source = Source("maximum_reduce.cu", "maximum_reduce", parameters, (*task.defines, *options))
    block = groups * parts * lanes_c
    shared = block * vector * (16 if problem.dtype.name == "FLOAT64" else 8)
    return (Launch(source, cdiv(total, groups), block, shared, (span_table((d, h, w)),), arguments),)


def _lanes(
    task: Task, h: Windows, w: Windows, cells: float, results: int, vector: int
) -> tuple[int, int, int]:
    """How many threads take neighbouring channels, how many share a window, and how many of those a row."""
    resident = task.facts.multiprocessors * task.facts.threads_per_multiprocessor
    lanes_c, itemsize = even_share(task.inner // vector, 32), task.problem.dtype.itemsize * vector
    if task.inner > 1:
        wanted = power_below(resident / results)
        while wanted * lanes_c > MOST_THREADS and lanes_c * itemsize >= 2 * SECTOR:
            lanes_c //= 2
        most = min(max(wanted, columns.THREADS // lanes_c), MOST_THREADS // lanes_c)
    else:
        most = 32 if results * 32 >= resident else columns.THREADS
    # Windows that are far apart in memory must be read in pieces of 32 bytes.
    least = SECTOR // itemsize if task.inner == 1 and w.outputs == 1 else 1
    parts = min(max(power_below(cells / FEWEST_CELLS), min(least, power_below(cells))), power_below(most))
    lanes_w = min(power_below(w.most), parts)
    return lanes_c, min(parts, lanes_w * power_below(h.most)), lanes_w


def _merged(d: Windows, h: Windows, w: Windows) -> tuple[Windows, Windows, Windows]:
    """Axes whose windows hold whole rows become one axis, so that a window has fewer and longer rows."""
    unit = Windows(1, np.zeros(1, np.int64), np.ones(1, np.int64))
    for _ in range(2):
        if w.outputs != 1 or w.count[0] != w.length or w.dilation != 1 or h.dilation != 1:
            break
        d, h, w = unit, d, Windows(h.length * w.length, h.first * w.length, h.count * w.length)
    return d, h, w


def places_of(offsets: bool, axes: tuple[Windows, ...]) -> tuple[int, ...]:
    """The dilations, and how far places are apart: slice to slice, row to row, cell to cell of a window."""
    _, h, w = axes
    dilations = tuple(axis.dilation for axis in axes)
    if offsets:
        return *dilations, h.most * w.most, w.most, 1
    return *dilations, dilations[0] * h.length * w.length, dilations[1] * w.length, dilations[2]


def index_parameter(task: Task) -> tuple[tuple[str, str], ...]:
    return (("Index*", "places"),) if task.problem.index_bytes else ()


def rolls(task: Task) -> bool:
    """Whether windows share rows in registers or sections."""
    return _no_steady_rows(task) is None and windows_of(task.problem.axes[0]).most == 1


def no_rolling(task: Task) -> str | None:
    """Why a thread can't keep the rows of windows in registers; else None."""
    h = steady_axes(task)[1]
    if task.inner == 1 and windows_of(task.problem.axes[0]).most > 1:
        return "windows have several slices, and channels are not innermost"
    if (reason := _no_steady_rows(task)) is None and h.k > ROWS_IN_REGISTERS:
        return f"windows have {h.k} rows, of which registers hold at most {ROWS_IN_REGISTERS}"
    return reason


def rolling_maximum(task: Task) -> tuple[Launch, ...] | str:
    """The best cells of a window's rows stay in registers for the windows below."""
    given, task = task, rows_as_planes(task)
    reason, h = no_rolling(task), steady_axes(task)[1]
    options = (("ROWS", h.k), ("STRIDE", min(h.s, h.k)))
    return reason or _columns(task, 1, columns.THREADS, 0, options, rows_are_planes=task is not given)


def sectioned_maximum(task: Task) -> tuple[Launch, ...] | str:
    """The best cells of a window's rows stand in shared memory for the windows below."""
    reason, h = _no_steady_rows(task), steady_axes(task)[1]
    if reason is not None:
        return reason
    if windows_of(task.problem.axes[0]).most > 1:
        return "windows have several slices"
    if h.s >= h.k or h.outputs == 1:
        return "windows share no rows"
    vector = vector_of(task, CHANNELS, REENTERED * h.k)
    size = task.sum_bytes * (2 if task.problem.index_bytes else 1) * vector
    most = min(SECTION_BYTES, task.facts.shared_per_block)
    threads = next((n for n in (256, 128, 64, 32) if n * h.k * size <= most), 0)
    if not threads:
        return f"32 threads would need {32 * h.k * size} bytes of shared memory"
    return _columns(task, 2, threads, threads * h.k * size, ())


def direct_maximum(task: Task) -> tuple[Launch, ...] | str:
    """Each window is read alone."""
    d, h, w = axes = tuple(windows_of(axis) for axis in task.problem.axes)
    few = d.most == 1 and h.most * w.most <= columns.UNROLLED and not any(axis.empty for axis in axes)
    return _columns(task, 0, columns.THREADS, 0, (("ROWS", h.most if few else 0),))


def _no_steady_rows(task: Task) -> str | None:
    """Why windows are not equally many neighbouring rows, a stride apart; else None."""
    _, h, _ = axes = steady_axes(task)
    if h.adaptive:
        return "windows differ in how many rows they have"
    if h.dilation > 1:
        return "the rows of a window are not neighbours"
    if any(windows_of(axis).empty for axis in axes):
        return "some windows have no cell"
    return None


def _columns(
    task: Task,
    walk: int,
    threads: int,
    shared: int,
    options: tuple[tuple[str, int], ...],
    rows_are_planes: bool = False,
) -> tuple[Launch, ...]:
    """`rows_are_planes`: places count from the first cell of a row (rows_as_planes)."""
    _, rows, steps = steady_axes(task)
    d, h, w = (windows_of(axis) for axis in task.problem.axes)
    paired = walk > 0 and may_pair(task)
    # A thread enters again the rows that its first window shares with the one above.
    shared_rows = walk == 2 or (walk == 1 and rows.s < rows.k)
    shortest = REENTERED * rows.k if shared_rows else max(FEWEST_CELLS // (rows.k * w.most), 1) if walk else 1
    several = paired or task.inner > 1
    vector = vector_of(task, CHANNELS, shortest if shared_rows else 1) if several else 1
    spread = walk == 1 and rows.s >= rows.k and may_spread(task, vector)
    shape = spread_walk(task, threads, vector) if spread else walk_of(task, threads, shortest, vector)
    ragged = is_ragged(task.problem)
    unrolled = steps.k if paired else unrolled_cells(task.problem.axes[2], ragged)
    parameters = (*TENSORS, *index_parameter(task), *column_parameters(task), *_PLACES)
    parameters += tuple(("int", name) for name in ("padding", "padding_w", "rows", "stride"))
    # A section may reach beyond the last window.
    clipped_h = walk == 2 or bool((h.count != rows.k).any())
    clipped_w = bool((w.count != steps.k).any()) if paired else ragged or bool(w.clipped)
    defines = (
        *column_options(task, vector, unrolled, (clipped_h, clipped_w), spread),
        *(("PAIRED", int(paired)), ("STRIDE_W", steps.s if paired else 0)),
        *(("WALK", walk), ("SLICES", d.most if walk else 1), *options, ("THREADS", threads)),
    )
    source = Source("maximum.cu", "maximum", parameters, defines)
    numbers = (rows.p, steps.p, rows.k, rows.s)
    *places, place_h, place_w = places_of(task.problem.offsets, (d, h, w))
    places += [0 if rows_are_planes else place_h, place_w]
    arguments = (*shape.arguments(task, vector), *places, *numbers)
    return (Launch(source, shape.grid(task), shape.block, shared, (span_table((d, h, w)),), arguments),)
