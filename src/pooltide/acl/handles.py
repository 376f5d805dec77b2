"""The opaque objects of the interface: tensors, int arrays and executors.

A tensor describes a view of device memory. It finds its block whenever the view is read or written, so
a block that was freed, or a view that leaves its block, is noticed then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..operators.call import TensorMeta
from ..operators.dtypes import DType
from .memory import MEMORY, Block, never_written
from .written import Cells

if TYPE_CHECKING:
    from ..kernels.plan import Plan
    from ..operators.call import Call
    from .launch import Launch

Array = NDArray[Any]
T = TypeVar("T")
_FAR = 1 << 56  # bytes; any address that far from a block is outside of it
_MAX_PARTIAL = 1 << 26  # cells of a view that may be used in part


class OutOfBounds(Exception):
    """A view leaves its block; the text says which bytes it needs, as a sentence without its subject."""


@dataclass(eq=False)
class aclTensor:
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    offset: int
    format: str
    storage: tuple[int, ...]
    address: int | None
    owns_memory: bool = False
    alive: bool = True
    of: aclTensor | None = None  # the tensor of which this one is an executor's copy
    meta: TensorMeta = field(init=False)
    _cells: tuple[Block, Cells] | None = None  # kept from the last use

    def __post_init__(self) -> None:
        self.meta = TensorMeta(self.shape, self.dtype, self.format, self.strides)

    @property
    def usable(self) -> bool:
        """Whether the program has not destroyed the tensor."""
        return self.alive if self.of is None else self.of.alive

    def __repr__(self) -> str:
        at = "null" if self.address is None else f"{self.address:#x}"
        return f"<aclTensor {self.dtype} {self.shape} {self.format} at {at}{dead(self.alive)}>"

    def move(self, address: int | None) -> None:
        """Give the tensor another address. It does not own that memory."""
        self.address, self.owns_memory, self._cells = address, False, None

    @property
    def aligned(self) -> bool:
        return (self.address or 0) % self.dtype.itemsize == 0

    def span(self) -> tuple[int, int]:
        """The addresses of the first byte that the view reaches, and of the byte after the last."""
        reach = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(min(r, 0) for r in reach)
        high = self.offset + sum(max(r, 0) for r in reach)
        base = self.address or 0
        return base + low * self.dtype.itemsize, base + (high + 1) * self.dtype.itemsize

    @property
    def empty(self) -> bool:
        return 0 in self.shape

    def view(self) -> Array:
        """The data in device memory, not a copy. Raises OutOfBounds."""
        if self.empty:
            return np.empty(self.shape, self.dtype.numpy)
        if not (found := self.cells()):
            raise OutOfBounds(self._place())
        block, cells = found
        data = block.data
        if len(data) < block.size:  # another thread freed the block
            raise OutOfBounds(self._place())
        return np.ndarray(self.shape, self.dtype.numpy, data.data, cells.start, cells.steps)

    def snapshot(self, address: int | None) -> aclTensor:
        """A copy for an executor, with this address. Later changes of the tensor do not reach it.

        Another thread may change the tensor meanwhile: the copy is made at once.
        """
        made = object.__new__(aclTensor)  # copy.copy takes ten times as long
        vars(made).update(vars(self))
        if address != made.address:
            made.move(address)
        made.owns_memory, made.of = False, self
        return made

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
        if found := self.cells():
            found[0].written.mark(found[1])

    def never_written(self) -> str | None:
        """The fault when some cells were never written, as a sentence without its subject, or None."""
        found = self.cells()
        return never_written(*found) if found else None

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

    @property
    def too_large(self) -> bool:
        """Whether the view has too many cells for `read_inside` and `write_inside`."""
        return prod(self.shape) > _MAX_PARTIAL

    def _inside(self) -> tuple[Array, Array, Block | None]:
        """(a mask of the cells inside the block, the byte offsets of these cells, the block)."""
        block = None if self.address is None else MEMORY.find(self.address)
        start = (self.address or 0) - (block.address if block else 0) + self.offset * self.dtype.itemsize
        if block is None or abs(start) >= _FAR:
            return np.zeros(self.shape, np.bool_), np.zeros(0, np.int64), None
        at = np.full(self.shape, start, dtype=np.int64)
        near = np.ones(self.shape, np.bool_)
        for axis, step in enumerate(self.strides):
            cells = np.arange(self.shape[axis], dtype=np.int64)
            along = [-1 if i == axis else 1 for i in range(at.ndim)]
            # A cell beyond _FAR on one axis is outside: without it, the sums fit in 64 bits.
            close = cells <= _FAR // max(abs(step) * self.dtype.itemsize, 1)
            reach = np.where(close, cells, 0) * (step * self.dtype.itemsize if close[1:].any() else 0)
            near &= close.reshape(along)
            at += reach.reshape(along)
        good = near & (at >= 0) & (at + self.dtype.itemsize <= block.size)
        return good, at[good], block

    def read_inside(self) -> tuple[Array, Array]:
        """A copy of the view with 0 in the cells outside its block, and a mask of the cells inside."""
        good, at, block = self._inside()
        result = np.zeros(self.shape, dtype=self.dtype.numpy)
        if block is not None and at.size:
            size = self.dtype.itemsize
            result[good] = block.data[at[:, None] + np.arange(size)].view(self.dtype.numpy)[:, 0]
        return result, good

    def write_inside(self, values: Array) -> None:
        """Write only the cells of the view that are inside its block."""
        good, at, block = self._inside()
        if block is not None and at.size:
            size = self.dtype.itemsize
            raw = np.ascontiguousarray(values[good]).view(np.uint8).reshape(-1, size)
            block.data[at[:, None] + np.arange(size)] = raw
            block.written.mark_bytes(at[:, None] + np.arange(size))


@dataclass(eq=False)
class Values(Generic[T]):
    """What the arrays of all types share."""

    values: tuple[T, ...]
    alive: bool = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {list(self.values)}{dead(self.alive)}>"


class aclIntArray(Values[int]):
    pass


@dataclass(eq=False)
class aclOpExecutor:
    """A planned call. It runs once; a repeatable one runs any number of times until it is destroyed."""

    call: Call
    tensors: Mapping[str, aclTensor]  # by role: snapshots of those of phase one; never changed, but replaced
    plan: Plan
    kernel: Callable[..., Any] | None = None  # the plan's kernel, where it can be called directly
    launch: Launch | None = None  # of the last call of a repeatable executor
    repeatable: bool = False
    used: bool = False
    alive: bool = True

    def __repr__(self) -> str:
        return f"<aclOpExecutor of {self.call.operator.name}: {self.plan.problem}{dead(self.alive)}>"


def dead(alive: bool) -> str:
    """What a handle's text adds when it was destroyed."""
    return "" if alive else ", destroyed"
