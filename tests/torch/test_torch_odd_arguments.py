"""Sizes of the functions on tensors: NumPy integers and vectors are ints; what is no size is refused by a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from geometries import FUNCTIONS
from hostile.arguments import odd_values, plain
from odd_calls import ERRORS, FORWARDS, KINDS, SIZES, good_call
from shares import fast_some

torch = pytest.importorskip("torch")
pt = pytest.importorskip("pooltide.torch")

SIZE_KINDS = ("ints", "size", "shape", "divisor", "flag")


def _call(name: str, given: dict[str, Any], track: bool) -> Any:
    """The function's result; with `track` through autograd, which takes other ways than a plain call."""
    given = {
        k: torch.from_numpy(v.copy()) if k in ("grad_output", "indices") else v
        for k, v in given.items()
        if k != "out"
    }
    if not name.endswith("_backward"):
        given["input"] = torch.from_numpy(given["input"].copy()).requires_grad_(track)
        found = getattr(pt.functional, name)(**given)
        values = found[0] if isinstance(found, tuple) else found
        if track:
            values.sum().backward()
        return values.detach()
    given["grad_output"].requires_grad_(track)
    return getattr(pt, name)(**given).detach()


def _sized(name: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    given = good_call(name)
    for argument in given:
        kind = KINDS.get(argument) or ("shape" if name.endswith("_backward") else "array")
        if kind in SIZE_KINDS and argument != "return_indices":  # PyTorch takes what is true
            yield argument, kind, given


@pytest.mark.parametrize("track", [False, True], ids=["plain", "tracked"])
@pytest.mark.parametrize("name", FUNCTIONS + FORWARDS)
def test_numpy_integers_and_vectors_are_sizes(name: str, track: bool) -> None:
    for argument, kind, good in _sized(name):
        if kind in ("flag", "divisor"):
            continue
        usual = good[argument]
        if isinstance(usual, tuple):
            equal: list[Any] = [
                list(usual),
                np.array(usual),
                np.array(usual, np.uint8),
                tuple(map(np.int32, usual)),
                torch.Size(usual),
            ]
        else:
            equal = [
                type(size)([usual]) if isinstance(size, (list, tuple)) else np.full_like(size, usual)
                for size in SIZES
            ]
        expected = _call(name, good, track)
        for value in equal:
            for _ in range(2):
                assert torch.equal(_call(name, good | {argument: value}, track), expected), (argument, value)


@pytest.mark.parametrize("name", fast_some(FUNCTIONS + FORWARDS, 2))
def test_odd_sizes_are_read_right_or_refused_by_a_sentence(name: str) -> None:
    faults = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=PendingDeprecationWarning)  # np.matrix has it
        for argument, kind, good in _sized(name):
            for label, value in odd_values(kind, good[argument]):
                try:
                    found = _call(name, good | {argument: value}, False)
                    expected = _call(name, good | {argument: plain(kind, value)}, False)
                    if not torch.equal(found, expected):
                        faults.append(f"{argument}, {label}: another result than its plain equivalent")
                except Exception as error:
                    text = str(error)
                    ours = isinstance(error, ERRORS) and text.startswith(f"{name}: ") and "must" in text
                    # PyTorch has its own sentences where it allocates, where it takes means of planes, and for
                    # strides over 32 bits.
                    long = argument in ("stride", "dilation") and "to type int without overflow" in text
                    means = f"{name}: output_size must be" in text
                    pytorchs = "can't allocate memory" in text or means or long
                    if not (ours or pytorchs):
                        faults.append(f"{argument}, {label}: {type(error).__name__}: {text[:200]}")
    assert not faults, f"{len(faults)} odd values of {name}:\n" + "\n".join(faults)


class Hostile:
    """Whose every attribute raises."""

    def __getattribute__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("make", [Hostile, int, type(None), lambda: np.ones((1, 2, 2, 2)), str])
def test_what_is_no_tensor_is_refused_by_a_sentence(make: Any) -> None:
    odd = make()
    g, at, shape = torch.ones(1, 2, 2, 2), torch.zeros(1, 2, 2, 2, dtype=torch.int64), (1, 2, 4, 4)
    sparse = torch.ones(shape).to_sparse()
    function = pt.adaptive_max_pool2d_backward
    for call in (
        lambda: function(odd, shape, at),
        lambda: function(odd, shape, at, out=sparse),
        lambda: function(odd, shape, at, out=sparse.to_dense().to_mkldnn()),
        lambda: function(g, shape, odd),
        lambda: function(g, odd if type(odd) is not np.ndarray else [odd], at),
        lambda: function(g, shape, at, out=odd if odd is not None else sparse),
    ):
        with pytest.raises(
            (TypeError, ValueError), match=r"^adaptive_max_pool2d_backward: .*; it must .*\.$"
        ):
            call()
    with pytest.raises(TypeError, match=r"^max_pool2d: input is .*; it must be a tensor\."):
        pt.functional.max_pool2d(odd, 2)


def test_an_undefined_tensor_under_patch_is_refused_by_a_sentence() -> None:
    """PyTorch itself refuses indices of None, and all in the out form, before our kernels are asked."""
    x, at = torch.ones(1, 2, 4, 4), torch.zeros(1, 2, 2, 2, dtype=torch.int64)
    with pt.patch():
        for given in ((None, x, at), (torch.ones(1, 2, 2, 2), None, at)):
            with pytest.raises(TypeError, match=r"^adaptive_max_pool2d_backward: \w+ is None; it must "):
                torch.ops.aten.adaptive_max_pool2d_backward.default(*given)


def test_return_indices_is_true_or_false_in_the_ways_of_pytorch() -> None:
    x = torch.randn(1, 2, 4, 4)
    for true in (True, 1, np.True_, np.int64(1)):
        assert len(pt.functional.adaptive_max_pool2d(x, 2, true)) == 2
    for false in (False, 0, None, np.False_):
        assert isinstance(pt.functional.adaptive_max_pool2d(x, 2, false), torch.Tensor)
    for odd in (np.array([1, 0]), np.array([]), "yes", Hostile()):
        with pytest.raises(
            TypeError, match=r"^adaptive_max_pool2d: return_indices is .*; it must be True or False\."
        ):
            pt.functional.adaptive_max_pool2d(x, 2, odd)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_batch_of_no_samples_has_an_empty_result(dtype: Any) -> None:
    """PyTorch's avg_pool3d has no kernel for half precision, ours has one."""
    x = torch.ones(0, 2, 3, 8, 4, dtype=dtype, requires_grad=True)
    y = pt.functional.avg_pool3d(x, (1, 4, 4), (1, 3, 5), ceil_mode=True)
    assert (y.shape, y.dtype) == ((0, 2, 3, 3, 1), dtype)
    assert torch.autograd.grad(y.sum(), x)[0].shape == x.shape


def test_odd_sizes_are_refused_where_pytorch_computes() -> None:
    """PyTorch computes pools of empty tensors, of ints and under vmap; we check their sizes all the same."""
    none, whole, many = (
        torch.ones(2, 0, 4, 4),
        torch.ones(1, 2, 4, 4, dtype=torch.int64),
        torch.ones(3, 2, 4, 4),
    )
    odd = np.timedelta64("NaT", "D")
    for call in (
        lambda: pt.functional.adaptive_max_pool2d(none, Hostile()),
        lambda: pt.functional.max_pool2d(whole, 2, padding=odd),
        lambda: torch.func.vmap(lambda x: pt.functional.avg_pool2d(x, 2, padding=(0, odd)))(many),
        lambda: torch.func.vmap(lambda x: pt.functional.max_pool2d(x, Hostile()))(many),
        lambda: torch.func.vmap(lambda x: pt.functional.adaptive_avg_pool2d(x, Hostile()))(many),
    ):
        with pytest.raises(TypeError, match=r"^\w+: \w+ is .*; it must be an int or a tuple of ints\."):
            call()
    csr = torch.eye(3).to_sparse_csr()
    with pytest.raises(TypeError, match=r"^avg_pool2d: input has layout torch.sparse_csr; it must be "):
        pt.functional.avg_pool2d(csr, 2)
