"""`pooltide run`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from commandline import pooltide, results_of
from pooltide.acceptance import gpu_plan, inputs, trial
from pooltide.acceptance.inputs import arrays, draw
from pooltide.acceptance.measures import Measures
from pooltide.acceptance.notation import parse
from pooltide.acceptance.trial import plan_of, problem_of, run
from pooltide.acceptance.words import DISTRIBUTIONS, short_names
from pooltide.arrays.volumes import memory_layout
from pooltide.cli import main
from pooltide.cli.verdict_lines import figures
from pooltide.geometry import tables
from pooltide.kernels import reference
from pooltide.kernels.cuda.choice import KERNELS
from pooltide.kernels.cuda.runtime.driver import NoCompiler
from pooltide.kernels.plan import BACKENDS, plan
from pooltide.operators.catalog import operators, regions
from pooltide.operators.pages import HOST
from shares import fast_some

CASES = [
    "avg2d_forward:2x3x11x13:k3x5:s2:p1:ceil:nopad:f16",
    "max2d_forward:2x3x11x13:k3:s2:p1:d2:bf16:i64:nan",
    "max1d_forward:3x41:k5:f32",
    "adaptive_avg3d_forward:2x3x5x7x11:o3x4x5:f64:cl",
    "adaptive_max2d_forward:2x3x11x13:o5x3:f32:i64:input.s858x286x26x2:input.off3:out.s99x33x6x2",
    "avg2d:2x3x11x13:k3:s2:f32:gradOutput.s0x0x6x1:gradInput.s1000x200x15x1:gradInput.off7",
    "avg2d:2x3x11x13:k3:s2:f16:gradOutput.s90x30x-6x1:gradOutput.off2",
    "adaptive_max2d:2x3x11x13:o5x3:f32:i64:indices.s60x20x4x1:gradOutput.off1",
    "avg2d:2x3x11x13:k3x5:s2:p1:ceil:nopad:f16",
    "avg2d:3x11x13:k3:div-3:cl:f32",
    "avg2d:2x3x7x5:k7x5:cube1:f32",
    "adaptive_avg3d:2x3x5x7x11:o3x4x5:bf16:cl",
    "adaptive_max2d:2x3x11x13:o5x3:f64:i64:nan:inf",
    "adaptive_max3d:3x5x7x11:o2x3x5:f16:anywhere",
]


@pytest.mark.parametrize("case", fast_some(CASES, 5))
@pytest.mark.parametrize("backend", BACKENDS)
def test_run_prints_the_plan_the_error_and_the_time(case: str, backend: str) -> None:
    text = pooltide("run", case, "--backend", backend, "--repeat", 2, "-v")
    assert f"backend  {backend}, working on" in text
    assert "error    MERE" in text
    assert re.search(r"time     \d+\.\d+ ms", text)
    assert re.search("mixed +pass", text)
    short = pooltide("run", case, "--backend", backend).splitlines()
    assert re.match(rf"pass  {parse(case)}: {backend}, \d+\.\d+ ms, ", short[0])
    assert len(short) == 2
    assert short[1].startswith("1 of 1 pass; the standard is mixed: |a - g| <= atol + rtol·|g| in 99 %")


@pytest.mark.parametrize(
    ("case", "cells"),
    [
        ("max_unpool2d_forward:2x3x4x5:k2:i64", 480),
        ("max_unpool2d_forward:2x3x4x5:k2:o9x11:bf16:i32", 594),
        ("max_unpool3d:2x3x4x5x3:k2:s3:i64:bf16", 360),
        ("max2d_forward:2x3x11x13:k3:i32:atlas-a2", 72),
        ("avg2d_forward:2x3x11x13:k11x13:f32:cube1:atlas-a2", 6),
        ("avg2d_forward:2x3x11x13:k11x13:f16:cube1:atlas-inference", 6),
        ("adaptive_avg2d_forward:2x3x11x13:o3x4:bf16:atlas-a2", 72),
    ],
)
def test_siblings_and_operators_of_cann_by_the_same_notation(case: str, cells: int) -> None:
    found = run(parse(case), backend="reference")
    assert found.measures.count == cells
    assert found.verdict("mixed").passed
    assert found.measures.max_ulp <= 100  # also where CANN rounds the input to HFLOAT32 first


def test_plan_prints_the_kernel_and_why_not_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("--plan draws no data")

    monkeypatch.setattr(trial, "draw", refuse)
    case = "avg2d:2x3x11x45:k3:s2:f16"
    text = CliRunner().invoke(main, ["run", "--plan", case]).stdout
    assert text.startswith(f"case     {case}\nproblem  average_gradient FLOAT16")
    assert "\nbackend  cpu, working on planes\n" in text
    assert "\nkernel   stride_2\n" in text
    assert (
        "\nnot      stride_1: the stride along the row is not 1, or a cell would add mostly zeros\n" in text
    )
    assert text.endswith("scratch  0 bytes\n")


def test_plan_prints_the_copies_and_the_chosen_backend() -> None:
    text = pooltide("run", "--plan", "adaptive_max2d:2x3x11x13:o5x3:f32:i32:gradInput.cl")
    assert "copied   grad_output\ncopied   indices\nscratch  768 bytes" in text
    assert "backend  reference, working on" in pooltide("run", "--plan", CASES[0], "--backend", "reference")


def test_the_plan_of_a_gpu_needs_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(device: int) -> None:
        raise NoCompiler("there is no GPU")

    monkeypatch.setattr(gpu_plan, "device_facts", missing)

    def plan(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["run", "--plan", "--device", "cuda", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    text = plan("adaptive_max2d:32x256x56x56:o7x7:bf16:cl")
    assert (
        "\nbackend  cuda (there is no GPU here; this is the plan for an H200), working on channels_last\n"
        in text
    )
    assert "\nnot      scatter of volumes: planes have one slice\n" in text
    for case in ("max2d_forward:1x0x4x4:k2", "max2d:0x1x4x4:k2", "avg2d:0x1x4x4:k2"):
        assert "\nkernel   none, as a tensor has no elements\n" in plan(case)
    kernels = dict(KERNELS["average_gradient"])
    assert json.loads(plan("avg2d:2x3x11x45:k3:f16", "--json"))["plan"]["kernel"] in kernels
    assert ": its estimate is " in plan("avg2d:2x3x11x45:k3:f16")
    for case, kernel in (
        ("roi_align", "region_gather"),
        ("roi_pool", "region_scatter"),
        ("ps_roi_pool_forward", "region_forward"),
    ):
        assert f"\nkernel   {kernel}\n" in plan(f"{case}:2x8x23x29:o2:boxes5")
    assert "\nkernel   none, as a tensor has no elements\n" in plan("roi_align:0x8x23x29:o2:boxes5")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((CASES[0], "--device", "cuda"), "--device cuda needs --plan, and no --backend"),
        ((CASES[0], "--plan", "--device", "cuda", "--backend", "cpu"), "--device cuda needs --plan"),
        (
            ("max_unpool2d_forward:2x3x4x5:k2:o8x10", "--plan", "--device", "cuda"),
            "no kernel for the kind unpool",
        ),
    ],
)
def test_a_gpu_has_only_plans(arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in pooltide("run", *arguments, rc=2)


@pytest.mark.parametrize("options", [[], ["--device", "cuda"]])
@pytest.mark.parametrize(
    "case", ["avg2d:100000x64x512x512:k3:s2", "adaptive_max2d:4096x4096x512x512:o7x7:bf16"]
)
def test_a_plan_needs_no_memory_for_the_data(case: str, options: list[str]) -> None:
    assert "kernel   " in pooltide("run", "--plan", case, *options)
    assert "GiB; this machine has" in pooltide("run", case, rc=2)


def test_a_plan_that_is_refused_says_why() -> None:
    text = pooltide("run", "--plan", "avg2d:2x3x11x13:k3:cube2:bf16:atlas-a2", rc=2)
    assert "cubeMathType is 2 (USE_FP16), which is not supported for BFLOAT16" in text
    assert text.endswith("reproduce: pooltide run avg2d:2x3x11x13:k3:cube2:bf16:atlas-a2 --plan\n")
    text = pooltide("run", "--plan", "avg1d:1x1x10000000000000:k1", rc=2)
    assert "the tables of windows take 745,058.1 GiB; this machine has" in text
    assert "--plan computes nothing" in pooltide("run", "--plan", CASES[0], "--save", "x", rc=2)


@pytest.mark.parametrize("case", [*CASES, "adaptive_max2d:2x3x11x13:o5x3:gradInput.cl", "avg1d:0x3x7:k2:cl"])
def test_the_plan_has_the_layouts_of_the_drawn_arrays(case: str) -> None:
    parsed = parse(case)
    problem = problem_of(parsed)
    drawn = [array for array in arrays(parsed.call(HOST), problem, parsed.data) if array is not None]
    layouts = tuple(memory_layout(array, len(parsed.operator.axes)) for array in drawn)
    assert plan_of(parsed) == plan(problem, layouts)


def test_json_has_the_figures_and_the_plan_of_every_case(tmp_path: Path) -> None:
    cases = tmp_path / "cases"
    cases.write_text("avg2d:2x3x11x13:k3:s2:f16\navg2d:2x3x11x13:k0\nnothing:3\n")
    good, refused, bad, last = map(json.loads, pooltide("run", "--json", cases, rc=2).splitlines())
    assert last["summary"] == {
        "standard": "mixed",
        "pass": 1,
        "warning": 0,
        "fail": 0,
        "error": 2,
        "exit_status": 2,
    }
    assert (good["line"], good["name"], good["case"]) == (1, "case-000001", "avg2d:2x3x11x13:k3:s2:f16")
    assert good["plan"]["kernel"] == "picked_lines"
    assert (
        good["plan"]["not"]["stride_1"]
        == "the stride along the row is not 1, or a cell would add mostly zeros"
    )
    assert good["seconds"] > 0
    assert (good["count"], good["differing"], good["max ULP"]) == (858, 1, 1)
    assert good["verdicts"]["mixed"]["pass"]
    assert not good["verdicts"]["bits"]["pass"]
    assert "kernel" in refused["error"]
    assert "the operator is 'nothing'" in bad["error"]
    (plan,) = map(json.loads, pooltide("run", "--json", "--plan", "avg2d:2x3x11x13:k3:s2:f16").splitlines())
    assert plan["plan"] == good["plan"]
    assert "seconds" not in plan


def test_an_infinite_figure_is_null_in_json() -> None:
    found = figures(Measures(count=1, finite=1, max_rel=float("inf"), sum_rel=float("inf")), [])
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text)["MARE"] is None


def test_a_case_that_fails_ends_with_how_to_reproduce_it() -> None:
    text = pooltide("run", "adaptive_avg3d:2x3x7x11x13:o5x3x4", "--verdict", "bits", rc=1)
    assert "FAIL  adaptive_avg3d:2x3x7x11x13:o5x3x4:f32: cpu, " in text
    assert "bits: 1208 of 6006 cells differ, at most 1161 ULP" in text
    assert text.splitlines()[-2] == "reproduce: pooltide run adaptive_avg3d:2x3x7x11x13:o5x3x4:f32"


def test_a_refused_case_says_why() -> None:
    text = pooltide("run", "avg2d:2x3x11x13:k3:cube2:bf16:atlas-a2", rc=2)
    assert "cubeMathType is 2 (USE_FP16), which is not supported for BFLOAT16" in text


def test_a_case_beyond_the_machine_says_so() -> None:
    text = pooltide("run", "adaptive_max2d:1x1x1000000x10000000:o1x1", rc=2)
    assert "GiB; this machine has" in text


def test_the_time_of_the_reference_is_estimated_by_kind() -> None:
    """The reference of maxima scatters all windows at once; that of averages adds window after window."""
    inputs._refuse_beyond_time(problem_of(parse("max2d:1x1x4096x4096:k1")))
    with pytest.raises(inputs.TooLarge, match="16777216 windows in each of 1 planes"):
        inputs._refuse_beyond_time(problem_of(parse("avg2d:1x1x4096x4096:k1")))


def test_the_product_changes_what_is_computed() -> None:
    case = "avg2d:2x3x7x5:k7x5:cube1:f32"
    assert "rounded to FLOAT16" in pooltide("run", case, "-v", "--product", "atlas-inference")
    assert "rounded to HFLOAT32" in pooltide("run", case, "-v", "--product", "atlas-a2")


@pytest.mark.parametrize("case", CASES)
def test_a_trial_measures_the_backends_own_result(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that leaves one cell wrong must not pass."""
    honest = reference.run

    def wrong(*arguments):  # type: ignore[no-untyped-def]
        fault = honest(*arguments)
        out = arguments[2].out
        finite = np.argwhere(np.isfinite(out.astype(np.float64)))[0]
        out[tuple(finite)] += out.dtype.type(3)
        return fault

    assert all(v.passed for v in run(parse(case), backend="reference").verdicts if v.name == "mixed")
    monkeypatch.setattr(reference, "run", wrong)
    failed = run(parse(case), backend="reference")
    assert not any(failed.verdict(name).passed for name in ("mixed", "single", "bits"))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_data_comes_from_the_seed_alone(distribution: str) -> None:
    def grad(seed: int) -> np.ndarray:
        case = parse(f"avg2d:2x3x11x13:k3:f32:{distribution}:seed{seed}")
        return draw(problem_of(case), case.data)[0]

    assert np.array_equal(grad(5), grad(5))
    assert not np.array_equal(grad(5), grad(6))
    assert np.isfinite(grad(5)).all()


def test_indices_lie_in_their_windows_unless_anywhere() -> None:
    case = parse("adaptive_max3d:5x7x7x11x13:o2x3x5:i32")
    problem = problem_of(case)
    _, indices = draw(problem, case.data)
    assert indices is not None
    inside = True
    for at, axis in zip(np.unravel_index(indices, problem.input_plane), problem.axes, strict=True):
        shape = [1] * 5
        dimension = 2 + problem.axes.index(axis)
        shape[dimension] = axis.outputs
        start, end = (t.reshape(shape) for t in (tables(axis).start, tables(axis).end))
        inside &= bool(((at >= start) & (at < end)).all())
    assert inside
    foreign = draw(problem, parse("adaptive_max3d:5x7x7x11x13:o2x3x5:i32:anywhere").data)[1]
    assert foreign is not None
    assert foreign.max() >= 7 * 11 * 13 * 0.9
    assert not np.array_equal(foreign, indices)


def test_nan_and_inf_on_request() -> None:
    case = parse("avg2d:2x3x11x13:k1:nan:inf")
    grad, _ = draw(problem_of(case), case.data)
    assert np.isnan(grad).any()
    assert np.isinf(grad).any()
    assert np.isfinite(grad).mean() > 0.9


@pytest.mark.parametrize("plane", ["2x4", "4x4", "6x6", "20x20"])
def test_a_small_array_has_a_nan_and_an_inf(plane: str) -> None:
    """The smallest gradOutput here has two cells, room for one of each."""
    for seed in range(40):
        case = parse(f"avg2d:1x1x{plane}:k2:nan:inf:seed{seed}")
        grad, _ = draw(problem_of(case), case.data)
        assert (np.isnan(grad).any(), np.isinf(grad).any()) == (True, True), case


def test_saved_results_are_what_compare_takes(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(
        "name,case\na,avg2d:3x11x13:k3:bf16:cl\nb,adaptive_max3d:2x3x5x7x11:o2:f64\n"
    )
    pooltide("golden", "cases.csv", "-o", "golden", cwd=tmp_path)
    pooltide("run", "cases.csv", "--save", "ours", cwd=tmp_path)
    assert "2 of 2 pass" in pooltide("compare", "ours", "golden", cwd=tmp_path)


def test_no_result_is_saved_over_another(tmp_path: Path) -> None:
    """The indices of `a` and the result of `a.indices` would have one file."""
    clash = "name,case\na.indices,avg2d:1x2x5x7:k2\na,max2d_forward:1x2x5x7:k2:i64\n"
    (tmp_path / "cases.csv").write_text(clash)
    text = " ".join(pooltide("run", "cases.csv", "--save", "ours", cwd=tmp_path, rc=2).split())
    assert "a.indices: the case has the name of the file for the indices of a; --save needs another" in text
    assert not (tmp_path / "ours").exists()
    assert "2 of 2 pass" in pooltide("run", "cases.csv", cwd=tmp_path)
    (tmp_path / "cases.csv").write_text(clash.replace("max2d_forward", "max2d"))  # a gradient writes none
    pooltide("run", "cases.csv", "--save", "ours", cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == ["a.indices.npy", "a.npy"]


def test_every_operator_runs_draws_and_makes_golden_data(tmp_path: Path) -> None:
    planes = {1: "29", 2: "23x29", 3: "7x11x13"}
    cases = [
        f"{short}:2x{30 if op.regional else 3}x{planes[len(op.axes)]}:"
        + (
            "k3:s2:p1:ceil"
            if op.by_role("ceil_mode")
            else "k2"
            if op.by_role("kernel")
            else "o" + "x".join("352"[: len(op.axes)])
        )
        + (":d2:cl" if op.by_role("dilation") else ":boxes9" if op.regional else ":bf16")
        + (":i64" if op.by_role("indices") else "")
        for short, op in short_names().items()
    ]
    count = len(cases)
    assert count >= 24
    assert {op.function for op in short_names().values()} == {*operators(), *regions()}
    (tmp_path / "cases").write_text("\n".join(cases))
    text = pooltide("run", str(tmp_path / "cases"), "--save", str(tmp_path / "ours"))
    assert text.count("pass  case-") == count
    pooltide("golden", str(tmp_path / "cases"), "-o", str(tmp_path / "golden"))
    results_of(tmp_path / "golden", tmp_path / "theirs")
    for results in ("theirs", "ours"):
        compared = pooltide("compare", str(tmp_path / results), str(tmp_path / "golden"))
        assert f"{count} of {count} pass" in compared
    assert all(
        ("indices equal" in line or "cells differ" in line)
        for line in compared.splitlines()
        if "max2d_forward" in line
    )
    checked = pooltide("check", str(tmp_path / "cases"), "--product", "host")
    assert checked.count("accepted:") == count
    assert checked.endswith(f"{count} of {count} accepted\n")
    pooltide("show", "max1d:1x1x9:k3:d2", "-o", str(tmp_path / "picture.svg"))
    assert (tmp_path / "picture.svg").stat().st_size > 500
