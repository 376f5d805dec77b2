"""A launch: what a job of phase two needs, found once for all calls of an executor with the same memory.

Most jobs are one call of a compiled kernel on arrays in device memory. When anything is unusual (memory
that was freed or never written, views that leave their block, copies, bad indices), the job takes the
longer way of `execution.compute`, which also reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..kernels.plan import Plan, roles, written
from ..kernels.threads import get_num_threads
from ..operators.call import Call, shares_cells
from .execution import compute, volume
from .handles import OutOfBounds, aclOpExecutor, aclTensor
from .memory import Block
from .order import Use
from .stream import Stream
from .written import Cells

_ROLES = ("grad_output", "input", "indices", "out")  # in the order of a kernel's arguments


@dataclass(frozen=True, slots=True)
class Range:
    """Memory that a job reads or writes, and the parameter's name."""

    name: str
    block: Block
    cells: Cells
    writes: bool

    def race(self, stream: Stream) -> Use | None:
        """The use by another stream that conflicts with this one, or None."""
        return self.block.uses.race(self.block.address, self.cells, writes=self.writes, stream=stream)

    def add_use(self, title: str, stream: Stream, job: int) -> None:
        self.block.uses.add(Use(stream, job, title, self.name, self.writes, self.block.address, self.cells))


@dataclass(frozen=True, slots=True)
class Launch:
    call: Call
    plan: Plan
    kernel: Callable[..., Any] | None  # of the plan, where it can be called directly
    tensors: Mapping[str, aclTensor]  # of the executor when the launch was made
    ranges: tuple[Range, ...]  # of the tensors that are inside their blocks
    arrays: tuple[Any, ...] | None  # the arguments of the kernel; None when it can't be called directly

    def is_current(self, executor: aclOpExecutor) -> bool:
        return self.tensors is executor.tensors and all(used.block.alive for used in self.ranges)

    def run(self, workspace: int | None, checks: str) -> None:
        """The job."""
        if not self._run_kernel():
            compute(self.call, self.plan, self.tensors, workspace, checks)

    def _run_kernel(self) -> bool:
        """Call the kernel. Returns False when the job must take the longer way."""
        if self.arrays is None or self.kernel is None:
            return False
        for used in self.ranges:
            if not used.block.alive or not (used.writes or used.block.written.covers(used.cells)):
                return False
        if self.kernel(*self.arrays, get_num_threads()) is not None:
            return False
        for used in self.ranges:
            if used.writes:
                used.block.written.mark(used.cells)
        return True


def make_launch(executor: aclOpExecutor) -> Launch:
    problem, operator, tensors = executor.plan.problem, executor.call.operator, executor.tensors
    results = written(problem)
    direct = executor.kernel is not None and not operator.masked and problem.planes > 0
    ranges, arrays = [], {}
    for role in roles(problem):
        parameter, tensor = operator.by_role(role), tensors[role]
        if parameter is not None and (found := tensor.cells()):
            ranges.append(Range(parameter.name, *found, role in results))
            if direct:
                with suppress(OutOfBounds):  # another thread freed the block
                    arrays[role] = volume(executor.call, tensor, tensor.view())
    direct = len(arrays) == len(roles(problem))
    if direct and len(results) > 1:
        direct = not shares_cells(*(arrays[role] for role in results))
    given = tuple(arrays.get(role) for role in _ROLES) if direct else None
    return Launch(executor.call, executor.plan, executor.kernel, tensors, tuple(ranges), given)
