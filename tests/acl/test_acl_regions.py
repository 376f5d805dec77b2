"""CANN's pools over regions of interest through both phases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_siblings import compute, device, strided_tensor

import pooltide
from pooltide import acl, aclnn
from pooltide.operators.catalog import documented

pytestmark = pytest.mark.usefixtures("runtime")
RNG = np.random.default_rng(34)
SHAPE, SCALE = (2, 3, 9, 11), 0.25
BOXES = np.array(
    [[0, 0, 0, 40, 30], [1, 3, 4, 9, 17.5], [1, 20, 8, 44, 36], [0, 5, 5, 5, 5], [1, -9, 2, 60, 50]],
    np.float32,
)


def values(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def pool(x: Any, boxes: Any, aligned: bool, ratio: int = 2, bins: tuple[int, int] = (2, 3)) -> Any:
    shape = (len(boxes), x.shape[1], *bins)
    return compute(
        "aclnnRoiAlignV2", self=x, boxes=boxes, pooledHeight=bins[0], pooledWidth=bins[1], spatialScale=SCALE,
        samplingRatio=ratio, aligned=aligned, out=np.full(shape, np.nan, x.dtype),
    )["out"]  # fmt: skip


def gradient(g: Any, boxes: Any, aligned: bool, ratio: int = 2, shape: tuple[int, ...] = SHAPE) -> Any:
    return compute(
        "aclnnRoiAlignV2Backward", gradOutput=g, boxes=boxes, inputShape=list(shape), pooledHeight=g.shape[2],
        pooledWidth=g.shape[3], spatialScale=SCALE, samplingRatio=ratio, aligned=aligned,
        gradInput=np.full(shape, np.nan, np.float32),
    )["gradInput"]  # fmt: skip


def by_onnx(x: Any, rois: Any, images: Any, mode: str, ratio: int = 2) -> Any:
    return compute(
        "aclnnRoiAlign", self=x, rois=rois, batchIndices=images, mode=mode, outputHeight=2, outputWidth=3,
        samplingRatio=ratio, spatialScale=SCALE, out=np.full((len(rois), x.shape[1], 2, 3), np.nan, x.dtype),
    )["out"]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 2])
def test_they_have_the_bits_of_the_numpy_functions(dtype: Any, aligned: bool, ratio: int) -> None:
    x, boxes = values(SHAPE, dtype), BOXES.astype(dtype)
    want = pooltide.roi_align(x, boxes, (2, 3), SCALE, ratio, aligned)
    np.testing.assert_array_equal(pool(x, boxes, aligned, ratio), want)
    if not aligned:
        images = boxes[:, 0].astype(np.int32)
        np.testing.assert_array_equal(by_onnx(x, boxes[:, 1:].copy(), images, "avg", ratio), want)
    if dtype == np.float32:
        g = values(want.shape)
        want = pooltide.roi_align_backward(g, SHAPE, boxes, SCALE, ratio, aligned)
        np.testing.assert_array_equal(gradient(g, boxes, aligned, ratio), want)


def largest_terms(plane: Any, box: Any, bins: tuple[int, int], ratio: int) -> Any:
    """ONNX's maximum, in plain loops: of each sample the largest of four cells times their weights."""
    f = np.float32
    starts = [f(f(v) * f(SCALE)) for v in (box[1], box[0])]
    ends = [f(f(v) * f(SCALE)) for v in (box[3], box[2])]
    sizes = [max(f(e - s), f(1)) for s, e in zip(starts, ends, strict=True)]
    steps = [f(size / f(n)) for size, n in zip(sizes, bins, strict=True)]
    found = np.zeros(bins, f)
    for at in np.ndindex(bins):
        terms = []
        for sample in np.ndindex(ratio, ratio):
            where = [
                f(f(start + f(f(i) * step)) + f(f(f(n + 0.5) * step) / f(ratio)))
                for start, i, step, n in zip(starts, at, steps, sample, strict=True)
            ]
            if any(v < -1 or v > n for v, n in zip(where, plane.shape, strict=True)):
                terms.append(f(0))
                continue
            corners = []
            for v, n in zip(where, plane.shape, strict=True):
                v = max(v, f(0))
                low = min(int(v), n - 1)
                part = f(v - f(low)) if low < n - 1 else f(0)
                corners.append(((low, f(1) - part), (min(low + 1, n - 1), part)))
            terms += [f(wy * wx) * plane[y, x] for y, wy in corners[0] for x, wx in corners[1]]
        found[at] = max(terms)
    return found


def test_the_maximum_is_that_of_onnx() -> None:
    x = values(SHAPE)
    images = BOXES[:, 0].astype(np.int32)
    for ratio in (2, 7):
        got = by_onnx(x, BOXES[:, 1:].copy(), images, "max", ratio)
        for k, c in np.ndindex(len(BOXES), 3):
            want = largest_terms(x[images[k], c], BOXES[k, 1:], (2, 3), ratio)
            np.testing.assert_array_equal(got[k, c], want, str((k, c)))
    half = by_onnx(x.astype(np.float16), BOXES[:, 1:].astype(np.float16), images, "max")
    want = by_onnx(x.astype(np.float16).astype(np.float32), BOXES[:, 1:].copy(), images, "max")
    np.testing.assert_array_equal(half, want.astype(np.float16))


def test_tensors_may_be_strided() -> None:
    x, g = values(SHAPE), values((5, 3, 2, 3))
    boxes = strided_tensor(BOXES, "ND")
    out = strided_tensor(np.zeros((5, 3, 2, 3), np.float32), "NCHW")
    got = compute(
        "aclnnRoiAlignV2", self=strided_tensor(x, "NCHW"), boxes=boxes, pooledHeight=2, pooledWidth=3,
        spatialScale=SCALE, samplingRatio=0, aligned=True, out=out,
    )["out"]  # fmt: skip
    np.testing.assert_array_equal(got, pooltide.roi_align(x, BOXES, (2, 3), SCALE, 0, True))
    got = compute(
        "aclnnRoiAlignV2Backward", gradOutput=strided_tensor(g, "NCHW"), boxes=strided_tensor(BOXES, "ND"),
        inputShape=list(SHAPE), pooledHeight=2, pooledWidth=3, spatialScale=SCALE, samplingRatio=2,
        aligned=False, gradInput=strided_tensor(np.zeros(SHAPE, np.float32), "NCHW"),
    )["gradInput"]  # fmt: skip
    np.testing.assert_array_equal(got, pooltide.roi_align_backward(g, SHAPE, BOXES, SCALE, 2, False))


def test_there_may_be_no_region_and_no_channel() -> None:
    none = np.zeros((0, 5), np.float32)
    assert pool(values(SHAPE), none, True).shape == (0, 3, 2, 3)
    assert not gradient(np.zeros((0, 3, 2, 3), np.float32), none, True).any()
    assert pool(values((2, 0, 9, 11)), BOXES, True).shape == (5, 0, 2, 3)
    empty = gradient(np.zeros((5, 0, 2, 3), np.float32), BOXES, True, shape=(2, 0, 9, 11))
    assert empty.shape == (2, 0, 9, 11)


def test_the_number_of_an_image_is_rounded_down() -> None:
    x, fractions = values(SHAPE), BOXES.copy()
    fractions[:, 0] += [0.5, 0.75, 0, 0.25, 0.9375]
    np.testing.assert_array_equal(pool(x, fractions, True), pool(x, BOXES, True))


def _changed(at: Any, value: float) -> Any:
    boxes = np.clip(BOXES, 0, [1, 44, 36, 44, 36]).astype(np.float32)
    boxes[at] = value
    return boxes


BAD = {
    "image too large": (_changed((3, 0), 2), "boxes[3, 0] is 2; it must be 0 to 1, the number of an image."),
    "image below 0": (
        _changed((3, 0), -0.5),
        "boxes[3, 0] is -1; it must be 0 to 1, the number of an image.",
    ),
    "image NaN": (_changed((3, 0), np.nan), "boxes[3, 0] is nan; it must be 0 to 1, the number of an image."),
    "corner NaN": (_changed((3, 2), np.nan), "boxes[3] has NaN; it must have numbers."),
    "beyond the image": (
        _changed((0, 3), 45),
        "boxes[0] is (0, 0, 45, 30); since CANN 8.3 it must have 0 <= x1",
    ),
    "inverted": (_changed((1, 1), 9.5), "boxes[1] is (9.5, 4, 9, 17.5); since CANN 8.3 it must have"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_boxes_are_findings(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    boxes, sentence = BAD[name]
    x, good = values(SHAPE), _changed((0, 0), 0)
    before = acl.get_checks()
    try:
        acl.set_checks("warn")
        got = pool(x, boxes, True)
        assert f"aclnnRoiAlignV2: {sentence}" in capfd.readouterr().err
        same = (boxes == good).all(1)
        want = pooltide.roi_align(x, good, (2, 3), SCALE, 2, True)
        np.testing.assert_array_equal(got[same], want[same])
        if name[:5] in ("image", "corne"):
            assert not got[3].any(), "the region is 0"
            assert not np.isnan(gradient(values((5, 3, 2, 3)), boxes, True)).any()
        acl.set_checks("strict")
        with pytest.raises(AssertionError, match=r"boxes\[\d"):
            pool(x, boxes, True)
        acl.set_checks("off")
        capfd.readouterr()
        pool(x, boxes, True)
        assert "boxes" not in capfd.readouterr().err
        acl.set_checks("strict")
        acl.set_edition("8.2")
        if "CANN 8.3" in sentence:
            pool(x, boxes, True)  # documents before 8.3 say nothing of where boxes are
    finally:
        acl.set_checks(before)


def test_bad_batch_indices_are_findings_by_their_name(capfd: pytest.CaptureFixture[str]) -> None:
    images = np.array([0, 1, 7, -1, 1], np.int32)
    got = by_onnx(1 + np.abs(values(SHAPE)), np.ones((5, 4), np.float32), images, "max")
    assert "batchIndices[2] is 7; it must be 0 to 1, the number of an image (2 such boxes were found)" in (
        capfd.readouterr().err
    )
    assert not got[2:4].any()
    assert got[[0, 1, 4]].all()


def test_good_boxes_at_the_edge_are_no_finding(capfd: pytest.CaptureFixture[str]) -> None:
    """A side of the image divided by a scale that float32 rounds."""
    x = values((1, 1, 7, 10))
    for scale in (0.1, 0.3, 1 / 3, 0.7):
        box = np.array([[0, 0, 0, 10 / np.float32(scale), 7 / np.float32(scale)]], np.float32)
        compute(
            "aclnnRoiAlignV2", self=x, boxes=box, pooledHeight=1, pooledWidth=1, spatialScale=scale,
            samplingRatio=0, aligned=True, out=np.zeros((1, 1, 1, 1), np.float32),
        )  # fmt: skip
    assert capfd.readouterr().err == ""


def test_a_repeatable_executor_takes_other_boxes() -> None:
    x, boxes = values(SHAPE), [device(BOXES), device(BOXES[::-1].copy())]
    out = device(np.zeros((5, 3, 2, 3), np.float32), "NCHW")
    size, executor, status = aclnn.aclnnRoiAlignV2GetWorkspaceSize(
        device(x, "NCHW"), boxes[0], 2, 3, SCALE, 2, True, out
    )
    assert status == 0
    assert acl.aclSetAclOpExecutorRepeatable(executor) == 0
    workspace = acl.aclrtMalloc(size, 0)[0] if size else None
    for turn, given in ((0, BOXES), (1, BOXES[::-1]), (0, BOXES)):
        assert acl.aclSetTensorAddr(executor, 1, boxes[turn], boxes[turn].address) == 0
        assert aclnn.aclnnRoiAlignV2(workspace, size, executor, None) == 0
        assert acl.aclrtSynchronizeStream(None) == 0
        np.testing.assert_array_equal(
            acl.tensor_to_numpy(out), pooltide.roi_align(x, given.copy(), (2, 3), SCALE, 2, True)
        )
    assert acl.aclDestroyAclOpExecutor(executor) == 0


def test_their_pages_say_what_was_decided() -> None:
    for name in ("aclnnRoiAlign", "aclnnRoiAlignV2", "aclnnRoiAlignV2Backward"):
        assert any("status" in note for note in documented()[name].notes)
