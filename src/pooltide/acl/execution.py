"""Phase two: `enqueue` checks an executor and submits a job to a stream; the job computes.

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
from ..kernels.plan import execute, roles, written
from ..operators.call import CHANNELS_LAST, Call, is_int, shares_cells
from ..operators.pages import Operator
from ..problem.masks import pack, unpack
from ..problem.problem import Problem
from .handles import OutOfBounds, aclOpExecutor, aclTensor
from .memory import MEMORY
from .objects import require_live
from .runtime import live_stream
from .state import ACLNN_STATUSES, BAD, INTERNAL, NULL, STATE, Refused, describe, require_running, say
from .stream import Job

Array = NDArray[Any]
Report = Callable[[str, str], None]  # a fault, and what happens to the bad cells when the job goes on


def enqueue(operator: Operator, workspace: Any, workspace_size: Any, executor: Any, stream: Any) -> int:
    """Submit the executor's job; returns 0. Raises Refused for bad arguments."""
    with STATE.lock:  # two threads may use one executor; a third may call aclFinalize
        require_running(ACLNN_STATUSES[0])
        if executor is None:
            must = f"it must be the executor of {operator.name}GetWorkspaceSize."
            raise Refused(NULL, f"executor is null; {must}")
        _require_executor(operator, executor)
        need = executor.plan.scratch
        _require_workspace(workspace, workspace_size, need)
        target = live_stream(stream, BAD)
        if need:
            _require_disjoint(int(workspace), need, executor)
        run = partial(_compute, executor, workspace if need else None, STATE.checks)
        if not target.submit(Job(operator.name, run)):
            raise Refused(BAD, "stream was destroyed during this call; it must live until the call returns.")
        executor.used = True
    return 0


def _require_executor(operator: Operator, executor: Any) -> None:
    require_live("executor", executor, aclOpExecutor)
    made_by = executor.call.operator.name
    if made_by != operator.name:
        must = f"it must be made by {operator.name}GetWorkspaceSize."
        raise Refused(BAD, f"executor was made by {made_by}GetWorkspaceSize; {must}")
    if executor.used and not executor.repeatable:
        must = (
            "it must be a new one, or made repeatable by aclSetAclOpExecutorRepeatable before its first use."
        )
        raise Refused(BAD, f"executor has served its one call; {must}")
    for parameter in operator.parameters:
        if parameter.type == "tensor" and not executor.tensors[parameter.role].alive:
            must = "it must live until the stream is done."
            raise Refused(BAD, f"{parameter.name} was destroyed after phase one; {must}")


def _require_workspace(workspace: Any, size: Any, need: int) -> None:
    if need and (workspace is None or workspace == 0):
        must = f"it must be device memory of {need} bytes, as phase one said."
        raise Refused(NULL, f"workspace is null; {must}")
    if not is_int(size) or size < need:
        must = f"it must be at least {need}, as phase one said."
        raise Refused(BAD, f"workspaceSize is {size!r:.40}; {must}")
    if not need:
        return
    if not is_int(workspace):
        must = "it must be a device address of aclrtMalloc."
        raise Refused(BAD, f"workspace is {describe(workspace)}; {must}")
    if MEMORY.range(int(workspace), need) is None:
        raise Refused(BAD, f"workspace {MEMORY.fault(int(workspace), need)}")


def _require_disjoint(workspace: int, need: int, executor: aclOpExecutor) -> None:
    """Raises Refused if the workspace overlaps a tensor whose data the call reads or writes."""
    used = roles(executor.plan.problem)  # a gradient's self is read for its shape only
    for parameter in executor.call.operator.parameters:
        if parameter.role not in used:
            continue
        tensor = executor.tensors[parameter.role]
        if tensor.empty or tensor.address is None:
            continue
        start, end = tensor.span()
        same_block = MEMORY.find(tensor.address) is MEMORY.find(workspace)
        if same_block and start < workspace + need and workspace < end:
            must = "it must be memory that no tensor of the call uses."
            raise Refused(BAD, f"workspace is {workspace:#x}, in memory of {parameter.name}; {must}")


def _compute(executor: aclOpExecutor, workspace: int | None, checks: str) -> None:
    """The job: read the inputs, run the plan, write the outputs."""
    call, plan, tensors = executor.call, executor.plan, executor.tensors
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
    volumes = {role: _volume(call, tensors[role], array) for role, array in arrays.items()}
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


def _volume(call: Call, tensor: aclTensor, array: Array) -> Array:
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
