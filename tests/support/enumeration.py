"""Every small geometry through every kernel path: drawing geometries misses corners, enumerating doesn't.

    python tests/support/enumeration.py [--share I/N] [--only WORD] [--processes P]
    python tests/support/enumeration.py --gpu [--sources N] [--seconds S] [--compile [--driver V]] [as above]

All sizes 1 to 7 (and some more along rows), kernels 1 to 5, strides 1 to 3, every padding, ceil mode,
count_include_pad, dilation 1 and 2, adaptive sizes; forwards and gradients; contiguous and channels-last.
Each goes through every kernel of every instruction set that can compute it, in scratch buffers of the usual
and of the smallest size, in place and past the cache, in one piece and in single units.

float32 and float64 must have PyTorch's bits; half types the float32 result rounded once. Results go into
memory filled with NaN between guard bytes, so that a cell that is not written, or a write outside, is seen.

--gpu sends them through the kernels of an NVIDIA GPU instead; gpu_phases.py says how.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import unwrap
from typing import Any

import ml_dtypes
import numpy as np
import torch

from geometries import bits, flat
from pooltide import _native
from pooltide.geometry import UNIT, Axis, cells_of_windows, strided_outputs
from pooltide.kernels import Arrays, cpu, reference
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem, gradient_of, with_offsets

SIZES = range(1, 8)
ROWS = (*SIZES, 9, 16, 17, 31, 33, 40)
BATCHES = [(1, 1), (2, 3), (1, 17), (1, 5), (2, 16), (1, 33), (3, 1)]
NAMES = {"FLOAT32": np.float32, "FLOAT64": np.float64, "FLOAT16": np.float16, "BFLOAT16": ml_dtypes.bfloat16}
NONE = np.empty(0, np.uint8)  # scratch
GUARD = 64  # bytes before and after each result
POISON = b"\xff" * GUARD
THREADED = 61  # one run of so many has 2 or 3 threads: to wake them takes far longer than to compute
# stream, chunk, tight: as usual; past the cache in single units; in place in pieces; past the cache at once
VARIANTS = [(-1, 0, False), (1, 1, True), (0, 2, True), (1, 0, False), (0, 1, False), (0, 0, True)]


@dataclass(frozen=True)
class Geometry:
    """One pool: `axes` are d, h, w; `spatial` of them are real. An adaptive one has no kernel."""

    pool: str  # avg | max
    spatial: int
    axes: tuple[Axis, Axis, Axis]
    ceil: bool = False
    counted: bool = True  # count_include_pad

    @property
    def adaptive(self) -> bool:
        return self.axes[2].adaptive

    def __str__(self) -> str:
        how = f"{'adaptive_' if self.adaptive else ''}{self.pool}_pool{self.spatial}d"
        axes = " ".join(map(str, self.axes[3 - self.spatial :]))
        return f"{how} {axes} ceil={self.ceil} counted={self.counted}"


def strided_axes(
    sizes: Any, ceil: bool, dilation: int = 1, kernels: Any = range(1, 6), strides: Any = (1, 2, 3)
) -> list[Axis]:
    found = []
    for n, k, s in itertools.product(sizes, kernels, strides):
        for p in range(k // 2 + 1):
            outputs = strided_outputs(n, dilation * (k - 1) + 1, s, p, ceil)
            if outputs > 0:
                found.append(Axis(n, outputs, k, s, p, dilation))
    return found


def differs(axes: tuple[Axis, ...]) -> bool:
    """Whether ceil mode makes a difference on one of the axes."""
    return any(a.outputs != strided_outputs(a.length, a.reach, a.s, a.p, False) for a in axes)


def strided(pool: str, spatial: int) -> Iterator[Geometry]:
    few = {"kernels": (1, 2, 3), "strides": (1, 2)} if spatial == 3 else {}
    for ceil, dilation in itertools.product((False, True), (1, 2) if pool == "max" else (1,)):
        rows = strided_axes((1, 2, 3, 5, 7, 17, 33) if spatial == 3 else ROWS, ceil, dilation)
        columns = strided_axes((1, 2, 3, 4, 6) if spatial == 3 else SIZES, ceil, dilation, **few)
        depths = strided_axes((1, 2, 3, 4), ceil, dilation, **few)
        choices = [depths, columns, rows][3 - spatial :]
        for axes in itertools.product(*choices):
            if ceil and not differs(axes):
                continue
            if pool == "avg" and spatial == 3 and any(a.k > a.length for a in axes):
                continue  # PyTorch refuses them
            d, h, w = (UNIT,) * (3 - spatial) + axes
            for counted in (True, False) if pool == "avg" and any(a.p or ceil for a in axes) else (True,):
                yield Geometry(pool, spatial, (d, h, w), ceil, counted)


def adaptive(pool: str, spatial: int) -> Iterator[Geometry]:
    rows = [Axis(n, o) for n in ROWS for o in (1, 2, 3, 4, 5, 7, 9, 16, 17)]
    columns = [Axis(n, o) for n in SIZES for o in SIZES]
    depths = [Axis(n, o) for n in range(1, 5) for o in range(1, 5)]
    for axes in itertools.product(*[depths, columns, rows][3 - spatial :]):
        d, h, w = (UNIT,) * (3 - spatial) + axes
        yield Geometry(pool, spatial, (d, h, w))


def geometries(share: tuple[int, int] = (0, 1), only: str = "") -> Iterator[tuple[int, Geometry]]:
    """Numbered geometries: of each kind every n-th. 3-D ones are too many: one of 29 (strided) or 7 counts."""
    at, n = share
    for pool, spatial, how in itertools.product(("avg", "max"), (1, 2, 3), (strided, adaptive)):
        if only and only not in f"{how.__name__}_{pool}{spatial}d":
            continue
        thin = (29 if how is strided else 7) if spatial == 3 else 1
        thin *= 3 if pool == "max" and how is strided and spatial > 1 else 1
        for number, geometry in enumerate(how(pool, spatial)):
            if number % (n * thin) == at * thin:
                yield number // thin, geometry


class Checker:
    """Runs geometries through all paths; raises AssertionError with the geometry and the path."""

    def __init__(self) -> None:
        self.runs = 0
        self.rng = np.random.default_rng(1)
        self.memory = np.empty(1 << 22, np.uint8)

    def values(self, shape: tuple[int, ...]) -> Any:
        """Numbers that all four dtypes hold exactly, of many magnitudes, so that the order of sums counts."""
        mantissa = self.rng.integers(-128, 128, shape).astype(np.float32)
        return mantissa * np.exp2(self.rng.integers(-14, 3, shape)).astype(np.float32)

    def check(self, number: int, geometry: Geometry) -> None:
        batch = BATCHES[number % len(BATCHES)]
        dtypes = ["FLOAT32", ("FLOAT16", "BFLOAT16", "FLOAT64")[number % 3]]
        try:
            (self.averages if geometry.pool == "avg" else self.maxima)(geometry, batch, dtypes)
        except AssertionError as wrong:
            raise AssertionError(f"{geometry} batch={batch}: {wrong}") from None

    def averages(self, g: Geometry, batch: tuple[int, int], dtypes: list[str]) -> None:
        quotient = "chained" if g.adaptive else "extent" if g.counted else "valid"
        base = Problem("average_gradient", batch, g.axes, DTYPES["FLOAT32"], quotient)
        x, grad = self.values(batch + base.input_plane), self.values(batch + base.output_plane)
        mean = g.adaptive and base.output_plane == (1, 1, 1)
        for name in dtypes:
            wide = np.float64 if name == "FLOAT64" else np.float32
            values, gradient = torch_averages(g, x.astype(wide), grad.astype(wide))
            problem = replace(base, dtype=DTYPES[name])
            forward = replace(problem, kind="average", quotient="mean" if mean else quotient)
            if mean:  # PyTorch's bits depend on the machine there
                values = np.empty(grad.shape, NAMES[name])
                reference.run(forward, "planes", Arrays(input=x.astype(NAMES[name]), out=values), NONE)
            self.forward(forward, x, values, None)
            self.gradient(problem, grad, None, gradient)

    def maxima(self, g: Geometry, batch: tuple[int, int], dtypes: list[str]) -> None:
        base = Problem("maximum", batch, g.axes, DTYPES["FLOAT32"])
        x = self.rng.integers(-4, 5, batch + base.input_plane).astype(np.float32)  # many equal cells
        if self.rng.random() < 0.2:
            x[self.rng.random(x.shape) < 0.1] = np.nan
        grad = self.values(batch + base.output_plane)
        values, indices = torch_maxima(g, x)
        empty = any(not cells_of_windows(axis)[1].all() for axis in g.axes)
        for name in dtypes:
            problem = replace(base, dtype=DTYPES[name])
            self.forward(problem, x, values, None)
            self.forward(replace(problem, index_dtype=DTYPES["INT64"]), x, values, indices)
            if empty:  # PyTorch's index of such a window may be outside the plane
                continue
            wide = np.float64 if name == "FLOAT64" else np.float32
            gradient = scattered(grad.astype(wide), indices, base.input_plane)
            for index in ("INT32", "INT64"):
                indexed = replace(problem, index_dtype=DTYPES[index])
                self.gradient(gradient_of(indexed), grad, indices.astype(index.lower()), gradient)
            if (small := with_offsets(problem)) is not None:
                offsets = offsets_in_windows(small, indices)
                self.forward(small, x, values, offsets)
                self.gradient(gradient_of(small), grad, offsets, gradient)

    def forward(self, problem: Problem, x: Any, values: Any, places: Any) -> None:
        x, values = x.astype(problem.dtype.numpy), values.astype(problem.dtype.numpy)
        for layout in ("planes", "channels_last"):
            prepared = unwrap(cpu.prepare)(problem, layout)
            written = (values,) if places is None else (values, places)
            self.paths(prepared, (None, flat(x, layout), None), [flat(a, layout) for a in written], layout)

    def gradient(self, problem: Problem, grad: Any, indices: Any, want: Any) -> None:
        grad, want = grad.astype(problem.dtype.numpy), want.astype(problem.dtype.numpy)
        for layout in ("planes", "channels_last"):
            prepared = unwrap(cpu.prepare)(problem, layout)
            read = None if indices is None else flat(indices, layout)
            self.paths(prepared, (flat(grad, layout), None, read), [flat(want, layout)], layout)

    def paths(self, prepared: Any, given: Any, want: list[Any], layout: str) -> None:
        """All kernels that can compute it, each in a variant. `want`: the result, and a maximum's places."""
        grad, x, indices = given
        results = [Guarded(self.memory, i, each) for i, each in enumerate(want)]
        for isa in _native.instruction_sets():
            _native.use_instruction_set(isa)
            able = [name for name, reason in prepared.kernels(True) if reason is None]
            assert able, "no kernel takes it"
            for kernel in able:
                variant = VARIANTS[self.runs * 5 % 7 % 6]
                for i, result in enumerate(results):
                    result.poison(self.runs % (5, 3)[i])
                places = results[1].address if len(results) > 1 else indices
                threads = 1 if self.runs % THREADED else 2 + self.runs // THREADED % 2
                fault = prepared.run_forced(grad, x, places, results[0].address, threads, kernel, *variant)
                self.runs += 1
                wrong = [str(fault)] if fault else []
                wrong += [said for result in results if (said := result.difference())]
                assert not wrong, f"{want[0].dtype} {layout} {isa} {kernel} {variant} {threads=}: {wrong}"


class Guarded:
    """Memory for an array, between guard bytes; all bytes are 255 (NaN or -1) until a kernel writes them."""

    def __init__(self, memory: Any, part: int, want: Any) -> None:
        half = memory.size // 2
        self.memory, self.want = memory[part * half : (part + 1) * half], want
        self.right = POISON + want.tobytes() + POISON
        self.first = self.memory.ctypes.data + GUARD
        assert len(self.right) + 8 * want.itemsize <= half

    def poison(self, shift: int) -> None:
        """Moves the array by `shift` elements from the first place."""
        begin = shift * self.want.itemsize
        self.found = self.memory[begin : begin + len(self.right)]
        self.found.fill(0xFF)
        self.address = self.first + begin

    def difference(self) -> str | None:
        found = self.found.tobytes()
        if found == self.right:
            return None
        if found[:GUARD] != POISON or found[-GUARD:] != POISON:
            return "bytes outside the result are written"
        array = self.found[GUARD:-GUARD].view(self.want.dtype)
        same = bits(array) == bits(self.want)  # a NaN may have another payload
        return None if same.all() else difference(array, self.want)


def difference(found: Any, want: Any) -> str:
    wrong = np.argwhere(bits(found) != bits(want))
    first = tuple(wrong[0])
    return f"{len(wrong)} of {found.size} cells are wrong, the first at {first}: {found[first]} for {want[first]}"


def offsets_in_windows(problem: Problem, indices: Any) -> Any:
    """The places of cells in their windows, as one byte each."""
    tables = problem.offset_tables
    assert tables is not None
    offsets = np.zeros(indices.shape, np.int64)
    cells = np.unravel_index(indices, problem.input_plane)
    for n, (axis, cell, first) in enumerate(zip(problem.axes, cells, tables.first_cell, strict=True)):
        along = (cell - first.reshape((-1,) + (1,) * (2 - n))) // axis.dilation
        offsets = offsets * tables.most[n] + along
    assert (tables.indices(offsets, problem.input_plane) == indices).all(), "the tables name other cells"
    return offsets.astype(np.uint8)


def _tensor(array: Any, g: Geometry) -> Any:
    """As PyTorch's operator of 2 or 3 axes wants it."""
    made = torch.from_numpy(np.ascontiguousarray(array))
    return made if g.spatial == 3 else made[:, :, 0]


def _arguments(g: Geometry, dilated: bool) -> list[Any]:
    """kernel, stride, padding (and dilation) for the 2-D or 3-D operator; 1-D pools are 2-D with height 1."""
    real = g.axes[0 if g.spatial == 3 else 1 :]
    given = [[a.k or 1 for a in real], [a.s or 1 for a in real], [a.p for a in real]]
    return [*given, [a.dilation for a in real]] if dilated else given


def torch_averages(g: Geometry, x: Any, grad: Any) -> tuple[Any, Any]:
    tensor, cotangent, aten = _tensor(x, g), _tensor(grad, g), torch.ops.aten
    d3 = g.spatial == 3
    if g.adaptive:
        pool, back = (
            (aten._adaptive_avg_pool3d, aten._adaptive_avg_pool3d_backward)
            if d3
            else (aten._adaptive_avg_pool2d, aten._adaptive_avg_pool2d_backward)
        )
        values, found = pool(tensor, list(cotangent.shape[2:])), back(cotangent, tensor)
    else:
        pool, back = (
            (aten.avg_pool3d, aten.avg_pool3d_backward) if d3 else (aten.avg_pool2d, aten.avg_pool2d_backward)
        )
        given = (*_arguments(g, False), g.ceil, g.counted, None)
        values, found = pool(tensor, *given), back(cotangent, tensor, *given)
    return values.numpy().reshape(grad.shape), found.numpy().reshape(x.shape)


def torch_maxima(g: Geometry, x: Any) -> tuple[Any, Any]:
    tensor, aten = _tensor(x, g), torch.ops.aten
    d3 = g.spatial == 3
    if g.adaptive:
        pool = aten.adaptive_max_pool3d if d3 else aten.adaptive_max_pool2d
        values, indices = pool(tensor, [a.outputs for a in g.axes[0 if d3 else 1 :]])
    else:
        pool = aten.max_pool3d_with_indices if d3 else aten.max_pool2d_with_indices
        values, indices = pool(tensor, *_arguments(g, True), g.ceil)
    shape = x.shape[:2] + tuple(a.outputs for a in g.axes)
    return values.numpy().reshape(shape), indices.numpy().reshape(shape)


def scattered(grad: Any, indices: Any, plane: tuple[int, ...]) -> Any:
    """PyTorch's gradient of maxima: each plane's cells in the order of the windows."""
    planes, windows = grad.shape[0] * grad.shape[1], int(np.prod(grad.shape[2:]))
    sums = np.zeros((planes, int(np.prod(plane))), grad.dtype)
    flat, where = grad.reshape(planes, windows), indices.reshape(planes, windows)
    rows = np.arange(planes)
    for q in range(windows):
        sums[rows, where[:, q]] += flat[:, q]
    return sums.reshape(grad.shape[:2] + plane)


def run_share(job: tuple[int, int, str, bool]) -> tuple[int, int]:
    at, n, only, quiet = job
    torch.set_num_threads(1)
    isa = _native.instruction_set()
    checker, count, begin = Checker(), 0, time.monotonic()
    for number, geometry in geometries((at, n), only):
        checker.check(number, geometry)
        count += 1
        if not quiet and sys.stderr.isatty() and count % 100 == 0:
            print(
                f"\r{count:,} geometries, {checker.runs:,} runs, {time.monotonic() - begin:.0f} s",
                end="",
                file=sys.stderr,
            )
    _native.use_instruction_set(isa)
    return count, checker.runs


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--share", default="0/1", help="I/N: only every N-th geometry, from the I-th on")
    parser.add_argument("--only", default="", help="a part of a kind's name, such as strided_avg2d")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--gpu", action="store_true", help="the kernels of an NVIDIA GPU, not the CPU's")
    gpu = parser.add_argument_group("with --gpu")
    gpu.add_argument("--sources", type=int, default=4000, metavar="N", help="compile at most N kernels")
    gpu.add_argument(
        "--seconds", type=float, default=math.inf, metavar="S", help="leave out what takes longer"
    )
    gpu.add_argument("--compile", action="store_true", help="only compile, which needs no GPU")
    gpu.add_argument(
        "--driver", type=int, default=0, metavar="V", help="compile for a driver's version, such as 13000"
    )
    return parser


def main() -> None:
    given = arguments().parse_args()
    if given.gpu:
        import gpu_phases

        sys.exit(gpu_phases.main(given))
    at, n = map(int, given.share.split("/"))
    p = given.processes
    jobs = [(at + i * n, n * p, given.only, i > 0) for i in range(p)]
    with multiprocessing.get_context("spawn").Pool(p) as pool:
        done = pool.map(run_share, jobs) if p > 1 else [run_share(jobs[0])]
    counts, runs = map(sum, zip(*done, strict=True))
    sets = " ".join(_native.instruction_sets())
    print(f"\n{counts:,} geometries, {runs:,} runs: every result has the expected bits ({sets})")


if __name__ == "__main__":
    main()
