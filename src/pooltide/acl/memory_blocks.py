"""Takes sizes of memory, of the device or of the host, and addresses that calls use.

Returns blocks with known bounds, the range of an address, or why the address can't be used. It must not copy
data, nor submit jobs.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import mmap
import os
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.call import is_int
from .addresses import Addresses
from .call_sites import Site, capture
from .contexts import CONTEXTS, aclrtContext
from .error_reports import RT_INVALID, Refused, describe, report
from .findings import Origins
from .host_pages import HOST_PAGES, Pages
from .races import Use, Uses, share_bytes
from .state import STATE
from .stream_queue import Job, Stream
from .written_bytes import Cells, Written, byte_range

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
    made: Site | None = None
    freed: Site | None = None
    device: int = 0
    pages: Pages | None = None  # of host memory that is watched
    registered: bool = False  # it is host memory, which copies must not use by this address
    owned: bool = False  # by a tensor of tensor_from_numpy

    @property
    def origins(self) -> Origins:
        return ("the memory was taken", self.made), ("the memory was freed", self.freed)

    def bytes_at(self, address: int, count: int) -> NDArray[np.uint8]:
        start = address - self.address
        return self.data[start : start + count]

    def cells(self, address: int, count: int) -> Cells:
        return byte_range(address - self.address, address - self.address + count)

    def contains(self, address: int, count: int) -> bool:
        return self.address <= address and address + count <= self.address + self.size

    def never_written(self, cells: Cells) -> str | None:
        """The fault of a read of cells that were not all written, without its subject; None if they were."""
        if (missing := self.written.missing(cells)) is None:
            return None
        count, first = missing
        return (
            f"has {count} bytes that were never written, the first at byte {first} of a block of "
            f"{self.size} bytes at {self.address:#x}; they must be written before they are read."
        )


@dataclass(frozen=True, slots=True)
class Range:
    """Cells of a block that a call or a job reads or writes, and the name of the argument."""

    name: str
    block: Block
    cells: Cells
    writes: bool

    @property
    def address(self) -> int:
        return self.block.address + self.cells.low

    def overlaps(self, other: Range) -> bool:
        """Whether the two certainly have a byte in common."""
        same = self.block is other.block
        return same and share_bytes(self.block.address, self.cells, other.block.address, other.cells)

    def race(self, stream: Stream | None) -> Use | None:
        """A queued job that conflicts with the stream's next job, or with the host if it is None; or None."""
        return self.block.uses.race(self.block.address, self.cells, writes=self.writes, stream=stream)

    def report_missing_wait(self, title: str) -> bool:
        """Reports a queued job that conflicts with the host's access; returns whether there is one."""
        if (use := self.race(None)) is None:
            return False
        text = (
            f"{self.name} is {self.address:#x}, memory that {use.describe()}, and the program has not waited "
            "for that; call aclrtSynchronizeStream first."
        )
        report(title, text, RT_INVALID, origins=(use.origin, *self.block.origins))
        return True

    def report_other_device(self, title: str, context: aclrtContext, status: int, must: str) -> None:
        """Reports memory of a device that the thread does not use."""
        device = self.block.device
        if device == context.device:
            return
        text = (
            f"{self.name} is {self.address:#x}, memory of device {device}, and this thread uses device "
            f"{context.device}; {must}."
        )
        report(title, text, status, origins=self.block.origins)

    def add_use(self, job: Job, stream: Stream, number: int) -> None:
        """Record that this job of the stream uses the cells."""
        where = self.block.address, self.cells
        self.block.uses.add(Use(stream, number, job.title, self.name, self.writes, *where, job.site))
        if self.block.pages is not None and STATE.checks != "off":
            HOST_PAGES.watch(self.block.pages, self.cells, stream, number, writes=self.writes)


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
        self._device_addresses = addresses

    def allocate(self, size: int, device: int = 0) -> Block:
        made = capture()
        pages = None if self._device_addresses else HOST_PAGES.take(size)
        if pages is not None:
            block = Block(pages.address, size, pages.data, made=made, pages=pages)
        else:
            raw = _new_bytes(size + _ALIGN)
            start = int(raw.__array_interface__["data"][0])
            skip = -start % _ALIGN
            block = Block(start + skip, size, raw[skip : skip + size], made=made, device=device)
        return self._add(block)

    def register(self, data: NDArray[np.uint8], device: int) -> Block:
        """A block of device memory whose bytes are those of host memory."""
        address = int(data.__array_interface__["data"][0])
        block = Block(address, len(data), data, made=capture(), device=device, registered=True)
        block.written.mark(byte_range(0, len(data)))
        return self._add(block)

    def _add(self, block: Block) -> Block:
        with self._lock:
            if self._device_addresses and (taken := self._device_addresses.take(block.size)) is not None:
                block.address = taken
            bisect.insort(self._addresses, block.address)
            self._blocks[block.address] = block
            self._freed.pop(block.address, None)
        return block

    def free(self, address: int) -> str | None:
        """Free the block that starts at this address; returns None, or the fault when there is none."""
        site = capture()
        with self._lock:
            block = self._blocks.pop(address, None)
            if block is not None:
                block.alive, block.data = False, _NO_BYTES  # jobs that still use the bytes have views of them
                del self._addresses[bisect.bisect_left(self._addresses, address)]
                self._freed.pop(address, None)
                self._freed[address] = Block(address, block.size, _NO_BYTES, made=block.made, freed=site)
                if self._device_addresses:
                    self._device_addresses.give_back(address, block.size)
                elif block.pages is not None:
                    HOST_PAGES.give_back(block.pages)
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
        if (freed := self.freed_block(address)) is not None:
            return f"is {address:#x}, in a block of {freed.size} bytes that was freed; it must {must}."
        return f"is {address:#x}, in no block that {self._maker} gave out; it must {must}."

    def freed_block(self, address: int) -> Block | None:
        """The block that contained this address and was freed last, or None."""
        for block in reversed(list(self._freed.values())):
            if block.address <= address < block.address + max(block.size, 1):
                return block
        return None

    def origins(self, address: int) -> Origins:
        """Where the block of this address, or the one that was freed there, was taken and freed."""
        block = self.find(address) or self.freed_block(address)
        return block.origins if block is not None else ()

    def clear(self) -> None:
        """Free every block, and drop the list of freed ones."""
        with self._lock:
            for block in self._blocks.values():
                block.alive, block.data = False, _NO_BYTES
                if self._device_addresses:
                    self._device_addresses.give_back(block.address, block.size)
                elif block.pages is not None:
                    HOST_PAGES.give_back(block.pages)
            self._addresses.clear()
            self._blocks.clear()
            self._freed.clear()


def _new_bytes(count: int) -> NDArray[np.uint8]:
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
OTHER_HOST_MEMORY = Block(0, 1 << 64, _NO_BYTES)  # host memory outside HOST_MEMORY; `data` has no bytes of it


def _after_fork() -> None:
    """In a child: forget the parent's blocks, whose lists another thread may have been changing."""
    MEMORY.__init__("aclrtMalloc", Addresses())  # type: ignore[misc]
    HOST_MEMORY.__init__("aclrtMallocHost", None)  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)


def host_bytes(address: int, count: int) -> NDArray[np.uint8]:
    """The bytes at an address of the host, which must exist."""
    memory = memoryview((ctypes.c_uint8 * count).from_address(address))  # np.ctypeslib would be imported here
    return np.frombuffer(memory, np.uint8)


def free(title: str, name: str, address: Any, memory: Memory, maker: str) -> int:
    """Free a block. Reports a queued job that still uses the block, and waits for it."""
    if not is_int(address):
        raise Refused(RT_INVALID, f"{name} is {describe(address)}; it must be an address of {maker}.")
    if (block := memory.starts(int(address))) is not None:
        whole = Range(name, block, block.cells(block.address, block.size), writes=True)
        for stream in block.uses.streams() if whole.report_missing_wait(title) else ():
            stream.wait()
        report_overflow(title, name, block)
        if (context := CONTEXTS.current()) is not None and memory is MEMORY:
            must = f"call aclrtSetDevice({block.device}) first"
            whole.report_other_device(title, context, RT_INVALID, must)
    if fault := memory.free(int(address)):
        raise Refused(RT_INVALID, f"{name} {fault}", memory.origins(int(address)))
    return 0


def report_overflow(title: str, name: str, block: Block) -> None:
    """Reports bytes beside a block of host memory that the host has changed."""
    for count, where in block.pages.overwritten() if block.pages is not None else ():
        text = (
            f"{name} is {block.address:#x}, a block of {block.size} bytes of host memory, and the host wrote "
            f"to {count} byte{'' if count == 1 else 's'} {where}; it must write inside."
        )
        report(title, text, RT_INVALID, origins=block.origins)
