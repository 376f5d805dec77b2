"""Operators that compute each element by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from pooltide.operators.dtypes import dtype_by_code


def relu(self: Any, out: Any) -> None:
    np.maximum(self, self.dtype.type(0), out=out)


def threshold_backward(gradOutput: Any, self: Any, threshold: Any, out: Any) -> None:
    out[...] = np.where(self > threshold, gradOutput, out.dtype.type(0))


def add(self: Any, other: Any, alpha: Any, out: Any) -> None:
    kind = _computed(out.dtype)
    out[...] = (self.astype(kind) + kind.type(alpha) * other.astype(kind)).astype(out.dtype)


def mul(self: Any, other: Any, out: Any) -> None:
    kind = _computed(out.dtype)
    out[...] = (self.astype(kind) * other.astype(kind)).astype(out.dtype)


def _computed(dtype: Any) -> Any:
    """The dtype of the computation: float32 for half types, else the result's."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def cast(self: Any, out: Any) -> None:
    with np.errstate(invalid="ignore"):  # NaN as an int
        out[...] = self.astype(out.dtype)


def inplace_copy(selfRef: Any, src: Any) -> None:
    selfRef[...] = np.broadcast_to(src, selfRef.shape).astype(selfRef.dtype)


def broadcast_shape(self: Any, other: Any) -> Any:
    return np.broadcast_shapes(self.shape, other.shape)


def broadcasts(self: Any, other: Any) -> str | None:
    try:
        np.broadcast_shapes(self.shape, other.shape)
    except ValueError:
        return f"other has shape {other.shape}; it must be one that broadcasts with self's, {self.shape}."
    return None


def src_broadcasts(selfRef: Any, src: Any) -> str | None:
    try:
        good = np.broadcast_shapes(selfRef.shape, src.shape) == selfRef.shape
    except ValueError:
        good = False
    return None if good else f"src has shape {src.shape}; it must broadcast to selfRef's, {selfRef.shape}."


def out_has_the_dtype(dtype: int, out: Any) -> str | None:
    if (wanted := dtype_by_code(dtype)) is None:
        return f"dtype is {dtype}; it must be a code of aclDataType that tensors have."
    return None if out.dtype is wanted else f"out has dtype {out.dtype}; it must be {wanted}, as dtype says."
