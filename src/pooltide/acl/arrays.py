"""From NumPy arrays to device tensors and back, for Python's comfort. These raise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.dtypes import FORMATS, dtype_of
from .handles import OutOfBounds, aclTensor
from .memory import MEMORY
from .objects import aclCreateTensor, unusable
from .state import an, not_running, take_message


def tensor_from_numpy(array: NDArray[Any], format: int = FORMATS["ND"]) -> aclTensor:
    """Allocate device memory, copy the array there, describe it. aclDestroyTensor frees both."""
    if not_running("tensor_from_numpy"):
        raise RuntimeError(take_message())
    if not issubclass(type(array), np.ndarray):
        raise TypeError(f"tensor_from_numpy: array is {an(array)}; it must be a NumPy array.")
    dtype = dtype_of(array.dtype)
    if dtype is None:
        raise TypeError(f"tensor_from_numpy: array has dtype {array.dtype}, which aclDataType lacks.")
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
    """A copy of what the tensor's view shows now. Synchronize the stream before."""
    if text := unusable(tensor, aclTensor):
        raise ValueError(f"tensor_to_numpy: tensor {text}.")
    if any(n < 0 for n in tensor.shape):
        raise ValueError(f"tensor_to_numpy: tensor has viewDims {tensor.shape}; none must be negative.")
    try:
        return tensor.view().copy()
    except OutOfBounds as found:
        raise ValueError(f"tensor_to_numpy: tensor {found}; it must lie inside one block.") from None
    except ValueError:  # NumPy can't have an empty array of such sizes
        raise ValueError(
            f"tensor_to_numpy: tensor has viewDims {tensor.shape}; they must be smaller."
        ) from None
