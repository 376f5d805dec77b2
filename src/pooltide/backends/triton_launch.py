"""The GPU backend: from a problem to launches of the Triton kernels, planned once and replayed.

    run(problem, layout, grad_output, indices, out, faults)    enqueues on the tensors' current stream
    index_errors(device)                                       what the indexed kernels met so far

A plan is the kernels, their grids and every argument but the tensors' addresses. It is kept per
(problem, layout, device, alignment), with the compiled kernels, so that a call is a dictionary lookup
and a launch. What kernels are compiled for is window counts, strides and vector widths, never sizes:
sizes are run-time arguments, so another batch or plane compiles nothing. Nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import gcd, prod
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from ..geometry import UNIT, Axis, tables
from ..problem import Problem
from . import triton_average as average
from . import triton_indexed as indexed

LAYOUTS = frozenset({"planes", "channels_last"})
LANES = 128
_FLAT = 256
_BLOCK = 256
_PROGRAMS = 132 * 32  # enough to fill a large GPU twice over
_ROWS = 16  # what a lane writes in one program, at least, where there is enough to do
_NONE = 2**63 - 1
_UNROLLED = 8
_BYTES = 16
_PIECE = 8
_SHARE = 2**12  # words that a scattering program clears, twice as many cells of volumes

Array = NDArray[Any]


def refuse(problem: Problem, layout: str = "planes") -> str | None:
    limit = 2**30
    inner = problem.batch[1] if layout == "channels_last" else 1
    if max(prod(problem.input_plane), prod(problem.output_plane)) * inner > limit:
        return f"{'an image' if inner > 1 else 'a plane'} has more than {limit} elements"
    if problem.rounding != "keep":
        return f"it does not round gradOutput to {problem.rounding}"
    return None


def run(
    problem: Problem,
    layout: str,
    grad_output: torch.Tensor,
    indices: torch.Tensor | None,
    out: torch.Tensor,
    faults: torch.Tensor | None = None,
) -> None:
    """Write every cell of `out`. Tensors are 5-D (N, C, D, H, W), dense in `layout`, on one GPU.

    `faults` is what indices outside the plane are counted in, by default the device's own record.
    """
    if problem.cells == 0:
        return None
    if grad_output.numel() == 0:
        out.zero_()
        return None
    device = out.get_device()
    if device >= 0 and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return run(problem, layout, grad_output, indices, out, faults)
    return prepare(problem, layout, device)(grad_output, indices, out, faults)


@dataclass(slots=True)
class Ready:
    """A problem's launches on one device, by the alignment of the tensors."""

    problem: Problem
    layout: str
    device: int
    plans: dict[tuple[bool, ...], tuple[Launch, ...]] = field(default_factory=dict)

    def __call__(
        self,
        grad_output: torch.Tensor,
        indices: torch.Tensor | None,
        out: torch.Tensor,
        faults: torch.Tensor | None = None,
    ) -> None:
        if indices is None:
            self._launches(grad_output, out)[0](self.device, (grad_output, out))
            return
        launches = self._launches(grad_output, indices, out)
        faults = record(self.device) if faults is None else faults
        if len(launches) == 1:
            launches[0](self.device, (grad_output, indices, out, faults, faults))
            return
        flags = torch.empty(launches[0].grid, dtype=torch.int32, device=out.device)
        for launch in launches:
            launch(self.device, (grad_output, indices, out, faults, flags))

    def _launches(self, *tensors: torch.Tensor) -> tuple[Launch, ...]:
        aligned = tuple([tensor.data_ptr() % 16 == 0 for tensor in tensors])
        if (found := self.plans.get(aligned)) is None:
            found = self.plans[aligned] = _plan(self.problem, self.layout, self.device)
        return found


@lru_cache(maxsize=1024)
def prepare(problem: Problem, layout: str, device: int) -> Ready:
    """What `run` calls when its tensors are on the current device and hold elements."""
    return Ready(problem, layout, device)


def new_record(device: torch.device | int) -> torch.Tensor:
    """(how many, position of the first) indices outside their plane: none yet."""
    where = device if isinstance(device, torch.device) or device >= 0 else "cpu"
    return torch.tensor([0, _NONE], dtype=torch.int64, device=where)


@cache
def record(device: int) -> torch.Tensor:
    return new_record(device)


def index_errors(device: int, clear: bool = False) -> tuple[int, int | None]:
    """How many indices outside their plane were dropped on the device, and where the first one was.

    The place is flat over (N, C, Do, Ho, Wo), the smallest of all calls since the record was cleared.
    This waits for the device.
    """
    kept = record(device)
    count, position = (int(value) for value in kept.tolist())
    if clear:
        kept.copy_(new_record(-1))
    return count, None if position == _NONE else position


@dataclass(slots=True)
class Launch:
    kernel: Any
    grid: int
    tables: tuple[torch.Tensor, ...]
    arguments: tuple[int, ...]  # sizes, then constants
    warps: int = 4
    compiled: Any = field(default=None)
    tail: tuple[int, ...] = field(default=())

    def __call__(self, device: int, tensors: tuple[torch.Tensor, ...]) -> None:
        """The first launch compiles; later ones skip Triton's dispatch, which costs more than a launch."""
        if self.compiled is None:
            self.compiled = self.kernel[(self.grid,)](
                *tensors, *self.tables, *self.arguments, num_warps=self.warps, enable_fp_fusion=False
            )
            self.tail = (*(table.data_ptr() for table in self.tables), *self.arguments)
            return
        kernel = self.compiled
        stream = triton.runtime.driver.active.get_current_stream(device)
        addresses = [tensor.data_ptr() for tensor in tensors]
        kernel.run(
            self.grid, 1, 1, stream, kernel.function, kernel.packed_metadata, None, None, None,
            *addresses, *self.tail
        )  # fmt: skip


def _plan(problem: Problem, layout: str, device: int) -> tuple[Launch, ...]:
    if problem.kind == "indexed":
        return _indexed(problem, layout, device)
    if layout == "planes" and all(axis.whole for axis in problem.axes):
        return (_whole(problem, device),)
    if layout == "planes" and (patch := _patch(problem)):
        return (_phases(problem, device, *patch),)
    if _lanes(problem, layout).full and all(tables(axis).count.max() <= 1 for axis in problem.axes):
        return (_single(problem, layout, device),)
    return (_rows(problem, layout, device),)


def _whole(problem: Problem, device: int) -> Launch:
    plane = prod(problem.input_plane)
    vector = _BYTES // problem.dtype.itemsize
    grid = triton.cdiv(problem.cells, _FLAT * vector)
    ragged, wide = problem.cells % vector != 0, problem.cells >= 2**31 - _FLAT * vector
    constants = (_FLAT, vector, vector <= plane, ragged, wide, *_division(problem))
    sizes = (plane, problem.planes, *_magic(plane))
    return Launch(average.whole, grid, (_divisor_table(problem, device),), (*sizes, *constants))


def _single(problem: Problem, layout: str, device: int) -> Launch:
    d, h, w = problem.axes
    lanes = _lanes(problem, layout)
    count = problem.cells // lanes.vector
    even = all(len(np.unique(axis)) == 1 for axis in _divisors(problem))
    inner = max(lanes.inner // lanes.vector, 1)
    sizes = (
        *(count, lanes.groups, inner, d.length, h.length, *problem.output_plane),
        *(*_magic(lanes.groups), *_magic(inner), *_magic(d.length), *_magic(h.length)),
    )
    wide = count >= 2**31 - _FLAT
    constants = (_FLAT, lanes.vector, lanes.last, even, wide, *_division(problem))
    of_w = tables(w).first[:: 1 if lanes.last else lanes.vector]
    places = _upload(np.concatenate([_window_of(d), _window_of(h), of_w]), np.int32, device)
    kept = (places, _divisor_table(problem, device))
    return Launch(average.single, triton.cdiv(count, _FLAT), kept, (*sizes, *constants))


def _rows(problem: Problem, layout: str, device: int) -> Launch:
    d, h, w = problem.axes
    lanes = _lanes(problem, layout)
    edges = [_segments(axis) for axis in (d, h)]
    segments, rows = len(edges[0]) * len(edges[1]), d.length * h.length
    chunk = _chunk(segments, rows, lanes)
    sizes = (
        *(lanes.count, lanes.groups, max(lanes.inner // lanes.vector, 1)),
        *(h.length, rows, h.outputs, w.outputs, d.outputs * h.outputs),
        *(len(edges[1]), segments, chunk, triton.cdiv(segments, chunk), lanes.reach),
    )
    unrolled = lanes.reach if lanes.reach <= _UNROLLED else 0
    wide = lanes.count >= 2**31 - LANES
    constants = (LANES, lanes.vector, lanes.last, unrolled, wide, *_division(problem))
    grid = triton.cdiv(lanes.count, LANES) * triton.cdiv(segments, chunk)
    kept = [_upload(table, np.int32, device) for table in (np.concatenate(edges), lanes.columns)]
    return Launch(average.rows, grid, (*kept, _divisor_table(problem, device)), (*sizes, *constants))


def _phases(problem: Problem, device: int, vector: int, patch_rows: int) -> Launch:
    _, h, w = problem.axes
    groups = triton.cdiv(w.length, vector)
    row_blocks = triton.cdiv(h.length, patch_rows)
    lanes = problem.planes * groups
    divisors = _divisors(problem)
    even = all(len(np.unique(axis)) == 1 for axis in divisors[1:])
    constants = (
        *(LANES, vector, patch_rows, h.k, h.s, h.p, w.k, w.s, w.p),
        *(*_reach(h, patch_rows), *_reach(w, vector)),
        *(even, w.length % vector != 0, lanes >= 2**31 - LANES, _division(problem)[0]),
    )
    sizes = (lanes, groups, h.length, w.length, h.outputs, w.outputs, row_blocks)
    grid = triton.cdiv(lanes, LANES) * row_blocks
    return Launch(average.phases, grid, (_divisor_table(problem, device),), (*sizes, *constants))


def _indexed(problem: Problem, layout: str, device: int) -> tuple[Launch, ...]:
    d, h, w = problem.axes
    last = layout == "channels_last"
    inner = problem.batch[1] if last else 1
    outers = problem.planes // inner
    cells, q = prod(problem.input_plane), prod(problem.output_plane)
    vector = _BYTES // problem.dtype.itemsize
    deep = d.length * d.outputs > 1
    most_cells = (_SHARE * 2 if deep else _SHARE * 4 // problem.dtype.itemsize) // inner
    own = not last and cells <= most_cells
    group = vector // gcd(cells, vector)
    share = max(most_cells // cells // group, 1) * group if own else 1
    while own and share > group and triton.cdiv(outers, share) < _PROGRAMS:
        share = max(share // 2 // group, 1) * group
    pieces = _cuts(problem.axes, cells if own else max(most_cells, 1))
    ragged = any(bool((table * inner * share % vector).any()) for table in (pieces[:, 0], pieces[:, 1]))
    ragged = ragged or problem.cells % vector != 0
    most = [int(tables(axis).count.max()) for axis in problem.axes]
    unrolled = most if max(most) <= 2 else (0, 0, 0)
    sizes = (
        *(outers, share, len(pieces), cells, *problem.input_plane, h.outputs, w.outputs, q),
        *(inner, *most, *_magic(q), *_magic(inner), *_magic(h.length), *_magic(w.length)),
    )
    constants = (_BLOCK, vector, last, own, ragged, *unrolled, deep)
    grid = triton.cdiv(outers, share) * len(pieces)
    found = [tables(axis) for axis in problem.axes]
    strides = (h.outputs * w.outputs, w.outputs, 1)
    firsts = [table.first * stride for table, stride in zip(found, strides, strict=True)]
    holders = np.concatenate([*firsts, *(table.count for table in found)])
    kept = (_upload(pieces, np.int32, device), _upload(holders, np.int32, device))
    warps = 8 if deep and problem.dtype.itemsize >= 4 else 4
    scatter = Launch(indexed.scatter, grid, kept, (*sizes, *constants), warps)
    if own:
        return (scatter,)
    splits = max(min(_PROGRAMS // outers, triton.cdiv(q * inner, _BLOCK)), 1)
    sizes = (splits, len(pieces), cells, q, inner)
    return scatter, Launch(indexed.repair, outers * splits, (), (*sizes, _BLOCK))


def _cuts(axes: tuple[Axis, ...], cells: int) -> Array:
    """A plane in pieces of whole slices, or of whole rows of one slice, of at most about `cells` cells.

    Each is (first cell, end, window ranges, first window, windows of a range, range to range).
    """
    d, h, w = axes
    slices = min(max(cells // (h.length * w.length), 1), d.length)
    rows = min(max(cells // w.length, 1), h.length)
    pieces = []
    for d0 in range(0, d.length, slices):
        d1 = min(d0 + slices, d.length)
        from_d, to_d = _between(d, d0, d1)
        for h0 in range(0, h.length, rows):
            h1 = min(h0 + rows, h.length)
            from_h, to_h = _between(h, h0, h1)
            whole = from_h == 0 and to_h == h.outputs
            ranges = 1 if whole else to_d - from_d
            windows = (to_h - from_h) * w.outputs * (to_d - from_d if whole else 1)
            first = (from_d * h.outputs + from_h) * w.outputs
            begin, end = (d0 * h.length + h0) * w.length, ((d1 - 1) * h.length + h1) * w.length
            pieces.append((begin, end, ranges, first, windows, h.outputs * w.outputs))
    return np.array(pieces)


def _between(axis: Axis, begin: int, end: int) -> tuple[int, int]:
    """The windows that hold one of the cells begin…end − 1: the first, and one past the last."""
    table = tables(axis)
    return int(table.first[begin]), int(table.first[end - 1] + table.count[end - 1])


@dataclass(frozen=True, slots=True)
class Lanes:
    inner: int
    vector: int  # elements of a group
    groups: int  # of a row
    count: int
    last: bool  # channels last
    columns: Array = field(compare=False)  # the kernels' `columns`
    reach: int  # windows that hold a column of a group, at most
    full: bool  # all columns of a group are in one window, and no more


def _lanes(problem: Problem, layout: str) -> Lanes:
    last = layout == "channels_last"
    width, inner = problem.axes[2].length, problem.batch[1] if last else 1
    vector = _BYTES // problem.dtype.itemsize
    while (inner if last else width) % vector:
        vector //= 2
    table = tables(problem.axes[2])
    first, count = (t.reshape(-1, 1 if last else vector) for t in (table.first, table.count))
    base = first[:, :1]
    columns = np.concatenate([base.ravel(), (first - base).ravel(), table.count])
    reach = max(int((first - base + count).max()), 1)
    full = bool((first == base).all() and (count == 1).all())
    groups = width * inner // vector
    lanes = problem.planes * width // vector
    return Lanes(inner, vector, groups, lanes, last, columns, reach, full)


def _chunk(segments: int, rows: int, lanes: Lanes) -> int:
    """How many of a plane's (d, h) segments one program does."""
    blocks = triton.cdiv(lanes.count, LANES)
    chunk = max(1, _ROWS * segments // rows)
    while chunk > 1 and blocks * triton.cdiv(segments, chunk) < _PROGRAMS:
        chunk //= 2
    return chunk


def _patch(problem: Problem) -> tuple[int, int] | None:
    """Columns and rows of a lane's patch, where windows are strided and their strides small, or None."""
    d, h, w = problem.axes
    if d != UNIT or h.adaptive or w.adaptive:
        return None
    vector = max(_BYTES // problem.dtype.itemsize, 4)
    while vector > max(w.s, 4) and w.length % vector:
        vector //= 2
    taps = triton.cdiv(h.k, h.s) * triton.cdiv(w.k, w.s)
    if vector % w.s or taps > 25:
        return None
    tallest = 8 if h.s == 1 else max(4, h.s)
    heights = [r for r in range(h.s, tallest + 1, h.s) if _reach(h, r)[1] * _reach(w, vector)[1] <= 64]
    if not heights:
        return None

    def cost(r: int) -> float:
        quotients = _reach(h, r)[1] * _reach(w, vector)[1]
        return triton.cdiv(h.length, r) * (6 * quotients + r * vector * (taps + 1))

    return vector, min(reversed(heights), key=cost)


def _reach(axis: Axis, cells: int) -> tuple[int, int]:
    """The windows of `cells` neighbours, from a multiple of the stride on: the first, and how many."""
    first = (axis.p - axis.k) // axis.s + 1
    return first, (cells - 1 + axis.p) // axis.s - first + 1


def _magic(n: int) -> tuple[int, int]:
    """(m, s) with x // n = x·m >> 32 + s for all x < 2**31; m as a signed word."""
    shift = max((n - 1).bit_length() - 1, 0)
    magic = -(-(2 ** (32 + shift)) // n) if n > 1 else 0
    return (magic - 2**32 if magic >= 2**31 else magic), shift


def _divisors(problem: Problem) -> tuple[Array, Array, Array]:
    """What each window's quotient is divided by, axis by axis; all but "chained" by the product."""
    found = [tables(axis) for axis in problem.axes]
    if problem.quotient == "override":
        return np.ones(1), np.full(problem.axes[1].outputs, problem.divisor), np.ones(problem.axes[2].outputs)
    if problem.quotient == "extent":
        return found[0].extent, found[1].extent, found[2].extent
    d, h, w = (np.maximum(table.end - table.start, 1) for table in found)
    return d, h, w


@lru_cache(maxsize=1024)
def _division(problem: Problem) -> tuple[int, int, int, int]:
    """The kernels' ways to divide: once by the product, or by d, h and w."""
    d, h, w = (np.unique(np.asarray(axis, dtype=np.float64)) for axis in _divisors(problem))
    if problem.quotient == "chained":
        return 0, _way(problem, d), _way(problem, h), _way(problem, w)
    return max(_way(problem, np.multiply.outer(h, w)), 1), 0, 0, 0


def _way(problem: Problem, divisors: Array) -> int:
    values = [abs(x) for x in divisors.ravel().tolist()]
    if all(x == 1 for x in values):
        return 0
    if all(x in _POWERS for x in values):
        return 1
    easy = all(x < 2**20 and (x % 2 == 1 or x in _POWERS) for x in values)
    return 2 if easy and problem.dtype.name != "FLOAT64" and not INTERPRETED else 3


_POWERS = frozenset(2.0**i for i in range(64))
INTERPRETED = not isinstance(average.whole, triton.JITFunction)  # whose fma rounds twice


def _segments(axis: Axis) -> Array:
    """Runs of at most _PIECE cells in the same windows: (start, length, first window, windows) each."""
    table = tables(axis)
    change = (np.diff(table.first) != 0) | (np.diff(table.count) != 0)
    edges = np.concatenate([[0], np.flatnonzero(change) + 1])
    run = np.arange(axis.length) - np.repeat(edges, np.diff(np.append(edges, axis.length)))
    start = np.flatnonzero(run % _PIECE == 0)
    length = np.diff(np.append(start, axis.length))
    return np.stack([start, length, table.first[start], table.count[start]], axis=1)


def _window_of(axis: Axis) -> Array:
    """The window of every cell that is in one, else -1."""
    table = tables(axis)
    return np.where(table.count > 0, table.first, -1)


def _upload(array: Array, dtype: Any, device: int) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=dtype))
    return tensor if device < 0 else tensor.to(torch.device("cuda", device))


@lru_cache(maxsize=256)
def _divisor_table(problem: Problem, device: int) -> torch.Tensor:
    """(divisor, its reciprocal) of every window of d, h, w, in the accumulator's type."""
    divisors = np.concatenate(_divisors(problem)).astype(problem.dtype.accumulator)
    return _upload(np.stack([divisors, 1 / divisors], axis=1), problem.dtype.accumulator, device)
