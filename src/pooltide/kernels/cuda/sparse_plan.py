"""Planner of the gradient of maxima with few windows (scatter_few.cu): zeros first, then the named cells."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from .scatter_plan import corners
from .source import Source
from .tables import cdiv, divider
from .task import Launch, Task

THREADS = 256  # of a block
# Bytes of a plane for each window, at least, by element size: below, zeros are no longer most of the work.
# The other kernels add halves as floats, so they are farther from the limit for halves.
WINDOW_BYTES = {2: 160, 4: 300, 8: 300}
# Pairs of windows, at most, for each byte of a plane, by element size: threads may have to compare them, and
# the other kernels are fast for float32.
COMPARED = {2: 0.7, 4: 0.25, 8: 0.7}
BLOCKS = 8  # of a multiprocessor, if there is enough to fill
LEAST_BYTES = 4 << 10  # that a block fills,
MOST_BYTES = 32 << 10  # and how many at most
READ_AGAIN = 128  # bytes that blocks read for each window, at most; else a second launch writes cells

_FEW = (
    *(("const Element*", "grad"), ("const Index*", "indices"), ("Element*", "out")),
    *(("unsigned long long*", "faults"), ("int*", "counts"), ("const int*", "corners")),
    ("long long", "planes"),
    *(("int", name) for name in ("plane_elements", "plane_cells", "windows", "window_rows", "span")),
    *(("Divider", name) for name in ("by_plane_windows", "by_inner", "by_wo")),
)


def scatter_few(task: Task) -> tuple[Launch, ...] | str:
    """Blocks fill the result with zeros; threads write the cells that the windows name."""
    problem, inner = task.problem, task.inner
    cells, windows = prod(problem.input_plane), prod(problem.output_plane)
    size = problem.dtype.itemsize
    plane = cells * size
    if windows * (least := WINDOW_BYTES[size]) > plane:
        return f"a plane has {plane // windows} bytes for each window; it must have at least {least}"
    d, h, w = problem.axes
    if windows**2 > COMPARED[size] * plane:
        return f"{windows**2} pairs of windows are too many to compare for a plane of {plane} bytes"
    share = _block_bytes(task)
    # Every block reads all windows of its planes, or of its images if channels are innermost.
    read = max(plane * inner / share, 1) * (problem.index_bytes + size)
    once, span = read <= READ_AGAIN, cdiv(share, 16)
    arguments = (
        *(task.planes, cells * inner, cells, windows, d.outputs * h.outputs, span),
        *(divider(windows * inner), divider(inner), divider(w.outputs)),
    )
    elements, vector = task.planes * cells * inner, 16 // size
    fills = cdiv(elements + vector - 1, span * vector)  # the result may begin anywhere in a vector
    bits = 2 * 4 * (span * vector // 32 + 1)  # bytes of two bits for each element
    shared = bits if once and windows > 1 else 0
    both = Launch(_source(task, 1, 1), fills, THREADS, shared, (corners(problem),), arguments)
    if once:
        return (both,)
    writes = cdiv(task.planes * windows * inner, THREADS)
    return replace(both, source=_source(task, 1, 0)), replace(both, source=_source(task, 0, 1), grid=writes)


def _source(task: Task, fills: int, writes: int) -> Source:
    options = (("FILLS", fills), ("WRITES", writes), ("THREADS", THREADS))
    return Source("scatter_few.cu", "scatter_few", _FEW, (*task.defines, *options))


def _block_bytes(task: Task) -> int:
    """What a block fills."""
    problem, blocks = task.problem, BLOCKS * task.facts.multiprocessors
    return min(max(cdiv(problem.cells * problem.dtype.itemsize, blocks), LEAST_BYTES), MOST_BYTES)
