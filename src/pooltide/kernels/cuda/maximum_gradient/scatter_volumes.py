"""Planner of the gradient of maxima in scatter_volumes.cu: a warp walks through the slices of a plane."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ....geometry import tables
from ..cost import Shape, fastest
from ..kernel_tables import (
    Array,
    between,
    cdiv,
    divider,
    even_shares,
    longest_span,
    shares,
    window_counts,
    windows_of_shares,
)
from ..source import Argument, Source
from ..task import RESERVED, Launch, Task, Work
from .indices import WARP_BYTES, corners, window_bytes
from .ordered import lanes_of_windows, order_options, ordered_work, padded_row, rounded, spans_of, steps
from .scatter_planes import bands_launch
from .two_passes import INDEXED, redo

WARPS = 4  # of a block
KERNEL = "scatter of volumes"  # in costs.json

_VOLUMES = (
    *INDEXED,
    *(("const int*", name) for name in ("spans", "slices")),
    ("long long", "planes"),
    *(("int", name) for name in ("plane_elements", "plane_windows", "plane_cells", "window_rows")),
    *(("int", name) for name in ("slice_elements", "slice_windows", "ring", "pitch", "warp_bytes")),
    *(("int", name) for name in ("parts",)),
    *(("int", f"{name}_{axis}") for axis in "dhw" for name in ("stride", "padding", "reach")),
    *(("Divider", name) for name in ("by_slice", "by_inner", "by_wo", "by_ho", "by_h")),
    *(("Divider", name) for name in ("by_w", "by_row")),
)


def scatter_volumes(task: Task) -> tuple[Launch, ...] | str:
    """A warp walks through slices, and keeps a band of those that a window has."""
    problem, inner = task.problem, task.inner
    d, h, w = problem.axes
    if d.length == 1:
        return "planes have one slice"
    span, ring = tables(d), longest_span(d)
    row = ring * w.length * inner * task.sum_bytes
    if row > WARP_BYTES:
        return f"a row of {ring} slices has {row} bytes, of which a warp keeps at most {WARP_BYTES}"
    options = order_options(task)
    best = _best(task, row, dict(options))
    if best is None:
        return f"a row of {ring} slices is more than a block can keep"
    pieces = _pieces(task, *best)
    pitch = cdiv(int(pieces[:, 1].max()) + 4, 4) * 4
    warp_bytes = rounded(ring * pitch * task.sum_bytes)
    cells, windows = prod(problem.input_plane), prod(problem.output_plane)
    arguments: tuple[Argument, ...] = (
        *(task.planes, cells * inner, windows * inner, cells, d.outputs * h.outputs),
        *(h.length * w.length * inner, h.outputs * w.outputs * inner, ring, pitch, warp_bytes),
        len(pieces),
        *(number for axis in problem.axes for number in steps(axis)),
        *(divider(h.length * w.length), divider(inner), divider(w.outputs), divider(h.outputs)),
        *(divider(h.length), divider(w.length), divider(padded_row(task))),
    )
    ways = (("INNER", int(inner > 1)), *options, ("THREADS", 32 * WARPS))
    source = Source("scatter_volumes.cu", "scatter_volumes", _VOLUMES, (*task.defines, *ways))
    slices = np.stack([span.start, span.end], axis=1).astype(np.int32)
    given = (pieces, corners(problem), spans_of(problem), slices)
    counts = task.planes * len(pieces)
    work = tuple((name, np.max(count).item()) for name, count in _work(task, dict(options), best))
    first = Launch(
        source, cdiv(counts, WARPS), 32 * WARPS, WARPS * warp_bytes, given, arguments, counts, work
    )
    return (replace(first, repair=lambda: redo(task, bands_launch(task), parts=len(pieces))),)


def _work(task: Task, options: dict[str, Any], *tiles: tuple[int, int]) -> Work:
    """`tiles`: how many rows and slices a warp has."""
    rows, slices = zip(*tiles, strict=True)
    d, h, w = task.problem.axes
    bands = [windows_of_shares(h, n) * (w.outputs * task.inner) for n in rows]
    lanes = np.array([float(lanes_of_windows(task, options, windows).sum()) for windows in bands])
    read = np.array([float(windows.sum()) for windows in bands])
    walks = np.array([float(window_counts(d, n)[0]) for n in slices])  # slices of windows
    of_h, of_d = cdiv(h.length, np.array(rows)), cdiv(d.length, np.array(slices))
    return (
        *ordered_work(options, task.planes * walks * lanes),
        ("bytes of windows", task.planes * walks * read * window_bytes(task.problem)),
        *(("slices", 32 * task.planes * of_h * d.length), ("ranges", 32 * task.planes * of_h * walks)),
        *(("pieces", 32 * task.planes * of_h * of_d), ("cells", task.problem.cells)),
    )


def _best(task: Task, row: int, options: dict[str, Any]) -> tuple[int, int] | None:
    """Rows and slices of a warp that cost least; `row` is the bytes of a row of all slices in the ring."""
    d, h, _ = task.problem.axes
    found = [n for n in product(even_shares(h.length), even_shares(d.length)) if n[0] * row <= WARP_BYTES]
    rows, slices = np.array(found).T
    shared = WARPS * rounded(rows * row)
    grid = cdiv(task.planes * cdiv(h.length, rows) * cdiv(d.length, slices), WARPS)
    shape = Shape(grid, 32 * WARPS, shared, 40, _work(task, options, *found))
    best = fastest(task, KERNEL, shape, shared + RESERVED <= task.facts.shared_per_block)
    return None if best is None else found[best]


def _pieces(task: Task, rows: int, slices: int) -> Array:
    """Of each part of a plane what `Piece` in scatter_volumes.cu holds."""
    (d, h, w), inner = task.problem.axes, task.inner
    d0, d1 = shares(d.length, slices)
    h0, h1 = shares(h.length, rows)
    from_d, of_d = between(d, d0, d1)
    from_h, of_h = between(h, h0, h1)
    i, j = (at.ravel() for at in np.meshgrid(np.arange(len(d0)), np.arange(len(h0)), indexing="ij"))
    found = (
        *(h0[j] * w.length * inner, (h1 - h0)[j] * w.length * inner, d0[i], d1[i], from_d[i], of_d[i]),
        *((from_d[i] * h.outputs + from_h[j]) * w.outputs * inner, of_h[j] * w.outputs * inner),
    )
    return np.stack(found, axis=1).astype(np.int32)
