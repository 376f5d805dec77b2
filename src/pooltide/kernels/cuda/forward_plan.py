"""The GPU kernels of forwards, in order. Pure: no device is touched.

Each entry is a function that returns its launches, or the reason against it. The last one of a kind refuses
nothing. The tensors of a launch are x, out and, of maxima with indices or offsets, those. A result without
elements needs no launch.
"""

from __future__ import annotations

from ...problem.problem import Problem
from .average_plan import column_average, mean_average, wide_average
from .driver import DeviceFacts
from .maximum_plan import direct_maximum, reduced_maximum, rolling_maximum, sectioned_maximum
from .plan import Launch, Planner, Task

FORWARD_KERNELS: dict[str, tuple[tuple[str, Planner], ...]] = {
    "maximum": (
        ("maximum of shared windows", reduced_maximum),
        ("rolling maximum", rolling_maximum),
        ("sectioned maximum", sectioned_maximum),
        ("direct maximum", direct_maximum),
    ),
    "average": (
        ("mean of planes", mean_average),
        ("average of wide windows", wide_average),
        ("average of columns", column_average),
    ),
}


def plan_forward(problem: Problem, layout: str, facts: DeviceFacts) -> Launch:
    """The launch of the first kernel that does not refuse."""
    task = Task(problem, layout, facts)
    for _, planner in FORWARD_KERNELS[problem.kind]:
        found = planner(task)
        if not isinstance(found, str):
            return found[0]
    raise AssertionError("the last kernel of a kind refuses nothing")
