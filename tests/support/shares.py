"""Which parameters of a test `pytest` runs by default; `pytest -m slow` runs the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def fast_if(is_fast: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """The values of one parameter; those for which `is_fast` is false are marked slow."""
    return [value if is_fast(value) else pytest.param(value, marks=pytest.mark.slow) for value in values]


def fast_first(values: Iterable[Any], fast: int = 1) -> list[Any]:
    """The values, marked slow except for the first `fast` ones. A tuple has a value for each parameter."""
    return _fast_at(list(values), range(fast))


def fast_some(values: Iterable[Any], fast: int) -> list[Any]:
    """As fast_first, but the values that are not marked are spread evenly over all of them."""
    given = list(values)
    return _fast_at(given, [i * len(given) // fast for i in range(fast)])


def _fast_at(values: list[Any], fast: Sequence[int]) -> list[Any]:
    tuples = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*each, marks=[pytest.mark.slow] * (n not in fast)) for n, each in enumerate(tuples)]


def is_2d(value: Any) -> bool:
    """Whether a function or a pool has two spatial dimensions. All three kinds share most of their code."""
    return "2d" in str(value)
