"""Scalars, arrays of bools and floats, and lists of tensors and scalars.

No operator here takes them, so they hold their values and nothing else. A list owns its members:
destroying the list destroys them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..operators.call import is_int
from ..operators.dtypes import DType, dtype_by_code
from .handles import T, Values, aclIntArray, aclTensor, dead
from .objects import destroy, register, require_live
from .state import ACLNN_STATUSES, BAD, NULL, Refused, entry_point


@dataclass(eq=False)
class aclScalar:
    value: Any  # a NumPy scalar
    dtype: DType
    alive: bool = True

    def __repr__(self) -> str:
        return f"<aclScalar {self.dtype} {self.value}{dead(self.alive)}>"


class aclBoolArray(Values[bool]):
    pass


class aclFloatArray(Values[float]):
    pass


class _List(Values[T]):
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.values)}{dead(self.alive)}>"


class aclTensorList(_List[aclTensor]):
    pass


class aclScalarList(_List[aclScalar]):
    pass


for kind in (aclScalar, aclBoolArray, aclFloatArray, aclTensorList, aclScalarList):
    register(kind, kind.__name__.replace("acl", "aclCreate", 1))


def _sequence(name: str, value: Any, fits: Any, must: str) -> tuple[Any, ...]:
    """The members of a sequence. Raises Refused unless all fit."""
    if value is None:
        raise Refused(NULL, f"{name} is null; it must be {must}.")
    found = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    if not found or not all(fits(member) for member in value):
        raise Refused(BAD, f"{name} is {value!r:.60}; it must be {must}.")
    return tuple(value)


@entry_point(lambda status: None)
def aclCreateScalar(value: Any, dataType: int) -> aclScalar | None:
    """A number of a data type. In C, `value` points to it."""
    dtype = dtype_by_code(dataType) if is_int(dataType) else None
    if dtype is None:
        raise Refused(
            BAD, f"dataType is {dataType!r:.40}; it must be a code of aclDataType that tensors have."
        )
    if value is None:
        raise Refused(NULL, "value is null; it must point to a number.")
    try:
        number = np.asarray(value, dtype.numpy)
    except (ValueError, TypeError, OverflowError):
        raise Refused(BAD, f"value is {value!r:.40}; it must be a number that {dtype} can hold.") from None
    if number.ndim:
        raise Refused(BAD, f"value is {value!r:.40}; it must be one number.")
    return aclScalar(number[()], dtype)


@entry_point(int, ACLNN_STATUSES)
def aclDestroyScalar(scalar: aclScalar | None) -> int:
    return destroy("scalar", scalar, aclScalar)


@entry_point(lambda status: None)
def aclCreateBoolArray(value: Sequence[bool]) -> aclBoolArray | None:
    found = _sequence("value", value, lambda v: isinstance(v, (bool, np.bool_)), "a sequence of bools")
    return aclBoolArray(tuple(map(bool, found)))


@entry_point(int, ACLNN_STATUSES)
def aclDestroyBoolArray(array: aclBoolArray | None) -> int:
    return destroy("array", array, aclBoolArray)


@entry_point(lambda status: None)
def aclCreateFloatArray(value: Sequence[float]) -> aclFloatArray | None:
    numbers = (int, float, np.integer, np.floating)
    found = _sequence("value", value, lambda v: isinstance(v, numbers), "a sequence of numbers")
    return aclFloatArray(tuple(float(np.float32(v)) for v in found))


@entry_point(int, ACLNN_STATUSES)
def aclDestroyFloatArray(array: aclFloatArray | None) -> int:
    return destroy("array", array, aclFloatArray)


def _members(value: Any, kind: type[Any]) -> tuple[Any, ...]:
    found = _sequence("value", value, lambda v: True, f"a sequence of {kind.__name__}")
    for at, member in enumerate(found):
        require_live(f"value[{at}]", member, kind)
    return found


@entry_point(lambda status: None)
def aclCreateTensorList(value: Sequence[aclTensor]) -> aclTensorList | None:
    return aclTensorList(_members(value, aclTensor))


@entry_point(int, ACLNN_STATUSES)
def aclDestroyTensorList(array: aclTensorList | None) -> int:
    """Destroy the list and its tensors. Device memory stays allocated."""
    return _destroy_list(array, aclTensorList, aclTensor)


@entry_point(lambda status: None)
def aclCreateScalarList(value: Sequence[aclScalar]) -> aclScalarList | None:
    return aclScalarList(_members(value, aclScalar))


@entry_point(int, ACLNN_STATUSES)
def aclDestroyScalarList(array: aclScalarList | None) -> int:
    """Destroy the list and its scalars."""
    return _destroy_list(array, aclScalarList, aclScalar)


def _destroy_list(array: Any, kind: type[Any], member_kind: type[Any]) -> int:
    status = destroy("array", array, kind)
    for member in array.values if array is not None else ():
        if member.alive:  # a program may have destroyed it already
            destroy("array", member, member_kind)
    return status


def _size(name: str, array: Any, kind: type[Any]) -> tuple[int, int]:
    if array is None:
        raise Refused(NULL, f"{name} is null; it must be a live {kind.__name__}.")
    require_live(name, array, kind)
    return len(array.values), 0


@entry_point(lambda status: (0, status), ACLNN_STATUSES)
def aclGetIntArraySize(array: aclIntArray | None) -> tuple[int, int]:
    return _size("array", array, aclIntArray)


@entry_point(lambda status: (0, status), ACLNN_STATUSES)
def aclGetBoolArraySize(array: aclBoolArray | None) -> tuple[int, int]:
    return _size("array", array, aclBoolArray)


@entry_point(lambda status: (0, status), ACLNN_STATUSES)
def aclGetFloatArraySize(array: aclFloatArray | None) -> tuple[int, int]:
    return _size("array", array, aclFloatArray)


@entry_point(lambda status: (0, status), ACLNN_STATUSES)
def aclGetTensorListSize(tensorList: aclTensorList | None) -> tuple[int, int]:
    return _size("tensorList", tensorList, aclTensorList)


@entry_point(lambda status: (0, status), ACLNN_STATUSES)
def aclGetScalarListSize(scalarList: aclScalarList | None) -> tuple[int, int]:
    return _size("scalarList", scalarList, aclScalarList)
