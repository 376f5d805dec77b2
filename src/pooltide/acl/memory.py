"""Device memory: blocks with known bounds, by address.

`Memory` allocates, frees and finds blocks, and explains why a range of addresses can't be used.
`host_bytes` gives access to the host side of a copy.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import mmap
import os
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .addresses import Addresses, is_guarded
from .written import Cells, Written, byte_range

Array = NDArray[Any]
_ALIGN = 64  # of a block's data
_MAPPED = 1 << 20  # bytes from which data are mapped, so that free returns them to the system
_HUGE = 1 << 22  # bytes from which huge pages make access faster; NumPy has the same limit
_REMEMBERED = 1024  # freed blocks that a message can still name


@dataclass(frozen=True, eq=False)
class Block:
    address: int
    size: int
    data: NDArray[np.uint8]  # stored elsewhere: the host must not access `address`
    written: Written

    def bytes_at(self, address: int, count: int) -> NDArray[np.uint8]:
        start = address - self.address
        return self.data[start : start + count]


class Memory:
    """The allocated blocks by address, and the bounds of the blocks that were freed last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: list[int] = []
        self._blocks: dict[int, Block] = {}
        self._freed: dict[int, Block] = {}
        self._free_addresses = Addresses()

    def allocate(self, size: int) -> Block:
        raw = _bytes(size + _ALIGN)
        skip = -raw.ctypes.data % _ALIGN
        with self._lock:
            address = self._free_addresses.take(size) or raw.ctypes.data + skip
            block = Block(address, size, raw[skip : skip + size], Written())
            bisect.insort(self._addresses, block.address)
            self._blocks[block.address] = block
            self._freed.pop(block.address, None)
        return block

    def free(self, address: int) -> str | None:
        """Free the block that starts at this address; returns None, or the fault when there is none."""
        with self._lock:
            block = self._blocks.pop(address, None)
            if block is not None:
                self._addresses.remove(address)
                self._freed.pop(address, None)
                self._freed[address] = Block(address, block.size, np.empty(0, np.uint8), Written())
                self._free_addresses.give_back(address, block.size)
                while len(self._freed) > _REMEMBERED:
                    del self._freed[next(iter(self._freed))]
                return None
        return self.fault(address, 1, "be the start of a block that aclrtMalloc gave out")

    def find(self, address: int) -> Block | None:
        """The allocated block that contains this address, or None."""
        with self._lock:
            at = bisect.bisect_right(self._addresses, address) - 1
            block = self._blocks[self._addresses[at]] if at >= 0 else None
        return block if block is not None and address < block.address + block.size else None

    def range(self, address: int, count: int) -> NDArray[np.uint8] | None:
        """The bytes of [address, address + count); None unless one block contains them all."""
        block = self.find(address)
        if block is None or address + count > block.address + block.size:
            return None
        return block.bytes_at(address, count)

    def mark(self, address: int, count: int) -> None:
        """Record that the bytes of [address, address + count) were written."""
        if (block := self.find(address)) is not None:
            start = address - block.address
            block.written.mark(byte_range(start, start + count))

    def never_written(self, address: int, count: int) -> str | None:
        """The fault of a read of [address, address + count), as a sentence without its subject, or None."""
        if (block := self.find(address)) is None:
            return None
        start = address - block.address
        return never_written(block, byte_range(start, start + count))

    def live(self) -> list[Block]:
        with self._lock:
            return list(self._blocks.values())

    def fault(self, address: int, count: int, must: str = "lie inside one block") -> str:
        """Why [address, address + count) can't be used, as a sentence without its subject."""
        if (block := self.find(address)) is not None:
            at = address - block.address
            return (
                f"is {address:#x}, {at} bytes into a block of {block.size} bytes at {block.address:#x}, "
                f"and the call needs {count} bytes; it must {must}."
            )
        for freed in reversed(list(self._freed.values())):
            if freed.address <= address < freed.address + max(freed.size, 1):
                return f"is {address:#x}, in a block of {freed.size} bytes that was freed; it must {must}."
        return f"is {address:#x}, in no block that aclrtMalloc gave out; it must {must}."

    def clear(self) -> None:
        """Free every block and forget the freed ones."""
        with self._lock:
            for block in self._blocks.values():
                self._free_addresses.give_back(block.address, block.size)
            self._addresses.clear()
            self._blocks.clear()
            self._freed.clear()


def _bytes(count: int) -> NDArray[np.uint8]:
    if count < _MAPPED:
        return np.empty(count, dtype=np.uint8)
    try:
        mapped = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError from error
    if count >= _HUGE:
        with contextlib.suppress(OSError):  # a system without huge pages
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, np.uint8)


MEMORY = Memory()


def _after_fork() -> None:
    """In a child: forget the parent's blocks, whose lists another thread may have been changing."""
    MEMORY.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)


def never_written(block: Block, cells: Cells) -> str | None:
    """The fault of a read of cells that were not all written, as a sentence without its subject, or None."""
    if (missing := block.written.missing(cells)) is None:
        return None
    count, first = missing
    return (
        f"has {count} bytes that were never written, the first at byte {first} of a block of "
        f"{block.size} bytes at {block.address:#x}; they must be written before they are read."
    )


def host_bytes(side: Any, count: int, *, write: bool) -> Array | str:
    """The first `count` bytes of the host side of a copy, an array or an address; a str says why not.

    `write` is true when the copy writes there.
    """
    if isinstance(side, np.ndarray):
        if side.dtype.hasobject:
            return "is an array of Python objects; it must hold plain data."
        side = np.asarray(side)
        if not side.flags.c_contiguous:
            return f"is an array with strides {side.strides}; it must be C-contiguous."
        if count > side.nbytes:
            return f"is an array of {side.nbytes} bytes; the call needs {count} bytes, and it must hold them."
        if write and not side.flags.writeable:
            return "is a read-only array; it must be writable."
        whole: Array = side.reshape(-1).view(np.uint8)
        return whole[:count]
    if side + count > 2**64:
        return f"is {side:#x}, and the call needs {count} bytes; it must be an address of this machine."
    if MEMORY.find(side) is not None:
        return f"is {side:#x}, device memory; in this direction of copy it must be host memory."
    if is_guarded(side):
        return MEMORY.fault(side, count, "be host memory in this direction of copy")
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(side))
