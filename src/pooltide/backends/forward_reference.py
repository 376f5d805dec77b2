"""The reference forward: plain NumPy in the shortest honest form. Slow, and obviously right.

In float32 (float64 for FLOAT64) with one rounding at the end these are the bits that the kernels
give. On a float64 input, with a FLOAT64 problem, it is the oracle.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..pooling import Pooling, Windows, windows
from ..rounding import round_once
from .reference import as_float

Array = NDArray[Any]
LAYOUTS = frozenset({"planes", "channels_last", "strided"})


def refuse(pooling: Pooling) -> str | None:
    return None


def run(pooling: Pooling, layout: str, x: Array, out: Array, indices: Array | None) -> None:
    axes = windows(pooling)
    with np.errstate(all="ignore"):
        for o in product(*map(range, pooling.output_plane)):
            if pooling.kind == "average":
                out[(..., *o)] = round_once(_average(pooling, axes, o, x), out.dtype)
            else:
                value, place = _largest(pooling, axes, o, x)
                out[(..., *o)] = value
                if indices is not None:
                    indices[(..., *o)] = place


def _cells(axes: tuple[Windows, ...], o: tuple[int, ...]) -> product[tuple[int, ...]]:
    """The cells of a window, (d, h, w) ascending."""
    return product(
        *(
            range(int(a.first[i]), int(a.first[i] + a.count[i] * a.step), a.step)
            for a, i in zip(axes, o, strict=True)
        )
    )


def _average(pooling: Pooling, axes: tuple[Windows, ...], o: tuple[int, ...], x: Array) -> Array:
    total = np.zeros(pooling.batch, pooling.dtype.accumulator)
    for cell in _cells(axes, o):
        total = total + x[(..., *cell)].astype(total.dtype)
    lengths = [int(a.divisor[i]) for a, i in zip(axes, o, strict=True)]
    by = {"chained": lengths, "override": [pooling.divisor]}.get(pooling.quotient, [prod(lengths)])
    for divisor in by:
        total = total / as_float(divisor, total.dtype)
    return total


def _largest(
    pooling: Pooling, axes: tuple[Windows, ...], o: tuple[int, ...], x: Array
) -> tuple[Array, Array]:
    _, height, width = pooling.input_plane
    value = np.full(pooling.batch, -np.inf).astype(x.dtype)
    d, h, w = (int(a.first[i]) for a, i in zip(axes, o, strict=True))
    place = np.full(pooling.batch, (d * height + h) * width + w)
    for d, h, w in _cells(axes, o):
        cell = x[..., d, h, w]
        wins = (cell > value) | np.isnan(cell)
        value = np.where(wins, cell, value)
        place = np.where(wins, (d * height + h) * width + w, place)
    return value, place
