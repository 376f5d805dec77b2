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
LARGEST = 2**30  # cells of a padded plane, so that 32 bits hold an index
NOWHERE = -(2**30)  # what an offset that no window has jumps to: outside every plane


@dataclass(frozen=True, slots=True)
class Offsets:
    corner: tuple[Table, Table, Table]  # per axis and window
    sides: Triple  # of a window, in cells
    jump: Table  # per offset: how far it lies from the window's corner, in the plane

    def indices(self, offsets: NDArray[Any], plane: Triple) -> Table:
        """What offsets of shape (…, Do, Ho, Wo) mean."""
        d, h, w = self.corner
        found: Table = (d[:, None, None] * plane[1] + h[:, None]) * plane[2] + w + self.jump[offsets]
        return found


@lru_cache(maxsize=256)
def offsets_of(axes: Axes, dilation: Triple) -> Offsets | None:
    """How windows of k cells, `dilation` apart, are counted through, or None where those are too many.

    Nor are there offsets in planes too large for 32 bits.
    """
    sides = d, h, w = (_side(axes[0]), _side(axes[1]), _side(axes[2]))
    if prod(sides) > MOST or prod(axis.length + 2 * axis.p for axis in axes) >= LARGEST:
        return None
    (_, height, width), (i, j, k) = (axis.length for axis in axes), dilation
    jump = np.full(MOST, NOWHERE, dtype=np.int64)
    jump[: prod(sides)] = [
        (a * i * height + b * j) * width + c * k for a, b, c in product(range(d), range(h), range(w))
    ]
    corner = (corners(axes[0]), corners(axes[1]), corners(axes[2]))
    for table in (*corner, jump):
        table.setflags(write=False)
    return Offsets(corner, sides, jump)


def _side(axis: Axis) -> int:
    return int(dilated(axis, 1)[1].max(initial=1)) if axis.adaptive else axis.k
