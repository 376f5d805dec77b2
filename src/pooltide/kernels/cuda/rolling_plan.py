"""Planners of the gradients of averages in which threads divide for themselves.

The kernels are average_fill.cu and average_rolling.cu; the planners are `filled_average` and
`rolling_average`, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from .average_rows import Rows, folded, most_windows, rows_of, runs_of, window_tables
from .source import Source
from .tables import (
    cdiv,
    divider,
    division,
    division_cost,
    divisors,
    even_share,
    is_ragged,
    same_divisors,
)
from .task import Launch, Task

FILL_THREADS = 256  # threads of a block of average_fill.cu
FILLED = 32 << 10  # bytes that such a block writes, about
ROLLING_THREADS = {True: 256, False: 128}  # of a block, by whether rows are strided: runs need more registers
RESIDENT = 4  # rows are cut into chunks until there are RESIDENT times the threads that a device holds
SHORT_SLICE = 24  # rows; a thread walks through several slices if they have at most so many rows together
SHORT_RUNS = 4  # least runs of rows for a thread; for fewer runs its setup costs too much
DEEP_STORE = 16  # bytes that a thread must write at a time if windows overlap along slices
SHORT_ROW = 24  # bytes; rows shorter than this are not written one by one
WINDOW_BITS = 32  # the most windows in a row of a thread; average_rolling.cu has one bit of a u32 for each
IN_REGISTERS = 48  # the most quotients that a thread keeps in registers
COSTLY = 25.0  # the most instructions per cell for windows; above, blocks that share quotients are faster
COSTLY_HALVES = 31.0  # the same for 16-bit floats
ANY_HALVES = False  # True: also 16-bit floats in overlapping windows, if a thread's elements share no window


_FILL = (
    *(("const Element*", "grad"), ("Element*", "out"), ("const Sum*", "divisors"), ("long long", "planes")),
    *(("int", "cells"), ("int", "parts"), ("int", "span"), ("Divider", "by_period")),
)


def filled_average(task: Task) -> tuple[Launch, ...] | str:
    """The one window of a plane is the whole plane, so all cells of a plane are the same."""
    problem, inner = task.problem, task.inner
    if not all(axis.whole for axis in problem.axes):
        return "a plane has cells in different windows"
    cells, itemsize = prod(problem.input_plane), problem.dtype.itemsize
    vector = 16 // itemsize if task.aligned else 1
    shared = cdiv((inner + vector + 1) * itemsize, 16) * 16 if inner > 1 else 0
    if shared > task.facts.shared_per_block - 1024:
        return "the quotients of an image are more than a block can keep"
    many = 8 * task.facts.multiprocessors  # blocks that fill the device
    elements = task.planes * cells * inner
    span = max(min(FILLED // itemsize, cdiv(elements, many)) // vector, FILL_THREADS)  # vectors of a block
    if inner > 1:
        parts = max(cdiv(cells * inner, max(vector * span, 8 * inner)), 1)
        grid = task.planes * parts
    else:
        parts, grid = 1, cdiv(elements, vector * span)
    once, by_d, by_h, by_w = division(problem)
    options = (
        *(("BY_D", by_d), ("BY_H", by_h), ("BY_W", by_w), ("EVEN", int(inner % vector == 0))),
        *(("INNER", int(inner > 1)), ("ONCE", once), ("THREADS", FILL_THREADS), ("VECTOR", vector)),
    )
    source = Source("average_fill.cu", "average_fill", _FILL, (*task.defines, *options))
    values = np.concatenate(divisors(problem)).astype(problem.dtype.accumulator)
    arguments = (task.planes, cells, parts, span, divider(inner if inner > 1 else cells))
    return (Launch(source, grid, FILL_THREADS, shared, (np.stack([values, 1 / values], axis=1),), arguments),)


_ROLLING = (
    *(("const Element*", "grad"), ("Element*", "out"), ("const int*", "tables"), ("const Sum*", "divisors")),
    *(("int", name) for name in ("D", "H", "W", "inner", "Do", "Ho", "Wo", "periods", "first_period")),
    *(("int", "padding"), ("int", "chunk"), ("int", "d_chunk"), ("int", "threads")),
    *(("Divider", name) for name in ("by_vectors", "by_chunks", "by_d", "by_inner", "by_stride")),
)


@dataclass(frozen=True, slots=True)
class Walk:
    """How a thread of average_rolling.cu loads and keeps windows."""

    task: Task
    rows: Rows
    columns: Rows  # the same of the w axis
    vector: int  # elements of a row that a thread owns
    store: int  # elements that it writes together

    @property
    def kept_rows(self) -> int:
        return self.rows.most if self.rows.strided else 2

    @property
    def union(self) -> bool:
        """True if a thread's elements are columns whose windows are neighbours, known at compile time."""
        return self.task.inner == 1 and self.columns.strided and self.vector % self.columns.stride == 0

    @property
    def packed(self) -> bool:
        """True if a thread's elements are channels of one column."""
        return not self.union and self.task.inner % self.vector == 0

    @property
    def windows(self) -> int:
        """Windows of a row that a thread keeps."""
        if not self.union:
            return self.columns.most * self.vector
        stride, padding = self.columns.stride, self.columns.padding
        return (self.vector - 1 + padding) // stride - (padding - self.columns.kernel + stride) // stride + 1

    @property
    def rowwise(self) -> bool:
        """Threads own every nth row, as rows are shorter than a warp and in one window each."""
        short = self.task.problem.axes[2].length // self.vector < 48
        return short and self.union and self.rows.strided and self.rows.most == 1

    @property
    def together(self) -> bool:
        """True if a thread can load the windows of its elements as one vector."""
        w, across = self.task.problem.axes[2], self.columns
        even = (
            across.kernel == across.stride and across.padding == 0 and w.length == w.outputs * across.stride
        )
        return self.task.aligned and self.union and even and self.vector == self.store

    @property
    def cost(self) -> float:
        """Instructions per cell that load and divide windows."""
        problem = self.task.problem
        d, h, _ = problem.axes
        rows = 1.0 if self.rowwise else h.outputs / h.length  # of windows that a thread loads for each row
        loads = most_windows(d) * self.windows * rows / self.vector
        return loads * (4 + division_cost(problem) + 2 * (not same_divisors(problem)))

    def refuse(self) -> str | None:
        if self.rows.most > self.kept_rows:
            return f"a row is in {self.rows.most} windows, of which a thread keeps {self.kept_rows}"
        kept = self.kept_rows * most_windows(self.task.problem.axes[0]) * self.windows
        if kept > IN_REGISTERS:
            return f"a thread would keep {kept} quotients in registers, of at most {IN_REGISTERS}"
        if self.windows > WINDOW_BITS:
            return f"a thread would look at {self.windows} windows of a row, of at most {WINDOW_BITS}"
        most = COSTLY_HALVES if self._halves else COSTLY
        if self.cost > most:
            return f"a thread would spend {self.cost:.0f} instructions per cell on its windows"
        if self._halves and self._overlapping and (self.packed or self.vector == 1) and not ANY_HALVES:
            return "16-bit elements would be divided once for each column or slice that their windows share"
        stored = self.store * self.task.problem.dtype.itemsize
        if self._deep and self.task.inner == 1 and stored < DEEP_STORE:
            return f"windows of several slices overlap, and a thread would write {stored} bytes at a time"
        if not (self.union or self.packed) and self.vector > 4:
            return "a thread would keep the places of too many elements"
        row = self.task.problem.axes[2].length * self.task.inner * self.task.problem.dtype.itemsize
        if row < SHORT_ROW and not self.rowwise:
            return f"rows of {row} bytes are too short to write them one by one"
        if self.vector > self.store * (2 if self._two else 1):
            return "a thread would write too many parts of a row"
        return None

    @property
    def _overlapping(self) -> bool:
        """Whether windows overlap along slices or columns: a thread divides such windows more than once."""
        d, _, w = self.task.problem.axes
        return max(most_windows(d), most_windows(w)) > 1

    @property
    def _deep(self) -> bool:
        """Whether windows overlap along slices."""
        return most_windows(self.task.problem.axes[0]) > 1

    @property
    def _halves(self) -> bool:
        return self.task.problem.dtype.itemsize == 2

    @property
    def _two(self) -> bool:
        """Whether rows of halves that begin anywhere are long enough for two elements per thread."""
        wide = self.task.problem.axes[2].length >= 32 and self.columns.most > 1 and self.columns.stride == 1
        return self.union and wide and self._halves


def _walk(task: Task, vector: int) -> Walk:
    """`vector`: the elements of a thread."""
    _, h, w = task.problem.axes
    ragged = is_ragged(task.problem)
    rows, store = rows_of(h, ragged), vector if task.aligned else 1
    if rows.strided and not rows.unrolled:
        rows = runs_of(h)
    while (w.length * task.inner) % store:
        store //= 2
    return Walk(task, rows, rows_of(w, ragged), vector, store)


def rolling_average(task: Task) -> tuple[Launch, ...] | str:
    """A thread walks down columns, and keeps the last rows of windows in registers."""
    walk = widest_walk(task)
    return walk.refuse() or _rolling(walk)


def widest_walk(task: Task) -> Walk:
    """The walk with the widest vectors that is not refused, else one of single elements."""
    task = folded(task)
    walk = _walk(task, 16 // task.problem.dtype.itemsize)
    while walk.refuse() and walk.vector > 1:
        walk = _walk(task, walk.vector // 2)
    return walk


def _rolling(walk: Walk) -> tuple[Launch, ...] | str:
    task, rows, across = walk.task, walk.rows, walk.columns
    problem, inner, threads_of = task.problem, task.inner, ROLLING_THREADS[rows.strided]
    d, h, w = problem.axes
    vectors = cdiv(w.length * inner, walk.vector)
    slices = even_share(d.length, SHORT_SLICE // h.length)
    columns = task.planes * cdiv(d.length, slices) * vectors
    short = max(rows.fewest, 2 * walk.kept_rows) if rows.strided else SHORT_RUNS
    wanted = RESIDENT * task.facts.multiprocessors * task.facts.threads_per_multiprocessor
    chunk = even_share(rows.periods, max(min(rows.periods, cdiv(rows.periods * columns, wanted)), short))
    chunks = cdiv(rows.periods, chunk)
    if walk.rowwise:
        most = max(chunks * rows.stride, cdiv(32, vectors))  # the lanes of a warp write neighbouring rows
        chunks = cdiv(h.length, cdiv(h.length, most))
    threads = columns * chunks
    if threads >= 2**31:
        return "the threads are too many to count"
    by = divisors(problem)
    once, by_d, by_h, by_w = division(problem)
    options = {
        "VECTOR": walk.vector,
        "STORE": walk.store,
        "TOGETHER": int(walk.together),
        "ROWWISE": int(walk.rowwise),
        "D_WALK": int(slices > 1),
        "STRIDE": rows.stride if rows.strided else 0,
        "KERNEL": rows.kernel if rows.strided else 1,
        "UNION": int(walk.union),
        "PACKED": int(walk.packed),
        "WINDOWS": walk.windows,
        "COLUMNS": across.most,
        "SLICES": most_windows(d),
        "UNIFORM": int(same_divisors(problem)),
        "ONCE": once,
        "BY_D": by_d,
        "BY_H": by_h,
        "BY_W": by_w,
        "THREADS": threads_of,
    }
    if walk.union:
        options |= {"STRIDE_W": across.stride, "KERNEL_W": across.kernel, "PADDING_W": across.padding}
    source = Source(
        "average_rolling.cu", "average_rolling", _ROLLING, (*task.defines, *sorted(options.items()))
    )
    arguments = (
        *(*problem.input_plane, inner, *problem.output_plane, rows.periods, rows.first, rows.padding),
        *(chunk, slices, threads, divider(vectors), divider(chunks), divider(cdiv(d.length, slices))),
        divider(inner),
        divider(rows.stride),
    )
    tables = window_tables(problem, rows, by)
    return (Launch(source, cdiv(threads, threads_of), threads_of, 0, tables, arguments),)
