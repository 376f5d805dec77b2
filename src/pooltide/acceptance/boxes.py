"""Draws boxes as detectors have them: clusters that overlap, around objects of all sizes.

An object is anywhere in its image; each of its sides is drawn between 8 pixels and the image's, every octave
equally likely. Three boxes of four belong to an object, and differ from it by at most an eighth of its sides;
the others are alone. All are clipped to the image. Numbers are multiples of 1/8, so that they are the same on
every machine.

With `anywhere`, one box of four is odd instead: it leaves the image, is empty, inverted, huge, or far away.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tensorfile import TensorFile, TensorFileError, open_tensor
from .words import NotationError

Array = NDArray[Any]
Random = np.random.Generator
_FLOATS = ("FLOAT32", "FLOAT64", "FLOAT16")
_LEAST_SIDE = 8
_MOST_SIDE = 2**24  # of an image: float32 has these positions exactly
_BOXES_PER_OBJECT = 8
_GRID = 8  # numbers are multiples of its inverse
_ODD = 4  # one box of so many, with `anywhere`


def draw_boxes(
    random: Random, count: int, images: int, plane: tuple[int, int], scale: float, *, anywhere: bool = False
) -> Array:
    """`count` rows of the image's number, x1, y1, x2, y2, in pixels: cells of the plane divided by the scale.

    The rows are sorted by image, as a detector lists them.
    """
    pixels = (side / scale if scale else inf for side in plane)
    height, width = (round(min(max(side, 1), _MOST_SIDE)) * _GRID for side in pixels)
    objects = max(count // _BOXES_PER_OBJECT, 1)
    sides = np.stack([_sides(random, count + objects, length) for length in (width, height)], 1)
    centres = np.stack([random.integers(0, length + 1, count + objects) for length in (width, height)], 1)
    of = random.integers(0, objects, count)
    alone = random.integers(0, _BOXES_PER_OBJECT // 2, count) == 0
    of[alone] = objects + np.flatnonzero(alone)  # an object of its own
    jitter = random.integers(-_GRID, _GRID, (2, count, 2), endpoint=True)
    side, centre = sides[of], centres[of]
    side = np.maximum(side + side * jitter[0] // _GRID**2, 1)
    centre = centre + side * jitter[1] // _GRID**2
    first = centre - side // 2
    corners = np.concatenate([first, first + side], 1)
    corners = np.clip(corners, 0, np.array([width, height, width, height]))
    if anywhere:
        _make_odd(random, corners, np.array([width, height] * 2))
    number = random.integers(0, max(images, 1), objects)
    of_image = np.concatenate([number, random.integers(0, max(images, 1), count)])[of]
    order = np.argsort(of_image, kind="stable")
    return np.concatenate([of_image[order, None], corners[order] / _GRID], 1).astype(np.float64)


def _sides(random: Random, count: int, longest: int) -> NDArray[np.int64]:
    """Lengths whose octaves are equally likely."""
    least = min(_LEAST_SIDE * _GRID, longest)
    octaves = (longest // least).bit_length()
    low = least << random.integers(0, octaves, count)
    sides: NDArray[np.int64] = np.minimum(
        low + random.integers(0, 1 << 20, count) * low // (1 << 20), longest
    )
    return sides


def _make_odd(random: Random, corners: Array, size: Array) -> None:
    odd = np.flatnonzero(random.integers(0, _ODD, len(corners)) == 0)
    for at, how in zip(odd, random.integers(0, 6, len(odd)), strict=True):
        match how:
            case 0:  # over an edge
                corners[at] += size * random.integers(-1, 2) // 2
            case 1:  # empty
                corners[at, 2:] = corners[at, :2]
            case 2:  # inverted on an axis
                axis = random.integers(0, 2)
                corners[at, [axis, axis + 2]] = corners[at, [axis + 2, axis]]
            case 3:  # huge
                corners[at] = size * [-50, -50, 50, 50]
            case 4:  # far away
                corners[at] += size * 100
            case _:  # the whole image
                corners[at] = size * [0, 0, 1, 1]


def count_boxes(path: str) -> int:
    """The number of boxes in a file. NotationError: it has none that can be read."""
    try:
        return _opened(path).shape[0]
    except TensorFileError as error:
        raise NotationError(f"word boxes={path[:200]}: {error}") from None


def read_boxes(path: str) -> Array:
    """The boxes in a file. TensorFileError: it can't be read."""
    file = _opened(path)
    return file.part(0, file.count).reshape(file.shape).astype(np.float64)


def _opened(path: str) -> TensorFile:
    file = open_tensor(Path(path))
    if len(file.shape) != 2 or file.shape[1] != 5 or file.dtype.name not in _FLOATS:
        must = "(K, 5) and of floats: the number of an image, x1, y1, x2, y2"
        has = f"shape {file.shape} and dtype {file.dtype}"
        raise TensorFileError(f"{path}: the file has {has}; it must be {must}")
    if file.fortran:
        raise TensorFileError(f"{path}: the file is in Fortran order; it must be in C order")
    return file
