"""Device addresses: ranges reserved from the system that nobody may touch.

Kernels reach a block's data elsewhere, so an address that a program was given is a name, and a host
that follows it faults, as it would beside a real device. Where the system reserves nothing (a limit
on the address space), a block's address is that of its data, and goes unguarded.
"""

from __future__ import annotations

import mmap
from collections import deque

import numpy as np

ALIGN = 512
_CHUNK = 1 << 36
_KEPT = 64  # freed ranges of one length that are left alone before the oldest is used again
_STEPS = 8  # lengths between a power of two and the next: few, so that what is kept of them stays small

# [start, end) of every range, zero after the last; a fault handler reads it.
GUARDS = np.zeros((64, 2), dtype=np.int64)
_ranges: list[mmap.mmap] = []


def reserve(size: int) -> int | None:
    """The start of a range that nobody may touch."""
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


def guarded(address: int) -> bool:
    """Whether touching the address would fault."""
    return any(start <= address < end for start, end in GUARDS[: len(_ranges)].tolist())


class Addresses:
    def __init__(self) -> None:
        self._next = self._end = 0
        self._free: dict[int, deque[int]] = {}

    def take(self, size: int) -> int | None:
        """The start of an unused range, ALIGN bytes or more beyond the last; None: none is left."""
        length = _length(size)
        freed = self._free.get(length)
        if freed is not None and len(freed) > _KEPT:
            return freed.popleft()
        if self._next + length > self._end:
            chunk = max(length, _CHUNK)
            if (start := reserve(chunk)) is None:
                return freed.popleft() if freed else None
            self._next, self._end = start, start + chunk
        self._next += length
        return self._next - length

    def give_back(self, address: int, size: int) -> None:
        if guarded(address):
            self._free.setdefault(_length(size), deque()).append(address)


def _length(size: int) -> int:
    """Of the range for a block: at least ALIGN bytes more, and one of _STEPS for each power of two."""
    units = size // ALIGN + 2
    step = 1 << max(units.bit_length() - _STEPS.bit_length(), 0)
    return -(-units // step) * step * ALIGN
