"""Phase two: from an executor to a job on a stream, and the job itself.

A job finds the tensors' memory when it runs. What it finds wrong there goes by the checks level:
strict fails the stream, warn drops what is bad and says so in a line, off drops it in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.volumes import as_volume
from ..kernels import Arrays
from ..kernels.plan import execute
from ..operators.pages import Operator
from .handles import OutOfBounds, aclOpExecutor, aclTensor
from .memory import MEMORY
from .objects import BAD, NOT_RUNNING, NULL, unusable
from .runtime import dead_stream
from .state import INTERNAL, STATE, fail, not_running, say
from .stream import STREAMS, Failure

Array = NDArray[Any]


def enqueue(operator: Operator, workspace: Any, workspace_size: Any, executor: Any, stream: Any) -> int:
    title = operator.name
    with STATE.lock:  # two threads may hold one executor; a third may call aclFinalize
        if status := not_running(title, NOT_RUNNING):
            return status
        if executor is None:
            must = f"it must be the executor of {title}GetWorkspaceSize."
            return fail(title, f"executor is null; {must}", NULL)
        if refused := _refused(operator, executor):
            return fail(title, refused, BAD)
        return _submit(title, workspace, workspace_size, executor, stream)


def _submit(title: str, workspace: Any, workspace_size: Any, executor: aclOpExecutor, stream: Any) -> int:
    need = executor.plan.scratch
    if need and (workspace is None or workspace == 0):
        must = f"it must be device memory of {need} bytes, as phase one said."
        return fail(title, f"workspace is null; {must}", NULL)
    fault = _workspace_fault(workspace, workspace_size, need) or dead_stream(stream)
    if need and not fault:
        fault = _workspace_in_use(int(workspace), need, executor)
    if fault:
        return fail(title, fault, BAD)
    job = partial(_compute, executor, workspace if need else None, STATE.checks)
    if not (stream or STREAMS.default()).submit(job):
        return fail(title, "stream was destroyed meanwhile; it must live.", BAD)
    executor.used = True
    return 0


def _refused(operator: Operator, executor: Any) -> str | None:
    if text := unusable(executor, aclOpExecutor):
        return f"executor {text}."
    made_by = executor.call.operator.name
    if made_by != operator.name:
        return f"executor was made by {made_by}GetWorkspaceSize; it must be made by {operator.name}'s."
    if executor.used and not executor.repeatable:
        return (
            "executor has served its one call; make a new one, or call "
            "aclSetAclOpExecutorRepeatable before the first use."
        )
    for parameter in operator.parameters:
        if parameter.type == "tensor" and not executor.tensors[parameter.role].alive:
            return f"{parameter.name} was destroyed after phase one; it must live until the stream is done."
    return None


def _workspace_in_use(workspace: int, need: int, executor: aclOpExecutor) -> str | None:
    for parameter in executor.call.operator.parameters:
        if parameter.type != "tensor" or parameter.role == "input":
            continue
        tensor = executor.tensors[parameter.role]
        if (
            tensor.address is None
            or tensor.empty
            or MEMORY.find(tensor.address) is not MEMORY.find(workspace)
        ):
            continue
        start, end = tensor.span()
        if start < workspace + need and workspace < end:
            return f"workspace is {workspace:#x}, in memory of {parameter.name}; it must be its own."
    return None


def _workspace_fault(workspace: Any, size: Any, need: int) -> str | None:
    if not isinstance(size, (int, np.integer)) or size < need:
        return f"workspaceSize is {size!r:.40}; it must be at least {need}, as phase one said."
    if not need:
        return None
    if not isinstance(workspace, (int, np.integer)):
        return f"workspace is a {type(workspace).__name__}; it must be a device address of aclrtMalloc."
    if MEMORY.range(int(workspace), need) is None:
        return f"workspace {MEMORY.why_not(int(workspace), need)}"
    return None


def _compute(executor: aclOpExecutor, workspace: int | None, checks: str) -> None:
    call, plan = executor.call, executor.plan
    found = partial(_finding, call.operator.name, checks)
    spelled = {p.role: p.name for p in call.operator.parameters}
    axes = len(call.operator.axes)
    target = executor.tensors["out"]
    if plan.problem.planes == 0:
        return
    out = _output(target, spelled["out"], found)
    grad, indices = _inputs(executor.tensors, spelled, out, found)
    volumes = (None if a is None else as_volume(a, axes) for a in (grad, None, indices, out))
    fault = execute(plan, Arrays(*volumes), _scratch(workspace, plan.scratch, found))
    if fault is not None:
        plane = call.spatial(spelled["input"])
        found(fault.message(spelled["indices"], grad.shape, plane))
    if out.base is None:  # no view of device memory: it reaches outside its block
        target.write_inside(out)
    else:
        target.mark_written()


def _inputs(
    tensors: Mapping[str, aclTensor], spelled: Mapping[str, str], out: Array, found: Callable[[str], None]
) -> tuple[Array, Array | None]:
    """gradOutput and indices. A pair with a part outside its block becomes index 0, gradient +0,
    which changes no sum."""
    grad, _ = _input(tensors["grad_output"], spelled["grad_output"], out, found)
    if "indices" not in tensors:
        return grad, None
    indices, good = _input(tensors["indices"], spelled["indices"], out, found)
    if good is not None:
        grad = np.where(good, grad, grad.dtype.type(0))
    return grad, indices


def _finding(title: str, checks: str, text: str, fatal: bool = False) -> None:
    if checks == "strict" or fatal:
        raise Failure(INTERNAL, f"{title}: {text} [{INTERNAL} ACL_ERROR_INTERNAL_ERROR]")
    if checks == "warn":
        say(f"{title}: {text}")


def _output(tensor: aclTensor, name: str, found: Callable[[str], None]) -> Array:
    try:
        return tensor.view()
    except OutOfBounds as error:
        found(f"{_in_part(tensor, name, error, found)}, and what lies outside is not written.")
        return np.empty(tensor.shape, tensor.dtype.numpy)


def _in_part(tensor: aclTensor, name: str, error: OutOfBounds, found: Callable[..., None]) -> str:
    """What a finding says of a view that reaches outside; a failure if it can't be used in part."""
    must = f"{name} {error}; it must lie inside one block"
    if tensor.too_large:
        found(f"{must}: it is too large to be used in part.", fatal=True)
    return must


def _input(
    tensor: aclTensor, name: str, out: Array, found: Callable[[str], None]
) -> tuple[Array, Array | None]:
    """The data, and which of its cells lie inside their block (None: all)."""
    try:
        view = tensor.view()
    except OutOfBounds as error:
        found(f"{_in_part(tensor, name, error, found)}, and what lies outside counts for nothing.")
        return tensor.read_inside()
    if text := tensor.never_written():
        found(f"{name} {text}")
    return (view.copy() if np.may_share_memory(view, out) else view), None


def _scratch(workspace: int | None, size: int, found: Callable[[str], None]) -> Array | None:
    if workspace is None:
        return None
    data = MEMORY.range(workspace, size)
    if data is None:
        found(f"workspace {MEMORY.why_not(workspace, size)}")
        return None
    # A workspace that is not aligned as sums are is not used; the job takes its own memory.
    return data if data.ctypes.data % 8 == 0 else None
