"""The CPU kernels: compiled code over axis tables, at the speed of memory.

A problem in one layout is prepared once (tables handed over, kernel chosen) and kept; a call then
passes three addresses and gives the GIL back while it computes.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..geometry import Axis, is_long, tables
from ..problem import Problem
from ..threads import get_num_threads
from . import IndexFault
from .reference import as_float

try:
    from .. import _native
except ImportError:  # a source tree that nobody built: other backends still work, and say why
    BUILT = False
else:
    BUILT = True

Array = NDArray[Any]
LAYOUTS = frozenset({"planes", "channels_last"})

_KINDS = {"average": 0, "indexed": 1}
STORES = {"FLOAT32": 0, "FLOAT64": 1, "FLOAT16": 2, "BFLOAT16": 3}
QUOTIENTS = {"": 0, "chained": 0, "extent": 1, "valid": 1, "override": 2}


def refuse(problem: Problem) -> str | None:
    if not BUILT:
        return "the extension pooltide._native is not built here; pip install . builds it"
    if problem.dtype.name not in STORES:
        return f"it has no kernel for {problem.dtype}"
    if max(max(axis.length, axis.outputs) for axis in problem.axes) >= 2**31 - 64:
        return "an axis has 2**31 cells or windows or more"
    if problem.kind == "indexed" and prod(problem.input_plane) == 0:
        return "the plane has no cells"
    if problem.kind == "average" and prod(map(_longest, problem.axes)) >= 2**53:
        return "a divisor may reach 2**53"
    return None


def _longest(axis: Axis) -> int:
    return max(axis.k, axis.length, 1)


def scratch(problem: Problem) -> int:
    """None: each thread keeps what it needs, a plane at most, between calls."""
    return 0


def run(
    problem: Problem, layout: str, grad_output: Array, indices: Array | None, out: Array, scratch: Array
) -> IndexFault | None:
    prepared, threads = prepare(problem, layout), get_num_threads()
    fault = prepared.run(grad_output, indices, out, threads)
    if fault is NotImplemented:  # one is misaligned, or out shares memory: work on copies
        result = np.empty_like(out)
        apart = None if indices is None else indices.copy("K")
        fault = prepared.run(grad_output.copy("K"), apart, result, threads)
        out[...] = result
    assert fault is None or isinstance(fault, tuple), "copies are aligned and apart"
    return None if fault is None else IndexFault(*fault)


def prepare(problem: Problem, layout: str) -> _native.Prepared:
    """The problem, ready to run on arrays, or addresses, that lie in this layout."""
    return (_prepared_last if is_long(problem.axes) else _prepared)(problem, layout)


def _prepare(problem: Problem, layout: str) -> _native.Prepared:
    divisor = float(as_float(problem.divisor, problem.dtype.accumulator)) if problem.divisor else 1.0
    offsets = problem.offsets
    return _native.Prepared(
        _KINDS[problem.kind],
        STORES[problem.dtype.name],
        QUOTIENTS[problem.quotient],
        divisor,
        layout == "channels_last",
        problem.index_dtype.itemsize if problem.index_dtype else 0,
        *problem.batch,
        *(table for at in range(3) for table in _axis(problem, at, layout)),
        np.zeros(0, np.int64) if offsets is None else offsets.jump,
    )


_prepared = lru_cache(maxsize=256)(_prepare)
_prepared_last = lru_cache(maxsize=1)(_prepare)


def _axis(problem: Problem, at: int, layout: str) -> tuple[Array, Array, Array]:
    """First window and number of windows per cell; what each window contributes to the divisor.

    Of an indexed problem, in place of the latter, where windows begin. Nobody may look for the windows of a
    cell where offsets leave out cells of dilated windows; in planes nobody does.
    """
    axis, offsets = problem.axes[at], problem.offsets
    table = tables(axis)
    if problem.kind == "indexed":
        begin = offsets.first[at] if offsets else table.start
        if offsets and layout != "planes" and problem.dilation != (1, 1, 1):
            none = np.zeros(axis.length, np.int64)
            return none, none, begin
        return table.first, table.count, begin
    whole = problem.quotient == "extent" or axis.adaptive  # no window of an adaptive axis is clipped
    lengths = table.extent if whole else table.end - table.start
    return table.first, table.count, lengths


def use_huge_pages(address: int, nbytes: int) -> None:
    """Ask for huge pages under fresh memory, which costs more than a kernel in pages of 4 KB."""
    if BUILT:
        _native.use_huge_pages(address, nbytes)
