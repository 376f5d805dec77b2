"""The reference forward: plain NumPy in the shortest honest form. Slow, and obviously right.

In float32 (float64 for FLOAT64) with one rounding at the end these are the bits that the kernels
give. On a float64 input, with a FLOAT64 pooling, it is the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..offsets import offsets_of
from ..pooling import Pooling, Windows, windows
from ..rounding import round_once
from .reference import as_float

Array = NDArray[Any]
Index = tuple[int, int, int]
Axes = tuple[Windows, Windows, Windows]


def refuse(pooling: Pooling) -> str | None:
    return None


def run(pooling: Pooling, layout: str, x: Array, out: Array, indices: Array | None) -> None:
    axes = windows(pooling)
    with np.errstate(all="ignore"):
        for o in np.ndindex(pooling.output_plane):
            od, oh, ow = o
            if pooling.kind == "average":
                out[..., od, oh, ow] = round_once(_average(pooling, axes, o, x), out.dtype)
                continue
            value, place = _largest(pooling, axes, o, x)
            out[..., od, oh, ow] = value
            if indices is not None:
                indices[..., od, oh, ow] = place


def _cells(axes: Axes, o: Index) -> Iterator[Index]:
    """The cells of a window, (d, h, w) ascending."""
    d, h, w = (
        [int(axis.first[i] + j * axis.step) for j in range(axis.count[i])]
        for axis, i in zip(axes, o, strict=True)
    )
    yield from product(d, h, w)


def _average(pooling: Pooling, axes: Axes, o: Index, x: Array) -> Array:
    sums = np.zeros((16 if pooling.quotient == "mean" else 1, *pooling.batch), pooling.dtype.accumulator)
    for i, (d, h, w) in enumerate(_cells(axes, o)):
        sums[i % len(sums)] += x[..., d, h, w].astype(sums.dtype)
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    lengths = [int(axis.divisor[i]) for axis, i in zip(axes, o, strict=True)]
    by = {"chained": lengths, "override": [pooling.divisor]}.get(pooling.quotient, [prod(lengths)])
    total: Array = sums[0]
    for divisor in by:
        total = total / as_float(divisor, total.dtype)
    if pooling.quotient not in ("chained", "mean"):
        total = total + total.dtype.type(0)  # never -0, as in PyTorch
    return total


def _largest(pooling: Pooling, axes: Axes, o: Index, x: Array) -> tuple[Array, Array]:
    """The greatest cells of window o in all planes, and their indices or offsets."""
    _, height, width = pooling.input_plane
    offsets = offsets_of(pooling.axes, pooling.dilation) if pooling.offsets else None
    first = [int(axis.first[i]) for axis, i in zip(axes, o, strict=True)]

    def place_of(d: int, h: int, w: int) -> int:
        if offsets is None:
            return (d * height + h) * width + w
        i, j, k = ((c - f) // axis.step for c, f, axis in zip((d, h, w), first, axes, strict=True))
        return (i * offsets.most[1] + j) * offsets.most[2] + k

    value = np.full(pooling.batch, -np.inf).astype(x.dtype)
    place = np.full(pooling.batch, place_of(first[0], first[1], first[2]))
    for d, h, w in _cells(axes, o):
        cell = x[..., d, h, w]
        wins = (cell > value) | np.isnan(cell)
        value = np.where(wins, cell, value)
        place = np.where(wins, place_of(d, h, w), place)
    return value, place
