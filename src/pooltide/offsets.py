"""One-byte indices: where in its window a maximum lies, instead of where in its plane.

    offset = (i·K + j)·L + k    cell (i, j, k) of the window, counted from its corner, K and L cells a side
    index  = corner + jump[offset]

A corner may lie in the padding: the same cell of any window has the same offset. Adaptive windows differ in
size; the largest counts. A window of more than 256 cells has no offsets. The forward writes them and the
gradient reads them; nobody else sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .geometry import Axis, Table, corners, dilated

Triple = tuple[int, int, int]
Axes = tuple[Axis, Axis, Axis]
MOST = 256  # offsets
NOWHERE = -(2**62)  # what an offset that no window has jumps to: outside every plane


@dataclass(frozen=True, slots=True)
class Offsets:
    corner: tuple[Table, Table, Table]  # per axis and window
    sides: Triple  # of a window, in cells
    jump: Table  # per offset: how far it lies from the window's corner, in the plane
    holders: tuple[Table, Table, Table]  # per axis, in which windows its cells lie (see _holders)

    def indices(self, offsets: NDArray[Any], plane: Triple) -> Table:
        """What offsets of shape (…, Do, Ho, Wo) mean."""
        d, h, w = self.corner
        found: Table = (d[:, None, None] * plane[1] + h[:, None]) * plane[2] + w + self.jump[offsets]
        return found


@lru_cache(maxsize=256)
def offsets_of(axes: Axes, dilation: Triple) -> Offsets | None:
    """How windows of k cells, `dilation` apart, are counted through, or None where those are too many."""
    sides = d, h, w = (_side(axes[0]), _side(axes[1]), _side(axes[2]))
    if prod(sides) > MOST:
        return None
    (_, height, width), (i, j, k) = (axis.length for axis in axes), dilation
    jump = np.full(MOST, NOWHERE, dtype=np.int64)
    jump[: prod(sides)] = [
        (a * i * height + b * j) * width + c * k for a, b, c in product(range(d), range(h), range(w))
    ]
    corner = (corners(axes[0]), corners(axes[1]), corners(axes[2]))
    held = [_holders(axis, step, side) for axis, step, side in zip(axes, dilation, sides, strict=True)]
    for table in (*corner, jump, *held):
        table.setflags(write=False)
    return Offsets(corner, sides, jump, (held[0], held[1], held[2]))


def _holders(axis: Axis, step: int, side: int) -> Table:
    """begin, window and tap in a row: cell c is number tap[j] of window[j], begin[c] <= j < begin[c + 1]."""
    first, count = dilated(axis, step)
    number = np.arange(side, dtype=np.int64)
    inside = number < count[:, None]
    cell = (first[:, None] + number * step)[inside]
    window = np.broadcast_to(np.arange(axis.outputs)[:, None], inside.shape)[inside]
    tap = (((first - corners(axis)) // step)[:, None] + number)[inside]
    order = np.lexsort((window, cell))
    begin = np.searchsorted(cell[order], np.arange(axis.length + 1))
    return np.concatenate([begin, window[order], tap[order]])


def _side(axis: Axis) -> int:
    return int(dilated(axis, 1)[1].max(initial=1)) if axis.adaptive else axis.k
