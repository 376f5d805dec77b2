"""The operators of examples/operators against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pooltide import acl
from pooltide.acl.phase_one import phase_functions
from pooltide.examples import operators
from pooltide.operators.catalog import user_operators

torch = pytest.importorskip("torch")

FOLDER = str(Path(operators.__file__).parent)
PHASES = phase_functions(user_operators((FOLDER,)).values())
TYPES = {np.dtype(np.float32): torch.float32, np.dtype(np.float16): torch.float16}


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _ints(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-9, 9, shape).astype(np.int32)


def _scalar(value: float) -> Any:
    return lambda: acl.aclCreateScalar(value, acl.ACL_FLOAT)


def _array(*values: int) -> Any:
    return lambda: acl.aclCreateIntArray(values)


def call(name: str, out: Any, *arguments: Any) -> tuple[int, Any]:
    """The status, and `out` after the call. Arrays become tensors, and functions handles; "out" is the output."""
    acl.aclInit(None)
    acl.set_checks("strict")
    try:
        result = acl.tensor_from_numpy(out)
        made = [argument() if callable(argument) else argument for argument in arguments]
        tensors = [acl.tensor_from_numpy(a) if isinstance(a, np.ndarray) else a for a in made]
        handles = [result if isinstance(a, str) and a == "out" else a for a in tensors]
        size, executor, status = PHASES[f"{name}GetWorkspaceSize"](*handles)
        status = status or PHASES[name](None, size, executor, None) or acl.aclrtSynchronizeStream(None)
        return status, acl.tensor_to_numpy(result)
    finally:
        acl.set_checks("warn")
        acl.aclFinalize()


X, Y = _random(2, 3, 5), _random(3, 1)
T = torch.from_numpy
GOOD: dict[str, tuple[str, Callable[[], Any], tuple[Any, ...]]] = {
    "relu": ("aclnnRelu", lambda: T(X).relu(), (X, "out")),
    "relu of ints": ("aclnnRelu", lambda: T(_ints(3, 7)).relu(), (_ints(3, 7), "out")),
    "threshold": (
        "aclnnThresholdBackward",
        lambda: torch.ops.aten.threshold_backward(T(X[::-1].copy()), T(X), 0.25),
        (X[::-1].copy(), X, _scalar(0.25), "out"),
    ),
    "add": ("aclnnAdd", lambda: torch.add(T(X), T(Y), alpha=-0.5), (X, Y, _scalar(-0.5), "out")),
    "mul": ("aclnnMul", lambda: T(X) * T(Y), (X, Y, "out")),
    "cast to half": ("aclnnCast", lambda: T(X).half(), (X, acl.ACL_FLOAT16, "out")),
    "cast to int": ("aclnnCast", lambda: T(5 * X).int(), (5 * X, acl.ACL_INT32, "out")),
    "permute": ("aclnnPermute", lambda: T(X).permute(2, 0, 1).contiguous(), (X, _array(-1, 0, 1), "out")),
    "pad": (
        "aclnnConstantPadNd",
        lambda: torch.nn.functional.pad(T(X), (1, 2, -1, 3), value=1.5),
        (X, _array(1, 2, -1, 3), _scalar(1.5), "out"),
    ),
    "mean": ("aclnnMean", lambda: T(X).mean((0, 2)), (X, _array(0, -1), False, acl.ACL_FLOAT, "out")),
    "mean of all": (
        "aclnnMean", lambda: T(X).mean((0, 1, 2), True), (X, _array(), True, acl.ACL_FLOAT, "out"),
    ),
    "softmax": ("aclnnSoftmax", lambda: T(X).softmax(1), (X, 1, "out")),
    "matmul": ("aclnnMatmul", lambda: T(X) @ T(_random(5, 7)), (X, _random(5, 7), "out", 0)),
    "dot": ("aclnnMatmul", lambda: T(_random(5, 7)) @ T(_random(7)), (_random(5, 7), _random(7), "out", 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_an_operator_has_pytorch_s_result(name: str) -> None:
    operator, want, arguments = GOOD[name]
    expected = want().numpy()
    status, got = call(operator, np.full(expected.shape, 99, expected.dtype), *arguments)
    assert status == 0, acl.aclGetRecentErrMsg()
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_a_copy_broadcasts_and_converts() -> None:
    status, got = call(
        "aclnnInplaceCopy", np.zeros((2, 3), np.int32), "out", np.array([1.5, -2.5, 3], np.float32)
    )
    assert status == 0
    assert got.tolist() == [[1, -2, 3]] * 2


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions(axes: int, groups: int, transposed: bool) -> None:
    x = _random(2, 6, *(7, 9, 8)[:axes])
    w = _random(6, 9 // groups if transposed else 6 // groups, *(3, 2, 4)[:axes])
    if not transposed:
        w = _random(9, 6 // groups, *(3, 2, 4)[:axes])
    bias = _random(w.shape[1] * groups if transposed else 9)
    s, p, d = (2, 3, 1)[:axes], (1, 0, 2)[:axes], (2, 1, 3)[:axes]
    extra = (1, 2, 0)[:axes] if transposed else (0,) * axes
    expected = torch.convolution(T(x), T(w), T(bias), s, p, d, transposed, extra, groups).numpy()
    arrays = (_array(*s), _array(*p), _array(*d), transposed, _array(*extra), groups, "out", 0)
    status, got = call("aclnnConvolution", np.zeros_like(expected), x, w, bias, *arrays)
    assert status == 0, acl.aclGetRecentErrMsg()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "arguments", "says"),
    [
        ("aclnnAdd", (X, _random(4), _scalar(1), "out"), r"other has shape (4,); it must be one that broadcasts"),
        ("aclnnCast", (X, acl.ACL_INT32, "out"), "out has dtype FLOAT32; it must be INT32, as dtype says."),
        ("aclnnCast", (X, 99, "out"), "dtype is 99; it must be a code of aclDataType"),
        ("aclnnInplaceCopy", ("out", _random(7)), "src has shape (7,); it must broadcast to selfRef's, (2, 3, 5)."),
        ("aclnnPermute", (X, _array(0, 0, 1), "out"), "dims has (0, 0, 1); it must name each of self's 3"),
        ("aclnnConstantPadNd", (X, _array(1), _scalar(0), "out"), "pad has 1 values; it must have 2 for each"),
        ("aclnnConstantPadNd", (X, _array(-3, -3), _scalar(0), "out"), "which removes more than self's (2, 3, 5)"),
        ("aclnnMean", (X, _array(3), False, 0, "out"), "dim has (3,); it must name different dimensions of self"),
        ("aclnnSoftmax", (X, 3, "out"), "dim is 3; it must be -3 to 2."),
        ("aclnnMatmul", (X, _random(4, 5), "out", 0), "mat2 has shape (4, 5); it must have 5 rows"),
        ("aclnnMatmul", (X, _random(5, 5), "out", 4), "cubeMathType is 4; it must be 0, 1, 2 or 3."),
        (
            "aclnnConvolution",
            (X, _random(4, 2, 3), None, *[_array(1)] * 3, False, _array(0), 1, "out", 0),
            "input has 3 channels; it must have 2, as weight has.",
        ),
        (
            "aclnnConvolution",
            (X, _random(4, 3, 9), None, _array(1), _array(0), _array(1), False, _array(0), 1, "out", 0),
            "which leaves no output of input's (2, 3, 5).",
        ),
    ],
)  # fmt: skip
def test_a_bad_call_gets_a_sentence(operator: str, arguments: tuple[Any, ...], says: str) -> None:
    status, _ = call(operator, np.zeros_like(X), *arguments)
    assert status == 161002
    assert says in (acl.aclGetRecentErrMsg() or "")
