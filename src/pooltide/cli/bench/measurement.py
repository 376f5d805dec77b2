"""A benchmark is a case with the implementations to time; a measurement has their times.

An implementation is a function without arguments: `ours` and `torch` allocate their results, `ours out=` and
`torch out=` write to existing memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from ...acceptance.notation import Case
from ...kernels.plan import AnyProblem

Implementations = dict[str, Callable[[], Any]]


class WrongResult(ValueError):
    """The result is wrong, so its time says nothing."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A case, ready to be timed."""

    case: Case
    problem: AnyProblem  # sets the limit
    result_bytes: int
    implementations: Implementations
    verify: Callable[[], None]  # raises WrongResult if ours is wrong with the present number of threads
    kernel: str | None = None  # its name; None: unknown
    operations: float = 0.0  # in float32, which the data ask for besides those that the problem tells


@dataclass(frozen=True, slots=True)
class Measurement:
    case: Case
    result_bytes: int
    limit: float  # seconds
    times: dict[str, list[float]]  # seconds, by implementation
    other_load: float | None = None  # of the processors, the part that other programs took

    def typical(self, name: str) -> float | None:
        """The median of an implementation; None if it did not run."""
        return median(self.times[name]) if name in self.times else None

    def spread(self, name: str) -> float:
        """Half the distance between the quartiles, relative to the median."""
        low, middle, high = quantiles(self.times[name], n=4)
        return (high - low) / 2 / middle

    def ratio(self, above: str, below: str) -> float | None:
        a, b = self.typical(above), self.typical(below)
        return None if a is None or b is None else a / b

    @property
    def form(self) -> str:
        """The ending of the implementations that `ours ÷ limit` compares. Forwards have no out= form."""
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


def attributes_of(case: Case) -> list[Any]:
    """The attributes of a case in the order of the parameters of our function."""
    attributes = [(role, value) for role, value in case.attributes if role != "cube_math_type"]
    return [value or None if role in ("stride", "divisor_override") else value for role, value in attributes]
