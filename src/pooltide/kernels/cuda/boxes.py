"""How the windows of planes are divided into boxes, and how a box's cells lie in shared memory.

`tile_of` returns the largest boxes that fit, or the reason why none fits; device/tile.h is its other side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from .columns import Windows
from .tables import Array, cdiv, even_share, even_shares
from .task import Task

TILE_BYTES = (24 << 10, 56 << 10)  # of a block; the second where the first would read too many cells twice
LEAST_BYTES = 4 << 10
BLOCKS = 2  # of each multiprocessor, at least
FEW_TWICE = 1.3  # how often a cell is read, on average, where boxes share cells: for small tiles
MOST_TWICE = 2.5  # for any tile
_LINE, _WORD = 128, 4  # bytes of all banks of shared memory, and of one


@dataclass(frozen=True, slots=True)
class Tile:
    """`share` planes, or a box of windows of one plane."""

    itemsize: int
    share: int
    box: tuple[int, ...]  # windows on each axis
    parts: tuple[int, ...]  # how many boxes an axis has
    cells: tuple[int, ...]  # that the tile has on each axis, at most
    arrays: tuple[int, int]  # 1: the largest cells of rows, and of slices, follow the tile

    @property
    def vector(self) -> int:
        return 16 // self.itemsize

    @property
    def windows(self) -> int:
        return self.share * prod(self.box)

    @property
    def rows(self) -> int:
        return self.share * self.cells[0] * self.cells[1]

    @property
    def segment_rows(self) -> int:
        """Rows that are neighbours in memory."""
        d, h, _ = self.cells
        return 1 if self.parts[2] > 1 else h if self.parts[1] > 1 else self.share * d * h

    @property
    def segments(self) -> int:
        return cdiv(self.rows, self.segment_rows)

    @property
    def segment(self) -> int:
        """Elements of a segment, whose first cell may be anywhere in a vector of 16 bytes."""
        return cdiv(self.segment_rows * self.cells[2] + self.vector - 1, self.vector) * self.vector

    @property
    def row_elements(self) -> int:
        return self.arrays[0] * self.rows * self.box[2]

    @property
    def array_bytes(self) -> int:
        slices = self.arrays[1] * self.share * self.cells[0] * self.box[1] * self.box[2]
        return sum(cdiv(count * self.itemsize, 16) * 16 for count in (self.row_elements, slices))

    def lanes(self, threads: int) -> int:
        """How many threads take windows side by side, so that few of a block are idle."""
        shares = {cdiv(self.box[2], n) for n in range(1, 9)}
        return max(
            (n for n in shares | {threads} if n <= threads),
            key=lambda n: (self.box[2] / cdiv(self.box[2], n) * (threads // n) / threads, n),
        )

    def bytes(self, padded: bool) -> int:
        """Of the cells; `padded`: a gap follows each 128 bytes."""
        size = self.segments * self.segment * self.itemsize
        return size + (cdiv(cdiv(size, _LINE) * max(self.itemsize, _WORD), 16) * 16 if padded else 0)


@dataclass(frozen=True, slots=True)
class Cut:
    """An axis in parts of `box` windows: the most cells of a part, and how often a cell is read."""

    box: int
    parts: int
    cells: int
    twice: float


def tile_of(task: Task, axes: tuple[Windows, ...], arrays: tuple[int, int]) -> Tile | str:
    outputs, lengths = task.problem.output_plane, task.problem.input_plane
    whole = Tile(task.problem.dtype.itemsize, 1, outputs, (1, 1, 1), lengths, arrays)
    plane = _size(whole)
    fair = max(plane * task.planes // (BLOCKS * task.facts.multiprocessors), LEAST_BYTES)
    for size, twice in zip(TILE_BYTES, (FEW_TWICE, MOST_TWICE), strict=True):
        size = min(size, fair, task.facts.shared_per_block)
        if plane <= size:
            return replace(whole, share=even_share(task.planes, size // plane))
        found = _box(whole, axes, size, twice)
        if found is not None:
            return found
    return f"no box of windows fits {TILE_BYTES[1]} bytes"


def _box(whole: Tile, axes: tuple[Windows, ...], size: int, twice: float) -> Tile | None:
    d, h, w = axes
    long = d.most * h.most * w.length * whole.itemsize > size  # rows are cut only if they must
    cuts = cuts_of(axes, lambda cuts: _size(_cut_tile(whole, cuts)) <= size, twice, long)
    return None if cuts is None else _cut_tile(whole, cuts)


def _cut_tile(whole: Tile, cuts: tuple[Cut, ...]) -> Tile:
    box, parts, cells = zip(*((cut.box, cut.parts, cut.cells) for cut in cuts), strict=True)
    return replace(whole, box=box, parts=parts, cells=cells)


def cuts_of(
    axes: tuple[Windows, ...], fits: Callable[[tuple[Cut, ...]], bool], twice: float, cut_w: bool
) -> tuple[Cut, ...] | None:
    """The boxes that fit and read the fewest cells twice; None where that is more than `twice`."""
    shares = [even_shares(axis.outputs) for axis in axes]
    if not cut_w:
        shares[2] = shares[2][:1]
    cuts = [[_cut(axis, box) for box in boxes] for axis, boxes in zip(axes, shares, strict=True)]
    found: tuple[float, int, tuple[Cut, ...]] | None = None
    for chosen in product(*cuts):
        read, parts = prod(cut.twice for cut in chosen), prod(cut.parts for cut in chosen)
        if read <= twice and (found is None or (read, parts) < found[:2]) and fits(chosen):
            found = read, parts, chosen
    return None if found is None else found[2]


def _cut(axis: Windows, box: int) -> Cut:
    begin = np.arange(0, axis.outputs, box)
    if len(begin) == 1:  # rows and slices stay neighbours, so all cells are copied
        return Cut(box, 1, axis.length, 1.0)
    last = np.minimum(begin + box, axis.outputs) - 1
    cells = axis.first[last] + axis.count[last] - axis.first[begin]
    return Cut(box, len(begin), int(cells.max()), max(float(cells.sum()) / axis.length, 1.0))


def _size(tile: Tile) -> int:
    return tile.bytes(True) + tile.array_bytes


def bank_conflicts(task: Task, axes: tuple[Windows, ...], tile: Tile, by_rows: bool) -> int:
    """How many of 32 lanes read the same bank; 0 if gaps in the tile would not help.

    `by_rows`: threads take a row of a window each, not a window.
    """
    d, h, w = axes
    itemsize, size = tile.itemsize, max(tile.itemsize, _WORD)
    lanes = min(tile.rows * tile.box[2] if by_rows else tile.windows, _LINE // size)  # that read at once
    row, ow = np.divmod(np.arange(lanes), tile.box[2])
    if not by_rows:
        plane, od, oh = np.unravel_index(row, (tile.share, *tile.box[:2]))
        row = (plane * tile.cells[0] + d.first[od] - d.first[0]) * tile.cells[1] + h.first[oh] - h.first[0]
    pitch = tile.cells[2] if tile.segment_rows > 1 else tile.segment
    words = (row * pitch + w.first[ow] - w.first[0]) * itemsize // size
    tight, loose = (_conflicts(found, _LINE // size) for found in (words, words + words // (_LINE // size)))
    return tight if loose < tight else 0


def _conflicts(words: Array, banks: int) -> int:
    return int(np.bincount(np.unique(words) % banks).max())
