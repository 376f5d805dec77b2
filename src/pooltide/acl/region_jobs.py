"""Takes the checked call of a pool over regions of interest, or of its gradient.

Returns its `Work`: an executable. It must not check arguments, which phase one has done.

The boxes become one array of the kernel's dtype: (number of the image, x1, y1, x2, y2). A box that no kernel
may have, as its image does not exist, is reported, and becomes a box without a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..kernels import Arrays
from ..kernels.plan import layout_of
from ..operators.call import Call
from ..problem.regions import RegionProblem, lower_regions
from .data_checks import box_fault
from .error_reports import INTERNAL, report
from .execution import (
    Array,
    PlannedWork,
    input_array,
    output_array,
    require_plan,
    scratch_array,
    write_result,
)
from .executors import Run, Tensors
from .memory_blocks import Range
from .tensor_descriptors import aclTensor


@dataclass(frozen=True, slots=True)
class RegionWork(PlannedWork):
    problem: RegionProblem

    def prepare(self, tensors: Tensors, ranges: tuple[Range, ...]) -> Run:
        return partial(_compute, self, tensors)


def region_work(call: Call, tensors: Tensors) -> RegionWork:
    problem, names = lower_regions(call), {p.role: p.name for p in call.operator.parameters}
    layouts = tuple(_layout(tensors[names[role]]) for role in problem.roles)
    writes = tuple(p.name for p in call.operator.parameters if p.is_tensor and call.operator.writes(p))
    reads = tuple(name for name in tensors if name not in writes)
    return RegionWork(call, problem, require_plan(problem, layouts), reads, writes)


def _layout(tensor: aclTensor) -> str:
    if len(tensor.shape) == 2:
        return "planes"  # boxes are copied
    return layout_of(tensor.shape, tensor.strides, 2) if tensor.aligned else "strided"


def _compute(work: RegionWork, tensors: Tensors, workspace: int | None, checks: str) -> None:
    """Read the inputs, compute, write the result, and report bad data."""
    operator, problem = work.call.operator, work.problem
    report_fault = partial(report, operator.name, status=INTERNAL, checks=checks)
    names = {p.role: p.name for p in operator.parameters}
    out = output_array(tensors[names["out"]], names["out"], report_fault)
    read = {
        role: input_array(tensors[name], name, (out,), report_fault)[0]
        for role, name in names.items()
        if name in work.reads
    }
    boxes = _boxes(problem, read)
    fault = None if checks == "off" else box_fault(operator, problem, boxes, whole=checks == "strict")
    outside = ~((boxes[:, 0] >= 0) & (boxes[:, 0] < problem.batch[0]))
    boxes[outside] = (0, *(np.nan,) * 4)
    source = {role: read[role] for role in ("grad_output", "input") if role in read}
    arrays = Arrays(**source, boxes=boxes, out=out)
    work.executable.run(arrays, scratch_array(workspace, work.scratch, report_fault))
    write_result(tensors[names["out"]], out)
    if fault is not None:
        report_fault(fault[0], effect=fault[1])


def _boxes(problem: RegionProblem, read: Mapping[str, Array]) -> Any:
    """The boxes; the number of an image is rounded down, as CANN's document says."""
    boxes = np.empty((problem.regions, 5), problem.dtype.accumulator)
    if (images := read.get("box_images")) is not None:
        boxes[:, 0], boxes[:, 1:] = images, read["boxes"]
    else:
        boxes[...] = read["boxes"]
        boxes[:, 0] = np.floor(boxes[:, 0])
    return boxes
