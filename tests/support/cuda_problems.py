"""Random problems for the GPU kernels, and what the reference makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from geometries import bits, maxima_gradient
from pooltide.geometry import UNIT, Axis, strided_outputs, tables
from pooltide.kernels import reference
from pooltide.kernels.cuda.average_gradient import average_dense, average_flat
from pooltide.kernels.cuda.cost import exploring
from pooltide.kernels.cuda.maximum_gradient import (
    scatter_channels,
    scatter_planes,
    scatter_volumes,
    scatter_walk,
)
from pooltide.kernels.cuda.runtime.driver import H200 as H200
from pooltide.operators.dtypes import DTYPES, DType
from pooltide.problem.offsets import offsets_of
from pooltide.problem.problem import Problem
from pooltide.problem.rounding import round_once

TYPES = ("FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16")
EXTREMES = (-1, -(2**31), 2**31 - 1, 2**31, -(2**32), 2**32, -(2**63), 2**63 - 1)  # indices


def strided(length: int, k: int, s: int, p: int, ceil: bool = False) -> Axis:
    return Axis(length, strided_outputs(length, k, s, p, ceil), k, s, p)


def own_indices(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """A random cell of its window for every window."""
    shape = problem.batch + problem.output_plane
    flat = np.zeros(shape, dtype=np.int64)
    for i, axis in enumerate(problem.axes):
        table = tables(axis)
        start, end = (np.expand_dims(t, tuple(range(1, 3 - i))) for t in (table.start, table.end))
        flat = flat * axis.length + start + (rng.random(shape) * (end - start)).astype(np.int64)
    assert problem.index_dtype is not None
    return flat.astype(problem.index_dtype.numpy)


def own_offsets(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """The offset of a random cell of its window for every window."""
    assert problem.offset_tables is not None
    shape = problem.batch + problem.output_plane
    found = np.zeros(shape, dtype=np.int64)
    for i, (axis, most) in enumerate(zip(problem.axes, problem.offset_tables.most, strict=True)):
        step = problem.dilation[i]
        cells = -(-(tables(axis).end - problem.offset_tables.first_cell[i]) // step)
        found = found * most + (rng.random(shape) * np.expand_dims(cells, tuple(range(1, 3 - i)))).astype(int)
    return found.astype(np.uint8)


def spoil(indices: np.ndarray, cells: int, rng: np.random.Generator, strays: str) -> None:
    """Some indices name other cells ("foreign"), or none ("outside")."""
    if strays == "none":
        return
    chosen = rng.random(indices.shape) < 0.2
    chosen.flat[0] = True
    beyond = 3 if strays == "outside" else 0
    indices[chosen] = rng.integers(-beyond, cells + beyond, chosen.sum())
    if strays == "outside":
        limits = np.iinfo(indices.dtype)
        fitting = [n for n in EXTREMES if limits.min <= n <= limits.max]
        extreme = rng.random(indices.shape) < 0.1
        extreme.flat[1:2] = False
        indices[extreme] = rng.choice(fitting, extreme.sum())
        indices.flat[-1] = cells
        if indices.itemsize == 8:
            indices.flat[1] += 2**32  # right in its low word


def expected(problem: Problem, grad: np.ndarray, indices: np.ndarray | None) -> tuple[np.ndarray, Any]:
    """The contract: sums in the accumulator's type, rounded once; and what indices were at fault."""
    total = np.empty(problem.batch + problem.input_plane, problem.dtype.accumulator)
    fault = reference.accumulate(problem, grad, indices, total)
    return round_once(total, problem.dtype.numpy), fault


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, or both NaN."""
    return np.array_equal(bits(a), bits(b))


def random_problem(rng: np.random.Generator, operator: int, dtype: DType) -> tuple[Problem, str]:
    batch = (int(rng.integers(1, 5)), int(rng.choice([1, 3, 4, 8, 17, 36])))
    layout = str(rng.choice(["planes", "channels_last"]))
    lengths = [int(rng.choice([1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 24, 31])) for _ in range(3)]
    if rng.integers(6) == 0:
        lengths[2] = int(rng.choice([37, 70, 101]))
    if operator == 0:
        axes = random_windows(rng, lengths[1:])
        how = str(rng.choice(["extent", "valid", "override"]))
        divisor = int(rng.choice([-7, 3, 6, 2**33])) if how == "override" else 0
        return Problem("average_gradient", batch, (UNIT, axes[0], axes[1]), dtype, how, divisor), layout
    windows = [int(rng.choice([1, 2, 3, max(n // 2, 1), max(n - 1, 1), n, n + 3])) for n in lengths]
    d, h, w = (Axis(n, o) for n, o in zip(lengths, windows, strict=True))
    if operator == 1:
        return Problem("average_gradient", batch, (d, h, w), dtype, "chained"), layout
    if rng.integers(2):
        d, h, w = random_windows(rng, lengths)
    axes = (d if operator == 3 else UNIT, h, w)
    most = offsets_of(axes)
    index = DTYPES[str(rng.choice(["INT32", "INT64", "UINT8"] if most else ["INT32", "INT64"]))]
    return maxima_gradient(batch, axes, dtype, index), layout


def random_windows(rng: np.random.Generator, lengths: list[int]) -> list[Axis]:
    axes: list[Axis] = []
    while len(axes) < len(lengths):
        k = int(rng.integers(1, 6))
        s, p = int(rng.integers(1, 5)), int(rng.integers(0, k // 2 + 1))
        axis = strided(lengths[len(axes)], k, s, p, bool(rng.integers(2)))
        axes += [axis] if axis.outputs > 0 else []
    return axes


def random_indices(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """Each in its window; or some that name other cells, or none."""
    strays = str(rng.choice(["none", "foreign", "outside"]))
    if problem.offsets:
        found = own_offsets(problem, rng)
        chosen = rng.random(found.shape) < (0 if strays == "none" else 0.2)
        found[chosen] = rng.integers(0, 256, chosen.sum())
        return found
    found = own_indices(problem, rng)
    spoil(found, int(np.prod(problem.input_plane)), rng, strays)
    return found


def random_gradient(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """Normal values, or any words at all: infinities, NaNs, subnormals, both zeros."""
    shape = problem.batch + problem.output_plane
    if rng.integers(2):
        return rng.standard_normal(shape).astype(problem.dtype.numpy)
    words = rng.integers(0, 256, (*shape, problem.dtype.itemsize), dtype=np.uint8)
    values = words.view(problem.dtype.numpy).reshape(shape)
    smallest = ml_dtypes.finfo(problem.dtype.numpy).smallest_subnormal  # quotients of a few of it may be ties
    values = np.where(words[..., 0] < 32, words[..., -1] * smallest, values).astype(problem.dtype.numpy)
    return np.where(rng.random(shape) < 0.3, values * problem.dtype.numpy.type(0), values)


def random_task(seed: int) -> tuple[Problem, str, np.ndarray, np.ndarray | None]:
    """The seed's problem, its layout, a gradient and indices."""
    rng = np.random.default_rng(seed)
    problem, layout = random_problem(rng, seed % 4, DTYPES[TYPES[seed // 4 % 4]])
    with np.errstate(all="ignore"):
        grad = random_gradient(problem, rng)
    return problem, layout, grad, random_indices(problem, rng) if problem.kind == "maximum_gradient" else None


@contextmanager
def changed(module: Any, **values: Any) -> Iterator[None]:
    """Sets names of a module for a while."""
    kept = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(module, name, value)


@contextmanager
def tiny_bands(band: int, tile: int) -> Iterator[None]:
    """Bands and tiles of so many bytes, so that small problems have several of them; any tile, also slow ones."""
    with (
        exploring(Random(band), inf),
        changed(scatter_planes, WARP_BYTES=band),
        changed(scatter_channels, WARP_BYTES=tile),
        changed(scatter_volumes, WARP_BYTES=8 * band),
        changed(scatter_walk, WALK_BYTES=10 * tile),
        changed(average_flat, REGIONS=2, REGION_WINDOWS=2),  # for all windows that overlap
        changed(average_dense, KEPT_BYTES=24 * band, STRAIGHT=0),
    ):
        yield
