"""Takes calls that allocate and free memory, of the device or of the host, and addresses that others use.

Returns blocks with known bounds, the range of an address, or why the address can't be used. It must not copy
data, nor submit jobs.
"""

from __future__ import annotations

import bisect
import contextlib
import mmap
import os
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.call import is_int
from ..operators.dtypes import ENUMS
from .addresses import Addresses
from .contexts import current_context
from .error_reports import BAD_ALLOC, RT_INVALID, Refused, describe, entry_point, report, require_code
from .races import Use, Uses
from .stream_queue import Stream
from .written_bytes import Cells, Written, byte_range

_POLICIES = ENUMS["aclrtMemMallocPolicy"]
_FLAGS = sum(code for code in _POLICIES.values() if code >= 0x100)  # may be added to the first policies
_PLAIN_POLICIES = 3  # codes below this may have flags
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
        report(title, text, RT_INVALID)
        return True

    def add_use(self, title: str, stream: Stream, job: int) -> None:
        self.block.uses.add(Use(stream, job, title, self.name, self.writes, self.block.address, self.cells))


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

    def allocate(self, size: int) -> Block:
        raw = _new_bytes(size + _ALIGN)
        start = int(raw.__array_interface__["data"][0])
        skip = -start % _ALIGN
        with self._lock:
            taken = self._device_addresses.take(size) if self._device_addresses else None
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
                if self._device_addresses:
                    self._device_addresses.give_back(address, block.size)
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

    def clear(self) -> None:
        """Free every block, and drop the list of freed ones."""
        with self._lock:
            for block in self._blocks.values():
                block.alive, block.data = False, _NO_BYTES
                if self._device_addresses:
                    self._device_addresses.give_back(block.address, block.size)
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


@entry_point(lambda status: (None, status))
def aclrtMalloc(size: int, policy: int) -> tuple[int | None, int]:
    """Allocate device memory of `size` bytes; returns its address. The policy has no effect."""
    return _allocate(MEMORY, size, policy)


@entry_point(lambda status: (None, status))
def aclrtMallocAlign32(size: int, policy: int) -> tuple[int | None, int]:
    """The same as aclrtMalloc."""
    return _allocate(MEMORY, size, policy)


@entry_point(lambda status: (None, status))
def aclrtMallocCached(size: int, policy: int) -> tuple[int | None, int]:
    """The same as aclrtMalloc."""
    return _allocate(MEMORY, size, policy)


@entry_point(lambda status: (None, status))
def aclrtMallocHost(size: int) -> tuple[int | None, int]:
    """Allocate host memory of `size` bytes; returns its address."""
    return _allocate(HOST_MEMORY, size, 0)


def _allocate(memory: Memory, size: Any, policy: Any) -> tuple[int, int]:
    if not is_int(size) or size <= 0:
        raise Refused(RT_INVALID, f"size is {size!r:.40}; it must be an int greater than 0.")
    plain = int(policy) & ~_FLAGS if is_int(policy) and policy >= 0 else -1
    require_code("policy", plain if plain in range(_PLAIN_POLICIES) else policy, _POLICIES)
    current_context()
    try:
        return memory.allocate(int(size)).address, 0
    except (MemoryError, ValueError, OverflowError):
        text = f"size is {size}; it must be at most the free memory of this machine."
        raise Refused(BAD_ALLOC, text) from None


@entry_point(int)
def aclrtFree(devPtr: int | None) -> int:
    return free("aclrtFree", "devPtr", devPtr, MEMORY, "aclrtMalloc")


@entry_point(int)
def aclrtFreeHost(hostPtr: int | None) -> int:
    return free("aclrtFreeHost", "hostPtr", hostPtr, HOST_MEMORY, "aclrtMallocHost")


def free(title: str, name: str, address: Any, memory: Memory, maker: str) -> int:
    """Free a block. Reports a queued job that still uses the block, and waits for it."""
    if not is_int(address):
        raise Refused(RT_INVALID, f"{name} is {describe(address)}; it must be an address of {maker}.")
    if (block := memory.starts(int(address))) is not None:
        whole = Range(name, block, block.cells(block.address, block.size), writes=True)
        for stream in block.uses.streams() if whole.report_missing_wait(title) else ():
            stream.wait()
    if fault := memory.free(int(address)):
        raise Refused(RT_INVALID, f"{name} {fault}")
    return 0


@entry_point(lambda status: (0, 0, status))
def aclrtGetMemInfo(attr: int) -> tuple[int, int, int]:
    """(free, total) bytes of this machine's memory, whatever the attribute."""
    require_code("attr", attr, ENUMS["aclrtMemAttr"])
    current_context()
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page, 0
