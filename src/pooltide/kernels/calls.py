"""The key that says when two calls are the same, and the setting of the cache's size.

The checks, the plan and the kernel of a call depend on metadata only: the function, the shapes, strides,
dtypes and devices of its arrays, its attributes, and the backend that the environment chooses. An entrance
keeps what it found for a call in `CALLS`, under the call's key, and finds it there for the next equal call.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..cache import CALLS, Key
from ..operators.plain import kinds, plain, shown
from .plan import backend_setting

__all__ = ["CALLS", "Key", "call_key", "get_cache_bytes", "set_cache_bytes"]


def call_key(
    function: str, arrays: tuple[Hashable, ...] | None, attributes: tuple[Any, ...], *more: Hashable
) -> Key | None:
    """Returns the key of a call, or None if an attribute is not a plain value (operators/plain.py).

    `arrays` has the metadata of each array, as the entrance describes it, or is None if the entrance cannot.
    `more` has what else decides. Attributes count by type as well as by value: True is not 1.
    """
    if arrays is None or (types := kinds(attributes)) is None:  # such a value may fail to hash
        return None
    return function, arrays, attributes, types, more, backend_setting()


def get_cache_bytes() -> int:
    """The most bytes that tables, plans and prepared kernels of earlier calls may take; 256 MiB at the start.

    The environment variable POOLTIDE_CACHE_BYTES sets it at the start.
    """
    return CALLS.limit


def set_cache_bytes(n: int) -> None:
    """Let what earlier calls derived from their shapes take at most `n` bytes, on all devices together.

    An equal call then finds it again, and is faster. This forgets what there is now. 0: keep nothing.
    """
    count = plain(n)
    if type(count) is not int:
        raise TypeError(f"set_cache_bytes: n is {shown(n)}; it must be an int, 0 or more.")
    if count < 0:
        raise ValueError(f"set_cache_bytes: n is {shown(count)}; it must be 0 or more.")
    CALLS.limit = count
    CALLS.clear()
