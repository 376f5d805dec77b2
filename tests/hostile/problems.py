"""Drawn pooling problems that every entrance must accept."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from pooltide.geometry import strided_outputs

POOLS = [
    f"{pool}_pool{axes}d" for pool in ("adaptive_avg", "adaptive_max", "avg", "max") for axes in (1, 2, 3)
]
FLOATS = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


@dataclass
class Problem:
    pool: str
    batch: tuple[int, ...]
    lengths: tuple[int, ...]
    outputs: tuple[int, ...]
    dtype: str
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def input(self) -> tuple[int, ...]:
        return self.batch + self.lengths

    @property
    def output(self) -> tuple[int, ...]:
        return self.batch + self.outputs

    @property
    def is_max(self) -> bool:
        return "max" in self.pool

    @property
    def plane(self) -> int:
        return prod(self.lengths)


def draw(rng: Random, pool: str, large: float = 0.002) -> Problem:
    axes = int(pool[-2])
    most, channels = (17, 18, 12, 8)[axes], 4
    if rng.random() < large:
        most, channels = (0, 3000, 100, 24)[axes], 8
    batch = tuple(rng.randint(1, channels) for _ in range(rng.choice((1, 2, 2, 2))))
    if rng.random() < 0.02:
        batch = (0, *batch[1:])
    lengths = tuple(rng.randint(1, most) for _ in range(axes))
    dtype = rng.choice(list(FLOATS))
    if pool.startswith("adaptive"):
        outputs = tuple(rng.randint(1, most // 2 + 1) for _ in range(axes))
        return Problem(pool, batch, lengths, outputs, dtype)
    outputs, attributes = _windows(rng, pool, lengths)
    return Problem(pool, batch, lengths, outputs, dtype, attributes)


def _windows(rng: Random, pool: str, lengths: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, Any]]:
    dilated = "max" in pool
    ceil = rng.random() < 0.5
    kernel, stride, padding, dilation, outputs = [], [], [], [], []
    for n in lengths:
        step = rng.choice((1, 1, 2, 3)) if dilated and n > 2 else 1
        k = rng.randint(1, (n - 1) // step + 1)
        p = rng.randint(0, k // 2)
        s = rng.randint(1, 5)
        kernel.append(k)
        stride.append(s)
        padding.append(p)
        dilation.append(step)
        outputs.append(strided_outputs(n, step * (k - 1) + 1, s, p, ceil))
    found: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "padding": padding}
    if dilated:
        found |= {"dilation": dilation}
    found = {name: _spelled(rng, values) for name, values in found.items()}
    found["ceil_mode"] = ceil
    if not dilated:
        found["count_include_pad"] = rng.random() < 0.5
        if "1d" not in pool:
            found["divisor_override"] = rng.choice((None, None, None, 1, 3, -7, 2**40))
    return tuple(outputs), found


def _spelled(rng: Random, values: list[int]) -> Any:
    """The same ints in one of the forms that a caller may use."""
    if len(set(values)) == 1 and rng.random() < 0.5:
        return rng.choice((values[0], np.int32(values[0]), (values[0],)))
    return rng.choice((tuple(values), values, tuple(map(np.int64, values))))
