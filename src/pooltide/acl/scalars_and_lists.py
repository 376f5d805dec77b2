"""Takes the numbers, tensors and scalars that a program puts into an array, a list or a scalar.

Returns handles that hold these values, and their sizes. It must not touch device memory, except that a list
owns its members: destroying the list destroys them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from ..operators.dtypes import DType
from .error_reports import ACLNN_INVALID, ACLNN_NULL, ACLNN_STATUSES, Refused, entry_point
from .handles import Handle, destroy, destroyed_mark, require_live
from .tensor_descriptors import aclTensor, destroy_tensor, element_type, int_tuple

T = TypeVar("T")
_SIZE = (lambda status: (0, status), ACLNN_STATUSES)


@dataclass(eq=False)
class aclScalar:
    must_be: ClassVar[str] = "a live aclScalar of aclCreateScalar"
    value: Any  # a NumPy scalar
    dtype: DType
    alive: bool = True

    def __repr__(self) -> str:
        return f"<aclScalar {self.dtype} {self.value}{destroyed_mark(self.alive)}>"


@dataclass(eq=False)
class Values(Generic[T]):
    """What the arrays and lists of all types share."""

    must_be: ClassVar[str]
    values: tuple[T, ...]
    alive: bool = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {list(self.values)}{destroyed_mark(self.alive)}>"


class aclIntArray(Values[int]):
    must_be = "a live aclIntArray of aclCreateIntArray"


class aclBoolArray(Values[bool]):
    must_be = "a live aclBoolArray of aclCreateBoolArray"


class aclFloatArray(Values[float]):
    must_be = "a live aclFloatArray of aclCreateFloatArray"


class _List(Values[T]):
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.values)}{destroyed_mark(self.alive)}>"


class aclTensorList(_List[aclTensor]):
    must_be = "a live aclTensorList of aclCreateTensorList"


class aclScalarList(_List[aclScalar]):
    must_be = "a live aclScalarList of aclCreateScalarList"


def _members(value: Any, must: str, fits: Callable[[Any], bool] = lambda member: True) -> tuple[Any, ...]:
    """The members of the sequence. Raises Refused unless all fit. `must` describes them."""
    if value is None:
        raise Refused(ACLNN_NULL, f"value is null; it must be a sequence of {must}.")
    is_sequence = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    if not is_sequence or not all(fits(member) for member in value):
        raise Refused(ACLNN_INVALID, f"value is {value!r:.60}; it must be a sequence of {must}.")
    return tuple(value)


@entry_point(lambda status: None)
def aclCreateScalar(value: Any, dataType: int) -> aclScalar | None:
    """A number of a data type. In C, `value` points to it."""
    dtype = element_type(dataType)
    if value is None:
        raise Refused(ACLNN_NULL, "value is null; it must point to a number.")
    try:
        number = np.asarray(value, dtype.numpy)
    except (ValueError, TypeError, OverflowError):
        raise Refused(
            ACLNN_INVALID, f"value is {value!r:.40}; it must be a number that {dtype} can hold."
        ) from None
    if number.ndim:
        raise Refused(ACLNN_INVALID, f"value is {value!r:.40}; it must be one number.")
    return aclScalar(number[()], dtype)


@entry_point(int, ACLNN_STATUSES)
def aclDestroyScalar(scalar: aclScalar | None) -> int:
    return destroy("scalar", scalar, aclScalar)


@entry_point(lambda status: None)
def aclCreateIntArray(value: Sequence[int]) -> aclIntArray | None:
    if (values := int_tuple(value)) is None:
        raise Refused(ACLNN_INVALID, f"value is {value!r:.60}; it must be 64-bit ints.")
    return aclIntArray(values)


@entry_point(int, ACLNN_STATUSES)
def aclDestroyIntArray(array: aclIntArray | None) -> int:
    return destroy("array", array, aclIntArray)


@entry_point(lambda status: None)
def aclCreateBoolArray(value: Sequence[bool]) -> aclBoolArray | None:
    members = _members(value, "bools", lambda member: isinstance(member, (bool, np.bool_)))
    return aclBoolArray(tuple(map(bool, members)))


@entry_point(int, ACLNN_STATUSES)
def aclDestroyBoolArray(array: aclBoolArray | None) -> int:
    return destroy("array", array, aclBoolArray)


@entry_point(lambda status: None)
def aclCreateFloatArray(value: Sequence[float]) -> aclFloatArray | None:
    numbers = (int, float, np.integer, np.floating)
    members = _members(value, "numbers", lambda member: isinstance(member, numbers))
    return aclFloatArray(tuple(float(np.float32(member)) for member in members))


@entry_point(int, ACLNN_STATUSES)
def aclDestroyFloatArray(array: aclFloatArray | None) -> int:
    return destroy("array", array, aclFloatArray)


def _live_members(value: Any, kind: type[Handle]) -> tuple[Any, ...]:
    members = _members(value, kind.__name__)
    for at, member in enumerate(members):
        require_live(f"value[{at}]", member, kind)
    return members


@entry_point(lambda status: None)
def aclCreateTensorList(value: Sequence[aclTensor]) -> aclTensorList | None:
    return aclTensorList(_live_members(value, aclTensor))


@entry_point(int, ACLNN_STATUSES)
def aclDestroyTensorList(array: aclTensorList | None) -> int:
    """Destroy the list and its tensors. Device memory stays allocated."""
    return _destroy_list(array, aclTensorList, destroy_tensor)


@entry_point(lambda status: None)
def aclCreateScalarList(value: Sequence[aclScalar]) -> aclScalarList | None:
    return aclScalarList(_live_members(value, aclScalar))


@entry_point(int, ACLNN_STATUSES)
def aclDestroyScalarList(array: aclScalarList | None) -> int:
    """Destroy the list and its scalars."""
    return _destroy_list(array, aclScalarList, lambda name, member: destroy(name, member, aclScalar))


def _destroy_list(array: Any, kind: type[Handle], destroy_member: Callable[[str, Any], int]) -> int:
    status = destroy("array", array, kind)
    for member in array.values if array is not None else ():
        if member.alive:  # a program may have destroyed it already
            destroy_member("array", member)
    return status


def _size(name: str, array: Any, kind: type[Values[Any]]) -> tuple[int, int]:
    if array is None:
        raise Refused(ACLNN_NULL, f"{name} is null; it must be a live {kind.__name__}.")
    return len(require_live(name, array, kind).values), 0


@entry_point(*_SIZE)
def aclGetIntArraySize(array: aclIntArray | None) -> tuple[int, int]:
    return _size("array", array, aclIntArray)


@entry_point(*_SIZE)
def aclGetBoolArraySize(array: aclBoolArray | None) -> tuple[int, int]:
    return _size("array", array, aclBoolArray)


@entry_point(*_SIZE)
def aclGetFloatArraySize(array: aclFloatArray | None) -> tuple[int, int]:
    return _size("array", array, aclFloatArray)


@entry_point(*_SIZE)
def aclGetTensorListSize(tensorList: aclTensorList | None) -> tuple[int, int]:
    return _size("tensorList", tensorList, aclTensorList)


@entry_point(*_SIZE)
def aclGetScalarListSize(scalarList: aclScalarList | None) -> tuple[int, int]:
    return _size("scalarList", scalarList, aclScalarList)
