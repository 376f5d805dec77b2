"""A trial: one case computed by a backend, timed, and held against the float64 reference."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.volumes import as_volume
from ..kernels import Arrays, reference
from ..kernels.plan import Plan, execute, layout_of, make_plan
from ..operators.pages import HOST
from ..operators.rules import check
from ..problem.problem import Problem, lower
from .inputs import arrays
from .notation import Case
from .verdicts import Measures, Verdict, judge, measure, standard_of

Array = NDArray[Any]


class Refused(ValueError):
    """The case is not a call that can be computed; the text has the rule's sentence."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    case: Case
    plan: Plan
    seconds: float  # the best of the repeats
    measures: Measures
    verdicts: list[Verdict]
    actual: Array  # (N, C, D, H, W), as computed
    golden: Array  # in float64, not rounded
    grad_output: Array
    indices: Array | None


def problem_of(case: Case, product: str | None = None) -> Problem:
    """The problem of a case that its rules accept. Without a product it is a call of our functions."""
    call = case.call(product or case.product or HOST)
    if fault := check(call):
        raise Refused(fault.message(call.title))
    return lower(call)


def run(case: Case, product: str | None = None, backend: str | None = None, repeat: int = 1) -> Trial:
    problem = problem_of(case, product)
    call = case.call(product or case.product or HOST)
    drawn = arrays(call, problem, case.data)
    axes = len(case.operator.axes)
    grad, indices, out = (None if array is None else as_volume(array, axes) for array in drawn)
    assert grad is not None
    assert out is not None
    present = [array for array in (grad, indices, out) if array is not None]
    layouts = tuple(layout_of(a.shape, [step // a.itemsize for step in a.strides]) for a in present)
    plan = make_plan(problem, layouts, only=backend)
    workspace = np.empty(plan.scratch, np.uint8)
    seconds = []
    for _ in range(repeat):
        out[...] = np.nan
        start = perf_counter()
        fault = execute(plan, Arrays(grad, None, indices, out), workspace)
        seconds.append(perf_counter() - start)
    if fault is not None:
        text = fault.message("indices", grad.shape, problem.input_plane)
        raise Refused(f"{call.title}: {text}")
    golden, _ = reference.oracle(problem, grad, indices)
    standard = standard_of(problem.dtype, problem.rounding)
    found = measure(np.ascontiguousarray(out), golden, standard)
    return Trial(case, plan, min(seconds), found, judge(found, standard), out, golden, grad, indices)
