"""Every bad argument, and every bad region, is refused by name; nothing is written then."""

from __future__ import annotations

from time import process_time
from typing import Any

import numpy as np
import pytest

import pooltide
from regions import NAMES, RegionCall, draw

X = np.ones((2, 4, 5, 6), np.float32)
BOXES = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 4, 4]], np.float32)
GRAD = np.ones((2, 4, 2, 2), np.float32)

# The call of roi_align with one other argument, the error, and what its text begins with.
FORWARDS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"input": 3}, TypeError, "input is an int; it must be a NumPy array of float32, float64, float16"),
    ({"input": X.astype(int)}, TypeError, "input has dtype int64; it must be float32, float64"),
    ({"input": X[0]}, ValueError, "input has rank 3, shape (4, 5, 6); it must have rank 4"),
    ({"input": X[:, :, :0]}, ValueError, "input has shape (2, 4, 0, 6); every spatial dimension must be"),
    ({"boxes": None}, TypeError, "boxes is None; it must be a NumPy array of float32"),
    ({"boxes": BOXES[:, :4]}, ValueError, "boxes has shape (2, 4); it must be (K, 5), a row of (image, x1,"),
    ({"boxes": BOXES[0]}, ValueError, "boxes has rank 1, shape (5); it must have rank 2"),
    ({"boxes": BOXES.astype(int)}, TypeError, "boxes has dtype int64; it must be float32"),
    ({"boxes": BOXES.astype("f8")}, TypeError, "boxes has dtype float64; it must be float32, as input has"),
    ({"boxes": [BOXES]}, ValueError, "boxes[0] has shape (2, 5); it must be an array of shape (L, 4)"),
    ({"boxes": [BOXES[:, 1:], 3]}, TypeError, "boxes[1] is 3; it must be an array of shape (L, 4)"),
    ({"boxes": [BOXES[:, 1:]] * 3}, ValueError, "boxes has 3 arrays; it must have at most 2"),
    ({"output_size": 0}, ValueError, "output_size has values (0); each must be at least 1"),
    ({"output_size": (1, 2, 3)}, ValueError, "output_size has 3 values; it must have 1 or 2"),
    ({"output_size": None}, TypeError, "output_size is None; it must be an int or a tuple of ints"),
    ({"output_size": 2**31}, ValueError, "the result would have over 2**63 bytes; it must be smaller"),
    ({"spatial_scale": np.nan}, ValueError, "spatial_scale is nan; it must be a finite number of float32"),
    ({"spatial_scale": 1e39}, ValueError, "spatial_scale is 1e+39; it must be a finite number of float32"),
    ({"spatial_scale": "1"}, TypeError, "spatial_scale is '1'; it must be a number"),
    ({"spatial_scale": None}, TypeError, "spatial_scale is None; it must be a number"),
    ({"sampling_ratio": 32768}, ValueError, "sampling_ratio is 32768; it must be at most 32767"),
    ({"sampling_ratio": 2.0}, TypeError, "sampling_ratio is 2.0; it must be an int"),
    ({"aligned": 1}, TypeError, "aligned is 1; it must be True or False"),
    ({"out": GRAD[:1].copy()}, ValueError, "out has shape (1, 4, 2, 2); it must be (2, 4, 2, 2)"),
    ({"out": GRAD.astype("f8")}, TypeError, "out has dtype float64; it must be float32, as input has"),
]
GRADIENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"grad_output": GRAD[:1]}, ValueError, "grad_output has shape (1, 4, 2, 2); it must be (2, 4, 2, 2)"),
    ({"grad_output": GRAD[:, :3]}, ValueError, "grad_output has shape (2, 3, 2, 2); it must be (2, 4, 2"),
    ({"grad_output": GRAD[..., :0]}, ValueError, "grad_output has shape (2, 4, 2, 0); every spatial"),
    ({"input": (2, 4, 5)}, ValueError, "input has rank 3, shape (2, 4, 5); it must have rank 4"),
    ({"input": (2, 4, 5, 0)}, ValueError, "input has shape (2, 4, 5, 0); every spatial dimension must be"),
    ({"input": (1, 1, 2**31, 1)}, ValueError, "input has H·W = 2147483648; it must be at most 2147483647"),
    ({"out": GRAD}, ValueError, "out has shape (2, 4, 2, 2); it must be (2, 4, 5, 6), as input has"),
]


@pytest.mark.parametrize(("more", "error", "text"), FORWARDS)
def test_bad_arguments_of_forwards(more: dict[str, Any], error: type[Exception], text: str) -> None:
    usual = {"input": X, "boxes": BOXES, "output_size": 2}
    with pytest.raises(error) as raised:
        pooltide.roi_align(**(usual | more))
    assert str(raised.value).startswith(f"roi_align: {text}"), raised.value


@pytest.mark.parametrize(("more", "error", "text"), GRADIENTS)
def test_bad_arguments_of_gradients(more: dict[str, Any], error: type[Exception], text: str) -> None:
    usual = {"grad_output": GRAD, "input": X.shape, "boxes": BOXES}
    with pytest.raises(error) as raised:
        pooltide.roi_align_backward(**(usual | more))
    assert str(raised.value).startswith(f"roi_align_backward: {text}"), raised.value


def test_channels_are_a_multiple_of_the_bins() -> None:
    with pytest.raises(
        ValueError, match=r"^ps_roi_pool: input has 4 channels; they must be a multiple of 3·1"
    ):
        pooltide.ps_roi_pool(X, BOXES, (3, 1))


@pytest.mark.parametrize("image", [-1, 2, 0.5, np.nan, np.inf, -np.inf, 1e30, -0.25])
@pytest.mark.parametrize("name", NAMES)
def test_a_region_of_no_image_is_named_and_nothing_is_written(name: str, image: float) -> None:
    call = draw(8, name)
    n = len(call.x)
    boxes = np.concatenate([call.boxes[:1] * 0, call.boxes[:1] * 0]).astype(call.x.dtype)
    with np.errstate(over="ignore"):
        boxes[1, 0] = image if image != 2 else n
    bad = RegionCall(name, call.x, boxes, call.bins)
    out = np.full(bad.grad.shape, 7, bad.x.dtype)
    more = {} if name == "roi_pool" else {"out": out}
    with pytest.raises(
        IndexError, match=rf"^{name}: boxes\[1, 0\], an image, is .*; it must be a whole number, 0"
    ):
        bad.forward(**more)
    assert (out == 7).all()
    total = np.full(bad.x.shape, 7, bad.x.dtype)
    indices = np.full(bad.grad.shape, -1, np.int32) if name == "roi_pool" else None
    with pytest.raises(IndexError, match=r"boxes\[1, 0\], an image, is"):
        bad.gradient(indices, out=total)
    assert (total == 7).all()


def test_an_output_without_channels_takes_no_time() -> None:
    many = 2**28
    start = process_time()
    assert pooltide.roi_align(X[:, :0], BOXES, (many, 1)).shape == (2, 0, many, 1)
    grad = np.zeros((2, 0, many, 1), np.float32)
    assert pooltide.roi_align_backward(grad, (2, 0, 5, 6), BOXES).shape == (2, 0, 5, 6)
    assert process_time() - start < 1
    with pytest.raises(IndexError, match=r"boxes\[1, 0\]"):
        pooltide.roi_align(X[:1, :0], BOXES, 2)


def test_minus_zero_is_image_0_and_several_are_counted() -> None:
    boxes = BOXES * np.array([-0.0, 1, 1, 1, 1], np.float32)
    assert pooltide.roi_align(X, boxes, 1).ravel().tolist() == [1] * 8
    with pytest.raises(IndexError, match=r"boxes\[0, 0\], an image, is 7; .* \(2 such regions in all\)\.$"):
        pooltide.roi_align(X, BOXES * 0 + 7, 1)
    with pytest.raises(IndexError, match=r"must be none, as input has no images"):
        pooltide.roi_align(X[:0], BOXES, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("index", [30, -2, 2**31 - 1, -(2**31)])
def test_an_index_outside_its_plane_is_named(index: int, dtype: Any) -> None:
    indices = np.zeros(GRAD.shape, np.int32)
    indices[1, 2, 0, 1] = index
    for grad in (GRAD.astype(dtype), np.moveaxis(np.moveaxis(GRAD.astype(dtype), 1, -1).copy(), -1, 1)):
        with pytest.raises(
            IndexError, match=rf"^roi_pool_backward: indices\[1, 2, 0, 1\] is {index}; it must be 0"
        ):
            pooltide.roi_pool_backward(grad, X.shape, BOXES, indices)


def test_results_may_not_share_memory() -> None:
    both = np.zeros((2, 4, 2, 2), np.float32)
    with pytest.raises(ValueError, match=r"^roi_pool: out\[1\] shares memory with out\[0\]"):
        pooltide.roi_pool(X, BOXES, 2, return_indices=True, out=(both, both.view(np.int32)))
    with pytest.raises(TypeError, match=r"^roi_pool: return_indices is 1; it must be True or False"):
        pooltide.roi_pool(X, BOXES, 2, 1.0, 1)  # type: ignore[arg-type]
    x = X.copy()
    out = x.reshape(-1)[: GRAD.size].reshape(GRAD.shape)
    np.testing.assert_array_equal(pooltide.roi_align(x, BOXES, 2, out=out), GRAD)
