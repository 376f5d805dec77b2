"""Planner of the gradient of maxima with few windows (scatter_few.cu): zeros first, then the named cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ....geometry import tables
from ....problem.problem import Problem
from ..cost import CORES, Shape, fastest, nth
from ..kernel_tables import cdiv, divider
from ..source import Source
from ..task import STATIC_BYTES, THREADS, Launch, Task, Work
from .indices import corners, window_bytes

MAX_PAIRS = 16  # of windows for each byte of a plane: the time grows with the square of the windows
AHEAD = 8  # windows that a thread compares together, as in scatter_few.cu
LATENCY = 250  # cycles until a load has its value
KERNEL = "scatter of few windows"  # in costs.json

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
    plane = cells * problem.dtype.itemsize
    d, h, w = problem.axes
    if windows**2 > MAX_PAIRS * plane:
        return f"{windows**2} pairs of windows are too many to compare for a plane of {plane} bytes"
    tiles = _tiles(task)
    shape = Shape(tiles.fills, THREADS, tiles.shared, 40, _work(task, tiles))
    best = fastest(task, KERNEL, shape, tiles.shared + STATIC_BYTES <= task.facts.shared_per_block)
    if best is None:
        return "the bits of the cells are more than a block can keep"
    tile = nth(tiles, best)
    arguments = (
        *(task.planes, cells * inner, cells, windows, d.outputs * h.outputs, tile.span),
        *(divider(windows * inner), divider(inner), divider(w.outputs)),
    )
    work, tables = _work(task, tile), (corners(problem),)
    both = Launch(_source(task, 1, 1), tile.fills, THREADS, tile.shared, tables, arguments, work=work)
    if tile.once:
        return (both,)
    writes = cdiv(task.planes * windows * inner, THREADS)
    return replace(both, source=_source(task, 1, 0)), replace(both, source=_source(task, 0, 1), grid=writes)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Ways to divide the result among blocks; of each:"""

    once: Any  # whether blocks read all windows of the planes that they fill, or a second launch writes cells
    span: Any  # vectors of 16 bytes that a block fills
    fills: Any  # blocks
    shared: Any


def _tiles(task: Task) -> _Tiles:
    vector, windows = 16 // task.problem.dtype.itemsize, prod(task.problem.output_plane)
    spans = 1 << np.arange(4, 12)  # blocks that fill 64 KB took up to twice as long as those that fill 32 KB
    once, span = np.repeat([0, 1], len(spans)), np.tile(spans, 2)
    fills = cdiv(task.problem.cells + vector - 1, span * vector)  # the result may begin anywhere in a vector
    bits = 2 * 4 * (span * vector // 32 + 1)  # bytes of two bits for each element
    return _Tiles(once, span, fills, bits * once * (windows > 1))


def _work(task: Task, tiles: _Tiles) -> Work:
    problem, windows, once = task.problem, prod(task.problem.output_plane), tiles.once
    all_windows, elements = float(problem.planes * windows), tiles.span * (16 // problem.dtype.itemsize)
    again = tiles.fills * (elements / (prod(problem.input_plane) * task.inner) + 1) * windows * task.inner
    read = np.where(once, again, all_windows)
    pairs, compared = all_windows * windows, _compared_warps(problem)
    # If there are few threads, all lanes wait for one that compares all windows of its plane.
    waits = cdiv(windows, AHEAD) * LATENCY * (1 - once * (compared == 0))
    return (
        *(("vectors", problem.cells * problem.dtype.itemsize / 16), ("threads", tiles.fills * THREADS)),
        *(("windows", read), ("bytes of windows", read * window_bytes(problem)), ("cells", problem.cells)),
        ("pairs", pairs * compared * once),
        *(
            ("pairs of two launches", pairs * (1 - once)),
            ("cells of two launches", problem.cells * (1 - once)),
        ),
        ("lanes that wait", task.facts.multiprocessors * CORES * waits),
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
