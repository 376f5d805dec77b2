"""The functions that ask for a tensor's parts, and that change its address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..operators.call import is_int
from ..operators.dtypes import FORMATS
from .handles import aclTensor
from .objects import describe_tensor, require_live
from .state import ACLNN_STATUSES, BAD, NULL, Refused, describe, entry_point

_DIMS = (lambda status: ((), status), ACLNN_STATUSES)
_NUMBER = (lambda status: (0, status), ACLNN_STATUSES)


def live_tensor(tensor: Any, null_status: int = NULL) -> aclTensor:
    """Raises Refused unless the argument is a live tensor."""
    if tensor is None:
        raise Refused(null_status, "tensor is null; it must be a live aclTensor of aclCreateTensor.")
    require_live("tensor", tensor, aclTensor)
    found: aclTensor = tensor
    return found


def device_address(name: str, address: Any) -> int | None:
    """Raises Refused unless the argument is an address or None."""
    if address is not None and (not is_int(address) or address not in range(2**64)):
        raise Refused(BAD, f"{name} is {describe(address)}; it must be a device address or null.")
    return int(address) if address else None


@entry_point(*_DIMS)
def aclGetViewShape(tensor: aclTensor | None) -> tuple[tuple[int, ...], int]:
    """In C, the caller frees the array with delete[]."""
    return live_tensor(tensor).shape, 0


@entry_point(*_DIMS)
def aclGetViewStrides(tensor: aclTensor | None) -> tuple[tuple[int, ...], int]:
    """In C, the caller frees the array with delete[]."""
    return live_tensor(tensor).strides, 0


@entry_point(*_DIMS)
def aclGetStorageShape(tensor: aclTensor | None) -> tuple[tuple[int, ...], int]:
    """In C, the caller frees the array with delete[]."""
    return live_tensor(tensor).storage, 0


@entry_point(*_NUMBER)
def aclGetViewOffset(tensor: aclTensor | None) -> tuple[int, int]:
    return live_tensor(tensor).offset, 0


@entry_point(*_NUMBER)
def aclGetFormat(tensor: aclTensor | None) -> tuple[int, int]:
    return FORMATS[live_tensor(tensor).format], 0


@entry_point(*_NUMBER)
def aclGetDataType(tensor: aclTensor | None) -> tuple[int, int]:
    return live_tensor(tensor).dtype.code, 0


@entry_point(lambda status: (None, status), ACLNN_STATUSES)
def aclGetRawTensorAddr(tensor: aclTensor | None) -> tuple[int | None, int]:
    return live_tensor(tensor).address, 0


@entry_point(int, ACLNN_STATUSES)
def aclSetRawTensorAddr(tensor: aclTensor | None, addr: int | None) -> int:
    """Change the tensor's address, before phase one or after phase two."""
    found = live_tensor(tensor)
    found.move(device_address("addr", addr))
    return 0


@entry_point(int, ACLNN_STATUSES)
def aclInitTensor(
    tensor: aclTensor | None,
    viewDims: Sequence[int],
    dataType: int,
    stride: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int],
    tensorDataAddr: int | None,
) -> int:
    """Give an existing tensor a new description. No number may be negative."""
    found = live_tensor(tensor)
    given = viewDims, dataType, stride, offset, format, storageDims, tensorDataAddr
    new = describe_tensor(*given, names=("stride", "tensorDataAddr"))
    for name, numbers in (
        ("viewDims", new.shape),
        ("stride", new.strides),
        ("offset", (new.offset,)),
        ("storageDims", new.storage),
    ):
        if any(n < 0 for n in numbers):
            raise Refused(BAD, f"{name} is {list(numbers)}; none must be negative.")
    vars(found).update(vars(new))
    return 0
