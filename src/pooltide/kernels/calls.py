"""One cache of calls for all entrances, and the key that says when two calls are the same.

The checks, the plan and the kernel of a call depend on metadata only: the function, the shapes, strides,
dtypes and devices of its arrays, its attributes, and the backend that the environment chooses. An entrance
keeps what it found for a call in `CALLS`, under the call's key, and finds it there for the next equal call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ..geometry import Axis, is_long
from ..operators.plain import kinds
from .plan import backend_setting

Key = Hashable


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


class Calls:
    """A cache with a bound; a full cache is cleared."""

    MOST = 4096

    def __init__(self) -> None:
        self.known: dict[Key, Any] = {}  # compiled code reads this dictionary, too
        self.get: Callable[..., Any] = self.known.get  # the key None is never there

    def add(self, key: Key | None, found: Any, axes: Iterable[Axis] = ()) -> None:
        """Keeps what was found for a call; not if it has no key, or if long axes make its tables long."""
        if key is None or is_long(axes):
            return
        if len(self.known) >= self.MOST:
            self.clear()
        self.known[key] = found

    def clear(self) -> None:
        self.known.clear()


CALLS = Calls()
