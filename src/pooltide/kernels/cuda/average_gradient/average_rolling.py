"""Plans `rolling average`, average_rolling.cu: threads keep the last rows of windows in registers."""

from __future__ import annotations

from dataclasses import dataclass

from ..cost import Shape, fastest, stacked
from ..kernel_tables import cdiv, divider, division_cost, even_share, is_ragged, most_windows
from ..source import Argument
from ..task import FEW_THREADS, THREADS, Launch, Task, Work
from . import average_rows
from .average_rows import POINTERS, SIZES, Rows, average_launch

RESIDENT = 4  # rows are cut into chunks until there are RESIDENT times the threads that a device holds
SHORT_SLICE = 24  # rows; a thread walks through several slices if they have at most so many rows together
SHORT_RUNS = 4  # least runs of rows for a thread; for fewer runs its setup costs too much
WINDOW_BITS = 32  # the most windows in a row of a thread; average_rolling.cu has one bit of a u32 for each
IN_REGISTERS = 48  # the most quotients that a thread keeps in registers
KERNEL = "rolling average"  # in costs.json
_ROLLING = (
    *POINTERS,
    *SIZES,
    *(("int", name) for name in ("periods", "first_period", "padding", "chunk", "d_chunk", "threads")),
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
    def loads(self) -> float:
        """Windows that a thread loads and divides for each cell."""
        d, h, _ = self.task.problem.axes
        rows = 1.0 if self.rowwise else h.outputs / h.length  # of windows that a thread loads for each row
        return most_windows(d) * self.windows * rows / self.vector

    @property
    def additions(self) -> float:
        """Of each cell. Rows of a run have the same sums."""
        d, h, _ = self.task.problem.axes
        rows = (
            self.rows.kernel / self.rows.stride
            if self.rows.strided
            else self.rows.runs[:, 3].sum() / h.length
        )
        return float(most_windows(d) * rows * self.columns.most)

    @property
    def kept(self) -> int:
        """Quotients in registers."""
        return self.kept_rows * most_windows(self.task.problem.axes[0]) * self.windows

    def refuse(self) -> str | None:
        """Why a thread can't walk so; else None."""
        if self.rows.most > self.kept_rows:
            return f"a row is in {self.rows.most} windows, of which a thread keeps {self.kept_rows}"
        if self.kept > IN_REGISTERS:
            return f"a thread would keep {self.kept} quotients in registers, of at most {IN_REGISTERS}"
        if self.windows > WINDOW_BITS:
            return f"a thread would look at {self.windows} windows of a row, of at most {WINDOW_BITS}"
        if not (self.union or self.packed) and self.vector > 4:
            return "a thread would keep the places of too many elements"
        if self.vector > self.store * (2 if self._two else 1):
            return "a thread would write too many parts of a row"
        return None

    @property
    def halves(self) -> bool:
        return self.task.problem.dtype.itemsize == 2

    @property
    def _two(self) -> bool:
        """Whether rows of halves that begin anywhere are long enough for two elements per thread."""
        wide = self.task.problem.axes[2].length >= 32 and self.columns.most > 1 and self.columns.stride == 1
        return self.union and wide and self.halves


def _walk(task: Task, vector: int) -> Walk:
    """`vector`: the elements of a thread."""
    _, h, w = task.problem.axes
    ragged = is_ragged(task.problem)
    rows, store = average_rows.rows_of(h, ragged), vector if task.aligned else 1
    if rows.strided and not rows.unrolled:
        rows = average_rows.runs_of(h)
    while (w.length * task.inner) % store:
        store //= 2
    return Walk(task, rows, average_rows.rows_of(w, ragged), vector, store)


def rolling_average(task: Task) -> tuple[Launch, ...] | str:
    """A thread walks down columns of some bytes, and keeps the last rows of windows in registers."""
    task = average_rows.folded(task)
    vectors = [size // task.problem.dtype.itemsize for size in (16, 8, 4, 2)]
    walks = [_walk(task, vector) for vector in vectors if vector]
    legal = [(walk, _cut(walk)) for walk in walks if walk.refuse() is None]
    best = fastest(task, KERNEL, stacked([_shape(*one) for one in legal]), True) if legal else None
    return walks[-1].refuse() or "" if best is None else _rolling(*legal[best])


@dataclass(frozen=True, slots=True)
class _Cut:
    """How the rows of all planes are divided among threads."""

    vectors: int  # of a row
    slices: int  # that a thread walks through
    chunk: int  # periods of rows of a thread
    chunks: int
    threads: int
    block: int

    @property
    def grid(self) -> int:
        return cdiv(self.threads, self.block)


def _cut(walk: Walk) -> _Cut:
    task, rows = walk.task, walk.rows
    d, h, w = task.problem.axes
    vectors = cdiv(w.length * task.inner, walk.vector)
    slices = even_share(d.length, SHORT_SLICE // h.length)
    columns = task.planes * cdiv(d.length, slices) * vectors
    short = max(rows.fewest, 2 * walk.kept_rows) if rows.strided else SHORT_RUNS
    wanted = RESIDENT * task.facts.multiprocessors * task.facts.threads_per_multiprocessor
    chunk = even_share(rows.periods, max(min(rows.periods, cdiv(rows.periods * columns, wanted)), short))
    chunks = cdiv(rows.periods, chunk)
    if walk.rowwise:
        most = max(chunks * rows.stride, cdiv(32, vectors))  # the lanes of a warp write neighbouring rows
        chunks = cdiv(h.length, cdiv(h.length, most))
    return _Cut(vectors, slices, chunk, chunks, columns * chunks, THREADS if rows.strided else FEW_THREADS)


def _shape(walk: Walk, cut: _Cut) -> Shape:
    return Shape(cut.grid, cut.block, 0, _registers(walk), _work(walk, cut.grid * cut.block))


def _rolling(walk: Walk, cut: _Cut) -> tuple[Launch, ...] | str:
    task, rows, across, shape = walk.task, walk.rows, walk.columns, _shape(walk, cut)
    problem, (d, _, _) = task.problem, task.problem.axes
    if cut.threads >= 2**31:
        return "the threads are too many to count"
    options: tuple[tuple[str, int], ...] = (
        *(("VECTOR", walk.vector), ("STORE", walk.store), ("TOGETHER", int(walk.together))),
        *(("ROWWISE", int(walk.rowwise)), ("D_WALK", int(cut.slices > 1))),
        *(("STRIDE", rows.stride if rows.strided else 0), ("KERNEL", rows.kernel if rows.strided else 1)),
        *(("UNION", int(walk.union)), ("PACKED", int(walk.packed)), ("WINDOWS", walk.windows)),
        *(("COLUMNS", across.most), ("SLICES", most_windows(d)), ("THREADS", cut.block)),
    )
    if walk.union:
        of_w = ("STRIDE_W", across.stride), ("KERNEL_W", across.kernel), ("PADDING_W", across.padding)
        options = *options, *of_w
    arguments: tuple[Argument, ...] = (
        *(*problem.input_plane, task.inner, *problem.output_plane, rows.periods, rows.first, rows.padding),
        *(cut.chunk, cut.slices, cut.threads, divider(cut.vectors), divider(cut.chunks)),
        *(divider(n) for n in (cdiv(d.length, cut.slices), task.inner, rows.stride)),
    )
    return average_launch(
        task,
        "average_rolling",
        _ROLLING,
        options,
        average_rows.window_tables(problem, rows),
        arguments,
        grid=shape.grid,
        shared=0,
        work=shape.work,
        registers=shape.registers,
    )


def _work(walk: Walk, threads: int) -> Work:
    problem, cells = walk.task.problem, walk.task.problem.cells
    double, loads, stores = walk.task.sum_bytes // 4, walk.loads * cells, cells / walk.store
    return (
        ("windows", loads),
        ("divisions", loads * division_cost(problem) * double),
        ("windows with places", 0 if walk.union or walk.packed else loads),
        ("windows entered again", threads * walk.windows * most_windows(problem.axes[0])),
        ("additions", walk.additions * cells * double),
        *(("cells", cells), ("cells of runs", 0 if walk.rows.strided else cells)),
        *(("stores", stores), ("16-bit stores", stores * walk.halves)),
        ("stores of channels", stores * (walk.task.inner > 1)),
        ("threads", threads),
    )


def _registers(walk: Walk) -> int:
    return min(max(24 + walk.kept * walk.task.sum_bytes // 4, 32), 255)
