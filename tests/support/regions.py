"""Calls of pools over regions of interest: drawn at random, and computed by each backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import pooltide
from pooltide.kernels import Arrays
from pooltide.kernels.regions import reference
from pooltide.operators.dtypes import DTYPES, dtype_of
from pooltide.problem.regions import RegionProblem

Array = NDArray[Any]
NAMES = ["ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool"]
FLOATS = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
HOSTILE = [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, -3e9, 1e-40, 0.0, -0.0]


@dataclass
class RegionCall:
    """A forward with its arguments, and a gradient of its result."""

    name: str
    x: Array
    boxes: Array
    bins: tuple[int, int]
    scale: float = 1.0
    ratio: int = -1
    aligned: bool = False
    grad: Array = field(init=False)

    def __post_init__(self) -> None:
        shape = self.problem(gradient=False).shape("out")
        values = np.random.default_rng(len(self.boxes)).standard_normal(shape) * 3
        self.grad = values.astype(self.x.dtype)

    @property
    def attributes(self) -> tuple[Any, ...]:
        more = {"roi_align": (self.ratio, self.aligned), "ps_roi_align": (self.ratio,)}
        return self.scale, *more.get(self.name, ())

    def problem(self, gradient: bool, index: str = "INT32") -> RegionProblem:
        n, c, h, w = self.x.shape
        known = dtype_of(self.x.dtype)
        assert known is not None
        return RegionProblem(
            f"{self.name}{'_gradient' if gradient else ''}", (n, c), (h, w), len(self.boxes), self.bins, known,
            self.scale, max(self.ratio or -1, -1), self.aligned or self.name.startswith("ps_"),
            DTYPES[index] if self.name == "roi_pool" else None,
        )  # fmt: skip

    def forward(self, **more: Any) -> tuple[Array, Array | None]:
        """The values and, of maxima, the indices."""
        function = getattr(pooltide, self.name)
        if self.name != "roi_pool":
            return function(self.x, self.boxes, self.bins, *self.attributes, **more), None
        values, indices = function(self.x, self.boxes, self.bins, self.scale, return_indices=True, **more)
        return values, indices

    def gradient(self, indices: Array | None, **more: Any) -> Array:
        function, shape = getattr(pooltide, f"{self.name}_backward"), self.x.shape
        if self.name == "roi_pool":
            return function(self.grad, shape, self.boxes, indices, **more)  # type: ignore[no-any-return]
        return function(self.grad, shape, self.boxes, *self.attributes, **more)  # type: ignore[no-any-return]

    def by_reference(self) -> tuple[Array, Array | None, Array]:
        """Values, indices and gradient, by the slow reference."""
        boxes = self.boxes.astype(np.float64 if self.x.dtype == np.float64 else np.float32)
        values = np.full(self.grad.shape, np.nan, self.x.dtype)
        places = np.full(self.grad.shape, -7, np.int32) if self.name == "roi_pool" else None
        total = np.full(self.x.shape, np.nan, self.x.dtype)
        none = np.empty(0, np.uint8)
        fault = reference.run(
            self.problem(False), "planes", Arrays(None, self.x, places, values, boxes), none
        )
        assert fault is None
        fault = reference.run(
            self.problem(True), "planes", Arrays(self.grad, None, places, total, boxes), none
        )
        assert fault is None
        return values, places, total


class InTorchvision:
    """The same call by torchvision's operators, which must be installed."""

    def __init__(self, call: RegionCall) -> None:
        import torch
        import torchvision  # noqa: F401

        self.call, self.operators = call, torch.ops.torchvision
        self.x, self.boxes, self.g = (torch.tensor(array) for array in (call.x, call.boxes, call.grad))

    def forward(self) -> tuple[Any, Any]:
        """The values, and the indices or channels that the gradient takes; None of roi_align."""
        call = self.call
        function = getattr(self.operators, call.name)
        found = function(self.x, self.boxes, call.scale, *call.bins, *call.attributes[1:])
        return found if isinstance(found, tuple) else (found, None)

    def gradient(self, places: Any) -> Any:
        call, saved = self.call, [] if places is None else [places]
        ratio = [call.ratio] if "align" in call.name else []
        sizes = [*ratio, *call.x.shape] if call.name.startswith("ps_") else [*call.x.shape, *ratio]
        if call.name == "roi_align":
            sizes.append(call.aligned)
        function = getattr(self.operators, f"_{call.name}_backward")
        return function(self.g, self.boxes, *saved, call.scale, *call.bins, *sizes)


def draw(seed: int, name: str | None = None, hostile: bool = False, largest: int = 11) -> RegionCall:
    rng = np.random.default_rng(seed)
    name = name or NAMES[seed % len(NAMES)]
    bins = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    channels = int(rng.choice([1, 2, 3, 5, 16, 17, 33])) * (
        bins[0] * bins[1] if name.startswith("ps_") else 1
    )
    n, h, w = int(rng.integers(1, 4)), int(rng.integers(1, largest)), int(rng.integers(1, largest))
    dtype = FLOATS[int(rng.integers(0, 4))]
    x = (rng.standard_normal((n, channels, h, w)) * 4).astype(dtype)
    if rng.integers(0, 2):
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    number = int(rng.integers(0, 13))
    scale = float(rng.choice([1.0, 0.5, 0.25, 0.3, 2.0]))
    corners = rng.uniform(-2, max(h, w) + 2, (number, 4)) / scale
    if rng.integers(0, 2):
        corners = np.round(corners * 4) / 4
    corners[:, 2:] = np.where(
        rng.random((number, 2)) < 0.7, corners[:, :2] + abs(corners[:, 2:] / 2), corners[:, 2:]
    )
    if hostile:
        corners = np.where(rng.random(corners.shape) < 0.3, rng.choice(HOSTILE, corners.shape), corners)
    boxes = np.concatenate([rng.integers(0, n, (number, 1)), corners], 1)
    with np.errstate(over="ignore"):
        boxes = boxes.astype(
            dtype if rng.integers(0, 2) else np.float64 if dtype == np.float64 else np.float32
        )
    ratio, aligned = int(rng.integers(-1, 4)), bool(rng.integers(0, 2))
    return RegionCall(name, x, boxes, bins, scale, ratio, aligned and name == "roi_align")


def bits(array: Array) -> Array:
    """The bits of floats; every NaN has the same."""
    whole = np.ascontiguousarray(array)
    found = whole.view(f"u{whole.itemsize}")
    return np.where(np.isnan(whole.astype(np.float64)), np.array(-1).astype(found.dtype), found)


def axis_weights(
    low: Array, high: Array, bins: int, cells: int, ratio: int, offset: float, at_least_one: bool
) -> tuple[Array, Array]:
    """In float64: the weights of cells in bins, (K, bins, cells), summed over samples; and samples of a bin."""
    start = low.astype(np.float64) - offset
    length = high.astype(np.float64) - offset - start
    if at_least_one:
        length = np.maximum(length, 1)
    bin, grid = length / bins, np.full(len(low), ratio) if ratio > 0 else np.ceil(length / bins).astype(int)
    weights = np.zeros((len(low), bins, cells + 1))
    rows = np.arange(len(low))
    for sample in range(max(int(grid.max(initial=0)), 0)):
        for at in range(bins):
            with np.errstate(divide="ignore", invalid="ignore"):
                y = start + at * bin + (sample + 0.5) * bin / grid
            inside = (sample < grid) & (y >= -1) & (y <= cells)
            y = np.clip(np.where(inside, y, 0), 0, cells - 1)
            first = np.floor(y).astype(int)
            weights[rows, at, first] += np.where(inside, 1 - (y - first), 0)
            weights[rows, at, first + 1] += np.where(inside, y - first, 0)
    return weights[..., :cells], grid


def align_in_float64(call: RegionCall) -> tuple[Array, Array]:
    """The result of `roi_align` of one image, and its gradient; by matrices, whose order of sums is another."""
    assert call.name == "roi_align"
    assert len(call.x) == 1
    offset, (ph, pw), (h, w) = 0.5 if call.aligned else 0.0, call.bins, call.x.shape[2:]
    _, x1, y1, x2, y2 = call.boxes.T * call.scale
    down, rows = axis_weights(y1, y2, ph, h, call.ratio, offset, not call.aligned)
    across, columns = axis_weights(x1, x2, pw, w, call.ratio, offset, not call.aligned)
    down = down / np.maximum(rows * columns, 1)[:, None, None]
    x, g = call.x[0].astype(np.float64), call.grad.astype(np.float64)
    values = np.einsum("kph,chw,kqw->kcpq", down, x, across, optimize=True)
    return values, np.einsum("kph,kcpq,kqw->chw", down, g, across, optimize=True)[None]
