"""The planner of average_flat.cu, a gradient of averages: `flat_average`.

A block keeps the quotients of its windows in shared memory, and writes its cells as contiguous vectors.
`flat_average` takes a `Task` and returns the launch, or the reason why another kernel is better (task.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ...geometry import Axis, tables
from .average_rows import most_windows
from .rolling_plan import widest_walk
from .source import Argument, Source
from .tables import cdiv, divider, division, divisors, even_share, uniform, windows_of_shares
from .task import Launch, Task

THREADS = 256
TILE_BYTES = 32 << 10  # of the result, that a block writes
KEPT_BYTES = 32 << 10  # of tables and quotients, so that several blocks share a multiprocessor
VECTOR_BYTES = 8  # bytes that a thread writes at once if windows are more than NEAR cells apart
NEAR = 2  # cells; if windows are nearer, a thread writes 2 cells: longer vectors would cause bank conflicts
WIDE = 16  # bytes of a vector; if strided windows allow such vectors, average_rolling.cu is faster
MOST_WINDOWS = 9  # the most windows that hold a cell; each cell reads all of them from shared memory
MOST_STRIDED = 4  # the same for strided windows, which average_rolling.cu can keep in registers

_FLAT = (
    *(("const Element*", "grad"), ("Element*", "out"), ("const int*", "tables"), ("const Sum*", "divisors")),
    ("long long", "planes"),
    *(("int", name) for name in ("D", "H", "W", "Do", "Ho", "Wo", "share", "d_chunk", "h_chunk")),
    *(("int", name) for name in ("columns_at", "staged_at", "step_w", "step_rows", "step_planes")),
    *(("Divider", f"by_{name}") for name in ("h_chunks", "d_chunks", "w", "rows", "wo", "ho", "do")),
)


@dataclass(frozen=True, slots=True)
class Tile:
    """`share` whole planes, or `d` slices of one plane, or `h` rows of one slice."""

    share: int
    d: int
    h: int


def flat_average(task: Task) -> tuple[Launch, ...] | str:
    """A block keeps quotients in shared memory, and writes its part of the result as one run of vectors."""
    if task.inner > 1:
        return "channels are innermost"
    held = [most_windows(axis) for axis in task.problem.axes]
    if prod(held) > MOST_WINDOWS:
        return f"a cell is in {prod(held)} windows, of at most {MOST_WINDOWS}"
    walk = widest_walk(task)
    if walk.rows.strided and walk.vector * task.problem.dtype.itemsize >= WIDE:
        return f"windows are a stride apart, and rows consist of vectors of {WIDE} bytes"
    if walk.rows.strided and prod(held) > MOST_STRIDED:
        return f"windows are a stride apart, and a cell is in {prod(held)} of them"
    tile = _tile(task)
    return _flat(task, tile, held) if tile else "the windows of one row are more than a block can keep"


def _vector(task: Task) -> int:
    """How many cells a thread writes at once."""
    w = task.problem.axes[2]
    if not task.aligned:
        return 1
    vector = VECTOR_BYTES // task.problem.dtype.itemsize if w.length > NEAR * w.outputs else 2
    while vector > w.length:
        vector //= 2
    return vector


def _incomplete(axis: Axis) -> bool:
    """Whether some cells are in fewer windows than others."""
    counts = tables(axis).window_count
    return bool((counts != max(counts.max(), 1)).any())


def _kept(task: Task, tile: Tile) -> tuple[int, int, int]:
    """Where the tables of columns and the quotients begin in shared memory, and the bytes of all."""
    d, h, w = task.problem.axes
    rows = int(windows_of_shares(d, tile.d).max()) * int(windows_of_shares(h, tile.h).max())
    columns_at = 4 * (tile.d * tile.h + 1) * most_windows(d) * most_windows(h)
    staged_at = cdiv(columns_at + 2 * (w.length + _vector(task)) * most_windows(w), 16) * 16
    rows += _incomplete(d) or _incomplete(h)
    kept = tile.share * rows * (w.outputs + _incomplete(w)) * task.sum_bytes
    return columns_at, staged_at, staged_at + kept


def _tile(task: Task) -> Tile | None:
    d, h, w = task.problem.input_plane
    enough = cdiv(task.planes * d * h * w, 4 * task.facts.multiprocessors)  # cells, so that no one is idle
    cells = max(min(TILE_BYTES // task.problem.dtype.itemsize, enough), 1)
    most = min(KEPT_BYTES, task.facts.shared_per_block - 1024)
    while cells:
        if cells >= d * h * w:
            tile = Tile(min(cells // (d * h * w), task.planes), d, h)
        elif cells >= h * w:
            tile = Tile(1, even_share(d, cells // (h * w)), h)
        else:
            tile = Tile(1, 1, even_share(h, cells // w))
        if _kept(task, tile)[2] <= most:
            return tile
        cells //= 2
    return None


def _flat(task: Task, tile: Tile, held: list[int]) -> tuple[Launch, ...]:
    problem = task.problem
    by, (once, by_d, by_h, by_w) = divisors(problem), division(problem)
    of_axes = [tables(axis) for axis in problem.axes]
    vector = _vector(task)
    options = {
        "SLICES": held[0],
        "ROWS": held[1],
        "COLUMNS": held[2],
        "ZERO_COLUMN": int(_incomplete(problem.axes[2])),
        "ZERO_ROW": int(any(_incomplete(axis) for axis in problem.axes[:2])),
        "SHARED_PLANES": int(tile.share > 1),
        "UNIFORM": int(uniform(by)),
        "VECTOR": vector,
        "ONCE": once,
        "BY_D": by_d,
        "BY_H": by_h,
        "BY_W": by_w,
        "THREADS": THREADS,
    }
    source = Source("average_flat.cu", "average_flat", _FLAT, (*task.defines, *sorted(options.items())))
    (d, h, w), (do, ho, wo) = problem.input_plane, problem.output_plane
    columns_at, staged_at, kept = _kept(task, tile)
    chunks = cdiv(h, tile.h), cdiv(d, tile.d)
    step_rows, step_w = divmod(THREADS * vector, w)
    step_planes, step_rows = divmod(step_rows, d * h) if tile.share > 1 else (0, step_rows)
    arguments: tuple[Argument, ...] = (
        *(task.planes, d, h, w, do, ho, wo, tile.share, tile.d, tile.h),
        *(columns_at, staged_at, step_w, step_rows, step_planes),
        *(divider(n) for n in (*chunks, w, d * h, wo, ho, do)),
    )
    windows = np.concatenate([side for table in of_axes for side in (table.first_window, table.window_count)])
    values = np.concatenate(by).astype(problem.dtype.accumulator)
    given = windows.astype(np.int32), np.stack([values, 1 / values], axis=1)
    return (Launch(source, prod(chunks) * cdiv(task.planes, tile.share), THREADS, kept, given, arguments),)
