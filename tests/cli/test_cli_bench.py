"""`pooltide bench`: what it prints, and that it prints no speed for a wrong result."""

from __future__ import annotations

import json
import os
from io import StringIO
from time import sleep
from typing import Any

import pytest
from click.testing import CliRunner

from pooltide.acceptance.notation import parse
from pooltide.acceptance.trial import problem_of
from pooltide.arrays import functions
from pooltide.cli import main
from pooltide.cli.bench import cpu_timing
from pooltide.cli.bench.named_shapes import SHAPES
from shares import fast_some

CASES = [
    "avg2d:2x3x23x29:k3:s2:p1:bf16",
    "avg2d:2x3x23x29:k3:s2:p1:f32:cl",
    "adaptive_avg3d:2x3x7x11x13:o3x5x4:f32",
    "adaptive_max2d:2x3x23x29:o5x7:f32:i32",
    "adaptive_max3d:2x3x7x11x13:o3x5x4:f16:i64",
    "avg1d:2x3x29:k3:s2:p1:f32",
    "avg3d:2x3x7x11x13:k3:p1:nopad:f32",
    "avg3d:2x3x7x11x13:k3:p1:bf16",
    "max1d:2x3x29:k3:d2:f32:i64",
    "max2d:2x3x23x29:k3:s2:p1:d2x1:ceil:f32:i32",
    "max3d:2x3x7x11x13:k2:bf16:i64",
    "adaptive_avg1d:2x3x29:o7:f32",
    "adaptive_avg2d:2x3x23x29:o5x7:f32",
    "adaptive_max1d:2x3x29:o7:f32:i64",
]


@pytest.mark.parametrize("case", fast_some(CASES, 2))
def test_json_has_times_and_ratios(case: str) -> None:
    run = CliRunner().invoke(main, ["bench", case, "--rounds", "3", "--json"])
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    (row,) = told["results"]
    assert row["case"] == str(parse(case))
    assert row["limit_seconds"] > 0
    assert {"ours out=", "ours", "copy"} <= set(row["seconds"])
    assert all(seconds > 0 for seconds in row["seconds"].values())


def test_the_table_names_the_case_and_the_threads() -> None:
    command = ["bench", CASES[0], "--rounds", "3", "--threads", "1"]
    run = CliRunner().invoke(main, command, env={"COLUMNS": "200"})
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("medians of 3 rounds, ")
    assert " device cpu, " in run.stdout
    assert " threads 1, " in run.stdout
    assert CASES[0] in run.stdout


def test_the_table_fits_80_columns() -> None:
    run = CliRunner().invoke(main, ["bench", CASES[0], "--rounds", "3"], env={"COLUMNS": "80"})
    assert run.exit_code == 0, run.output
    assert max(map(len, run.stdout.splitlines())) <= 80


def test_strides_that_fit_both_layouts_are_compared_as_planes() -> None:
    """A gradient of 1 × 1 cells is contiguous in both layouts, and PyTorch rounds differently channels-last."""
    run = CliRunner().invoke(main, ["bench", "adaptive_avg2d:2x8x3x7:o1x1:f32:cl", "--rounds", "3"])
    assert run.exit_code == 0, run.output


def test_a_wrong_result_has_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = functions.avg_pool2d_backward

    def wrong(*arguments: Any, **more: Any) -> Any:
        result = right(*arguments, **more)
        result[..., -1, -1] += 1
        return result

    monkeypatch.setattr(functions, "avg_pool2d_backward", wrong)
    run = CliRunner().invoke(main, ["bench", "avg2d:2x3x23x29:k3:s2:p1:f32", "--rounds", "3", "--json"])
    assert run.exit_code == 1
    assert json.loads(run.stdout)["results"] == []
    assert "differs from the reference" in run.stderr


def test_a_wrong_word_is_wrong_usage() -> None:
    run = CliRunner().invoke(main, ["bench", "--dtype", "f31"])
    assert run.exit_code == 2
    assert "'f31'" in run.output


def test_named_shapes_are_calls() -> None:
    for notation in SHAPES.values():
        assert problem_of(parse(notation)).cells > 0


def test_no_implementation_always_runs_after_the_same_other() -> None:
    names = ["ours out=", "ours", "torch", "torch out=", "copy"]
    before: dict[str, set[str]] = {name: set() for name in names}
    for turn in range(5):  # the rounds of drawn problems
        ordered = cpu_timing.order(names, turn)
        assert sorted(ordered) == sorted(names)
        for name, earlier in zip(ordered[1:], ordered, strict=False):
            before[name].add(earlier)
    assert all(len(others) > 1 for others in before.values())


@pytest.mark.parametrize(("taken", "least", "most"), [(0.002, 5, 12), (0.03, 3, 3)])
def test_a_call_is_timed_after_calls_that_warm_the_cache(taken: float, least: int, most: int) -> None:
    """Short calls are repeated for 20 ms, others twice; the calls after these are timed."""
    made: list[float] = []

    def run() -> None:
        made.append(taken)
        sleep(taken)

    cpu_timing.time_call(run)
    assert least <= len(made) <= most


def test_without_pytorch_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("options", "cpu_gradients"):
        monkeypatch.setattr(f"pooltide.cli.bench.{module}.find_spec", lambda name: None)
    run = CliRunner().invoke(main, ["bench", CASES[0], "--rounds", "3", "--json"])
    assert run.exit_code == 0, run.output
    assert "PyTorch is not installed, so its figures are missing: pip install" in run.stderr
    assert "torch" not in json.loads(run.stdout)["results"][0]["seconds"]


def test_unpools_are_refused_with_a_sentence() -> None:
    done = CliRunner().invoke(main, ["bench", "max_unpool2d:1x2x5x5:k2"])
    assert (done.exit_code, "bench does not time unpools" in done.output) == (2, True), done.output


def test_only_programs_on_the_same_processors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    stat = (
        "cpu 900 0 0 9\ncpu0 500 0 0 9 0 0 0 0\ncpu1 200 1 2 9 9 4 8 16\ncpu10 200 0 0 9 0 0 0 0\nintr 5 0\n"
    )
    monkeypatch.setattr(cpu_timing, "open", lambda name: StringIO(stat), raising=False)
    monkeypatch.setattr(cpu_timing, "process_time", lambda: 0.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1})
    assert cpu_timing._other_seconds() * os.sysconf("SC_CLK_TCK") == 231
