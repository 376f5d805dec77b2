"""Distances in ULPs: how many values of a dtype lie between two values, and a histogram of such distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BINS = 20  # of the ULP histogram: 0, 1, 2, 3–4, 5–8, …, more


def bits_of(x: Array) -> Array:
    """The bits of each element, as unsigned integers."""
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


def ulp_distance(a: Array, g: Array) -> NDArray[np.uint64]:
    """The number of steps from a to g through the values of their dtype; both finite; +0 and −0 are equal."""
    bits = a.itemsize * 8
    magnitude = np.uint64(2 ** (bits - 1) - 1)

    def ordered(x: Array) -> NDArray[np.int64]:
        word = bits_of(x).astype(np.uint64)
        signed = (word & magnitude).astype(np.int64)
        return np.where(word > magnitude, -signed, signed)

    i, j = ordered(a), ordered(g)
    with np.errstate(over="ignore"):  # the difference of two int64 fits uint64
        return (np.maximum(i, j) - np.minimum(i, j)).view(np.uint64)


def ulp_histogram(ulp: NDArray[np.uint64]) -> tuple[int, ...]:
    """Counts for 0, 1, 2, 3–4, 5–8, …: bin b > 1 ends at 2^(b−1); the last bin has no end."""
    edges = np.array([0, *(2**b for b in range(BINS - 2))], dtype=np.uint64)
    bins = np.searchsorted(edges, ulp, side="left")
    return tuple(int(n) for n in np.bincount(bins, minlength=BINS))


def bin_names() -> list[str]:
    edges = [2**b for b in range(BINS - 2)]
    spans = [f"{low + 1}–{2 * low}" if low > 1 else "2" for low in edges[:-1]]
    return ["0", "1", *spans, f">{edges[-1]}"]
