"""How the windows of planes are divided into boxes, and how a box's cells lie in shared memory.

`tile_of` returns the largest boxes that fit, or the reason why none fits; boxes.h is its other side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ..kernel_tables import cdiv, even_share, even_shares
from ..task import Task
from .banks import gaps_help, lanes_at_once, with_gaps
from .columns import Windows

TILE_BYTES = (24 << 10, 56 << 10)  # of a block; the second where the first would read too many cells twice
LEAST_BYTES = 4 << 10
BLOCKS = 2  # of each multiprocessor, at least
TWICE = (1.3, 2.5)  # how often a cell is read at most, on average, where boxes share cells


@dataclass(frozen=True, slots=True)
class Tile:
    """`share` planes, or a box of windows of one plane."""

    itemsize: int
    share: int
    box: tuple[int, ...]  # windows on each axis
    parts: tuple[int, ...]  # how many boxes an axis has
    cells: tuple[int, ...]  # that the tile has on each axis, at most
    deep: bool  # an array for slices follows the tile and the array for rows

    @property
    def vector(self) -> int:
        return 16 // self.itemsize

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
    def row_bytes(self) -> int:
        """Of the array that has the largest cell of each row of a window."""
        return cdiv(self.rows * self.box[2] * self.itemsize, 16) * 16

    @property
    def slice_bytes(self) -> int:
        """Of the array that has the largest cell of each slice of a window."""
        slices = self.share * self.cells[0] * self.box[1] * self.box[2]
        return cdiv(slices * self.itemsize, 16) * 16 if self.deep else 0

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
        return with_gaps(size, self.itemsize) if padded else size

    def padded(self, axes: tuple[Windows, ...]) -> bool:
        """Whether threads that read a row of a window each wait less for banks if the tile has gaps."""
        w, lanes = axes[2], min(self.rows * self.box[2], lanes_at_once(self.itemsize))
        row, ow = np.divmod(np.arange(lanes), self.box[2])
        pitch = self.cells[2] if self.segment_rows > 1 else self.segment
        return gaps_help(row * pitch + w.first[ow] - w.first[0], self.itemsize)


@dataclass(frozen=True, slots=True)
class Cut:
    """An axis in parts of `box` windows: the most cells of a part, and how often a cell is read."""

    box: int
    parts: int
    cells: int
    twice: float


def tile_of(task: Task, axes: tuple[Windows, ...], deep: bool) -> Tile | str:
    outputs, lengths = task.problem.output_plane, task.problem.input_plane
    whole = Tile(task.problem.dtype.itemsize, 1, outputs, (1, 1, 1), lengths, deep)
    plane, row = _size(whole), axes[0].most * axes[1].most * axes[2].length * whole.itemsize
    cuts: list[list[Cut]] = []
    fair = max(plane * task.planes // (BLOCKS * task.facts.multiprocessors), LEAST_BYTES)
    for size, twice in zip(TILE_BYTES, TWICE, strict=True):
        size = min(size, fair, task.facts.shared_per_block)
        if plane <= size:
            return replace(whole, share=even_share(task.planes, size // plane))
        cuts = cuts or cuts_of(axes)
        found = _box(whole, cuts, row, size, twice)
        if found is not None:
            return found
    return f"no box of windows fits {TILE_BYTES[1]} bytes"


def _box(whole: Tile, cuts: list[list[Cut]], row: int, size: int, twice: float) -> Tile | None:
    """`row`: bytes of the rows of a window, whole; rows are cut only if they must."""
    of_d, of_h, of_w = cuts
    found = best_cuts(
        [of_d, of_h, of_w if row > size else of_w[:1]],
        lambda cuts: _size(_cut_tile(whole, cuts)) <= size,
        twice,
    )
    return None if found is None else _cut_tile(whole, found)


def _cut_tile(whole: Tile, cuts: tuple[Cut, ...]) -> Tile:
    box, parts, cells = zip(*((cut.box, cut.parts, cut.cells) for cut in cuts), strict=True)
    return replace(whole, box=box, parts=parts, cells=cells)


def cuts_of(axes: tuple[Windows, ...]) -> list[list[Cut]]:
    """The ways to cut each axis, the first of which is whole."""
    return [[_cut(axis, box) for box in even_shares(axis.outputs)] for axis in axes]


def best_cuts(
    cuts: list[list[Cut]], fits: Callable[[tuple[Cut, ...]], bool], twice: float
) -> tuple[Cut, ...] | None:
    """The boxes that fit and read the fewest cells twice; None where that is more than `twice`."""
    found: tuple[float, int, tuple[Cut, ...]] | None = None
    for d, h, w in product(*cuts):
        read = d.twice * h.twice * w.twice
        if read > twice or (found is not None and read > found[0]):
            continue
        parts = d.parts * h.parts * w.parts
        if (found is None or (read, parts) < found[:2]) and fits((d, h, w)):
            found = read, parts, (d, h, w)
    return None if found is None else found[2]


def _cut(axis: Windows, box: int) -> Cut:
    begin = np.arange(0, axis.outputs, box)
    if len(begin) == 1:  # rows and slices stay neighbours, so all cells are copied
        return Cut(box, 1, axis.length, 1.0)
    last = np.minimum(begin + box, axis.outputs) - 1
    cells = axis.first[last] + axis.count[last] - axis.first[begin]
    return Cut(box, len(begin), int(cells.max()), max(float(cells.sum()) / axis.length, 1.0))


def _size(tile: Tile) -> int:
    return tile.bytes(True) + tile.row_bytes + tile.slice_bytes
