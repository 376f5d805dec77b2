"""Takes a NumPy array for a new tensor, or a tensor for a new array.

Returns copies, and raises for bad arguments, as only Python programs call it. It must not submit jobs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.dtypes import DTYPES, FORMATS, dtype_of
from .contexts import CONTEXTS
from .error_reports import (
    RT_INVALID,
    Refused,
    describe,
    format_message,
    report,
    require_running,
    take_message,
)
from .handles import handle_fault
from .memory_blocks import MEMORY, Range
from .tensor_descriptors import OutOfBounds, aclCreateTensor, aclTensor


def tensor_from_numpy(array: NDArray[Any], format: int = FORMATS["ND"]) -> aclTensor:
    """A tensor in new device memory with a copy of the array. aclDestroyTensor frees the memory too."""
    try:
        require_running("tensor_from_numpy")
    except Refused as error:
        raise RuntimeError(format_message("tensor_from_numpy", error.text, error.status)) from None
    if CONTEXTS.current() is None:
        CONTEXTS.set_device()
    if not issubclass(type(array), np.ndarray):
        raise TypeError(f"tensor_from_numpy: array is {describe(array)}; it must be a NumPy array.")
    dtype = dtype_of(array.dtype)
    if dtype is None:
        known = ", ".join(name.lower() for name in DTYPES)
        raise TypeError(f"tensor_from_numpy: array has dtype {array.dtype}; it must be one of {known}.")
    address = None
    if array.nbytes:
        block = MEMORY.allocate(array.nbytes)
        address, block.owned = block.address, True
        block.data[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        block.written.mark(block.cells(address, array.nbytes))
    tensor = aclCreateTensor(array.shape, dtype.code, None, 0, format, array.shape, address)
    if tensor is None:
        if address is not None:
            MEMORY.free(address)
        raise ValueError(take_message())
    tensor.owns_memory = address is not None
    return tensor


def tensor_to_numpy(tensor: aclTensor) -> NDArray[Any]:
    """A copy of the tensor's cells. Synchronize the stream that writes them first.

    Without that, the call prints a warning; at the checks level strict, it raises ValueError.
    """
    if fault := handle_fault(tensor, aclTensor):
        raise ValueError(f"tensor_to_numpy: tensor {fault[0]}; it must be {fault[1]}.")
    if any(n < 0 for n in tensor.shape):
        raise ValueError(f"tensor_to_numpy: tensor has viewDims {tensor.shape}; none must be negative.")
    located = tensor.cells()
    if located and (use := Range("tensor", *located, writes=False).race(None)):
        text = f"tensor is memory that {use.describe()}, and the program has not waited for that"
        try:
            report("tensor_to_numpy", f"{text}; call aclrtSynchronizeStream first.", RT_INVALID)
        except Refused as error:
            raise ValueError(f"tensor_to_numpy: {error.text}") from None
    try:
        return tensor.view().copy()
    except OutOfBounds as error:
        raise ValueError(f"tensor_to_numpy: tensor {error}; it must lie inside one block.") from None
    except ValueError:  # NumPy can't have an empty array of such sizes
        raise ValueError(
            f"tensor_to_numpy: tensor has viewDims {tensor.shape}; they must be smaller."
        ) from None
