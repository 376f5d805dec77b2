"""From a problem to launches of the GPU kernels: which, on what grid, with which arguments.

What kernels are compiled for is window counts, strides and vector widths, never sizes: sizes are run-time
arguments, so another batch or plane compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, prod
from typing import Any

import numpy as np
import torch

from ...geometry import UNIT, Axis, tables
from ...problem.problem import Problem
from .device import average, bands, gather, indexed
from .driver import Launcher, launcher
from .tables import (
    BYTES,
    LANES,
    MENDERS,
    PROGRAMS,
    ROWS,
    Array,
    Blocks,
    bands_of,
    blocks_for,
    cdiv,
    chunk_of,
    corners_of,
    cuts,
    division,
    divisors,
    lanes_of,
    magic,
    patch_of,
    reach,
    segments_of,
    signless,
    taps_of,
    window_of,
)

FLAT = 256  # groups of a program that writes one row of each
BLOCK = 256  # windows that a scattering program asks at a time
SHARE = 2**12  # words that a scattering program clears; of volumes, half as many as cells
UNROLLED = 8
NEAR = 2**26  # elements: windows are at most 16 times as many, and 32 bits enough

current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)


@dataclass(slots=True)
class Launch:
    kernel: Any
    grid: int
    tables: tuple[torch.Tensor, ...]
    arguments: tuple[int, ...]  # sizes, then constants
    warps: int = 4
    flags: int = 0  # that it writes for the next one
    replay: Launcher | None = None  # launches the compiled kernel: on a stream, with the tensors' addresses

    def __call__(self, device: int, tensors: tuple[torch.Tensor, ...]) -> None:
        """The first launch compiles; later ones skip Triton's dispatch, which costs more than a launch."""
        if self.replay is None:
            self._first(device, tensors)
        else:
            self.replay(current_stream(device), *[tensor.data_ptr() for tensor in tensors])

    def _first(self, device: int, tensors: tuple[torch.Tensor, ...]) -> None:
        """Fused multiply-adds are only where the kernels ask for them: products must round."""
        compiled = self.kernel[(self.grid,)](
            *tensors, *self.tables, *self.arguments, num_warps=self.warps, enable_fp_fusion=False
        )
        if compiled is None:  # interpreted
            return
        tail = (*(table.data_ptr() for table in self.tables), *self.arguments)
        constant = [parameter.is_constexpr for parameter in self.kernel.params[len(tensors) :]]
        passed = [value for value, known in zip(tail, constant, strict=True) if not known]
        direct = launcher(compiled, self.grid, len(tensors), passed, lambda: torch.cuda.set_device(device))
        again = compiled[(self.grid, 1, 1)]
        self.replay = direct or (lambda stream, *addresses: again(*addresses, *tail, stream=stream))


def plan(problem: Problem, layout: str, device: int) -> tuple[Launch, ...]:
    if problem.kind == "maximum_gradient":
        blocks = blocks_for(problem, layout == "channels_last")
        return _patches(problem, layout, device, *blocks) if blocks else _indexed(problem, layout, device)
    if layout == "planes" and all(axis.whole for axis in problem.axes):
        return (_whole(problem, device),)
    if layout == "planes":
        problem = _as_planes(problem)
    if layout == "planes" and (patch := patch_of(problem)):
        return (_phases(problem, device, *patch),)
    lanes = lanes_of(problem, layout)
    if lanes.full and all(tables(axis).window_count.max() <= 1 for axis in problem.axes):
        return (_single(problem, layout, device),)
    if banded := _bands(problem, layout, device):
        return (banded,)
    return (_rows(problem, layout, device),)


def _as_planes(problem: Problem) -> Problem:
    """Rows that are no part of a plane are those of one, each in a window of its own.

    Not where lanes, which go down such planes, would be too few for a program, or rows many for a table.
    """
    (images, rows), (d, h, w) = problem.batch, problem.axes
    lanes = images * w.length * problem.dtype.itemsize // BYTES
    if not d == h == UNIT or lanes < LANES or rows > 2**16 or rows * max(w.length, w.outputs) > NEAR:
        return problem
    return replace(problem, batch=(images, 1), axes=(UNIT, Axis(rows, rows, 1, 1, 0), w))


def _whole(problem: Problem, device: int) -> Launch:
    plane = prod(problem.input_plane)
    vector = BYTES // problem.dtype.itemsize
    grid = cdiv(problem.cells, FLAT * vector)
    ragged, wide = problem.cells % vector != 0, problem.cells >= 2**31 - FLAT * vector
    constants = (FLAT, vector, vector <= plane, ragged, wide, *division(problem))
    sizes = (plane, problem.planes, *magic(plane))
    return Launch(average.whole, grid, (_divisor_table(problem, device),), (*sizes, *constants))


def _single(problem: Problem, layout: str, device: int) -> Launch:
    d, h, w = problem.axes
    lanes = lanes_of(problem, layout)
    count = problem.cells // lanes.vector
    even = all(len(np.unique(axis)) == 1 for axis in divisors(problem))
    inner = max(lanes.inner // lanes.vector, 1)
    sizes = (
        *(count, lanes.groups, inner, d.length, h.length, *problem.output_plane),
        *(*magic(lanes.groups), *magic(inner), *magic(d.length), *magic(h.length)),
    )
    wide = count >= 2**31 - FLAT
    constants = (FLAT, lanes.vector, lanes.last, even, wide, *division(problem))
    of_w = tables(w).first_window[:: 1 if lanes.last else lanes.vector]
    places = _upload(np.concatenate([window_of(d), window_of(h), of_w]), np.int32, device)
    kept = (places, _divisor_table(problem, device))
    return Launch(average.single, cdiv(count, FLAT), kept, (*sizes, *constants))


def _rows(problem: Problem, layout: str, device: int) -> Launch:
    d, h, w = problem.axes
    lanes = lanes_of(problem, layout)
    edges = [segments_of(axis) for axis in (d, h)]
    segments, rows = len(edges[0]) * len(edges[1]), d.length * h.length
    chunk = chunk_of(segments, ROWS * max(lanes.vector, 4) // 8 * segments // rows, lanes)
    sizes = (
        *(lanes.count, lanes.groups, max(lanes.inner // lanes.vector, 1)),
        *(h.length, rows, h.outputs, w.outputs, d.outputs * h.outputs),
        *(len(edges[1]), segments, chunk, cdiv(segments, chunk), lanes.reach),
        *(*magic(lanes.groups), *magic(max(lanes.inner // lanes.vector, 1))),
    )
    unrolled = lanes.reach if lanes.reach <= UNROLLED else 0
    wide = lanes.count >= 2**31 - LANES
    constants = (LANES, lanes.vector, lanes.last, unrolled, wide, *division(problem))
    grid = cdiv(lanes.count, LANES) * cdiv(segments, chunk)
    kept = [_upload(table, np.int32, device) for table in (np.concatenate(edges), lanes.columns)]
    return Launch(average.rows, grid, (*kept, _divisor_table(problem, device)), (*sizes, *constants))


def _bands(problem: Problem, layout: str, device: int) -> Launch | None:
    """None where `rows` must do it, or does it better, as it does planes whose rows are whole vectors."""
    d, h, w = problem.axes
    lanes = lanes_of(problem, layout)
    if not lanes.last and lanes.vector * problem.dtype.itemsize < BYTES // 2:
        lanes = lanes_of(problem, layout, 1)
    edges = bands_of(h) if d == UNIT and lanes.reach <= UNROLLED else None
    if edges is None or h.length * (lanes.groups + LANES) * lanes.vector > NEAR:
        return None
    if not lanes.last and lanes.vector > 1 and h.reach != 1:
        return None
    chunk = chunk_of(h.outputs, h.outputs, lanes)
    chunks = cdiv(h.outputs, chunk)
    inner = max(lanes.inner // lanes.vector, 1)
    sizes = (
        *(lanes.count, lanes.groups, inner, h.length, h.outputs, w.outputs, chunk, chunks),
        *(*magic(lanes.groups), *magic(inner)),
    )
    most = (int(n) for n in edges[:, 1:].max(axis=0))
    unrolled = [n and 1 << (n - 1).bit_length() if n <= UNROLLED else -1 for n in most]  # of few kinds
    once, _, by_h, by_w = division(problem)
    wide = lanes.count >= 2**31 - LANES
    constants = (LANES, lanes.vector, lanes.last, lanes.reach, *unrolled, wide, once, by_h, by_w)
    kept = [_upload(table, np.int32, device) for table in (edges, lanes.columns)]
    grid = cdiv(lanes.count, LANES) * chunks
    return Launch(bands.bands, grid, (*kept, _divisor_table(problem, device)), (*sizes, *constants))


def _phases(problem: Problem, device: int, vector: int, patch_rows: int) -> Launch:
    _, h, w = problem.axes
    groups = cdiv(w.length, vector)
    ragged = w.length % vector != 0
    width = 32 if ragged else LANES  # lanes must exchange cells where rows are no whole vectors: one warp
    row_blocks = cdiv(h.length, patch_rows)
    lanes = problem.planes * groups
    even = all(len(np.unique(axis)) == 1 for axis in divisors(problem)[1:])
    constants = (
        *(width, vector, patch_rows, h.reach, h.s, h.p, w.reach, w.s, w.p),
        *(*reach(h, patch_rows), *reach(w, vector)),
        *(even, ragged, h.length % patch_rows != 0, lanes >= 2**31 - width),
        *(division(problem)[0], signless(problem)),
    )
    sizes = (
        *(lanes, groups, h.length, w.length, h.outputs, w.outputs, row_blocks),
        *(*magic(groups), *magic(row_blocks)),
    )
    grid = cdiv(lanes, width) * row_blocks
    return Launch(average.phases, grid, (_divisor_table(problem, device),), (*sizes, *constants), width // 32)


def _patches(
    problem: Problem, layout: str, device: int, d: Blocks, h: Blocks, w: Blocks
) -> tuple[Launch, ...]:
    last = layout == "channels_last"
    inner = problem.batch[1] if last else 1
    outers, groups, row_blocks = problem.planes // inner, len(w.bases) * inner, len(d.bases) * len(h.bases)
    lanes = outers * groups
    overhang = [axis.length % blocks.size != 0 for axis, blocks in zip(problem.axes, (d, h, w), strict=True)]
    sizes = (
        *(lanes, groups, *problem.input_plane, *problem.output_plane, len(d.bases), len(h.bases)),
        *(inner, *magic(groups), *magic(inner), *magic(row_blocks), *magic(len(h.bases))),
        *(*magic(problem.axes[1].length), *magic(problem.axes[2].length)),
    )
    taps = taps_of(problem, (d, h, w))
    packed = zip(*(blocks.packed for blocks in (d, h, w)), strict=True)
    constants = (
        *(LANES, d.size, h.size, w.size, d.reach, h.reach, w.reach),
        *(word for words in packed for word in words),
        *(d.seen, h.seen, w.seen, *(taps.cells + taps.most if taps else (0,) * 5)),
        problem.axes[0].length > 1,
        *(overhang[2], overhang[0] or overhang[1], lanes >= 2**31 - LANES, last),
    )
    bases = np.concatenate([blocks.bases for blocks in (d, h, w)])
    spans = np.concatenate([np.stack([t.start, t.end - t.start], 1) for t in map(tables, problem.axes)])
    spans = taps.spans if taps else spans
    corners = _upload(corners_of(problem), np.int32, device)
    shifts = _upload(taps.corners, np.int32, device) if taps else corners
    kept = (_upload(bases, np.int32, device), _upload(spans, np.int32, device), shifts)
    grid = cdiv(lanes, LANES) * row_blocks
    first = Launch(gather.patches, grid, kept, (*sizes, *constants), flags=grid * LANES // 32)
    q = prod(problem.output_plane)
    splits = max(min(MENDERS // outers, cdiv(q * inner, BLOCK)), 1)
    share = cdiv(outers, MENDERS)
    after = (
        *(outers, share, groups, splits, row_blocks, prod(problem.input_plane)),
        *(q, *problem.output_plane, inner, *_window_magic(problem)),
    )
    return first, Launch(gather.mend, cdiv(outers, share) * splits, (corners,), (*after, LANES, BLOCK))


def _indexed(problem: Problem, layout: str, device: int) -> tuple[Launch, ...]:
    d, h, w = problem.axes
    last = layout == "channels_last"
    inner = problem.batch[1] if last else 1
    outers = problem.planes // inner
    cells, q = prod(problem.input_plane), prod(problem.output_plane)
    vector = BYTES // problem.dtype.itemsize
    deep = d.length * d.outputs > 1
    most_cells = SHARE * 2 if deep else SHARE * 4 // problem.dtype.itemsize
    own = not last and cells <= most_cells
    if not own and not deep and problem.dtype.itemsize >= 4:
        most_cells //= 2
    group = vector // gcd(cells, vector)
    share = max(most_cells // cells // group, 1) * group if own else 1
    while own and share > group and cdiv(outers, share) < PROGRAMS:
        share = max(share // 2 // group, 1) * group
    pieces = cuts(problem.axes, cells if own else max(most_cells // inner, 1))
    ragged = any(bool((table * inner * share % vector).any()) for table in (pieces[:, 0], pieces[:, 1]))
    ragged = ragged or problem.cells % vector != 0
    most = [int(tables(axis).window_count.max()) for axis in problem.axes]
    unrolled = most if max(most) <= 2 else (0, 0, 0)
    sizes = (
        *(outers, share, len(pieces), cells, *problem.input_plane, *problem.output_plane, q),
        *(inner, *most, *magic(q), *magic(inner), *magic(h.length), *magic(w.length)),
        *_window_magic(problem),
    )
    warps = 8 if deep and problem.dtype.itemsize >= 4 else 4
    asked = int((pieces[:, 2] * pieces[:, 4]).max()) * inner * share
    small = asked <= BLOCK * 3 // 4 or (max(most) > 1 and not deep)
    block = BLOCK // 2 if warps == 4 and small else BLOCK
    constants = (block, vector, last, own, ragged, *unrolled, deep)
    grid = cdiv(outers, share) * len(pieces)
    found = [tables(axis) for axis in problem.axes]
    strides = (h.outputs * w.outputs, w.outputs, 1)
    firsts = [table.first_window * stride for table, stride in zip(found, strides, strict=True)]
    holders = np.concatenate([*firsts, *(table.window_count for table in found)])
    corners = _upload(corners_of(problem), np.int32, device)
    kept = (_upload(pieces, np.int32, device), _upload(holders, np.int32, device), corners)
    scatter = Launch(indexed.scatter, grid, kept, (*sizes, *constants), warps, 0 if own else grid)
    if own:
        return (scatter,)
    splits = max(min(PROGRAMS // outers, cdiv(q * inner, BLOCK)), 1)
    after = (splits, len(pieces), cells, q, *problem.output_plane, inner, *_window_magic(problem))
    return scatter, Launch(indexed.repair, outers * splits, (corners,), (*after, BLOCK))


def compact(problem: Problem, layout: str, device: int) -> Launch:
    """Makes a problem's offsets from indices."""
    assert problem.offset_tables is not None
    _, height, width = problem.input_plane
    inner = problem.batch[1] if layout == "channels_last" else 1
    size, (_, *most) = prod(problem.output_plane) * inner, problem.offset_tables.most
    block = min(max(1 << (size - 1).bit_length(), 64), 1024)
    parts, steps = cdiv(size, block), problem.dilation
    magics = (*magic(inner), *_window_magic(problem), *magic(height * width), *magic(width))
    sizes = (
        *(parts, size, *problem.output_plane, inner, height * width, width, *steps, *most),
        *(*magics, *magic(steps[0]), *magic(steps[1]), *magic(steps[2])),
    )
    corners = _upload(corners_of(problem), np.int32, device)
    return Launch(indexed.compact, problem.planes // inner * parts, (corners,), (*sizes, block))


def _window_magic(problem: Problem) -> tuple[int, ...]:
    _, h, w = problem.output_plane
    return *magic(h), *magic(w)


def _upload(array: Array, dtype: Any, device: int) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=dtype))
    return tensor if device < 0 else tensor.to(torch.device("cuda", device))


@lru_cache(maxsize=256)
def _divisor_table(problem: Problem, device: int) -> torch.Tensor:
    """(divisor, its reciprocal) of every window of d, h, w, in the accumulator's type."""
    values = np.concatenate(divisors(problem)).astype(problem.dtype.accumulator)
    return _upload(np.stack([values, 1 / values], axis=1), problem.dtype.accumulator, device)
