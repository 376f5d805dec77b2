"""Cases of pools over regions of interest: their boxes, their golden data, their pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pooltide as pt
from commandline import golden_and_chip, invoke, results_of
from pooltide.acceptance.boxes import draw_boxes
from pooltide.acceptance.inputs import TooLarge, draw
from pooltide.acceptance.notation import parse
from pooltide.acceptance.oracle import golden_result
from pooltide.acceptance.region_inputs import boxes_of
from pooltide.acceptance.show_regions import draw_regions, reach
from pooltide.acceptance.trial import Refused, problem_of, run
from pooltide.acceptance.ulps import bits_of
from pooltide.acceptance.words import NotationError
from pooltide.operators.catalog import regions
from pooltide.problem.regions import RegionProblem

SMALL = "2x12x9x7:boxes30:o2x3:scale0.5"


def drawn(count: int = 2000, images: int = 3, **more: Any) -> Any:
    random = np.random.Generator(np.random.PCG64(7))
    return draw_boxes(random, count, images, (50, 68), 1 / 16, **more)


def test_boxes_are_those_of_a_detector() -> None:
    boxes = drawn()
    image, corners = boxes[:, 0], boxes[:, 1:]
    assert set(image) == {0, 1, 2}
    assert (np.diff(image) >= 0).all()
    assert ((corners >= 0) & (corners <= [1088, 800, 1088, 800])).all()
    sides = corners[:, 2:] - corners[:, :2]
    assert (sides >= 0).all()
    # As many sides are in one octave as in another, but for those at the edge, which are cut.
    counts = np.histogram(sides[:, 0], [8, 16, 32, 64, 128, 256, 512])[0]
    assert counts.min() > 100
    assert (boxes * 8 == np.round(boxes * 8)).all(), "multiples of 1/8 are the same on every machine"
    some = corners[:200]
    low, high = np.maximum(some[:, None, :2], some[:, :2]), np.minimum(some[:, None, 2:], some[:, 2:])
    common = np.clip(high - low, 0, None).prod(2)
    near = (common > 0.5 * sides[:200].prod(1)).sum(1) - 1  # other boxes that have most of a box
    assert np.median(near) >= 3, "boxes of an object overlap"


def test_boxes_come_from_the_seed_alone() -> None:
    assert np.array_equal(drawn(), drawn())
    assert drawn(5).tolist() == [
        [1.0, 281.25, 231.0, 1088.0, 800.0],
        [1.0, 274.25, 201.625, 1088.0, 800.0],
        [1.0, 344.375, 250.75, 1088.0, 760.875],
        [1.0, 336.5, 175.25, 1088.0, 739.125],
        [1.0, 306.75, 174.0, 1088.0, 693.125],
    ]


def test_odd_boxes_are_drawn_where_the_case_wants_them() -> None:
    boxes = drawn(anywhere=True)[:, 1:]
    assert (boxes < 0).any()
    assert (boxes > 1088).any()
    assert (boxes[:, :2] > boxes[:, 2:]).any()
    assert (boxes[:, :2] == boxes[:, 2:]).all(1).any()
    for count, images, plane in ((0, 1, (1, 1)), (1, 1, (1, 1)), (40, 0, (1, 300))):
        random = np.random.Generator(np.random.PCG64(1))
        assert draw_boxes(random, count, images, plane, 0.3, anywhere=True).shape == (count, 5)


@pytest.mark.parametrize("scale", ["0", "1e-30", "-1e-30", "1e38"])
def test_any_scale_has_boxes(scale: str) -> None:
    case = parse(f"roi_align:2x4x9x11:o2:scale{scale}")
    boxes = boxes_of(problem_of(case), case.data)
    assert boxes is not None
    assert np.isfinite(boxes).all()
    assert (boxes[:, 3:] > boxes[:, 1:3]).any()


def test_a_scale_beyond_float32_is_refused() -> None:
    with pytest.raises(NotationError, match=r"spatial_scale is .* a finite number of float32"):
        parse("roi_align:2x4x9x11:o2:scale1e39")


def test_a_pool_and_its_gradient_have_the_same_boxes() -> None:
    forward, gradient = (parse(f"{name}:{SMALL}:seed9") for name in ("roi_align_forward", "roi_align"))
    pairs = [boxes_of(problem_of(case), case.data) for case in (forward, gradient)]
    np.testing.assert_array_equal(*pairs)
    assert pairs[0] is not None
    other = boxes_of(problem_of(gradient), parse(f"roi_align:{SMALL}:seed8").data)
    assert not np.array_equal(pairs[0], other)


@pytest.mark.parametrize("name", [op.short for op in regions().values()])
@pytest.mark.parametrize("words", ["f32", "f16:cl", "f64:anywhere", "bf16:anywhere"])
def test_the_result_of_a_case_is_that_of_the_function(name: str, words: str) -> None:
    case = parse(f"{name}:{SMALL}:{words}" + (":i32" if name.startswith("roi_pool") else ""))
    trial = run(case)
    assert trial.verdict("mixed").passed, trial.verdict("mixed").text
    problem = problem_of(case)
    boxes = boxes_of(problem, case.data)
    assert boxes is not None
    arguments = [np.ascontiguousarray(trial.source)]
    arguments += [case.shape, boxes.astype(case.dtype.numpy)] if problem.gradient else [
        boxes.astype(case.dtype.numpy), case.plane
    ]  # fmt: skip
    if problem.gradient and trial.indices is not None:
        arguments.append(trial.indices)
    attributes = [v for role, v in case.attributes if role in ("spatial_scale", "sampling_ratio", "aligned")]
    if name == "roi_pool":
        attributes = []
    want = getattr(pt, case.operator.function)(*arguments, *attributes)
    np.testing.assert_array_equal(bits_of(np.ascontiguousarray(trial.actual)), bits_of(want))


def test_golden_positions_are_those_of_float32() -> None:
    """In float64, the bins of this box would have 2 samples on an axis, not 3."""
    case = parse("roi_align_forward:1x1x9x9:boxes1:o3:f32")
    problem = problem_of(case)
    boxes = np.array([[0, 0, 0, np.nextafter(np.float32(6), np.float32(7)), 6]], np.float32)
    x = np.arange(81, dtype=np.float32).reshape(1, 1, 9, 9)
    golden = golden_result(problem, x, None, boxes).values
    np.testing.assert_allclose(pt.roi_align(x, boxes, 3), golden, rtol=1e-6)


def test_a_file_of_boxes(tmp_path: Path) -> None:
    boxes = np.array([[0, 0, 0, 20, 20], [1, 3, 4, 9, 17]], np.float32)
    np.save(tmp_path / "b.npy", boxes)
    text = f"roi_align_forward:2x4x9x7:o2x2:boxes={tmp_path / 'b.npy'}:f32"
    case = parse(text)
    assert str(case) == text
    assert case.boxes == 2
    trial = run(case)
    np.testing.assert_array_equal(trial.actual, pt.roi_align(trial.source, boxes, 2))
    invoke("golden", text, "-o", tmp_path / "golden")
    (tmp_path / "b.npy").unlink()  # the golden data has the boxes itself
    results = results_of(tmp_path / "golden", tmp_path / "chip")
    assert "1 of 1 pass" in invoke("compare", results, tmp_path / "golden")
    np.testing.assert_array_equal(np.load(tmp_path / "golden" / "case" / "boxes.npy"), boxes)
    entry = json.loads((tmp_path / "golden" / "manifest.jsonl").read_text().splitlines()[1])
    assert entry["case"] == "roi_align_forward:2x4x9x7:o2x2:boxes2:f32:given"


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (None, "can't be read: No such file"),
        (np.zeros((3, 4)), r"shape \(3, 4\) and dtype FLOAT64; it must be \(K, 5\) and of floats"),
        (np.zeros((3, 5), np.int32), "dtype INT32; it must be"),
        (np.zeros((3, 5), order="F"), "Fortran order; it must be in C order"),
    ],
)
def test_a_bad_file_of_boxes_is_named(tmp_path: Path, array: Any, sentence: str) -> None:
    if array is not None:
        np.save(tmp_path / "b.npy", array)
    with pytest.raises(NotationError, match=f"word boxes=.*b.npy: .*{sentence}"):
        parse(f"roi_align:2x4x9x7:o2:boxes={tmp_path / 'b.npy'}")


def test_a_box_of_no_image_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.array([[0, 0, 0, 2, 2], [2, 0, 0, 2, 2]], np.float32))
    with pytest.raises(Refused, match=r"roi_align_backward: boxes\[1, 0\], an image, is 2; it must be"):
        run(parse(f"roi_align:2x4x9x7:o2:boxes={tmp_path / 'b.npy'}"))


def test_a_box_of_no_image_gives_no_golden_data_and_no_picture(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.array([[0, 0, 0, 2, 2], [2, 0, 0, 2, 2]], np.float32))
    for name in ("roi_align", "roi_pool"):
        case = f"{name}:2x4x9x7:o2:boxes={tmp_path / 'b.npy'}"
        texts = [invoke("golden", case, "-o", tmp_path / "golden", rc=1)]
        texts.append(invoke("show", case, "-o", tmp_path / "x.svg", rc=2))
        assert all(f"{name}_backward: boxes[1, 0], an image, is 2" in text for text in texts), texts
    assert not list(tmp_path.glob("golden/case*"))


def test_the_gradient_of_roi_pool_keeps_the_scale_of_its_boxes() -> None:
    """The function has no scale, but the boxes and the maxima of a case are those of its forward."""
    forward, gradient = (
        parse(f"{name}:2x4x16x20:boxes6:o3:scale0.5") for name in ("roi_pool_forward", "roi_pool")
    )
    assert "scale0.5" in str(gradient)
    assert parse(str(gradient)) == gradient
    pairs = [boxes_of(problem_of(case), case.data) for case in (forward, gradient)]
    np.testing.assert_array_equal(*pairs)
    assert run(gradient).verdict("mixed").passed


def test_golden_data_of_a_list_of_cases(tmp_path: Path) -> None:
    cases = [
        {"name": "a", "operator": "roi_align", "input": [2, 4, 9, 7], "output": [3, 3], "boxes": 12,
         "spatial_scale": 0.25, "sampling_ratio": 2, "aligned": True},
        {"name": "b", "operator": "roi_pool_forward", "input": [2, 4, 9, 7], "output": 2, "boxes": 12,
         "index_dtype": "i32", "dtype": "f16"},
    ]  # fmt: skip
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    golden = tmp_path / "golden"
    invoke("golden", tmp_path / "cases.jsonl", "-o", golden)
    assert sorted(path.name for path in (golden / "b").glob("*.npy")) == [
        "boxes.npy", "indices.npy", "input.npy", "output.npy",
    ]  # fmt: skip
    x, boxes = (np.load(golden / "b" / f"{name}.npy") for name in ("input", "boxes"))
    assert boxes.dtype == np.float16
    values, indices = pt.roi_pool(x, boxes, 2, return_indices=True)
    np.testing.assert_array_equal(np.load(golden / "b" / "indices.npy"), indices)
    np.testing.assert_array_equal(np.load(golden / "b" / "output.npy"), values)
    results = results_of(golden, tmp_path / "chip")
    assert "2 of 2 pass" in invoke("compare", results, golden)
    wrong = np.load(results / "a" / "grad_input.npy")
    wrong[1, 2, 3, 4] += 1
    np.save(results / "a" / "grad_input.npy", wrong)
    (results / "a" / "grad_input.bin").unlink()
    text = invoke("compare", results, golden, "--report", tmp_path / "report.html", rc=1)
    assert "FAIL  a" in text
    assert "1 of 2 pass" in text
    assert (
        "[3, 4]" in (tmp_path / "report.html").read_text() or (tmp_path / "report.html").stat().st_size > 1000
    )


def test_regions_are_accepted_as_windows_are(tmp_path: Path) -> None:
    """The way of docs/acceptance.md: a pack, shards, every standard, a report, and a result with a fault."""
    names = [op.short for op in regions().values()]
    golden, chip = golden_and_chip(tmp_path, "".join(f"{name}:{SMALL}:seed3\n" for name in names))
    cases, pack, total = tmp_path / "cases.txt", tmp_path / "p.tar", len(names)
    invoke("golden", cases, "-o", tmp_path / "again", "--pack", pack)
    assert f"{total} of {total} pass" in invoke("compare", chip, pack)
    parts = []
    for number in (1, 2, 3):
        parts.append(tmp_path / f"{number}.jsonl")
        parts[-1].write_text(invoke("compare", chip, golden, "--shard", f"{number}/3", "--json"))
    assert f"{total} pass, 0 fail" in invoke("merge", *parts, "-o", tmp_path / "all.jsonl")
    np.save(chip / "case-000001.npy", np.load(chip / "case-000001.npy") * np.float32(1.5))
    for standard in ("mixed", "single", "bits", "ulp", "msprobe"):
        report = tmp_path / f"{standard}.html"
        text = invoke("compare", chip, golden, "--standard", standard, "--report", report, rc=1)
        assert "case-000001: " + standard in text, text
        assert f"compare {chip} {golden} --only case-000001" in report.read_text("utf-8")


def test_regions_of_other_tools_are_refused_by_name(tmp_path: Path) -> None:
    for name in ("aclnnRoiAlignV2Backward", "torchvision.ops.roi_align", "ps_roi_pool_backward"):
        (tmp_path / "c.json").write_text(json.dumps([{"id": 1, "name": name, "inputs": []}]))
        text = invoke("golden", "--from", tmp_path / "c.json", "-o", tmp_path / "g", rc=1)
        assert f"name is '{name}'; pools over regions are not read from other tools' files" in text


def test_a_picture_has_the_boxes_and_their_coverage(tmp_path: Path) -> None:
    case = parse("roi_align:1x1x8x9:boxes4:o2:scale0.5:ratio2:aligned:f32")
    problem = problem_of(case)
    assert isinstance(problem, RegionProblem)
    box = np.array([0, 2.5, 4.5, 10.5, 12.5], np.float32)  # samples at 1.25 … 4.25, and 2.25 … 5.25
    reached = reach(problem, box)
    assert np.argwhere(reached).min(0).tolist() == [2, 1]
    assert np.argwhere(reached).max(0).tolist() == [6, 5]
    gradient = pt.roi_align_backward(np.ones((1, 1, 2, 2), np.float32), (1, 1, 8, 9), box[None], 0.5, 2, True)
    np.testing.assert_array_equal(gradient[0, 0] != 0, reached.astype(bool))
    words = [shape.text for shape in draw_regions(case, problem).shapes if hasattr(shape, "text")]
    assert "boxes, 4 of image 0" in words
    assert "coverage: regions that reach a cell" in words
    for name in ("roi_pool_forward", "ps_roi_pool", "ps_roi_align_forward"):
        invoke("show", f"{name}:{SMALL}:anywhere", "-o", tmp_path / f"{name}.svg")
        assert (tmp_path / f"{name}.svg").stat().st_size > 1000
    text = invoke("show", f"roi_pool:{SMALL}", "-o", tmp_path / "x.html", rc=2)
    assert "roi_pool_backward pools over regions of interest; a page for the browser needs windows" in text
    assert "a picture needs one" in invoke(
        "show", "roi_align:1x1x4x4:boxes0:o2", "-o", tmp_path / "x.svg", rc=2
    )


def test_a_case_that_takes_too_long_is_refused() -> None:
    case = parse("roi_align:1x4x50x68:boxes100000:o7")
    with pytest.raises(TooLarge, match="the case has 100000 regions of 49 bins, and the float64 reference"):
        draw(problem_of(case), case.data)
