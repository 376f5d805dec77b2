"""Random problems for all twelve operators, as calls of the NumPy functions.

Sizes differ from axis to axis, arrays are strided views, windows overlap, repeat, leave gaps, hang
over the edge. The same seed gives the same problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import pooltide
from pooltide.geometry import strided_outputs
from pooltide.problem.problem import Problem

FUNCTIONS = [
    f"{pool}_pool{axes}d_backward"
    for pool in ("adaptive_avg", "adaptive_max", "avg", "max")
    for axes in (1, 2, 3)
]
DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]


@dataclass
class Geometry:
    function: str
    grad_output: Any
    input_shape: tuple[int, ...]
    indices: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> tuple[Any, ...]:
        given = (self.grad_output, self.input_shape)
        return given if self.indices is None else (*given, self.indices)

    def run(self, **more: Any) -> Any:
        function: Callable[..., Any] = getattr(pooltide, self.function)
        return function(*self.arguments(), **self.attributes, **more)

    @property
    def axes(self) -> int:
        return axes_of(self.function)

    def __str__(self) -> str:
        g = self.grad_output
        return f"{self.function} {g.dtype} {g.shape} -> {self.input_shape} {self.attributes}"


def maxima_gradient(batch: tuple[int, int], axes: Any, dtype: Any, index: Any) -> Problem:
    """A gradient of maxima with indices of this dtype; UINT8 means one-byte offsets."""
    if index.name == "UINT8":
        return Problem("maximum_gradient", batch, axes, dtype, offsets=True)
    return Problem("maximum_gradient", batch, axes, dtype, index_dtype=index)


def axes_of(function: str) -> int:
    return next(n for n in (1, 2, 3) if f"{n}d" in function)


def random_view(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An uninitialized array of this shape in a larger storage, axes permuted, stepped, reversed."""
    order = rng.permutation(len(shape))
    steps = rng.choice([1, 1, 1, 2, 3], len(shape))
    margins = rng.integers(0, 3, (len(shape), 2))
    storage = [
        int(m[0] + shape[axis] * step + m[1]) for axis, step, m in zip(order, steps, margins, strict=True)
    ]
    view = np.zeros(storage, dtype)
    for at, (axis, step, m) in enumerate(zip(order, steps, margins, strict=True)):
        cut = slice(int(m[0]), int(m[0] + shape[axis] * step), int(step))
        view = view[(slice(None),) * at + (cut,)]
    view = view.transpose(np.argsort(order))
    flips = tuple(slice(None, None, -1 if rng.random() < 0.2 else 1) for _ in shape)
    return view[flips]


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    scale = 2.0 ** rng.integers(-8, 8)
    return (rng.standard_normal(shape) * scale).astype(dtype)


def geometry(function: str, seed: int, dtype: np.dtype[Any] | None = None, strided: bool = True) -> Geometry:
    rng = np.random.default_rng([FUNCTIONS.index(function), seed])
    dtype = DTYPES[seed % len(DTYPES)] if dtype is None else dtype
    axes = axes_of(function)
    batch = tuple(int(n) for n in rng.integers(1, 5, 2 if rng.random() < 0.8 else 1))
    attributes: dict[str, Any] = {}
    lengths = tuple(int(n) for n in rng.permutation(np.arange(1, 18))[:axes])
    if not function.startswith("adaptive"):
        outputs, attributes = _strided(rng, lengths, dilated="max" in function)
    else:
        outputs = tuple(int(n) for n in rng.permutation(np.arange(1, 12))[:axes])
    make = random_view if strided else (lambda _, shape, dtype: np.empty(shape, dtype))
    grad = make(rng, batch + outputs, dtype)
    grad[...] = values(rng, grad.shape, dtype)
    indices = None
    if "max" in function:
        indices = make(rng, grad.shape, np.dtype(rng.choice(["int32", "int64"])))
        indices[...] = rng.integers(0, np.prod(lengths), grad.shape)
    return Geometry(function, grad, batch + lengths, indices, attributes)


def _strided(
    rng: np.random.Generator, lengths: tuple[int, ...], dilated: bool
) -> tuple[tuple[int, ...], dict[str, Any]]:
    axes = len(lengths)
    while True:
        k = tuple(int(n) for n in rng.permutation(np.arange(1, 8))[:axes])
        s = tuple(int(n) for n in rng.integers(1, 6, axes))
        p = tuple(int(rng.integers(0, n // 2 + 1)) for n in k)
        r = tuple(int(n) for n in rng.integers(1, 4, axes)) if dilated else (1,) * axes
        reach = tuple(b * (a - 1) + 1 for a, b in zip(k, r, strict=True))
        ceil = bool(rng.random() < 0.5)
        geometry = zip(lengths, reach, s, p, strict=True)
        outputs = tuple(strided_outputs(n, a, b, c, ceil) for n, a, b, c in geometry)
        # PyTorch's 3-D average wants an input that holds the kernel; the others count the padding too.
        spare = [0] * axes if axes == 3 and not dilated else [2 * n for n in p]
        fits = all(n + c >= a for n, a, c in zip(lengths, reach, spare, strict=True))
        if min(outputs) > 0 and fits:
            break
    attributes: dict[str, Any] = {"kernel_size": k, "stride": s, "padding": p}
    if dilated:
        return outputs, attributes | {"dilation": r, "ceil_mode": ceil}
    attributes |= {"ceil_mode": ceil, "count_include_pad": bool(rng.random() < 0.5)}
    divisor = int(rng.integers(1, 40)) * (1 if rng.random() < 0.5 else -1)
    if axes > 1:
        attributes["divisor_override"] = divisor if rng.random() < 0.3 else None
    return outputs, attributes


def torch_gradient(case: Geometry) -> Any:
    """PyTorch's own CPU result, from its backward operators. It has none in 1-D: there a row is a plane."""
    import torch

    row = case.axes == 1

    def tensor(array: Any) -> Any:
        made = torch.from_numpy(array.copy("C"))
        return made.unsqueeze(-2) if row else made

    grad = tensor(case.grad_output)
    x = tensor(np.zeros(case.input_shape, case.grad_output.dtype))
    indices = () if case.indices is None else (tensor(case.indices.astype(np.int64)),)
    units = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
    attributes = [
        (units[name], *value) if row and name in units else value for name, value in case.attributes.items()
    ]
    name = case.function.replace("1d", "2d")
    if name.startswith("max"):
        backward = getattr(torch.ops.aten, name.replace("d_backward", "d_with_indices_backward"))
        result = backward(grad, x, *attributes, *indices)
    else:
        if "avg" in name and row and attributes:
            attributes.append(None)
        backward = getattr(torch.ops.aten, f"_{name}" if name.startswith("adaptive_avg") else name)
        result = backward(grad, x, *indices, *attributes)
    return result.numpy().reshape(case.input_shape)


def lay(array: Any, layout: str) -> Any:
    """The volume in this layout: "planes" or "channels_last"."""
    if layout == "planes":
        return np.ascontiguousarray(array)
    return np.ascontiguousarray(array.transpose(0, 2, 3, 4, 1)).transpose(0, 4, 1, 2, 3)


def flat(array: Any, layout: str) -> Any:
    """The array's elements in the order in which they stand in memory."""
    return np.ascontiguousarray(array if layout == "planes" else array.transpose(0, 2, 3, 4, 1)).ravel()


def bits(array: Any) -> Any:
    """The words of an array; every NaN is the same word, as payloads don't count."""
    words, nan = array.view(f"u{array.itemsize}"), np.isnan(array)
    return np.where(nan, words.dtype.type(1), words) if nan.any() else words
