"""Plans the rolling, sectioned and direct maxima, maximum_columns.cu: a thread walks down a column."""

from __future__ import annotations

from ..kernel_tables import is_ragged
from ..task import Launch, Task
from ..windows import columns
from .maximum_reduce import FEWEST_CELLS
from .places import PLACES, index_parameter, places_of

ROWS_IN_REGISTERS = 5  # of windows that share rows
REENTERED = 4  # windows' heights that a thread walks down at least, if it enters shared rows again
SECTION_BYTES = 48 << 10  # of shared memory that a block may take for longer windows
CHANNELS = 4  # that a thread takes at most: values and places take registers


def rolls(task: Task) -> bool:
    """Whether windows share rows in registers or sections."""
    return _no_steady_rows(task) is None and columns.windows_of(task.problem.axes[0]).most == 1


def no_rolling(task: Task) -> str | None:
    """Why a thread can't keep the rows of windows in registers; else None."""
    h = columns.steady_axes(task)[1]
    if task.inner == 1 and columns.windows_of(task.problem.axes[0]).most > 1:
        return "windows have several slices, and channels are not innermost"
    if (reason := _no_steady_rows(task)) is None and h.k > ROWS_IN_REGISTERS:
        return f"windows have {h.k} rows, of which registers hold at most {ROWS_IN_REGISTERS}"
    return reason


def rolling_maximum(task: Task) -> tuple[Launch, ...] | str:
    """The best cells of a window's rows stay in registers for the windows below."""
    given, task = task, columns.rows_as_planes(task)
    reason, h = no_rolling(task), columns.steady_axes(task)[1]
    options = (("ROWS", h.k), ("STRIDE", min(h.s, h.k)))
    return reason or _columns(task, 1, columns.THREADS, 0, options, rows_are_planes=task is not given)


def sectioned_maximum(task: Task) -> tuple[Launch, ...] | str:
    """The best cells of a window's rows stand in shared memory for the windows below."""
    reason, h = _no_steady_rows(task), columns.steady_axes(task)[1]
    if reason is not None:
        return reason
    if columns.windows_of(task.problem.axes[0]).most > 1:
        return "windows have several slices"
    if h.s >= h.k or h.outputs == 1:
        return "windows share no rows"
    vector = columns.vector_of(task, CHANNELS, REENTERED * h.k)
    size = task.sum_bytes * (2 if task.problem.index_bytes else 1) * vector
    most = min(SECTION_BYTES, task.facts.shared_per_block)
    threads = next((n for n in (256, 128, 64, 32) if n * h.k * size <= most), 0)
    if not threads:
        return f"32 threads would need {32 * h.k * size} bytes of shared memory"
    return _columns(task, 2, threads, threads * h.k * size, ())


def direct_maximum(task: Task) -> tuple[Launch, ...] | str:
    """Each window is read alone."""
    d, h, w = axes = tuple(columns.windows_of(axis) for axis in task.problem.axes)
    few = d.most == 1 and h.most * w.most <= columns.UNROLLED and not any(axis.empty for axis in axes)
    return _columns(task, 0, columns.THREADS, 0, (("ROWS", h.most if few else 0),))


def _no_steady_rows(task: Task) -> str | None:
    """Why windows are not equally many neighbouring rows, a stride apart; else None."""
    _, h, _ = axes = columns.steady_axes(task)
    if h.adaptive:
        return "windows differ in how many rows they have"
    if h.dilation > 1:
        return "the rows of a window are not neighbours"
    if any(columns.windows_of(axis).empty for axis in axes):
        return "some windows have no cell"
    return None


def _columns(
    task: Task,
    walk: int,
    threads: int,
    shared: int,
    options: tuple[tuple[str, int], ...],
    rows_are_planes: bool = False,
) -> tuple[Launch, ...]:
    """`rows_are_planes`: places count from the first cell of a row (columns.rows_as_planes)."""
    _, rows, steps = columns.steady_axes(task)
    d, h, w = (columns.windows_of(axis) for axis in task.problem.axes)
    paired = walk > 0 and columns.may_pair(task)
    # A thread enters again the rows that its first window shares with the one above.
    shared_rows = walk == 2 or (walk == 1 and rows.s < rows.k)
    shortest = REENTERED * rows.k if shared_rows else max(FEWEST_CELLS // (rows.k * w.most), 1) if walk else 1
    several = paired or task.inner > 1
    vector = columns.vector_of(task, CHANNELS, shortest if shared_rows else 1) if several else 1
    spread = walk == 1 and rows.s >= rows.k and columns.may_spread(task, vector)
    shape = (
        columns.spread_walk(task, threads, vector)
        if spread
        else columns.walk_of(task, threads, shortest, vector)
    )
    ragged = is_ragged(task.problem)
    unrolled = steps.k if paired else columns.unrolled_cells(w.most, ragged)
    parameters = (*PLACES, *(("int", name) for name in ("padding", "padding_w", "rows", "stride")))
    # A section may reach beyond the last window.
    clipped_h = walk == 2 or bool((h.count != rows.k).any())
    clipped_w = bool((w.count != steps.k).any()) if paired else ragged or bool(w.clipped)
    defines = (
        *(("PAIRED", int(paired)), ("STRIDE_W", steps.s if paired else 0)),
        *(("WALK", walk), ("SLICES", d.most if walk else 1), *options, ("THREADS", threads)),
    )
    *places, place_h, place_w = places_of(task.problem.offsets, (d, h, w))
    places += [0 if rows_are_planes else place_h, place_w]
    return columns.column_launch(
        task,
        "maximum_columns",
        shape,
        vector,
        unrolled,
        (clipped_h, clipped_w),
        defines,
        parameters,
        (*places, rows.p, steps.p, rows.k, rows.s),
        pointers=index_parameter(task),
        shared=shared,
    )
