"""Operators that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np


def permute(self: Any, dims: Any) -> Any:
    return self.transpose(dims)


def permuted_shape(self: Any, dims: Any) -> Any:
    return tuple(self.shape[dim] for dim in dims)


def dims_are_a_permutation(self: Any, dims: Any) -> str | None:
    rank = len(self.shape)
    if len(dims) == rank and sorted(dim % rank if -rank <= dim < rank else rank for dim in dims) == [
        *range(rank)
    ]:
        return None
    return f"dims has {dims}; it must name each of self's {rank} dimensions once."


def constant_pad_nd(self: Any, pad: Any, value: Any, out: Any) -> None:
    pairs = _pairs(self.ndim, pad)
    cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(self.shape, pairs, strict=True))
    out[...] = np.pad(
        self[cut], [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=out.dtype.type(value)
    )


def _pairs(rank: int, pad: Any) -> list[tuple[int, int]]:
    """(before, after) of each dimension."""
    found = [*zip(pad[::2], pad[1::2], strict=True)]
    return [(0, 0)] * (rank - len(found)) + found[::-1]


def padded_shape(self: Any, pad: Any) -> Any:
    pairs = _pairs(len(self.shape), pad)
    return tuple(n + a + b for n, (a, b) in zip(self.shape, pairs, strict=True))


def pad_fits(self: Any, pad: Any) -> str | None:
    if len(pad) % 2 or len(pad) > 2 * len(self.shape):
        return f"pad has {len(pad)} values; it must have 2 for each dimension, at most {2 * len(self.shape)}."
    if any(n < 0 for n in padded_shape(self, pad)):
        return f"pad has {pad}, which removes more than self's {self.shape} has."
    return None
