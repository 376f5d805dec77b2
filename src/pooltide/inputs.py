"""The inputs that a case describes: drawn from its seed and distribution, the same on every machine.

    normal     standard normal
    uniform    −1 to 1
    integers   −8 to 8
    wide       either sign, 2⁻¹² to 2¹², every binade alike
    nan, inf   on top: about one cell in a hundred, and at least one

An index lies in its own window (in the reach of a dilated one), or anywhere in the plane where the case
says `anywhere`.
"""

from __future__ import annotations

import os
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .call import Call, TensorMeta
from .geometry import tables
from .notation import Data
from .problem import Problem
from .rounding import round_once

Array = NDArray[Any]


class TooLarge(ValueError):
    """A case that this machine's memory can't hold."""


def draw(problem: Problem, data: Data) -> tuple[Array, Array | None]:
    """grad_output and indices, (N, C, D, H, W), C-contiguous."""
    refuse_if_too_large(problem)
    random = np.random.Generator(np.random.PCG64(data.seed))
    shape = problem.batch + problem.output_plane
    values = _values(random, data.distribution, shape)
    if data.nan:
        _sprinkle(random, values, np.array([np.nan]))
    if data.inf:
        _sprinkle(random, values, np.array([np.inf, -np.inf]))
    indices = None if problem.index_dtype is None else _indices(random, problem, data.anywhere)
    return round_once(values, problem.dtype.numpy), indices


def refuse_if_too_large(problem: Problem) -> None:
    """Inputs, result and oracle side by side, the oracle in float64."""
    cells = problem.cells + problem.planes * prod(problem.output_plane)
    need = cells * (problem.dtype.itemsize * 2 + 24)
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise TooLarge(f"the case needs {need / 2**30:.1f} GiB; this machine has {have / 2**30:.1f} GiB")


def place(array: Array, tensor: TensorMeta) -> Array:
    """A copy with the tensor's shape, lying in memory as the tensor does."""
    array = array.reshape(tensor.shape)
    if tensor.strides is None or array.size == 0:
        return np.ascontiguousarray(array)
    order = sorted(range(array.ndim), key=lambda axis: -tensor.strides[axis])  # type: ignore[index]
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def arrays(call: Call, problem: Problem, data: Data) -> tuple[Array, Array | None, Array]:
    """grad_output, indices and a poisoned grad_input, laid out as the call says."""
    grad, indices = draw(problem, data)
    fill = np.full(problem.batch + problem.input_plane, np.nan, problem.dtype.numpy)
    placed = None if indices is None else place(indices, call.role("indices"))
    return place(grad, call.role("grad_output")), placed, place(fill, call.role("grad_input"))


def _values(random: np.random.Generator, distribution: str, shape: tuple[int, ...]) -> Array:
    match distribution:
        case "uniform":
            return random.uniform(-1, 1, shape)
        case "integers":
            return random.integers(-8, 8, shape, endpoint=True).astype(np.float64)
        case "wide":
            sign = random.integers(0, 2, shape) * 2.0 - 1
            return sign * 2.0 ** random.uniform(-12, 12, shape)
    return random.standard_normal(shape)


def _sprinkle(random: np.random.Generator, values: Array, what: Array) -> None:
    if values.size:
        at = random.integers(0, values.size, max(1, values.size // 100))
        values.reshape(-1)[at] = random.choice(what, at.size)


def _indices(random: np.random.Generator, problem: Problem, anywhere: bool) -> Array:
    assert problem.index_dtype is not None
    shape = problem.batch + problem.output_plane
    dtype = problem.index_dtype.numpy
    if prod(problem.input_plane) == 0:
        return np.zeros(shape, dtype)
    if anywhere:
        return random.integers(0, prod(problem.input_plane), shape).astype(dtype)
    flat = np.zeros(shape, np.int64)
    for at, axis in enumerate(problem.axes):
        table = tables(axis)
        sizes = [1, 1, 1]
        sizes[at] = axis.outputs
        start, end = (t.reshape(sizes) for t in (table.start, table.end))
        flat = flat * axis.length + random.integers(start, end, shape)
    return flat.astype(dtype)
