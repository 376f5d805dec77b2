"""Plans `maximum of shared windows`, maximum_reduce.cu: several threads share a window."""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel_tables import cdiv, divider, even_share, power_below
from ..source import Argument, Source
from ..task import MAX_THREADS, SECTOR, Launch, Task
from ..windows import columns
from ..windows.columns import TENSORS, Windows, span_table, windows_of
from .places import PLACES, index_parameter, places_of

FEWEST_CELLS = 16  # for one thread, where threads share a window
CHANNELS_OF_HALVES = (4, 2)  # that a thread may take at once


def reduced_maximum(task: Task) -> tuple[Launch, ...] | str:
    """Several threads share a window."""
    axes = tuple(windows_of(axis) for axis in task.problem.axes)
    cells = float(np.prod([axis.count.mean() for axis in axes]))
    results = task.planes * task.inner * prod(task.problem.output_plane)
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
        *PLACES,
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
        while wanted * lanes_c > MAX_THREADS and lanes_c * itemsize >= 2 * SECTOR:
            lanes_c //= 2
        most = min(max(wanted, columns.THREADS // lanes_c), MAX_THREADS // lanes_c)
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
