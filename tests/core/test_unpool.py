"""Max unpooling and its gradient as NumPy functions: PyTorch's bits, layouts, arguments, bad indices."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import pooltide
from forwards import bits, tensor
from geometries import random_view
from pooltide.kernels import cpu
from shares import fast_some

RNG = np.random.default_rng(21)
DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
each_rank = pytest.mark.parametrize("axes", [1, 2, 3])


def functions(axes: int) -> tuple[Any, Any]:
    return getattr(pooltide, f"max_unpool{axes}d"), getattr(pooltide, f"max_unpool{axes}d_backward")


def pooled(axes: int, k: int, s: int, p: int, dtype: Any, batch: tuple[int, ...] = (2, 3)) -> tuple[Any, Any]:
    x = RNG.standard_normal((*batch, *(9, 7, 8)[:axes])).astype(dtype)
    values, indices = getattr(pooltide, f"max_pool{axes}d")(x, k, s, p, return_indices=True)
    return values, indices


@each_rank
@pytest.mark.parametrize("dtype", fast_some(DTYPES, 2), ids=str)
def test_unpools_and_gradients_have_pytorch_s_bits(axes: int, dtype: Any) -> None:
    unpool, backward = functions(axes)
    theirs = getattr(F, f"max_unpool{axes}d")
    wide = torch.float64 if dtype == np.float64 else torch.float32
    for k, s, p, batch in itertools.product((1, 2, 3), (1, 2, 3), (0, 1), ((2, 3), (3,))):
        if 2 * p > k:
            continue
        values, indices = pooled(axes, k, s, p, dtype, batch)
        sizes = [None, [n + 1 for n in (9, 7, 8)[:axes]]] if s > 1 else [None]
        for size in sizes:
            x = tensor(values).to(wide).requires_grad_()
            try:
                want = theirs(x, tensor(indices), k, s, p, size)
            except (ValueError, RuntimeError):  # the plane of this size holds no such index, or is refused
                continue
            got = unpool(values, indices, k, s, p, size)
            np.testing.assert_array_equal(bits(got), bits(want.detach()))
            assert got.dtype == dtype
            g = RNG.standard_normal(got.shape).astype(dtype)
            want.backward(tensor(g).to(wide))
            for index in (np.int32, np.int64):
                back = backward(g, values.shape, indices.astype(index), k, s, p, size)
                np.testing.assert_array_equal(bits(back), bits(x.grad))
            np.testing.assert_array_equal(bits(backward(g, values, indices, k, s, p, size)), bits(x.grad))


@each_rank
def test_of_equal_indices_the_last_counts_and_zeros_keep_their_sign(axes: int) -> None:
    unpool, backward = functions(axes)
    shape = (1, 1, *[1] * (axes - 1), 4)
    x = np.array([1, 2, -0.0, 3], np.float32).reshape(shape)
    at = np.array([0, 0, 2, 1]).reshape(shape)
    y = unpool(x, at, 2)
    assert y.ravel()[:4].tolist() == [2, 3, 0, 0]
    assert np.signbit(y.ravel()[2])
    assert not y.ravel()[4:].any()
    assert backward(y, shape, at, 2).ravel().tolist() == [2, 2, 0, 3]


@each_rank
def test_any_layout_gives_the_same(axes: int, monkeypatch: Any) -> None:
    unpool, backward = functions(axes)
    values, indices = pooled(axes, 2, 2, 0, np.float32)
    more = (2, 2, 0, (9, 7, 8)[:axes])
    want = unpool(values, indices, *more)
    g = RNG.standard_normal(want.shape).astype(np.float32)
    gradient = backward(g, values.shape, indices, *more)

    def last(a: Any) -> Any:
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1)

    def view(a: Any) -> Any:
        made = random_view(RNG, a.shape, a.dtype)
        made[...] = a
        return made

    for lay in (np.ascontiguousarray, last, view):
        for backend in ("cpu", "reference"):
            monkeypatch.setenv("POOLTIDE_BACKEND", backend)
            out = lay(np.full_like(want, np.nan))
            assert unpool(lay(values), lay(indices), *more, out=out) is out
            np.testing.assert_array_equal(out, want)
            back = lay(np.full_like(values, np.nan))
            assert backward(lay(g), values.shape, lay(indices), *more, out=back) is back
            np.testing.assert_array_equal(back, gradient)


def test_threads_change_nothing() -> None:
    x = RNG.standard_normal((16, 32, 64, 64)).astype(np.float32)
    at = RNG.integers(0, 128 * 128, x.shape)
    before, found = pooltide.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            pooltide.set_num_threads(threads)
            found.append(pooltide.max_unpool2d(x, at, 2))
    finally:
        pooltide.set_num_threads(before)
    assert all((y == found[0]).all() for y in found)


@pytest.mark.skipif(not cpu.BUILT, reason="needs the extension")
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("bad", [-1, 77, 2**40])
def test_an_index_outside_the_plane_raises(backend: str, bad: int, monkeypatch: Any) -> None:
    monkeypatch.setenv("POOLTIDE_BACKEND", backend)
    at = np.zeros((2, 3, 3, 5), np.int64)
    at[1, 2, 0, 4] = bad
    x = np.ones(at.shape, np.float32)
    size = (7, 11)
    sentence = rf"indices\[1, 2, 0, 4\] is {bad}; it must be 0 to 76, inside the 7×11 plane"
    with pytest.raises(IndexError, match=f"max_unpool2d: {sentence}"):
        pooltide.max_unpool2d(x, at, 3, 2, output_size=size)
    with pytest.raises(IndexError, match=f"max_unpool2d_backward: {sentence}"):
        pooltide.max_unpool2d_backward(np.ones((2, 3, *size), np.float32), x, at, 3, 2, output_size=size)


def test_an_index_outside_a_row_raises() -> None:
    at = np.array([[0, 7]])
    with pytest.raises(IndexError, match=r"indices\[0, 1\] is 7; it must be 0 to 6, inside the row of 7\."):
        pooltide.max_unpool1d(np.ones((1, 2), np.float32), at, 4, 3)


X, AT = np.ones((2, 3, 3, 5), np.float32), np.zeros((2, 3, 3, 5), np.int64)
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no array": ({"input": 7}, TypeError, "input is an int; it must be a NumPy array"),
    "dtype": ({"input": X.astype(np.int8)}, TypeError, "input has dtype int8; it must be float32"),
    "index dtype": ({"indices": AT.astype(np.uint8)}, TypeError, "indices has dtype uint8; it must be int32"),
    "no indices": ({"indices": None}, TypeError, "indices is None; it must be a NumPy array"),
    "rank": ({"input": X[0, 0], "indices": AT[0, 0]}, ValueError, "input has rank 2"),
    "indices' shape": ({"indices": AT[:1]}, ValueError, "indices has shape (1, 3, 3, 5); it must be (2, 3, 3, 5)"),
    "kernel": ({"kernel_size": 0}, ValueError, "kernel_size has values (0); each must be at least 1"),
    "kernel's length": ({"kernel_size": (2, 2, 2)}, ValueError, "kernel_size has 3 values; it must have 1 or 2"),
    "stride": ({"stride": "2"}, TypeError, "stride is '2'; it must be an int or a tuple of ints"),
    "padding": ({"padding": -1}, ValueError, "padding has values (-1); each must be at least 0"),
    "size": ({"output_size": (9, 10)}, ValueError, "output_size is 9 on axis H; it must be 5 to 7"),
    "size's length": ({"output_size": (6,)}, ValueError, "output_size has 1 values; it must have 0, 2 or 4"),
    "too much padding": ({"padding": 4}, ValueError, "output_size is -2 on axis H; it must be at least 1"),
    "out's shape": ({"out": X}, ValueError, "out has shape (2, 3, 3, 5); it must be (2, 3, 6, 10)"),
    "out's dtype": ({"out": np.empty((2, 3, 6, 10))}, TypeError, "out has dtype float64; it must be float32"),
    "empty plane": ({"input": X[:, :, :0], "indices": AT[:, :, :0]}, ValueError, "every spatial dimension"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_raise_a_sentence(name: str) -> None:
    change, error, sentence = BAD[name]
    given: dict[str, Any] = {"input": X, "indices": AT, "kernel_size": 2} | change
    with pytest.raises(error) as caught:
        pooltide.max_unpool2d(**given)
    assert str(caught.value).startswith("max_unpool2d: ")
    assert sentence in str(caught.value)


def test_bad_arguments_of_a_gradient_raise_a_sentence() -> None:
    g = np.ones((2, 3, 6, 10), np.float32)
    with pytest.raises(ValueError, match=r"grad_output has shape \(2, 3, 6, 10\); it must be \(2, 3, 5, 7\)"):
        pooltide.max_unpool2d_backward(g, X, AT, 3, 1)
    with pytest.raises(ValueError, match=r"out has shape \(2, 3, 6, 10\); it must be \(2, 3, 3, 5\)"):
        pooltide.max_unpool2d_backward(g, X, AT, 2, out=g.copy())


def test_an_empty_batch_and_sizes_of_every_form() -> None:
    assert pooltide.max_unpool2d(X[:0], AT[:0], 2).shape == (0, 3, 6, 10)
    want = pooltide.max_unpool2d(X, AT, 2, output_size=(7, 11))
    for size in ([7, 11], np.array([7, 11]), (np.int64(7), 11), (2, 3, 7, 11)):
        np.testing.assert_array_equal(pooltide.max_unpool2d(X, AT, 2, output_size=size), want)


def test_out_may_share_memory_with_the_indices() -> None:
    block = np.zeros(200, np.int64)
    at = block[:90].reshape(2, 3, 3, 5)
    at[...] = RNG.permutation(90).reshape(at.shape) % 60
    want = pooltide.max_unpool2d(X, at.copy(), 2)
    out = block.view(np.float32)[: want.size].reshape(want.shape)
    np.testing.assert_array_equal(pooltide.max_unpool2d(X, at, 2, out=out), want)
