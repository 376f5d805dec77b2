"""The compiled forwards: two kernels over tables of windows. A pooling in one layout is prepared once."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from numpy.typing import NDArray

from ..geometry import is_long
from ..pooling import Pooling, windows
from ..threads import get_num_threads
from .cpu import BUILT, KINDS, STORES, prepared

if BUILT:
    from .. import _native

Array = NDArray[Any]
LAYOUTS = frozenset({"planes", "channels_last"})


def refuse(pooling: Pooling) -> str | None:
    if not BUILT:
        return "the extension pooltide._native is not built here; pip install . builds it"
    if pooling.dtype.name not in STORES:
        return f"it has no kernel for {pooling.dtype}"
    longest = [max(axis.length, axis.outputs, axis.k) for axis in pooling.axes]
    if max(longest) >= 2**31 - 64:
        return "an axis has 2**31 cells or windows or more"
    if pooling.indexed and pooling.dtype.itemsize < 8 and prod(pooling.input_plane) >= 2**31:
        return "a plane has 2**31 cells or more"
    if pooling.kind == "average" and prod(longest) >= 2**53:
        return "a divisor may reach 2**53"
    return None


def run(pooling: Pooling, layout: str, x: Array, out: Array, indices: Array | None) -> None:
    """Arrays lie in `layout`, are aligned, and share no memory."""
    done = prepare(pooling, layout).run(None, x, indices, out, get_num_threads())
    assert done is None, "an array is misaligned, or two share memory"


def prepare(pooling: Pooling, layout: str) -> _native.Prepared:
    """The pooling, ready to run on arrays, or addresses, in this layout."""
    return (_prepared_last if is_long(pooling.axes) else _prepared)(pooling, layout)


def _prepare(pooling: Pooling, layout: str) -> _native.Prepared:
    index_bytes = 0 if not pooling.indexed else 1 if pooling.offsets else 8
    tables = [(axis.first, axis.count, axis.divisor) for axis in windows(pooling)]
    return prepared(pooling, layout, KINDS[pooling.kind], index_bytes, pooling.dilation, tables)


_prepared = lru_cache(maxsize=256)(_prepare)
_prepared_last = lru_cache(maxsize=1)(_prepare)
