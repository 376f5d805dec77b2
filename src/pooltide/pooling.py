"""The canonical forward: planes × three axes, each window reduced to one value.

    average   out[window] = (sum of its cells, (d, h, w) ascending, from +0) / divisor
    largest   out[window] = its greatest cell, the first of equals; a NaN exceeds all, the last of them
              wins; its index is flat within the plane: (d·H + h)·W + w

Dilation can step from the padding over a short axis, so that a window holds no cell. Its value is -inf.
Its index is computed, as in PyTorch, from where its first cell after the padding would be: that may lie
outside the plane, and no gradient function takes it then.

Padding holds no cells. The divisor of an average is taken as problem.py says of quotients; a chained
one divides the sum by the three lengths in turn. One more quotient is a forward's own: the mean of a
plane, an adaptive average to size 1, is 16 sums, cell i in the (i mod 16)th, added in pairs 8, 4, 2, 1
apart and divided by the number of cells. (PyTorch's bits depend on the machine there.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import DTYPES, DType
from .geometry import Axis, Table, dilated, windows_written_out
from .offsets import offsets_of
from .problem import Problem

Array = NDArray[Any]
Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Pooling:
    kind: str  # average | largest
    batch: tuple[int, int]  # N, C
    axes: tuple[Axis, Axis, Axis]  # d, h, w
    dtype: DType
    quotient: str = ""  # of an average: chained | extent | valid | override | mean
    divisor: int = 0  # of an override
    dilation: Triple = (1, 1, 1)
    indexed: bool = False  # whether the maxima's indices are wanted
    offsets: bool = False  # as offsets in their windows, one byte each (offsets.py)

    @property
    def input_plane(self) -> Triple:
        d, h, w = self.axes
        return d.length, h.length, w.length

    @property
    def output_plane(self) -> Triple:
        d, h, w = self.axes
        return d.outputs, h.outputs, w.outputs

    @property
    def cells(self) -> int:
        """Elements of the input."""
        return prod(self.batch) * prod(self.input_plane)


@dataclass(frozen=True, slots=True)
class Windows:
    """An axis written out, per window: its cells are first, first + step, …, `count` of them."""

    first: Table
    count: Table
    divisor: Table  # what it contributes to an average's divisor
    step: int


def windows(pooling: Pooling) -> tuple[Windows, Windows, Windows]:
    d, h, w = (
        _windows(axis, step, pooling.quotient == "extent")
        for axis, step in zip(pooling.axes, pooling.dilation, strict=True)
    )
    return d, h, w


@lru_cache(maxsize=64)
def _windows(axis: Axis, step: int, padding_counts: bool) -> Windows:
    first, count = dilated(axis, step)
    divisor = windows_written_out(axis)[2] if padding_counts else count
    first, count, divisor = map(np.ascontiguousarray, (first, count, divisor))
    for table in (first, count, divisor):
        table.setflags(write=False)
    return Windows(first, count, divisor, step)


def with_offsets(pooling: Pooling) -> Pooling | None:
    """The same maxima with one-byte offsets, or None where a window has too many cells for them."""
    if offsets_of(pooling.axes, pooling.dilation) is None:
        return None
    return replace(pooling, indexed=True, offsets=True)


def gradient_by_offsets(pooling: Pooling, dtype: DType | None = None) -> Problem:
    """The gradient, in its own or another dtype, of a pooling `with_offsets`, which reads what it wrote."""
    d, h, w = (_reaching(axis, step) for axis, step in zip(pooling.axes, pooling.dilation, strict=True))
    return Problem(
        "indexed",
        pooling.batch,
        (d, h, w),
        dtype or pooling.dtype,
        index_dtype=DTYPES["UINT8"],
        dilation=pooling.dilation,
    )


def _reaching(axis: Axis, step: int) -> Axis:
    """The axis with k the reach of a window's cells, `step` apart; none sees more than the padded axis."""
    if axis.adaptive:
        return axis
    return replace(axis, k=min(step * (axis.k - 1) + 1, axis.length + 2 * axis.p))
