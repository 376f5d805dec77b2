"""Plans and computes one case, and compares its result with the float64 reference.

`problem_of` checks a case by the rules of its operator, `plan_of` chooses its kernel without data, and `run`
draws the inputs, computes, takes the time and judges the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from traceback import extract_tb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..display import html_table
from ..kernels import Arrays, IndexFault
from ..kernels.plan import AnyProblem, Executable, layout_of, plan
from ..kernels.regions import RegionFault
from ..kernels.regions.reference import find_fault
from ..operators.call import Call, TensorMeta
from ..operators.dtypes import DType
from ..operators.pages import HOST
from ..operators.rules import check
from ..problem.problem import Problem, lower
from ..problem.regions import RegionProblem, lower_regions
from .inputs import draw, placed, refuse_huge_tables, shaped
from .measures import Measures, index_measures, measure, precision_of
from .notation import Case
from .oracle import golden_result
from .region_inputs import boxes_of
from .verdicts import Verdict, judge

Array = NDArray[Any]


class Refused(ValueError):
    """The rules refuse the case, or an index is outside its plane; the text says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    case: Case
    plan: Executable
    seconds: float  # the best of the repeats
    measures: Measures
    verdicts: list[Verdict]
    actual: Array  # (N, C, D, H, W), as computed
    golden: Array  # in float64, not rounded
    source: Array  # grad_output, or the input of a forward
    indices: Array | None  # that were read, or that a maximum wrote

    def verdict(self, standard: str) -> Verdict:
        return next(v for v in self.verdicts if v.name == standard)

    def _repr_html_(self) -> str:
        facts = [("case", "", self.case), ("time", "", f"{self.seconds * 1e3:.3f} ms")]
        return html_table([*facts, *((v.name, v.status, v.text) for v in self.verdicts)])


def defect(error: Exception) -> str:
    """What to say of an error that nothing foresees, so that the other cases of a list go on."""
    where = extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}, in line {where.lineno} of {Path(where.filename).name}"
    return f"pooltide has a defect here, please report it: {text}"


def problem_of(case: Case, product: str | None = None) -> AnyProblem:
    """The problem of a case that the rules accept. Without any product, the case calls a NumPy function."""
    call = _call(case, product)
    if fault := check(call):
        raise Refused(fault.message(call.title))
    find = lower_regions if case.operator.regional else lower
    problem = find(call, case.index_dtype is not None)
    scale = dict(case.attributes).get("spatial_scale")
    if (
        isinstance(problem, RegionProblem)
        and scale is not None
        and not case.operator.by_role("spatial_scale")
    ):
        return replace(problem, spatial_scale=scale)  # roi_pool's gradient: the scale of its forward's boxes
    return problem


def windows_of(case: Case, what: str, product: str | None = None) -> Problem:
    """The problem of a case, which must have windows. `what`: a few words for what needs them."""
    problem = problem_of(case, product)
    if isinstance(problem, RegionProblem):
        raise Refused(f"{case.operator.function} pools over regions of interest; {what} needs windows")
    return problem


def _call(case: Case, product: str | None) -> Call:
    return case.call(product or case.product or HOST)


def plan_of(case: Case, product: str | None = None, backend: str | None = None) -> Executable:
    """The plan of a case, from its sizes alone: no array is allocated. `backend` excludes all others."""
    problem = problem_of(case, product)
    return plan(problem, layouts_of(case, product, problem), only=backend)


def layouts_of(case: Case, product: str | None, problem: AnyProblem) -> tuple[str, ...]:
    """The layouts of a case's arrays, in the order of `roles`. TooLarge: its axes are too long to plan."""
    refuse_huge_tables(problem)
    call = _call(case, product)
    tensors = (call.role(role) for role in ("grad_output" if problem.gradient else "input", "indices", "out"))
    return tuple(_layout(tensor, len(case.operator.axes)) for tensor in tensors if tensor is not None)


def _layout(tensor: TensorMeta, axes: int) -> str:
    """The layout of a tensor of a case."""
    if tensor.strides is None:
        return "planes"
    return layout_of(tensor.shape, tensor.strides, axes)


def dtype_of_boxes(call: Call) -> DType | None:
    tensor = call.role("boxes")
    return None if tensor is None else tensor.dtype


def checked_boxes(problem: AnyProblem, call: Call, case: Case) -> NDArray[Any] | None:
    """The boxes of a case, as kernels read them. Refused: one is of no image."""
    boxes = boxes_of(problem, case.data, dtype_of_boxes(call))
    if boxes is None:
        return None
    assert isinstance(problem, RegionProblem)
    if fault := find_fault(problem, boxes, None):
        raise Refused(f"{call.title}: {fault.message(problem, boxes)}")
    return boxes


def fault_text(
    fault: IndexFault | RegionFault, problem: AnyProblem, source: Array, boxes: Array | None
) -> str:
    """What is wrong with indices or boxes; `source` has the shape of the indices."""
    if isinstance(fault, RegionFault):
        assert isinstance(problem, RegionProblem)
        return fault.message(problem, boxes)
    assert isinstance(problem, Problem)
    return fault.message("indices", source.shape, problem.input_plane)


def run(case: Case, product: str | None = None, backend: str | None = None, repeat: int = 1) -> Trial:
    executable = plan_of(case, product, backend)
    problem, call = executable.problem, _call(case, product)
    axes = len(case.operator.axes)
    drawn = placed(call, problem, draw(problem, case.data), case.offset)
    source, indices, out = (None if array is None else shaped(problem, array, axes) for array in drawn)
    boxes = boxes_of(problem, case.data, dtype_of_boxes(call))
    assert source is not None
    assert out is not None
    grad_output, x = (source, None) if problem.gradient else (None, source)
    arrays = Arrays(grad_output, x, indices, out, boxes)
    workspace = np.empty(executable.scratch, np.uint8)
    seconds = []
    for _ in range(repeat):
        out[...] = np.nan
        start = perf_counter()
        fault = executable.run(arrays, workspace)
        seconds.append(perf_counter() - start)
    if fault is not None:
        raise Refused(f"{call.title}: {fault_text(fault, problem, source, boxes)}")
    golden = golden_result(problem, source, indices, boxes)
    precision = precision_of(problem.dtype, problem.rounding)
    measures = measure(np.ascontiguousarray(out), golden.values, precision)
    if golden.indices is not None and indices is not None:
        measures += index_measures(indices, golden.indices)
    judged = judge(measures, precision)
    return Trial(case, executable, min(seconds), measures, judged, out, golden.values, source, indices)
