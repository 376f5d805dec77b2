"""A case that is ready to be timed, and the times that were found.

A contestant is a function without arguments: `ours` and `torch` allocate their results, `ours out=` and
`torch out=` write to existing memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from ..acceptance.notation import Case
from ..problem.problem import Problem

Runners = dict[str, Callable[[], Any]]


class Wrong(ValueError):
    """The result is wrong, so its time says nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A case, ready to be timed."""

    case: Case
    problem: Problem  # sets the limit
    result_bytes: int
    runners: Runners
    verify: Callable[[], None]  # raises Wrong if our result is wrong with the present number of threads
    kernel: str | None = None  # its name; None: unknown


@dataclass(frozen=True, slots=True)
class Result:
    case: Case
    result_bytes: int
    limit: float  # seconds
    times: dict[str, list[float]]  # seconds, by contestant
    others: float | None = None  # share of the processors that other programs took

    def typical(self, name: str) -> float | None:
        """The median of a contestant; None if it did not run."""
        return median(self.times[name]) if name in self.times else None

    def spread(self, name: str) -> float:
        return spread(self.times[name])

    def ratio(self, above: str, below: str) -> float | None:
        a, b = self.typical(above), self.typical(below)
        return None if a is None or b is None else a / b

    @property
    def form(self) -> str:
        """What the names of the contestants that set `ours ÷ limit` end with. Forwards have no out= form."""
        return " out=" if "ours out=" in self.times else ""

    @property
    def ours_to_limit(self) -> float | None:
        return self.to_limit(f"ours{self.form}")

    @property
    def torch_to_limit(self) -> float | None:
        return self.to_limit(f"torch{self.form}")

    def to_limit(self, name: str) -> float | None:
        seconds = self.typical(name)
        return seconds / self.limit if seconds and self.limit else None


def spread(times: list[float]) -> float:
    """Half the distance between the quartiles, relative to the median."""
    low, middle, high = quantiles(times, n=4)
    return (high - low) / 2 / middle


def attributes_of(case: Case) -> list[Any]:
    """The attributes of a case in the order of the parameters of our function."""
    given = [(role, value) for role, value in case.attributes if role != "cube_math_type"]
    return [value or None if role in ("stride", "divisor_override") else value for role, value in given]
