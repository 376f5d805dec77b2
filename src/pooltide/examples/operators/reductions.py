"""Operators that sum along dimensions. Sums of half types are float32."""

from __future__ import annotations

from typing import Any

import numpy as np


def mean(self: Any, dim: Any, keepDim: bool, out: Any) -> None:
    axes = tuple(dim) or None
    out[...] = self.astype(np.float32).mean(axes, keepdims=keepDim, dtype=np.float32).astype(out.dtype)


def mean_shape(self: Any, dim: Any, keepDim: bool) -> Any:
    rank = len(self.shape)
    reduced = {d % rank for d in dim} if dim else set(range(rank))
    if keepDim:
        return tuple(1 if axis in reduced else n for axis, n in enumerate(self.shape))
    return tuple(n for axis, n in enumerate(self.shape) if axis not in reduced)


def dims_exist(self: Any, dim: Any) -> str | None:
    rank = len(self.shape)
    if all(-rank <= d < rank for d in dim) and len({d % rank for d in dim}) == len(dim):
        return None
    return f"dim has {dim}; it must name different dimensions of self, {-rank} to {rank - 1}."


def softmax(self: Any, dim: int, out: Any) -> None:
    x = self.astype(np.float32)
    powers = np.exp(x - x.max(dim, keepdims=True))
    out[...] = (powers / powers.sum(dim, keepdims=True)).astype(out.dtype)


def dim_exists(self: Any, dim: int) -> str | None:
    rank = len(self.shape)
    return None if -rank <= dim < rank else f"dim is {dim}; it must be {-rank} to {rank - 1}."
