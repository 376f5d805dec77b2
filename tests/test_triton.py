"""The GPU kernels without a GPU: under Triton's interpreter, against the reference, bit for bit.

The interpreter must be asked for before Triton is imported, so the work is done by this file as a program
in a process of its own; the tests read its report. The interpreter has no fused multiply-add and does not
round to bfloat16, so quotients are IEEE divisions here, and bfloat16 is compared to within one step.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from geometries import maxima_gradient
from pooltide.geometry import UNIT, Axis, strided_outputs, tables
from pooltide.kernels import reference
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem
from pooltide.problem.rounding import round_once

TYPES = ("FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16")
# Of triton_tables: gather wherever that is possible.
EVERYWHERE = {"FEW": 0, "LARGE": 2**40, "PAYS": float("inf"), "NEIGHBOURS": 0}


def strided(length: int, k: int, s: int, p: int, ceil: bool = False) -> Axis:
    return Axis(length, strided_outputs(length, k, s, p, ceil), k, s, p)


def dilated(length: int, k: int, s: int, p: int, dilation: int) -> Axis:
    return Axis(length, strided_outputs(length, dilation * (k - 1) + 1, s, p, False), k, s, p, dilation)


def averages() -> list[tuple[str, str, Problem]]:
    """(the kernel, the layout, the problem): one for each reason to have a kernel or a path in it."""
    planes = [
        ("whole", "chained", 0, (Axis(3, 1), Axis(5, 1), Axis(7, 1))),
        ("whole", "chained", 0, (UNIT, UNIT, Axis(3, 1))),  # planes smaller than a vector
        ("whole", "extent", 0, (UNIT, strided(7, 7, 7, 0), strided(5, 5, 1, 0))),
        ("single", "chained", 0, (Axis(6, 3), Axis(10, 5), Axis(16, 2))),
        ("single", "valid", 0, (UNIT, strided(19, 2, 5, 0), strided(15, 3, 3, 0))),  # rows in no window
        ("rows", "chained", 0, (Axis(7, 3), Axis(11, 5), Axis(13, 4))),
        ("rows", "chained", 0, (Axis(2, 5), Axis(3, 7), Axis(5, 11))),  # repeated
        ("rows", "chained", 0, (UNIT, Axis(5, 3), Axis(2, 23))),  # too often to unroll
        ("bands", "chained", 0, (UNIT, Axis(17, 7), Axis(13, 6))),
        ("bands", "extent", 0, (UNIT, strided(13, 5, 3, 2, True), strided(17, 4, 3, 1, True))),
        ("bands", "valid", 0, (UNIT, strided(17, 2, 5, 0), strided(13, 3, 5, 1))),  # rows in no window
        ("long bands", "chained", 0, (UNIT, Axis(29, 13), Axis(9, 4))),
        ("long bands", "chained", 0, (UNIT, UNIT, Axis(1024, 61))),  # rows, enough to be planes
        ("long bands", "extent", 0, (UNIT, strided(29, 5, 3, 2, True), strided(13, 5, 3, 2))),
        ("phases", "extent", 0, (UNIT, strided(11, 3, 1, 1), strided(13, 3, 1, 1))),
        ("phases", "valid", 0, (UNIT, strided(11, 3, 2, 1, True), strided(16, 3, 2, 1))),
        ("phases", "override", -7, (UNIT, strided(7, 2, 2, 1, True), strided(9, 5, 4, 2))),
    ]
    volumes = [
        ("whole", "extent", 0, (strided(3, 3, 1, 0), strided(7, 7, 7, 0), strided(5, 5, 1, 0))),
        ("single", "extent", 0, (strided(6, 3, 3, 0), strided(10, 2, 5, 0), strided(16, 8, 8, 0))),
        ("rows", "valid", 0, (strided(7, 3, 2, 1, True), strided(11, 5, 3, 2), strided(13, 4, 3, 1, True))),
        ("rows", "override", -7, (strided(5, 2, 1, 0), strided(7, 2, 3, 0), strided(11, 2, 2, 0))),
        ("phases", "extent", 0, (UNIT, UNIT, strided(263, 3, 2, 1, True))),  # rows, enough to be planes
        ("bands", "extent", 0, (UNIT, UNIT, strided(17, 3, 2, 1, True))),  # rows
        ("bands", "chained", 0, (UNIT, UNIT, Axis(17, 5))),
        ("single", "chained", 0, (UNIT, UNIT, Axis(16, 4))),
    ]
    last = [
        ("single", "chained", 0, (Axis(3, 1), Axis(10, 5), Axis(7, 7))),
        ("rows", "chained", 0, (Axis(7, 3), Axis(5, 2), Axis(11, 4))),
        ("rows", "extent", 0, (UNIT, strided(11, 3, 1, 1), strided(7, 3, 2, 1))),
        ("long bands", "extent", 0, (UNIT, strided(23, 3, 2, 1), strided(7, 3, 1, 1))),
    ]
    found = []
    for i, (kernel, how, divisor, axes) in enumerate(planes):
        dtype = DTYPES[TYPES[i % 4]]
        found.append((kernel, "planes", Problem("average_gradient", (2, 3), axes, dtype, how, divisor)))
        found.append(
            (kernel, "planes", Problem("average_gradient", (1, 5), axes, DTYPES["FLOAT32"], how, divisor))
        )
        if kernel == "bands":
            found.append(
                (kernel, "planes", Problem("average_gradient", (2, 4), axes, DTYPES["FLOAT32"], how, divisor))
            )
    for kernel, how, divisor, axes in volumes:
        found.append(
            (kernel, "planes", Problem("average_gradient", (2, 3), axes, DTYPES["FLOAT32"], how, divisor))
        )
    for i, (kernel, how, divisor, axes) in enumerate(last):
        for channels in (3, 8):
            dtype = DTYPES[TYPES[(i + channels) % 3]]
            found.append(
                (
                    kernel,
                    "channels_last",
                    Problem("average_gradient", (2, channels), axes, dtype, how, divisor),
                )
            )
    return found


def indexed() -> list[tuple[str, str, Problem]]:
    """Planes are scattered to, whole or in pieces, or gathered in patches."""
    axes = [
        (UNIT, Axis(10, 5), Axis(14, 7)),
        (UNIT, Axis(11, 5), Axis(13, 7)),
        (Axis(5, 3), Axis(7, 4), Axis(11, 5)),
        (Axis(2, 3), Axis(3, 7), Axis(5, 2)),  # more than two windows to a cell
        (UNIT, dilated(11, 3, 2, 1, 2), dilated(13, 3, 1, 1, 3)),
    ]
    found = []
    for i, axis in enumerate(axes):
        for kernel, layout in (("scatter", "planes"), ("pieces", "planes"), ("pieces", "channels_last")):
            dtype, index = DTYPES[TYPES[(i + len(found)) % 4]], DTYPES[("INT32", "INT64")[len(found) % 2]]
            found.append((kernel, layout, maxima_gradient((2, 3), axis, dtype, index)))
    patched = [
        *(axes[0], axes[1], axes[2], axes[4]),
        (UNIT, strided(11, 3, 2, 1), strided(16, 3, 2, 1)),
        (UNIT, strided(9, 2, 1, 1), strided(7, 3, 1, 1, True)),  # more windows than cells
        (UNIT, strided(9, 2, 3, 0), strided(11, 2, 3, 0)),  # cells in no window
        (strided(4, 2, 2, 0), strided(6, 2, 2, 0), strided(7, 2, 2, 0, True)),
        (strided(5, 3, 2, 1), strided(6, 3, 2, 1), strided(8, 3, 2, 1, True)),
    ]
    for i, axis in enumerate(patched):
        dtype, index = DTYPES[TYPES[i % 4]], DTYPES[("INT64", "INT32")[i % 2]]
        for layout in ("planes", "channels_last"):
            found.append(("patches", layout, maxima_gradient((2, 3), axis, dtype, index)))
    ways = [("patches", "planes"), ("scatter", "planes"), ("pieces", "planes"), ("pieces", "channels_last")]
    ways += [("patches", "channels_last")]
    for i, axis in enumerate([axes[1], axes[4], *patched[4:6], *patched[7:]]):
        (kernel, layout), dtype = ways[i % 5], DTYPES[TYPES[i % 3]]
        found.append((kernel, layout, maxima_gradient((2, 3), axis, dtype, DTYPES["UINT8"])))
    return found


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
        indices.flat[-1] = cells
        if indices.itemsize == 8:
            indices.flat[1] += 2**32  # right in its low word


def lay(array: np.ndarray, layout: str) -> np.ndarray:
    if layout == "planes":
        return array
    return np.ascontiguousarray(array.transpose(0, 2, 3, 4, 1)).transpose(0, 4, 1, 2, 3)


def expected(problem: Problem, grad: np.ndarray, indices: np.ndarray | None) -> tuple[np.ndarray, Any]:
    """The contract: sums in the accumulator's type, rounded once; and what indices were at fault."""
    total = np.empty(problem.batch + problem.input_plane, problem.dtype.accumulator)
    fault = reference.accumulate(problem, grad, indices, total)
    return round_once(total, problem.dtype.numpy), fault


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, or both NaN."""
    words = np.dtype(f"u{a.itemsize}")
    same = np.ascontiguousarray(a).view(words) == np.ascontiguousarray(b).view(words)
    return bool((same | (np.isnan(a) & np.isnan(b))).all())


def one_step(a: np.ndarray, total: np.ndarray) -> bool:
    return bool((np.abs(a.astype(np.float32) - total) <= np.abs(total) * 2.0**-7).all())


def interpret(seed: int) -> None:
    """Run every case and print one JSON line for each."""
    import torch

    from pooltide.kernels.cuda import launch
    from pooltide.kernels.cuda import plan as triton_plan
    from pooltide.kernels.cuda import tables as triton_tables

    def tensor(array: np.ndarray) -> torch.Tensor:
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    rng = np.random.default_rng(seed)
    share, programs = triton_plan.SHARE, triton_tables.PROGRAMS
    tuned = {name: getattr(triton_tables, name) for name in EVERYWHERE}
    for kernel, layout, problem in averages() + indexed():
        grad = rng.standard_normal(problem.batch + problem.output_plane).astype(problem.dtype.numpy)
        triton_plan.SHARE = 8 if kernel == "pieces" else share
        triton_tables.PROGRAMS = 1 if kernel == "long bands" else programs
        vars(triton_tables).update(EVERYWHERE if kernel == "patches" else tuned)
        for strays in ("none", "foreign", "outside") if problem.kind == "maximum_gradient" else ("none",):
            indices = None
            if problem.kind == "maximum_gradient":
                if problem.offset_tables:
                    indices = own_offsets(problem, rng)
                    places = problem.offset_tables.indices(indices, problem.input_plane)
                    found = launch.offsets_from(problem, layout, tensor(lay(places, layout)))
                    assert np.array_equal(found.numpy(), indices), f"offsets of {problem} {layout}"
                    indices[..., 0] = {"none": indices[..., 0], "foreign": 0, "outside": 254}[strays]
                else:
                    indices = own_indices(problem, rng)
                    spoil(indices, int(np.prod(problem.input_plane)), rng, strays)
            want, fault = expected(problem, grad, indices)
            out = lay(np.full(want.shape, np.nan, want.dtype), layout)
            record = launch.new_record(-1)
            ready = launch.Ready(problem, layout, -1)
            given = None if indices is None else tensor(lay(indices, layout))
            ready(tensor(lay(grad, layout)), given, tensor(out), record)
            launches = next(iter(ready.plans.values()))
            if problem.dtype.name == "BFLOAT16":
                total = np.empty(want.shape, np.float32)
                reference.accumulate(problem, grad, indices, total)
                good = one_step(out, total)
            else:
                good = alike(out, want)
            met = record.tolist() == ([0, 2**63 - 1] if fault is None else [fault.count, fault.position])
            reached = [step.kernel.fn.__name__ for step in launches]
            print(json.dumps([kernel, f"{problem} {layout} {strays}", reached, good, met]), flush=True)


@pytest.fixture(scope="module")
def report() -> list[tuple[str, str, list[str], bool, bool]]:
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, __file__, "5"], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "kernel",
    ["whole", "single", "bands", "long bands", "rows", "phases", "scatter", "pieces", "patches"],
)
def test_interpreted_kernel_gives_the_references_bits(kernel: str, report: Any) -> None:
    several = {
        "long bands": ["bands"],
        "pieces": ["scatter", "repair"],
        "patches": ["patches", "mend"],
    }
    steps = several.get(kernel, [kernel])
    cases = [case for case in report if case[0] == kernel]
    assert cases
    for _, name, reached, good, _ in cases:
        assert reached == steps, f"{name} ran {reached}"
        assert good, f"{name} differs from the reference"


def test_interpreted_kernels_count_the_indices_outside_the_plane(report: Any) -> None:
    cases = [case for case in report if case[0] in ("scatter", "pieces", "patches")]
    assert any("outside" in case[1] for case in cases)
    for _, name, _, _, met in cases:
        assert met, f"{name} counted other faults than the reference"


def test_pieces_read_only_windows_that_exist() -> None:
    """A program loads the first windows of its piece before it knows whether it has any."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from pooltide.kernels.cuda.tables import cuts

    for d in (strided(13, 2, 5, 0), strided(11, 1, 4, 0), Axis(7, 3), UNIT):  # the first two with gaps
        for h in (strided(9, 2, 4, 0), strided(11, 3, 2, 1), Axis(8, 5)):
            axes = (d, h, strided(7, 2, 3, 0))
            windows = d.outputs * h.outputs * axes[2].outputs
            for cells in (1, 7, 20, 70, 10_000):
                for _, _, ranges, first, length, stride in cuts(axes, cells):
                    assert first + max(ranges - 1, 0) * stride + length <= windows or length == 0
                    assert (ranges > 0) or (length == 0)


def test_import_of_the_package_pulls_neither_torch_nor_triton() -> None:
    code = "import sys, pooltide; sys.exit(any(m in sys.modules for m in ('torch', 'triton')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


if __name__ == "__main__":
    interpret(int(sys.argv[1]))
