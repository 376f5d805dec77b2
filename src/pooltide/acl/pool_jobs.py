"""Takes the checked call of a pool or of its gradient.

Returns its `Work`: an executable. It must not check arguments, which phase one has done.

Most jobs are one call of a compiled kernel on arrays in device memory. In every other case (memory that was
freed or never written, views that leave their block, copies, masks), the job calls `_compute`, which is
slower and reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.volumes import tensor_as_volume, tensor_layout
from ..kernels import Arrays, IndexFault, Kernel
from ..kernels.calls import CALLS
from ..kernels.plan import backend_setting
from ..kernels.threads import get_num_threads
from ..operators.call import CHANNELS_LAST, Call, Value, shares_cells
from ..operators.pages import Operator
from ..operators.rules import check
from ..problem.masks import pack, unpack
from ..problem.problem import Problem, lower
from .data_checks import checked_role, data_fault
from .error_reports import INTERNAL, report
from .execution import (
    Array,
    PlannedWork,
    Report,
    input_array,
    output_array,
    require_plan,
    scratch_array,
    write_result,
)
from .executors import Run, Tensors
from .memory_blocks import Range
from .region_jobs import RegionWork, region_work
from .tensor_descriptors import OutOfBounds, aclTensor

_ROLES = ("grad_output", "input", "indices", "out")  # in the order of a kernel's arguments


@dataclass(frozen=True, slots=True)
class PoolWork(PlannedWork):
    problem: Problem
    kernel: Kernel | None  # of the executable, where it can be called directly
    names: tuple[tuple[str, str], ...]  # of the arrays of the problem: role, and name of the parameter
    checked: str | None  # the role of the array whose values are checked

    def prepare(self, tensors: Tensors, ranges: tuple[Range, ...]) -> Run:
        by_role = {role: tensors[name] for role, name in self.names}
        arguments = None if self.kernel is None else self._arguments(by_role)
        return _Job(self, by_role, ranges, arguments).run

    def _arguments(self, tensors: Mapping[str, aclTensor]) -> tuple[Any, ...] | None:
        """The arguments of the kernel; None when it can't be called directly."""
        problem, arrays = self.problem, {}
        if self.call.operator.masked or problem.planes == 0:
            return None
        try:
            for role, tensor in tensors.items():
                if not tensor.cells():
                    return None
                arrays[role] = _volume(self.call, tensor, tensor.view())
        except OutOfBounds:  # another thread freed the block
            return None
        results = problem.results
        if len(results) > 1 and shares_cells(*(arrays[role] for role in results)):
            return None
        return tuple(arrays.get(role) for role in _ROLES)


@dataclass(slots=True)  # a frozen one takes three times as long to make
class _Job:
    work: PoolWork
    tensors: Mapping[str, aclTensor]  # by role
    ranges: tuple[Range, ...]
    arguments: tuple[Any, ...] | None

    def run(self, workspace: int | None, checks: str) -> None:
        call = self.work.call
        volumes = self._run_kernel(checks)
        if volumes is None:
            volumes = _compute(self.work, self.tensors, workspace, checks)
        if volumes and checks != "off" and (role := self.work.checked) is not None:
            rank = len(self.tensors[role].shape)
            fault = data_fault(call.operator, self.work.problem, role, volumes[role], rank, checks)
            if fault is not None:
                report(call.operator.name, fault[0], INTERNAL, checks, fault[1])

    def _run_kernel(self, checks: str) -> dict[str, Array] | None:
        """Call the kernel. Returns what `_compute` does, or None when the job must call `_compute`."""
        if self.arguments is None or self.work.kernel is None:
            return None
        for used in self.ranges:
            if not used.block.alive or not (used.writes or used.block.written.covers(used.cells)):
                return None
        fault = self.work.kernel(*self.arguments, get_num_threads())
        if fault is NotImplemented:
            return None
        for used in self.ranges:
            if used.writes:
                used.block.written.mark(used.cells)
        if isinstance(fault, tuple):
            call = self.work.call
            text = _index_fault(call, self.work.problem, IndexFault(*fault), self.tensors["indices"])
            report(call.operator.name, text, status=INTERNAL, checks=checks)
            return {}
        return dict(zip(_ROLES, self.arguments, strict=True))


def pool_work(
    operator: Operator, product: str, values: tuple[Value, ...], tensors: Tensors
) -> PoolWork | RegionWork | tuple[int, str]:
    """The work, or the status and the message of a broken rule.

    The checks and the plan depend on metadata only, so an equal call finds them in the cache of calls.
    """
    aligned = tuple(tensor.aligned for tensor in tensors.values())
    key = operator, product, values, aligned, backend_setting()
    if (work := CALLS.get(key)) is None:
        names = (parameter.name for parameter in operator.parameters)
        call = Call(operator, product, dict(zip(names, values, strict=True)))
        if fault := check(call):
            return fault.status, fault.message(operator.name)
        work = (region_work if operator.windows == "regions" else _planned)(call, tensors)
        CALLS.add(key, work, work.executable.prepared)
    known: PoolWork | RegionWork = work
    return known


def _planned(call: Call, tensors: Tensors) -> PoolWork:
    problem, names = lower(call), {p.role: p.name for p in call.operator.parameters}
    layouts = tuple(_layout(tensors[names[role]], call) for role in problem.roles)
    executable = require_plan(problem, layouts)
    results = problem.results
    reads = tuple(names[role] for role in problem.roles if role not in results)
    writes = tuple(names[role] for role in results)
    used = tuple((role, names[role]) for role in problem.roles)
    checked = checked_role(call.operator, call.product, problem)
    return PoolWork(call, problem, executable, reads, writes, executable.kernel, used, checked)


def _layout(tensor: aclTensor, call: Call) -> str:
    """The layout of the tensor as a volume with axes N C D H W; absent axes have size 1."""
    if call.operator.masked and tensor.dtype.name == "INT8":
        return "planes"  # phase two makes the indices of a mask
    if not tensor.aligned:
        return "strided"
    axes = call.axes(len(tensor.shape))
    return tensor_layout(tensor.shape, tensor.strides, axes, tensor.format in CHANNELS_LAST)


def _compute(
    work: PoolWork, tensors: Mapping[str, aclTensor], workspace: int | None, checks: str
) -> dict[str, Array]:
    """Read the inputs, compute, write the results, and report bad data. `tensors` are by role.

    Returns the arrays by role, as volumes; of bad data, nothing.
    """
    call, problem = work.call, work.problem
    if problem.planes == 0:
        return {}
    faults = []

    def report_fault(fault: str, **more: Any) -> None:
        faults.append(fault)
        report(call.operator.name, fault, INTERNAL, checks, **more)

    names = {p.role: p.name for p in call.operator.parameters}
    results = problem.results
    outputs = {role: output_array(tensors[role], names[role], report_fault) for role in results}
    if len(outputs) > 1 and shares_cells(*outputs.values()):
        must = f"{names[results[0]]} shares memory with {names[results[1]]}; it must have its own."
        report_fault(must, effect=f" The cells of {names[results[0]]} are written last.")
    inputs, reported = _inputs(call, tensors, problem, outputs, report_fault)
    arrays = inputs | outputs
    volumes = {role: _volume(call, tensors[role], array) for role, array in arrays.items()}
    if call.operator.masked:
        volumes["indices"] = _indices(call, problem, arrays["indices"])
    scratch = scratch_array(workspace, work.scratch, report_fault)
    fault = work.executable.run(Arrays(**volumes), scratch)
    if fault is not None and not reported:
        report_fault(_index_fault(call, problem, fault, tensors["indices"]))
    if call.operator.masked and "indices" in outputs:
        pack(problem, call.kernel, volumes["indices"], outputs["indices"])
    for role, out in outputs.items():
        write_result(tensors[role], out)
    return {} if faults else volumes


def _volume(call: Call, tensor: aclTensor, array: Array) -> Array:
    return tensor_as_volume(array, call.axes(array.ndim), tensor.format in CHANNELS_LAST)


def _indices(call: Call, problem: Problem, mask: Array) -> Array:
    """The indices of a mask that is read, or new indices for a mask that is written."""
    if problem.gradient:
        return unpack(problem, call.kernel, mask)
    return np.empty(problem.batch + problem.output_plane, np.int32)


def _index_fault(call: Call, problem: Problem, fault: IndexFault, tensor: aclTensor) -> str:
    axes = len(call.operator.axes)
    name = next(p.name for p in call.operator.parameters if p.role == "indices")
    if not call.operator.masked:
        return fault.message(name, tensor.shape, problem.input_plane[3 - axes :])
    at = [int(i) for i in np.unravel_index(fault.position, problem.batch + problem.output_plane[3 - axes :])]
    more = f" ({fault.number} such windows in all)" if fault.number > 1 else ""
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
        if role in outputs or role not in problem.roles:
            continue
        arrays[role], inside = input_array(tensors[role], parameter.name, outputs.values(), report_fault)
        if role != "indices" or inside is None:
            continue
        reported = problem.unpool or call.operator.masked
        if problem.unpool:
            arrays[role] = np.where(inside, arrays[role], arrays[role].dtype.type(-1))
        elif not reported:
            grad = arrays["grad_output"]
            arrays["grad_output"] = np.where(inside, grad, grad.dtype.type(0))
    return arrays, reported
