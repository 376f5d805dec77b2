"""Plans `gather of channels`, gather_channels.cu: a thread looks at all windows of its cells."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from ....geometry import tables
from ....problem.problem import Problem
from ..kernel_tables import cdiv, divider, even_share, most_windows
from ..source import Source
from ..task import FEW_THREADS as THREADS
from ..task import Launch, Task, Work
from .scatter_channels import ONE_CHANNEL, channels_launch
from .two_passes import redo

GATHERED_ROWS = 4  # least rows of a thread that gathers
_GATHER = (
    *(("const Element*", "grad"), ("const Index*", "indices"), ("Element*", "out")),
    *(("unsigned long long*", "faults"), ("int*", "counts"), ("const int*", "windows")),
    *(("int", name) for name in ("images", "D", "H", "W", "Do", "Ho", "Wo", "channels", "plane_windows")),
    *(("int", name) for name in ("window_h", "window_w", "chunk", "share")),
    *(("Divider", name) for name in ("by_parts", "by_vectors", "by_w", "by_chunks", "by_d")),
)


def gather_channels(task: Task) -> tuple[Launch, ...] | str:
    """A thread owns channels of a column, and looks at all windows of its cells."""
    problem, inner = task.problem, task.inner
    if inner == 1:
        return ONE_CHANNEL
    if any(axis.dilation > 1 for axis in problem.axes):
        return "windows have gaps"
    d, h, w = problem.input_plane
    vector = 16 // problem.dtype.itemsize if task.aligned else 1
    while inner % vector:
        vector //= 2
    apart = all(axis.disjoint for axis in problem.axes)
    columns = d * w * (inner // vector)  # of an image
    wanted = 2 * task.facts.multiprocessors * task.facts.threads_per_multiprocessor
    chunk = even_share(h, max(h * columns * task.planes // wanted, GATHERED_ROWS))
    threads = columns * cdiv(h, chunk)
    share = min(cdiv(THREADS, threads), task.planes)
    parts = cdiv(share * threads, THREADS)
    found = [tables(axis) for axis in problem.axes]
    spans = [np.stack([table.first_window, table.window_count], axis=1).ravel() for table in found]
    windows = np.concatenate([*spans, *(table.start for table in found)]).astype(np.int32)
    sizes = offsets.most if (offsets := problem.offset_tables) else (1, 1, 1)
    arguments = (
        *(task.planes, d, h, w, *problem.output_plane, inner, prod(problem.output_plane), *sizes[1:]),
        *(chunk, share, divider(parts), divider(inner // vector), divider(w), divider(cdiv(h, chunk))),
        divider(d),
    )
    held = most_windows(problem.axes[2])
    options = (
        ("COLUMNS", held if held <= 4 else 0),
        ("DISJOINT", int(apart)),
        ("THREADS", THREADS),
        ("VECTOR", vector),
    )
    source = Source("gather_channels.cu", "gather_channels", _GATHER, (*task.defines, *options))
    grid = cdiv(task.planes, share) * parts
    work = _gather_work(problem, vector, apart, grid * THREADS)
    first = Launch(source, grid, THREADS, 0, (windows,), arguments, grid, work, registers=64)
    changed = {"parts": parts, "together": share * cdiv(inner, 32)}
    return (replace(first, repair=lambda: redo(task, channels_launch(task), **changed)),)


def _gather_work(problem: Problem, vector: int, disjoint: bool, threads: int) -> Work:
    """A thread keeps the window that it has read last; disjoint windows are read once in a column."""
    d, h, w = (int(tables(axis).window_count.sum()) for axis in problem.axes)
    compared = problem.planes * d * h * w
    read = problem.planes * d * w * problem.axes[1].outputs if disjoint else compared
    return (
        *(("compared windows", compared), ("read windows", read), ("loads", read / vector)),
        *(("loads of disjoint windows", disjoint * read / vector), ("cells", problem.cells)),
        *(("vectors", problem.cells / vector), ("threads", threads)),
    )
