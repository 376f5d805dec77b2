"""One-byte indices: where in its window a maximum lies, instead of where in its plane.

    offset = (i·H' + j)·W' + k    cell (i, j, k) of the window, counted from its first cell in the plane
    index  = first cell of the window + jump[offset]

H' and W' are the most cells that a window has on an axis. A window of more than 256 cells has no offsets.
The forward writes them and the gradient reads them; nobody else sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .geometry import Axis, Table, dilated, is_long

Triple = tuple[int, int, int]
Axes = tuple[Axis, Axis, Axis]
MOST = 256  # offsets
NOWHERE = -(2**62)  # what an offset that no window has jumps to: outside every plane


@dataclass(frozen=True, slots=True)
class Offsets:
    first: tuple[Table, Table, Table]  # per axis and window: its first cell
    most: Triple  # per axis: the most cells of a window
    jump: Table  # per offset: how far it lies from the window's first cell, in the plane

    def indices(self, offsets: NDArray[Any], plane: Triple) -> Table:
        """What offsets of shape (…, Do, Ho, Wo) mean."""
        d, h, w = self.first
        corner = (d[:, None, None] * plane[1] + h[:, None]) * plane[2] + w
        found: Table = corner + self.jump[offsets]
        return found


def offsets_of(axes: Axes, dilation: Triple) -> Offsets | None:
    """How windows with cells `dilation` apart are counted through, or None where they have too many."""
    return (_offsets_of if is_long(axes) else _kept)(axes, dilation)


def _offsets_of(axes: Axes, dilation: Triple) -> Offsets | None:
    found = [dilated(axis, step) for axis, step in zip(axes, dilation, strict=True)]
    d, h, w = (max(int(count.max(initial=1)), 1) for _, count in found)
    if d * h * w > MOST:
        return None
    (_, height, width), (i, j, k) = (axis.length for axis in axes), dilation
    jump = np.full(MOST, NOWHERE, dtype=np.int64)
    jump[: d * h * w] = [
        (a * i * height + b * j) * width + c * k for a, b, c in product(range(d), range(h), range(w))
    ]
    first = [np.ascontiguousarray(first) for first, _ in found]
    for table in (*first, jump):
        table.setflags(write=False)
    return Offsets((first[0], first[1], first[2]), (d, h, w), jump)


_kept = lru_cache(maxsize=256)(_offsets_of)
