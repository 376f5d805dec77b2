"""By what the windows of an average are divided, and how: the other side of quotients.h."""

from __future__ import annotations

from math import prod

import numpy as np

from ....geometry import spans
from ...reference import as_float
from ..kernel_tables import Array, uniform, way_of_division
from ..task import Task

MEAN = "the sums of a mean have an order of their own"


def division_of(
    task: Task, ragged: bool
) -> tuple[tuple[Array, ...], list[float], tuple[tuple[str, int], ...]]:
    """The divisors per axis, those of all windows and their reciprocals, and the defines of quotients.h."""
    problem, divisors = task.problem, _divisors(task)
    same = (uniform(divisors) and not ragged) or problem.quotient == "override"
    numbers = _uniform(task, divisors) if same else [1.0, 1.0, 1.0]
    found = np.array(numbers) if same else _all_divisors(task, divisors)
    how = max(way_of_division(problem, found, ragged), 1)
    options = (
        ("CHAINED", int(problem.quotient == "chained")),
        *((f"BY_{name}", int((axis != 1).any())) for name, axis in zip("DHW", divisors, strict=True)),
        *(("UNIFORM", int(same)), ("DIVISION", how)),
        ("SMALL", int(prod(int(axis.max(initial=1)) for axis in divisors) < 2**24)),
    )
    reciprocals = (1 / np.array(numbers, problem.dtype.accumulator)).tolist()
    return divisors, [*numbers, *reciprocals], options


def divisor_parameters(task: Task) -> tuple[tuple[str, str], ...]:
    """Those of quotients.h: the type of sums, as kernels would convert them again for each window."""
    kind = "float" if task.sum_bytes == 4 else "double"
    return tuple((kind, f"{what}_{name}") for what in ("divisor", "reciprocal") for name in "dhw")


def _divisors(task: Task) -> tuple[Array, ...]:
    """What each window's sum is divided by, axis by axis; ones for an override."""
    problem = task.problem
    found = [spans(axis) for axis in problem.axes]
    if problem.quotient == "override":
        return tuple(np.ones_like(start) for start, _, _ in found)
    return tuple(extent if problem.quotient == "extent" else end - start for start, end, extent in found)


def _all_divisors(task: Task, divisors: tuple[Array, ...]) -> Array:
    """All numbers by which a sum is divided."""
    d, h, w = (np.unique(axis) for axis in divisors)
    if task.problem.quotient == "chained":
        return np.concatenate([d, h, w])
    return np.unique(np.multiply.outer(np.unique(np.multiply.outer(d, h)), w))


def _uniform(task: Task, divisors: tuple[Array, ...]) -> list[float]:
    """The divisors of all windows as the sum's type holds them: on d, h and w, or their product and ones."""
    problem, dtype = task.problem, task.problem.dtype.accumulator
    if problem.quotient == "chained":
        return [float(as_float(int(axis[0]), dtype)) for axis in divisors]
    product = prod(int(axis[0]) for axis in divisors)
    divisor = problem.divisor if problem.quotient == "override" else product
    return [float(as_float(divisor, dtype)), 1.0, 1.0]
