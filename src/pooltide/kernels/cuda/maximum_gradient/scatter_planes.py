"""Plans `scatter of whole planes` and `scatter of bands`, scatter_planes.cu."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from ..kernel_tables import Array, bands, cdiv, divider, windows_of_bands
from ..source import Argument, Source
from ..task import Launch, Task, Work
from .indices import WARP_BYTES, corners, window_bytes
from .ordered import lanes_of_windows, order_options, ordered_work, padded_row, rounded, spans_of, steps
from .two_passes import INDEXED, in_two_passes


def scatter_planes(task: Task) -> tuple[Launch, ...] | str:
    """A warp keeps whole planes in shared memory."""
    size = prod(task.problem.input_plane) * task.inner
    apart = all(axis.disjoint for axis in task.problem.axes)
    most = (2 if apart else 1) * WARP_BYTES // task.sum_bytes
    if size > most:
        return f"a plane has {size} elements, of which a warp keeps at most {most}"
    warps = 4
    windows = prod(task.problem.output_plane) * task.inner
    share = min(max(most // 2 // size, 1), cdiv(task.planes, warps), 2**30 // windows)
    while share > 1 and cdiv(task.planes, share * warps) < 4 * task.facts.multiprocessors:
        share = cdiv(share, 2)
    warp_bytes = rounded(share * size * task.sum_bytes)
    launch = _scatter(task, share, warp_bytes, warps, 0, None, 0)
    options, all_warps = dict(launch.source.defines), launch.grid * warps
    work = ordered_work(options, all_warps * lanes_of_windows(task, options, share * windows).item())
    return (replace(launch, work=(*work, ("lanes", 32 * all_warps))),)


def scatter_bands(task: Task) -> tuple[Launch, ...] | str:
    """A block computes a plane band by band, each in the shared memory of a warp."""
    return in_two_passes(task, bands_launch(task))


def bands_launch(task: Task) -> Launch:
    inner = task.inner
    pieces = _bands(task) * np.array([inner, inner, 1, inner, inner, inner])
    warp_bytes = rounded(int((pieces[:, 1] - pieces[:, 0]).max()) * task.sum_bytes)
    most = (task.facts.shared_per_block - 1024) // warp_bytes
    most = max(min(8, len(pieces), most, task.facts.shared_per_multiprocessor // 2 // warp_bytes), 1)
    warps = min(range(most, max(most // 2, 1) - 1, -1), key=lambda n: cdiv(len(pieces), n) * n)
    parts = min(cdiv(len(pieces), warps), cdiv(4 * task.facts.multiprocessors, task.planes))
    launch = _scatter(task, 1, warp_bytes, warps, len(pieces), pieces.astype(np.int32), parts)
    return replace(launch, work=_bands_work(task, launch, pieces, parts, warps))


def _bands_work(task: Task, launch: Launch, pieces: Array, parts: int, warps: int) -> Work:
    options, (ranges, count) = dict(launch.source.defines), pieces[:, [2, 4]].T
    rounds = cdiv(cdiv(len(pieces), parts), warps)
    all_bands = task.planes * parts * rounds * warps / len(pieces)  # those that warps have no band for, too
    windows = all_bands * float((ranges * lanes_of_windows(task, options, count)).sum())
    return (
        *ordered_work(options, windows),
        ("bytes of windows", task.planes * float((ranges * count).sum()) * window_bytes(task.problem)),
        *(
            ("cells of bands", all_bands * task.problem.cells / task.planes),
            ("windows of channels", windows * (task.inner > 1)),
        ),
        *(("bands", 32 * all_bands * len(pieces)), ("threads", launch.grid * launch.block)),
    )


def _bands(task: Task) -> Array:
    """Bands of the size that costs least: long ones read fewer windows twice, of short ones more fit."""
    axes, cells = task.problem.axes, prod(task.problem.input_plane)

    def cost(size: float, slow: float) -> float:
        return (6 * windows_of_bands(axes, most(size)) + cells) * slow

    def most(size: float) -> int:
        return max(int(WARP_BYTES * size) // task.sum_bytes // task.inner, 1)

    sizes = ((1, 1.0), (1.5, 1.08), (2, 1.12), (3, 1.4))
    return bands(axes, most(min(sizes, key=lambda size: cost(*size))[0]))


_PLANES = (
    *INDEXED,
    ("const int*", "spans"),
    ("long long", "planes"),
    *(("int", name) for name in ("plane_elements", "plane_windows", "plane_cells", "window_rows")),
    *(("int", name) for name in ("share", "warp_bytes", "bands", "parts", "redo")),
    *(("int", f"{name}_{axis}") for axis in "dhw" for name in ("stride", "padding", "reach")),
    *(("Divider", name) for name in ("by_plane_windows", "by_inner", "by_wo", "by_ho", "by_h")),
    *(("Divider", name) for name in ("by_w", "by_row")),
)


def _scatter(
    task: Task, share: int, warp_bytes: int, warps: int, bands: int, pieces: Array | None, parts: int
) -> Launch:
    problem, inner = task.problem, task.inner
    cells, windows = prod(problem.input_plane), prod(problem.output_plane)
    arguments: tuple[Argument, ...] = (
        *(task.planes, cells * inner, windows * inner, cells),
        *(problem.axes[0].outputs * problem.axes[1].outputs, share, warp_bytes, bands, parts, 0),
        *(number for axis in problem.axes for number in steps(axis)),
        *(divider(windows * inner), divider(inner)),
        *(divider(problem.axes[2].outputs), divider(problem.axes[1].outputs)),
        *(divider(problem.axes[1].length), divider(problem.axes[2].length), divider(padded_row(task))),
    )
    whole_rows = pieces is None or not (pieces[:, 3:5] % max(problem.axes[2].outputs, 1)).any()
    order = order_options(task, whole_rows)
    options = (("BANDS", int(bands > 0)), ("INNER", int(inner > 1)), *order, ("THREADS", 256))
    source = Source("scatter_planes.cu", "scatter_planes", _PLANES, (*task.defines, *options))
    grid = task.planes * parts if bands else cdiv(task.planes, share * warps)
    shared = (16 if bands else 0) + warps * warp_bytes
    tables = (np.zeros(1, np.int32) if pieces is None else pieces, corners(problem), spans_of(problem))
    return Launch(source, grid, 32 * warps, shared, tables, arguments)
