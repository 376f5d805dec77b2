"""Conversion of NumPy arrays to device tensors and back. These functions raise for bad arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.dtypes import DTYPES, FORMATS, dtype_of
from .contexts import CONTEXTS
from .handles import OutOfBounds, aclTensor
from .memory import MEMORY
from .objects import aclCreateTensor, handle_fault
from .state import RT_INVALID, Refused, describe, format_message, report, require_running, take_message


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
        address = block.address
        block.data[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        MEMORY.mark(address, array.nbytes)
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
    if (found := tensor.cells()) and (use := found[0].uses.race(found[0].address, found[1], writes=False)):
        text = f"tensor is memory that {use.race()}, and the program has not waited for that"
        try:
            report("tensor_to_numpy", f"{text}; call aclrtSynchronizeStream first.", RT_INVALID)
        except Refused as error:
            raise ValueError(f"tensor_to_numpy: {error.text}") from None
    try:
        return tensor.view().copy()
    except OutOfBounds as found:
        raise ValueError(f"tensor_to_numpy: tensor {found}; it must lie inside one block.") from None
    except ValueError:  # NumPy can't have an empty array of such sizes
        raise ValueError(
            f"tensor_to_numpy: tensor has viewDims {tensor.shape}; they must be smaller."
        ) from None
