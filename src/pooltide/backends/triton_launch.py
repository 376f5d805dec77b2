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
from math import prod
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
_PROGRAMS = 132 * 32  # enough to fill a large GPU twice over
_ROWS = 16  # what a lane writes in one program, at least, where there is enough to do
_NONE = 2**63 - 1
_UNROLLED = 4

Array = NDArray[Any]


def refuse(problem: Problem) -> str | None:
    limit = 2**30
    (_, _, w), channels = problem.axes, problem.batch[1]
    if max(prod(problem.input_plane), prod(problem.output_plane)) > limit:
        return f"a plane has more than {limit} elements"
    if max(w.length, w.outputs) * channels > limit:
        return f"a row of all channels has more than {limit} elements"
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
    tensors = (grad_output, out) if indices is None else (grad_output, indices, out)
    aligned = tuple(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    launches = _plan(problem, layout, device, aligned)
    if indices is not None:
        flags = torch.empty(launches[0].grid, dtype=torch.int32, device=out.device)
        tensors = (*tensors, flags)
    launches[0](device, tensors)
    if indices is not None:
        launches[1](device, (*tensors, record(device) if faults is None else faults))
    return None


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
                *tensors, *self.tables, *self.arguments, num_warps=self.warps
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


@lru_cache(maxsize=1024)
def _plan(problem: Problem, layout: str, device: int, aligned: tuple[bool, ...]) -> tuple[Launch, ...]:
    if problem.kind == "indexed":
        return _indexed(problem, layout, device)
    if layout == "planes" and all(axis.whole for axis in problem.axes):
        return (_whole(problem, device),)
    if layout == "planes" and (patch := _patch(problem)):
        return (_phases(problem, device, *patch),)
    return (_rows(problem, layout, device),)


def _whole(problem: Problem, device: int) -> Launch:
    plane = prod(problem.input_plane)
    vector = 16 // problem.dtype.itemsize
    steps, fast = _division(problem)
    grid = triton.cdiv(problem.cells, LANES * vector)
    ragged, wide = problem.cells % vector != 0, problem.cells >= 2**31 - LANES * vector
    constants = (LANES, vector, vector <= plane, ragged, steps, fast, wide)
    sizes = (plane, problem.planes, *_magic(plane))
    return Launch(average.whole, grid, (_divisor_table(problem, device),), (*sizes, *constants))


def _rows(problem: Problem, layout: str, device: int) -> Launch:
    lanes = _lanes(problem, layout)
    segments, chunk = _chunk(problem, lanes)
    steps, fast = _division(problem)
    kept = (_edge_table(problem.axes[:2], device), _column_table(problem.axes[2], device))
    most = int(tables(problem.axes[2]).count.max())
    d, h, w = problem.axes
    sizes = (
        *(lanes.count, lanes.groups, max(lanes.inner // lanes.vector, 1)),
        *(h.length, d.length * h.length, h.outputs, w.outputs, d.outputs * h.outputs),
        *(len(_segments(h)), segments, chunk, triton.cdiv(segments, chunk), most),
    )
    constants = (
        *(LANES, lanes.vector, lanes.last, lanes.shared, most if most <= _UNROLLED else 0),
        *(steps, fast, lanes.count >= 2**31 - LANES),
    )
    grid = triton.cdiv(lanes.count, LANES) * triton.cdiv(segments, chunk)
    return Launch(average.rows, grid, (*kept, _divisor_table(problem, device)), (*sizes, *constants))


def _phases(problem: Problem, device: int, vector: int, patch_rows: int) -> Launch:
    _, h, w = problem.axes
    groups = triton.cdiv(w.length, vector)
    row_blocks = triton.cdiv(h.length, patch_rows)
    lanes = problem.planes * groups
    steps, fast = _division(problem)
    divisors = _divisors(problem)
    even = all(len(np.unique(axis)) == 1 for axis in divisors[1:])
    constants = (
        *(LANES, vector, patch_rows, h.k, h.s, h.p, w.k, w.s, w.p),
        *(*_reach(h, patch_rows), *_reach(w, vector)),
        *(even, w.length % vector != 0, fast, lanes >= 2**31 - LANES),
    )
    sizes = (lanes, groups, h.length, w.length, h.outputs, w.outputs, row_blocks)
    grid = triton.cdiv(lanes, LANES) * row_blocks
    return Launch(average.phases, grid, (_divisor_table(problem, device),), (*sizes, *constants))


def _indexed(problem: Problem, layout: str, device: int) -> tuple[Launch, Launch]:
    lanes = _lanes(problem, layout)
    segments, chunk = _chunk(problem, lanes)
    chunks = triton.cdiv(segments, chunk)
    most = int(tables(problem.axes[2]).count.max())
    d, h, w = problem.axes
    cells = prod(problem.input_plane)
    spans = _span_table(problem.axes, device)
    wide = lanes.count >= 2**31 - LANES
    blocks = triton.cdiv(lanes.count, LANES)
    sizes = (
        *(lanes.count, lanes.groups, max(lanes.inner // lanes.vector, 1)),
        *(h.length, w.length, d.length * h.length, h.outputs, w.outputs, d.outputs * h.outputs),
        *(len(_segments(h)), segments, chunk, chunks, most),
        *(cells, *_magic(h.length), *_magic(w.length)),
    )
    unrolled = most if most <= _UNROLLED else 0
    constants = (LANES, lanes.vector, lanes.last, lanes.shared, unrolled, d.length > 1, wide)
    kept = (_edge_table(problem.axes[:2], device), _column_table(w, device), spans)
    rows = Launch(indexed.rows, blocks * chunks, kept, (*sizes, *constants))
    splits = min(max(_PROGRAMS // blocks, 1), 16)
    sizes = (
        *(lanes.count, lanes.groups, lanes.inner),
        *(h.outputs, w.outputs, d.outputs * h.outputs, chunks, splits, cells),
    )
    constants = (LANES, lanes.vector, 128, wide)
    return rows, Launch(indexed.repair, blocks * splits, (spans,), (*sizes, *constants))


@dataclass(frozen=True, slots=True)
class Lanes:
    inner: int
    vector: int  # elements of a group
    groups: int  # of a row
    count: int
    last: bool  # channels last
    shared: bool  # the columns of a group lie in the same windows


def _lanes(problem: Problem, layout: str) -> Lanes:
    n, c = problem.batch
    last = layout == "channels_last"
    width = problem.axes[2].length
    inner = c if last else 1
    vector = 16 // problem.dtype.itemsize
    while (inner if last else width) % vector:
        vector //= 2
    groups = width * inner // vector
    table = tables(problem.axes[2])
    shared = not last and all(
        bool((column.reshape(-1, vector) == column[::vector, None]).all())
        for column in (table.first, table.count)
    )
    return Lanes(inner, vector, groups, (n if last else n * c) * groups, last, shared)


def _chunk(problem: Problem, lanes: Lanes) -> tuple[int, int]:
    """The (d, h) segments of a plane, and how many of them one program does."""
    d, h, _ = problem.axes
    segments = len(_segments(d)) * len(_segments(h))
    blocks = triton.cdiv(lanes.count, LANES)
    chunk = max(1, _ROWS * segments // (d.length * h.length))
    while chunk > 1 and blocks * triton.cdiv(segments, chunk) < _PROGRAMS:
        chunk //= 2
    return segments, chunk


def _patch(problem: Problem) -> tuple[int, int] | None:
    """Columns and rows of a lane's patch, where windows are strided and overlap, or None."""
    d, h, w = problem.axes
    if d != UNIT or h.adaptive or w.adaptive or (h.disjoint and w.disjoint):
        return None
    vector = max(16 // problem.dtype.itemsize, 4)
    while vector > max(w.s, 4) and w.length % vector:
        vector //= 2
    taps = triton.cdiv(h.k, h.s) * triton.cdiv(w.k, w.s)
    if vector % w.s or taps > 25:
        return None
    heights = [r for r in range(h.s, 9, h.s) if _reach(h, r)[1] * _reach(w, vector)[1] <= 64]
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
def _division(problem: Problem) -> tuple[int, bool]:
    """The kernels' STEPS and FAST."""
    axes = [np.unique(np.asarray(axis, dtype=np.float64)) for axis in _divisors(problem)]
    if problem.quotient == "chained":
        steps = sum(bit for bit, axis in zip((1, 2, 4), axes, strict=True) if axis.max() > 1)
        taken = np.concatenate(axes)
    else:
        steps, taken = 8, np.multiply.outer(axes[1], axes[2]).ravel()
    simple = [abs(x) < 2**20 and (x % 2 == 1 or abs(x) in _POWERS) for x in taken.tolist()]
    return steps, all(simple) and problem.dtype.name != "FLOAT64" and not INTERPRETED


_POWERS = frozenset(2.0**i for i in range(20))
INTERPRETED = not isinstance(average.whole, triton.JITFunction)  # whose fma rounds twice


def _segments(axis: Axis) -> Array:
    """Runs of cells in the same windows: (start, length, first window, windows) each."""
    table = tables(axis)
    change = (np.diff(table.first) != 0) | (np.diff(table.count) != 0)
    start = np.concatenate([[0], np.flatnonzero(change) + 1])
    length = np.diff(np.append(start, axis.length))
    return np.stack([start, length, table.first[start], table.count[start]], axis=1)


def _upload(array: Array, dtype: Any, device: int) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=dtype))
    return tensor if device < 0 else tensor.to(torch.device("cuda", device))


@lru_cache(maxsize=256)
def _edge_table(axes: tuple[Axis, ...], device: int) -> torch.Tensor:
    return _upload(np.concatenate([_segments(axis) for axis in axes]), np.int32, device)


@lru_cache(maxsize=256)
def _column_table(axis: Axis, device: int) -> torch.Tensor:
    table = tables(axis)
    return _upload(np.stack([table.first, table.count], axis=1), np.int32, device)


@lru_cache(maxsize=256)
def _span_table(axes: tuple[Axis, ...], device: int) -> torch.Tensor:
    spans = [np.stack([tables(axis).start, tables(axis).end], axis=1) for axis in axes]
    return _upload(np.concatenate(spans), np.int32, device)


@lru_cache(maxsize=256)
def _divisor_table(problem: Problem, device: int) -> torch.Tensor:
    """(divisor, its reciprocal) of every window of d, h, w, in the accumulator's type."""
    divisors = np.concatenate(_divisors(problem)).astype(problem.dtype.accumulator)
    return _upload(np.stack([divisors, 1 / divisors], axis=1), problem.dtype.accumulator, device)
