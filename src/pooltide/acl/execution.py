"""Takes a job of phase two that can't simply call its kernel: bad memory, copies, masks, bad indices.

Reads the inputs, runs the plan, writes the results, and reports the bad data. It must not check arguments,
which phase one has done.

A job looks up the memory of its tensors when it runs. The checks level says what happens to bad data: strict
fails the stream, warn prints a line and ignores the bad cells, off ignores them silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.volumes import tensor_as_volume
from ..kernels import Arrays, IndexFault
from ..kernels.plan import Plan, execute, roles, written
from ..operators.call import CHANNELS_LAST, Call, shares_cells
from ..problem.masks import pack, unpack
from ..problem.problem import Problem
from .error_reports import INTERNAL, Refused, report
from .memory_blocks import MEMORY, Block
from .tensor_descriptors import OutOfBounds, aclTensor

Array = NDArray[Any]
Report = Callable[..., None]  # takes a fault and, as `effect`, what the job does with the bad cells
_FAR = 1 << 56  # bytes; any address that far from a block is outside of it
_MAX_PARTIAL = 1 << 26  # cells of a view that may be used in part


def compute(
    call: Call, plan: Plan, tensors: Mapping[str, aclTensor], workspace: int | None, checks: str
) -> None:
    """Read the inputs, run the plan, write the results, and report bad data."""
    if plan.problem.planes == 0:
        return
    report_fault = partial(report, call.operator.name, status=INTERNAL, checks=checks)
    names = {p.role: p.name for p in call.operator.parameters}
    results = written(plan.problem)
    outputs = {role: _output(tensors[role], names[role], report_fault) for role in results}
    if len(outputs) > 1 and shares_cells(*outputs.values()):
        must = f"{names[results[0]]} shares memory with {names[results[1]]}; it must have its own."
        report_fault(must, effect=f" The cells of {names[results[0]]} are written last.")
    inputs, reported = _inputs(call, tensors, plan.problem, outputs, report_fault)
    arrays = inputs | outputs
    volumes = {role: volume(call, tensors[role], array) for role, array in arrays.items()}
    if call.operator.masked:
        volumes["indices"] = _indices(call, plan.problem, arrays["indices"])
    fault = execute(plan, Arrays(**volumes), _scratch(workspace, plan.scratch, report_fault))
    if fault is not None and not reported:
        report_fault(_index_fault(call, plan.problem, fault, names["indices"], tensors["indices"]))
    if call.operator.masked and "indices" in outputs:
        pack(plan.problem, call.kernel, volumes["indices"], outputs["indices"])
    for role, out in outputs.items():
        if out.base is None:  # a new array, as the tensor leaves its block
            _write_inside(tensors[role], out)
        else:
            tensors[role].mark_written()


def volume(call: Call, tensor: aclTensor, array: Array) -> Array:
    return tensor_as_volume(array, call.axes(array.ndim), tensor.format in CHANNELS_LAST)


def _indices(call: Call, problem: Problem, mask: Array) -> Array:
    """The indices of a mask that is read, or new indices for a mask that is written."""
    if problem.gradient:
        return unpack(problem, call.kernel, mask)
    return np.empty(problem.batch + problem.output_plane, np.int32)


def _index_fault(call: Call, problem: Problem, fault: IndexFault, name: str, tensor: aclTensor) -> str:
    axes = len(call.operator.axes)
    if not call.operator.masked:
        return fault.message(name, tensor.shape, problem.input_plane[3 - axes :])
    at = [int(i) for i in np.unravel_index(fault.position, problem.batch + problem.output_plane[3 - axes :])]
    more = f" ({fault.count} such windows in all)" if fault.count > 1 else ""
    return f"{name} has no bit for window {at}; it must have one, at a cell inside the plane{more}."


def _inputs(
    call: Call,
    tensors: Mapping[str, aclTensor],
    problem: Problem,
    outputs: Mapping[str, Array],
    report_fault: Report,
) -> tuple[dict[str, Array], bool]:
    """The arrays that are read, and whether bad indices among them were reported already.

    An index outside its block must have no effect: a gradient of maxima gets index 0 and gradient 0 there. An
    unpool gets the index -1, and a mask no bit: the kernel counts them as bad, though no program wrote them.
    """
    arrays, reported = {}, False
    for parameter in call.operator.parameters:
        role = parameter.role
        if role in outputs or role not in roles(problem):
            continue
        arrays[role], inside = _input(tensors[role], parameter.name, outputs, report_fault)
        if role != "indices" or inside is None:
            continue
        reported = problem.unpool or call.operator.masked
        if problem.unpool:
            arrays[role] = np.where(inside, arrays[role], arrays[role].dtype.type(-1))
        elif not reported:
            grad = arrays["grad_output"]
            arrays["grad_output"] = np.where(inside, grad, grad.dtype.type(0))
    return arrays, reported


def _report_outside(
    tensor: aclTensor, name: str, error: OutOfBounds, report_fault: Report, effect: str
) -> None:
    must = f"{name} {error}; it must lie inside one block"
    if prod(tensor.shape) > _MAX_PARTIAL:
        raise Refused(INTERNAL, f"{must}: it is too large to be used in part.")
    report_fault(f"{must}.", effect=effect)


def _output(tensor: aclTensor, name: str, report_fault: Report) -> Array:
    """The output's cells in device memory, or a new array if the tensor leaves its block."""
    try:
        return tensor.view()
    except OutOfBounds as error:
        _report_outside(tensor, name, error, report_fault, " The cells outside are not written.")
        return np.empty(tensor.shape, tensor.dtype.numpy)


def _input(
    tensor: aclTensor, name: str, outputs: Mapping[str, Array], report_fault: Report
) -> tuple[Array, Array | None]:
    """The data, and a mask of the cells inside the tensor's block; None when all are inside."""
    try:
        view = tensor.view()
    except OutOfBounds as error:
        _report_outside(tensor, name, error, report_fault, " The cells outside are ignored.")
        return _read_inside(tensor)
    if fault := tensor.never_written():
        report_fault(f"{name} {fault}")
    shared = any(np.may_share_memory(view, out) for out in outputs.values())
    return (view.copy() if shared else view), None


def _scratch(workspace: int | None, size: int, report_fault: Report) -> Array | None:
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
