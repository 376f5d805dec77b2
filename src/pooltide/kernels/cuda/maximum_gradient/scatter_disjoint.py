"""Planner of the gradient of maxima in scatter_disjoint.cu: blocks clear boxes, and write named cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ....geometry import Axis, tables
from ..kernel_tables import Array, between, cdiv, divider
from ..source import Source
from ..task import FEW_THREADS as THREADS
from ..task import Launch, Task
from .indices import corners, window_bytes
from .ordered import all_spans
from .scatter_channels import ONE_CHANNEL, channels_launch
from .two_passes import redo

BOX_BYTES = 12 << 10  # of a box, at most: it is kept in shared memory
BLOCKS = 12  # of a multiprocessor, if there is enough to do
LEAST_CHUNK = 128  # bytes of channels that a box has, at least
# Instructions of lanes for a window, a vector of 16 bytes, a run whose ends are parts of vectors, and a block
WINDOW_COST, VECTOR_COST, RUN_COST, BLOCK_COST = 70, 40, 600, 15_000

_DISJOINT = (
    *(("const Element*", "grad"), ("const Index*", "indices"), ("Element*", "out")),
    *(("unsigned long long*", "faults"), ("int*", "counts"), ("const int*", "corners")),
    *(("const int*", name) for name in ("pieces", "spans")),
    *(("int", name) for name in ("H", "W", "Do", "Ho", "Wo", "channels")),
    *(("int", name) for name in ("plane_elements", "plane_windows", "plane_cells", "window_rows")),
    *(("Divider", name) for name in ("by_parts", "by_chunks", "by_pieces_w", "by_pieces_h")),
    *(("Divider", name) for name in ("by_chunk", "by_pitch", "by_h", "by_w", "by_wo")),
)


@dataclass(frozen=True, slots=True)
class Boxes:
    """How images are cut: the first cells of the pieces of each axis, and the channels of a box."""

    axes: tuple[Array, Array, Array]
    chunk: int
    merged: int  # MERGED of scatter_disjoint.cu
    pitch: int  # vectors of 16 bytes from run to run of a box
    runs: int  # of the largest box
    windows: int  # of all boxes of an image; boxes share some


def scatter_disjoint(task: Task) -> tuple[Launch, ...] | str:
    """Blocks clear boxes of the result; threads write the cells that windows name."""
    problem, inner = task.problem, task.inner
    cells, windows = prod(problem.input_plane), prod(problem.output_plane)
    if not all(axis.disjoint for axis in problem.axes):
        return "windows overlap"
    if inner == 1:
        return ONE_CHANNEL
    boxes = _boxes(task)
    parts = prod(map(len, boxes.axes)) * cdiv(inner, boxes.chunk)
    d, h, w = problem.axes
    arguments = (
        *(h.length, w.length, *problem.output_plane, inner),
        *(cells * inner, windows, cells, d.outputs * h.outputs),
        *(divider(parts), divider(cdiv(inner, boxes.chunk)), divider(len(boxes.axes[2]))),
        *(divider(len(boxes.axes[1])), divider(boxes.chunk), divider(boxes.pitch)),
        *(divider(h.length), divider(w.length), divider(w.outputs)),
    )
    ways = (("DEEP", int(d.length > 1)), ("MERGED", boxes.merged), ("THREADS", THREADS))
    source = Source("scatter_disjoint.cu", "scatter_disjoint", _DISJOINT, (*task.defines, *ways))
    grid, shared = task.planes * parts, 16 * boxes.runs * boxes.pitch
    given, vectors = _tables(task, boxes), grid * shared / 16
    visits = task.planes * cdiv(inner, boxes.chunk) * boxes.chunk * boxes.windows
    work = (
        *(("visits", visits), ("bytes of windows", visits * window_bytes(problem)), ("vectors", vectors)),
        *(
            ("vectors of parts", vectors * (boxes.merged == 0)),
            ("visits by offsets", visits * problem.offsets),
        ),
        *(("threads", grid * THREADS), ("cells", problem.cells)),
    )
    first = Launch(source, grid, THREADS, shared, given, arguments, grid, work)
    changed = {"parts": parts, "together": cdiv(inner, 32)}
    return (replace(first, repair=lambda: redo(task, channels_launch(task), **changed)),)


def _tables(task: Task, boxes: Boxes) -> tuple[Array, ...]:
    """The tables of scatter_disjoint.cu."""
    axes = task.problem.axes
    pieces = [_pieces(axis, begin) for axis, begin in zip(axes, boxes.axes, strict=True)][::-1]
    return corners(task.problem), np.concatenate(pieces).astype(np.int32), all_spans(task.problem)


def _vector(task: Task) -> int:
    return 16 // task.problem.dtype.itemsize


def _slack(task: Task, step: int) -> int:
    """Elements that may lie before a run in its first vector. Runs begin at multiples of `step` elements."""
    return 0 if task.aligned and step % _vector(task) == 0 else _vector(task) - 1


def _cuts(axis: Axis) -> list[Array]:
    """Sensible ways to cut an axis: the first cells of the pieces. Large pieces begin where windows begin."""
    start, found, most = tables(axis).start, [np.zeros(1, np.int64)], axis.outputs
    while most > 1:
        most = cdiv(most, 2)
        found.append(np.unique([0, *start[most::most]]))
    cells = int(np.diff(found[-1], append=axis.length).max())
    while cells > 1:
        cells = cdiv(cells, 2)
        found.append(np.arange(0, axis.length, cells))
    return found


def _chunks(task: Task) -> list[int]:
    """Channels that a box may have."""
    found, vector = [task.inner], _vector(task)
    while (half := cdiv(cdiv(found[-1], 2), vector) * vector) * task.problem.dtype.itemsize >= LEAST_CHUNK:
        if half == found[-1]:
            break
        found.append(half)
    return found


def _boxes(task: Task) -> Boxes:
    """The boxes that cost least: large ones read fewer windows twice."""
    axes, (_, height, width), inner = task.problem.axes, task.problem.input_plane, task.inner
    cuts, chunks = [_cuts(axis) for axis in axes], _chunks(task)
    d, h, w = (_grid(ways, axis, at) for at, (ways, axis) in enumerate(zip(cuts, axes, strict=True)))
    chunk = np.array(chunks)
    groups = -(-inner // chunk)
    whole = (groups == 1).astype(int)
    merged = np.ones_like(d[1]) * whole * (1 + (w[1] == 1) * (1 + (h[1] == 1)))
    steps = (1, 1, width, height * width)  # cells between runs
    slack = np.array([_slack(task, step * inner) for step in steps])[merged]
    run, runs = chunk * np.ones_like(merged), np.ones_like(merged)
    for level, longest in enumerate((w[0], h[0], d[0])):
        inside = merged > level
        run, runs = np.where(inside, run * longest, run), np.where(inside, runs, runs * longest)
    pitch = -(-(run + slack) // _vector(task))
    boxes = d[1] * h[1] * w[1] * groups
    visits = d[2] * h[2] * w[2] * (groups * chunk)
    cost = (
        WINDOW_COST * visits + boxes * (runs * (VECTOR_COST * pitch + RUN_COST * (slack > 0)) + BLOCK_COST)
    ) * np.maximum(BLOCKS * task.facts.multiprocessors / (boxes * task.planes), 1.0)
    cost = np.where(16 * runs * pitch <= BOX_BYTES, cost, np.inf)
    at = np.unravel_index(int(cost.argmin()), cost.shape)
    assert np.isfinite(cost[at]), "no box is small enough"
    chosen = (cuts[0][at[0]], cuts[1][at[1]], cuts[2][at[2]])
    read = int(d[2].flat[at[0]] * h[2].flat[at[1]] * w[2].flat[at[2]])
    return Boxes(chosen, chunks[at[3]], int(merged[at]), int(pitch[at]), int(runs[at]), read)


def _grid(ways: list[Array], axis: Axis, at: int) -> tuple[Array, Array, Array]:
    """Of each way to cut an axis: the longest piece, how many pieces, and how many windows they read."""
    facts = []
    for begin in ways:
        end = np.append(begin[1:], axis.length)
        facts.append(((end - begin).max(), len(begin), between(axis, begin, end)[1].sum()))
    shape = [1, 1, 1, 1]
    shape[at] = len(ways)
    longest, pieces, read = np.array(facts, dtype=np.int64).T.reshape(3, *shape)
    return longest, pieces, read


def _pieces(axis: Axis, begin: Array) -> Array:
    """Of each piece of an axis what `Piece` in scatter_disjoint.cu holds."""
    end = np.append(begin[1:], axis.length)
    first, count = between(axis, begin, end)
    rows = zip(begin.tolist(), (end - begin).tolist(), first.tolist(), count.tolist(), strict=True)
    found = [(b, n, f, c, *divider(n), *divider(max(c, 1))) for b, n, f, c in rows]
    return np.array(found, dtype=np.uint32).view(np.int32)  # factors of dividers have 32 bits
