"""The contract: within a written bound of the float64 oracle, and PyTorch's CPU bits in float32.

The bound. A cell sums m quotients in the accumulator type, unit roundoff u: at most three divisions
and m additions, so the sum is within (m + 3)·u·S of the exact one, S being the sum of the magnitudes.
One rounding to the result's type adds half a unit in the last place of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pooltide.kernels.plan
from geometries import DTYPES, FUNCTIONS, Geometry, geometry, random_view, torch_gradient
from pooltide.acceptance.oracle import golden_result
from pooltide.arrays.reader import ARRAYS
from pooltide.arrays.volumes import as_volume
from pooltide.geometry import tables
from pooltide.operators.binding import bind
from pooltide.operators.catalog import gradients, operators
from pooltide.problem.problem import Problem, lower
from shares import fast_first

COUNT = {function: 500 if page.documented else 200 for function, page in gradients().items()}
FEW = 16  # seeds that are not slow
PARTS = fast_first(["few", "many"])
BACKENDS = list(pooltide.kernels.plan.BACKENDS)


def seeds(part: str, count: int) -> range:
    return range(FEW) if part == "few" else range(FEW, count)


def problem_of(case: Geometry) -> Problem:
    operator = operators()[case.function]
    attributes = tuple(case.attributes.values())
    call = bind(ARRAYS, operator, case.grad_output, case.input_shape, case.indices, attributes, None)
    return lower(call)


def oracle(case: Geometry, grad: Any) -> tuple[Any, Problem]:
    problem = problem_of(case)
    indices = None if case.indices is None else as_volume(case.indices, case.axes)
    golden = golden_result(problem, as_volume(grad, case.axes), indices)
    return golden.values.reshape(case.input_shape), problem


def bound(case: Geometry, exact: Any, problem: Problem) -> Any:
    magnitude, _ = oracle(case, np.abs(case.grad_output))
    magnitude = np.abs(magnitude)
    terms = np.prod([tables(axis).window_count.max() for axis in problem.axes], dtype=float)
    if case.indices is not None:
        terms = float(np.prod(problem.output_plane))
    info = {2: 11 if case.grad_output.dtype == np.float16 else 8, 4: 24, 8: 53}[problem.dtype.itemsize]
    accumulator = 2.0 ** -(53 if problem.dtype.name == "FLOAT64" else 24)
    tiny = {"FLOAT16": 2.0**-25, "BFLOAT16": 2.0**-134, "FLOAT32": 2.0**-149, "FLOAT64": 0.0}
    sums = (terms + 3) * accumulator * magnitude
    # The oracle rounds too when the problem is float64: allow its own error once more.
    twice = 2 if problem.dtype.name == "FLOAT64" else 1
    return twice * sums + 2.0**-info * (np.abs(exact) + sums) + tiny[problem.dtype.name]


@pytest.fixture(params=fast_first(BACKENDS))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(pooltide.kernels.plan.ENVIRONMENT, request.param)
    return str(request.param)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_random_geometries_agree_with_the_oracle(function: str, part: str, backend: str) -> None:
    for seed in seeds(part, COUNT[function]):
        case = geometry(function, seed)
        out = random_view(np.random.default_rng(seed), case.input_shape, case.grad_output.dtype)
        out[...] = np.nan
        storage = out
        while storage.base is not None:
            storage = storage.base
        outside = ~np.isnan(storage.astype(np.float32))
        before = storage.copy()
        got = case.run(out=out)
        assert got is out
        exact, problem = oracle(case, case.grad_output)
        wide = got.astype(np.float64)
        assert np.isfinite(wide).all(), f"seed {seed}: {case}"
        error = np.abs(wide - exact)
        assert (error <= bound(case, exact, problem)).all(), f"seed {seed}: {case}: {error.max()}"
        np.testing.assert_array_equal(storage[outside], before[outside])  # around the view: untouched


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_float32_and_float64_have_pytorchs_bits(function: str, part: str, backend: str) -> None:
    pytest.importorskip("torch")
    for seed in seeds(part, COUNT[function]):
        for dtype in (np.float32, np.float64):
            case = geometry(function, seed, np.dtype(dtype))
            got, expected = case.run(), torch_gradient(case)
            word = np.uint32 if dtype is np.float32 else np.uint64
            assert (got.view(word) == expected.view(word)).all(), f"seed {seed}: {case}"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
def test_halves_are_the_float32_result_rounded_once(
    function: str, dtype: np.dtype[Any], part: str, backend: str
) -> None:
    for seed in seeds(part, 100):
        case = geometry(function, seed, dtype)
        wide = Geometry(
            case.function,
            case.grad_output.astype(np.float32),
            case.input_shape,
            case.indices,
            case.attributes,
        )
        got, expected = case.run(), wide.run().astype(dtype)
        assert (got.view(np.uint16) == expected.view(np.uint16)).all(), f"seed {seed}: {case}"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_whole_numbers_are_exact(function: str, backend: str) -> None:
    """Gradients that every window length divides: no rounding anywhere, so == and not ≈."""
    for seed in range(50):
        case = geometry(function, seed, np.dtype(np.float32))
        problem = problem_of(case)
        lengths = [
            int(n)
            for axis in problem.axes
            for n in (*tables(axis).extent, *(tables(axis).end - tables(axis).start))
        ]
        if case.indices is None and np.lcm.reduce(lengths) ** 2 > 2000:
            continue
        unit = int(np.lcm.reduce(lengths)) ** 3 * abs(problem.divisor or 1) if case.indices is None else 1
        case.grad_output[...] = np.random.default_rng(seed).integers(-8, 9, case.grad_output.shape) * unit
        exact, _ = oracle(case, case.grad_output)
        np.testing.assert_array_equal(case.run().astype(np.float64), exact)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if "adaptive" in f or "max" in f])
def test_sums_are_conserved(function: str) -> None:
    for seed in range(50):
        case = geometry(function, seed, np.dtype(np.float64))
        np.testing.assert_allclose(case.run().sum(), case.grad_output.sum(), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_gradient_is_the_adjoint_of_the_forward(axes: int) -> None:
    """⟨A x, g⟩ = ⟨x, Aᵀ g⟩, with PyTorch's forward as A."""
    torch = pytest.importorskip("torch")
    for seed in range(50):
        case = geometry(f"avg_pool{axes}d_backward", seed, np.dtype(np.float64))
        x = np.random.default_rng(seed).standard_normal(case.input_shape)
        y = getattr(torch.nn.functional, f"avg_pool{axes}d")(torch.from_numpy(x), **case.attributes).numpy()
        left, right = (y * case.grad_output).sum(), (x * case.run()).sum()
        np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nan_and_inf_reach_just_their_cells(function: str, backend: str) -> None:
    for seed in range(20):
        case = geometry(function, seed, np.dtype(np.float32))
        case.grad_output[...] = 1
        flat = np.random.default_rng(seed).integers(0, case.grad_output.size)
        where = np.unravel_index(flat, case.grad_output.shape)
        plain = case.run()
        marked = np.zeros_like(case.grad_output)
        marked[where] = 1
        reach, _ = oracle(case, marked)
        for special in (np.nan, np.inf):
            case.grad_output[where] = special
            got = case.run()
            np.testing.assert_array_equal(~np.isfinite(got), reach != 0)
            np.testing.assert_array_equal(got[reach == 0], plain[reach == 0])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_negative_zero_becomes_positive(function: str, backend: str) -> None:
    case = geometry(function, 1, np.dtype(np.float32))
    case.grad_output[...] = -0.0
    assert not np.signbit(case.run()).any()
