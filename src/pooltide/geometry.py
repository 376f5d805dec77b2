"""Window arithmetic, in integers only: the one place that computes where a window begins and ends.

An axis has `length` input cells and `outputs` windows. A window of a strided axis has `k` cells, `dilation`
cells apart, so it spans reach = dilation·(k-1) + 1 cells.

    strided    start = o*s - p            end = min(start + reach, length + p)
    adaptive   start = floor(o*L / Lo)    end = ceil((o+1)*L / Lo)

Starts and ends never decrease with o. So the windows whose span holds an input cell are neighbours: two
numbers per cell describe them, the first window and the number of windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cache import cached

Table = NDArray[np.int64]


class Window(NamedTuple):
    start: int  # first input cell of the span, clipped to the axis
    end: int  # one past the last, clipped
    extent: int  # length before clipping to [0, length): what count_include_pad counts


@dataclass(frozen=True, slots=True)
class Tables:
    """An axis written out. `first_window` and `window_count` are per input cell, the others per window."""

    start: Table
    end: Table
    extent: Table
    first_window: Table
    window_count: Table

    @property
    def nbytes(self) -> int:
        return sum(
            table.nbytes
            for table in (self.start, self.end, self.extent, self.first_window, self.window_count)
        )


def strided_outputs(length: int, k: int, s: int, p: int, ceil: bool, p_after: int | None = None) -> int:
    """How many windows the forward makes; 0 or less when none fits. `p_after` None: it is `p`."""
    padded = length + p + (p if p_after is None else p_after)
    outputs = (padded - k + (s - 1 if ceil else 0)) // s + 1
    if ceil and (outputs - 1) * s >= length + p:
        outputs -= 1
    return outputs


@dataclass(frozen=True, slots=True)
class Axis:
    """`k == 0` marks an adaptive axis; a strided one has its kernel, stride, padding and dilation."""

    length: int
    outputs: int
    k: int = 0
    s: int = 0
    p: int = 0
    dilation: int = 1

    @property
    def adaptive(self) -> bool:
        return self.k == 0

    @property
    def reach(self) -> int:
        """Cells from a strided window's first to its last; 0 on an adaptive axis."""
        return self.dilation * (self.k - 1) + 1 if self.k else 0

    def window(self, o: int) -> Window:
        if self.adaptive:
            start = o * self.length // self.outputs
            end = -(-(o + 1) * self.length // self.outputs)
            return Window(start, end, end - start)
        start = o * self.s - self.p
        end = min(start + self.reach, self.length + self.p)
        return Window(max(start, 0), min(end, self.length), end - start)

    @property
    def whole(self) -> bool:
        """One window that holds every cell."""
        return self.outputs == 1 and self.window(0)[:2] == (0, self.length)

    @property
    def disjoint(self) -> bool:
        """No cell lies in two windows."""
        if self.adaptive:
            return self.outputs <= 1 or (self.outputs > 0 and self.length % self.outputs == 0)
        return self.s >= self.reach or self.outputs <= 1

    def __str__(self) -> str:
        if self.adaptive:
            return f"{self.length}→{self.outputs}"
        dilation = f"d{self.dilation}" if self.dilation > 1 else ""
        return f"{self.length}→{self.outputs} k{self.k}s{self.s}p{self.p}{dilation}"


UNIT = Axis(1, 1)


def spans(axis: Axis, begin: int = 0, stop: int | None = None) -> tuple[Table, Table, Table]:
    """Start, end and extent (see Window) of the windows from `begin` to `stop` - 1, by default of all."""
    stop = axis.outputs if stop is None else stop
    if axis.adaptive and axis.length * (axis.outputs + 1) + axis.outputs >= 2**63:
        windows = [axis.window(o) for o in range(begin, stop)]
        start, end, extent = np.array(windows, dtype=np.int64).reshape(-1, 3).T
        return start, end, extent
    o = np.arange(begin, stop, dtype=np.int64)
    if axis.adaptive:
        outputs = max(axis.outputs, 1)
        start = o * axis.length
        end = start + (axis.length + outputs - 1)  # in place from here on: a long axis fills the memory
        start //= outputs
        end //= outputs
        return start, end, np.subtract(end, start, out=o)
    start = o * axis.s - axis.p
    end = np.minimum(start + axis.reach, axis.length + axis.p)
    return np.maximum(start, 0), np.minimum(end, axis.length), end - start


@cached(lambda tables: (tables,))
def tables(axis: Axis) -> Tables:
    """The axis written out: O(length + outputs) time and memory, so only a kernel asks for it."""
    start, end, extent = map(np.ascontiguousarray, spans(axis))
    first = _so_far(end, axis.length)  # windows that ended at or before the cell
    count = _so_far(start, axis.length)
    count -= first  # windows begun, less those ended
    np.maximum(count, 0, out=count)
    found = (start, end, extent, first, count)
    for table in found:
        table.setflags(write=False)
    return Tables(*found)


def _so_far(places: Table, length: int) -> Table:
    """For each of `length` cells, how many of the places, none of them negative, are at or before it."""
    found: Table = np.bincount(places, minlength=length)[:length]
    return np.cumsum(found, out=found)


def is_long(axes: Iterable[Axis]) -> bool:
    """Whether the tables of the axes take so much memory that a kernel without tables is better."""
    return sum(axis.length + axis.outputs for axis in axes) > 1 << 20


def cells_of_windows(axis: Axis) -> tuple[Table, Table]:
    """Per window: its first cell inside the axis, and how many of its cells, `dilation` apart, are inside.

    A window may hold no cell: dilation can step from the padding over a short axis. Its first cell is then
    the one that dilation would reach, outside the axis.
    """
    start, end, _ = spans(axis)
    if axis.dilation == 1:
        return start, end - start
    corner = np.arange(axis.outputs, dtype=np.int64) * axis.s - axis.p
    skipped = np.maximum(-(corner // axis.dilation), 0)  # cells of the window before the axis
    first = corner + skipped * axis.dilation
    inside = -((first - axis.length) // axis.dilation)
    return first, np.maximum(np.minimum(axis.k - skipped, inside), 0)
