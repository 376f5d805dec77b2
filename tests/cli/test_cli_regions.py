"""`pooltide bench` of pools over regions of interest: what is drawn, what is measured, and what is compared."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import pooltide as pt
from pooltide.acceptance.notation import parse
from pooltide.acceptance.trial import problem_of
from pooltide.arrays import functions
from pooltide.cli import main
from pooltide.cli.bench import region_pools
from pooltide.cli.bench.sampling import CELLS, Sampling, draw_problems

SMALL = ["--most-cells", "16384", "--rounds", "3", "--threads", "1"]


def bench(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", *arguments])


def test_drawn_regions_are_those_of_detectors() -> None:
    problems = draw_problems(Sampling(300, 3, "regions"))
    assert [str(one.case) for one in draw_problems(Sampling(2, 3, "regions"))] == [
        str(one.case) for one in problems[:2]
    ]
    for drawn in problems:
        problem = problem_of(drawn.case)
        assert 100 <= problem.regions <= 2000
        assert 12 <= min(problem.plane) <= max(problem.plane) <= 337
        assert drawn.case.plane[0] in (1, 3, 7, 14)
        assert np.prod(drawn.case.shape) <= CELLS["cpu"]
        assert drawn.forward != drawn.case.operator.gradient
    kinds = {drawn.case.operator.short for drawn in problems}
    assert kinds == {
        f"{name}{end}"
        for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
        for end in ("", "_forward")
    }
    assert 0.2 < sum(drawn.forward for drawn in problems) / 300 < 0.5
    assert len({drawn.case.data.seed for drawn in problems}) > 250


def test_a_small_run_has_a_row_for_each_problem() -> None:
    run = bench("--drawn", "2", "--seed", "2", "--kind", "regions", "--json", *SMALL)
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    drawn = draw_problems(Sampling(2, 2, "regions", most_cells=16384))
    assert [row["case"] for row in told["rows"]] == [str(one.case) for one in drawn]
    for row, one in zip(told["rows"], drawn, strict=True):
        pool = one.case.operator.function.removesuffix("_backward")
        assert row["kind"] == f"{pool} {'forward' if one.forward else 'gradient'}"
        assert row["ours_to_limit"] > 0
    alone = bench(str(drawn[0].case), "--rounds", "3", "--json")
    assert alone.exit_code == 0, alone.output
    assert json.loads(alone.stdout)["results"][0]["case"] == str(drawn[0].case)


@pytest.mark.parametrize("name", ["roi_align", "roi_pool", "ps_roi_align_forward", "ps_roi_pool"])
def test_a_wrong_result_stops_and_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = f"{name}:1x8x9x9:o2:boxes5:f32"
    function = parse(case).operator.function
    honest = getattr(functions, function)

    def wrong(*arguments: Any, **options: Any) -> Any:
        result = honest(*arguments, **options)
        result.reshape(-1)[5] += 1
        return result

    assert bench(case, "--rounds", "3").exit_code == 0
    monkeypatch.setattr(functions, function, wrong)
    run = bench(case, "--rounds", "3")
    assert run.exit_code == 1
    assert "the result differs from the reference" in run.output


def test_ours_is_compared_with_torchvisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a torchvision whose gradient is ours, or is ours but for a cell."""
    torch = pytest.importorskip("torch")
    calls: list[Any] = []

    def backward(g: Any, boxes: Any, scale: float, ph: int, pw: int, *rest: Any) -> Any:
        calls.append((scale, ph, pw, rest))
        n, c, h, w, ratio, aligned = rest
        result = pt.roi_align_backward(g.numpy(), (n, c, h, w), boxes.numpy(), scale, ratio, aligned)
        result[0, 0, 0, 0] += error
        return torch.from_numpy(result)

    theirs = SimpleNamespace(roi_align=None, _roi_align_backward=backward)
    monkeypatch.setattr(torch.ops, "torchvision", theirs, raising=False)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(__spec__=None))
    monkeypatch.setattr(region_pools, "find_spec", lambda name: name)
    error = 0.0
    case = parse("roi_align:2x3x9x8:o2x3:boxes5:scale0.5:ratio2:aligned:f32")
    benchmark = region_pools.prepare(case, "cpu")
    assert calls[0] == (0.5, 2, 3, (2, 3, 9, 8, 2, True))
    assert benchmark.implementations.keys() == {"ours out=", "ours", "torch"}
    error = 1.0
    with pytest.raises(region_pools.WrongResult, match="differs from torchvision's"):
        region_pools.prepare(case, "cpu")


@pytest.mark.parametrize("layout", ["", ":cl"])
@pytest.mark.parametrize(
    "words",
    [
        "roi_align:2x9x9x8:o2x3:boxes5:ratio2:aligned:f32",
        "roi_pool:2x9x9x8:o2:boxes5:i32:bf16",
        "ps_roi_pool:2x36x9x8:o2:boxes5:f32",
        "ps_roi_align_forward:2x36x9x8:o2:boxes5:ratio2:f32",
    ],
)
def test_values_on_a_device_are_drawn_there(words: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, with the CPU as the device: a wrong channel is named."""
    pytest.importorskip("torch")
    import pooltide.torch
    import pooltide.torch.functional

    case = parse(f"{words}{layout}")
    problem = problem_of(case)
    boxes = np.array([[1, 0, 0, 4, 4]] * 5, case.dtype.numpy)
    benchmark = region_pools.on_tensors(case, problem, boxes, "cpu")
    assert benchmark.implementations["ours"]() is not None
    # 2 samples a side in each bin, of 4 corners, 3 operations each; or one operation for each bin
    bins, sampled = np.prod(case.plane), "align" in words
    assert benchmark.operations == 5 * bins * problem.channels * (4 * 12 if sampled else 1)
    module = pooltide.torch if case.operator.gradient else pooltide.torch.functional
    honest, calls = getattr(module, case.operator.function), []

    def wrong(*arguments: Any) -> Any:
        calls.append(1)
        result = honest(*arguments)
        return result + 1 if len(calls) == 1 else result

    monkeypatch.setattr(module, case.operator.function, wrong)
    with pytest.raises(region_pools.WrongResult, match="differs from that on the CPU"):
        region_pools.on_tensors(case, problem, boxes, "cpu")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--kind", "regions"), "--kind regions is for --drawn"),
        (("roi_align:1x8x9x9:o2", "--kind", "regions"), "--kind regions is for --drawn"),
        (("roi_align:1x8x9x9:o2:boxes0",), "the case has no cell or no region"),
        (("roi_align:1x8x9x9:o2:ratio99999",), "sampling_ratio is 99999; it must be at most 32767"),
    ],
)
def test_wrong_usage_is_explained(arguments: tuple[str, ...], text: str) -> None:
    run = bench(*arguments, "--rounds", "3")
    assert run.exit_code == 2
    assert text in run.output
