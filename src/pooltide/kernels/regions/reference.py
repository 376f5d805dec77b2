"""The reference of pools over regions of interest: loops in plain NumPy. Slow, and obviously right.

`run` computes in float32 (float64 for FLOAT64) with one rounding at the end: these are the bits that every
other backend gives. docs/regions.md has the arithmetic in words. Positions and weights have the dtype of the
boxes, and sums that of `out` or `total`: golden data have float64 sums of the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...problem.regions import RegionProblem
from ...problem.rounding import round_once
from .. import Arrays
from . import RegionFault

Array = NDArray[Any]
LAYOUTS = frozenset({"planes", "channels_last", "strided"})
_LARGEST = 2**31  # samples of a bin on an axis, and rounded positions, are smaller
_LOWEST = -float(np.finfo(np.float32).max)  # a maximum starts here, in float64 too


def refuse(problem: RegionProblem, layout: str) -> str | None:
    return None


def prepare(problem: RegionProblem, layout: str, device: None) -> None:
    """Returns None: `run` takes arrays, not addresses."""


def scratch(problem: RegionProblem) -> int:
    return 0


def run(problem: RegionProblem, layout: str, arrays: Arrays, scratch: Array) -> RegionFault | None:
    if fault := find_fault(problem, arrays.boxes, arrays.indices):
        return fault
    sums = np.zeros(arrays.out.shape, problem.dtype.accumulator)
    if problem.gradient:
        accumulate(problem, arrays.grad_output, arrays.boxes, arrays.indices, sums)
    else:
        pool(problem, arrays.input, arrays.boxes, arrays.indices, sums)
    arrays.out[...] = round_once(sums, arrays.out.dtype)
    return None


def find_fault(problem: RegionProblem, boxes: Array, indices: Array | None) -> RegionFault | None:
    image = boxes[:, 0]
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~((image >= 0) & (image < problem.batch[0]) & (image == np.floor(image))))
    if bad.size:
        return RegionFault(bad.size, int(bad[0]), 0)
    if indices is None or not problem.gradient:
        return None
    h, w = problem.plane
    outside = np.flatnonzero((indices < -1) | (indices >= h * w))
    if not outside.size:
        return None
    first = int(outside[0])
    return RegionFault(outside.size, problem.regions + first, int(indices.flat[first]))


def pool(problem: RegionProblem, input: Array, boxes: Array, indices: Array | None, out: Array) -> None:
    """Writes the result in `out`'s dtype."""
    x = input.astype(out.dtype)
    with np.errstate(all="ignore"):
        for k, box in enumerate(boxes):
            image = x[int(box[0])]
            if problem.kind == "roi_align_max":
                _largest_terms(problem, image, box, out[k])
                continue
            for ph, pw in np.ndindex(problem.bins):
                planes = image[_channels(problem, ph, pw)]
                if not problem.sampled:
                    cells = cells_of_bin(problem, box, ph, pw)
                    value, place = _largest(planes, cells) if problem.maxima else (_mean(planes, cells), None)
                    if indices is not None:
                        indices[k, :, ph, pw] = place
                else:
                    value = np.zeros(len(planes), x.dtype)
                    for (y1, y2), (x1, x2), (w1, w2, w3, w4) in samples_of_bin(problem, box, ph, pw):
                        value += (
                            w1 * planes[:, y1, x1]
                            + w2 * planes[:, y1, x2]
                            + (w3 * planes[:, y2, x1])
                            + w4 * planes[:, y2, x2]
                        )
                    value = value / number_of_samples(problem, box)
                out[k, :, ph, pw] = value


def accumulate(
    problem: RegionProblem, grad_output: Array, boxes: Array, indices: Array | None, total: Array
) -> None:
    """Adds the gradient to `total`, in its dtype."""
    g = grad_output.astype(total.dtype)
    with np.errstate(all="ignore"):
        for k, box in enumerate(boxes):
            image = total[int(box[0])]
            for ph, pw in np.ndindex(problem.bins):
                planes, term = image[_channels(problem, ph, pw)], g[k, :, ph, pw]
                if indices is not None:
                    for c in np.flatnonzero(indices[k, :, ph, pw] >= 0):
                        planes[(c, *divmod(int(indices[k, c, ph, pw]), problem.plane[1]))] += term[c]
                elif not problem.sampled:
                    rows, columns = cells_of_bin(problem, box, ph, pw)
                    number = total.dtype.type(len(rows) * len(columns))
                    planes[:, rows.start : rows.stop, columns.start : columns.stop] += (term / number)[
                        :, None, None
                    ]
                else:
                    count = number_of_samples(problem, box)
                    for down, across, weights in samples_of_bin(problem, box, ph, pw):
                        corners = [(y, x) for y in down for x in across]
                        for (y, x), weight in zip(corners, weights, strict=True):
                            planes[:, y, x] += term * weight / count


def _channels(problem: RegionProblem, ph: int, pw: int) -> slice:
    """The input channels that a bin reads, one for each channel of the result."""
    if not problem.position_sensitive:
        return slice(None)
    return slice(ph * problem.bins[1] + pw, None, problem.bins[0] * problem.bins[1])


@dataclass(frozen=True)
class _Extent:
    """A box on one axis: where it starts, the length of a bin, the samples of a bin."""

    start: Any
    bin: Any
    grid: int


def _extent(problem: RegionProblem, low: Any, high: Any, bins: int) -> _Extent:
    T = type(low)
    scale, offset = T(problem.spatial_scale), T(0.5 if problem.aligned else 0)
    start, end = low * scale - offset, high * scale - offset
    length = end - start
    if not problem.aligned and length < 1:
        length = T(1)
    grid, samples = problem.sampling_ratio, np.ceil(length / T(bins))
    if grid <= 0:
        grid = int(samples) if -_LARGEST < samples < _LARGEST else 0
    return _Extent(start, length / T(bins), grid)


def number_of_samples(problem: RegionProblem, box: Array) -> Any:
    h, w = _extents(problem, box)
    number = h.grid * w.grid
    return box.dtype.type(number if problem.position_sensitive else max(number, 1))


def _extents(problem: RegionProblem, box: Array) -> tuple[_Extent, _Extent]:
    _, x1, y1, x2, y2 = box
    return _extent(problem, y1, y2, problem.bins[0]), _extent(problem, x1, x2, problem.bins[1])


def samples_of_bin(
    problem: RegionProblem, box: Array, ph: int, pw: int
) -> Iterator[tuple[tuple[int, int], tuple[int, int], tuple[Any, Any, Any, Any]]]:
    """The samples inside the plane: two rows, two columns, and the weights of the four cells."""
    h, w = _extents(problem, box)
    down = [_between(h, ph, i, problem.plane[0]) for i in _inside(h, ph, problem.plane[0])]
    across = [_between(w, pw, i, problem.plane[1]) for i in _inside(w, pw, problem.plane[1])]
    for rows, ly, hy in down:
        for columns, lx, hx in across:
            yield rows, columns, (hy * hx, hy * lx, ly * hx, ly * lx)


def _position(extent: _Extent, bin: int, sample: int) -> Any:
    T = type(extent.start)
    middle = T(np.float32(sample) + np.float32(0.5))
    return (extent.start + T(bin) * extent.bin) + middle * extent.bin / T(extent.grid)


def _inside(extent: _Extent, bin: int, cells: int) -> range:
    """The samples of a bin that lie in the plane: positions rise, or fall, with the number of the sample."""
    T, rising = type(extent.start), extent.bin >= 0

    def first(beyond: Any) -> int:
        low, high = 0, max(extent.grid, 0)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if beyond(_position(extent, bin, middle)) else (middle + 1, high)
        return low

    if rising:
        return range(first(lambda y: y >= -1), first(lambda y: y > T(cells)))
    if extent.bin < 0:
        return range(first(lambda y: y <= T(cells)), first(lambda y: y < -1))
    return range(0)  # NaN


def _between(extent: _Extent, bin: int, sample: int, cells: int) -> tuple[tuple[int, int], Any, Any]:
    """The two cells around a sample on an axis, and the parts of the second and the first."""
    T, y = type(extent.start), _position(extent, bin, sample)
    y = y if y > 0 else T(0)
    low = min(int(y), cells - 1)
    high = min(low + 1, cells - 1)
    part = y - T(low) if high > low else T(0)
    return (low, high), part, T(1) - part


def cells_of_bin(problem: RegionProblem, box: Array, ph: int, pw: int) -> tuple[range, range]:
    """The rows and columns of a bin of a pool over cells."""
    _, x1, y1, x2, y2 = box
    rows = _span(problem, y1, y2, ph, problem.bins[0], problem.plane[0])
    columns = _span(problem, x1, x2, pw, problem.bins[1], problem.plane[1])
    return (rows, columns) if rows and columns else (range(0), range(0))


def _span(problem: RegionProblem, low: Any, high: Any, bin: int, bins: int, cells: int) -> range:
    T = type(low)
    scaled = [low * T(problem.spatial_scale), high * T(problem.spatial_scale)]
    if np.isnan(scaled).any():
        return range(0)
    start, end = (_rounded(value) for value in scaled)
    length = T(max(end - start + (1 if problem.maxima else 0), 1)) / T(bins)
    first, last = int(np.floor(T(bin) * length)) + start, int(np.ceil(T(bin + 1) * length)) + start
    most = cells if problem.maxima or problem.gradient else cells - 1  # torchvision's forward: one less
    return range(min(max(first, 0), most), min(max(last, 0), most))


def _rounded(value: Any) -> int:
    """Half away from zero, and within 32 bits."""
    clipped = float(min(max(value, -_LARGEST), _LARGEST))
    whole = int(np.trunc(clipped))
    return whole + (int(np.sign(clipped)) if abs(clipped - whole) >= 0.5 else 0)


def _largest(planes: Array, cells: tuple[range, range]) -> tuple[Array, Array]:
    rows, columns = cells
    value = np.full(len(planes), _LOWEST if rows and columns else 0, planes.dtype)
    place = np.full(len(planes), -1)
    for y in rows:
        for x in columns:
            wins = planes[:, y, x] > value
            value = np.where(wins, planes[:, y, x], value)
            place = np.where(wins, y * planes.shape[2] + x, place)
    return value, place


def _largest_terms(problem: RegionProblem, image: Array, box: Array, out: Array) -> None:
    """Writes the maxima of a region, of shape (C, PH, PW).

    The weight of a term is a product of two, so the largest and the least term of a cell have the largest and
    the least weights of its row and its column, over all samples of the bin: products are rounded in order.
    """
    sides = zip(_extents(problem, box), problem.bins, problem.plane, strict=True)
    rows, columns = (
        [_weights_of_cells(extent, bin, cells) for bin in range(bins)] for extent, bins, cells in sides
    )
    for ph, pw in np.ndindex(problem.bins):
        (ys, down, all_down), (xs, across, all_across) = rows[ph], columns[pw]
        of_cells = image[:, ys][:, :, xs]
        terms = np.maximum(*(w_y[:, None] * w_x * of_cells for w_y, w_x in zip(down, across, strict=True)))
        largest = terms.max((1, 2), initial=-np.inf)
        inside = all_down and all_across and terms.size
        out[:, ph, pw] = largest if inside else np.maximum(largest, 0)  # of the samples outside the plane


def _weights_of_cells(extent: _Extent, bin: int, cells: int) -> tuple[list[int], Array, bool]:
    """The cells of an axis that samples of a bin read, their least and their largest weights, and whether all
    samples are inside the plane."""
    inside = _inside(extent, bin, cells)
    found: dict[int, tuple[Any, Any]] = {}
    for sample in inside:
        (low, high), part, rest = _between(extent, bin, sample, cells)
        for cell, weight in ((low, rest), (high, part)):
            least, largest = found.get(cell, (weight, weight))
            found[cell] = min(least, weight), max(largest, weight)
    weights = np.array(list(found.values()), type(extent.start)).reshape(-1, 2).T
    return list(found), weights, len(inside) == extent.grid


def _mean(planes: Array, cells: tuple[range, range]) -> Array:
    rows, columns = cells
    total = np.zeros(len(planes), planes.dtype)
    for y in rows:
        for x in columns:
            total = total + planes[:, y, x]
    number = len(rows) * len(columns)
    return total / planes.dtype.type(number) if number else total
