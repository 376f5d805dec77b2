"""Plans `filled average`, average_fill.cu: the one window of a plane is the whole plane."""

from __future__ import annotations

from math import prod

from ..kernel_tables import cdiv, divider
from ..task import THREADS, Launch, Task
from .average_rows import average_launch

FILLED = 32 << 10  # bytes that such a block writes, about
_FILL = (
    *(("const Element*", "grad"), ("Element*", "out"), ("const Sum*", "divisors"), ("long long", "planes")),
    *(("int", "cells"), ("int", "parts"), ("int", "span"), ("Divider", "by_period")),
)


def filled_average(task: Task) -> tuple[Launch, ...] | str:
    """The one window of a plane is the whole plane, so all cells of a plane are the same."""
    problem, inner = task.problem, task.inner
    if not all(axis.whole for axis in problem.axes):
        return "a plane has cells in different windows"
    cells, itemsize = prod(problem.input_plane), problem.dtype.itemsize
    vector = 16 // itemsize if task.aligned else 1
    shared = cdiv((inner + vector + 1) * itemsize, 16) * 16 if inner > 1 else 0
    if shared > task.facts.shared_per_block - 1024:
        return "the quotients of an image are more than a block can keep"
    many = 8 * task.facts.multiprocessors  # blocks that fill the device
    elements = task.planes * cells * inner
    span = max(min(FILLED // itemsize, cdiv(elements, many)) // vector, THREADS)  # vectors of a block
    if inner > 1:
        parts = max(cdiv(cells * inner, max(vector * span, 8 * inner)), 1)
        grid = task.planes * parts
    else:
        parts, grid = 1, cdiv(elements, vector * span)
    even, deep = int(inner % vector == 0), int(inner > 1)
    options = (("EVEN", even), ("INNER", deep), ("THREADS", THREADS), ("VECTOR", vector))
    arguments = (task.planes, cells, parts, span, divider(inner if inner > 1 else cells))
    work = (("stores", problem.cells / vector),)
    return average_launch(
        task, "average_fill", _FILL, options, [], arguments, grid=grid, shared=shared, work=work
    )
