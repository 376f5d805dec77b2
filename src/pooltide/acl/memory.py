"""Device memory, and the host memory of aclrtMallocHost: blocks with known bounds, by address.

`Memory` allocates, frees and finds blocks, and explains why a range of addresses can't be used.
"""

from __future__ import annotations

import bisect
import contextlib
import mmap
import os
import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .addresses import Addresses
from .order import Uses
from .written import Cells, Written, byte_range

_ALIGN = 64  # of a block's data
_MAPPED = 1 << 20  # bytes from which data are mapped, so that free returns them to the system
_HUGE = 1 << 22  # bytes from which huge pages make access faster; NumPy has the same limit
_REMEMBERED = 1024  # freed blocks that a message can still name
_NO_BYTES = np.empty(0, np.uint8)


@dataclass(eq=False, slots=True)
class Block:
    address: int
    size: int
    data: NDArray[np.uint8]  # of device memory: stored elsewhere, as the host must not access `address`
    written: Written = field(default_factory=Written)
    uses: Uses = field(default_factory=Uses)
    alive: bool = True

    def bytes_at(self, address: int, count: int) -> NDArray[np.uint8]:
        start = address - self.address
        return self.data[start : start + count]

    def cells(self, address: int, count: int) -> Cells:
        return byte_range(address - self.address, address - self.address + count)

    def contains(self, address: int, count: int) -> bool:
        return self.address <= address and address + count <= self.address + self.size


class Memory:
    """The allocated blocks by address, and the bounds of the blocks that were freed last.

    `addresses` gives out the addresses of device memory. Without it, blocks are host memory, and a block's
    address is that of its data. `maker` is the function that allocates, for messages.
    """

    def __init__(self, maker: str, addresses: Addresses | None) -> None:
        self._lock = threading.Lock()
        self._maker = maker
        self._addresses: list[int] = []
        self._blocks: dict[int, Block] = {}
        self._freed: dict[int, Block] = {}
        self._free_addresses = addresses

    def allocate(self, size: int) -> Block:
        raw = _bytes(size + _ALIGN)
        start = int(raw.__array_interface__["data"][0])
        skip = -start % _ALIGN
        with self._lock:
            taken = self._free_addresses.take(size) if self._free_addresses else None
            block = Block(taken or start + skip, size, raw[skip : skip + size])
            bisect.insort(self._addresses, block.address)
            self._blocks[block.address] = block
            self._freed.pop(block.address, None)
        return block

    def free(self, address: int) -> str | None:
        """Free the block that starts at this address; returns None, or the fault when there is none."""
        with self._lock:
            block = self._blocks.pop(address, None)
            if block is not None:
                block.alive, block.data = False, _NO_BYTES  # jobs that still use the bytes have views of them
                del self._addresses[bisect.bisect_left(self._addresses, address)]
                self._freed.pop(address, None)
                self._freed[address] = Block(address, block.size, _NO_BYTES)
                if self._free_addresses:
                    self._free_addresses.give_back(address, block.size)
                while len(self._freed) > _REMEMBERED:
                    del self._freed[next(iter(self._freed))]
                return None
        return self.fault(address, 1, f"be the start of a block that {self._maker} gave out")

    def starts(self, address: int) -> Block | None:
        """The allocated block that starts at this address, or None."""
        with self._lock:
            return self._blocks.get(address)

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
        return f"is {address:#x}, in no block that {self._maker} gave out; it must {must}."

    def was_freed(self, address: int) -> bool:
        return any(b.address <= address < b.address + max(b.size, 1) for b in list(self._freed.values()))

    def clear(self) -> None:
        """Free every block and forget the freed ones."""
        with self._lock:
            for block in self._blocks.values():
                block.alive, block.data = False, _NO_BYTES
                if self._free_addresses:
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


MEMORY = Memory("aclrtMalloc", Addresses())
HOST_MEMORY = Memory("aclrtMallocHost", None)


def _after_fork() -> None:
    """In a child: forget the parent's blocks, whose lists another thread may have been changing."""
    MEMORY.__init__("aclrtMalloc", Addresses())  # type: ignore[misc]
    HOST_MEMORY.__init__("aclrtMallocHost", None)  # type: ignore[misc]


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
