"""Plans `filled average`, average_fill.cu: the one window of a plane is the whole plane."""

from __future__ import annotations

from math import prod

import numpy as np

from ..source import Source
from ..tables import cdiv, divider, division, divisors
from ..task import THREADS, Launch, Task

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
    once, by_d, by_h, by_w = division(problem)
    options = (
        *(("BY_D", by_d), ("BY_H", by_h), ("BY_W", by_w), ("EVEN", int(inner % vector == 0))),
        *(("INNER", int(inner > 1)), ("ONCE", once), ("THREADS", THREADS), ("VECTOR", vector)),
    )
    source = Source("average_fill.cu", "average_fill", _FILL, (*task.defines, *options))
    values = np.concatenate(divisors(problem)).astype(problem.dtype.accumulator)
    arguments = (task.planes, cells, parts, span, divider(inner if inner > 1 else cells))
    given, work = np.stack([values, 1 / values], axis=1), (("stores", problem.cells / vector),)
    return (Launch(source, grid, THREADS, shared, (given,), arguments, work=work),)
