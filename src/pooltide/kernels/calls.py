"""A checked call, the key that says when two calls are the same, and the setting of the cache's size.

The checks, the executable and the kernel of a call depend on metadata only: the function, the shapes,
strides, dtypes and devices of its arrays, its attributes, and the backend that the environment chooses. An
entrance keeps the `PreparedCall` in `CALLS`, under the call's key, for the next equal call.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..cache import CALLS, Key
from ..operators.plain import kinds, plain, shown
from ..problem.problem import Problem
from . import IndexFault, Kernel
from .plan import Executable, backend_setting

__all__ = ["CALLS", "Key", "PreparedCall", "call_key", "get_cache_bytes", "keep", "set_cache_bytes"]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """What the checks of a function's call found, without its arrays: how it is computed, and its result."""

    function: str
    axes: int
    problem: Problem
    executable: Executable | None  # None: PyTorch computes the call
    kernel: Kernel | None  # of the executable, where it can be called on the arrays as they are
    shape: tuple[int, ...]  # of the result
    channels_last: bool  # whether a new result is
    strides: tuple[int, ...] = ()  # of a new tensor
    template: Any = None  # a tensor without memory that a new one resembles

    def index_error(self, fault: tuple[int, int, int], shape: tuple[int, ...]) -> IndexError:
        """`shape`: that of the indices."""
        inside = IndexFault(*fault).message("indices", shape, self.problem.input_plane[3 - self.axes :])
        return IndexError(f"{self.function}: {inside}")


class Planned(Protocol):
    """A prepared call of any family."""

    @property
    def executable(self) -> Executable | None: ...


C = TypeVar("C", bound=Planned)


def keep(key: Key | None, call: C) -> C:
    """Adds the call to the cache, and returns it."""
    CALLS.add(key, call, None if call.executable is None else call.executable.prepared)
    return call


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
