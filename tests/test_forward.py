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
from forwards import NAMES, bits, forward, tensor
from pooltide.kernels import cpu

RNG = np.random.default_rng(2)
X = RNG.standard_normal((2, 3, 7, 11)).astype(np.float32)


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


# function, arguments, keywords, error, what its sentence says
BAD: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "a list": ("avg_pool2d", ([1.0], 3), {}, TypeError, "input is a list; it must be a NumPy array of float32"),
    "None": ("avg_pool2d", (None, 3), {}, TypeError, "input is None; it must be a NumPy array"),
    "ints": ("max_pool2d", (X.astype(int), 3), {}, TypeError, "input has dtype int64; it must be float32, float64"),
    "complex": ("avg_pool2d", (X.astype(complex), 3), {}, TypeError, "input has dtype complex128"),
    "byte order": ("avg_pool2d", (X.astype(">f4"), 3), {}, TypeError, "input has dtype >f4"),
    "masked": ("avg_pool2d", (np.ma.masked_array(X, X > 1), 3), {}, TypeError, "input is a masked array"),
    "rank": ("avg_pool2d", (X[0, 0], 3), {}, ValueError, "input has rank 2, shape (7, 11); it must have rank 3 or 4."),
    "rank 1d": ("max_pool1d", (X, 3), {}, ValueError, "it must have rank 2 or 3."),
    "rank 3d": ("adaptive_avg_pool3d", (X[0], 3), {}, ValueError, "it must have rank 4 or 5."),
    "no cells": ("max_pool2d", (X[..., :0], 3), {}, ValueError, "every spatial dimension must be greater than 0."),
    "adaptive, no cells": ("adaptive_max_pool2d", (X[..., :0], 3), {}, ValueError, "every spatial dimension must"),
    "kernel": ("avg_pool2d", (X, 0), {}, ValueError, "kernel_size has values (0); each must be at least 1."),
    "float kernel": ("avg_pool2d", (X, 3.0), {}, TypeError, "kernel_size is 3.0; it must be an int or a tuple of ints."),
    "bool kernel": ("avg_pool2d", (X, True), {}, TypeError, "kernel_size is True; it must be an int"),
    "no kernel": ("avg_pool2d", (X, None), {}, TypeError, "kernel_size is None; it must be an int"),
    "three": ("avg_pool2d", (X, (3, 3, 3)), {}, ValueError, "kernel_size has 3 values; it must have 1 or 2."),
    "two in 1d": ("max_pool1d", (X[0], (3, 3)), {}, ValueError, "kernel_size has 2 values; it must have 1."),
    "none at all": ("avg_pool2d", (X, ()), {}, ValueError, "kernel_size has 0 values"),
    "wide kernel": ("avg_pool2d", (X, 2**70), {}, ValueError, "it must be smaller than 2**62."),
    "stride": ("max_pool2d", (X, 3, 0), {}, ValueError, "stride has values (0); each must be at least 1."),
    "stride text": ("max_pool2d", (X, 3, "2"), {}, TypeError, "stride is '2'; it must be an int"),
    "padding": ("max_pool2d", (X, 3, 2, 2), {}, ValueError, "padding is 2 on axis H; it must be at most 1, half of"),
    "negative padding": ("max_pool2d", (X, 3, 2, -1), {}, ValueError, "padding has values (-1); each must be at least 0."),
    "dilation": ("max_pool2d", (X, 3), {"dilation": 0}, ValueError, "dilation has values (0); each must be at least 1."),
    "too short": ("avg_pool2d", (X, 8), {}, ValueError, "input has length 7 on axis H; with padding 0 a window of 8"),
    "too short, padded": ("avg_pool3d", (X, (2, 8, 3), 1, 1), {}, ValueError, "input has length 7 on axis H; it must be at least 8, as"),
    "too short, dilated": ("max_pool2d", (X, 3), {"dilation": 4}, ValueError, "a window of 9 cells must fit"),
    "ceil": ("avg_pool2d", (X, 3, 2, 1, 1), {}, TypeError, "ceil_mode is 1; it must be True or False."),
    "count": ("avg_pool2d", (X, 3), {"count_include_pad": 0}, TypeError, "count_include_pad is 0; it must be True or"),
    "divisor": ("avg_pool3d", (X, 3), {"divisor_override": 0}, ValueError, "divisor_override is 0; it must be None or"),
    "float divisor": ("avg_pool2d", (X, 3), {"divisor_override": 2.0}, TypeError, "divisor_override is 2.0; it must be"),
    "wide divisor": ("avg_pool2d", (X, 3), {"divisor_override": 2**63}, ValueError, "a 64-bit int other than 0."),
    "size": ("adaptive_avg_pool2d", (X, -1), {}, ValueError, "output_size has values (-1); each must be at least 0."),
    "float size": ("adaptive_avg_pool2d", (X, (3.0, 2)), {}, TypeError, "output_size is (3.0, 2); it must be an int"),
    "sizes": ("adaptive_max_pool2d", (X, (3, 2, 1)), {}, ValueError, "output_size has 3 values; it must have 1 or 2"),
    "too large": ("adaptive_avg_pool2d", (X, 2**31), {}, ValueError, "the result would have over 2**63 bytes"),
    "flag": ("adaptive_max_pool2d", (X, 3, 1), {}, TypeError, "return_indices is 1; it must be True or False."),
    "out list": ("avg_pool2d", (X, 3), {"out": [0]}, TypeError, "out is a list; it must be a NumPy array of float32, float64, float16 or bfloat16."),
    "out shape": ("avg_pool2d", (X, 3), {"out": np.zeros((2, 3, 3, 2), np.float32)}, ValueError,
                  "out has shape (2, 3, 3, 2); it must be (2, 3, 2, 3)."),
    "out dtype": ("avg_pool2d", (X, 3), {"out": np.zeros((2, 3, 2, 3))}, TypeError,
                  "out has dtype float64; it must be float32, as input has."),
    "read-only": ("avg_pool2d", (X, 3), {"out": np.broadcast_to(np.float32(0), (2, 3, 2, 3))}, ValueError,
                  "out is read-only; it must be writable."),
    "overlapping": ("avg_pool2d", (X, 3), {"out": np.lib.stride_tricks.as_strided(np.zeros(99, np.float32), (2, 3, 2, 3), (72, 24, 8, 4))},
                    ValueError, "which lets cells share memory; each cell must have its own element."),
    "no pair": ("max_pool2d", (X, 3), {"out": np.zeros((2, 3, 2, 3), np.float32), "return_indices": True}, TypeError,
                "with return_indices it must be a pair of NumPy arrays."),
    "indices' dtype": ("max_pool2d", (X, 3), {"out": (np.zeros((2, 3, 2, 3), np.float32), np.zeros((2, 3, 2, 3), np.int32)), "return_indices": True},
                       TypeError, "out[1] has dtype int32; it must be int64."),
}  # fmt: skip


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
