"""One table of bad arguments, for every operator it fits, through the NumPy and the PyTorch functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pooltide
from geometries import FUNCTIONS, axes_of
from pooltide.operators.catalog import operators

try:
    import torch
except ImportError:
    torch = None

Given = dict[str, Any]
PLANE, OUTPUTS = (11, 13, 17), (5, 6, 8)  # of kernel 3, stride 2
G = np.random.default_rng(5).standard_normal((2, 3, *OUTPUTS)).astype(np.float32)


def good(function: str) -> Given:
    axes = axes_of(function)
    cut = (slice(None), slice(None), *(0,) * (3 - axes))
    given: Given = {"grad_output": G[cut].copy(), "input": (2, 3, *PLANE[3 - axes :])}
    roles = {p.role for p in operators()[function].parameters}
    if "indices" in roles:
        given["indices"] = np.arange(given["grad_output"].size).reshape(given["grad_output"].shape) % 11
    if "kernel" in roles:
        given |= {"kernel_size": 3, "stride": 2, "padding": 0}
    return given


def change(**values: Any) -> Callable[[Given], Given]:
    """A good call with some arguments set; a function among them makes its value from the call."""
    return lambda given: given | {k: v(given) if callable(v) else v for k, v in values.items()}


def moved(by: int) -> Callable[[Given], Given]:
    """One index, elsewhere."""

    def change(given: Given) -> Given:
        indices = given["indices"].astype(np.int64)
        indices.flat[7] = by
        return given | {"indices": indices}

    return change


def overlapping(given: Given) -> Any:
    return np.lib.stride_tricks.as_strided(
        np.zeros(9000, np.float32), given["input"], (4,) * len(given["input"])
    )


# name: (an argument that the operator must have, the change, error, what the sentence says)
BAD: dict[str, tuple[str, Callable[[Given], Given], type[Exception], str]] = {
    "a list": ("grad_output", change(grad_output=[1.0]), TypeError, "grad_output is a list; it must be a"),
    "None": ("grad_output", change(grad_output=None), TypeError, "grad_output is None; it must be a"),
    "int gradient": ("grad_output", change(grad_output=lambda a: a["grad_output"].astype(np.int64)), TypeError,
                     "grad_output has dtype int64; it must be float32, float64, float16 or bfloat16."),
    "rank": ("grad_output", change(grad_output=lambda a: a["grad_output"][0, 0]), ValueError, "grad_output has rank"),
    "input's rank": ("input", change(input=lambda a: a["input"][1:]), ValueError, "it must be"),
    "input": ("input", change(input="shape"), TypeError, "input is 'shape'; it must be the forward's input, or its shape"),
    "batch": ("input", change(input=lambda a: (5, *a["input"][1:])), ValueError, "N, C = 2, 3; they must be 5, 3"),
    "channels": ("input", change(input=lambda a: (2, 7, *a["input"][2:])), ValueError, "N, C = 2, 3; they must be 2, 7"),
    "float size": ("input", change(input=lambda a: (*a["input"][:-1], 17.0)), TypeError, "it must be the forward's input, or its shape"),
    "complex": ("grad_output", change(grad_output=lambda a: a["grad_output"].astype(np.complex64)), TypeError, "grad_output has dtype complex64; it must be a"),
    "bool": ("grad_output", change(grad_output=lambda a: a["grad_output"] > 0), TypeError, "grad_output has dtype bool; it must be"),
    "vast plane": ("input", change(input=lambda a: (*a["input"][:-1], 2**62)), ValueError, "over 2**63 bytes"),
    "negative": ("input", change(input=lambda a: (*a["input"][:-1], -7)), ValueError, "input has shape (2, 3, "),
    "too large": ("input", change(input=lambda a: (2**61, 3, *a["input"][2:])), ValueError, "over 2**63 bytes"),
    "out's shape": ("out", change(out=lambda a: np.zeros(a["input"][1:], np.float32)), ValueError, "out has "),
    "out's plane": ("out", change(out=lambda a: np.zeros((*a["input"][:-1], 2), np.float32)), ValueError, "out has shape"),
    "out's dtype": ("out", change(out=lambda a: np.zeros(a["input"])), TypeError,
                    "out has dtype float64; it must be float32, as grad_output has."),
    "out overlaps": ("out", change(out=overlapping), ValueError, "lets cells share memory"),
    "kernel 0": ("kernel_size", change(kernel_size=0), ValueError, "kernel_size has values (0); each must be at least 1."),
    "no kernel": ("kernel_size", change(kernel_size=None), TypeError, "kernel_size is None; it must be an int"),
    "float kernel": ("kernel_size", change(kernel_size=3.0), TypeError, "kernel_size is 3.0; it must be an int"),
    "bool kernel": ("kernel_size", change(kernel_size=True), TypeError, "kernel_size is True; it must be an int"),
    "four kernels": ("kernel_size", change(kernel_size=(3,) * 4), ValueError, "kernel_size has 4 values; it must have 1"),
    "wide kernel": ("kernel_size", change(kernel_size=2**70), ValueError, "it must be smaller than 2**62"),
    "no window": ("kernel_size", change(kernel_size=99), ValueError, "no window fits into input's plane"),
    "stride 0": ("stride", change(stride=0), ValueError, "stride has values (0); each must be at least 1."),
    "stride -1": ("stride", change(stride=-1), ValueError, "stride has values (-1); each must be at least 1."),
    "float stride": ("stride", change(stride=2.0), TypeError, "stride is 2.0; it must be an int"),
    "four strides": ("stride", change(stride=(2,) * 4), ValueError, "stride has 4 values; it must have"),
    "kernel -1": ("kernel_size", change(kernel_size=-3), ValueError, "kernel_size has values (-3); each must be at least 1."),
    "padding": ("padding", change(padding=2), ValueError, "it must be at most 1, half of kernel_size 3."),
    "padding -1": ("padding", change(padding=-1), ValueError, "padding has values (-1); each must be at least 0."),
    "forward": ("stride", change(stride=3), ValueError, "so it must be that."),
    "ceil": ("ceil_mode", change(ceil_mode=1), TypeError, "ceil_mode is 1; it must be True or False."),
    "pad": ("count_include_pad", change(count_include_pad=1), TypeError, "count_include_pad is 1; it must be True or False."),
    "divisor 0": ("divisor_override", change(divisor_override=0), ValueError, "divisor_override is 0; it must be None or"),
    "divisor": ("divisor_override", change(divisor_override=2**63), ValueError, "divisor_override is 9223"),
    "dilation 0": ("dilation", change(dilation=0), ValueError, "dilation has values (0); each must be at least 1."),
    "no dilation": ("dilation", change(dilation=None), TypeError, "dilation is None; it must be an int"),
    "dilation": ("dilation", change(dilation=9), ValueError, "no window fits into input's plane"),
    "vast dilation": ("dilation", change(dilation=2**61, kernel_size=2**61), ValueError, "no window fits into input's plane"),
    "float indices": ("indices", change(indices=lambda a: a["grad_output"]), TypeError,
                      "indices has dtype float32; it must be int32 or int64."),
    "short indices": ("indices", change(indices=lambda a: a["indices"].astype(np.int16)), TypeError,
                      "indices has dtype int16; it must be int32 or int64."),
    "indices' rank": ("indices", change(indices=lambda a: a["indices"].ravel()), ValueError, "indices has rank 1"),
    "empty indices": ("indices", change(indices=lambda a: a["indices"][..., :0]), ValueError, "indices has shape (2, 3"),
    "lowest index": ("indices", moved(-(2**63)), IndexError, "is -9223372036854775808; it must be 0 to "),
    "greatest index": ("indices", moved(2**63 - 1), IndexError, "is 9223372036854775807; it must be 0 to "),
    "no indices": ("indices", change(indices=None), TypeError, "indices is None; it must be a"),
    "indices' shape": ("indices", change(indices=lambda a: a["indices"][:1]), ValueError, "indices has shape (1, 3"),
    "an index": ("indices", moved(2431), IndexError, "is 2431; it must be 0 to "),
    "negative index": ("indices", moved(-1), IndexError, "is -1; it must be 0 to "),
    "wide index": ("indices", moved(2**32 + 5), IndexError, "is 4294967301; it must be 0 to "),
}  # fmt: skip


def _as_tensors(given: Given, device: str) -> Given:
    return {k: torch.from_numpy(v).to(device) if isinstance(v, np.ndarray) else v for k, v in given.items()}


def _calls(function: str, given: Given) -> list[Callable[[], Any]]:
    calls: list[Callable[[], Any]] = [lambda: getattr(pooltide, function)(**given)]
    if torch is not None:
        import pooltide.torch as pt

        devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        calls += [lambda d=device: getattr(pt, function)(**_as_tensors(given, d)) for device in devices]
    return calls


def _on_host(result: Any) -> Any:
    return result if isinstance(result, np.ndarray) else result.cpu().numpy()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_good_call_is_good(function: str) -> None:
    found = [_on_host(call()) for call in _calls(function, good(function))]
    assert all(result.shape == good(function)["input"] for result in found)
    assert all((result == found[0]).all() for result in found)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bad_arguments_raise_a_sentence(function: str) -> None:
    takes = {p.argument for p in operators()[function].parameters}
    for name, (argument, change, error, sentence) in BAD.items():
        if argument not in takes:
            continue
        calls = _calls(function, change(good(function)))
        for call in calls[:2] if name == "out overlaps" else calls:  # the way to a GPU unfolds it
            with pytest.raises(error) as caught:
                call()
            assert type(caught.value) is error, name
            assert str(caught.value).startswith(f"{function}: "), name
            assert sentence in str(caught.value), name


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_windows(function: str) -> None:
    """Adaptive max pools to size 0 exist, and their gradient is 0; of the others the documents have none."""
    given = good(function)
    given |= {name: given[name][..., :0] for name in ("grad_output", "indices") if name in given}
    for call in _calls(function, given):
        if function.startswith("adaptive_max"):
            result = _on_host(call())
            assert result.shape == given["input"]
            assert not result.any()
        else:
            with pytest.raises(ValueError, match=f"{function}: grad_output has shape .* greater than 0"):
                call()


def test_every_row_fits_some_operator() -> None:
    every = {p.argument for operator in operators().values() for p in operator.parameters}
    assert {argument for argument, *_ in BAD.values()} <= every
