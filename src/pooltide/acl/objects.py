"""The functions that create and destroy tensors and int arrays, and the checks of handles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..operators.call import contiguous_strides, is_int
from ..operators.dtypes import FORMATS, dtype_by_code, format_by_code
from .handles import aclIntArray, aclOpExecutor, aclTensor
from .memory import MEMORY
from .memory_calls import free
from .state import ACLNN_STATUSES, BAD, Refused, describe, entry_point

_INT64 = range(-(2**63), 2**63)
_MAX_RANK = 64


@entry_point(lambda status: None)
def aclCreateTensor(
    viewDims: Sequence[int],
    dataType: int,
    strides: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int],
    tensorData: int | None,
) -> aclTensor | None:
    """Describe device memory as a tensor. Returns None, with a message, for a bad argument."""
    return describe_tensor(viewDims, dataType, strides, offset, format, storageDims, tensorData)


def describe_tensor(
    viewDims: Any,
    dataType: Any,
    strides: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    tensorData: Any,
    names: tuple[str, str] = ("strides", "tensorData"),
) -> aclTensor:
    """The tensor; raises Refused. `names` are those of the third and the last argument."""
    shape, steps, storage = _ints(viewDims), _ints(strides), _ints(storageDims)
    dtype = dtype_by_code(dataType) if is_int(dataType) else None
    layout = format_by_code(format) if is_int(format) else None
    if shape is None or len(shape) > _MAX_RANK:
        raise Refused(BAD, f"viewDims is {viewDims!r:.60}; it must be at most {_MAX_RANK} ints.")
    if strides is not None and (steps is None or len(steps) != len(shape)):
        must = f"it must be null or {len(shape)} ints, one for each of viewDims."
        raise Refused(BAD, f"{names[0]} is {strides!r:.60}; {must}")
    if storageDims is not None and storage is None:
        raise Refused(BAD, f"storageDims is {storageDims!r:.60}; it must be ints.")
    if dtype is None:
        raise Refused(
            BAD, f"dataType is {dataType!r:.40}; it must be a code of aclDataType that tensors have."
        )
    if layout is None:
        codes = ", ".join(f"{name} ({code})" for name, code in FORMATS.items())
        raise Refused(BAD, f"format is {format!r:.40}; it must be one of {codes}.")
    if not is_int(offset) or offset not in _INT64:
        raise Refused(BAD, f"offset is {offset!r:.40}; it must be an int that counts elements.")
    if tensorData is not None and (not is_int(tensorData) or tensorData not in range(2**64)):
        raise Refused(BAD, f"{names[1]} is {describe(tensorData)}; it must be a device address or null.")
    address = int(tensorData) if tensorData else None
    steps = steps or contiguous_strides(shape)
    return aclTensor(shape, dtype, steps, int(offset), layout, storage or shape, address)


@entry_point(int, ACLNN_STATUSES)
def aclDestroyTensor(tensor: aclTensor | None) -> int:
    """Forget the description. Device memory stays allocated, unless tensor_from_numpy allocated it."""
    return destroy("tensor", tensor, aclTensor)


@entry_point(lambda status: None)
def aclCreateIntArray(value: Sequence[int]) -> aclIntArray | None:
    if (values := _ints(value)) is None:
        raise Refused(BAD, f"value is {value!r:.60}; it must be 64-bit ints.")
    return aclIntArray(values)


@entry_point(int, ACLNN_STATUSES)
def aclDestroyIntArray(array: aclIntArray | None) -> int:
    return destroy("array", array, aclIntArray)


def destroy(name: str, handle: Any, kind: type[Any]) -> int:
    """Mark a live handle as destroyed; null is none. Returns 0, or raises Refused."""
    if handle is None:
        return 0
    require_live(name, handle, kind)
    if isinstance(handle, aclTensor) and handle.owns_memory and MEMORY.starts(handle.address or 0):
        free("aclDestroyTensor", "tensor", handle.address, MEMORY, "tensor_from_numpy")
    handle.alive = False
    if isinstance(handle, aclOpExecutor):
        handle.launch = None  # which holds memory
    return 0


_MAKERS: dict[type[Any], str] = {
    aclTensor: "aclCreateTensor",
    aclIntArray: "aclCreateIntArray",
    aclOpExecutor: "a GetWorkspaceSize call",
}


def register(kind: type[Any], maker: str) -> None:
    """Let messages name the function that makes handles of this kind."""
    _MAKERS[kind] = maker


def handle_fault(handle: Any, kind: type[Any]) -> tuple[str, str] | None:
    """None for a live handle of this kind; else ("is an int, 7", "a live aclTensor of aclCreateTensor")."""
    must = f"a live {kind.__name__} of {_MAKERS[kind]}"
    if not isinstance(handle, kind):
        return f"is {describe(handle)}", must
    return None if handle.alive else ("was destroyed", must)


def require_live(name: str, handle: Any, kind: type[Any]) -> None:
    """Raises Refused unless the argument `name` is a live handle of this kind."""
    if fault := handle_fault(handle, kind):
        raise Refused(BAD, f"{name} {fault[0]}; it must be {fault[1]}.")


def _ints(values: Any) -> tuple[int, ...] | None:
    """The values as ints; None unless they are a sequence of 64-bit ints."""
    if not isinstance(values, (list, tuple)) and not (isinstance(values, np.ndarray) and values.ndim == 1):
        return None
    found = tuple(values)
    return tuple(map(int, found)) if all(is_int(v) and int(v) in _INT64 for v in found) else None
