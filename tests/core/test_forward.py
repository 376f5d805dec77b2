"""The forwards as NumPy functions: exact answers, arguments, layouts, outputs, and the way back."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import pooltide
from bad_pools import BAD, X
from forwards import NAMES, bits, forward, tensor
from pooltide.kernels import cpu

RNG = np.random.default_rng(2)


def test_an_average_of_integers_is_exact() -> None:
    x = RNG.integers(-50, 50, (2, 3, 7, 11)).astype(np.float32) * 6
    expected = (
        x[..., :6:2, :9]
        + x[..., 1::2, :9]
        + x[..., :6:2, 1:10]
        + x[..., 1::2, 1:10]
        + x[..., :6:2, 2:]
        + x[..., 1::2, 2:]
    ) / 6
    np.testing.assert_array_equal(pooltide.avg_pool2d(x, (2, 3), (2, 1)), expected)
    assert (expected == np.round(expected)).all()


def test_adaptive_windows_overlap_where_the_size_does_not_divide() -> None:
    x = np.array([[[6.0, 12, 18, 24, 30]]])
    np.testing.assert_array_equal(pooltide.adaptive_avg_pool1d(x, 3), [[[9, 18, 27]]])
    values, indices = pooltide.adaptive_max_pool1d(x, 3, return_indices=True)
    np.testing.assert_array_equal(values, [[[12, 24, 30]]])
    np.testing.assert_array_equal(indices, [[[1, 3, 4]]])
    assert indices.dtype == np.int64


def test_the_first_maximum_wins_and_the_last_nan() -> None:
    values, indices = pooltide.max_pool1d(np.array([[1.0, 3, 3, -0.0, 0.0, 0.0]]), 3, return_indices=True)
    np.testing.assert_array_equal(values, [[3, 0]])
    np.testing.assert_array_equal(indices, [[1, 3]])
    assert np.signbit(values[0, 1])
    values, indices = pooltide.max_pool1d(
        np.array([[1.0, np.nan, 9, np.nan, np.inf]]), 5, return_indices=True
    )
    assert np.isnan(values).all()
    assert indices.tolist() == [[3]]


def test_nothing_but_minus_infinity_gives_the_first_cell_inside_the_padding() -> None:
    x = np.full((1, 1, 4), -np.inf)
    values, indices = pooltide.max_pool1d(x, 3, 1, 1, return_indices=True)
    assert (values == -np.inf).all()
    assert indices.tolist() == [[[0, 0, 1, 2]]]


def test_a_window_that_dilation_leaves_between_the_cells_is_minus_infinity() -> None:
    x = np.ones((1, 1, 3))
    assert (
        pooltide.max_pool1d(x, 2, 1, 1, 4).tolist()
        == F.max_pool1d(tensor(x), 2, 1, 1, 4).tolist()
        == [[[-np.inf]]]
    )


@pytest.mark.parametrize("name", NAMES)
def test_names_order_and_defaults_are_those_of_pytorch(name: str) -> None:
    ours = [(p.name, p.default) for p in inspect.signature(getattr(pooltide, name)).parameters.values()]
    assert ours[-1] == ("out", None)
    theirs: Any = getattr(F, name)
    if "max" in name:
        theirs = getattr(F, f"{name}_with_indices")
    if inspect.isbuiltin(theirs):  # written in C: PyTorch's documented order
        strided = [
            ("kernel_size", inspect.Parameter.empty),
            ("stride", None),
            ("padding", 0),
            ("ceil_mode", False),
        ]
        strided += [("count_include_pad", True)] + (
            [("divisor_override", None)] if name != "avg_pool1d" else []
        )
        expected = strided if "adaptive" not in name else [("output_size", inspect.Parameter.empty)]
    else:
        expected = [(p.name, p.default) for p in inspect.signature(theirs).parameters.values()][1:]
    assert ours[1:-1] == expected
    assert ours[0] == ("input", inspect.Parameter.empty)


@pytest.mark.parametrize("name", NAMES)
def test_any_strides_batched_or_not_and_out_have_the_same_bits(name: str) -> None:
    for seed in range(24):
        call = forward(name, 500 + seed, largest=17)
        plain = np.ascontiguousarray(call.x)
        largest = "max" in name
        more = {"return_indices": True} if largest else {}
        function = getattr(pooltide, name)
        expected = function(plain, **call.arguments, **more)
        values, places = expected if largest else (expected, None)
        for _ in range(2):  # the second call is remembered
            poisoned = np.full(values.shape[::-1], np.nan).astype(values.dtype).T
            given: Any = (poisoned, np.full(values.shape, -1)) if largest else poisoned
            found = call.run(**more, out=given)
            assert found == given if largest else found is given
            np.testing.assert_array_equal(bits(poisoned), bits(values), err_msg=str(call))
            assert not largest or (given[1] == places).all()


@pytest.mark.parametrize("name", ["avg_pool2d", "max_pool2d"])
def test_a_result_lies_as_its_input_does(name: str) -> None:
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(X, 1, -1)), -1, 1)
    got = getattr(pooltide, name)(last, 2)
    assert np.moveaxis(got, 1, -1).flags.c_contiguous
    assert getattr(pooltide, name)(X, 2).flags.c_contiguous
    np.testing.assert_array_equal(got, getattr(pooltide, name)(X, 2))


def test_out_may_be_the_input_itself() -> None:
    for _ in range(3):
        x = X.copy()
        expected = pooltide.avg_pool2d(x, 3, 1, 1)
        assert pooltide.avg_pool2d(x, 3, 1, 1, out=x) is x
        np.testing.assert_array_equal(x, expected)


def test_arrays_that_are_not_aligned() -> None:
    raw = np.zeros(X.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(X.shape)
    raw[...] = X
    out = np.zeros(2 * 3 * 7 * 11 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(X.shape)
    np.testing.assert_array_equal(pooltide.avg_pool2d(raw, 3, 1, 1, out=out), pooltide.avg_pool2d(X, 3, 1, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(0, 3, 7, 11), (2, 0, 7, 11), (0, 7, 11)])
def test_empty_batches(shape: tuple[int, ...], dtype: Any) -> None:
    x = np.zeros(shape, dtype)
    values, indices = pooltide.max_pool2d(x, 3, 2, 1, return_indices=True)
    assert values.shape == indices.shape == pooltide.avg_pool2d(x, 3, 2, 1).shape == (*shape[:-2], 4, 6)
    assert pooltide.adaptive_avg_pool2d(x, 1).shape == (*shape[:-2], 1, 1)
    assert values.dtype == dtype


def test_adaptive_sizes_may_be_none_or_zero() -> None:
    np.testing.assert_array_equal(
        pooltide.adaptive_avg_pool2d(X, (None, 5)), pooltide.adaptive_avg_pool2d(X, (7, 5))
    )
    np.testing.assert_array_equal(pooltide.adaptive_max_pool2d(X, None), X)
    assert pooltide.adaptive_avg_pool2d(X, 0).shape == (2, 3, 0, 0)


def test_the_mean_of_a_plane_is_near_pytorch_s() -> None:
    x = RNG.standard_normal((5, 7, 53, 61)).astype(np.float32)
    got = pooltide.adaptive_avg_pool2d(x, 1)
    bound = 53 * 61 * 2.0**-24 * np.abs(x).mean((2, 3), keepdims=True)
    assert (np.abs(got - F.adaptive_avg_pool2d(tensor(x), 1).numpy()) <= bound).all()
    assert (np.abs(got - x.astype(np.float64).mean((2, 3), keepdims=True)) <= bound / 16).all()


def test_the_reference_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = pooltide.max_pool2d(X, 3, 2, 1)
    monkeypatch.setenv("POOLTIDE_BACKEND", "reference")
    monkeypatch.setattr(cpu, "run", None)
    np.testing.assert_array_equal(pooltide.max_pool2d(X, 3, 2, 1), expected)
    monkeypatch.setenv("POOLTIDE_BACKEND", "abacus")
    with pytest.raises(RuntimeError, match="backend 'abacus' is unknown; known are cpu, reference"):
        pooltide.max_pool2d(X, 3, 2, 1)


@pytest.mark.parametrize("name", [n for n in NAMES if "max" in n])
def test_there_and_back_gives_the_gradient_of_pytorch(name: str) -> None:
    for seed in range(0, 60, 4):  # float32
        call = forward(name, 700 + seed)
        x = np.nan_to_num(call.x, nan=1.0)
        values, indices = getattr(pooltide, name)(x, **call.arguments, return_indices=True)
        g = np.random.default_rng(seed).standard_normal(values.shape).astype(np.float32)
        asked = {} if "adaptive" in name else call.arguments
        ours = getattr(pooltide, f"{name}_backward")(g, x.shape, indices=indices, **asked)
        leaf = tensor(x).requires_grad_()
        pooled = getattr(F, name)(leaf, **call.arguments)
        np.testing.assert_array_equal(bits(values), bits(pooled.detach()))
        (theirs,) = torch.autograd.grad(pooled, leaf, tensor(g))
        np.testing.assert_array_equal(bits(ours), bits(theirs), err_msg=str(call))


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_raise_a_sentence(name: str) -> None:
    function, args, kwargs, error, sentence = BAD[name]
    if function == "avg_pool3d":
        args = (X[None], *args[1:])
    for _ in range(2):
        with pytest.raises(error) as caught:
            getattr(pooltide, function)(*args, **kwargs)
        assert str(caught.value).startswith(f"{function}: ")
        assert sentence in str(caught.value)


def test_an_argument_equal_to_a_good_one_is_still_judged_by_its_type() -> None:
    assert pooltide.max_pool2d(X, 3, 2, 1) is not None
    for bad in ((3.0, 2, 1), (3, 2, True), ((3, 3.0), 2, 1), (3, 2, 1, True), (3, 2, 1, 1, 0)):
        with pytest.raises(TypeError):
            pooltide.max_pool2d(X, *bad)
