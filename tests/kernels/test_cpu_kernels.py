"""The compiled kernels give the reference's bits: every instruction set, thread count and layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pooltide
from geometries import DTYPES, FUNCTIONS, bits, geometry, lay, maxima_gradient, torch_gradient
from pooltide import _native
from pooltide.arrays.volumes import as_volume
from pooltide.geometry import UNIT, Axis, strided_outputs, tables
from pooltide.kernels import Arrays, IndexFault, cpu, reference
from pooltide.kernels.plan import plan
from pooltide.operators.dtypes import DTYPES as TYPES
from pooltide.problem.problem import Problem
from shares import fast_first, fast_if, fast_some

LAYOUTS = ["planes", "channels_last"]
NAMES = fast_first(["FLOAT32", "BFLOAT16", "FLOAT64", "FLOAT16"], 2)
INDEX_NAMES = fast_first(["INT64", "UINT8", "INT32"], 2)


def strided(length: int, k: int, s: int, p: int, ceil: bool = False) -> Axis:
    return Axis(length, strided_outputs(length, k, s, p, ceil), k, s, p)


# One shape for each reason that a kernel has a path. Batches are large enough for several threads.
AVERAGES = {
    "whole plane": ("extent", (7, 401), (UNIT, strided(11, 11, 1, 0), strided(13, 13, 1, 0))),
    "whole volume": ("chained", (3, 101), (Axis(3, 1), Axis(11, 1), Axis(13, 1))),
    "stride 1": ("extent", (3, 67), (UNIT, strided(37, 3, 1, 1), strided(53, 5, 1, 2))),
    "stride 1, padding not counted": ("valid", (3, 67), (UNIT, strided(37, 3, 1, 1), strided(53, 5, 1, 2))),
    "stride 1, 3 × 3": ("extent", (3, 67), (UNIT, strided(37, 3, 1, 1), strided(53, 3, 1, 1))),
    "stride 1, 3 × 3, not padded": ("extent", (3, 67), (UNIT, strided(37, 3, 1, 0), strided(53, 3, 1, 0))),
    "stride 1, 3 × 3, uneven": ("valid", (3, 67), (UNIT, strided(37, 3, 1, 1), strided(53, 3, 1, 1))),
    "stride 1, 3 × 3, large": ("extent", (1, 2), (UNIT, strided(211, 3, 1, 1), strided(307, 3, 1, 1))),
    "disjoint": ("extent", (3, 67), (UNIT, strided(38, 2, 2, 0), strided(58, 2, 2, 0))),
    "disjoint, cells left over": ("extent", (3, 67), (UNIT, strided(37, 2, 2, 0), strided(59, 2, 2, 0))),
    "stride 2, odd cells in two": ("extent", (3, 67), (UNIT, strided(38, 3, 2, 1), strided(57, 3, 2, 1))),
    "stride 2, even cells in two": ("valid", (3, 67), (UNIT, strided(37, 3, 2, 0), strided(53, 3, 2, 0))),
    "stride 2, wide": ("valid", (3, 67), (UNIT, strided(37, 7, 2, 3), strided(53, 6, 2, 1))),
    "volume, stride 2": ("valid", (3, 19), (strided(7, 3, 2, 1), strided(11, 2, 2, 0), strided(23, 3, 2, 1))),
    "rows that fit without padding": (
        "extent",
        (1, 5),
        (strided(12, 2, 1, 0), strided(58, 2, 1, 0), strided(18, 2, 2, 0)),
    ),
    "gaps": ("extent", (3, 67), (UNIT, strided(37, 2, 3, 0), strided(53, 2, 5, 1))),
    "overlap": ("valid", (3, 67), (UNIT, strided(37, 3, 2, 1), strided(53, 7, 3, 2))),
    "overhang": ("extent", (3, 67), (UNIT, strided(37, 4, 3, 2, True), strided(53, 6, 4, 3, True))),
    "override": ("override", (3, 67), (UNIT, strided(37, 3, 2, 1), strided(53, 5, 3, 2))),
    "adaptive": ("chained", (3, 19), (Axis(11, 5), Axis(23, 7), Axis(37, 9))),
    "adaptive, disjoint": ("chained", (3, 19), (Axis(10, 5), Axis(21, 7), Axis(36, 9))),
    "more windows than cells": ("chained", (3, 67), (Axis(2, 3), Axis(11, 29), Axis(13, 31))),
    "more lines than fit": ("extent", (1, 3), (UNIT, strided(97, 61, 1, 30), strided(101, 77, 3, 38))),
    "one large plane": ("extent", (1, 1), (UNIT, strided(1021, 3, 2, 1), strided(997, 3, 2, 1))),
    "one long row": ("chained", (1, 1), (UNIT, UNIT, Axis(300_007, 70_001))),
}
INDEXED = {
    "sparse": ((3, 101), (UNIT, Axis(37, 5), Axis(53, 7))),
    "dense": ((3, 67), (UNIT, Axis(37, 29), Axis(53, 43))),
    "sparser": ((3, 101), (UNIT, Axis(37, 3), Axis(53, 5))),
    "many windows": ((2, 37), (UNIT, Axis(113, 53), Axis(61, 47))),
    "volume": ((2, 19), (Axis(11, 5), Axis(23, 7), Axis(37, 13))),
    "one large plane": ((1, 1), (UNIT, Axis(1021, 101), Axis(997, 103))),
}

# Windows are taken a piece at a time, in bands of rows or slices: bands that share rows or do not, images with one
# band and with many, all channels together and blocks of them, images that threads share.
BANDS = {
    "disjoint": ((2, 32), (strided(6, 2, 2, 0), strided(14, 2, 2, 0), strided(22, 2, 2, 0))),
    "disjoint, cells left over": ((2, 67), (UNIT, strided(37, 3, 3, 0), strided(59, 2, 3, 0))),
    "stride 2": ((3, 64), (UNIT, strided(37, 3, 2, 1), strided(53, 3, 2, 1))),
    "stride 1": ((2, 19), (UNIT, strided(23, 3, 1, 1), strided(31, 3, 1, 1))),
    "volume": ((2, 37), (strided(7, 3, 2, 1), strided(11, 3, 2, 1), strided(13, 3, 2, 1))),
    "wide rows": ((1, 131), (strided(5, 3, 2, 1), strided(47, 3, 2, 1), strided(101, 3, 2, 1))),
    "adaptive": ((3, 32), (UNIT, Axis(37, 17), Axis(53, 23))),
    "more windows than cells": ((3, 17), (UNIT, Axis(11, 13), Axis(13, 29))),
    "a row": ((3, 17), (UNIT, UNIT, strided(997, 3, 2, 1))),
    "blocks of channels": ((2, 75), (strided(9, 5, 1, 2), strided(29, 3, 1, 1), strided(31, 3, 1, 1))),
    "few windows that overlap": ((3, 37), (UNIT, Axis(37, 3), Axis(53, 5))),
    "small images": ((67, 3), (UNIT, strided(5, 3, 1, 1), strided(7, 3, 2, 1))),
}
LARGE = (  # a test of them takes long
    *("stride 1, 3 × 3, large", "more lines than fit", "one large plane", "one long row"),
    *("wide rows", "blocks of channels"),
)


def is_small(reason: str) -> bool:
    return reason not in LARGE


def chosen(problem: Problem, layout: str) -> str:
    """The name of the kernel that computes the problem with this instruction set."""
    return cpu.prepare(problem, layout).kernels(False)[-1][0]


def gradients(problem: Problem, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    shape = problem.batch + problem.output_plane
    grad = rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 8, shape)
    grad[rng.random(shape) < 0.01] = -0.0
    for value in (np.nan, np.inf, -np.inf):
        grad.flat[rng.integers(grad.size)] = value
    with np.errstate(over="ignore"):
        return grad.astype(problem.dtype.numpy)


def run(problem: Problem, layout: str, grad: Any, indices: Any) -> tuple[Any, IndexFault | None]:
    """Computes from arrays that are in the layout."""
    out = lay(np.full(problem.batch + problem.input_plane, np.nan, problem.dtype.numpy), layout)
    return out, cpu.run(problem, layout, Arrays(grad, None, indices, out), np.empty(0, np.uint8))


def check_everywhere(problem: Problem, grad: Any, indices: Any = None) -> IndexFault | None:
    assert cpu.refuse(problem) is None
    want = np.full(problem.batch + problem.input_plane, np.nan, problem.dtype.numpy)
    scratch = np.empty(reference.scratch(problem), np.uint8)
    expected = reference.run(problem, "planes", Arrays(grad, None, indices, want), scratch)
    want = bits(want)
    for layout in LAYOUTS:
        laid = lay(grad, layout), None if indices is None else lay(indices, layout)
        for isa in _native.instruction_sets():
            for threads in (1, 2, 7):
                _native.use_instruction_set(isa)
                pooltide.set_num_threads(threads)
                out, fault = run(problem, layout, *laid)
                assert fault == expected, (layout, isa, threads)
                np.testing.assert_array_equal(bits(out), want, err_msg=f"{layout} {isa} {threads}")
    return expected


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("reason", fast_if(is_small, AVERAGES))
def test_average_has_the_bits_of_the_reference(reason: str, dtype: str) -> None:
    quotient, batch, axes = AVERAGES[reason]
    divisor = -7 if quotient == "override" else 0
    problem = Problem("average_gradient", batch, axes, TYPES[dtype], quotient, divisor)
    check_everywhere(problem, gradients(problem, 1))


SMALL = {
    "stride 1": ("valid", (3, 67), (UNIT, strided(5, 3, 1, 1), strided(3, 3, 1, 1))),
    "two vectors": ("extent", (3, 101), (UNIT, strided(7, 3, 2, 1), strided(3, 2, 1, 0))),
    "short rows": ("valid", (3, 19), (strided(19, 3, 1, 1), strided(23, 3, 1, 1), strided(3, 3, 1, 1))),
    "short rows, many planes": (
        "chained",
        (17, 61),
        (strided(11, 3, 1, 1), strided(23, 5, 1, 2), strided(3, 3, 1, 1)),
    ),
    "a row": ("extent", (5, 401), (UNIT, UNIT, strided(3, 2, 2, 1))),
    "volume": ("chained", (3, 19), (Axis(5, 2), Axis(7, 3), Axis(3, 2))),
    "gaps": ("override", (1, 17), (UNIT, strided(7, 2, 3, 0), strided(3, 1, 2, 0))),
    "many lists of rows": ("chained", (1, 17), (Axis(127, 77), Axis(17, 16), Axis(3, 2))),
}


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("reason", SMALL)
def test_small_planes_are_summed_many_at_a_time(reason: str, dtype: str) -> None:
    quotient, batch, axes = SMALL[reason]
    divisor = 7 if quotient == "override" else 0
    problem = Problem("average_gradient", batch, axes, TYPES[dtype], quotient, divisor)
    for isa, lanes in (("baseline", 4), ("avx2", 8), ("avx512", 16)):
        if isa in _native.instruction_sets():
            _native.use_instruction_set(isa)
            whole = lanes // 2 if dtype == "FLOAT64" else lanes
            rows_fill_vectors = axes[2].length > whole * 3 // 4
            assert (chosen(problem, "planes") == "small_planes") != rows_fill_vectors
    check_everywhere(problem, gradients(problem, 1))


FEW_CHANNELS = {
    "stride 1": ("valid", "stride_1", (UNIT, strided(13, 3, 1, 1), strided(29, 3, 1, 1))),
    "stride 1, far": ("extent", "stride_1", (UNIT, strided(17, 5, 1, 2), strided(11, 7, 1, 3))),
    "stride 2": ("extent", "stride_2", (UNIT, strided(23, 3, 2, 1), strided(31, 3, 2, 1))),
    "disjoint": ("valid", "stride_2", (UNIT, strided(24, 2, 2, 0), strided(30, 2, 2, 0))),
    "stride 2, wide": ("valid", "stride_2", (UNIT, strided(23, 7, 2, 3), strided(31, 5, 2, 2))),
    "gaps": ("override", "spread_lines", (UNIT, strided(23, 2, 3, 0), strided(31, 2, 5, 0))),
    "volume": ("chained", "spread_lines", (Axis(7, 3), Axis(11, 5), Axis(13, 8))),
    "a row": ("extent", "stride_2", (UNIT, UNIT, strided(997, 3, 2, 1))),
}


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("channels", [1, 3, 5, 31])
@pytest.mark.parametrize("reason", FEW_CHANNELS)
def test_vectors_hold_several_cells_of_few_channels(reason: str, channels: int, dtype: str) -> None:
    quotient, kernel, axes = FEW_CHANNELS[reason]
    divisor = 7 if quotient == "override" else 0
    problem = Problem("average_gradient", (3, channels), axes, TYPES[dtype], quotient, divisor)
    for isa, lanes in (("baseline", 4), ("avx2", 8), ("avx512", 16)):
        if isa in _native.instruction_sets():
            _native.use_instruction_set(isa)
            few = channels < 2 * (lanes // 2 if dtype == "FLOAT64" else lanes)
            assert chosen(problem, "channels_last") == (kernel if few else "average_channels")
    check_everywhere(problem, gradients(problem, 1))


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("index", fast_first(["INT64", "INT32"]))
@pytest.mark.parametrize("reason", fast_if(is_small, INDEXED))
def test_indexed_has_the_bits_of_the_reference(reason: str, index: str, dtype: str) -> None:
    batch, axes = INDEXED[reason]
    problem = maxima_gradient(batch, axes, TYPES[dtype], TYPES[index])
    grad = gradients(problem, 2)
    cells = np.prod(problem.input_plane)
    indices = np.random.default_rng(3).integers(0, cells, grad.shape).astype(TYPES[index].numpy)
    assert check_everywhere(problem, grad, indices) is None


def own_indices(problem: Problem, seed: int) -> Any:
    """Random indices as a forward writes them: a cell of each window, or its offset in the window."""
    rng, offsets = np.random.default_rng(seed), problem.offset_tables
    places: Any = 0
    for i, (axis, at) in enumerate(zip(problem.axes, ((-1, 1, 1), (-1, 1), (-1,)), strict=True)):
        table = tables(axis)
        start, end = (edge.reshape(at) for edge in (table.start, table.end))
        cell = rng.integers(start, end, problem.batch + problem.output_plane)
        places = places * offsets.most[i] + cell - start if offsets else places * axis.length + cell
    return places.astype(problem.index_dtype.numpy if problem.index_dtype else np.uint8)


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("index", INDEX_NAMES)
@pytest.mark.parametrize("reason", fast_if(is_small, BANDS))
def test_maxima_are_scattered_band_by_band(reason: str, index: str, dtype: str) -> None:
    batch, axes = BANDS[reason]
    problem = maxima_gradient(batch, axes, TYPES[dtype], TYPES[index])
    half = dtype in ("FLOAT16", "BFLOAT16")
    want = {"scatter_compared", "scatter_bands"} if half else {"scatter_in_place"}
    for isa in _native.instruction_sets():
        _native.use_instruction_set(isa)
        assert chosen(problem, "planes") in want
        assert chosen(problem, "channels_last") in want | {"gather_channels"}
    assert check_everywhere(problem, gradients(problem, 8), own_indices(problem, 9)) is None


@pytest.mark.parametrize(
    ("axis", "lanes", "dtype", "kernel"),
    [
        (strided(37, 3, 2, 1), 16, "FLOAT16", "gather_channels"),
        (strided(37, 3, 2, 1), 8, "FLOAT16", "scatter_bands"),  # 9 cells are too many for short vectors
        (strided(37, 2, 1, 0), 8, "BFLOAT16", "gather_channels"),
        (strided(37, 2, 2, 0), 16, "BFLOAT16", "gather_channels"),
        (strided(37, 3, 3, 0), 16, "FLOAT16", "scatter_compared"),  # disjoint
        (strided(37, 4, 2, 1), 16, "FLOAT16", "scatter_compared"),  # 16 cells
        (Axis(37, 35, 3, 1, 1, 2), 16, "FLOAT16", "scatter_bands"),  # dilated
        (strided(37, 3, 2, 1), 16, "FLOAT32", "scatter_in_place"),
    ],
)
def test_small_windows_are_gathered(axis: Axis, lanes: int, dtype: str, kernel: str) -> None:
    isa = {16: "avx512", 8: "avx2"}[lanes]
    if isa not in _native.instruction_sets():
        pytest.skip(f"NOT TESTED: this processor has no {isa}")
    problem = maxima_gradient((2, 35), (UNIT, axis, axis), TYPES[dtype], TYPES["INT64"])
    _native.use_instruction_set(isa)
    assert chosen(problem, "channels_last") == kernel
    assert check_everywhere(problem, gradients(problem, 8), own_indices(problem, 9)) is None


@pytest.mark.parametrize("index", INDEX_NAMES)
@pytest.mark.parametrize("step", [1, -1, 1 << 32, -(1 << 63)])
def test_gathered_gradients_miss_no_index(index: str, step: int) -> None:
    """An index beside its window, one that has the lower 32 bits of a cell, or the lowest one is not lost."""
    if index != "INT64" and step == 1 << 32:
        pytest.skip("such an index has 64 bits")
    axes = (UNIT, strided(23, 3, 2, 1), strided(29, 3, 2, 1))
    problem = maxima_gradient((2, 35), axes, TYPES["FLOAT16"], TYPES[index])
    grad, indices = gradients(problem, 8), own_indices(problem, 9)
    place = (1, 33, 0, 5, 7)
    indices[place] = max((int(indices[place]) or 1) + step, np.iinfo(indices.dtype).min)
    names_a_cell = abs(step) == 1 or index == "UINT8"
    assert (check_everywhere(problem, grad, indices) is None) == names_a_cell


@pytest.mark.slow
@pytest.mark.parametrize("index", ["INT32", "INT64", "UINT8"])
@pytest.mark.parametrize("reason", BANDS)
def test_an_index_outside_its_window_is_found_wherever_it_is(reason: str, index: str) -> None:
    """Such an index is beside its window, far away, or outside the plane. All others still count."""
    batch, axes = BANDS[reason]
    problem = maxima_gradient(batch, axes, TYPES["BFLOAT16"], TYPES[index])
    grad, indices = gradients(problem, 8), own_indices(problem, 9)
    rng, cells = np.random.default_rng(10), int(np.prod(problem.input_plane))
    line = problem.input_plane[2]
    steps = [1, 7, 255] if index == "UINT8" else [-1, 1, -line, line, -cells, cells]
    for step in steps:
        astray = indices.copy()
        places = rng.integers(astray.size, size=11)
        astray.flat[places] = astray.flat[places] + step
        check_everywhere(problem, grad, astray)


def test_windows_that_overlap_much() -> None:
    axes = (UNIT, strided(37, 13, 1, 6), strided(41, 13, 1, 6))
    problem = maxima_gradient((2, 17), axes, TYPES["FLOAT16"], TYPES["INT64"])
    assert chosen(problem, "channels_last") == "scatter_bands"
    assert check_everywhere(problem, gradients(problem, 8), own_indices(problem, 9)) is None


@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16"])
def test_disjoint_windows_that_name_one_cell(dtype: str) -> None:
    """Two neighbouring windows name one cell, which is not in one of them: another kernel computes the call."""
    axes = (UNIT, strided(300, 4, 4, 0), strided(600, 4, 4, 0))
    problem = maxima_gradient((1, 2), axes, TYPES[dtype], TYPES["INT64"])
    assert chosen(problem, "planes") == "scatter_compared"
    grad, indices = gradients(problem, 8), own_indices(problem, 9)
    indices[..., 1::2] = indices[..., ::2]
    assert check_everywhere(problem, grad, indices) is None


@pytest.mark.parametrize(
    ("axis", "channels", "kernel"),
    [
        (Axis(37, 4), 64, "scatter_compared"),  # 86 cells to a window
        (strided(80, 5, 4, 0), 64, "scatter_compared"),
        (strided(112, 7, 2, 0), 64, "scatter_bands"),  # a window overlaps 24 earlier ones
        (strided(80, 3, 3, 0), 64, "scatter_compared"),  # disjoint
        (strided(112, 3, 3, 0), 64, "scatter_bands"),  # an image of more than 1 MB
    ],
)
def test_windows_are_compared_if_few_overlap(axis: Axis, channels: int, kernel: str) -> None:
    problem = maxima_gradient((1, channels), (UNIT, axis, axis), TYPES["FLOAT16"], TYPES["INT64"])
    assert chosen(problem, "channels_last") == kernel
    assert check_everywhere(problem, gradients(problem, 8), own_indices(problem, 9)) is None


@pytest.mark.parametrize("batch", [(1, 19), (2, 173)], ids=str)
def test_planes_of_few_windows_are_compared_together(batch: tuple[int, int]) -> None:
    """A row has the windows of several planes; 19 planes are less than one row, 346 fill the last one partly."""
    problem = maxima_gradient(batch, (UNIT, Axis(29, 7), Axis(31, 7)), TYPES["FLOAT16"], TYPES["INT64"])
    assert chosen(problem, "planes") == "scatter_compared"
    assert check_everywhere(problem, gradients(problem, 8), own_indices(problem, 9)) is None


@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16"])
@pytest.mark.parametrize("channels", [1, 5, 16])
def test_pieces_of_a_row_are_compared(channels: int, dtype: str) -> None:
    """A long row is taken in pieces; windows at the begin of a piece name cells of the piece before it."""
    problem = maxima_gradient(
        (1, channels), (UNIT, UNIT, strided(4099, 5, 3, 0)), TYPES[dtype], TYPES["INT64"]
    )
    grad, indices = gradients(problem, 8), own_indices(problem, 9)
    indices[..., 1::2] = indices[..., :-1:2] = np.arange(1, indices.shape[-1], 2) * 3 + 1
    want = np.empty(problem.batch + problem.input_plane, grad.dtype)
    reference.run(
        problem, "planes", Arrays(grad, None, indices, want), np.empty(reference.scratch(problem), np.uint8)
    )
    for layout in LAYOUTS:
        out = lay(np.full_like(want, np.nan), layout)
        for isa in _native.instruction_sets():
            _native.use_instruction_set(isa)
            prepared = cpu.prepare(problem, layout)
            prepared.run_forced(
                lay(grad, layout), None, lay(indices, layout), out, 1, "scatter_compared", -1, 0, False
            )
            np.testing.assert_array_equal(bits(out), bits(want), err_msg=f"{layout} {isa}")


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("stray", ["none", "foreign", "bad"])
@pytest.mark.parametrize("reason", fast_if(is_small, INDEXED))
def test_indices_in_their_windows_and_one_that_is_not(reason: str, stray: str, dtype: str) -> None:
    batch, axes = INDEXED[reason]
    problem = maxima_gradient(batch, axes, TYPES[dtype], TYPES["INT64"])
    grad, indices = gradients(problem, 6), own_indices(problem, 7)
    if stray != "none":  # the last window of the last plane names the first cell, or none
        indices.flat[-1] = 0 if stray == "foreign" else -1
    fault = check_everywhere(problem, grad, indices)
    assert fault == (IndexFault(1, grad.size - 1, -1) if stray == "bad" else None)


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("index", INDEX_NAMES)
def test_windows_apart_and_cells_that_two_name(index: str, dtype: str) -> None:
    """A cell of a half type is a copy of its one gradient, or a rounded sum of several; never -0."""
    axes = (UNIT, strided(38, 2, 2, 0), strided(59, 2, 3, 0))
    problem = maxima_gradient((3, 67), axes, TYPES[dtype], TYPES[index])
    grad, indices = gradients(problem, 11), own_indices(problem, 12)
    grad[:, ::3] = -0.0
    assert check_everywhere(problem, grad, indices) is None
    if index != "UINT8":
        indices[1, 1, :, :, 1:4] = indices[1, 1, :, :, :1]
        indices[2, 5, 0, 7, 2] = indices[2, 5, 0, 3, 1]
    assert check_everywhere(problem, grad, indices) is None


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("width", [300, 160, 41])
def test_offsets_of_windows_that_do_not_begin_in_order(width: int, dtype: str) -> None:
    """Dilation steps over padding: the third window begins before the first."""
    h, w = (Axis(n, strided_outputs(n, 13, 1, 2, False), 5, 1, 2, 3) for n in (64, width))
    axes = (UNIT, h, w)  # 5 × 5 cells, 3 apart
    problem = maxima_gradient((2, 4), axes, TYPES[dtype], TYPES["UINT8"])
    assert problem.offset_tables is not None
    assert problem.offset_tables.first_cell[1][0] > problem.offset_tables.first_cell[1][2]
    rng, found = np.random.default_rng(13), np.zeros(problem.batch + problem.output_plane, np.int64)
    for i, axis in enumerate(axes):
        cells = -(-(tables(axis).end - problem.offset_tables.first_cell[i]) // problem.dilation[i])
        found = found * problem.offset_tables.most[i] + rng.integers(
            0, cells.reshape((-1,) + (1,) * (2 - i)), found.shape
        )
    assert check_everywhere(problem, gradients(problem, 14), found.astype(np.uint8)) is None


@pytest.mark.parametrize("dtype", NAMES)
def test_an_offset_that_its_window_has_not_stays_in_the_plane(dtype: str) -> None:
    """The second window begins before the first, so the first window has the last cells."""
    axes = (UNIT, UNIT, Axis(7, 2, 2, 2, 1, 5))  # 2 cells, 5 apart: at 4 and (9), 1 and 6
    problem = maxima_gradient((1, 3), axes, TYPES[dtype], TYPES["UINT8"])
    indices = np.array([1, 0], np.uint8) + np.zeros((1, 3, 1, 1, 2), np.uint8)
    fault = check_everywhere(problem, gradients(problem, 15), indices)
    assert fault is not None
    assert (fault.number, fault.position) == (3, 0)


@pytest.mark.parametrize("dtype", NAMES)
def test_bad_indices_are_counted_and_the_first_is_named(dtype: str) -> None:
    batch, axes = INDEXED["dense"]
    problem = maxima_gradient(batch, axes, TYPES[dtype], TYPES["INT64"])
    grad, cells = gradients(problem, 4), int(np.prod(problem.input_plane))
    indices = np.random.default_rng(5).integers(0, cells, grad.shape)
    for place, value in ((100_003, 2**32), (70_001, cells), (5_003, -1), (200_003, -(2**63))):
        indices.flat[place] = value
    assert check_everywhere(problem, grad, indices) == IndexFault(4, 5_003, -1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.slow
def test_results_beyond_the_cache(layout: str) -> None:
    """Results of 32 MB and more are written past the cache. Odd planes make threads begin at unaligned addresses."""
    axes = UNIT, strided(151, 3, 2, 1), strided(157, 3, 2, 1)
    problem = Problem("average_gradient", (7, 53), axes, TYPES["FLOAT32"], "extent")
    assert problem.cells * 4 >= 32 << 20
    grad = gradients(problem, 6)
    want = np.empty(problem.batch + problem.input_plane, np.float32)
    reference.run(problem, "planes", Arrays(grad, out=want), np.empty(0, np.uint8))
    grad, want = lay(grad, layout), bits(want)
    for isa in _native.instruction_sets():
        _native.use_instruction_set(isa)
        np.testing.assert_array_equal(bits(run(problem, layout, grad, None)[0]), want, err_msg=isa)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["FLOAT32", "BFLOAT16"])
def test_maxima_beyond_the_cache(dtype: str) -> None:
    axes = (UNIT, strided(151, 3, 2, 1), strided(157, 3, 2, 1))
    problem = maxima_gradient((3, 131), axes, TYPES[dtype], TYPES["INT64"])
    assert problem.least_bytes >= 32 << 20
    assert check_everywhere(problem, gradients(problem, 6), own_indices(problem, 7)) is None


@pytest.mark.parametrize("function", fast_some(FUNCTIONS, 4))
@pytest.mark.parametrize("channels_last", fast_first([True, False]))
def test_float32_has_the_bits_of_pytorch(function: str, channels_last: bool) -> None:
    pytest.importorskip("torch")
    for seed in range(40):
        case = geometry(function, seed, np.dtype(np.float32), strided=False)
        want = torch_gradient(case)
        if channels_last and case.grad_output.ndim == case.axes + 2:
            move = (0, *range(2, case.axes + 2), 1)
            back = (0, case.axes + 1, *range(1, case.axes + 1))
            case.grad_output = np.ascontiguousarray(case.grad_output.transpose(move)).transpose(back)
            if case.indices is not None:
                case.indices = np.ascontiguousarray(case.indices.transpose(move)).transpose(back)
        for threads in (1, 2, 7):
            pooltide.set_num_threads(threads)
            np.testing.assert_array_equal(case.run().view(np.uint32), want.view(np.uint32), err_msg=str(case))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_functions_reach_these_kernels(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*_: Any) -> None:
        raise AssertionError("the reference ran")

    monkeypatch.setattr(reference, "run", unwanted)
    for dtype in DTYPES:
        geometry(function, 11, dtype).run()


def test_subnormals_are_kept_whatever_the_thread_has_set() -> None:
    torch = pytest.importorskip("torch")
    grad = np.full((1, 1, 67, 71), np.float32(1e-39))
    want = pooltide.avg_pool2d_backward(grad, (1, 1, 134, 142), 2)
    assert want.all()
    try:
        assert torch.set_flush_denormal(True)
        np.testing.assert_array_equal(
            bits(pooltide.avg_pool2d_backward(grad, (1, 1, 134, 142), 2)), bits(want)
        )
    finally:
        torch.set_flush_denormal(False)


def test_an_unusable_size_is_refused_with_a_reason() -> None:
    huge = Problem("average_gradient", (1, 1), (UNIT, UNIT, Axis(2**31, 1)), TYPES["FLOAT32"], "chained")
    assert "2**31" in (cpu.refuse(huge) or "")
    padded = Axis(4, 1, 2**30, 1, 2**29)
    wide = Problem("average_gradient", (1, 1), (UNIT, padded, padded), TYPES["FLOAT32"], "extent")
    assert "2**53" in (cpu.refuse(wide) or "")
    executable = plan(huge, ("planes", "planes"))
    assert (executable.backend, executable.refused[0][0]) == ("reference", "cpu")


def test_a_short_cut_is_taken_only_by_the_same_call() -> None:
    grad = np.random.default_rng(7).standard_normal((2, 3, 5, 7)).astype(np.float32)
    want = pooltide.avg_pool2d_backward(grad, (2, 3, 10, 14), 2)
    for _ in range(2):
        np.testing.assert_array_equal(pooltide.avg_pool2d_backward(grad, (2, 3, 10, 14), 2), want)
        for bad in (2.0, True, (2.0, 2), np.float32(2), "2"):
            with pytest.raises(TypeError, match="kernel_size"):
                pooltide.avg_pool2d_backward(grad, (2, 3, 10, 14), bad)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="input"):
            pooltide.avg_pool2d_backward(grad, (2, 3, 10.0, 14), 2)  # type: ignore[arg-type]
        np.testing.assert_array_equal(pooltide.avg_pool2d_backward(grad, [2, 3, 10, 14], np.int64(2)), want)
    frozen = np.zeros((2, 3, 10, 14), np.float32)
    pooltide.avg_pool2d_backward(grad, frozen, 2, out=frozen)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        pooltide.avg_pool2d_backward(grad, frozen, 2, out=frozen)
    wide = np.zeros((2, 3, 10, 14), np.float64)
    with pytest.raises(TypeError, match="out"):
        pooltide.avg_pool2d_backward(grad, wide, 2, out=wide)


def test_shared_and_misaligned_memory_is_copied() -> None:
    rng = np.random.default_rng(8)
    block = rng.standard_normal(2 * 3 * 11 * 13).astype(np.float32)
    for _ in range(2):
        shared = block.copy()
        out = grad = shared.reshape(2, 3, 11, 13)
        want = pooltide.avg_pool2d_backward(grad.copy(), out.shape, 3, 1, 1)
        np.testing.assert_array_equal(pooltide.avg_pool2d_backward(grad, out.shape, 3, 1, 1, out=out), want)
    raw = np.zeros(4 * 2 * 3 * 5 * 7 + 1, np.uint8)[1:].view(np.float32).reshape(2, 3, 5, 7)
    raw[...] = rng.standard_normal(raw.shape)
    assert not raw.flags.aligned
    for _ in range(2):
        got = pooltide.avg_pool2d_backward(raw, (2, 3, 10, 14), 2)
        np.testing.assert_array_equal(got, pooltide.avg_pool2d_backward(raw.copy(), (2, 3, 10, 14), 2))
    axes = UNIT, strided(11, 3, 1, 1), strided(13, 3, 1, 1)
    problem = Problem("average_gradient", (2, 3), axes, TYPES["FLOAT32"], "extent")
    volume = as_volume(block.copy().reshape(2, 3, 11, 13), 2)
    want, _ = run(problem, "planes", volume.copy(), None)
    assert cpu.run(problem, "planes", Arrays(volume, out=volume), np.empty(0, np.uint8)) is None
    np.testing.assert_array_equal(volume, want)
