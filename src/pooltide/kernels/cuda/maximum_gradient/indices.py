"""What kernels read of a window: its gradient, its index, and for offsets its first cell (indices.h)."""

from __future__ import annotations

import numpy as np

from ....problem.problem import Problem
from ..kernel_tables import Array

WARP_BYTES = 8 << 10  # of sums that a warp keeps in shared memory


def window_bytes(problem: Problem) -> int:
    """What a kernel reads of a window."""
    return problem.index_bytes + problem.dtype.itemsize


def corners(problem: Problem) -> Array:
    """What cell_of in indices.h reads; nothing, unless indices are offsets."""
    if (offsets := problem.offset_tables) is None:
        return np.zeros(1, np.int32)
    _, height, width = problem.input_plane
    d, h, w = offsets.first_cell
    rows = (d[:, None] * height + h).ravel() * width
    return np.concatenate([np.maximum(offsets.jump, -(2**31)), rows, w]).astype(np.int32)
