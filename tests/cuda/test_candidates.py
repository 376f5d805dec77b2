"""Every kernel that can compute a problem is a candidate, and the chosen one is nearly the fastest of them."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil, exp, log
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from cuda_problems import H200, strided
from pooltide.acceptance.notation import parse
from pooltide.acceptance.trial import problem_of
from pooltide.cli.bench.forward_pools import problems_of
from pooltide.cli.bench.sampling import Sampling, draw_problems
from pooltide.kernels.cuda import choice, cost, tuned
from pooltide.kernels.cuda.maximum_gradient import scatter_channels
from pooltide.kernels.cuda.runtime import code_cache
from pooltide.kernels.cuda.task import Task
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem

MEASURED = Path(__file__).parents[2] / "docs" / "measured"
# The largest regret that a change may leave: mean and p90.
RECORDS = {
    "h200-regret-averages.json": (1.045, 1.14),  # among up to five tiles of each kernel
    "h200-regret-maxima.json": (1.03, 1.09),
    "h200-regret-forwards.json": (1.03, 1.10),
}


def of(text: str) -> tuple[Problem, str]:
    case = parse(text)
    return problem_of(case), "channels_last" if case.channels_last else "planes"


def test_the_chosen_kernel_is_a_candidate_and_all_fit_the_device() -> None:
    for drawn in draw_problems(Sampling(60, 5, device="cuda", most_cells=1 << 24)):
        problem, layout = of(str(drawn.case))
        candidates = dict(choice.candidates(problem, layout, H200))
        assert choice.kernels(problem, layout, H200)[-1][0] in candidates, drawn.case
        for name, launches in candidates.items():
            assert all(launch.shared <= H200.shared_per_block for launch in launches), (name, drawn.case)


def test_only_one_kernel_adds_the_cells_of_a_mean_in_its_order() -> None:
    problem, layout = of("adaptive_avg2d_forward:2x3x9x9:o1x1")
    assert problem.quotient == "mean"
    assert [name for name, _ in choice.candidates(problem, layout, H200)] == ["mean of planes"]


def test_divisors_whose_product_is_rounded_are_left_to_the_general_kernel() -> None:
    """Kernels of gradients multiply three divisors as float32 numbers, which rounds 6001 × 6003 × 6005 twice."""
    axes = tuple(strided(5, k, 3, k // 2, ceil=True) for k in (6001, 6003, 6005))
    problem = Problem("average_gradient", (2, 3), axes, DTYPES["FLOAT32"], "extent")
    *others, (chosen, _) = choice.kernels(problem, "planes", H200)
    assert chosen == "general gradient of averages"
    assert ("staged average", "products of divisors would be rounded twice") in others
    assert sources(choice.plan(problem, "planes", H200)) == ["general.cu"]
    exact = replace(problem, dtype=DTYPES["FLOAT64"])
    assert choice.kernels(exact, "planes", H200)[-1][0] != chosen
    longer = tuple(strided(5, k, 3, k // 2, ceil=True) for k in (3000001, 3000003, 3000005))
    for kind in ("average", "average_gradient"):
        refused = choice.refuse(replace(problem, kind=kind, axes=longer))
        assert refused == "a divisor may exceed 64 bits"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLTIDE_CACHE", str(tmp_path))
    return tmp_path


def sources(launches: Any) -> list[str]:
    return [launch.source.file for launch in launches]


def test_a_measured_kernel_is_used_for_its_problem_alone(cache: Path) -> None:
    task = Task(*of("avg2d:4x8x32x32:k3:s2:p1"), H200)
    other = Task(*of("avg2d:4x8x32x31:k3:s2:p1"), H200)
    before = [sources(tuned.plan(one)) for one in (task, other)]
    assert ["average_dense.cu"] not in before
    tuned.keep(task, "dense average")
    assert sources(tuned.plan(task)) == ["average_dense.cu"]
    assert sources(tuned.plan(other)) == before[1]


@pytest.mark.parametrize("text", ["no such kernel", "filled average", "\N{SNOWMAN}"])
def test_a_name_that_cannot_compute_the_problem_is_ignored(cache: Path, text: str) -> None:
    task = Task(*of("avg2d:4x8x32x32:k3:s2:p1"), H200)
    tuned.keep(task, text)
    assert tuned.fastest(task) == text
    assert sources(tuned.plan(task)) == sources(choice.plan(task.problem, task.layout, H200))


def test_a_damaged_file_counts_as_missing(cache: Path) -> None:
    task = Task(*of("avg2d:4x8x32x32:k3:s2:p1"), H200)
    tuned.keep(task, "dense average")
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert tuned.fastest(task) is None


def test_nothing_is_kept_where_there_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "folder", lambda: None)
    task = Task(*of("avg2d:4x8x32x32:k3:s2:p1"), H200)
    tuned.keep(task, "dense average")
    assert tuned.fastest(task) is None


def regrets(name: str) -> list[float]:
    """Time of the launch with the least estimate ÷ time of the fastest, in each record.

    Of forwards, the launch is that of the kernel that is chosen now. Of gradients several tiles of a kernel were
    timed, and the estimates of all are compared; the planner must find a tile that is hardly worse than these.
    """
    found, record = [], json.loads((MEASURED / name).read_text())
    for row in record["rows"]:
        gradient, layout = of(row["case"])
        problems = {str(problem): problem for problem in (gradient, *problems_of(gradient))}
        task = Task(problems[row["problem"]], layout, H200)
        if "launches" in row:
            estimates = {one: estimate(task, one, row, record["work"]) for one in row["seconds"]}
            chosen = min(estimates, key=estimates.__getitem__)
            launches = choice.plan(task.problem, layout, H200)
            kernel = choice.kernels(task.problem, layout, H200)[-1][0]
            assert cost.seconds(task, kernel, launches) <= 1.1 * estimates[chosen], row["case"]
        else:
            chosen = choice.kernels(task.problem, layout, H200)[-1][0]
        found.append(row["seconds"][chosen] / min(row["seconds"].values()))
    return found


def estimate(task: Task, name: str, row: dict[str, Any], names: dict[str, list[str]]) -> float:
    """Of a recorded launch."""
    kernel, (grid, block, shared, registers, *work) = cost.family(name), row["launches"][name]
    shape = cost.Shape(grid, block, shared, registers, tuple(zip(names[kernel], work, strict=True)))
    return float(cost.coefficients(task.layout)[kernel].seconds(cost.features(task, shape)))


def summary(values: list[float]) -> tuple[float, float]:
    return exp(sum(map(log, values)) / len(values)), sorted(values)[ceil(0.9 * len(values)) - 1]


@pytest.mark.parametrize("name", RECORDS)
def test_the_choice_is_nearly_the_fastest_of_the_recorded_candidates(name: str) -> None:
    values = regrets(name)
    assert len(values) >= 150
    mean, p90 = summary(values)
    assert mean <= RECORDS[name][0]
    assert p90 <= RECORDS[name][1]


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("h200-regret-averages.json", "staged average"),
        ("h200-regret-maxima.json", "scatter of bands"),
        ("h200-regret-forwards.json", "direct maximum"),
    ],
)
def test_a_spoilt_coefficient_raises_the_regret(
    name: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = {layout: dict(cost.coefficients(layout)) for layout in choice.LAYOUTS}
    for of_layout in fitted.values():
        of_layout[kernel] = replace(of_layout[kernel], memory=0.1, work={})
    monkeypatch.setattr(cost, "coefficients", fitted.__getitem__)
    mean, _ = summary(regrets(name))
    assert mean > RECORDS[name][0]


@pytest.mark.parametrize(
    "text",
    ["adaptive_avg2d:1000000x1000x352x19:o704x19:f64", "avg2d_forward:2147483648x3x1x1023:k1x3:bf16:cl"],
)
def test_tensors_with_too_many_blocks_are_refused(text: str) -> None:
    assert (choice.refuse(*of(text)) or "").endswith("bytes, too many for the blocks of a grid")


def test_the_reasons_name_the_estimates() -> None:
    problem, layout = of("avg2d:64x64x56x56:k3:s2:p1")
    *others, (chosen, none) = choice.kernels(problem, layout, H200)
    assert none is None
    assert "filled average" in dict(others)
    assert any(f"that of {chosen} " in str(reason) for _, reason in others)
    estimates = {
        name: cost.seconds(Task(problem, layout, H200), name, launches)
        for name, launches in choice.candidates(problem, layout, H200)[:-1]
    }
    assert min(estimates, key=estimates.__getitem__) == chosen


def test_every_kernel_of_a_fitted_kind_states_its_work() -> None:
    for text in (
        "avg2d:4x8x33x35:k3:s2:p1",
        "adaptive_avg2d:2x8x33x35:o5x7:cl",
        "max2d_forward:2x8x33x35:k3:s2:p1",
        "max2d:2x3x33x35:k3:s2:p1",
        "max3d:2x3x5x8x9:k3:s2:p1:cl",
        "adaptive_max3d:2x3x6x8x10:o3x4x5:f64:cl",
        "adaptive_avg2d:2x8x9x9:o1x1",
    ):
        problem, layout = of(text)
        for name, launches in choice.candidates(problem, layout, H200)[:-1]:
            parts = set(cost.coefficients(layout)[cost.family(name)].work)
            assert set(cost.features(Task(problem, layout, H200), launches[0]).work) == parts, name


def test_the_estimate_of_few_windows_has_the_time_of_their_loads() -> None:
    """One image: its threads wait for a load for each 8 windows, of 343. It took 26.7 µs on an H200."""
    problem, layout = of("adaptive_max3d:1x96x32x66x66:o7x7x7:f32:i64")
    few, *_ = (launches for name, launches in choice.candidates(problem, layout, H200) if "few" in name)
    assert 23e-6 < cost.seconds(Task(problem, layout, H200), "scatter of few windows", few) < 31e-6
    assert choice.kernels(problem, layout, H200)[-1][0] == "scatter of bands"


def test_a_large_channels_last_volume_is_planned_in_milliseconds() -> None:
    """Its tiles are counted by their kinds: one by one, they took 16 times as long as those of the small one."""
    least = []
    for side in (64, 256):
        task = Task(*of(f"max3d:1x16x{side}x{side}x{side}:k3:s2:p1:bf16:i64:cl"), H200)
        times = []
        for _ in range(5):
            begin = process_time()
            scatter_channels.channels_launch(task)
            times.append(process_time() - begin)
        least.append(min(times))
    assert least[1] < 6 * least[0]


def test_a_driver_that_tells_no_clocks_is_taken_for_an_h200() -> None:
    silent = replace(H200, clock_khz=0, memory_clock_khz=0)
    for text in ("avg2d:64x64x56x56:k3:s2:p1", "max2d:64x64x56x56:k3:s2:p1:cl"):
        problem, layout = of(text)
        for one in (problem, *problems_of(problem)):
            assert choice.kernels(one, layout, silent) == choice.kernels(one, layout, H200)
