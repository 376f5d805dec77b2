"""Data that a job can use, though no correct program has them, are findings; the results stay PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pooltide
from pooltide import acl, aclnn
from pooltide.acl import data_checks

pytestmark = pytest.mark.usefixtures("runtime")

Array = np.ndarray[Any, Any]
NCHW = acl.ACL_FORMAT_NCHW


def maximum(x: Array) -> tuple[int, str | None, Array]:
    """(the status of the stream, its message, the maxima of 2 × 2 windows)."""
    n, c, h, w = x.shape
    source = acl.tensor_from_numpy(x, NCHW)
    out = acl.tensor_from_numpy(np.zeros((n, c, h // 2, w // 2), x.dtype), NCHW)
    indices = acl.tensor_from_numpy(np.zeros(out.shape, np.int32), NCHW)
    two, zero, one = (acl.aclCreateIntArray([k]) for k in (2, 0, 1))
    phase_one = aclnn.aclnnMaxPool2dWithIndicesGetWorkspaceSize
    size, executor, status = phase_one(source, two, two, zero, one, False, out, indices)
    assert status == 0, acl.aclGetRecentErrMsg()
    workspace = acl.aclrtMalloc(size, 0)[0] if size else None
    assert aclnn.aclnnMaxPool2dWithIndices(workspace, size, executor, None) == 0
    status = acl.aclrtSynchronizeStream(None)
    return status, acl.aclGetRecentErrMsg(), acl.tensor_to_numpy(out)


@pytest.mark.parametrize(
    ("edition", "product", "found"),
    [
        ("9.2", "atlas-a2", True),
        ("9.0", "atlas-a3", True),
        ("8.5", "atlas-a2", False),
        ("9.2", "ascend950", False),
    ],
)
@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (-np.inf, "-Inf")])
def test_values_that_a_document_forbids(
    edition: str, product: str, found: bool, value: float, name: str
) -> None:
    acl.set_product(product)
    acl.set_edition(edition)
    x = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    x[1, 2, 3, 5] = value
    acl.set_checks("strict")
    status, message, out = maximum(x)
    assert (status != 0) == found
    assert not found or f"self has {name}; since CANN 9.0 it must have neither" in (message or "")
    expected, _ = pooltide.max_pool2d(x, 2, return_indices=True)
    assert np.array_equal(out, expected, equal_nan=True)


@pytest.mark.parametrize(("level", "seen"), [("strict", True), ("warn", False)])
def test_warn_looks_at_the_first_elements_alone(
    level: str, seen: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.zeros((5, 7, 64, 64), np.float32)
    x[-1, -1, -1, -1] = np.nan
    acl.set_checks(level)
    status, _, _ = maximum(x)
    assert (status != 0) == seen
    assert capsys.readouterr().err == ""
    x[0, 0, 0, 1] = np.nan
    status, _, _ = maximum(x)
    assert (status != 0) == seen
    assert ("self has NaN" in capsys.readouterr().err) == (level == "warn")


def maximum_gradient(*inputs: Array) -> tuple[int, str | None, Array]:
    """(the status of the stream, its message, the gradient) of gradOutput, self and indices."""
    made = [acl.tensor_from_numpy(array) for array in (*inputs, np.zeros_like(inputs[1]))]
    size, executor, status = aclnn.aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize(*made)
    assert status == 0, acl.aclGetRecentErrMsg()
    workspace = acl.aclrtMalloc(size, 0)[0] if size else None
    assert aclnn.aclnnAdaptiveMaxPool3dBackward(workspace, size, executor, None) == 0
    return acl.aclrtSynchronizeStream(None), acl.aclGetRecentErrMsg(), acl.tensor_to_numpy(made[3])


@pytest.mark.parametrize("shape", [(2, 3, 5, 7, 11), (3, 5, 7, 11)])
def test_an_index_outside_its_window_is_honoured_and_reported(shape: tuple[int, ...]) -> None:
    grad = np.arange(1, 1 + np.prod(shape[:-3]) * 2 * 3 * 4, dtype=np.float32).reshape(*shape[:-3], 2, 3, 4)
    x = np.random.default_rng(5).permutation(np.prod(shape)).astype(np.float32).reshape(shape)
    _, indices = pooltide.adaptive_max_pool3d(x, (2, 3, 4), return_indices=True)
    indices = indices.astype(np.int32)
    acl.set_checks("strict")

    assert maximum_gradient(grad, x, indices)[0] == 0
    at = (*(0,) * (len(shape) - 3), 1, 2, 3)
    indices[at] = 0
    status, message, result = maximum_gradient(grad, x, indices)
    assert status != 0
    assert f"indices{list(at)} is 0, a cell outside the window of that place" in (message or "")
    assert (result == pooltide.adaptive_max_pool3d_backward(grad, shape, indices)).all()


def holds(index: int, window: tuple[int, ...], shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Whether a window of an adaptive pool has the cell."""
    cell = np.unravel_index(index, shape)
    return all(
        o * n // w <= at < -(-(o + 1) * n // w) for at, o, n, w in zip(cell, window, shape, out, strict=True)
    )


@pytest.mark.parametrize("max_table", [0, data_checks._MAX_TABLE])
def test_every_cell_is_found_in_its_windows_alone(max_table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check looks windows up in a table, and those of large planes by their bounds: both are right."""
    monkeypatch.setattr(data_checks, "_MAX_TABLE", max_table)
    shape, out = ((3, 5, 7), (2, 3, 2)) if max_table else ((5, 3, 7), (3, 2, 2))  # tables are cached
    grad, x = np.ones((1, *out), np.float32), np.zeros((1, *shape), np.float32)
    acl.set_checks("strict")
    for index in range(x.size):
        outside = sum(not holds(index, window, shape, out) for window in np.ndindex(out))
        status, message, _ = maximum_gradient(grad, x, np.full(grad.shape, index, np.int32))
        assert status != 0
        assert f"({outside} such indices were found)" in (message or "")


def test_an_equal_job_finds_its_windows_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arithmetic of windows takes several times as long as the job."""
    x = np.random.default_rng(7).permutation(np.float32(range(2 * 5 * 7 * 3))).reshape(2, 5, 7, 3)
    _, indices = pooltide.adaptive_max_pool3d(x, (2, 3, 2), return_indices=True)
    arrays = np.ones(indices.shape, np.float32), x, indices.astype(np.int32)
    acl.set_checks("strict")
    assert maximum_gradient(*arrays)[0] == 0
    monkeypatch.delattr(data_checks, "_inside")
    assert maximum_gradient(*arrays)[0] == 0
