"""Arrays of any rank as volumes, (N, C, D, H, W), and their layouts.

A tensor of a channels-last format has C last in its shape; a global pool has any number of spatial axes, of
which those before the last two are merged.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.plan import layout_of

Array = NDArray[Any]
Ints = tuple[int, ...]


def as_volume(array: Array, axes: int) -> Array:
    """The array as (N, C, D, H, W), with unit axes where it has none. Always a view."""
    lead = array.ndim - axes
    index = (None,) * (2 - lead) + (slice(None),) * lead + (None,) * (3 - axes)
    view: Array = np.asarray(array)[index]
    return view


def tensor_as_volume(array: Array, axes: int, channels_last: bool) -> Array:
    """As `as_volume`, of a tensor that may be channels-last or have more than three axes.

    The result is a view unless axes are merged whose cells are not evenly spaced.
    """
    if channels_last:
        array = np.moveaxis(array, -1, array.ndim - 1 - axes)
    if axes > 3:
        array, axes = array.reshape(*array.shape[:2], -1, *array.shape[-2:]), 3
    return as_volume(array, axes)


def tensor_layout(shape: Ints, strides: Ints, axes: int, channels_last: bool) -> str:
    """The layout of the volume that `tensor_as_volume` makes; strides count elements."""
    batch = len(shape) - axes
    if channels_last:
        shape, strides = ((*t[: batch - 1], t[-1], *t[batch - 1 : -1]) for t in (shape, strides))
    if axes > 3:
        merged = [(n, step) for n, step in zip(shape[2:-2], strides[2:-2], strict=True) if n != 1] or [(1, 1)]
        if any(outer != n * step for (_, outer), (n, step) in pairwise(merged)):
            return "strided"
        shape = (*shape[:2], prod(n for n, _ in merged), *shape[-2:])
        strides, axes = (*strides[:2], merged[-1][1], *strides[-2:]), 3
    return layout_of(shape, strides, axes)


def memory_layout(array: Array, axes: int) -> str:
    """planes, channels_last or strided; misaligned arrays count as strided."""
    if not array.flags.aligned or any(step % array.itemsize for step in array.strides):
        return "strided"
    return layout_of(array.shape, [step // array.itemsize for step in array.strides], axes)
