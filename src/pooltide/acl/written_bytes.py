"""Takes the cells of a block that a call writes, and the cells that a call is about to read.

Returns which of the read cells were never written. It must not touch the data of the block.

The record, a shadow map, is a list of pieces in ascending order, which do not overlap. A piece that was
written without gaps is an interval. Only a piece with gaps has a map, of one byte per byte of the piece.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Map = NDArray[np.bool_]


class Cells(NamedTuple):  # whose hash is fast: each job looks its cells up
    """Elements of a block. All numbers count bytes; positions count from the start of the block."""

    start: int  # of the first element
    low: int
    high: int  # all elements are inside [low, high)
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    itemsize: int

    @property
    def dense(self) -> bool:
        """Whether the cells are all bytes of [low, high)."""
        width = self.itemsize
        for step, length in sorted((abs(step), n) for n, step in zip(self.shape, self.steps, strict=True)):
            if length != 1:
                if step != width:
                    return False
                width *= length
        return True

    def select(self, map_: Map) -> Map:
        """The part of a map of [low, high) that belongs to the cells: a view; its last axis is for bytes."""
        shape, steps = (*self.shape, self.itemsize), (*self.steps, 1)
        return np.ndarray(shape, np.bool_, map_.data, self.start - self.low, steps)


def byte_range(low: int, high: int) -> Cells:
    return Cells(low, low, high, (high - low,), (1,), 1)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    low: int
    high: int
    map: Map | None = None  # which bytes of [low, high) were written; None: all

    def copy_to(self, map_: Map, low: int) -> None:
        """Copy this piece to a map whose first byte is `low`."""
        first, last = max(self.low, low), min(self.high, low + len(map_))
        written = True if self.map is None else self.map[first - self.low : last - self.low]
        map_[first - low : last - low] = written


class Written:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: list[Piece] = []

    def mark(self, cells: Cells) -> None:
        if self.covers(cells):
            return
        with self._lock:
            if cells.dense:
                self._mark_range(cells.low, cells.high)
            else:
                cells.select(self._map(cells.low, cells.high))[...] = True

    def mark_bytes(self, at: NDArray[Any]) -> None:
        """`at` are positions, at least one."""
        low = int(at.min())
        with self._lock:
            self._map(low, int(at.max()) + 1)[at - low] = True

    def covers(self, cells: Cells) -> bool:
        """Whether one interval covers [low, high) of the cells, so that nothing is missing."""
        pieces = self._pieces
        if len(pieces) != 1:
            with self._lock:
                pieces = self._pieces[self._overlapping(cells.low, cells.high)]
        return _covers(pieces, cells.low, cells.high)

    def missing(self, cells: Cells) -> tuple[int, int] | None:
        """(how many bytes of the cells were never written, where the first is), or None."""
        with self._lock:
            pieces = self._pieces[self._overlapping(cells.low, cells.high)]
            if _covers(pieces, cells.low, cells.high):
                return None
            if cells.dense:
                return _missing_in_range(pieces, cells.low, cells.high)
            map_ = np.zeros(cells.high - cells.low, np.bool_)
            for piece in pieces:
                piece.copy_to(map_, cells.low)
        part = cells.select(map_)
        count = part.size - int(np.count_nonzero(part))
        if count == 0:
            return None
        index = np.unravel_index(int(np.argmin(part)), part.shape)
        steps = (*cells.steps, 1)
        return count, cells.start + sum(int(i) * step for i, step in zip(index, steps, strict=True))

    def _overlapping(self, low: int, high: int) -> slice:
        """The pieces that have bytes of [low, high)."""
        return slice(
            bisect_right(self._pieces, low, key=lambda piece: piece.high),
            bisect_left(self._pieces, high, key=lambda piece: piece.low),
        )

    def _mark_range(self, low: int, high: int) -> None:
        """Replace what overlaps by one interval, which also absorbs the intervals at both of its ends."""
        overlapping = self._overlapping(low, high)
        pieces, start, stop = self._pieces, overlapping.start, overlapping.stop
        kept_left = kept_right = None
        for piece in pieces[overlapping]:
            if piece.map is None:
                low, high = min(low, piece.low), max(high, piece.high)
        if start < stop:
            kept_left = _part(pieces[start], pieces[start].low, low)
            kept_right = _part(pieces[stop - 1], high, pieces[stop - 1].high)
        if start and pieces[start - 1].high == low and pieces[start - 1].map is None:
            start, low = start - 1, pieces[start - 1].low
        if stop < len(pieces) and pieces[stop].low == high and pieces[stop].map is None:
            stop, high = stop + 1, pieces[stop].high
        new = (kept_left, Piece(low, high), kept_right)
        pieces[start:stop] = [piece for piece in new if piece is not None]

    def _map(self, low: int, high: int) -> Map:
        """Make one piece with a map of all pieces that overlap [low, high); returns that part of the map."""
        overlapping = self._overlapping(low, high)
        pieces = self._pieces[overlapping]
        first, last = min([low, *(p.low for p in pieces)]), max([high, *(p.high for p in pieces)])
        map_ = pieces[0].map if len(pieces) == 1 and pieces[0].low <= low and high <= pieces[0].high else None
        if map_ is None:
            map_ = np.zeros(last - first, np.bool_)
            for piece in pieces:
                piece.copy_to(map_, first)
            self._pieces[overlapping] = [Piece(first, last, map_)]
        return map_[low - first : high - first]


def _covers(pieces: list[Piece], low: int, high: int) -> bool:
    """Whether the first piece is an interval that covers [low, high)."""
    if not pieces:
        return False
    piece = pieces[0]
    return piece.map is None and piece.low <= low and high <= piece.high


def _part(piece: Piece, low: int, high: int) -> Piece | None:
    """The part of a piece that is in [low, high); None if there is none."""
    if low >= high:
        return None
    return Piece(low, high, None if piece.map is None else piece.map[low - piece.low : high - piece.low])


def _missing_in_range(pieces: list[Piece], low: int, high: int) -> tuple[int, int] | None:
    """The same as `missing`, for all bytes of [low, high)."""
    count, first, at = 0, high, low
    for piece in [*pieces, Piece(high, high)]:
        begin, end = max(piece.low, low), min(piece.high, high)
        if begin > at:
            count, first = count + begin - at, min(first, at)
        if piece.map is not None:
            written = piece.map[begin - piece.low : end - piece.low]
            if gaps := written.size - int(np.count_nonzero(written)):
                count, first = count + gaps, min(first, begin + int(np.argmin(written)))
        at = end
    return (count, first) if count else None
