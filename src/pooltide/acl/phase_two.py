"""Takes an executor, a workspace and a stream: the arguments of `aclnnX`.

Checks them, submits the executor's job to the stream, and returns a status. It must not touch the data: the
job does. A repeatable executor keeps its `Launch` for the next call with the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..operators.call import is_int
from ..operators.pages import Operator
from .contexts import current_context
from .copy_sides import race_between_streams
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
from .executors import Run, Tensors, aclOpExecutor
from .handles import require_live
from .memory_blocks import MEMORY, Range
from .state import STATE
from .stream_queue import Job, Stream
from .streams import live_stream

PhaseTwo = Callable[[int | None, int, aclOpExecutor | None, Any], int]


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
        min_bytes = executor.workspace
        _require_workspace(operator.name, workspace, workspace_size, min_bytes)
        target, context = live_stream(stream, aclnn=True), current_context(RUNTIME_ERROR)
        if min_bytes:
            _require_disjoint(int(workspace), min_bytes, executor)
        launch = _launch(executor)
        ranges = [*launch.ranges, *_workspace_range(workspace, min_bytes)]
        for source, overlapped in launch.overlaps:
            text = f"{source.name} shares memory with {overlapped.name}; it must have its own."
            effect = f" The job reads {source.name} before it writes."
            report(operator.name, text, RUNTIME_ERROR, effect=effect, origins=source.block.origins)
        for used in ranges:
            if used.block.device != context.device:
                must = f"call aclrtSetDevice({used.block.device}) first"
                used.report_other_device(operator.name, context, RUNTIME_ERROR, must)
        _report_races(operator.name, ranges, target)
        run = partial(launch.run, workspace if min_bytes else None, STATE.checks)
        job = Job(operator.name, run, quick=executor.work.quick)
        number = target.require_submit(job, ACLNN_INVALID)
        for used in ranges:
            used.add_use(job, target, number)
        executor.used = True
    return 0


@dataclass(slots=True)  # a frozen one takes three times as long to make
class Launch:
    """The job of an executor, and the memory that it uses."""

    tensors: Tensors  # of the executor when the launch was made
    ranges: tuple[Range, ...]  # of the tensors that are inside their blocks
    overlaps: list[tuple[Range, Range]]  # inputs that share memory with an output
    run: Run

    def is_current(self, executor: aclOpExecutor) -> bool:
        return self.tensors is executor.tensors and all(used.block.alive for used in self.ranges)


def _launch(executor: aclOpExecutor) -> Launch:
    """The executor's launch: that of the last call if the tensors have the same memory, else a new one."""
    if (launch := executor.launch) is not None and launch.is_current(executor):
        return launch
    work, tensors = executor.work, executor.tensors
    used = dict.fromkeys(work.reads, False) | dict.fromkeys(work.writes, True)
    located = ((name, tensors[name].cells(), writes) for name, writes in used.items())
    ranges = tuple(Range(name, *cells, writes) for name, cells, writes in located if cells)
    for used_range in ranges:  # of others, the job reports that they leave their blocks
        if fault := tensors[used_range.name].outside_storage():
            report(executor.call.operator.name, f"{used_range.name} {fault}", ACLNN_INVALID)
    overlaps = _overlaps(executor.call.operator, ranges)
    launch = Launch(tensors, ranges, overlaps, work.prepare(tensors, ranges))
    executor.launch = launch if executor.repeatable else None
    return launch


def _workspace_range(workspace: Any, min_bytes: int) -> list[Range]:
    if not min_bytes or (block := MEMORY.find(int(workspace))) is None:
        return []
    return [Range("workspace", block, block.cells(int(workspace), min_bytes), True)]


def _overlaps(operator: Operator, ranges: tuple[Range, ...]) -> list[tuple[Range, Range]]:
    """Inputs that share memory with an output. A user's operator may write over a whole input."""
    if len({used.block for used in ranges}) == len(ranges):
        return []
    return [
        (source, target)
        for source in ranges
        for target in ranges
        if target.writes and not source.writes and source.overlaps(target)
        if not (operator.yours and source.cells == target.cells)
    ]


def _report_races(title: str, ranges: list[Range], stream: Stream) -> None:
    """Reports the jobs of other streams that conflict with the job that is about to be submitted."""
    races = [(used, use) for used in ranges if (use := used.race(stream)) is not None]
    if races:
        texts = (
            race_between_streams(f"{used.name} is in a block at {used.block.address:#x}", use, stream)
            for used, use in races
        )
        report(title, " ".join(texts), RUNTIME_ERROR, origins=tuple(use.origin for _, use in races))


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
    for name, tensor in executor.tensors.items():
        if not tensor.usable:
            must = "it must live until phase two."
            raise Refused(ACLNN_INVALID, f"{name} was destroyed after phase one; {must}")


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
    for name in (*executor.work.reads, *executor.work.writes):  # a gradient's self is read for its shape only
        tensor = executor.tensors[name]
        if tensor.empty or tensor.address is None:
            continue
        start, end = tensor.span()
        same_block = MEMORY.find(tensor.address) is MEMORY.find(workspace)
        if same_block and start < workspace + min_bytes and workspace < end:
            must = "it must be memory that no tensor of the call uses."
            raise Refused(ACLNN_INVALID, f"workspace is {workspace:#x}, in memory of {name}; {must}")
