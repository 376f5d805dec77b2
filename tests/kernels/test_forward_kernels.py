"""The compiled forwards give PyTorch's bits and the reference's: every instruction set, thread count, layout."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pooltide
from forwards import DTYPES, NAMES, Forward, bits, forward
from pooltide import _native
from pooltide.kernels import reference
from shares import fast_some

THREADS = (1, 2, 7)


def compute(call: Forward, **more: Any) -> tuple[Any, Any]:
    if "max" in call.name:
        values, places = call.run(return_indices=True, **more)
        return values, places
    return call.run(**more), None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_random_forwards_have_the_bits_of_pytorch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "run", None)  # the kernels alone
    compared = 0
    for seed in range(300):
        call = forward(
            name, seed, least=7 if name == "avg_pool3d" else 1
        )  # there no kernel may exceed its axis
        _native.use_instruction_set(_native.instruction_sets()[seed % len(_native.instruction_sets())])
        pooltide.set_num_threads(THREADS[seed % 3])
        values, places = compute(call)
        more = {"return_indices": True} if "max" in name else {}
        expected = call.torch(**more)
        if expected is None or call.mean:
            continue
        if name == "adaptive_avg_pool3d" and call.x.dtype.itemsize == 2:
            continue  # PyTorch sums these in the storage type
        compared += 1
        if places is not None:
            expected, indices = expected
            np.testing.assert_array_equal(places, indices.numpy(), err_msg=str(call))
            np.testing.assert_array_equal(bits(call.run()), bits(expected), err_msg=str(call))
        np.testing.assert_array_equal(bits(values), bits(expected), err_msg=str(call))
    assert compared >= (140 if name in ("avg_pool3d", "adaptive_avg_pool3d") else 250)


@pytest.mark.parametrize("name", fast_some(NAMES, 4))
def test_random_forwards_have_the_bits_of_the_reference_and_lie_near_the_oracle(name: str) -> None:
    for seed in range(40):
        call = forward(name, 1000 + seed, largest=29 // int(name[-2]))
        values, places = compute(call)
        expected, indices = call.reference()
        np.testing.assert_array_equal(bits(values), bits(expected), err_msg=str(call))
        assert places is None or (places == indices).all(), str(call)
        exact, _ = call.reference(np.float64)
        size = Forward(name, np.abs(call.x.astype(np.float64)), call.arguments).reference()[0]
        unit = 2.0**-7 if call.x.dtype == ml_dtypes.bfloat16 else float(np.finfo(call.x.dtype).eps)
        terms = 13**3 if call.x.dtype.itemsize > 2 else 3  # a sum in the dtype itself, or one rounding of it
        finite = np.isfinite(exact)
        error = np.abs(values.astype(np.float64)[finite] - exact[finite])
        assert (error <= (terms * unit * np.abs(size[finite]) + 1e-7)).all(), str(call)
        np.testing.assert_array_equal(values.astype(np.float64)[~finite], exact[~finite], err_msg=str(call))


# One shape for each reason that a kernel has a path; sizes are primes.
REASONS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "a tile of planes, the last one partly empty": ("avg_pool2d", (3, 11, 13, 19), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "rows of one piece": ("max_pool2d", (1, 17, 5, 251), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "a row in pieces": ("avg_pool1d", (1, 17, 1021), {"kernel_size": 7, "stride": 3, "padding": 3}),
    "a window longer than a piece": ("adaptive_avg_pool1d", (2, 11, 1021), {"output_size": 3}),
    "dilation beyond a piece": ("max_pool1d", (1, 17, 1021), {"kernel_size": 4, "stride": 3, "padding": 2, "dilation": 311}),
    "more windows than a segment": ("max_pool1d", (1, 17, 1523), {"kernel_size": 5, "stride": 1, "padding": 2}),
    "windows that outgrow the slots": ("adaptive_max_pool2d", (1, 17, 79, 127), {"output_size": (2, 3)}),
    "rows of different depths share a slot": ("avg_pool3d", (1, 17, 13, 37, 41), {"kernel_size": (5, 7, 3), "stride": (3, 2, 2)}),
    "few planes, stride 1": ("avg_pool2d", (1, 3, 11, 61), {"kernel_size": (2, 3), "stride": 1, "padding": 1}),
    "few planes, stride 2": ("max_pool2d", (1, 1, 11, 131), {"kernel_size": 5, "stride": 2, "padding": 2, "ceil_mode": True}),
    "few planes, padding not counted": ("avg_pool2d", (1, 3, 11, 61), {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
    "few planes, dilated": ("max_pool3d", (1, 1, 7, 11, 61), {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": (1, 2, 3)}),
    "neighbouring windows in a vector": ("avg_pool3d", (2, 3, 5, 7, 61), {"kernel_size": 3, "stride": 1, "padding": 1, "count_include_pad": False}),
    "neighbouring windows in a vector, maxima": ("max_pool2d", (2, 5, 11, 61), {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 2}),
    "few channels, windows apart": ("max_pool2d", (2, 3, 11, 61), {"kernel_size": 3, "stride": 3, "padding": 1, "ceil_mode": True}),
    "blocks of channels": ("adaptive_max_pool2d", (1, 1107, 5, 7), {"output_size": (1, 2)}),
    "blocks of channels, averages": ("avg_pool2d", (1, 577, 5, 7), {"kernel_size": 3, "stride": 2}),
    "windows that share rows": ("max_pool2d", (2, 37, 13, 19), {"kernel_size": 9, "stride": 1, "padding": 4}),
    "volumes that share more rows than are queued": ("max_pool3d", (1, 17, 7, 11, 13), {"kernel_size": (3, 7, 5), "stride": 1, "dilation": (1, 1, 2), "padding": (1, 3, 2)}),
    "a window that is its plane": ("avg_pool2d", (3, 23, 5, 11), {"kernel_size": (5, 11)}),
    "a window that is its plane, with padding": ("avg_pool2d", (3, 23, 5, 7), {"kernel_size": (7, 11), "padding": (1, 2)}),
    "a plane of less than a vector": ("max_pool2d", (3, 23, 2, 3), {"kernel_size": (2, 3)}),
    "the maximum of a plane": ("adaptive_max_pool3d", (2, 19, 3, 5, 7), {"output_size": 1}),
    "planes too few for a tile": ("adaptive_max_pool2d", (1, 7, 5, 11), {"output_size": 1}),
    "mean": ("adaptive_avg_pool2d", (3, 23, 7, 11), {"output_size": 1}),
    "mean of less than a vector": ("adaptive_avg_pool3d", (3, 23, 1, 2, 3), {"output_size": 1}),
    "more windows than cells": ("adaptive_max_pool2d", (2, 19, 3, 5), {"output_size": (7, 11)}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", fast_some(DTYPES, 2), ids=str)
@pytest.mark.parametrize("reason", REASONS)
def test_every_path_has_the_bits_of_the_reference(reason: str, dtype: Any) -> None:
    name, shape, arguments = REASONS[reason]
    rng = np.random.default_rng(5)
    x = np.round(rng.standard_normal(shape) * 8).astype(dtype) / dtype.type(8)
    x[rng.random(shape) < 0.01] = np.nan
    call = Forward(name, x, arguments)
    expected, indices = call.reference()
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for laid in (x, last):
        for isa in _native.instruction_sets():
            for threads in THREADS:
                _native.use_instruction_set(isa)
                pooltide.set_num_threads(threads)
                values, places = compute(Forward(name, laid, arguments))
                text = f"{isa} {threads} {laid.strides}"
                np.testing.assert_array_equal(bits(values), bits(expected), err_msg=text)
                assert places is None or (places == indices).all(), text


@pytest.mark.parametrize("name", NAMES)
def test_a_large_batch_has_the_same_bits_for_every_thread_count(name: str) -> None:
    axes = int(name[-2])
    shape = (7, 61, *{1: (1021,), 2: (31, 37), 3: (11, 7, 13)}[axes])
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    asked = {"output_size": 5} if "adaptive" in name else {"kernel_size": 3, "stride": 2, "padding": 1}
    call = Forward(name, x, asked)
    found = []
    for threads in THREADS:
        pooltide.set_num_threads(threads)
        found.append(compute(call))
    assert x.size > 4 * (64 << 10)  # enough cells for several threads
    for values, places in found[1:]:
        np.testing.assert_array_equal(bits(values), bits(found[0][0]))
        assert places is None or (places == found[0][1]).all()
    np.testing.assert_array_equal(bits(found[0][0]), bits(call.torch()))
