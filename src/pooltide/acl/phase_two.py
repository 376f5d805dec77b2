"""Takes an executor, a workspace and a stream: the arguments of `aclnnX`.

Checks them, submits the executor's job to the stream, and returns a status. It must not touch the data: the
job does.

Most jobs are one call of a compiled kernel on arrays in device memory. A `Launch` holds the arguments of such
a job; a repeatable executor keeps it for its next call with the same memory. In every other case (memory that
was freed or never written, views that leave their block, copies, bad indices), the job calls
`execution.compute`, which is slower and reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..kernels.plan import Plan, roles, written
from ..kernels.threads import get_num_threads
from ..operators.call import Call, is_int, shares_cells
from ..operators.pages import Operator
from .copies import race_between_streams
from .error_reports import (
    ACLNN_INVALID,
    ACLNN_NULL,
    ACLNN_STATUSES,
    RUNTIME_ERROR,
    Refused,
    describe,
    entry_point,
    report,
    require_running,
)
from .execution import compute, volume
from .executors import aclOpExecutor
from .handles import require_live
from .memory_blocks import MEMORY, Range
from .state import STATE
from .stream_queue import QUICK_BYTES, Job, Stream
from .streams import live_stream
from .tensor_descriptors import OutOfBounds, aclTensor

PhaseTwo = Callable[[int | None, int, aclOpExecutor | None, Any], int]
_ROLES = ("grad_output", "input", "indices", "out")  # in the order of a kernel's arguments


def phase_two_function(operator: Operator) -> PhaseTwo:
    """The public function `aclnnX` of an operator."""

    def phase_two(workspace: int | None, workspaceSize: int, executor: Any, stream: Any) -> int:
        return enqueue(operator, workspace, workspaceSize, executor, stream)

    phase_two.__doc__ = (
        f"{operator.summary} Phase two: returns the status. The results are ready when the stream is done."
    )
    phase_two.__name__ = phase_two.__qualname__ = operator.name
    return entry_point(int, ACLNN_STATUSES, needs_init=False)(phase_two)  # `enqueue` checks, with a lock


def enqueue(operator: Operator, workspace: Any, workspace_size: Any, executor: Any, stream: Any) -> int:
    """Submit the executor's job; returns 0. Raises Refused for bad arguments."""
    with STATE.lock:  # two threads may use one executor; a third may call aclFinalize
        require_running(operator.name, RUNTIME_ERROR)
        if executor is None:
            must = f"it must be the executor of {operator.name}GetWorkspaceSize."
            raise Refused(ACLNN_NULL, f"executor is null; {must}")
        _require_executor(operator, executor)
        min_bytes = executor.plan.scratch
        _require_workspace(operator.name, workspace, workspace_size, min_bytes)
        target = live_stream(stream, aclnn=True)
        if min_bytes:
            _require_disjoint(int(workspace), min_bytes, executor)
        launch = _launch(executor)
        ranges = [*launch.ranges, *_workspace_range(workspace, min_bytes)]
        _report_races(operator.name, ranges, target)
        run = partial(launch.run, workspace if min_bytes else None, STATE.checks)
        quick = executor.plan.work <= QUICK_BYTES
        job = target.require_submit(Job(operator.name, run, quick=quick), ACLNN_INVALID)
        for used in ranges:
            used.add_use(operator.name, target, job)
        executor.used = True
    return 0


@dataclass(frozen=True, slots=True)
class Launch:
    """What the job of an executor needs."""

    call: Call
    plan: Plan
    kernel: Callable[..., Any] | None  # of the plan, where it can be called directly
    tensors: Mapping[str, aclTensor]  # of the executor when the launch was made
    ranges: tuple[Range, ...]  # of the tensors that are inside their blocks
    arguments: tuple[Any, ...] | None  # of the kernel; None when it can't be called directly

    def is_current(self, executor: aclOpExecutor) -> bool:
        return self.tensors is executor.tensors and all(used.block.alive for used in self.ranges)

    def run(self, workspace: int | None, checks: str) -> None:
        """The job."""
        if not self._run_kernel():
            compute(self.call, self.plan, self.tensors, workspace, checks)

    def _run_kernel(self) -> bool:
        """Call the kernel. Returns False when the job must call `compute`."""
        if self.arguments is None or self.kernel is None:
            return False
        for used in self.ranges:
            if not used.block.alive or not (used.writes or used.block.written.covers(used.cells)):
                return False
        if self.kernel(*self.arguments, get_num_threads()) is not None:
            return False
        for used in self.ranges:
            if used.writes:
                used.block.written.mark(used.cells)
        return True


def _launch(executor: aclOpExecutor) -> Launch:
    """The executor's launch: that of the last call if the tensors have the same memory, else a new one."""
    if (launch := executor.launch) is not None and launch.is_current(executor):
        return launch
    launch = _new_launch(executor)
    executor.launch = launch if executor.repeatable else None
    return launch


def _new_launch(executor: aclOpExecutor) -> Launch:
    problem, operator, tensors = executor.plan.problem, executor.call.operator, executor.tensors
    results = written(problem)
    direct = executor.kernel is not None and not operator.masked and problem.planes > 0
    ranges, arrays = [], {}
    for role in roles(problem):
        parameter, tensor = operator.by_role(role), tensors[role]
        if parameter is not None and (located := tensor.cells()):
            ranges.append(Range(parameter.name, *located, role in results))
            if direct:
                with suppress(OutOfBounds):  # another thread freed the block
                    arrays[role] = volume(executor.call, tensor, tensor.view())
    direct = len(arrays) == len(roles(problem))
    if direct and len(results) > 1:
        direct = not shares_cells(*(arrays[role] for role in results))
    arguments = tuple(arrays.get(role) for role in _ROLES) if direct else None
    return Launch(executor.call, executor.plan, executor.kernel, tensors, tuple(ranges), arguments)


def _workspace_range(workspace: Any, min_bytes: int) -> list[Range]:
    if not min_bytes or (block := MEMORY.find(int(workspace))) is None:
        return []
    return [Range("workspace", block, block.cells(int(workspace), min_bytes), True)]


def _report_races(title: str, ranges: list[Range], stream: Stream) -> None:
    """Reports the jobs of other streams that conflict with the job that is about to be submitted."""
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
        raise Refused(ACLNN_INVALID, f"executor was made by {made_by}GetWorkspaceSize; {must}")
    if executor.used and not executor.repeatable:
        must = (
            "it must be a new one, or made repeatable by aclSetAclOpExecutorRepeatable before its first use."
        )
        raise Refused(ACLNN_INVALID, f"executor has served its one call; {must}")
    for parameter in operator.parameters:
        if parameter.type == "tensor" and not executor.tensors[parameter.role].usable:
            must = "it must live until the stream is done."
            raise Refused(ACLNN_INVALID, f"{parameter.name} was destroyed after phase one; {must}")


def _require_workspace(title: str, workspace: Any, size: Any, min_bytes: int) -> None:
    if min_bytes and (workspace is None or workspace == 0):
        must = f"it must be device memory of {min_bytes} bytes, as phase one said."
        raise Refused(ACLNN_NULL, f"workspace is null; {must}")
    if not is_int(size) or size < min_bytes:
        must = f"it must be at least {min_bytes}, as phase one said."
        raise Refused(ACLNN_INVALID, f"workspaceSize is {size!r:.40}; {must}")
    if min_bytes and not is_int(workspace):
        must = "it must be a device address of aclrtMalloc."
        raise Refused(ACLNN_INVALID, f"workspace is {describe(workspace)}; {must}")
    if min_bytes and MEMORY.range(int(workspace), min_bytes) is None:
        raise Refused(ACLNN_INVALID, f"workspace {MEMORY.fault(int(workspace), min_bytes)}")
    if size and is_int(workspace) and (block := MEMORY.find(int(workspace))) is not None:
        left = block.address + block.size - int(workspace)
        if size > left:
            must = f"it must be at most the {left} bytes that the block has from workspace on."
            report(title, f"workspaceSize is {size}; {must}", ACLNN_INVALID)


def _require_disjoint(workspace: int, min_bytes: int, executor: aclOpExecutor) -> None:
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
        if same_block and start < workspace + min_bytes and workspace < end:
            must = "it must be memory that no tensor of the call uses."
            raise Refused(
                ACLNN_INVALID, f"workspace is {workspace:#x}, in memory of {parameter.name}; {must}"
            )
