"""The masks of 2-D max pools: bits in the place of indices.

A mask has a row of bytes for each cell of the kernel. Bit q of the row, counted from the lowest bit of the
first byte, says whether window q has its maximum in that cell. The documents give the size of a row, which is
larger than the windows need; the order of the bits is ours, as programs only pass a mask to the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .problem import Problem

Array = NDArray[Any]
Pair = tuple[int, ...]


def pack(problem: Problem, kernel: Pair, indices: Array, mask: Array) -> None:
    """Writes the mask, (N, C, cells of the kernel, bytes), of indices, (N, C, D, H, W)."""
    flat = indices.reshape(problem.planes, -1).astype(np.int64)
    down, across = (found.ravel() for found in _corners(problem))
    row, column = np.divmod(flat, problem.input_plane[2])
    cell = (row - down) * kernel[1] + column - across
    bits = np.zeros((problem.planes, kernel[0] * kernel[1], flat.shape[1]), np.bool_)
    np.put_along_axis(bits, cell[:, None], True, 1)
    packed = np.packbits(bits, -1, "little").view(mask.dtype)
    mask[...] = 0
    mask[..., : packed.shape[-1]] = packed.reshape(*mask.shape[:-1], -1)


def unpack(problem: Problem, kernel: Pair, mask: Array) -> Array:
    """The indices, (N, C, D, H, W), of a mask; -1 where a window has no bit, or one outside the plane."""
    _, height, width = problem.input_plane
    windows = np.prod(problem.output_plane)
    data = np.ascontiguousarray(mask).view(np.uint8).reshape(problem.planes, -1, mask.shape[-1])
    bits = np.unpackbits(data, axis=-1, count=windows, bitorder="little")
    cell = bits.argmax(1)
    down, across = (found.ravel() for found in _corners(problem))
    row, column = down + cell // kernel[1], across + cell % kernel[1]
    inside = bits.any(1) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    found = np.where(inside, row * width + column, -1).astype(np.int32)
    return found.reshape(problem.batch + problem.output_plane)


def _corners(problem: Problem) -> tuple[Array, Array]:
    """The row and the column, with padding counted, of the first cell of each window."""
    _, h, w = problem.axes
    return np.meshgrid(*(np.arange(a.outputs) * a.s - a.p for a in (h, w)), indexing="ij")  # type: ignore[return-value]
