"""The CPU kernels: compiled code over tables of windows, at the speed of memory.

A problem in one layout is prepared once (tables handed over, kernel chosen) and cached; a call then passes
addresses and releases the GIL while it computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import cached
from ..geometry import UNIT, Axis, cells_of_windows, is_long, spans
from ..problem.problem import Problem
from . import Arrays, IndexFault, Kernel
from .reference import as_float
from .threads import get_num_threads

try:
    from .. import _native
except ImportError:  # a source tree without the extension: other backends still work, and say why
    BUILT = False
else:
    BUILT = True

Array = NDArray[Any]
LAYOUTS = frozenset({"planes", "channels_last"})

KINDS = {"average": 0, "maximum": 1, "average_gradient": 2, "maximum_gradient": 3}
STORES = {"FLOAT32": 0, "FLOAT64": 1, "FLOAT16": 2, "BFLOAT16": 3}
QUOTIENTS = {"": 0, "chained": 0, "extent": 1, "valid": 1, "override": 2, "mean": 3}
_LIMIT = 2**31 - 64  # tables are of 32 bits, and are read a vector at a time
_ZERO, _ONE = (np.array([n], np.int32) for n in (0, 1))  # the tables of a unit axis, which most problems have
_CHUNK = 1 << 20  # windows whose tables are made at a time, as 64-bit tables of a long axis fill the memory


def refuse(problem: Problem, layout: str = "planes") -> str | None:
    if not BUILT:
        return "the extension pooltide._native is not built here; pip install . builds it"
    if problem.unpool:
        return None
    if problem.dtype.name not in STORES:
        return f"it has no kernel for {problem.dtype}"
    if max(max(axis.length, axis.outputs, axis.reach) for axis in problem.axes) >= _LIMIT:
        return "an axis has 2**31 cells or windows or more"
    if problem.kind == "maximum_gradient" and prod(problem.input_plane) == 0:
        return "the plane has no cells"
    narrow_places = problem.kind == "maximum" and problem.index_bytes >= 4 and problem.dtype.itemsize < 8
    if narrow_places and prod(problem.input_plane) >= 2**31:
        return "a plane has 2**31 cells or more"
    if problem.average and prod(max(axis.reach, axis.length, 1) for axis in problem.axes) >= 2**53:
        return "a divisor may reach 2**53"
    return None


def scratch(problem: Problem) -> int:
    """Returns 0: each thread allocates a scratch buffer of its own, of a plane at most.

    A thread keeps the buffer between calls, unless the buffer is large.
    """
    return 0


def run(problem: Problem, layout: str, arrays: Arrays, scratch: Array) -> IndexFault | None:
    kernel, threads = prepare(problem, layout, None).run, get_num_threads()
    a = arrays
    fault = kernel(a.grad_output, a.input, a.indices, a.out, threads)
    if fault is NotImplemented:  # an array is misaligned, or the result shares memory: work on copies
        grad, x, indices = (_copy(array) for array in (a.grad_output, a.input, a.indices))
        out = a.out.copy("K")
        fault = kernel(grad, x, indices, out, threads)
        a.out[...] = out
        if a.indices is not None and problem.kind == "maximum":
            a.indices[...] = indices
    assert fault is None or isinstance(fault, tuple), "copies are aligned and share no memory"
    return None if fault is None else IndexFault(*fault)


def _copy(array: Array | None) -> Array | None:
    return None if array is None else array.copy("K")


def use_openmp(parallel: int, number: int) -> bool:
    """Makes calls with a negative number of threads run on the threads of an OpenMP runtime.

    Takes the addresses of two functions of the runtime (torch/openmp.py). Returns False if there is no
    compiled code.
    """
    if BUILT:
        _native.use_openmp(parallel, number)
    return BUILT


@dataclass(frozen=True, slots=True)
class _Unpool:
    problem: Problem
    channels: int
    nbytes: int = 0  # it has no tables

    def run(self, grad_output: Any, input: Any, indices: Any, out: Any, threads: int) -> Any:
        problem = self.problem
        return _native.unpool(
            grad_output if problem.gradient else input,
            indices,
            out,
            problem.planes,
            prod(problem.output_plane),
            prod(problem.input_plane),
            self.channels,
            problem.dtype.itemsize,
            problem.index_bytes,
            problem.gradient,
            threads,
        )

    def kernels(self, ignore_speed: bool) -> list[tuple[str, str | None]]:
        return [("unpool", None)]


@cached(lambda prepared: (prepared,))
def prepare(problem: Problem, layout: str, device: None = None) -> _native.Prepared | _Unpool:
    """The problem, ready to run on arrays, or addresses, in this layout."""
    if problem.unpool:
        return _Unpool(problem, problem.batch[1] if layout == "channels_last" else 1)
    divisor = float(as_float(problem.divisor, problem.dtype.accumulator)) if problem.divisor else 1.0
    dilation = problem.dilation if _by_cells(problem) else (1, 1, 1)
    return _native.Prepared(
        KINDS[problem.kind],
        STORES[problem.dtype.name],
        QUOTIENTS[problem.quotient],
        divisor,
        layout == "channels_last",
        problem.index_bytes,
        problem.batch[0],
        problem.batch[1],
        problem.input_plane,
        problem.output_plane,
        dilation,
        *(
            np.ascontiguousarray(t, np.int32)
            for axis in problem.axes
            for t in _windows(problem, layout, axis)
        ),
    )


def _by_cells(problem: Problem) -> bool:
    """True if tables list the cells of dilated windows. False if they list the spans of the windows.

    Spans are enough for a gradient with indices, because the span of a window holds its index.
    """
    return not problem.gradient or problem.offsets


def _windows(problem: Problem, layout: str, axis: Axis) -> tuple[Array, Array, Array]:
    """Per window: its first cell, its number of cells, its factor of the divisor."""
    if axis == UNIT:
        return _ZERO, _ONE, _ONE
    if problem.kind == "maximum_gradient" and not problem.offsets and layout == "planes" and is_long([axis]):
        none = np.zeros(0, np.int32)  # such a problem is scattered plane by plane, without tables
        return none, none, none
    if _by_cells(problem) and axis.dilation > 1:
        first, count = cells_of_windows(axis)
        return first, count, count
    start, length, extent = (np.empty(axis.outputs, np.int32) for _ in range(3))
    for begin in range(0, axis.outputs, _CHUNK):
        part = slice(begin, min(begin + _CHUNK, axis.outputs))
        start[part], end, extent[part] = spans(axis, part.start, part.stop)
        length[part] = end - start[part]
    return start, length, extent if problem.quotient == "extent" else length


def tables_of(kernel: Kernel | None) -> Any:
    """What owns the tables of a kernel, with its nbytes: the object whose method the kernel is."""
    return getattr(kernel, "__self__", None)


def kernels(problem: Problem, layout: str, device: None = None) -> list[tuple[str, str | None]]:
    """The kernels up to the chosen one, each with the reason why it was not chosen; None for the chosen."""
    return prepare(problem, layout, None).kernels(False)


def use_huge_pages(address: int, nbytes: int) -> None:
    """Requests huge pages for new memory: with 4 KB pages, page faults cost more than the kernel."""
    if BUILT:
        _native.use_huge_pages(address, nbytes)
