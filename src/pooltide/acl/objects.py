"""Tensors, int arrays and executors, made and destroyed under their C names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..operators.call import contiguous_strides, is_int
from ..operators.dtypes import FORMATS, STATUS, dtype_by_code, format_by_code
from .handles import aclIntArray, aclOpExecutor, aclTensor
from .memory import MEMORY
from .state import an, fail, guarded, not_running

NULL = STATUS["ACLNN_ERR_PARAM_NULLPTR"]
BAD = STATUS["ACLNN_ERR_PARAM_INVALID"]
NOT_RUNNING = STATUS["ACLNN_ERR_RUNTIME_ERROR"]
INNER = STATUS["ACLNN_ERR_INNER"]
_INT64 = range(-(2**63), 2**63)
_MAX_RANK = 64


@guarded(lambda status: None)
def aclCreateTensor(
    viewDims: Sequence[int],
    dataType: int,
    strides: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int],
    tensorData: int | None,
) -> aclTensor | None:
    """Describe device memory as a tensor; None, with a message, when that makes no sense."""
    title = "aclCreateTensor"
    if not_running(title):
        return None
    shape, steps, storage = _ints(viewDims), _ints(strides), _ints(storageDims)
    dtype = dtype_by_code(dataType) if is_int(dataType) else None
    layout = format_by_code(format) if is_int(format) else None
    text = None
    if shape is None or len(shape) > _MAX_RANK:
        text = f"viewDims is {viewDims!r:.60}; it must be at most {_MAX_RANK} ints."
    elif strides is not None and (steps is None or len(steps) != len(shape)):
        text = f"strides is {strides!r:.60}; it must be null or {len(shape)} ints, one for each of viewDims."
    elif storageDims is not None and storage is None:
        text = f"storageDims is {storageDims!r:.60}; it must be ints."
    elif dtype is None:
        text = f"dataType is {dataType!r:.40}; it must be a code of aclDataType."
    elif layout is None:
        codes = ", ".join(f"{name} ({code})" for name, code in FORMATS.items())
        text = f"format is {format!r:.40}; it must be one of {codes}."
    elif not is_int(offset) or offset not in _INT64:
        text = f"offset is {offset!r:.40}; it must be an int that counts elements."
    elif tensorData is not None and (not is_int(tensorData) or tensorData not in range(2**64)):
        text = f"tensorData is {an(tensorData)}; it must be a device address or null."
    if text is not None:
        fail(title, text, BAD)
        return None
    assert shape is not None
    assert dtype is not None
    assert layout is not None
    dense = contiguous_strides(shape)
    return aclTensor(
        shape, dtype, steps or dense, int(offset), layout, storage or shape, _address(tensorData)
    )


def _address(value: int | None) -> int | None:
    return int(value) if value else None


@guarded(int, INNER)
def aclDestroyTensor(tensor: aclTensor | None) -> int:
    """Forget the description; device memory stays, unless tensor_from_numpy made it."""
    return _destroy("aclDestroyTensor", "tensor", tensor, aclTensor)


@guarded(lambda status: None)
def aclCreateIntArray(value: Sequence[int]) -> aclIntArray | None:
    if not_running("aclCreateIntArray"):
        return None
    if (values := _ints(value)) is None:
        fail("aclCreateIntArray", f"value is {value!r:.60}; it must be 64-bit ints.", BAD)
        return None
    return aclIntArray(values)


@guarded(int, INNER)
def aclDestroyIntArray(array: aclIntArray | None) -> int:
    return _destroy("aclDestroyIntArray", "array", array, aclIntArray)


@guarded(int, INNER)
def aclSetAclOpExecutorRepeatable(executor: aclOpExecutor | None) -> int:
    """Let the executor serve any number of calls, until aclDestroyAclOpExecutor."""
    title = "aclSetAclOpExecutorRepeatable"
    if status := not_running(title, NOT_RUNNING):
        return status
    if executor is None:
        return fail(title, "executor is null; it must be an executor of a GetWorkspaceSize call.", NULL)
    if text := unusable(executor, aclOpExecutor):
        return fail(title, f"executor {text}.", BAD)
    if executor.used and not executor.repeatable:
        return fail(title, "executor has served its call; it must be made repeatable before that.", BAD)
    executor.repeatable = True
    return 0


@guarded(int, INNER)
def aclDestroyAclOpExecutor(executor: aclOpExecutor | None) -> int:
    return _destroy("aclDestroyAclOpExecutor", "executor", executor, aclOpExecutor)


def _destroy(title: str, name: str, handle: Any, kind: type[Any]) -> int:
    if status := not_running(title, NOT_RUNNING):
        return status
    if handle is None:
        return 0
    if text := unusable(handle, kind):
        return fail(title, f"{name} {text}.", BAD)
    handle.alive = False
    if isinstance(handle, aclTensor) and handle.owns_memory and handle.address is not None:
        MEMORY.free(handle.address)
    return 0


_MAKERS = {
    aclTensor: "aclCreateTensor",
    aclIntArray: "aclCreateIntArray",
    aclOpExecutor: "a GetWorkspaceSize call",
}


def unusable(handle: Any, kind: type[Any]) -> str | None:
    """What is wrong with a handle that should be a live `kind`, as the rest of a sentence."""
    must = f"it must be a live {kind.__name__} of {_MAKERS[kind]}"
    if not isinstance(handle, kind):
        return f"is {an(handle)}; {must}"
    return None if handle.alive else f"was destroyed; {must}"


def _ints(values: Any) -> tuple[int, ...] | None:
    if not isinstance(values, (list, tuple)) and not (isinstance(values, np.ndarray) and values.ndim == 1):
        return None
    found = tuple(values)
    return tuple(map(int, found)) if all(is_int(v) and int(v) in _INT64 for v in found) else None
