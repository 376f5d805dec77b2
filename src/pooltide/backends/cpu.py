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

from ..geometry import Axis, dilated, is_long, windows_written_out
from ..problem import Problem, cells_apart
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

KINDS = {"average": 0, "largest": 1, "average_gradient": 2, "indexed": 3}
STORES = {"FLOAT32": 0, "FLOAT64": 1, "FLOAT16": 2, "BFLOAT16": 3}
QUOTIENTS = {"": 0, "chained": 0, "extent": 1, "valid": 1, "override": 2, "mean": 3}
_CHUNK = 1 << 20  # windows whose tables are made at a time
Tables = tuple[Array, Array, Array]  # per window: first cell, number of cells, factor of the divisor


def refuse(problem: Problem) -> str | None:
    if not BUILT:
        return "the extension pooltide._native is not built here; pip install . builds it"
    if problem.dtype.name not in STORES:
        return f"it has no kernel for {problem.dtype}"
    if max(max(axis.length, axis.outputs, axis.k) for axis in problem.axes) >= 2**31 - 64:
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
    fault = prepared.run(grad_output, None, indices, out, threads)
    if fault is NotImplemented:  # one is misaligned, or out shares memory: work on copies
        result = np.empty_like(out)
        apart = None if indices is None else indices.copy("K")
        fault = prepared.run(grad_output.copy("K"), None, apart, result, threads)
        out[...] = result
    assert fault is None or isinstance(fault, tuple), "copies are aligned and apart"
    return None if fault is None else IndexFault(*fault)


def prepare(problem: Problem, layout: str) -> _native.Prepared:
    """The problem, ready to run on arrays, or addresses, that lie in this layout."""
    return (_prepared_last if is_long(problem.axes) else _prepared)(problem, layout)


def _prepare(problem: Problem, layout: str) -> _native.Prepared:
    kind = "average_gradient" if problem.kind == "average" else problem.kind
    index_bytes = problem.index_dtype.itemsize if problem.index_dtype else 0
    tables = [_windows(problem, at, layout) for at in range(3)]
    return prepared(problem, layout, KINDS[kind], index_bytes, problem.dilation, tables)


_prepared = lru_cache(maxsize=256)(_prepare)
_prepared_last = lru_cache(maxsize=1)(_prepare)


def prepared(
    problem: Any,
    layout: str,
    kind: int,
    index_bytes: int,
    dilation: tuple[int, int, int],
    tables: list[Tables],
) -> _native.Prepared:
    """A problem, or a pooling, with these tables of windows."""
    divisor = float(as_float(problem.divisor, problem.dtype.accumulator)) if problem.divisor else 1.0
    return _native.Prepared(
        kind,
        STORES[problem.dtype.name],
        QUOTIENTS[problem.quotient],
        divisor,
        layout == "channels_last",
        index_bytes,
        problem.batch[0],
        problem.batch[1],
        problem.input_plane,
        problem.output_plane,
        dilation,
        *(np.ascontiguousarray(table, np.int32) for axis in tables for table in axis),
    )


def _windows(problem: Problem, at: int, layout: str) -> Tables:
    axis, offsets = problem.axes[at], problem.offsets
    if offsets:
        first, count = dilated(cells_apart(axis, problem.dilation[at]), problem.dilation[at])
        return first, count, count
    if problem.kind == "indexed" and layout == "planes" and is_long([axis]):
        none = np.zeros(0, np.int32)  # gradients are scattered plane by plane, without tables
        return none, none, none
    start, length, divisor = (np.empty(axis.outputs, np.int32) for _ in range(3))
    if problem.quotient != "extent":
        divisor = length
    for begin in range(0, axis.outputs, _CHUNK):  # of a long axis, tables of 64 bits would fill the memory
        part = slice(begin, min(begin + _CHUNK, axis.outputs))
        begins, ends, extents = windows_written_out(axis, part.start, part.stop)
        start[part], length[part] = begins, ends - begins
        if divisor is not length:
            divisor[part] = extents
    return start, length, divisor


def use_huge_pages(address: int, nbytes: int) -> None:
    """Ask for huge pages under fresh memory, which costs more than a kernel in pages of 4 KB."""
    if BUILT:
        _native.use_huge_pages(address, nbytes)
