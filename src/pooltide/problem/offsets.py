"""One-byte offsets: the place of a maximum in its window, instead of its index in the plane.

    offset = (i·H' + j)·W' + k    cell (i, j, k) of the window, counted from its first cell in the plane
    index  = first cell of the window + jump[offset]

H' and W' are the most cells that a window has on an axis. Windows of more than 256 cells have no offsets.
A forward writes offsets and its gradient reads them; users never see them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import cached
from ..geometry import Axis, Table, cells_of_windows

Triple = tuple[int, int, int]
Axes = tuple[Axis, Axis, Axis]
MOST = 256  # offsets
NOWHERE = -(2**62)  # the jump of an offset that no window has: outside every plane


@dataclass(frozen=True, slots=True)
class Offsets:
    first_cell: tuple[Table, Table, Table]  # per axis and window
    most: Triple  # per axis: the most cells of a window
    jump: Table  # per offset: how far it lies from the window's first cell, in the plane

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in (*self.first_cell, self.jump))

    def indices(self, offsets: NDArray[Any], plane: Triple) -> Table:
        """The indices, flat in their plane, of offsets of shape (…, Do, Ho, Wo)."""
        d, h, w = self.first_cell
        corner = (d[:, None, None] * plane[1] + h[:, None]) * plane[2] + w
        found: Table = corner + self.jump[offsets]
        return found


@cached(lambda offsets: (offsets,))
def offsets_of(axes: Axes) -> Offsets | None:
    """The tables that turn offsets into indices, or None where windows have more cells than a byte counts."""
    found = [cells_of_windows(axis) for axis in axes]
    d, h, w = (max(int(count.max(initial=1)), 1) for _, count in found)
    if d * h * w > MOST:
        return None
    (_, height, width), (i, j, k) = (a.length for a in axes), (a.dilation for a in axes)
    jump = np.full(MOST, NOWHERE, dtype=np.int64)
    jump[: d * h * w] = [
        (a * i * height + b * j) * width + c * k for a, b, c in product(range(d), range(h), range(w))
    ]
    first = [np.ascontiguousarray(first) for first, _ in found]
    for table in (*first, jump):
        table.setflags(write=False)
    return Offsets((first[0], first[1], first[2]), (d, h, w), jump)
