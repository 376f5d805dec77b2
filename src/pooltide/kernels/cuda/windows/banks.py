"""Gaps in shared memory: a gap after each 128 bytes moves the cells behind it to other banks.

staging.h is the other side of this module.
"""

from __future__ import annotations

import numpy as np

from ..kernel_tables import Array, cdiv

BRANCHES = 2  # that a warp runs in a tile with gaps: most have lanes before a gap and behind one
LINE, _WORD = 128, 4  # bytes of all banks, and of one


def most_batched(itemsize: int) -> int:
    """How many neighbouring cells have at most one gap among them: BATCH of staging.h."""
    return LINE // itemsize


def lanes_at_once(itemsize: int) -> int:
    """How many lanes read shared memory at once."""
    return LINE // max(itemsize, _WORD)


def gaps_help(elements: Array, itemsize: int) -> bool:
    """Whether lanes that read these elements of a tile at once wait for each other less if it has gaps."""
    tight, loose = conflicts(elements, itemsize)
    return BRANCHES * loose < tight


def conflicts(elements: Array, itemsize: int) -> tuple[int, int]:
    """How many of the lanes that read these elements at once wait for one bank: without gaps, and with."""
    banks = lanes_at_once(itemsize)
    words = elements * itemsize // max(itemsize, _WORD)
    return _conflicts(words, banks), _conflicts(words + words // banks, banks)


def _conflicts(words: Array, banks: int) -> int:
    return int(np.bincount(np.unique(words) % banks).max())


def with_gaps(size: int, itemsize: int) -> int:
    """The bytes of `size` bytes and their gaps, a multiple of 16."""
    return size + cdiv(cdiv(size, LINE) * max(itemsize, _WORD), 16) * 16
