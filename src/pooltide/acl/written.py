"""Which bytes of a block were ever written: one interval while that is enough, else a map."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Cells:
    """Elements of a block, in bytes from its start."""

    start: int  # of the first element
    low: int
    high: int  # every element lies in [low, high)
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    itemsize: int

    @property
    def dense(self) -> bool:
        count = self.itemsize
        for size in self.shape:
            count *= size
        return count == self.high - self.low

    def of(self, bytes_: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """A view of the cells' bytes, one axis more than the cells have."""
        return np.ndarray((*self.shape, self.itemsize), np.bool_, bytes_.data, self.start, (*self.steps, 1))


def run(low: int, high: int) -> Cells:
    return Cells(low, low, high, (high - low,), (1,), 1)


class Written:
    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._size = size
        self._low = self._high = 0
        self._map: NDArray[np.bool_] | None = None

    def mark(self, cells: Cells) -> None:
        with self._lock:
            low, high = cells.low, cells.high
            if self._map is None and self._low <= low and high <= self._high:
                return
            touches = self._low == self._high or (low <= self._high and high >= self._low)
            if self._map is None and cells.dense and touches:
                empty = self._low == self._high
                self._low = low if empty else min(low, self._low)
                self._high = high if empty else max(high, self._high)
                return
            cells.of(self._spread())[...] = True

    def mark_bytes(self, at: NDArray[Any]) -> None:
        with self._lock:
            self._spread()[at] = True

    def missing(self, cells: Cells) -> tuple[int, int] | None:
        """(how many bytes of the cells were never written, where the first is), or None."""
        with self._lock:
            if self._map is None and self._low <= cells.low and cells.high <= self._high:
                return None
            part = cells.of(self._spread())
            count = part.size - int(np.count_nonzero(part))
            if count == 0:
                return None
            index = np.unravel_index(int(np.argmin(part)), part.shape)
            steps = (*cells.steps, 1)
            return count, cells.start + sum(int(i) * step for i, step in zip(index, steps, strict=True))

    def _spread(self) -> NDArray[np.bool_]:
        if self._map is None:
            self._map = np.zeros(self._size, dtype=np.bool_)
            self._map[self._low : self._high] = True
        return self._map
