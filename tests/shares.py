"""Which parameters of a test `pytest -m "not slow"` runs; `pytest` runs all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def fast_if(is_fast: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Marks the values slow for which `is_fast` is false."""
    return [value if is_fast(value) else _slow(value) for value in values]


def fast_first(values: Iterable[Any], fast: int = 1) -> list[Any]:
    """Marks all values slow, except the first `fast` ones. A tuple holds one value for each parameter."""
    return [value if n < fast else _slow(value) for n, value in enumerate(values)]


def is_2d(value: Any) -> bool:
    """Whether a function or a pool has two spatial dimensions. All three kinds share most of their code."""
    return "2d" in str(value)


def _slow(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
