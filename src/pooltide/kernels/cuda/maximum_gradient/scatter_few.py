"""Planner of the gradient of maxima with few windows (scatter_few.cu): zeros first, then the named cells."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ....geometry import tables
from ....problem.problem import Problem
from ..kernel_tables import cdiv, divider
from ..source import Source
from ..task import THREADS, Launch, Task, Work
from .indices import corners, window_bytes

MAX_PAIRS = 16  # of windows for each byte of a plane: the time grows with the square of the windows
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
    d, h, w = problem.axes
    if windows**2 > MAX_PAIRS * plane:
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
    work = _work(task, once, fills, span * vector)
    both = Launch(_source(task, 1, 1), fills, THREADS, shared, (corners(problem),), arguments, work=work)
    if once:
        return (both,)
    writes = cdiv(task.planes * windows * inner, THREADS)
    return replace(both, source=_source(task, 1, 0)), replace(both, source=_source(task, 0, 1), grid=writes)


def _work(task: Task, once: bool, blocks: int, elements: int) -> Work:
    """`once`: each block, of so many elements, reads all windows of the planes that it shares."""
    problem, windows = task.problem, prod(task.problem.output_plane)
    all_windows = problem.planes * windows
    read = float(all_windows)
    if once:
        read = blocks * (elements / (prod(problem.input_plane) * task.inner) + 1) * windows * task.inner
    pairs = all_windows * windows
    return (
        *(("vectors", problem.cells * problem.dtype.itemsize / 16), ("threads", blocks * THREADS)),
        *(("windows", read), ("bytes of windows", read * window_bytes(problem)), ("cells", problem.cells)),
        ("pairs", pairs * _compared_warps(problem) if once else 0),
        *(
            ("pairs of two launches", 0 if once else pairs),
            ("cells of two launches", problem.cells * (not once)),
        ),
    )


def _compared_warps(problem: Problem) -> float:
    """The part of the warps in which some window names the cell of another one, with random indices."""
    if all(axis.disjoint for axis in problem.axes):
        return 0.0
    found = [tables(axis) for axis in problem.axes]
    others = prod(float(table.window_count.mean()) for table in found) - 1
    cells = prod(float((table.end - table.start).mean()) for table in found)
    return float(1 - (1 - min(max(others, 0) / max(cells, 1), 1)) ** 32)


def _source(task: Task, fills: int, writes: int) -> Source:
    options = (("FILLS", fills), ("WRITES", writes), ("THREADS", THREADS))
    return Source("scatter_few.cu", "scatter_few", _FEW, (*task.defines, *options))


def _block_bytes(task: Task) -> int:
    """What a block fills."""
    problem, blocks = task.problem, BLOCKS * task.facts.multiprocessors
    return min(max(cdiv(problem.cells * problem.dtype.itemsize, blocks), LEAST_BYTES), MOST_BYTES)
