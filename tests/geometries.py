"""Random problems for all four operators, as calls of the NumPy functions.

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

FUNCTIONS = [
    "adaptive_avg_pool3d_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    "avg_pool2d_backward",
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
        return 3 if "3d" in self.function else 2

    def __str__(self) -> str:
        g = self.grad_output
        return f"{self.function} {g.dtype} {g.shape} -> {self.input_shape} {self.attributes}"


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
    axes = 3 if "3d" in function else 2
    batch = tuple(int(n) for n in rng.integers(1, 5, 2 if rng.random() < 0.8 else 1))
    attributes: dict[str, Any] = {}
    lengths = tuple(int(n) for n in rng.permutation(np.arange(1, 18))[:axes])
    if function == "avg_pool2d_backward":
        outputs, attributes = _strided(rng, lengths)
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


def _strided(rng: np.random.Generator, lengths: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, Any]]:
    while True:
        k = tuple(int(n) for n in rng.permutation(np.arange(1, 8))[:2])
        s = tuple(int(n) for n in rng.integers(1, 6, 2))
        p = tuple(int(rng.integers(0, n // 2 + 1)) for n in k)
        ceil = bool(rng.random() < 0.5)
        geometry = zip(lengths, k, s, p, strict=True)
        outputs = tuple(strided_outputs(n, a, b, c, ceil) for n, a, b, c in geometry)
        if min(outputs) > 0 and all(n + 2 * c >= a for n, a, c in zip(lengths, k, p, strict=True)):
            break
    divisor = int(rng.integers(1, 40)) * (1 if rng.random() < 0.5 else -1)
    return outputs, {
        "kernel_size": k,
        "stride": s,
        "padding": p,
        "ceil_mode": ceil,
        "count_include_pad": bool(rng.random() < 0.5),
        "divisor_override": divisor if rng.random() < 0.3 else None,
    }


def torch_gradient(case: Geometry) -> Any:
    """PyTorch's own CPU result, from its backward operators."""
    import torch

    def tensor(array: Any) -> Any:
        return torch.from_numpy(array.copy("C"))

    grad = tensor(case.grad_output)
    x = torch.zeros(case.input_shape, dtype=grad.dtype)
    if case.indices is not None:
        backward = getattr(torch.ops.aten, case.function)
        return backward(grad, x, tensor(case.indices.astype(np.int64))).numpy()
    if case.function == "adaptive_avg_pool3d_backward":
        return torch.ops.aten._adaptive_avg_pool3d_backward(grad, x).numpy()
    a = case.attributes
    return torch.ops.aten.avg_pool2d_backward(
        grad,
        x,
        a["kernel_size"],
        a["stride"],
        a["padding"],
        a["ceil_mode"],
        a["count_include_pad"],
        a["divisor_override"],
    ).numpy()
