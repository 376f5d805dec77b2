"""Arrays of any rank as volumes, (N, C, D, H, W), and their layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.plan import layout_of

Array = NDArray[Any]


def as_volume(array: Array, axes: int) -> Array:
    """The array as (N, C, D, H, W), with unit axes where it has none. Always a view."""
    lead = array.ndim - axes
    index = (None,) * (2 - lead) + (slice(None),) * lead + (None,) * (3 - axes)
    view: Array = np.asarray(array)[index]
    return view


def memory_layout(array: Array, axes: int) -> str:
    """planes, channels_last or strided; misaligned arrays count as strided."""
    volume = as_volume(array, axes)
    if not volume.flags.aligned or any(step % volume.itemsize for step in volume.strides):
        return "strided"
    return layout_of(volume.shape, [step // volume.itemsize for step in volume.strides])
