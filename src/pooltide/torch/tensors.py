"""Helpers for tensors: dtypes, metadata, storage checks, layouts, and allocation of results.

`allocate` requests huge pages for large results: with 4 KB pages, page faults cost more than the kernel.
Under `torch.use_deterministic_algorithms`, torch.empty fills tensors with NaN. Our kernels write every
cell, so `allocate` then takes bare storage instead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from math import prod
from typing import Any, TypeGuard

import torch
from torch._prims_common import suggest_memory_format

from ..kernels import cpu
from ..operators.binding import ArrayReader
from ..operators.call import TensorMeta, Unusable, contiguous_strides
from ..operators.dtypes import DTYPES, DType

DEVICES = ("cpu", "cuda")
_deterministic: Callable[[], bool] = torch._C._get_deterministic_algorithms

TYPES: dict[torch.dtype, DType] = {
    dtype: known
    for name, known in DTYPES.items()
    if isinstance(dtype := getattr(torch, name.lower(), None), torch.dtype)
}


@cache
def arrays_on(device: torch.device, first: str = "grad_output") -> ArrayReader:
    """Returns the reader of tensor metadata for a call whose first tensor is on `device`."""

    def read(value: Any, written: bool) -> TensorMeta | Unusable | str | None:
        if not is_tensor(value):
            return None
        if kind := unreadable(value):
            return Unusable(kind, "a strided tensor", TypeError)
        if value.device != device:
            return Unusable(f"is on {value.device}", f"on {device}, as {first} is", ValueError)
        if device.type not in DEVICES and device.type != "meta":
            return Unusable(f"is on {device}", f"on {' or '.join(DEVICES)}", ValueError)
        if (dtype := TYPES.get(value.dtype)) is None:
            return f"has dtype {value.dtype}".replace("torch.", "")
        return TensorMeta(tuple(value.shape), dtype, strides=tuple(value.stride()))

    return ArrayReader("a tensor", read, _integer)


def is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether the type is a tensor type. isinstance would read value.__class__, which may raise."""
    return issubclass(type(value), torch.Tensor)


def metadata(*tensors: Any) -> tuple[Hashable, ...] | None:
    """Returns (shape, strides, dtype, device) of each tensor, and None for each argument that is None.

    Returns None if an argument is not a strided tensor.
    """
    facts: list[Hashable] = []
    for tensor in tensors:
        if tensor is None:
            facts.append(None)
        elif not is_tensor(tensor) or unreadable(tensor):
            return None
        else:
            device = tensor.is_cpu or (-2 - tensor.get_device() if tensor.is_cuda else tensor.device)
            facts.append((tensor.shape, tensor.stride(), tensor.dtype, device))
    return tuple(facts)


def check_memory(function: str, grad_output: Any, indices: Any = None, out: Any = None) -> None:
    """Raises ValueError for a tensor with too little storage, or a read-only `out`."""
    if out is None and _fills_storage(grad_output) and (indices is None or _fills_storage(indices)):
        return
    for name, tensor in (("grad_output", grad_output), ("indices", indices), ("out", out)):
        if tensor is not None and (text := shortage(tensor)):
            raise ValueError(f"{function}: {name} {text}")
    if out is not None and type(out) is torch.Tensor and out._is_zerotensor():
        raise ValueError(f"{function}: out is a zero tensor, which is read-only; it must be a normal one.")


def _fills_storage(tensor: Any) -> bool:
    """Whether a tensor has all its memory, for sure: the quick answer for nearly every small call."""
    try:
        return (
            type(tensor) is torch.Tensor
            and tensor.is_contiguous()
            and not tensor.storage_offset()
            and len(tensor.untyped_storage()) >= tensor.nbytes
        )
    except RuntimeError:  # not strided, or a wrapper that torch.func makes
        return False


def shortage(tensor: Any) -> str | None:
    """Returns the end of an error message if the storage is smaller than the tensor; None if it is not.

    Sharded training frees storage, which then has 0 bytes. PyTorch does not check this before a copy, and
    the process crashes.
    """
    if type(tensor) not in _WITH_STORAGE or _fills_storage(tensor):  # a subclass may have no storage
        return None
    try:
        have = len(tensor.untyped_storage())
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        need = (tensor.storage_offset() + last + 1) * tensor.itemsize if tensor.numel() else 0
    except RuntimeError:  # not strided, or a torch.func wrapper
        return shortage(_unwrapped(tensor)) if _is_wrapper(tensor) else None
    if have >= need or tensor._is_zerotensor():
        return None
    return f"has storage of {have} bytes; it must have {need}, as shape and strides need."


_WITH_STORAGE = frozenset({torch.Tensor, torch.nn.Parameter})
_is_wrapper, _unwrapped = torch._C._functorch.is_functorch_wrapped_tensor, torch._C._functorch.get_unwrapped


def unreadable(tensor: torch.Tensor) -> str | None:
    """Returns why no kernel can read the tensor, for any dtype; None if kernels can."""
    if tensor.is_nested:
        return "is a nested tensor"
    return None if tensor.layout is torch.strided else f"has layout {tensor.layout}"


def _integer(value: Any) -> int | None:
    """Returns the value if it is an int, or a SymInt (a traced size); None otherwise."""
    return value if type(value) is int or issubclass(type(value), torch.SymInt) else None


def is_channels_last(tensor: torch.Tensor, axes: int) -> bool:
    """Whether PyTorch treats the tensor as channels_last (channels_last_3d with three axes)."""
    if axes == 1 or tensor.dim() != axes + 2:
        return False
    shape, strides = tensor.shape, tensor.stride()
    if all(type(n) is int for n in (*shape, *strides)):
        return tensor.layout is torch.strided and _near_channels(shape, strides)
    return suggest_memory_format(tensor) == _channels_last(axes)  # sizes of a trace


def _near_channels(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """What suggest_memory_format decides for integers. That function imports sympy, which takes a second."""
    if strides[1] == 0 or 0 in shape:
        return False
    inner_bytes = 0
    for axis in (1, *reversed(range(2, len(shape))), 0):  # channels are innermost, images outermost
        if strides[axis] < inner_bytes or (axis == 0 and inner_bytes == strides[1]):
            return False
        inner_bytes = strides[axis] * shape[axis]
    return True


def memory_format(channels_last: bool, axes: int) -> torch.memory_format:
    return _channels_last(axes) if channels_last and axes > 1 else torch.contiguous_format


def _channels_last(axes: int) -> torch.memory_format:
    return torch.channels_last if axes == 2 else torch.channels_last_3d


def dense_strides(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    if not channels_last:
        return contiguous_strides(shape)
    n, c, *plane = shape
    first, *inner, last = contiguous_strides((n, *plane, c))
    return (first, last, *inner)


def allocate(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Returns an uninitialized dense tensor; the kernel must write every cell."""
    if not _deterministic() or device.type not in DEVICES:
        result = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    else:
        storage = torch.UntypedStorage(prod(shape) * dtype.itemsize, device=device)  # type: ignore[no-untyped-call]
        result = torch.empty(0, dtype=dtype, device=device).set_(storage, 0, shape, strides)
    if result.is_cpu:
        cpu.use_huge_pages(result.data_ptr(), result.nbytes)
    return result


# Whether a tensor shares its memory until one writes to it (copy-on-write); names that a release may lack.
is_cow: Callable[[torch.Tensor], bool] = getattr(torch._C, "_is_cow_tensor", lambda _: False)
_shared_address: Callable[[torch.Tensor], int] = getattr(torch._C, "_data_address", torch.Tensor.data_ptr)


def address(tensor: torch.Tensor) -> int:
    """Returns where the tensor begins, for reading; data_ptr() copies shared memory, for writing."""
    if is_cow(tensor):
        return _shared_address(tensor) + int(tensor.storage_offset()) * tensor.element_size()
    return tensor.data_ptr()


def storage_address(tensor: torch.Tensor) -> int:
    """Returns where the tensor's storage begins, for reading."""
    return _shared_address(tensor) if is_cow(tensor) else tensor.untyped_storage().data_ptr()


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, or a copy if its address is not a multiple of its element size, as kernels need."""
    return tensor if address(tensor) % tensor.element_size() == 0 else tensor.clone()


def as_volume(tensor: torch.Tensor, axes: int) -> torch.Tensor:
    """Returns a view of the tensor as (N, C, D, H, W), with unit axes for the missing ones."""
    if tensor.dim() == axes + 1:
        tensor = tensor.unsqueeze(0)
    for _ in range(3 - axes):
        tensor = tensor.unsqueeze(2)
    return tensor


def as_numpy(tensor: torch.Tensor) -> Any:
    """Returns a NumPy array that shares the tensor's memory."""
    numpy_dtype = TYPES[tensor.dtype].numpy
    tensor = tensor.detach()
    return (
        tensor.view(torch.uint16).numpy().view(numpy_dtype)
        if tensor.dtype == torch.bfloat16
        else tensor.numpy()
    )
