"""The bytes of a block that were written: one interval while that suffices, else a map of all bytes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Map = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cells:
    """Elements of a block. All numbers count bytes; positions count from the start of the block."""

    start: int  # of the first element
    low: int
    high: int  # all elements are inside [low, high)
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    itemsize: int

    @property
    def dense(self) -> bool:
        return prod(self.shape) * self.itemsize == self.high - self.low

    def select(self, map_: Map) -> Map:
        """The part of a block's map that belongs to the cells: a view with one more axis, for bytes."""
        return np.ndarray((*self.shape, self.itemsize), np.bool_, map_.data, self.start, (*self.steps, 1))


def byte_range(low: int, high: int) -> Cells:
    return Cells(low, low, high, (high - low,), (1,), 1)


class Written:
    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._size = size
        self._low = self._high = 0
        self._map: Map | None = None

    def mark(self, cells: Cells) -> None:
        with self._lock:
            if self._in_interval(cells):
                return
            empty = self._low == self._high
            touches = empty or (cells.low <= self._high and cells.high >= self._low)
            if self._map is None and cells.dense and touches:
                self._low = cells.low if empty else min(cells.low, self._low)
                self._high = cells.high if empty else max(cells.high, self._high)
            else:
                cells.select(self._as_map())[...] = True

    def mark_bytes(self, at: NDArray[Any]) -> None:
        with self._lock:
            self._as_map()[at] = True

    def missing(self, cells: Cells) -> tuple[int, int] | None:
        """(how many bytes of the cells were never written, where the first is), or None."""
        with self._lock:
            if self._in_interval(cells):
                return None
            part = cells.select(self._as_map())
            count = part.size - int(np.count_nonzero(part))
            if count == 0:
                return None
            index = np.unravel_index(int(np.argmin(part)), part.shape)
            steps = (*cells.steps, 1)
            return count, cells.start + sum(int(i) * step for i, step in zip(index, steps, strict=True))

    def _in_interval(self, cells: Cells) -> bool:
        return self._map is None and self._low <= cells.low and cells.high <= self._high

    def _as_map(self) -> Map:
        if self._map is None:
            self._map = np.zeros(self._size, dtype=np.bool_)
            self._map[self._low : self._high] = True
        return self._map
