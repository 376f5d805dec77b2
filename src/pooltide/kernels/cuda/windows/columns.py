"""What the planners of forwards share: windows as kernels read them, and how threads walk down windows.

columns.h and spans.h are the other side of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ....cache import cached
from ....geometry import Axis, cells_of_windows
from ..kernel_tables import Array, cdiv, divider, even_share, is_ragged
from ..source import Argument, Source
from ..task import THREADS as THREADS  # of the kernels that walk down columns
from ..task import VECTOR_BYTES, Launch, Task, with_rows
from .banks import LINE

UNROLLED = 16  # the most cells or windows on the w axis that are worth unrolling
LONG = 8  # cells of a row of a window, of which more are loaded on conditions if channels are innermost
SHORTEST = 4  # rows of windows that a thread takes
MOST_ROWS = 64  # that one thread may walk down, of planes that are one row
FEW_CHANNEL_BYTES = 4  # that it takes even if there are few threads then
TENSORS = (("const Element*", "x"), ("Element*", "out"))


@dataclass(frozen=True, slots=True)
class Windows:
    """An axis as kernels read it: each window's first cell inside the axis, and how many it has there."""

    length: int
    first: Array
    count: Array
    dilation: int = 1

    @property
    def outputs(self) -> int:
        return len(self.first)

    @property
    def most(self) -> int:
        """The most cells of a window, at least 1."""
        return max(int(self.count.max(initial=1)), 1)

    @property
    def clipped(self) -> int:
        """1 if some window has fewer cells than another."""
        return int(self.count.min(initial=self.most) < self.most)

    @property
    def empty(self) -> bool:
        """Whether some window has no cell."""
        return not self.count.all()

    @property
    def overlap(self) -> float:
        """How many windows hold a cell, on average."""
        return float(self.count.sum()) / max(self.length, 1)


def steady_axes(task: Task) -> tuple[Axis, Axis, Axis]:
    """Returns the axes. Adaptive axes become strided ones, unless an axis of the problem is ragged."""
    ragged = is_ragged(task.problem)

    def steady(axis: Axis) -> bool:
        whole = axis.outputs > 0 and axis.length > 0 and axis.length % axis.outputs == 0
        return axis.adaptive and whole and (not ragged or axis.length == axis.outputs)

    d, h, w = (
        Axis(axis.length, axis.outputs, axis.length // axis.outputs, axis.length // axis.outputs)
        if steady(axis)
        else axis
        for axis in task.problem.axes
    )
    return d, h, w


def rows_as_planes(task: Task) -> Task:
    """The task with planes of at most MOST_ROWS rows, if its planes are rows; else the task itself."""
    if task.inner > 1:
        return task
    w = task.problem.axes[2]
    return with_rows(task, min(MOST_ROWS, (2**30 - 1) // max(w.length, w.outputs, 1)))


@cached(lambda windows: (windows.first, windows.count))
def windows_of(axis: Axis) -> Windows:
    return Windows(axis.length, *cells_of_windows(axis), axis.dilation)


def span_table(axes: tuple[Windows, ...], *more: Array) -> Array:
    parts = [part for axis in axes for part in (axis.first, axis.count)]
    return np.concatenate([*parts, *more]).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Walk:
    """How kernels of columns.h divide windows: `width` threads take a row, or a part of it, of each plane.

    If `spread`, a block has `h_chunk` rows of windows, counted through all planes, and a thread takes every
    `share`-th of them.
    """

    width: int
    w_chunks: int
    share: int
    h_chunk: int
    h_chunks: int
    spread: bool = False

    @property
    def block(self) -> int:
        return cdiv(self.share * self.width, 32) * 32

    def grid(self, task: Task) -> int:
        if self.spread:
            return self.h_chunks
        return cdiv(task.planes, self.share) * self.w_chunks * task.problem.axes[0].outputs * self.h_chunks

    def arguments(self, task: Task, vector: int) -> tuple[Argument, ...]:
        problem, inner = task.problem, task.inner
        (_, h, w), (do, ho, wo) = problem.input_plane, problem.output_plane
        return (
            *(task.planes, prod(problem.input_plane) * inner, prod(problem.output_plane) * inner),
            *(h, w, do, ho, wo, inner, wo * inner, self.share, self.h_chunk),
            *(problem.axes[2].dilation * inner, _pitch(task)),
            *(
                divider(n)
                for n in (self.h_chunks, do, self.w_chunks, self.width, max(inner // vector, 1), ho)
            ),
        )


def vector_of(task: Task, most: int = 8, rows: int = 1) -> int:
    """How many neighbouring channels, at most `most`, or windows of a row a thread takes.

    The addresses and conditions of a thread serve all its channels, so it takes as many as it can. It walks
    down at least `rows` rows of windows.
    """
    if task.inner == 1:
        return 2 if may_pair(task) else 1
    enough = int(results_to_spare(task) / min(rows, task.problem.axes[1].outputs))  # channels
    itemsize = task.problem.dtype.itemsize
    most = min(most, VECTOR_BYTES // itemsize, max(enough, FEW_CHANNEL_BYTES // itemsize))
    return next(n for n in (8, 4, 2, 1) if n == 1 or (n <= most and task.inner % n == 0))


def results_to_spare(task: Task) -> float:
    """How many results a thread may take, so that there is a thread for each that a device runs at once."""
    results = task.problem.planes * prod(task.problem.output_plane)
    return results / (task.facts.multiprocessors * task.facts.threads_per_multiprocessor)


def may_pair(task: Task) -> bool:
    """Whether threads can take two neighbouring windows each: windows are strided, their number is even."""
    w = steady_axes(task)[2]
    alike = not w.adaptive and w.dilation == 1 and w.s <= w.k <= UNROLLED
    return task.inner == 1 and w.outputs % 2 == 0 and alike


def _pitch(task: Task) -> int:
    """The bytes of a row."""
    return task.problem.axes[2].length * task.inner * task.problem.dtype.itemsize


def column_parameters(task: Task) -> tuple[tuple[str, str], ...]:
    """Those of columns.h."""
    return (
        ("const int*", "tables"),
        *(("i64", name) for name in ("planes", "plane_elements", "plane_windows")),
        *(("int", name) for name in ("H", "W", "Do", "Ho", "Wo", "inner", "columns", "share", "h_chunk")),
        *(("i64", "step"), ("int" if _pitch(task) < 2**31 else "i64", "pitch")),
        *(("Divider", f"by_{name}") for name in ("h_chunks", "do", "w_chunks", "width", "inner", "ho")),
    )


def walk_of(task: Task, threads: int, shortest: int, vector: int, group: int = 1) -> Walk:
    """Columns for all threads of a block, and rows so that all multiprocessors have blocks.

    A thread must walk `shortest` rows for its preparations to pay; it takes `vector` columns and `group` rows
    at a time.
    """
    do, ho, wo = task.problem.output_plane
    columns = wo * task.inner // vector
    width = columns if columns <= threads else min(cdiv(even_share(columns, threads), 32) * 32, threads)
    w_chunks = cdiv(columns, width)
    share = min(max(threads // width, 1), task.planes) if w_chunks == 1 else 1
    blocks = cdiv(task.planes, share) * w_chunks * do
    wanted = max(4 * task.facts.multiprocessors * task.facts.threads_per_multiprocessor // threads, 1)
    chunk = cdiv(even_share(ho, max(ho * blocks // wanted, shortest)), group) * group
    return Walk(width, w_chunks, share, chunk, cdiv(ho, chunk))


def may_spread(task: Task, vector: int) -> bool:
    """Whether rows of windows are so short that a warp has several, and threads may take rows of all planes.

    That is for windows that share no rows: the cells of a warp, and its results, then are neighbours.
    """
    d, h, w = task.problem.axes
    return task.inner == d.outputs == 1 and w.outputs < 32 * vector and task.planes * h.outputs < 2**30


def spread_walk(task: Task, threads: int, vector: int) -> Walk:
    """A thread takes at least SHORTEST rows, for its preparations to pay."""
    _, ho, wo = task.problem.output_plane
    width, rows = wo // vector, task.planes * ho
    share = min(threads // width, rows)
    wanted = max(4 * task.facts.multiprocessors * task.facts.threads_per_multiprocessor // threads, 1)
    chunk = share * max(rows // (share * wanted), SHORTEST)
    return Walk(width, 1, share, chunk, cdiv(rows, chunk), spread=True)


def column_options(
    task: Task, vector: int, columns: int, clipped: tuple[bool, bool], spread: bool = False
) -> tuple[tuple[str, int], ...]:
    """What the kernels of columns.h are specialised on; `clipped` on the h and w axes."""
    adjacent = task.inner == 1 and task.problem.axes[2].dilation == 1
    ahead = UNROLLED // max(vector // 2, 1)
    most = ahead if by_tables(task) else windows_of(task.problem.axes[2]).most
    batch = 0 if columns else even_share(max(most, 1), ahead)
    edges = (("CLIPPED_H", int(clipped[0])), ("CLIPPED_W", int(clipped[1])))
    cells = (("COLUMNS", columns), ("BATCH", batch), ("ADJACENT", int(adjacent)))
    return *task.defines, ("VECTOR", vector), ("SPREAD", int(spread)), *cells, *edges


def column_launch(
    task: Task,
    entry: str,
    walk: Walk,
    vector: int,
    unrolled: int,
    clipped: tuple[bool, bool],
    options: tuple[tuple[str, int], ...],
    parameters: tuple[tuple[str, str], ...],
    values: tuple[Argument, ...],
    *,
    pointers: tuple[tuple[str, str], ...] = (),
    more: tuple[Array, ...] = (),
    shared: int = 0,
) -> tuple[Launch, ...]:
    """The launch of a kernel of columns.h. `values` are those of `parameters`; `more` follows the windows."""
    axes = tuple(windows_of(axis) for axis in task.problem.axes)
    all_parameters = (*TENSORS, *pointers, *column_parameters(task), *parameters)
    defines = (*column_options(task, vector, unrolled, clipped, walk.spread), *options)
    source = Source(f"{entry}.cu", entry, all_parameters, defines)
    arguments = (*walk.arguments(task, vector), *values)
    return (Launch(source, walk.grid(task), walk.block, shared, (span_table(axes, *more),), arguments),)


def not_in_planes(task: Task, axes: tuple[Windows, ...]) -> str | None:
    """Why a block can't copy the windows of planes to shared memory by rows; else None."""
    if task.inner > 1:
        return "channels are innermost, and neighbouring threads read neighbouring channels"
    if any(axis.dilation > 1 for axis in axes):
        return "the cells of a window are not neighbours"
    return "some windows have no cell" if any(axis.empty for axis in axes) else None


def by_tables(task: Task) -> bool:
    """Whether kernels of columns.h are specialised on no length of windows, as for ragged ones.

    With channels innermost, loads on a condition are faster in long rows of adaptive windows: averages took
    0.72 to 0.89 of the time (H200, 2026-11-19).
    """
    problem, w = task.problem, task.problem.axes[2]
    long = w.adaptive and windows_of(w).most > LONG
    return is_ragged(problem) or (long and problem.kind == "average" and task.inner > 1)


def unrolled_cells(most: int, ragged: bool, limit: int = LINE) -> int:
    """How many cells of a window's row a thread unrolls, of which a window has `most`; 0: too many.

    Ragged windows share the powers of two, so that a new image size seldom needs a new kernel. `limit`: how
    many the kernel can unroll, at most.
    """
    limit = min(limit, UNROLLED)
    if most > limit:
        return 0
    return min(1 << (most - 1).bit_length(), limit) if ragged else most
