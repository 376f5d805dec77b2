"""The planner of average_flat.cu, a gradient of averages: `flat_average`.

A block keeps the quotients of its windows in shared memory, and writes its cells as contiguous vectors.
`flat_average` takes a `Task` and returns the launch, or the reason why another kernel is better (task.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ...geometry import Axis, tables
from ...problem.problem import Problem
from .average_rows import Rows, most_windows, runs_of
from .rolling_plan import widest_walk
from .source import Argument, Source
from .tables import (
    Array,
    cdiv,
    divider,
    division,
    divisors,
    even_share,
    same_divisors,
    shares,
    windows_of_shares,
)
from .task import Launch, Task

THREADS = 256
TILE_BYTES = {False: 32 << 10, True: 64 << 10}  # of the result, that a block writes; True: with regions
KEPT_BYTES = 36 << 10  # of tables and quotients, so that several blocks share a multiprocessor
COPIED = 4  # cells that a thread writes at once if it copies them: longer vectors would cause bank conflicts
ADDED_BYTES = 8  # the same, in bytes, if it adds quotients, and windows are more than NEAR cells apart
NEAR = 2  # cells; if windows are nearer, a thread that adds quotients writes 2 cells
REGIONS = (
    1 / 16
)  # for each cell and window that holds it; if there are more regions, each cell is added alone
REGION_WINDOWS = 4  # the fewest windows to a cell with which regions are worth their time
# If a plane has at most so many regions for each cell, this kernel takes also strided windows that
# average_rolling.cu can't keep in registers.
FEW_REGIONS = 1 / 3
WIDE = 16  # bytes of a vector; if strided windows allow such vectors, average_rolling.cu is faster
MOST_WINDOWS = 9  # that a cell adds, at most: each cell reads all of them from shared memory
MOST_SHARED = 64  # the same if regions are added once; for more, the kernel takes seconds to compile
MOST_STRIDED = 4  # the same for strided windows, which average_rolling.cu can keep in registers
# Elements of at most so many bytes whose strided windows overlap along rows are left to average_dense.cu,
# unless average_rolling.cu takes them.
DENSE_BYTES = 2
LONG_ROW = 24  # cells of a row, from which on strided windows that overlap on both axes are kept in registers
FEWEST_ROWS = 4  # of a block; for fewer, a long table of columns costs as much as the cells

_FLAT = (
    *(("const Element*", "grad"), ("Element*", "out"), ("const int*", "tables"), ("const Sum*", "divisors")),
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
    held, regions = _held(task), _region_share(task)
    if held > MOST_SHARED or (held > MOST_WINDOWS and held * regions > MOST_WINDOWS):
        return f"a cell is in {held} windows, and too few cells are in the same windows"
    walk = widest_walk(task)
    wide = walk.vector * task.problem.dtype.itemsize >= WIDE
    if walk.rows.strided and (regions > FEW_REGIONS or walk.refuse() is None):
        if wide:
            return f"windows are a stride apart, and rows consist of vectors of {WIDE} bytes"
        if held > MOST_STRIDED:
            return f"windows are a stride apart, and a cell is in {held} of them"
        _, h, w = (most_windows(axis) for axis in task.problem.axes)
        if w > 1 and task.problem.dtype.itemsize <= DENSE_BYTES and walk.refuse():
            return "16-bit elements whose windows overlap along rows are added several cells at a time"
        overlap = h > 1 and w > 1
        if overlap and task.problem.axes[2].length >= LONG_ROW:
            return f"windows are a stride apart and overlap, and rows have at least {LONG_ROW} cells"
    if most_windows(task.problem.axes[2]) == 1 and walk.refuse() is None and wide:
        return f"no column is in two windows, and rows consist of vectors of {WIDE} bytes"
    tile = _tile(task)
    if tile is None:
        return "the windows of one row are more than a block can keep"
    columns, rows = task.problem.axes[2].length, tile.share * tile.d * tile.h
    if columns > THREADS and rows < FEWEST_ROWS:
        return f"a block would write {rows} rows, and fill a table of {columns} columns"
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
    while vector > w.length:
        vector //= 2
    return vector


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
    of_plane = int(windows_of_shares(d, tile.d).max()) * int(windows_of_shares(h, tile.h).max())
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


def _flat(task: Task, tile: Tile) -> tuple[Launch, ...]:
    problem = task.problem
    by, (once, by_d, by_h, by_w) = divisors(problem), division(problem)
    held = [most_windows(axis) for axis in problem.axes]
    zero_column, zero_row = _zeros(task)
    vector = _vector(task)
    options = {
        "SLICES": held[0],
        "ROWS": held[1],
        "COLUMNS": held[2],
        "ZERO_COLUMN": int(zero_column),
        "ZERO_ROW": int(zero_row),
        "REGIONS": int(_regions(task)),
        "SHARED_PLANES": int(tile.share > 1),
        "UNIFORM": int(same_divisors(problem)),
        "VECTOR": vector,
        "ONCE": once,
        "BY_D": by_d,
        "BY_H": by_h,
        "BY_W": by_w,
        "THREADS": THREADS,
    }
    source = Source("average_flat.cu", "average_flat", _FLAT, (*task.defines, *sorted(options.items())))
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
    values = np.concatenate(by).astype(problem.dtype.accumulator)
    given = windows, np.stack([values, 1 / values], axis=1)
    grid = prod(chunks) * cdiv(task.planes, tile.share)
    return (Launch(source, grid, THREADS, places.end, given, arguments),)


def _window_tables(problem: Problem, runs: list[Rows]) -> tuple[Array, int]:
    """What `Axes` of average_flat.cu points to, and where the windows of the runs begin."""
    of_axes = [tables(axis) for axis in problem.axes]
    cells = [side for table in of_axes for side in (table.first_window, table.window_count)]
    cells += [_run_of_cells(axis) for axis in problem.axes]
    runs_at = cdiv(sum(map(len, cells)), 2) * 2  # they are read in pairs
    cells.append(np.zeros(runs_at - sum(map(len, cells)), np.int64))
    given = [*cells, *(of_axis.runs[:, 2:].ravel() for of_axis in runs)]
    return np.concatenate(given).astype(np.int32), runs_at
