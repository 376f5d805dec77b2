"""Takes the tensors that a job reads and writes.

Returns arrays of their data, writes results, and reports bad memory. It must not check arguments, which phase
one has done.

A job looks up the memory of its tensors when it runs. The checks level says what happens to bad data: strict
fails the stream, warn prints a line and ignores the bad cells, off ignores them silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.plan import AnyProblem, Executable, NoBackend, plan
from ..operators.call import Call
from ..problem.problem import Problem
from ..problem.regions import RegionProblem
from .error_reports import ACLNN_STATUSES, INTERNAL, Refused
from .memory_blocks import MEMORY, Block
from .stream_queue import QUICK_BYTES
from .tensor_descriptors import OutOfBounds, aclTensor

Array = NDArray[Any]
Report = Callable[..., None]  # takes a fault and, as `effect`, what the job does with the bad cells
_FAR = 1 << 56  # bytes; any address that far from a block is outside of it
_MAX_PARTIAL = 1 << 26  # cells of a view that may be used in part


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """A checked call with its executable: what the works of pools and of pools over regions share."""

    call: Call
    problem: AnyProblem
    executable: Executable
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.problem)

    @property
    def scratch(self) -> int:
        return self.executable.scratch

    @property
    def quick(self) -> bool:
        return self.executable.work <= QUICK_BYTES


def require_plan(problem: Problem | RegionProblem, layouts: tuple[str, ...]) -> Executable:
    """The plan. Refused: no backend can run the problem, or the one that the environment names can't."""
    try:
        return plan(problem, layouts)
    except NoBackend as error:
        must = "the environment variable POOLTIDE_BACKEND must name a backend that can run the call."
        raise Refused(ACLNN_STATUSES[1], f"{error}; {must}") from None


def _report_outside(
    tensor: aclTensor, name: str, error: OutOfBounds, report_fault: Report, effect: str
) -> None:
    must = f"{name} {error}; it must lie inside one block"
    if prod(tensor.shape) > _MAX_PARTIAL:
        raise Refused(INTERNAL, f"{must}: it is too large to be used in part.")
    origins = () if tensor.address is None else MEMORY.origins(tensor.address)
    report_fault(f"{must}.", effect=effect, origins=origins)


def output_array(tensor: aclTensor, name: str, report_fault: Report) -> Array:
    """The output's cells in device memory, or a new array if the tensor leaves its block."""
    try:
        return tensor.view()
    except OutOfBounds as error:
        _report_outside(tensor, name, error, report_fault, " The cells outside are not written.")
        return np.empty(tensor.shape, tensor.dtype.numpy)


def write_result(tensor: aclTensor, out: Array) -> None:
    """Finish an output of `output_array`: write a new array to device memory, and record the cells."""
    if out.base is None:  # a new array, as the tensor leaves its block
        _write_inside(tensor, out)
    else:
        tensor.mark_written()


def input_array(
    tensor: aclTensor, name: str, outputs: Iterable[Array], report_fault: Report
) -> tuple[Array, Array | None]:
    """The data, and a mask of the cells inside the tensor's block; None when all are inside."""
    try:
        view = tensor.view()
    except OutOfBounds as error:
        _report_outside(tensor, name, error, report_fault, " The cells outside are ignored.")
        return _read_inside(tensor)
    if fault := tensor.never_written():
        report_fault(f"{name} {fault}", origins=MEMORY.origins(tensor.address or 0))
    shared = any(np.may_share_memory(view, out) for out in outputs)
    return (view.copy() if shared else view), None


def scratch_array(workspace: int | None, size: int, report_fault: Report) -> Array | None:
    """The workspace's bytes; None when the plan must allocate its scratch buffer itself."""
    if workspace is None:
        return None
    data = MEMORY.range(workspace, size)
    if data is None:
        report_fault(f"workspace {MEMORY.fault(workspace, size)}")
        return None
    return data if data.ctypes.data % 8 == 0 else None  # sums need alignment to 8 bytes


def _inside(tensor: aclTensor) -> tuple[Array, Array, Block | None]:
    """(a mask of the cells inside the block, the byte offsets of these cells, the block)."""
    block = None if tensor.address is None else MEMORY.find(tensor.address)
    start = (tensor.address or 0) - (block.address if block else 0) + tensor.offset * tensor.dtype.itemsize
    if block is None or abs(start) >= _FAR:
        return np.zeros(tensor.shape, np.bool_), np.zeros(0, np.int64), None
    at = np.full(tensor.shape, start, dtype=np.int64)
    near = np.ones(tensor.shape, np.bool_)
    for axis, step in enumerate(tensor.strides):
        cells = np.arange(tensor.shape[axis], dtype=np.int64)
        along = [-1 if i == axis else 1 for i in range(at.ndim)]
        # A cell beyond _FAR on one axis is outside; the sums of the others fit in 64 bits.
        close = cells <= _FAR // max(abs(step) * tensor.dtype.itemsize, 1)
        reach = np.where(close, cells, 0) * (step * tensor.dtype.itemsize if close[1:].any() else 0)
        near &= close.reshape(along)
        at += reach.reshape(along)
    inside = near & (at >= 0) & (at + tensor.dtype.itemsize <= block.size)
    return inside, at[inside], block


def _read_inside(tensor: aclTensor) -> tuple[Array, Array]:
    """A copy of the view with 0 in the cells outside its block, and a mask of the cells inside."""
    inside, at, block = _inside(tensor)
    result = np.zeros(tensor.shape, dtype=tensor.dtype.numpy)
    if block is not None and at.size:
        size = tensor.dtype.itemsize
        result[inside] = block.data[at[:, None] + np.arange(size)].view(tensor.dtype.numpy)[:, 0]
    return result, inside


def _write_inside(tensor: aclTensor, values: Array) -> None:
    """Write only the cells of the view that are inside its block."""
    inside, at, block = _inside(tensor)
    if block is not None and at.size:
        size = tensor.dtype.itemsize
        raw = np.ascontiguousarray(values[inside]).view(np.uint8).reshape(-1, size)
        block.data[at[:, None] + np.arange(size)] = raw
        block.written.mark_bytes(at[:, None] + np.arange(size))
