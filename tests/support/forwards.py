"""Random forwards, as calls of the NumPy functions and of PyTorch's, and what their results must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

import pooltide
from geometries import random_view
from pooltide.arrays.reader import ARRAYS
from pooltide.arrays.volumes import as_volume
from pooltide.kernels import Arrays, reference
from pooltide.problem.forwards import AdaptiveArguments, StridedArguments, forward_problem

NAMES = [f"{how}{what}_pool{n}d" for how in ("", "adaptive_") for what in ("avg", "max") for n in (1, 2, 3)]
DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
LONGEST = {1: 700, 2: 41, 3: 13}  # 700 cells: more than a kernel takes of a row at once


@dataclass
class Forward:
    name: str
    x: Any
    arguments: dict[str, Any]

    @property
    def axes(self) -> int:
        return int(self.name[-2])

    def run(self, **more: Any) -> Any:
        return getattr(pooltide, self.name)(self.x, **self.arguments, **more)

    def torch(self, **more: Any) -> Any:
        """PyTorch's result, or None where it refuses, as it does some dtypes and kernels."""
        try:
            return getattr(F, self.name)(tensor(self.x), **self.arguments, **more)
        except RuntimeError:  # NotImplementedError is one
            return None

    def reference(self, dtype: Any = None) -> tuple[Any, Any]:
        """Values and indices in plain NumPy; in float64 the oracle."""
        x = self.x if dtype is None else self.x.astype(dtype)
        defaults = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
        adaptive = "adaptive" in self.name
        asked = (
            AdaptiveArguments(**self.arguments)
            if adaptive
            else StridedArguments(**(defaults | self.arguments))
        )
        largest = "max" in self.name
        problem = forward_problem(self.name, ARRAYS, x, asked, largest)
        values = np.full(problem.batch + problem.output_plane, np.nan).astype(x.dtype)
        places = np.full(values.shape, -1) if largest else None
        arrays = Arrays(None, as_volume(x, self.axes), places, values)
        reference.run(problem, "strided", arrays, np.empty(0, np.uint8))
        shape = x.shape[: -self.axes] + problem.output_plane[3 - self.axes :]
        return values.reshape(shape), None if places is None else places.reshape(shape)

    @property
    def mean(self) -> bool:
        """Whether PyTorch takes the mean of a plane, whose bits depend on its vectors."""
        size = self.arguments.get("output_size")
        return "adaptive_avg" in self.name and all(o == 1 for o in np.atleast_1d(size))

    def __str__(self) -> str:
        return f"{self.name} {self.x.dtype} {self.x.shape} {self.x.strides} {self.arguments}"


def tensor(array: Any) -> Any:
    plain = np.array(array, order="C")  # of one row, a negative stride counts as contiguous
    if plain.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(plain.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(plain)


def bits(array: Any) -> Any:
    """Words of the values; every NaN is the same word. Exact for all four dtypes, as float64 holds them."""
    wide = array.double().numpy() if isinstance(array, torch.Tensor) else np.asarray(array).astype(np.float64)
    words = np.ascontiguousarray(wide).view(np.uint64).copy()
    words[np.isnan(wide)] = 0
    return words


def forward(name: str, seed: int, least: int = 1, largest: int | None = None) -> Forward:
    """A random call: sizes differ from axis to axis, windows overlap, leave gaps, hang over, step over."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    axes = int(name[-2])
    lead = 2 if rng.random() < 0.8 else 1
    batch = tuple(int(n) for n in rng.permutation(np.arange(1, 8 if rng.random() < 0.5 else 37))[:lead])
    longest = largest or LONGEST[axes]
    dtype = DTYPES[seed % 4]
    while True:
        lengths = tuple(int(n) for n in rng.permutation(np.arange(least, longest + 1))[:axes])
        arguments = _adaptive(rng, axes) if "adaptive" in name else _strided(rng, name, axes)
        call = Forward(name, np.empty(batch + lengths, dtype), arguments)
        try:
            call.run(**({"return_indices": True} if "max" in name else {}))
        except ValueError:
            continue
        break
    call.x = _lay(rng, batch, lengths, dtype)
    call.x[...] = _values(rng, call.x.shape).astype(dtype)
    return call


def _lay(rng: np.random.Generator, batch: tuple[int, ...], lengths: tuple[int, ...], dtype: Any) -> Any:
    how = rng.random()
    if how < 0.4:
        return np.empty(batch + lengths, dtype)
    if how < 0.7:
        return np.moveaxis(np.empty((*batch[:-1], *lengths, batch[-1]), dtype), -1, len(batch) - 1)
    return random_view(rng, batch + lengths, dtype)


def _values(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    x = rng.standard_normal(shape)
    if rng.random() < 0.4:
        x = np.round(x)  # equal cells, and zeros of both signs
    for value, share in ((np.nan, 0.03), (-np.inf, 0.3), (np.inf, 0.03)):
        if rng.random() < 0.2:
            x[rng.random(shape) < share] = value
    return x


def _adaptive(rng: np.random.Generator, axes: int) -> dict[str, Any]:
    return {"output_size": tuple(int(n) for n in rng.permutation(np.arange(1, 24 // axes))[:axes])}


def _strided(rng: np.random.Generator, name: str, axes: int) -> dict[str, Any]:
    def draw(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(n) for n in rng.integers(low, high, axes))

    k = tuple(int(n) for n in rng.permutation(np.arange(1, 8))[:axes])
    found: dict[str, Any] = {
        "kernel_size": k,
        "stride": draw(1, 5) if rng.random() < 0.9 else None,
        "padding": tuple(int(rng.integers(0, n // 2 + 1)) for n in k),
        "ceil_mode": bool(rng.random() < 0.5),
    }
    if "max" in name:
        return found | {"dilation": draw(1, 4)}
    found["count_include_pad"] = bool(rng.random() < 0.5)
    if axes > 1 and rng.random() < 0.3:
        found["divisor_override"] = int(rng.integers(1, 40)) * int(rng.choice([-1, 1]))
    return found
