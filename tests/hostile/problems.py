"""Drawn pooling problems that every entrance must accept."""

from __future__ import annotations

import math
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


REGIONS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
ODD_COORDINATES = (math.nan, math.inf, -math.inf, 1e30, -1e30, 2.0**31, -(2.0**31), 1e-40, -0.0, 1e9, 0.5)
ODD_IMAGES = (-1, 0.5, math.nan, math.inf, -1e30, 2.0**31, 2.0**63)


@dataclass
class Regions:
    """A pool over regions of interest."""

    pool: str
    input: tuple[int, ...]
    bins: tuple[int, int]
    boxes: Any  # (K, 5), in float64
    dtype: str
    attributes: dict[str, Any]
    good: bool  # whether each box has an image

    @property
    def output(self) -> tuple[int, ...]:
        channels = self.input[1] // (prod(self.bins) if self.pool.startswith("ps_") else 1)
        return len(self.boxes), channels, *self.bins

    @property
    def plane(self) -> int:
        return prod(self.input[2:])


def draw_regions(rng: Random, pool: str | None = None) -> Regions:
    """Boxes inside and outside the images, some of them odd; now and then one without an image."""
    pool = pool or rng.choice(REGIONS)
    bins = rng.randint(1, 4), rng.randint(1, 4)
    channels = rng.randint(0 if rng.random() < 0.05 else 1, 4) * (prod(bins) if pool.startswith("ps_") else 1)
    images = rng.randint(1, 3)
    shape = images, channels, rng.randint(1, 14), rng.randint(1, 14)
    scale = rng.choice((1.0, 1.0, 0.5, 0.0625, 2, 0.3, -0.5, 1e-30, 1e30, 0.0))
    count = rng.choice((0, 1, 1, 2, 5, 20))
    boxes = np.array([_box(rng, images, shape, scale) for _ in range(count)]).reshape(count, 5)
    good = True
    if count and rng.random() < 0.1:
        boxes[rng.randrange(count), 0] = rng.choice((*ODD_IMAGES, images))
        good = False
    attributes: dict[str, Any] = {"spatial_scale": scale}
    if "align" in pool:
        attributes["sampling_ratio"] = rng.choice((-1, -1, 0, 1, 2, 2, 3, 7, -(2**40)))
    if pool == "roi_align":
        attributes["aligned"] = rng.random() < 0.5
    return Regions(pool, shape, bins, boxes, rng.choice(list(FLOATS)), attributes, good)


def _box(rng: Random, images: int, shape: tuple[int, ...], scale: float) -> list[float]:
    sides = [n / scale if abs(scale) > 1e-20 else n for n in (*shape[:1:-1], *shape[:1:-1])]
    corners = [rng.uniform(-0.2, 1.2) * side for side in sides]
    if rng.random() < 0.15:
        corners[rng.randrange(4)] = rng.choice(ODD_COORDINATES)
    return [rng.randrange(images), *corners]
