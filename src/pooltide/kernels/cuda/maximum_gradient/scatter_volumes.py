"""Planner of the gradient of maxima in scatter_volumes.cu: a warp walks through the slices of a plane."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from ....geometry import tables
from ..kernel_tables import (
    Array,
    between,
    cdiv,
    divider,
    even_shares,
    longest_span,
    shares,
    windows_of_shares,
)
from ..source import Argument, Source
from ..task import Launch, Task, Work
from .indices import WARP_BYTES, corners, window_bytes
from .ordered import lanes_of_windows, order_options, ordered_work, padded_row, rounded, spans_of, steps
from .scatter_planes import bands_launch
from .two_passes import INDEXED, redo

WARPS = 4  # of a block
MOST_WARPS = 28  # of a multiprocessor, as each has so many registers
ENOUGH_WARPS = 16  # of a multiprocessor, to keep it busy

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
    pieces = _pieces(task, *_shares(task, row))
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
    options = (("INNER", int(inner > 1)), *order_options(task), ("THREADS", 32 * WARPS))
    source = Source("scatter_volumes.cu", "scatter_volumes", _VOLUMES, (*task.defines, *options))
    slices = np.stack([span.start, span.end], axis=1).astype(np.int32)
    given = (pieces, corners(problem), spans_of(problem), slices)
    counts = task.planes * len(pieces)
    work = _work(task, pieces, dict(options))
    first = Launch(
        source, cdiv(counts, WARPS), 32 * WARPS, WARPS * warp_bytes, given, arguments, counts, work
    )
    return (replace(first, repair=lambda: redo(task, bands_launch(task), parts=len(pieces))),)


def _work(task: Task, pieces: Array, options: dict[str, int]) -> Work:
    slices, of_d, count = pieces[:, 3] - pieces[:, 2], pieces[:, 5].astype(np.int64), pieces[:, 7]
    windows = task.planes * float((of_d * lanes_of_windows(task, options, count)).sum())
    return (
        *ordered_work(options, windows),
        ("bytes of windows", task.planes * float((of_d * count).sum()) * window_bytes(task.problem)),
        *(
            ("slices", 32 * task.planes * float(slices.sum())),
            ("ranges", 32 * task.planes * float(of_d.sum())),
        ),
        *(("pieces", 32 * task.planes * len(pieces)), ("cells", task.problem.cells)),
    )


def _shares(task: Task, row: int) -> tuple[int, int]:
    """Rows and slices of a warp that cost least; `row` is the bytes of a row of all slices in the ring."""
    (d, h, w), facts = task.problem.axes, task.facts
    cells = prod(task.problem.input_plane) * task.inner
    found = []
    for rows, slices in product(even_shares(h.length), even_shares(d.length)):
        if rows * row > WARP_BYTES:
            continue
        windows = float(windows_of_shares(h, rows).sum() * windows_of_shares(d, slices).sum()) * w.outputs
        pieces = cdiv(h.length, rows) * cdiv(d.length, slices)
        fit = max(min(facts.shared_per_multiprocessor // (rows * row + 256), MOST_WARPS), 1)
        few = max(facts.multiprocessors * min(fit, ENOUGH_WARPS) / (pieces * task.planes), 1.0)
        written = cdiv(h.length, rows) * d.length  # slices of all bands
        work = 2 * windows * task.inner + cells + 64 * written + 256 * pieces
        found.append((work * few * (1 + 6 / fit), rows, slices))
    return min(found)[1:]


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
