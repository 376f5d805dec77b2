"""Takes the description of a view of device memory: shape, strides, dtype, format and address.

Returns a tensor, its properties, and the view of its data. The tensor looks up its block at every use, so a
block that was freed, or a view that leaves its block, is noticed then. It must not change the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..operators.call import TensorMeta, contiguous_strides, is_int
from ..operators.dtypes import FORMATS, DType, dtype_by_code, format_by_code
from .error_reports import ACLNN_INVALID, ACLNN_NULL, ACLNN_STATUSES, Refused, describe, entry_point
from .handles import destroy, destroyed_mark, require_live
from .memory_blocks import MEMORY, Block, free
from .written_bytes import Cells

Array = NDArray[Any]
_DIMS = (lambda status: ((), status), ACLNN_STATUSES)
_NUMBER = (lambda status: (0, status), ACLNN_STATUSES)
_INT64 = range(-(2**63), 2**63)
_MAX_RANK = 64


class OutOfBounds(Exception):
    """A view leaves its block; the text says which bytes it needs, as a sentence without its subject."""


@dataclass(eq=False)
class aclTensor:
    must_be: ClassVar[str] = "a live aclTensor of aclCreateTensor"
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    offset: int
    format: str
    storage: tuple[int, ...]
    address: int | None
    owns_memory: bool = False
    alive: bool = True
    original: aclTensor | None = None  # the tensor of which this one is an executor's copy
    meta: TensorMeta = field(init=False)
    low: int = field(init=False)  # the first element that the view reaches, counted from the address
    high: int = field(init=False)  # the element after the last
    _cells: tuple[Block, Cells] | None = None  # kept from the last use

    def __post_init__(self) -> None:
        self.meta = TensorMeta(self.shape, self.dtype, self.format, self.strides)
        reach = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        self.low = self.offset + sum(r for r in reach if r < 0)
        self.high = self.offset + sum(r for r in reach if r > 0) + 1

    @property
    def usable(self) -> bool:
        """Whether the program has not destroyed the tensor."""
        return self.alive if self.original is None else self.original.alive

    def __repr__(self) -> str:
        at = "null" if self.address is None else f"{self.address:#x}"
        return f"<aclTensor {self.dtype} {self.shape} {self.format} at {at}{destroyed_mark(self.alive)}>"

    def move(self, address: int | None) -> None:
        """Give the tensor another address. It does not own that memory."""
        self.address, self.owns_memory, self._cells = address, False, None

    @property
    def aligned(self) -> bool:
        return (self.address or 0) % self.dtype.itemsize == 0

    def span(self) -> tuple[int, int]:
        """The addresses of the first byte that the view reaches, and of the byte after the last."""
        base, size = self.address or 0, self.dtype.itemsize
        return base + self.low * size, base + self.high * size

    @property
    def empty(self) -> bool:
        return 0 in self.shape

    def outside_storage(self) -> str | None:
        """The fault of a view that leaves the storage that the program describes, without its subject."""
        low, high, cells = self.low, self.high, prod(self.storage)
        if (low >= 0 and high <= cells) or self.empty or min(*self.shape, *self.storage, 0) < 0:
            return None
        return (
            f"reaches elements {low} to {high - 1} by its viewDims, strides and offset, and its storageDims, "
            f"{list(self.storage)}, have {cells}; the view must lie inside the storage."
        )

    def view(self) -> Array:
        """The data in device memory, not a copy. Raises OutOfBounds."""
        if self.empty:
            return np.empty(self.shape, self.dtype.numpy)
        if not (located := self.cells()):
            raise OutOfBounds(self._place())
        block, cells = located
        data = block.data
        if len(data) < block.size:  # another thread freed the block
            raise OutOfBounds(self._place())
        return np.ndarray(self.shape, self.dtype.numpy, data.data, cells.start, cells.steps)

    def snapshot(self, address: int | None) -> aclTensor:
        """A copy for an executor, with this address. Later changes of the tensor do not reach it.

        Another thread may change the tensor meanwhile: the copy is made at once.
        """
        copy = object.__new__(aclTensor)  # copy.copy takes ten times as long
        vars(copy).update(vars(self))
        if address != copy.address:
            copy.move(address)
        copy.owns_memory, copy.original = False, self
        return copy

    def cells(self) -> tuple[Block, Cells] | None:
        """The block and the cells in it; None if there is no cell, or if one is outside the block."""
        if self._cells is None or not self._cells[0].alive:
            self._cells = self._find_cells()
        return self._cells

    def _find_cells(self) -> tuple[Block, Cells] | None:
        block = None if self.empty or self.address is None else MEMORY.find(self.address)
        if block is None:
            return None
        (start, end), size, base = self.span(), self.dtype.itemsize, block.address
        if start < base or end > base + block.size:
            return None
        at = (self.address or 0) + self.offset * size - base
        steps = tuple(step * size for step in self.strides)
        return block, Cells(at, start - base, end - base, self.shape, steps, size)

    def mark_written(self) -> None:
        """Record that the cells were written. The view must be inside its block."""
        if located := self.cells():
            located[0].written.mark(located[1])

    def never_written(self) -> str | None:
        """The fault when some cells were never written, as a sentence without its subject, or None."""
        located = self.cells()
        return located[0].never_written(located[1]) if located else None

    def _place(self) -> str:
        if self.address is None:
            return "has no memory (its address is null)"
        start, end = self.span()
        block = MEMORY.find(self.address)
        if block is None:
            why, _, _ = MEMORY.fault(self.address, end - start).partition(";")
            return f"has an address that {why}"
        return (
            f"reaches bytes {start - block.address} to {end - block.address} of a block of {block.size} bytes"
        )


def int_tuple(values: Any) -> tuple[int, ...] | None:
    """The values as ints; None unless they are a sequence of 64-bit ints."""
    if not isinstance(values, (list, tuple)) and not (isinstance(values, np.ndarray) and values.ndim == 1):
        return None
    fit = all(is_int(value) and int(value) in _INT64 for value in values)
    return tuple(map(int, values)) if fit else None


def element_type(code: Any) -> DType:
    """The dtype of a code of aclDataType. Raises Refused for a code that no tensor has."""
    if (dtype := dtype_by_code(code) if is_int(code) else None) is None:
        must = "it must be a code of aclDataType that tensors have."
        raise Refused(ACLNN_INVALID, f"dataType is {code!r:.40}; {must}")
    return dtype


def live_tensor(tensor: Any, null_status: int = ACLNN_NULL) -> aclTensor:
    """The argument. Raises Refused unless it is a live tensor."""
    return require_live("tensor", tensor, aclTensor, null_status=null_status)


def device_address(name: str, address: Any) -> int | None:
    """The address, None for null. Raises Refused for any other value."""
    if address is not None and (not is_int(address) or address not in range(2**64)):
        raise Refused(ACLNN_INVALID, f"{name} is {describe(address)}; it must be a device address or null.")
    return int(address) if address else None


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
    shape, steps, storage = int_tuple(viewDims), int_tuple(strides), int_tuple(storageDims)
    layout = format_by_code(format) if is_int(format) else None
    if shape is None or len(shape) > _MAX_RANK:
        raise Refused(ACLNN_INVALID, f"viewDims is {viewDims!r:.60}; it must be at most {_MAX_RANK} ints.")
    if strides is not None and (steps is None or len(steps) != len(shape)):
        must = f"it must be null or {len(shape)} ints, one for each of viewDims."
        raise Refused(ACLNN_INVALID, f"{names[0]} is {strides!r:.60}; {must}")
    if storageDims is not None and storage is None:
        raise Refused(ACLNN_INVALID, f"storageDims is {storageDims!r:.60}; it must be ints.")
    dtype = element_type(dataType)
    if layout is None:
        codes = ", ".join(f"{name} ({code})" for name, code in FORMATS.items())
        raise Refused(ACLNN_INVALID, f"format is {format!r:.40}; it must be one of {codes}.")
    if not is_int(offset) or offset not in _INT64:
        raise Refused(ACLNN_INVALID, f"offset is {offset!r:.40}; it must be an int that counts elements.")
    address = device_address(names[1], tensorData)
    steps = steps or contiguous_strides(shape)
    return aclTensor(shape, dtype, steps, int(offset), layout, storage or shape, address)


@entry_point(int, ACLNN_STATUSES)
def aclDestroyTensor(tensor: aclTensor | None) -> int:
    """Forget the description. Device memory stays allocated, unless tensor_from_numpy allocated it."""
    return destroy_tensor("tensor", tensor)


def destroy_tensor(name: str, tensor: Any) -> int:
    """Mark a live tensor as destroyed, and free the memory that it owns. Returns 0, or raises Refused."""
    if tensor is None:
        return 0
    live = require_live(name, tensor, aclTensor)
    if live.owns_memory and MEMORY.starts(live.address or 0):
        free("aclDestroyTensor", "tensor", live.address, MEMORY, "tensor_from_numpy")
    return destroy(name, live, aclTensor)


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
    live_tensor(tensor).move(device_address("addr", addr))
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
    live, names = live_tensor(tensor), ("stride", "tensorDataAddr")
    new = describe_tensor(viewDims, dataType, stride, offset, format, storageDims, tensorDataAddr, names)
    for name, numbers in (
        ("viewDims", new.shape),
        ("stride", new.strides),
        ("offset", (new.offset,)),
        ("storageDims", new.storage),
    ):
        if any(n < 0 for n in numbers):
            raise Refused(ACLNN_INVALID, f"{name} is {list(numbers)}; none must be negative.")
    vars(live).update(vars(new))
    return 0
