"""Which GPU kernel computes a problem: the first of its kind that does not refuse. No device is touched.

`plan` returns the launches of that kernel, `kernels` the kernels up to that one, with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...problem.problem import Problem
from .driver import DeviceFacts
from .forward_plan import FORWARD_KERNELS
from .plan import KERNELS as GRADIENT_KERNELS
from .plan import Launch, Task

KERNELS = GRADIENT_KERNELS | FORWARD_KERNELS


def plan(problem: Problem, layout: str, facts: DeviceFacts, aligned: bool = True) -> tuple[Launch, ...]:
    """The launches of the chosen kernel. `aligned`: tensors begin at multiples of 16 bytes."""
    for _, found in _walk(Task(problem, layout, facts, aligned)):
        if not isinstance(found, str):
            return found
    raise AssertionError("the last kernel of a kind refuses nothing")


def kernels(problem: Problem, layout: str, facts: DeviceFacts) -> list[tuple[str, str | None]]:
    """The kernels up to the chosen one, each with the reason against it; None: it is chosen."""
    walked = _walk(Task(problem, layout, facts))
    return [(name, found if isinstance(found, str) else None) for name, found in walked]


def _walk(task: Task) -> Iterator[tuple[str, tuple[Launch, ...] | str]]:
    for name, planner in KERNELS[task.problem.kind]:
        found = planner(task)
        yield name, found
        if not isinstance(found, str):
            return
