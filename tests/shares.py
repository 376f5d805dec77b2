"""Which parameters of a test `pytest -m "not slow"` runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def fast_first(values: Iterable[Any], fast: int = 1) -> list[Any]:
    """Marks all values slow, except the first `fast` ones. A tuple holds one value for each parameter."""
    each = [value if isinstance(value, tuple) else (value,) for value in values]
    return [
        pytest.param(*value, marks=[pytest.mark.slow] if n >= fast else []) for n, value in enumerate(each)
    ]
