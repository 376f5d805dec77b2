"""Guarded memory: arrays with a known pattern around them and a forbidden page on either side.

A slot is a block between two pages that no one may read or write. An array lies anywhere in a slot,
often directly at one of these pages, so that the first byte beyond it faults. After a call every byte
of every slot must be as before, except the cells of the arrays that the call may write.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
SIZES = (1 << 14, 1 << 18, 1 << 25)  # of slots; most arrays fit into the smallest
PATTERN = 0xA5
_libc = ctypes.CDLL(None, use_errno=True)


class Slot:
    def __init__(self, size: int) -> None:
        self.whole = mmap.mmap(-1, size + 2 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.whole))
        for at in (0, PAGE + size):
            if _libc.mprotect(ctypes.c_void_p(address + at), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.size = size
        self.bytes = np.frombuffer(self.whole, np.uint8, size, PAGE)
        self.kept = np.empty(size, np.uint8)
        self.bytes[:] = PATTERN

    def tensor(self, dtype: Any) -> Any:
        """All of the slot as one flat tensor."""
        import torch

        return torch.from_numpy(self.bytes).view(dtype)


@dataclass
class Place:
    """Where an array lies: the bytes of its cells in a slot."""

    slot: Slot
    shape: tuple[int, ...]
    itemsize: int
    strides: tuple[int, ...]  # in bytes
    offset: int

    def array(self, dtype: Any, of: Any = None) -> Any:
        buffer = self.slot.bytes if of is None else of
        return np.ndarray(self.shape, dtype, buffer, self.offset, self.strides)

    def tensor(self, dtype: Any) -> Any:
        steps = [step // self.itemsize for step in self.strides]
        return self.slot.tensor(dtype).as_strided(self.shape, steps, self.offset // self.itemsize)

    def restore(self) -> None:
        word = f"V{self.itemsize}"
        self.array(word)[...] = self.array(word, self.slot.kept)


class Memory:
    """Hands out places; tells after a call how many bytes changed that had to stay."""

    def __init__(self) -> None:
        self._slots: dict[int, list[Slot]] = {size: [] for size in SIZES}
        self._used: list[Slot] = []

    def begin(self) -> None:
        for slot in self._used:
            slot.bytes[:] = PATTERN
        self._used = []

    def place(self, rng: Random, shape: tuple[int, ...], itemsize: int, layout: str) -> Place:
        strides, below, above = byte_strides(rng, shape, itemsize, layout)
        if below + above > SIZES[-1]:
            strides, below, above = byte_strides(rng, shape, itemsize, "planes")
        slot = self._slot(below + above)
        room = slot.size - below - above
        at = rng.choice((0, room, rng.randrange(room + 1)))
        if layout != "unaligned":
            at -= at % itemsize
        return Place(slot, shape, itemsize, strides, at + below)

    def _slot(self, size: int) -> Slot:
        kind = next(length for length in SIZES if size <= length)
        slots = self._slots[kind]
        taken = sum(slot.size == kind for slot in self._used)
        if taken == len(slots):
            slots.append(Slot(kind))
        self._used.append(slots[taken])
        return slots[taken]

    def place_of(self, array: Any) -> Place | None:
        """Where an array lies, if it lies in a slot."""
        for slot in self._used:
            offset = array.ctypes.data - slot.bytes.ctypes.data
            if 0 <= offset <= slot.size:
                return Place(slot, array.shape, array.itemsize, array.strides, offset)
        return None

    def seal(self) -> None:
        """Remember every byte; from here on only the call may write."""
        for slot in self._used:
            np.copyto(slot.kept, slot.bytes)

    def outside(self, written: list[Place]) -> int:
        """How many bytes changed outside the cells of `written`. Those cells get their old values back."""
        for place in written:
            place.restore()
        return sum(
            0
            if np.array_equal(slot.bytes.view(np.uint64), slot.kept.view(np.uint64))
            else int(np.count_nonzero(slot.bytes != slot.kept))
            for slot in self._used
        )


def byte_strides(
    rng: Random, shape: tuple[int, ...], itemsize: int, layout: str
) -> tuple[tuple[int, ...], int, int]:
    """Strides, and how many bytes the array has below its first cell and from there on."""
    axes = list(range(len(shape)))
    if layout in ("view", "positive", "unaligned"):
        rng.shuffle(axes)
    elif layout == "channels_last" and len(shape) > 2:
        lead = 1 if len(shape) > 3 else 0
        axes = [*axes[:lead], *axes[lead + 1 :], axes[lead]]
    elif layout == "broadcast":
        axes = [axis for axis in axes if rng.random() < 0.6]
    strides = [0] * len(shape)
    step = itemsize + (rng.randrange(1, 4) if layout == "unaligned" else 0)
    below = above = 0
    for axis in reversed(axes):
        if layout in ("view", "positive"):
            step *= rng.choice((1, 1, 1, 2, 3))
        backward = layout == "view" and rng.random() < 0.2
        strides[axis] = -step if backward else step
        reach = step * max(shape[axis] - 1, 0)
        below, above = (below + reach, above) if backward else (below, above + reach)
        step *= max(shape[axis], 1)
    if 0 in shape:
        return tuple(strides), 0, 0
    return tuple(strides), below, above + itemsize


def content(rng: Random, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Random values; one array in ten has NaN and infinity among them."""
    size = int(np.prod(shape))
    pool = _pool(dtype, rng.random() < 0.1)
    at = rng.randrange(len(pool))
    return np.resize(pool[at : at + size], shape)


@cache
def _pool(dtype: np.dtype[Any], special: bool) -> Any:
    rng = np.random.default_rng(7)
    if dtype.kind in "iu":
        return rng.integers(0, 2**31 - 1, 1 << 15).astype(dtype)
    values = rng.standard_normal(1 << 15)
    if special:
        values[rng.integers(0, len(values), 999)] = rng.choice([np.nan, np.inf, -np.inf, -0.0], 999)
    return values.astype(dtype)
