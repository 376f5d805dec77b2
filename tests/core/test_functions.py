"""The NumPy functions: what they take, what they give, and what they say."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pooltide
from geometries import DTYPES, FUNCTIONS, geometry
from hostile.arguments import odd_values

G = np.random.default_rng(2).standard_normal((2, 3, 4, 6)).astype(np.float32)
SHAPE = (2, 3, 7, 11)
INDICES = np.random.default_rng(3).integers(0, 77, (2, 3, 4, 6))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shape_dtype_and_layout_of_the_result(function: str, dtype: np.dtype[Any]) -> None:
    case = geometry(function, 7, dtype)
    got = case.run()
    assert got.shape == case.input_shape
    assert got.dtype == dtype
    assert got.flags.c_contiguous
    assert got.flags.writeable


@pytest.mark.parametrize("function", FUNCTIONS)
def test_input_may_be_an_array_or_its_shape(function: str) -> None:
    case = geometry(function, 8, np.dtype(np.float32))
    first = case.run()
    run = getattr(pooltide, function)
    rest = () if case.indices is None else (case.indices,)
    for given in (np.zeros(case.input_shape, np.int8), list(case.input_shape), np.zeros(case.input_shape)):
        np.testing.assert_array_equal(run(case.grad_output, given, *rest, **case.attributes), first)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_unbatched_is_a_batch_of_one(function: str) -> None:
    case = geometry(function, 9, np.dtype(np.float32))
    if len(case.input_shape) == case.axes + 1:
        case = geometry(function, 10, np.dtype(np.float32))
    assert len(case.input_shape) == case.axes + 2
    whole = case.run()
    run = getattr(pooltide, function)
    for n in range(case.input_shape[0]):
        rest = () if case.indices is None else (case.indices[n],)
        one = run(case.grad_output[n], case.input_shape[1:], *rest, **case.attributes)
        np.testing.assert_array_equal(one, whole[n])


@pytest.mark.parametrize("batch", [(0, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_batches_and_channels(batch: tuple[int, int], dtype: np.dtype[Any]) -> None:
    g2, g3 = np.zeros((*batch, 4, 6), dtype), np.zeros((*batch, 2, 3, 5), dtype)
    two, three = (*batch, 7, 11), (*batch, 5, 7, 11)
    for got, shape in (
        (pooltide.avg_pool2d_backward(g2, two, 3, 2, 1), two),
        (pooltide.adaptive_avg_pool3d_backward(g3, three), three),
        (pooltide.adaptive_max_pool2d_backward(g2, two, np.zeros(g2.shape, int)), two),
        (pooltide.adaptive_max_pool3d_backward(g3, three, np.zeros(g3.shape, np.int32)), three),
    ):
        assert got.shape == shape
        assert got.dtype == dtype


def test_an_empty_plane_of_outputs_gives_zeros() -> None:
    got = pooltide.adaptive_max_pool2d_backward(
        np.zeros((2, 3, 0, 6), np.float32), SHAPE, np.zeros((2, 3, 0, 6), int)
    )
    assert got.shape == SHAPE
    assert not got.any()


def test_out_may_be_the_gradient_itself() -> None:
    for seed in range(3):  # the first call is planned, the next ones are remembered
        g = np.random.default_rng(seed).standard_normal((2, 3, 5, 7)).astype(np.float32)
        expected = pooltide.avg_pool2d_backward(g.copy(), g.shape, 3, 1, 1)
        got = pooltide.avg_pool2d_backward(g, g.shape, 3, 1, 1, out=g)
        assert got is g
        np.testing.assert_array_equal(got, expected)


def test_arrays_that_are_not_aligned() -> None:
    raw = np.zeros(G.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(G.shape)
    raw[...] = G
    assert not raw.flags.aligned
    np.testing.assert_array_equal(
        pooltide.avg_pool2d_backward(raw, SHAPE, 3, 2, 1), pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1)
    )
    out = np.zeros(4 * 462 + 1, np.uint8)[1:].view(np.float32).reshape(SHAPE)
    pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1, out=out)
    np.testing.assert_array_equal(out, pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1))


def test_fields_of_a_record_are_arrays_too() -> None:
    record = np.zeros(G.shape, [("a", np.int8), ("g", np.float32)])
    record["g"] = G
    np.testing.assert_array_equal(
        pooltide.avg_pool2d_backward(record["g"], SHAPE, 3, 2, 1),
        pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1),
    )


def test_indices_outside_their_window_are_honoured() -> None:
    indices = np.full((2, 3, 4, 6), 76)
    got = pooltide.adaptive_max_pool2d_backward(G, SHAPE, indices)
    expected = np.zeros(SHAPE, np.float32)
    for q in np.ndindex(4, 6):
        expected[:, :, 6, 10] += G[..., q[0], q[1]]
    np.testing.assert_array_equal(got, expected)


AVG = "avg_pool2d_backward"
MAX = "adaptive_max_pool2d_backward"
BAD: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "a list": (AVG, ([1.0], SHAPE, 3), {}, TypeError, "grad_output is a list; it must be a NumPy array"),
    "None": (AVG, (None, SHAPE, 3), {}, TypeError, "grad_output is None; it must be a NumPy array"),
    "int gradient": (AVG, (G.astype(int), SHAPE, 3, 2, 1), {}, TypeError,
                     "grad_output has dtype int64; it must be float32, float64, float16 or bfloat16."),
    "complex": (AVG, (G.astype(complex), SHAPE, 3), {}, TypeError, "grad_output has dtype complex128"),
    "byte order": (AVG, (G.astype(">f4"), SHAPE, 3), {}, TypeError, "grad_output has dtype >f4"),
    "input": (AVG, (G, "shape", 3), {}, TypeError, "input is 'shape'; it must be the forward's input, or its shape"),
    "float shape": (AVG, (G, (2, 3, 7.0, 11), 3), {}, TypeError, "input is (2, 3, 7.0, 11)"),
    "bool shape": (AVG, (G, (2, 3, True, 11), 3), {}, TypeError, "input is (2, 3, True, 11)"),
    "rank": (AVG, (G[0, 0], (7, 11), 3), {}, ValueError, "grad_output has rank 2, shape (4, 6)"),
    "ranks differ": (AVG, (G, (3, 7, 11), 3), {}, ValueError, "grad_output has rank 4; it must be 3, as input has."),
    "batch": (AVG, (G, (5, 3, 7, 11), 3, 2, 1), {}, ValueError, "grad_output has N, C = 2, 3; they must be 5, 3"),
    "forward": (AVG, (G, (2, 3, 11, 7), 3, 2, 1), {}, ValueError, "grad_output has plane (4, 6); the forward"),
    "zero plane": (AVG, (G[..., :0], SHAPE, 3), {}, ValueError, "every spatial dimension must be greater than 0"),
    "negative": (AVG, (G, (2, -3, 7, 11), 3, 2, 1), {}, ValueError, "input has shape (2, -3, 7, 11)"),
    "kernel": (AVG, (G, SHAPE, 0), {}, ValueError, "kernel_size has values (0); each must be at least 1."),
    "float kernel": (AVG, (G, SHAPE, 3.0, 2, 1), {}, TypeError, "kernel_size is 3.0; it must be an int"),
    "bool kernel": (AVG, (G, SHAPE, True), {}, TypeError, "kernel_size is True; it must be an int"),
    "no kernel": (AVG, (G, SHAPE, None), {}, TypeError, "kernel_size is None; it must be an int or a tuple of ints."),
    "stride": (AVG, (G, SHAPE, 3, 0), {}, ValueError, "stride has values (0); each must be at least 1."),
    "padding": (AVG, (G, SHAPE, 3, 2, 2), {}, ValueError, "padding is 2 on axis H; it must be at most 1, half of"),
    "three": (AVG, (G, SHAPE, (3, 3, 3)), {}, ValueError, "kernel_size has 3 values; it must have 1 or 2."),
    "ceil": (AVG, (G, SHAPE, 3, 2, 1, 1), {}, TypeError, "ceil_mode is 1; it must be True or False."),
    "divisor": (AVG, (G, SHAPE, 3, 2, 1), {"divisor_override": 0}, ValueError, "divisor_override is 0; it must be None"),
    "wide divisor": (AVG, (G, SHAPE, 3, 2, 1), {"divisor_override": 2**63}, ValueError, "divisor_override is 9223"),
    "too large": (AVG, (G, (2, 3, 2**40, 2**40), 3), {}, ValueError, "over 2**63 bytes"),
    "out shape": (AVG, (G, SHAPE, 3, 2, 1), {"out": np.zeros((2, 3, 11, 7), np.float32)}, ValueError,
                  "out has shape (2, 3, 11, 7); it must be (2, 3, 7, 11), as input has."),
    "out dtype": (AVG, (G, SHAPE, 3, 2, 1), {"out": np.zeros(SHAPE)}, TypeError, "out has dtype float64; it must be float32, as grad_output has."),
    "out list": (AVG, (G, SHAPE, 3, 2, 1), {"out": [0]}, TypeError, "out is a list"),
    "read-only": (AVG, (G, SHAPE, 3, 2, 1), {"out": np.broadcast_to(np.float32(0), SHAPE)}, ValueError,
                  "out is read-only; it must be writable."),
    "overlapping": (AVG, (G, SHAPE, 3, 2, 1),
                    {"out": np.lib.stride_tricks.as_strided(np.zeros(2000, np.float32), SHAPE, (924, 308, 40, 4))},
                    ValueError, "which lets cells share memory"),
    "bytes overlap": (AVG, (G, SHAPE, 3, 2, 1),
                      {"out": np.lib.stride_tricks.as_strided(np.zeros(2000, np.float32), SHAPE, (924, 308, 42, 4))},
                      ValueError, "bytes; it must be free of overlap"),
    "masked": (AVG, (np.ma.masked_array(G, G > 1), SHAPE, 3, 2, 1), {}, TypeError, "grad_output is a masked array"),
    "wide kernel": (AVG, (G[..., :1, :1], SHAPE, 2**70), {"padding": 2**69}, ValueError, "kernel_size is 118"),
    "empty plane": (MAX, (G, (2, 3, 0, 11), INDICES), {}, IndexError, "the 0×11 plane has no cell that it could name"),
    "float indices": (MAX, (G, SHAPE, G), {}, TypeError, "indices has dtype float32; it must be int32 or int64."),
    "no indices": (MAX, (G, SHAPE, None), {}, TypeError, "indices is None; it must be a NumPy array of int32 or int64"),
    "indices' shape": (MAX, (G, SHAPE, INDICES[:1]), {}, ValueError, "indices has shape (1, 3, 4, 6)"),
    "index": (MAX, (G, SHAPE, INDICES + 77), {}, IndexError, "it must be 0 to 76, inside the 7×11 plane (144 such"),
    "negative index": (MAX, (G, SHAPE, np.where(INDICES[0, 1, 2, 3] == INDICES, -5, 0)), {}, IndexError, "is -5"),
    "wide index": (MAX, (G, SHAPE, INDICES + 2**32), {}, IndexError, "indices[0, 0, 0, 0] is 4294967"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_raise_a_sentence(name: str) -> None:
    function, args, kwargs, error, sentence = BAD[name]
    for _ in range(2):  # the second time, from whatever was kept of the first
        with pytest.raises(error) as caught:
            getattr(pooltide, function)(*args, **kwargs)
        assert str(caught.value).startswith(f"{function}: ")
        assert sentence in str(caught.value)


def test_an_argument_equal_to_a_good_one_is_still_judged_by_its_type() -> None:
    assert pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1) is not None
    for args in (
        (G, SHAPE, 3.0, 2, 1),
        (G, SHAPE, 3, 2, True),
        (G, (2, 3, 7.0, 11), 3, 2, 1),
        (G, SHAPE, 3, 2, 1, 0),
    ):
        with pytest.raises(TypeError):
            pooltide.avg_pool2d_backward(*args)  # type: ignore[arg-type]


def test_out_may_be_the_indices() -> None:
    for seed in range(3):
        g = np.random.default_rng(seed).standard_normal((1, 1, 7, 11))
        indices = np.random.default_rng(seed + 9).integers(0, 77, g.shape)
        expected = pooltide.adaptive_max_pool2d_backward(g, g.shape, indices.copy())
        got = pooltide.adaptive_max_pool2d_backward(g, g.shape, indices, out=indices.view(np.float64))
        np.testing.assert_array_equal(got, expected)


def test_a_remembered_call_is_judged_anew_by_what_memory_it_gets() -> None:
    expected = pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1)
    for _ in range(2):
        np.testing.assert_array_equal(
            pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1, out=expected.copy()), expected
        )
    odd = np.zeros(4 * 462 + 1, np.uint8)[1:].view(np.float32).reshape(SHAPE)
    np.testing.assert_array_equal(pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1, out=odd), expected)
    locked = expected.copy()
    locked.setflags(write=False)
    with pytest.raises(ValueError, match="out is read-only"):
        pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1, out=locked)


def test_subclasses_are_arrays() -> None:
    class Mine(np.ndarray):
        def __array_finalize__(self, other: Any) -> None:
            pass

    expected = pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1)
    np.testing.assert_array_equal(pooltide.avg_pool2d_backward(G.view(Mine), SHAPE, 3, 2, 1), expected)


@pytest.mark.parametrize("divisor", [2**62 + 2**38 + 1, -(2**63), 2**63 - 1, 2**24 + 1])
def test_a_wide_divisor_is_rounded_once(divisor: int) -> None:
    torch = pytest.importorskip("torch")
    g = (G * 2.0**60).astype(np.float32)
    x = torch.zeros(SHAPE, requires_grad=True)
    y = torch.nn.functional.avg_pool2d(x, 3, 2, 1, divisor_override=divisor)
    y.backward(torch.from_numpy(g))
    got = pooltide.avg_pool2d_backward(g, SHAPE, 3, 2, 1, divisor_override=divisor)
    np.testing.assert_array_equal(got, x.grad.numpy())


def _said_by_set_num_threads(n: Any) -> str | None:
    try:
        pooltide.set_num_threads(n)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def test_threads() -> None:
    assert pooltide.get_num_threads() >= 1
    pooltide.set_num_threads(7)
    assert pooltide.get_num_threads() == 7
    for label, wrong in odd_values("count", 2):
        said = _said_by_set_num_threads(wrong)
        assert said is None or re.match("set_num_threads: n is .*; it must be .*1 to 4096", said), label
        assert said is None or pooltide.get_num_threads() == 7, label
        assert type(pooltide.get_num_threads()) is int, label
        assert 1 <= pooltide.get_num_threads() <= 4096, label
        pooltide.set_num_threads(7)
    for good in (1, 4096, np.int8(3), np.array(2), np.uint64(4)):
        pooltide.set_num_threads(good)  # type: ignore[arg-type]
        assert pooltide.get_num_threads() == good
        pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1)
    for wrong in (0, -1, 4097, 2**64, 1.5, True, "2", None, [2], np.timedelta64(2, "D")):
        with pytest.raises((TypeError, ValueError), match="set_num_threads: n is"):
            pooltide.set_num_threads(wrong)  # type: ignore[arg-type]


def test_numpy_ints_are_ints() -> None:
    a = pooltide.avg_pool2d_backward(G, tuple(np.array(SHAPE)), np.int64(3), np.int32(2), (np.int8(1), 1))
    np.testing.assert_array_equal(a, pooltide.avg_pool2d_backward(G, SHAPE, 3, 2, 1))
    assert ml_dtypes.bfloat16 is not None


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if "max" in name])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_bad_index_touches_nothing_but_out(function: str, dtype: np.dtype[Any]) -> None:
    """A cell outside `out` keeps its canary, whatever the index, and the inputs stay as they were."""
    for seed in range(6):
        case = geometry(function, seed, dtype)
        cells = int(np.prod(case.input_shape[-case.axes :]))
        memory = np.full((*case.input_shape[:-1], 3 * case.input_shape[-1] + 40), 7, dtype)
        inside = np.zeros(memory.shape, bool)
        out, mark = memory[..., 20:-20:3], inside[..., 20:-20:3]
        if seed % 2:  # contiguous: kernels write to it in place
            middle = slice(16, 16 + out.size)
            out, mark = (array.ravel()[middle].reshape(case.input_shape) for array in (memory, inside))
        mark[...] = True
        for bad in (-1, cells, cells + 1, -cells, 2**31 - 1, -(2**31)):
            indices = case.indices.copy("K")
            indices.flat[-1] = bad
            grad, given = case.grad_output.copy("K"), indices.copy("K")
            for _ in range(2):
                with pytest.raises(
                    IndexError, match=rf"{function}: indices\[.*\] is {bad}; it must be 0 to {cells - 1},"
                ):
                    getattr(pooltide, function)(grad, case.input_shape, given, **case.attributes, out=out)
            assert (memory[~inside] == 7).all(), (seed, bad)
            np.testing.assert_array_equal(grad, case.grad_output)
            np.testing.assert_array_equal(given, indices)


def test_the_documents_say_what_out_holds_after_a_bad_index() -> None:
    for function in (name for name in FUNCTIONS if "max" in name):
        text = " ".join((getattr(pooltide, function).__doc__ or "").split())
        assert "What `out` holds then is unspecified; nothing outside `out` is touched." in text
