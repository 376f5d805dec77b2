"""One-byte offsets: forwards write them, gradients read them, and they mean PyTorch's indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pooltide
from forwards import DTYPES, NAMES, Forward, bits, forward
from pooltide import _native
from pooltide.arrays.reader import ARRAYS
from pooltide.geometry import Axis
from pooltide.kernels import Arrays, IndexFault, cpu, reference
from pooltide.problem.forwards import AdaptiveArguments, StridedArguments, forward_problem
from pooltide.problem.offsets import offsets_of
from pooltide.problem.problem import Problem, gradient_of, with_offsets

MAXIMA = [name for name in NAMES if "max" in name]


NONE = np.empty(0, np.uint8)  # scratch


def problem_for(call: Forward) -> Problem:
    defaults = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
    adaptive = "adaptive" in call.name
    asked = (
        AdaptiveArguments(**call.arguments) if adaptive else StridedArguments(**(defaults | call.arguments))
    )
    return forward_problem(call.name, ARRAYS, call.x, asked, True)


def laid(array: Any, layout: str) -> Any:
    """A copy of a 5-D array that lies in `layout`."""
    if layout == "planes":
        return np.array(array, order="C")
    return np.moveaxis(np.array(np.moveaxis(array, 1, -1), order="C"), -1, 1)


def poisoned(shape: tuple[int, ...], dtype: Any, layout: str) -> Any:
    return laid(
        np.full(shape, 0xEE, np.uint8) if dtype == np.uint8 else np.full(shape, np.nan).astype(dtype), layout
    )


@pytest.mark.parametrize("layout", ["planes", "channels_last"])
@pytest.mark.slow
@pytest.mark.parametrize("name", MAXIMA)
def test_offsets_written_and_read_stand_for_indices(name: str, layout: str) -> None:
    """Values, decoded places and gradients are those of the int64 indices, and the reference's."""
    used, isas = 0, _native.instruction_sets()
    for seed in range(60):
        call = forward(name, seed, largest=23)
        small = with_offsets(problem_for(call))
        if small is None:
            continue
        used += 1
        _native.use_instruction_set(isas[seed % len(isas)])
        pooltide.set_num_threads((1, 2, 7)[seed % 3])
        values, indices = call.run(return_indices=True)
        shape = small.batch + small.output_plane
        x = laid(call.x.reshape(small.batch + small.input_plane), layout)
        found, offsets = poisoned(shape, x.dtype, layout), poisoned(shape, np.uint8, layout)
        cpu.run(small, layout, Arrays(None, x, offsets, found), NONE)
        np.testing.assert_array_equal(bits(found).ravel(), bits(values).ravel(), err_msg=str(call))
        slow, expected = np.empty_like(found), np.empty_like(offsets)
        reference.run(small, layout, Arrays(None, x, expected, slow), NONE)
        np.testing.assert_array_equal(offsets, expected, err_msg=str(call))

        problem = gradient_of(small)
        assert problem.offset_tables is not None
        decoded = problem.offset_tables.indices(offsets, small.input_plane)
        np.testing.assert_array_equal(decoded.ravel(), indices.ravel(), err_msg=str(call))
        g = laid(np.random.default_rng(seed).standard_normal(shape).astype(x.dtype), layout)
        results = []
        for backend in (cpu, reference):
            out = poisoned(x.shape, x.dtype, layout)
            scratch = np.empty(backend.scratch(problem), np.uint8)
            assert backend.run(problem, layout, Arrays(g, None, offsets, out), scratch) is None
            results.append(bits(out).ravel())
        np.testing.assert_array_equal(*results, err_msg=str(call))
        function = getattr(pooltide, f"{name}_backward")
        arguments = {} if "adaptive" in name else call.arguments
        plain = function(np.array(g, order="C").reshape(indices.shape), call.x.shape, indices, **arguments)
        np.testing.assert_array_equal(results[0], bits(plain).ravel(), err_msg=str(call))
    assert used >= 25


# One shape for each reason that the kernels have a path; sizes are primes.
REASONS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "disjoint": ("max_pool2d", (2, 37, 23, 61), {"kernel_size": 2}),
    "odd padding": ("max_pool2d", (3, 5, 41, 67), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "even padding": ("max_pool2d", (3, 5, 41, 67), {"kernel_size": 5, "stride": 2, "padding": 2}),
    "stride 1": ("max_pool2d", (2, 3, 29, 43), {"kernel_size": 3, "stride": 1, "padding": 1}),
    "long taps": (
        "max_pool2d",
        (2, 3, 29, 83),
        {"kernel_size": (3, 31), "stride": (3, 2), "padding": (1, 15)},
    ),
    "gaps": ("max_pool2d", (2, 3, 29, 43), {"kernel_size": 1, "stride": 2}),
    "pieces": ("max_pool1d", (2, 3, 5003), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    "pieces, stride 1": ("max_pool1d", (2, 3, 4001), {"kernel_size": 5, "stride": 1, "padding": 2}),
    "wide stride": ("max_pool2d", (2, 3, 29, 43), {"kernel_size": 3, "stride": 5}),
    "dilated rows": ("max_pool2d", (2, 3, 29, 43), {"kernel_size": 3, "stride": 2, "dilation": (4, 1)}),
    "dilated": ("max_pool2d", (2, 3, 29, 43), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 3}),
    "volumes": ("max_pool3d", (2, 3, 11, 13, 37), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "disjoint volumes": ("max_pool3d", (2, 3, 11, 13, 37), {"kernel_size": 2}),
    "adaptive": ("adaptive_max_pool2d", (2, 3, 29, 43), {"output_size": (7, 11)}),
    "adaptive, every other": ("adaptive_max_pool2d", (2, 3, 29, 62), {"output_size": (7, 31)}),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reason", REASONS)
def test_gradients_by_offsets_have_the_bits_of_gradients_by_indices(reason: str, dtype: Any) -> None:
    name, shape, arguments = REASONS[reason]
    random = np.random.default_rng(3)
    call = Forward(name, random.integers(-9, 9, shape).astype(dtype), arguments)  # ties everywhere
    values, indices = call.run(return_indices=True)
    small = with_offsets(problem_for(call))
    assert small is not None
    problem = gradient_of(small)
    g = random.standard_normal(indices.shape).astype(dtype)
    function = getattr(pooltide, f"{name}_backward")
    expected = bits(function(g, shape, indices, **({} if "adaptive" in name else arguments))).ravel()
    for isa in _native.instruction_sets():
        _native.use_instruction_set(isa)
        for layout in ("planes", "channels_last"):
            x = laid(call.x.reshape(small.batch + small.input_plane), layout)
            found = poisoned(small.batch + small.output_plane, dtype, layout)
            offsets = poisoned(found.shape, np.uint8, layout)
            cpu.run(small, layout, Arrays(None, x, offsets, found), NONE)
            np.testing.assert_array_equal(bits(found).ravel(), bits(values).ravel())
            out = poisoned(x.shape, dtype, layout)
            cpu.run(problem, layout, Arrays(laid(g.reshape(found.shape), layout), None, offsets, out), NONE)
            np.testing.assert_array_equal(bits(out).ravel(), expected, err_msg=f"{isa} {layout}")


@pytest.mark.parametrize("layout", ["planes", "channels_last"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_an_offset_that_points_out_of_the_plane_is_dropped_and_told(layout: str, dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 11)).astype(dtype)
    asked = StridedArguments(3, 2, 1, 1, False)
    small = with_offsets(forward_problem("max_pool2d", ARRAYS, x, asked, True))
    assert small is not None
    problem = gradient_of(small)
    shape = small.batch + small.output_plane
    g = laid(np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype), layout)
    for bad, at in ((9, (0, 1, 0, 2, 3)), (255, (1, 2, 0, 0, 1)), (8, (1, 2, 0, 3, 5))):
        offsets = laid(np.zeros(shape, np.uint8), layout)
        offsets[at] = bad
        total = []
        for backend in (cpu, reference):
            out = poisoned(small.batch + small.input_plane, dtype, layout)
            scratch = np.empty(backend.scratch(problem), np.uint8)
            fault = backend.run(problem, layout, Arrays(g, None, offsets, out), scratch)
            assert isinstance(fault, IndexFault)
            assert (fault.number, fault.position) == (1, np.ravel_multi_index(at, shape))
            total.append(out)
        np.testing.assert_array_equal(bits(total[0]), bits(total[1]))
        assert total[0].astype(np.float64).sum() == g.astype(np.float64).sum() - float(g[at])


def test_a_window_of_more_than_256_cells_has_no_offsets() -> None:
    def counted(*kernel: int) -> Any:
        d, h, w = (Axis(60, 60 - k + 1, k, 1, 0) for k in kernel)
        return offsets_of((d, h, w))

    assert counted(4, 8, 8).most == (4, 8, 8)
    assert counted(5, 8, 7) is None
    assert counted(1, 16, 16).jump[255] == 15 * 60 + 15
    assert counted(1, 3, 3).jump[9] < -(2**61)
