"""Takes the sizes of blocks of memory, and the addresses of freed blocks.

Returns an address in a reserved range of the address space, or None where the system reserves none. It must
not touch the data of blocks, which is stored elsewhere.

The ranges have no access rights, so an address of device memory only names a block: a host that reads or
writes there gets SIGSEGV, as it would beside a real device. Where the system reserves no range (a limit on
the address space), a block's address is that of its data, and the host can access it.
"""

from __future__ import annotations

import mmap
from collections import deque

import numpy as np

ALIGN = 512
_CHUNK = 1 << 36
_QUARANTINE = 64  # freed ranges of one length that stay unused, so that a use after free is noticed
_STEPS = 8  # lengths per power of two: a small number, so that few ranges are in quarantine

# [start, end) of every reserved range, zero after the last; the C library's fault handler reads it.
GUARDS = np.zeros((64, 2), dtype=np.int64)
_ranges: list[mmap.mmap] = []


def reserve(size: int) -> int | None:
    """The start of a range without access rights; None when the system or GUARDS has no room."""
    if len(_ranges) + 1 >= len(GUARDS):
        return None
    try:
        range_ = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
    except (OSError, ValueError, OverflowError, AttributeError):  # the last: a system without such flags
        return None
    start = int(np.frombuffer(range_, np.uint8).ctypes.data)
    GUARDS[len(_ranges)] = start, start + size
    _ranges.append(range_)
    return start


def is_guarded(address: int) -> bool:
    """Whether an access to the address would fault."""
    return any(start <= address < end for start, end in GUARDS[: len(_ranges)].tolist())


class Addresses:
    """Gives out ranges for blocks and takes them back. It uses a part of GUARDS at most."""

    def __init__(self, align: int = ALIGN, max_guards: int = len(GUARDS)) -> None:
        self._align, self._max_guards = align, max_guards
        self._next = self._end = 0
        self._chunks: list[tuple[int, int]] = []
        self._free: dict[int, deque[int]] = {}

    def contains(self, address: int) -> bool:
        """Whether the address is in a range that was or may be given out."""
        return any(start <= address < end for start, end in self._chunks)

    def take(self, size: int) -> int | None:
        """The start of an unused range of at least size + align bytes; None when none is left."""
        length = self._length(size)
        freed = self._free.get(length)
        if freed is not None and len(freed) > _QUARANTINE:
            return freed.popleft()
        if self._next + length > self._end:
            chunk = max(length, _CHUNK)
            if len(self._chunks) == self._max_guards or (start := reserve(chunk)) is None:
                return freed.popleft() if freed else None
            self._next, self._end = start, start + chunk
            self._chunks.append((start, start + chunk))
        self._next += length
        return self._next - length

    def give_back(self, address: int, size: int) -> None:
        if is_guarded(address):
            self._free.setdefault(self._length(size), deque()).append(address)

    def _length(self, size: int) -> int:
        """The length of a block's range: size + align, rounded up to one of _STEPS per power of two."""
        units = size // self._align + 2
        step = 1 << max(units.bit_length() - _STEPS.bit_length(), 0)
        return -(-units // step) * step * self._align
