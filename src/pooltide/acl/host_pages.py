"""Takes sizes of blocks of host memory, and the ranges that queued copies use.

Returns pages for each block, between pages that the host can't access, and keeps the host from pages that a
queued copy reads or writes, until the program has waited for the copy. It must not decide what a mistake is.

The pages of a block have two addresses: the program's, whose access rights change, and another one, at which
the runtime reads and writes them at all times. A block ends at the end of a page, but for alignment, so an
access behind it faults; the other bytes of its pages are filled and compared. The C library handles the
faults; in Python programs, which have no such handler, blocks have no pages of this sort.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .addresses import GUARDS, Addresses
from .races import AFTER_WAITS
from .state import STATE
from .written_bytes import Cells

if TYPE_CHECKING:
    from .stream_queue import Stream

Bytes = NDArray[np.uint8]
_PAGE = mmap.PAGESIZE
_ALIGN = 64  # of a block's address
_MAX_SIZE = 1 << 30  # of a block; a larger one has no pages of this sort
_MAX_LIVE = 1 << 13  # blocks at a time: each takes three mappings of the 65,530 that a process may have
_MAX_WATCHES = 1 << 12  # of a block at a time: each takes two mappings
_FILL = 0xA5  # the bytes of a block's pages that are not the block's
_MAP_FIXED, _MADV_REMOVE, _MREMAP_MAYMOVE_FIXED = 0x10, 9, 3
_NONE, _READ, _READ_WRITE = 0, mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value
_LIBC = ctypes.PyDLL(None, use_errno=True)
_LIBC.mmap.restype = _LIBC.mremap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64),
)
_LIBC.mremap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_void_p),
)
for _call in (_LIBC.munmap, _LIBC.mprotect, _LIBC.madvise):
    _call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)[: 2 if _call is _LIBC.munmap else 3]


@dataclass(frozen=True, slots=True)
class Watch:
    """Pages of a block that queued copies of a stream read, or write."""

    stream: Stream
    first: int  # of the pages, as addresses of the program
    last: int
    writes: bool


@dataclass(eq=False)
class Pages:
    """The pages of one block."""

    start: int  # of the first page, as the program's address
    length: int
    alias: ctypes.Array[ctypes.c_uint8]  # the same pages for the runtime, mapped as long as this lives
    size: int  # of the block
    watches: dict[Watch, int] = field(default_factory=dict)  # the last job of each

    @property
    def address(self) -> int:
        """Where the block starts for the program."""
        return self.start + self.length - -(-self.size // _ALIGN) * _ALIGN

    def _bytes(self, address: int, count: int) -> Bytes:
        at = address - self.start
        return np.frombuffer(memoryview(self.alias), np.uint8)[at : at + count]

    @property
    def data(self) -> Bytes:
        return self._bytes(self.address, self.size)

    @property
    def _around(self) -> tuple[tuple[Bytes, str], ...]:
        """The bytes of the pages on both sides of the block, and where they are."""
        end = self.address + self.size
        return (
            (self._bytes(self.start, self.address - self.start), "before its start"),
            (self._bytes(end, self.start + self.length - end), "behind its end"),
        )

    def fill(self) -> None:
        for side, _ in self._around:
            side[:] = _FILL

    def overwritten(self) -> list[tuple[int, str]]:
        """How many bytes beside the block the program has changed since the last call, and where."""
        changed = [(int(np.count_nonzero(side != _FILL)), where) for side, where in self._around]
        self.fill()
        return [(count, where) for count, where in changed if count]

    def protect(self, first: int, last: int) -> None:
        """Give the program the access to these pages that the watches allow.

        Where the system has no room for the mappings, the watches of the block end.
        """
        near = [watch for watch in self.watches if watch.first < last and first < watch.last]
        near.sort(key=lambda watch: watch.writes)  # no access wins
        failed = _LIBC.mprotect(first, last - first, _READ_WRITE)
        for watch in near:
            low, high = max(first, watch.first), min(last, watch.last)
            failed = failed or _LIBC.mprotect(low, high - low, _NONE if watch.writes else _READ)
        if failed:
            self.unprotect()

    def unprotect(self) -> None:
        """End the watches."""
        self.watches.clear()
        _LIBC.mprotect(self.start, self.length, _READ_WRITE)


class HostPages:
    """Gives out the pages of blocks, and watches them."""

    def __init__(self) -> None:
        self.handled = False  # faults are: the C library started this interpreter
        self._lock = threading.Lock()
        self._addresses = Addresses(_PAGE, len(GUARDS) // 2)
        self._watched: set[Pages] = set()
        self._live: set[Pages] = set()

    def take(self, size: int) -> Pages | None:
        """The pages of a new block; None where the system has none."""
        if not self.handled or size > _MAX_SIZE or STATE.checks == "off":
            return None
        length = -(-size // _PAGE) * _PAGE
        with self._lock:
            if len(self._live) >= _MAX_LIVE:
                return None
            flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
            alias = _LIBC.mmap(None, length, _READ_WRITE, flags, -1, 0)
            if alias == _FAILED:
                return None
            taken = self._addresses.take(length + _PAGE)
            start = taken and taken + _PAGE  # between two pages without access rights
            # An old size of 0 maps shared pages a second time.
            if start is None or _LIBC.mremap(alias, 0, length, _MREMAP_MAYMOVE_FIXED, start) == _FAILED:
                _LIBC.munmap(alias, length)
                return None
            owner = (ctypes.c_uint8 * length).from_address(alias)
            weakref.finalize(owner, _LIBC.munmap, alias, length).atexit = False
            pages = Pages(start, length, owner, size)
            pages.fill()
            self._live.add(pages)
        return pages

    def give_back(self, pages: Pages) -> None:
        """Free the pages. Their addresses are not used again for a while."""
        with self._lock:
            self._watched.discard(pages)
            self._live.discard(pages)
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
            _LIBC.madvise(ctypes.addressof(pages.alias), pages.length, _MADV_REMOVE)
            _LIBC.mmap(pages.start, pages.length, _NONE, flags, -1, 0)
            self._addresses.give_back(pages.start - _PAGE, pages.length + _PAGE)

    def watch(self, pages: Pages, cells: Cells, stream: Stream, job: int, *, writes: bool) -> None:
        """Keep the host from the pages that a queued copy uses alone: other parts of a page may be in use."""
        low, high = pages.address + cells.low, pages.address + cells.high
        first = pages.start if cells.low == 0 else -(-low // _PAGE) * _PAGE
        last = pages.start + pages.length if cells.high == pages.size else high // _PAGE * _PAGE
        if first >= last or not cells.dense:
            return
        watch = Watch(stream, first, last, writes)
        with self._lock:
            known = watch in pages.watches
            if not known and len(pages.watches) >= _MAX_WATCHES:
                return
            pages.watches[watch] = job
            self._watched.add(pages)
            if not known:
                pages.protect(first, last)
        if job <= stream.waited:  # another thread has waited meanwhile
            self.release()

    def release(self) -> None:
        """End the watches of jobs that the program has waited for."""
        if not self._watched:
            return
        with self._lock:
            for pages in list(self._watched):
                done = [watch for watch, job in pages.watches.items() if job <= watch.stream.waited]
                for watch in done:
                    del pages.watches[watch]
                if done:
                    pages.protect(min(watch.first for watch in done), max(watch.last for watch in done))
                if not pages.watches:
                    self._watched.discard(pages)

    def describe(self, address: int) -> str | None:
        """What is at an address that the host can't access; None for addresses of other ranges."""
        if not self._addresses.contains(address):
            return None
        end = 0
        for pages in list(self._live):
            behind = pages.address + pages.size
            if behind <= address < pages.start + pages.length + _PAGE:
                end = behind
                break
            if pages.start - _PAGE <= address < pages.address:
                where = f"{pages.address - address} bytes before a block of {pages.size} bytes"
                return f"{address:#x}, {where} of aclrtMallocHost; it must stay inside"
        if end:
            where = f"{address - end} bytes after the end of a block of {pages.size} bytes"
            return f"{address:#x}, {where} of aclrtMallocHost; it must stay inside"
        return f"{address:#x}, host memory of aclrtMallocHost that was freed; it must not be used"

    def unwatch(self, pages: Pages) -> None:
        """End all watches of a block."""
        with self._lock:
            self._watched.discard(pages)
            pages.unprotect()


HOST_PAGES = HostPages()
AFTER_WAITS.append(HOST_PAGES.release)


def _after_fork() -> None:
    """In a child: no handler of faults runs there."""
    HOST_PAGES.__init__()  # type: ignore[misc]
    AFTER_WAITS[:] = [HOST_PAGES.release]


os.register_at_fork(after_in_child=_after_fork)
