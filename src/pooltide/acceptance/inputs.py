"""Draws the inputs of a case from its seed and distribution: the same values on every machine.

The source of a case is the array of floats that it reads: grad_output, or the input of a forward.

    normal     standard normal
    uniform    −1 to 1
    integers   −8 to 8
    wide       either sign, magnitude 2⁻¹² to 2¹², every binade equally likely
    nan, inf   replace about one cell in a hundred, and at least one; both together need two cells

An index is a cell of its window (for a dilated window: any cell that the window spans), or any cell of the
plane if the case says `anywhere`. A case that is too large for this machine is refused before allocation.
boxes.py draws boxes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.volumes import as_volume
from ..geometry import Axis, tables
from ..kernels.plan import AnyProblem
from ..operators.call import Call, TensorMeta, contiguous_strides
from ..problem.problem import Problem
from ..problem.regions import RegionProblem
from ..problem.rounding import round_once
from .notation import Data
from .region_inputs import region_indices, region_seconds
from .words import GIVEN

Array = NDArray[Any]


_LONGEST = 60.0  # seconds that the float64 reference may take, by the estimate below
_PER_WINDOW, _PER_CELL = 4e-6, 1e-9  # seconds: the reference adds window after window
_CGROUP = Path("/sys/fs/cgroup/memory.max")


class TooLarge(ValueError):
    """The case needs more memory than this machine has, its reference takes too long, or it has no values."""


def source_plane(problem: Problem) -> tuple[int, int, int]:
    """The plane of the source: windows for gradients of pools, cells for pools; unpools reverse it."""
    has_cells = problem.gradient == problem.unpool
    return problem.input_plane if has_cells else problem.output_plane


def result_plane(problem: Problem) -> tuple[int, int, int]:
    """The plane of the result, which is the other one."""
    has_cells = problem.gradient != problem.unpool
    return problem.input_plane if has_cells else problem.output_plane


def shaped(problem: AnyProblem, array: Array, axes: int) -> Array:
    """A view of an array of a case, in the shape that the problem has for it."""
    return array if problem.regional else as_volume(array, axes)


def reads_indices(problem: AnyProblem) -> bool:
    """Whether indices are an input of the problem; a maximum writes them."""
    return problem.index_dtype is not None and not problem.writes_indices


def draw(problem: AnyProblem, data: Data) -> tuple[Array, Array | None]:
    """The source, and the indices that are read or None, in the problem's shapes, C-contiguous."""
    refuse_beyond_memory(problem)
    _refuse_beyond_time(problem)
    random = np.random.Generator(np.random.PCG64(data.seed))
    shape = problem.shape(problem.roles[0])
    if data.distribution == GIVEN:
        raise TooLarge(
            "the values of the case are in files, with which golden --from made it; they can't be drawn"
        )
    values = _values(random, data, shape)
    first_nan = _sprinkle(random, values, np.array([np.nan])) if data.nan else None
    if data.inf:
        _sprinkle(random, values, np.array([np.inf, -np.inf]), first_nan)
    indices = None
    if isinstance(problem, RegionProblem):
        indices = region_indices(random, problem, data) if reads_indices(problem) else None
    elif reads_indices(problem):
        indices = _indices(random, problem, data.anywhere)
    return round_once(values, problem.dtype.numpy), indices


def refuse_beyond_memory(problem: AnyProblem) -> None:
    """Raise TooLarge if the case needs more memory than there is, computed from its sizes."""
    need, have = _bytes_needed(problem) + _table_bytes(problem), _memory()
    if need > have:
        raise TooLarge(f"the case needs {_gib(need)} GiB; this machine has {_gib(have)} GiB")


def refuse_huge_tables(problem: AnyProblem) -> None:
    """Raise TooLarge if not even the tables of the axes, which a plan needs, fit this machine."""
    need, have = _table_bytes(problem), _memory()
    if need > have:
        text = f"the tables of windows take {_gib(need)} GiB; this machine has {_gib(have)} GiB"
        raise TooLarge(f"the case can't be planned: {text}")


def _refuse_beyond_time(problem: AnyProblem) -> None:
    if isinstance(problem, RegionProblem):
        seconds, what = region_seconds(problem), f"{problem.regions} regions of {prod(problem.bins)} bins"
        smaller = "the number of boxes, the output, the sampling ratio or the channels"
    else:
        windows, smaller = prod(problem.output_plane), "the plane, the kernel or the batch"
        seconds, what = _seconds_needed(problem), f"{windows} windows in each of {problem.planes} planes"
    if seconds > _LONGEST:
        raise TooLarge(
            f"the case has {what}, and the float64 reference takes about {seconds / 60:.0f} minutes for "
            f"them; at most {_LONGEST / 60:.0f} is allowed: make {smaller} smaller"
        )


def _bytes_needed(problem: AnyProblem) -> int:
    """Inputs, result and float64 reference together; indices are also copied to int64."""
    cells = sum(prod(problem.shape(role)) for role in (problem.roles[0], "out"))
    indices = prod(problem.shape("indices")) if problem.index_dtype else 0
    return cells * (problem.dtype.itemsize * 2 + 24) + indices * 40


def _table_bytes(problem: AnyProblem) -> int:
    """What kernels are chosen by: where each window begins and ends, and which windows hold a cell."""
    if isinstance(problem, RegionProblem):
        return 0
    return sum(5 * 8 * (axis.length + axis.outputs) for axis in problem.axes)


def _seconds_needed(problem: Problem) -> float:
    """A rough estimate of the time of the float64 reference."""
    if problem.planes == 0:
        return 0.0
    if reads_indices(problem):
        return problem.planes * prod(problem.output_plane) * 50 * _PER_CELL
    steps = prod(axis.outputs * _longest_window(axis) for axis in problem.axes)
    if problem.gradient:
        return prod(problem.output_plane) * _PER_WINDOW + problem.planes * steps * _PER_CELL
    return steps * (_PER_WINDOW + problem.planes * 4 * _PER_CELL)  # a forward takes cell after cell


def _longest_window(axis: Axis) -> int:
    window = -(-axis.length // max(axis.outputs, 1)) + 1 if axis.adaptive else axis.k
    return min(window, axis.length)


def _memory() -> int:
    """Bytes that this process can have: those of the machine, or of its container if that has fewer."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # the container has no limit
        return physical


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f}" if count < 2**60 else f"{count >> 30:.2e}"


def place(array: Array, tensor: TensorMeta, offset: int = 0) -> Array:
    """A copy with the shape and the strides of the tensor, `offset` elements into its memory.

    The memory that the view leaves out is NaN, or -1. Where cells of the view share memory, the copy has the
    value of the last of them.
    """
    array = array.reshape(tensor.shape)
    if (tensor.strides is None and offset == 0) or array.size == 0:
        return np.ascontiguousarray(array)
    strides = tensor.strides or contiguous_strides(tensor.shape)
    spans = [step * (size - 1) for size, step in zip(tensor.shape, strides, strict=True)]
    below, above = -sum(min(span, 0) for span in spans), sum(max(span, 0) for span in spans)
    if (need := (offset + below + above + 1) * array.itemsize) > (have := _memory()):
        raise TooLarge(f"a view of the case spans {_gib(need)} GiB; this machine has {_gib(have)} GiB")
    memory = np.full((offset + below + above + 1) * array.itemsize, 255, np.uint8).view(array.dtype)
    view: Array = np.lib.stride_tricks.as_strided(
        memory[offset + below :], array.shape, [step * array.itemsize for step in strides]
    )
    view[...] = array
    return view


def arrays(call: Call, problem: AnyProblem, data: Data) -> tuple[Array, Array | None, Array]:
    """The source, indices or None, and a result full of NaN, in the layouts of the call, without offsets."""
    views = placed(call, problem, draw(problem, data), lambda _: 0)
    return views[0], views[1], views[2]


def placed(
    call: Call, problem: AnyProblem, drawn: tuple[Array, Array | None], offset: Callable[[str], int]
) -> tuple[Array, Array | None, Array]:
    """Drawn inputs and a result full of NaN, in the layouts of the call; `offset` gives that of a role.

    A maximum writes its indices, which are full of -1 here.
    """
    role = "grad_output" if problem.gradient else "input"
    source, indices = drawn
    if indices is None and problem.index_dtype is not None:
        indices = np.full(problem.shape("indices"), -1, problem.index_dtype.numpy)
    fill = np.full(problem.shape("out"), np.nan, problem.dtype.numpy)
    places = None if indices is None else place(indices, call.role("indices"), offset("indices"))
    out = place(fill, call.role("out"), offset("out"))
    return place(source, call.role(role), offset(role)), places, out


def _values(random: np.random.Generator, data: Data, shape: tuple[int, ...]) -> Array:
    match data.distribution:
        case "uniform":
            low, high = data.range or (-1.0, 1.0)
            return random.uniform(low, high, shape)
        case "integers":
            return random.integers(-8, 8, shape, endpoint=True).astype(np.float64)
        case "wide":
            sign = random.integers(0, 2, shape) * 2.0 - 1
            return sign * 2.0 ** random.uniform(-12, 12, shape)
    if data.range is not None:
        mean, deviation = data.range
        return random.normal(mean, deviation, shape)
    return random.standard_normal(shape)


def _sprinkle(random: np.random.Generator, values: Array, what: Array, kept: int | None = None) -> int | None:
    """Put some of `what` into the cells, but not into the cell `kept` if there is another; returns a cell."""
    flat = values.reshape(-1)
    if not flat.size:
        return None
    skipped = kept if flat.size > 1 else None
    at = random.integers(0, flat.size - (skipped is not None), max(1, flat.size // 100))
    at += skipped is not None and at >= skipped
    flat[at] = random.choice(what, at.size)
    return int(at[0])


def _indices(random: np.random.Generator, problem: Problem, anywhere: bool) -> Array:
    assert problem.index_dtype is not None
    shape = problem.batch + problem.output_plane
    dtype = problem.index_dtype.numpy
    if prod(problem.input_plane) == 0:
        return np.zeros(shape, dtype)
    if anywhere or not problem.kind.startswith("maximum"):
        return random.integers(0, prod(problem.input_plane), shape).astype(dtype)
    flat = np.zeros(shape, np.int64)
    for at, axis in enumerate(problem.axes):
        table = tables(axis)
        sizes = [1, 1, 1]
        sizes[at] = axis.outputs
        start, end = (t.reshape(sizes) for t in (table.start, table.end))
        flat = flat * axis.length + random.integers(start, end, shape)
    return flat.astype(dtype)
