"""Rounding to the formats that NumPy rounds to wrongly, or not at all. Ties go to even."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def to_hfloat32(x: Array) -> NDArray[np.float32]:
    """Float32 values with 11 explicit mantissa bits; NaN and Inf are kept."""
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((u + 0x7FF + ((u >> 12) & 1)) & 0xFFFFF000).astype(np.uint32)
    special = (u & 0x7F800000) == 0x7F800000
    return np.where(special, u.astype(np.uint32), rounded).view(np.float32).reshape(np.shape(x))


def to_float16(x: Array) -> NDArray[np.float32]:
    """Float32 values that are all float16 values; what is too large becomes Inf."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(np.float16).astype(np.float32)


def round_source(x: Array, to: str) -> Array:
    """`x`, of its own dtype, rounded to the format that a cubeMathType names."""
    if to == "keep":
        return x
    rounded = to_hfloat32(x) if to == "HFLOAT32" else to_float16(x)
    return rounded.astype(x.dtype, copy=False)


def round_once(x: Array, dtype: np.dtype[Any]) -> Array:
    """`x` (float32 or float64) rounded to `dtype` in one step.

    The one step matters from float64 to bfloat16, where the usual cast goes through float32 and
    rounds twice. Rounding to odd on the way keeps the information that the second step needs.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if x.dtype != np.float64 or dtype != ml_dtypes.bfloat16:
            return x.astype(dtype, copy=False)
        nearest = x.astype(np.float32)
        inexact = np.isfinite(x) & (nearest.astype(np.float64) != x)
        away = np.abs(nearest.astype(np.float64)) > np.abs(x)
        word = nearest.view(np.uint32)
        truncated = word - (inexact & away).astype(np.uint32)
        odd: Array = (truncated | inexact.astype(np.uint32)).view(np.float32)
        return odd.astype(dtype)
