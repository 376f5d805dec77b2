"""The job of phase two: it reads the inputs, runs the plan, and writes the results.

A job finds the memory of its tensors when it runs. The checks level says what happens when the job
finds bad data there: strict fails the stream, warn prints a line and ignores the bad cells, off
ignores the bad cells silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.volumes import tensor_as_volume
from ..kernels import Arrays, IndexFault
from ..kernels.plan import Plan, execute, roles, written
from ..operators.call import CHANNELS_LAST, Call, shares_cells
from ..problem.masks import pack, unpack
from ..problem.problem import Problem
from .handles import OutOfBounds, aclTensor
from .memory import MEMORY
from .state import INTERNAL, Refused, say

Array = NDArray[Any]
Report = Callable[[str, str], None]  # a fault, and what happens to the bad cells when the job goes on


def compute(
    call: Call, plan: Plan, tensors: Mapping[str, aclTensor], workspace: int | None, checks: str
) -> None:
    """Read the inputs, run the plan, write the results, and report what is wrong with the data."""
    if plan.problem.planes == 0:
        return
    report = partial(_report, call.operator.name, checks)
    names = {p.role: p.name for p in call.operator.parameters}
    results = written(plan.problem)
    outputs = {role: _output(tensors[role], names[role], report) for role in results}
    if len(outputs) > 1 and shares_cells(*outputs.values()):
        must = f"{names[results[0]]} shares memory with {names[results[1]]}; it must have its own."
        report(must, f" The cells of {names[results[0]]} are written last.")
    inputs, reported = _inputs(call, tensors, plan.problem, outputs, report)
    arrays = inputs | outputs
    volumes = {role: volume(call, tensors[role], array) for role, array in arrays.items()}
    if call.operator.masked:
        volumes["indices"] = _indices(call, plan.problem, arrays["indices"])
    fault = execute(plan, Arrays(**volumes), _scratch(workspace, plan.scratch, report))
    if fault is not None and not reported:
        report(_index_fault(call, plan.problem, fault, names["indices"], tensors["indices"]), "")
    if call.operator.masked and "indices" in outputs:
        pack(plan.problem, call.kernel, volumes["indices"], outputs["indices"])
    for role, out in outputs.items():
        if out.base is None:  # a fresh array, as the tensor leaves its block
            tensors[role].write_inside(out)
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
    report: Report,
) -> tuple[dict[str, Array], bool]:
    """The arrays that are read, and whether bad indices among them were reported already.

    An index outside its block must have no effect: a gradient of maxima gets index 0 and gradient 0 there. An
    unpool gets the index -1, and a mask no bit: the kernel finds them, though the program did not write them.
    """
    found, reported = {}, False
    for parameter in call.operator.parameters:
        role = parameter.role
        if role in outputs or role not in roles(problem):
            continue
        found[role], inside = _input(tensors[role], parameter.name, outputs, report)
        if role != "indices" or inside is None:
            continue
        reported = problem.unpool or call.operator.masked
        if problem.unpool:
            found[role] = np.where(inside, found[role], found[role].dtype.type(-1))
        elif not reported:
            grad = found["grad_output"]
            found["grad_output"] = np.where(inside, grad, grad.dtype.type(0))
    return found, reported


def _report(title: str, checks: str, fault: str, effect: str) -> None:
    if checks == "strict":
        raise Refused(INTERNAL, fault)
    if checks == "warn":
        say(f"{title}: {fault}{effect}")


def _report_outside(tensor: aclTensor, name: str, error: OutOfBounds, report: Report, effect: str) -> None:
    must = f"{name} {error}; it must lie inside one block"
    if tensor.too_large:
        raise Refused(INTERNAL, f"{must}: it is too large to be used in part.")
    report(f"{must}.", effect)


def _output(tensor: aclTensor, name: str, report: Report) -> Array:
    """The output's cells in device memory, or a fresh array if the tensor leaves its block."""
    try:
        return tensor.view()
    except OutOfBounds as error:
        _report_outside(tensor, name, error, report, " The cells outside are not written.")
        return np.empty(tensor.shape, tensor.dtype.numpy)


def _input(
    tensor: aclTensor, name: str, outputs: Mapping[str, Array], report: Report
) -> tuple[Array, Array | None]:
    """The data, and a mask of the cells inside the tensor's block; None when all are inside."""
    try:
        view = tensor.view()
    except OutOfBounds as error:
        _report_outside(tensor, name, error, report, " The cells outside are ignored.")
        return tensor.read_inside()
    if fault := tensor.never_written():
        report(f"{name} {fault}", "")
    shared = any(np.may_share_memory(view, out) for out in outputs.values())
    return (view.copy() if shared else view), None


def _scratch(workspace: int | None, size: int, report: Report) -> Array | None:
    """The workspace's bytes; None when the plan must allocate its scratch buffer itself."""
    if workspace is None:
        return None
    data = MEMORY.range(workspace, size)
    if data is None:
        report(f"workspace {MEMORY.fault(workspace, size)}", "")
        return None
    return data if data.ctypes.data % 8 == 0 else None  # sums need alignment to 8 bytes
