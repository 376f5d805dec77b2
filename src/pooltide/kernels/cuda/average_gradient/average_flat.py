"""The planner of average_flat.cu, a gradient of averages: `flat_average`.

A block keeps the quotients of its windows in shared memory, and writes its cells as contiguous vectors.
`flat_average` takes a `Task` and returns the launch, or the reason against it (task.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ....geometry import Axis, tables
from ....problem.problem import Problem
from ..kernel_tables import (
    Array,
    cdiv,
    divider,
    division_cost,
    even_share,
    has_empty_windows,
    most_windows,
    power_below,
    same_divisors,
    shares,
    window_counts,
)
from ..source import Argument
from ..task import THREADS, VECTOR_BYTES, Launch, Task
from .average_rows import POINTERS, Rows, average_launch, runs_of

TILE_BYTES = {False: 32 << 10, True: 64 << 10}  # of the result, that a block writes; True: with regions
KEPT_BYTES = 36 << 10  # of tables and quotients, so that several blocks share a multiprocessor
COPIED = 4  # cells that a thread writes at once if it copies them: longer vectors would cause bank conflicts
ADDED_BYTES = 8  # the same, in bytes, if it adds quotients, and windows are more than NEAR cells apart
NEAR = 2  # cells; if windows are nearer, a thread that adds quotients writes 2 cells
REGIONS = (
    1 / 16
)  # for each cell and window that holds it; if there are more regions, each cell is added alone
REGION_WINDOWS = 4  # the fewest windows to a cell with which regions are worth their time
MAX_HELD = 64  # windows that hold a cell; for more, the kernel takes seconds to compile

_FLAT = (
    *POINTERS,
    ("long long", "planes"),
    *(("int", name) for name in ("D", "H", "W", "Do", "Ho", "Wo", "share", "d_chunk", "h_chunk")),
    *(("int", name) for name in ("columns_at", "rows_at", "staged_at", "values_at", "runs_at")),
    *(("int", name) for name in ("step_w", "step_rows", "step_planes")),
    *(("Divider", f"by_{name}") for name in ("h_chunks", "d_chunks", "w", "rows", "wo", "ho", "do")),
    *(("Divider", f"by_runs_{axis}") for axis in "dhw"),
)


@dataclass(frozen=True, slots=True)
class Tile:
    """`share` whole planes, or `d` slices of one plane, or `h` rows of one slice."""

    share: int
    d: int
    h: int


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of shared memory begin, and the bytes of all. The table of rows of cells is first."""

    columns: int
    rows: int  # of windows
    windows: int
    values: int
    end: int


def flat_average(task: Task) -> tuple[Launch, ...] | str:
    """A block keeps quotients in shared memory, and writes its part of the result as one run of vectors."""
    if task.inner > 1:
        return "channels are innermost"
    if has_empty_windows(task.problem):
        return "some windows have no cell"
    w = task.problem.axes[2]
    if max(w.outputs, runs_of(w).periods) >= 2**16:
        return f"a row has {w.outputs} windows, too many for the numbers of a table"
    if (held := _held(task)) > MAX_HELD:
        return f"a cell is in {held} windows, so the kernel would take seconds to compile; at most {MAX_HELD}"
    tile = _tile(task)
    if tile is None:
        return "the windows of one row are more than a block can keep"
    return _flat(task, tile)


def _disjoint(task: Task) -> bool:
    return all(most_windows(axis) == 1 for axis in task.problem.axes)


def _held(task: Task) -> int:
    """The most windows that hold a cell."""
    return prod(most_windows(axis) for axis in task.problem.axes)


def _region_share(task: Task) -> float:
    """Regions of cells in the same windows, for each cell."""
    return prod(runs_of(axis).periods for axis in task.problem.axes) / prod(task.problem.input_plane)


def _regions(task: Task) -> bool:
    """Whether quotients are added once for each region of cells in the same windows."""
    held = _held(task)
    return held >= REGION_WINDOWS and _region_share(task) <= REGIONS * held


def _vector(task: Task) -> int:
    """How many cells a thread writes at once."""
    w, itemsize = task.problem.axes[2], task.problem.dtype.itemsize
    if not task.aligned:
        return 1
    if _disjoint(task) or _regions(task):
        vector = min(COPIED, 16 // itemsize)
    else:
        vector = ADDED_BYTES // itemsize if w.length > NEAR * w.outputs else 2
    return power_below(min(vector, VECTOR_BYTES // itemsize, w.length))


def _incomplete(axis: Axis) -> bool:
    """Whether some cells are in fewer windows than others."""
    counts = tables(axis).window_count
    return bool((counts != max(counts.max(), 1)).any())


def _zeros(task: Task) -> tuple[bool, bool]:
    """Whether rows of windows end with a zero, and planes with a row of zeros; regions need none."""
    incomplete = [not _regions(task) and _incomplete(axis) for axis in task.problem.axes]
    return incomplete[2], incomplete[0] or incomplete[1]


def _places(task: Task, tile: Tile) -> Places:
    d, h, w = task.problem.axes
    regions, itemsize = _regions(task), task.problem.dtype.itemsize
    zero_column, zero_row = _zeros(task)
    of_plane = window_counts(d, tile.d)[1] * window_counts(h, tile.h)[1]
    row = 8 + (0 if same_divisors(task.problem) else 4 * task.sum_bytes)
    kept = (
        (of_plane + zero_row) * (w.outputs + zero_column) * (itemsize if _disjoint(task) else task.sum_bytes)
    )
    columns = 4 * (tile.d * tile.h + 1) * (1 if regions else most_windows(d) * most_windows(h))
    rows = _whole(columns + 2 * (w.length + _vector(task)) * (1 if regions else most_windows(w)))
    windows = _whole(rows + tile.share * of_plane * row)
    values = _whole(windows + tile.share * kept)
    if not regions:
        return Places(columns, rows, windows, values, values)
    runs = tile.share * _most_runs(d, tile.d) * _most_runs(h, tile.h) * runs_of(w).periods
    return Places(columns, rows, windows, values, values + runs * itemsize)


def _whole(size: int) -> int:
    """Bytes of whole vectors."""
    return cdiv(size, 16) * 16


def _most_runs(axis: Axis, share: int) -> int:
    """The most runs of cells in the same windows that a share of the axis has."""
    run = _run_of_cells(axis)
    begin, end = shares(axis.length, share)
    return int((run[end - 1] - run[begin]).max()) + 1


def _run_of_cells(axis: Axis) -> Array:
    runs = runs_of(axis).runs
    return np.repeat(np.arange(len(runs)), runs[:, 1] - runs[:, 0])


def _tile(task: Task) -> Tile | None:
    d, h, w = task.problem.input_plane
    enough = cdiv(task.planes * d * h * w, 4 * task.facts.multiprocessors)  # cells, so that no one is idle
    cells = max(min(TILE_BYTES[_regions(task)] // task.problem.dtype.itemsize, enough), 1)
    most = min(KEPT_BYTES, task.facts.shared_per_block - 1024)
    while cells:
        if cells >= d * h * w:
            tile = Tile(min(cells // (d * h * w), task.planes), d, h)
        elif cells >= h * w:
            tile = Tile(1, even_share(d, cells // (h * w)), h)
        else:
            tile = Tile(1, 1, even_share(h, cells // w))
        if _places(task, tile).end <= most:
            return tile
        cells //= 2
    return None


def _flat(task: Task, tile: Tile) -> tuple[Launch, ...] | str:
    problem = task.problem
    held = [most_windows(axis) for axis in problem.axes]
    zero_column, zero_row = _zeros(task)
    vector = _vector(task)
    options = (
        *(("SLICES", held[0]), ("ROWS", held[1]), ("COLUMNS", held[2]), ("ZERO_COLUMN", int(zero_column))),
        *(("ZERO_ROW", int(zero_row)), ("REGIONS", int(_regions(task)))),
        *(("SHARED_PLANES", int(tile.share > 1)), ("VECTOR", vector), ("THREADS", THREADS)),
    )
    (d, h, w), (do, ho, wo) = problem.input_plane, problem.output_plane
    places, runs = _places(task, tile), [runs_of(axis) for axis in problem.axes]
    windows, runs_at = _window_tables(problem, runs)
    chunks = cdiv(h, tile.h), cdiv(d, tile.d)
    step_rows, step_w = divmod(THREADS * vector, w)
    step_planes, step_rows = divmod(step_rows, d * h) if tile.share > 1 else (0, step_rows)
    arguments: tuple[Argument, ...] = (
        *(task.planes, d, h, w, do, ho, wo, tile.share, tile.d, tile.h),
        *(places.columns, places.rows, places.windows, places.values, runs_at),
        *(step_w, step_rows, step_planes),
        *(divider(n) for n in (*chunks, w, d * h, wo, ho, do)),
        *(divider(of_axis.periods) for of_axis in runs),
    )
    grid = prod(chunks) * cdiv(task.planes, tile.share)
    return average_launch(
        task,
        "average_flat",
        _FLAT,
        options,
        windows,
        arguments,
        grid=grid,
        shared=places.end,
        work=_work(task, tile, vector, grid),
        registers=32,
    )


def _work(task: Task, tile: Tile, vector: int, grid: int) -> tuple[tuple[str, float], ...]:
    problem, cells, regions = task.problem, task.problem.cells, _regions(task)
    d, h, w = problem.axes
    windows = window_counts(d, tile.d)[0] * window_counts(h, tile.h)[0] * w.outputs * task.planes
    double = task.sum_bytes // 4
    runs = prod(runs_of(axis).periods for axis in problem.axes) * task.planes if regions else 0
    return (
        *(("windows", windows), ("divisions", windows * division_cost(problem) * double)),
        *(("additions", cells * (1 if regions else _held(task)) * double), ("regions", runs * _held(task))),
        *(("stores", cells / vector), ("threads", grid * THREADS)),
        ("tables", grid * (w.length + tile.d * tile.h)),
    )


def _window_tables(problem: Problem, runs: list[Rows]) -> tuple[list[Array], int]:
    """What `Axes` of average_flat.cu points to, and where the windows of the runs begin."""
    of_axes = [tables(axis) for axis in problem.axes]
    cells = [side for table in of_axes for side in (table.first_window, table.window_count)]
    cells += [_run_of_cells(axis) for axis in problem.axes]
    runs_at = cdiv(sum(map(len, cells)), 2) * 2  # they are read in pairs
    cells.append(np.zeros(runs_at - sum(map(len, cells)), np.int64))
    return [*cells, *(of_axis.runs[:, 2:].ravel() for of_axis in runs)], runs_at
