"""Which GPU kernel computes a forward, on what grid, with which arguments. Pure: no device is touched.

FORWARD_KERNELS is the ordered list of each kind. Each entry is a function that returns its launches, or the
reason against it. The last one refuses nothing. The tensors of a launch are x, out and, of maxima with
indices or offsets, those.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ...geometry import Axis, cells_of_windows, spans
from ..reference import as_float
from .plan import Launch, Planner, Task
from .source import Source
from .tables import Array, cdiv, divider, even_share

THREADS = 256
UNROLLED = 16  # the most cells of a window on the w axis that are worth unrolling
ROWS_IN_REGISTERS = 5  # of windows that share rows
SECTION_BYTES = 48 << 10  # of shared memory that a block may take for longer windows
CELLS_IN_REGISTERS = 64  # that a thread reads for several averages
WIDE = 8  # cells: averages of windows farther apart are read by whole warps
WIDE_THREADS = 128
FEWEST_CELLS = 16  # for one thread, where threads share a window
_POWERS = frozenset(2.0**i for i in range(64))
_TENSORS = (("const Element*", "x"), ("Element*", "out"))
_DIVISORS = tuple(("double", f"divisor_{name}") for name in "dhw")
_PLACES = tuple(
    ("int", name) for name in ("dilation_d", "dilation_h", "dilation_w", "place_d", "place_h", "place_w")
)


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


def _axes(task: Task) -> tuple[Axis, Axis, Axis]:
    """The axes; adaptive windows of one length side by side are strided."""
    d, h, w = (
        Axis(axis.length, axis.outputs, axis.length // axis.outputs, axis.length // axis.outputs)
        if axis.adaptive and axis.outputs and axis.length and axis.length % axis.outputs == 0
        else axis
        for axis in task.problem.axes
    )
    return d, h, w


def _windows(axis: Axis) -> Windows:
    return Windows(axis.length, *cells_of_windows(axis), axis.dilation)


def _table(axes: tuple[Windows, ...], *more: Array) -> Array:
    parts = [part for axis in axes for part in (axis.first, axis.count)]
    return np.concatenate([*parts, *more]).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Walk:
    """How kernels of columns.h divide windows: `width` threads take a row, or a part of it, of each plane."""

    width: int
    w_chunks: int
    share: int
    h_chunk: int
    h_chunks: int

    @property
    def block(self) -> int:
        return cdiv(self.share * self.width, 32) * 32

    def grid(self, task: Task) -> int:
        return cdiv(task.planes, self.share) * self.w_chunks * task.problem.axes[0].outputs * self.h_chunks

    def arguments(self, task: Task, vector: int) -> tuple[object, ...]:
        problem, inner = task.problem, task.inner
        (_, h, w), (do, ho, wo) = problem.input_plane, problem.output_plane
        return (
            *(task.planes, prod(problem.input_plane) * inner, prod(problem.output_plane) * inner),
            *(h, w, do, ho, wo, inner, wo * inner, self.share, self.h_chunk),
            *(problem.axes[2].dilation * inner, _pitch(task)),
            *(divider(n) for n in (self.h_chunks, do, self.w_chunks, self.width, max(inner // vector, 1))),
        )


def _vector(task: Task) -> int:
    """How many neighbouring channels, or windows of a row, a thread takes."""
    halves = task.inner % 2 == 0 and task.problem.dtype.itemsize == 2
    return 2 if halves or _paired(task) else 1


def _paired(task: Task) -> bool:
    """Whether a thread can take two neighbouring windows of a row: they are alike, and none is left."""
    w = _axes(task)[2]
    alike = not w.adaptive and w.dilation == 1 and w.s <= w.k <= UNROLLED
    return task.inner == 1 and w.outputs % 2 == 0 and alike


def _pitch(task: Task) -> int:
    """The bytes of a row."""
    return task.problem.axes[2].length * task.inner * task.problem.dtype.itemsize


def _parameters(task: Task) -> tuple[tuple[str, str], ...]:
    """Those of columns.h."""
    return (
        ("const int*", "tables"),
        *(("i64", name) for name in ("planes", "plane_elements", "plane_windows")),
        *(("int", name) for name in ("H", "W", "Do", "Ho", "Wo", "inner", "columns", "share", "h_chunk")),
        *(("i64", "step"), ("int" if _pitch(task) < 2**31 else "i64", "pitch")),
        *(("Divider", f"by_{name}") for name in ("h_chunks", "do", "w_chunks", "width", "inner")),
    )


def _walk(task: Task, threads: int, shortest: int, vector: int, group: int = 1) -> Walk:
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
    wanted = 4 * task.facts.multiprocessors * task.facts.threads_per_multiprocessor // threads
    chunk = cdiv(even_share(ho, max(ho * blocks // wanted, shortest)), group) * group
    return Walk(width, w_chunks, share, chunk, cdiv(ho, chunk))


def _options(
    task: Task, vector: int, columns: int, clipped: tuple[bool, bool]
) -> tuple[tuple[str, int], ...]:
    """What the kernels of columns.h are specialised on; `clipped` on the h and w axes."""
    adjacent = task.inner == 1 and task.problem.axes[2].dilation == 1
    edges = (("CLIPPED_H", int(clipped[0])), ("CLIPPED_W", int(clipped[1])))
    return *task.defines, ("VECTOR", vector), ("COLUMNS", columns), ("ADJACENT", int(adjacent)), *edges


# Maxima


def reduced_maximum(task: Task) -> tuple[Launch, ...] | str:
    """Several threads share a window."""
    axes = tuple(_windows(axis) for axis in task.problem.axes)
    cells = float(np.prod([axis.count.mean() for axis in axes]))
    if cells < FEWEST_CELLS:
        return f"windows have {cells:.0f} cells, too few to share"
    overlap, apart = prod(axis.overlap for axis in axes), axes[2].length / axes[2].outputs * task.inner
    results = task.planes * task.inner * prod(task.problem.output_plane)
    resident = task.facts.multiprocessors * task.facts.threads_per_multiprocessor
    if overlap > 4 and results * 8 > resident:
        return f"a cell is in {overlap:.0f} windows"
    if results >= resident and apart < 8:
        return "neighbouring threads read neighbouring windows"
    if results >= resident and task.inner >= 32:
        return "neighbouring threads read neighbouring channels"
    return _reduced(task, cells, results)


def _reduced(task: Task, cells: float, results: int) -> tuple[Launch, ...] | str:
    problem, inner = task.problem, task.inner
    d, h, w = _merged(*(_windows(axis) for axis in problem.axes))
    lanes_c, (parts, lanes_w) = min(inner, 32), _parts(task, h, w, cells, results)
    groups = max(THREADS // (parts * lanes_c), 1)
    c_chunks = cdiv(inner, lanes_c)
    total = task.planes * prod(problem.output_plane) * c_chunks
    if total >= 2**31:
        return f"{total} groups of threads are more than a grid numbers"
    arguments = (
        *(prod(problem.input_plane) * inner, prod(problem.output_plane) * inner, total, w.dilation * inner),
        *(h.length, w.length, d.outputs, h.outputs, w.outputs, inner),
        *(parts, parts.bit_length() - 1, lanes_w, lanes_w.bit_length() - 1, groups),
        *_places(problem.offsets, (d, h, w)),
        *(divider(n) for n in (lanes_c, c_chunks, w.outputs, h.outputs, d.outputs)),
    )
    parameters = (
        *_TENSORS,
        *_index_parameter(task),
        ("const int*", "tables"),
        *(("i64", name) for name in ("plane_elements", "plane_windows", "total", "step")),
        *(("int", name) for name in ("H", "W", "Do", "Ho", "Wo", "inner")),
        *(("int", name) for name in ("parts", "log_parts", "lanes_w", "log_lanes_w", "groups")),
        *_PLACES,
        *(("Divider", f"by_{name}") for name in ("lanes_c", "c_chunks", "wo", "ho", "do")),
    )
    whole = d.outputs * h.outputs * w.outputs == 1 and d.most * h.most == 1 and w.count[0] == w.length
    unrolled = cdiv(w.most, lanes_w)
    options = (
        *(("WHOLE", int(whole and lanes_w == parts)), ("CELLS", unrolled if unrolled <= 8 else 0)),
        *(("WARP", int(32 % (parts * lanes_c) == 0)), ("THREADS", max(THREADS, parts * lanes_c))),
    )
    source = Source("maximum_reduce.cu", "maximum_reduce", parameters, (*task.defines, *options))
    block = groups * parts * lanes_c
    shared = block * (16 if problem.dtype.name == "FLOAT64" else 8)
    return (Launch(source, cdiv(total, groups), block, shared, (_table((d, h, w)),), arguments),)


def _parts(task: Task, h: Windows, w: Windows, cells: float, results: int) -> tuple[int, int]:
    """How many threads share a window, and how many of them a row of it."""
    resident = task.facts.multiprocessors * task.facts.threads_per_multiprocessor
    if task.inner > 1:
        most = max(THREADS // min(task.inner, 32), 1)
    else:
        most = 32 if results * 32 >= resident else THREADS
    # Windows that are far apart in memory must be read in pieces of 32 bytes.
    least = 32 // task.problem.dtype.itemsize if task.inner == 1 and w.outputs == 1 else 1
    parts = min(max(_power(cells / FEWEST_CELLS), min(least, _power(cells))), _power(most))
    lanes_w = min(_power(w.most), parts)
    return min(parts, lanes_w * _power(h.most)), lanes_w


def _power(x: float) -> int:
    """The largest power of two that is at most x; 1 for less."""
    return 1 << max(int(x).bit_length() - 1, 0)


def _merged(d: Windows, h: Windows, w: Windows) -> tuple[Windows, Windows, Windows]:
    """Axes whose windows hold whole rows become one axis, so that a window has fewer and longer rows."""
    unit = Windows(1, np.zeros(1, np.int64), np.ones(1, np.int64))
    for _ in range(2):
        if w.outputs != 1 or w.count[0] != w.length or w.dilation != 1 or h.dilation != 1:
            break
        d, h, w = unit, d, Windows(h.length * w.length, h.first * w.length, h.count * w.length)
    return d, h, w


def _places(offsets: bool, axes: tuple[Windows, ...]) -> tuple[int, ...]:
    """The dilations, and how far places are apart: slice to slice, row to row, cell to cell of a window."""
    _, h, w = axes
    dilations = tuple(axis.dilation for axis in axes)
    if offsets:
        return *dilations, h.most * w.most, w.most, 1
    return *dilations, dilations[0] * h.length * w.length, dilations[1] * w.length, dilations[2]


def _index_parameter(task: Task) -> tuple[tuple[str, str], ...]:
    return (("Index*", "places"),) if task.problem.index_bytes else ()


def rolling_maximum(task: Task) -> tuple[Launch, ...] | str:
    """The best cells of a window's rows stay in registers for the windows below."""
    reason, h = _no_steady_rows(task), _axes(task)[1]
    if reason is None and h.k > ROWS_IN_REGISTERS:
        reason = f"windows have {h.k} rows, of which registers hold at most {ROWS_IN_REGISTERS}"
    return reason or _columns(task, 1, THREADS, 0, (("ROWS", h.k), ("STRIDE", min(h.s, h.k))))


def sectioned_maximum(task: Task) -> tuple[Launch, ...] | str:
    """The best cells of a window's rows stand in shared memory for the windows below."""
    reason, h = _no_steady_rows(task), _axes(task)[1]
    if reason is not None:
        return reason
    if h.s >= h.k or h.outputs == 1:
        return "windows share no rows"
    size = task.sum_bytes * (2 if task.problem.index_bytes else 1) * _vector(task)
    most = min(SECTION_BYTES, task.facts.shared_per_block)
    threads = next((n for n in (256, 128, 64, 32) if n * h.k * size <= most), 0)
    if not threads:
        return f"32 threads would need {32 * h.k * size} bytes of shared memory"
    return _columns(task, 2, threads, threads * h.k * size, ())


def direct_maximum(task: Task) -> tuple[Launch, ...] | str:
    """Each window is read alone."""
    return _columns(task, 0, THREADS, 0, ())


def _no_steady_rows(task: Task) -> str | None:
    """Why windows are not equally many neighbouring rows of one slice, a stride apart; else None."""
    d, h, _ = axes = _axes(task)
    if h.adaptive:
        return "windows differ in how many rows they have"
    if h.dilation > 1:
        return "the rows of a window are not neighbours"
    if any(_windows(axis).empty for axis in axes):
        return "some windows have no cell"
    return None if _windows(d).most == 1 else "windows have several slices"


def _columns(
    task: Task, walk: int, threads: int, shared: int, options: tuple[tuple[str, int], ...]
) -> tuple[Launch, ...]:
    _, rows, steps = _axes(task)
    d, h, w = (_windows(axis) for axis in task.problem.axes)
    paired = walk > 0 and _paired(task)
    vector = _vector(task) if paired or task.inner > 1 else 1
    shape = _walk(task, threads, (1, 4 * rows.k, 4 * rows.k)[walk], vector)
    columns = steps.k if paired else w.most if w.most <= UNROLLED else 0
    parameters = (*_TENSORS, *_index_parameter(task), *_parameters(task), *_PLACES)
    parameters += tuple(("int", name) for name in ("padding", "padding_w", "rows", "stride"))
    # A section may reach beyond the last window.
    clipped_h = walk == 2 or bool((h.count != rows.k).any())
    clipped_w = bool((w.count != steps.k).any()) if paired else bool(w.clipped)
    defines = (
        *_options(task, vector, columns, (clipped_h, clipped_w)),
        *(("PAIRED", int(paired)), ("STRIDE_W", steps.s if paired else 0)),
        *(("WALK", walk), *options, ("THREADS", threads)),
    )
    source = Source("maximum.cu", "maximum", parameters, defines)
    numbers = (rows.p, steps.p, rows.k, rows.s)
    arguments = (*shape.arguments(task, vector), *_places(task.problem.offsets, (d, h, w)), *numbers)
    return (Launch(source, shape.grid(task), shape.block, shared, (_table((d, h, w)),), arguments),)


# Averages


def mean_average(task: Task) -> tuple[Launch, ...] | str:
    """The mean of whole planes, in 16 sums."""
    if task.problem.quotient != "mean":
        return "it is no mean of whole planes"
    inner, cells = task.inner, prod(task.problem.input_plane)
    channels = min(inner, 32)
    c_chunks = cdiv(inner, channels)
    threads = 16 * channels if inner > 1 else THREADS
    grid = task.planes * c_chunks if inner > 1 else cdiv(task.planes, THREADS // 16)
    parameters = (
        *_TENSORS,
        *(("i64", "planes"), ("int", "cells"), ("int", "inner")),
        *(("Divider", "by_channels"), ("Divider", "by_c_chunks")),
    )
    defines = (*task.defines, ("INNER", int(inner > 1)), ("THREADS", threads))
    source = Source("mean.cu", "mean", parameters, defines)
    arguments = (task.planes, cells, inner, divider(channels), divider(c_chunks))
    return (Launch(source, grid, threads, threads * task.sum_bytes, (), arguments),)


def wide_average(task: Task) -> tuple[Launch, ...] | str:
    """A warp reads the rows of 32 windows together."""
    problem, outputs = task.problem, task.problem.output_plane
    d, h, w = (_windows(axis) for axis in problem.axes)
    apart = w.length / w.outputs
    if task.inner > 1:
        return "channels are innermost, and neighbouring threads read neighbouring channels"
    if apart < WIDE or w.most < WIDE:
        return f"windows are {apart:.0f} cells apart, near enough for neighbouring threads"
    if w.overlap > 2:
        return f"a row is read {w.overlap:.0f} times"
    total = task.planes * prod(outputs)
    if total >= 2**31:
        return f"{total} windows are more than a divider takes"
    lanes = max(min(_power(2 * w.most - 1), 32), 8)
    warp_bytes = 32 * (8 + 4) + 32 * (lanes + 1) * task.sum_bytes
    parameters = (
        *_TENSORS,
        ("const int*", "tables"),
        *(("i64", name) for name in ("total", "plane_elements")),
        *(("int", name) for name in ("H", "W", "Do", "Ho", "Wo", "warp_bytes")),
        *(("int", name) for name in ("most_d", "most_h", "most_w")),
        *(("Divider", f"by_{name}") for name in ("wo", "ho", "do")),
        *_DIVISORS,
    )
    divisors, numbers, options = _division(task)
    arguments = (
        *(total, prod(problem.input_plane), h.length, w.length, *outputs, warp_bytes),
        *(d.most, h.most, w.most, *(divider(n) for n in reversed(outputs)), *numbers),
    )
    defines = (*task.defines, *options, ("LANES", lanes), ("THREADS", WIDE_THREADS))
    source = Source("average_wide.cu", "average_wide", parameters, defines)
    shared = WIDE_THREADS // 32 * warp_bytes
    grid = cdiv(total, WIDE_THREADS)
    return (Launch(source, grid, WIDE_THREADS, shared, (_table((d, h, w), *divisors),), arguments),)


def column_average(task: Task) -> tuple[Launch, ...] | str:
    """A thread walks down a column of windows."""
    problem, (_, rows, steps) = task.problem, _axes(task)
    d, h, w = (_windows(axis) for axis in problem.axes)
    windows = min(4 if h.overlap >= 2 else 2 if h.overlap > 1.25 else 1, h.outputs)
    columns = w.most if w.most <= UNROLLED else 0
    height = rows.k + (windows - 1) * rows.s
    unrolled = not rows.adaptive and 0 < columns * height <= CELLS_IN_REGISTERS
    paired = unrolled and _paired(task) and (steps.k + steps.s) * height <= CELLS_IN_REGISTERS
    vector = _vector(task) if paired or task.inner > 1 else 1
    clipped_w = bool((w.count != steps.k).any()) if paired else bool(w.clipped)
    shape = _walk(task, THREADS, windows, vector, windows)
    divisors, numbers, options = _division(task)
    defines = (
        *_options(task, vector, steps.k if paired else columns, (bool((h.count != rows.k).any()), clipped_w)),
        *(("ROWS", rows.k if unrolled else 0), ("STRIDE", rows.s if unrolled else 0), ("WINDOWS", windows)),
        *(("PAIRED", int(paired)), ("STRIDE_W", steps.s if paired else 0)),
        *(("DEEP", int(d.most > 1 or d.empty)), *options, ("THREADS", THREADS)),
    )
    parameters = (*_TENSORS, *_parameters(task), ("int", "padding"), ("int", "padding_w"), *_DIVISORS)
    source = Source("average.cu", "average", parameters, defines)
    arguments = (*shape.arguments(task, vector), rows.p, steps.p, *numbers)
    table = _table((d, h, w), *divisors)
    return (Launch(source, shape.grid(task), shape.block, 0, (table,), arguments),)


def _division(task: Task) -> tuple[tuple[Array, ...], list[float], tuple[tuple[str, int], ...]]:
    """The divisors per axis, those of all windows if they are the same, and the defines of quotients.h."""
    problem, divisors = task.problem, _divisors(task)
    uniform = all(len(np.unique(axis)) == 1 for axis in divisors) or problem.quotient == "override"
    numbers = _uniform(task, divisors) if uniform else [1.0, 1.0, 1.0]
    exact = uniform and all(abs(n) in _POWERS for n in numbers)
    options = (
        ("CHAINED", int(problem.quotient == "chained")),
        *((f"BY_{name}", int((axis != 1).any())) for name, axis in zip("DHW", divisors, strict=True)),
        *(("UNIFORM", int(uniform)), ("EXACT", int(exact))),
        ("SMALL", int(prod(int(axis.max(initial=1)) for axis in divisors) < 2**24)),
    )
    return divisors, [1 / n if exact else n for n in numbers], options


def _divisors(task: Task) -> tuple[Array, ...]:
    """What each window's sum is divided by, axis by axis; ones for an override."""
    problem = task.problem
    found = [spans(axis) for axis in problem.axes]
    if problem.quotient == "override":
        return tuple(np.ones_like(start) for start, _, _ in found)
    return tuple(extent if problem.quotient == "extent" else end - start for start, end, extent in found)


def _uniform(task: Task, divisors: tuple[Array, ...]) -> list[float]:
    """The divisors of all windows as the sum's type holds them: on d, h and w, or their product and ones."""
    problem, dtype = task.problem, task.problem.dtype.accumulator
    if problem.quotient == "chained":
        return [float(as_float(int(axis[0]), dtype)) for axis in divisors]
    product = prod(int(axis[0]) for axis in divisors)
    divisor = problem.divisor if problem.quotient == "override" else product
    return [float(as_float(divisor, dtype)), 1.0, 1.0]


FORWARD_KERNELS: dict[str, tuple[tuple[str, Planner], ...]] = {
    "maximum": (
        ("maximum of shared windows", reduced_maximum),
        ("rolling maximum", rolling_maximum),
        ("sectioned maximum", sectioned_maximum),
        ("direct maximum", direct_maximum),
    ),
    "average": (
        ("mean of planes", mean_average),
        ("average of wide windows", wide_average),
        ("average of columns", column_average),
    ),
}
