"""Phase two: `enqueue` checks its arguments and submits the executor's job to a stream."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..kernels.plan import roles
from ..operators.call import is_int
from ..operators.pages import Operator
from .contexts import live_stream
from .handles import aclOpExecutor
from .launch import Launch, Range, make_launch
from .memory import MEMORY
from .objects import require_live
from .sides import race_between_streams
from .state import BAD, NULL, RUNTIME_ERROR, STATE, Refused, describe, report, require_running
from .stream import QUICK_BYTES, Job, Stream


def enqueue(operator: Operator, workspace: Any, workspace_size: Any, executor: Any, stream: Any) -> int:
    """Submit the executor's job; returns 0. Raises Refused for bad arguments."""
    with STATE.lock:  # two threads may use one executor; a third may call aclFinalize
        require_running(operator.name, RUNTIME_ERROR)
        if executor is None:
            must = f"it must be the executor of {operator.name}GetWorkspaceSize."
            raise Refused(NULL, f"executor is null; {must}")
        _require_executor(operator, executor)
        need = executor.plan.scratch
        _require_workspace(operator.name, workspace, workspace_size, need)
        target = live_stream(stream, aclnn=True)
        if need:
            _require_disjoint(int(workspace), need, executor)
        launch = _launch(executor)
        ranges = [*launch.ranges, *_workspace_range(workspace, need)]
        _require_order(operator.name, ranges, target)
        run = partial(launch.run, workspace if need else None, STATE.checks)
        job = target.require_submit(Job(operator.name, run, quick=executor.plan.work <= QUICK_BYTES), BAD)
        for used in ranges:
            used.add_use(operator.name, target, job)
        executor.used = True
    return 0


def _launch(executor: aclOpExecutor) -> Launch:
    """The executor's launch: that of the last call if the tensors have the same memory, else a new one."""
    if (launch := executor.launch) is not None and launch.is_current(executor):
        return launch
    launch = make_launch(executor)
    executor.launch = launch if executor.repeatable else None
    return launch


def _workspace_range(workspace: Any, need: int) -> list[Range]:
    if not need or (block := MEMORY.find(int(workspace))) is None:
        return []
    return [Range("workspace", block, block.cells(int(workspace), need), True)]


def _require_order(title: str, ranges: list[Range], stream: Stream) -> None:
    """Reports the jobs of other streams that race with the job that is about to be submitted."""
    races = [
        race_between_streams(f"{used.name} is in a block at {used.block.address:#x}", use, stream)
        for used in ranges
        if (use := used.race(stream)) is not None
    ]
    if races:
        report(title, " ".join(races), RUNTIME_ERROR)


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
        if parameter.type == "tensor" and not executor.tensors[parameter.role].usable:
            must = "it must live until the stream is done."
            raise Refused(BAD, f"{parameter.name} was destroyed after phase one; {must}")


def _require_workspace(title: str, workspace: Any, size: Any, need: int) -> None:
    if need and (workspace is None or workspace == 0):
        must = f"it must be device memory of {need} bytes, as phase one said."
        raise Refused(NULL, f"workspace is null; {must}")
    if not is_int(size) or size < need:
        must = f"it must be at least {need}, as phase one said."
        raise Refused(BAD, f"workspaceSize is {size!r:.40}; {must}")
    if need and not is_int(workspace):
        must = "it must be a device address of aclrtMalloc."
        raise Refused(BAD, f"workspace is {describe(workspace)}; {must}")
    if need and MEMORY.range(int(workspace), need) is None:
        raise Refused(BAD, f"workspace {MEMORY.fault(int(workspace), need)}")
    if size and is_int(workspace) and (block := MEMORY.find(int(workspace))) is not None:
        left = block.address + block.size - int(workspace)
        if size > left:
            must = f"it must be at most the {left} bytes that the block has from workspace on."
            report(title, f"workspaceSize is {size}; {must}", BAD)


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
