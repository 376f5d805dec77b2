"""`pooltide bench --drawn`: what is drawn, how it is summed up, and that a wrong result is named."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cuda_problems import H200
from pooltide.acceptance.notation import parse
from pooltide.acceptance.trial import problem_of
from pooltide.acceptance.words import short_dtype, short_names
from pooltide.arrays import functions
from pooltide.cli import main
from pooltide.cli.bench.drawn_problems import Row, beyond, slower, summaries
from pooltide.cli.bench.measurement import Measurement
from pooltide.cli.bench.precompile import precompile
from pooltide.cli.bench.printing import machine_of
from pooltide.cli.bench.roofline import additions, limit_seconds
from pooltide.cli.bench.sampling import CELLS, DrawnProblem, Sampling, draw_problems
from pooltide.kernels.cuda.choice import KERNELS, plan
from pooltide.kernels.cuda.runtime import nvrtc
from pooltide.kernels.cuda.runtime.compiler import code_for
from pooltide.kernels.cuda.runtime.driver import NoCompiler

SMALL = ["--most-cells", "16384", "--rounds", "3", "--threads", "1"]


def bench(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", *arguments])


def test_a_seed_gives_these_problems_on_every_machine() -> None:
    found = [str(drawn.case) for drawn in draw_problems(Sampling(6, 1))]
    assert found == [
        "max2d:30x528x8x16:k5:s2:ceil:f16:i64",
        "adaptive_avg2d:3x129x112x112:o7x7:f32:cl",
        "adaptive_max2d:20x32x56x56:o7x7:f16:i64:cl",
        "avg2d:14x192x46x46:k9:s1:p4:nopad:f32",
        "max2d:2x256x52x52:k9:s1:p4:f32:i64:cl",
        "avg2d:2x2001x18x18:k10x2:s1:f16:cl",
    ]
    assert [str(drawn.case) for drawn in draw_problems(Sampling(3, 1))] == found[:3]
    assert [str(drawn.case) for drawn in draw_problems(Sampling(6, 2))] != found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_draws_are_within_their_bounds(device: str) -> None:
    problems = draw_problems(Sampling(800, 3, "all", device, CELLS[device]))
    for drawn in problems:
        _check_bounds(drawn, device)
    cases = [drawn.case for drawn in problems]
    assert {case.operator.short for case in cases} == {
        op.short
        for op in short_names().values()
        if op.gradient and not op.kind.startswith("unpool") and not op.regional
    }
    assert {short_dtype(case.dtype) for case in cases} == {
        "f32",
        "bf16",
        *(["f16"] if device == "cpu" else []),
    }
    assert {case.channels_last for case in cases} == {drawn.forward for drawn in problems} == {True, False}
    outputs = {case.outputs for case in cases}
    assert {(1, 1), (7, 7), (1, 1, 1), (7, 7, 7)} <= outputs
    assert any(case.shape[2] % case.outputs[0] for case in cases if case.outputs)  # ragged windows
    for flag in ("ceil", "nopad", "d2"):
        assert any(f":{flag}:" in str(case) for case in cases), flag
    assert sum(len(case.operator.axes) == 1 for case in cases) < 80


def _check_bounds(drawn: DrawnProblem, device: str) -> None:
    case = drawn.case
    assert str(parse(str(case))) == str(case)
    problem = problem_of(case)  # the rules accept it
    assert CELLS[device] // 16 < problem.cells <= CELLS[device]
    assert 3 <= case.shape[1] <= 2048
    least, most = (16, 8192) if len(case.shape) == 3 else (6, 200)
    assert all(least <= side <= most for side in case.shape[2:])
    for axis in problem.axes:
        if axis.adaptive:
            assert 1 <= axis.outputs <= axis.length
        else:
            assert (2 if axis.length > 1 else 1) <= axis.k <= 13
            assert 1 <= axis.s <= axis.k
            assert 0 <= axis.p <= axis.k // 2


def _row(case: str, limit: float, **milliseconds: float) -> Row:
    names = {"ours_out": "ours out=", "torch_out": "torch out="}
    times = {names.get(name, name): [taken] * 3 for name, taken in milliseconds.items()}
    return Row(False, 2, "kernel", Measurement(parse(case), 0, limit, times))


ROWS = [
    _row("avg2d:1x3x6x6:k3:f32", 1.0, ours_out=2.0, torch_out=8.0, ours=4.0, torch=16.0),
    _row("avg2d:1x3x7x7:k3:f32", 1.0, ours_out=7.0, torch_out=14.0, ours=10.0, torch=9.0),
    _row("avg2d:1x3x8x8:k3:f32", 2.0, ours_out=6.0, torch_out=6.0, ours=6.0, torch=6.0),
    _row("avg2d:1x3x9x9:k3:f32:cl", 1.0, ours_out=1.0, ours=1.0, torch=0.5),
    _row("avg2d:1x3x9x9:k3:bf16", 1.0, ours_out=8.0),
]


def test_summaries_of_hand_made_rows() -> None:
    half, last, planes = summaries(ROWS)
    assert planes.group == ("gradient", "f32", "planes", "2")
    assert (planes.count, planes.limit_median, planes.limit_p90, planes.limit_worst) == (3, 3.0, 7.0, 7.0)
    assert planes.out_mean == pytest.approx(2.0)  # of 4, 2 and 1
    assert planes.out_worst == 1.0
    assert planes.fresh_mean == pytest.approx((4 * 0.9 * 1) ** (1 / 3))
    assert planes.fresh_worst == 0.9
    assert last.group == ("gradient", "f32", "channels-last", "2")
    assert (last.out_mean, last.out_worst, last.fresh_worst) == (None, None, 0.5)
    assert (half.count, half.limit_worst, half.fresh_mean) == (1, 8.0, None)


def test_nine_tenths_are_below_the_p90() -> None:
    rows = [_row("avg2d:1x3x6x6:k3:f32", 1.0, ours=float(n)) for n in range(1, 21)]
    (found,) = summaries(rows)
    assert (found.limit_median, found.limit_p90, found.limit_worst) == (10.5, 18.0, 20.0)


def test_the_lists_begin_with_the_worst() -> None:
    assert [str(row.measurement.case) for row in slower(ROWS, 0.95)] == [
        "avg2d:1x3x9x9:k3:f32:cl",
        "avg2d:1x3x7x7:k3:f32",
    ]
    assert slower(ROWS, 0.5) == []
    assert [str(row.measurement.case) for row in beyond(ROWS)] == [
        "avg2d:1x3x9x9:k3:bf16",
        "avg2d:1x3x7x7:k3:f32",
    ]


@pytest.mark.parametrize(
    "case", ["avg2d:2x3x7x11:k3x2:s2x1:p1", "avg1d:2x3x5:k2:s3", "adaptive_avg3d:1x2x5x7x3:o2x3x3"]
)
def test_additions_are_those_of_the_cells(case: str) -> None:
    problem = problem_of(parse(case))
    held = np.zeros(problem.input_plane, int)
    for o in np.ndindex(problem.output_plane):
        spans = [axis.window(i) for axis, i in zip(problem.axes, o, strict=True)]
        held[tuple(slice(span.start, span.end) for span in spans)] += 1
    assert additions(problem) == problem.planes * np.maximum(held - 1, 0).sum()
    assert limit_seconds(problem, 1e30, 2.0) == pytest.approx(additions(problem))
    assert limit_seconds(problem, 1.0, None) == problem.least_bytes


def test_maxima_add_nothing_in_a_fixed_order() -> None:
    assert additions(problem_of(parse("max2d:2x3x7x11:k3:s1:i64"))) == 0


ROW_KEYS = {
    "case",
    "kind",
    "threads",
    "kernel",
    "limit_seconds",
    "ours_to_limit",
    "torch_to_limit",
    "seconds",
}
SUMMARY_KEYS = {
    "kind", "dtype", "layout", "threads", "count", "limit_median", "limit_p90", "limit_worst", "out_mean", "out_worst",
    "fresh_mean", "fresh_worst",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["gradients", "forwards"])
def test_a_small_run_has_every_row(kind: str) -> None:
    pytest.importorskip("torch")
    run = bench("--drawn", "2", "--seed", "1", "--kind", kind, "--json", *SMALL)
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert (told["count"], told["seed"], told["rounds"], told["threads"]) == (2, 1, 3, "1")
    drawn = draw_problems(Sampling(2, 1, kind, most_cells=16384))
    assert [row["case"] for row in told["rows"]] == [str(one.case) for one in drawn]
    for row in told["rows"]:
        assert row.keys() >= ROW_KEYS
        assert row["kind"] == kind.removesuffix("s")
        assert row["limit_seconds"] > 0
        assert row["ours_to_limit"] > 0
    assert all(summary.keys() == SUMMARY_KEYS for summary in told["summary"])
    assert sum(summary["count"] for summary in told["summary"]) == 2
    assert all(
        one.keys() == {"case", "kind", "threads"} for one in told["slower_than_torch"] + told["beyond_limit"]
    )


def test_the_tables_name_the_groups() -> None:
    run = bench("--drawn", "1", "--seed", "4", *SMALL, "--threads", "1,2")
    assert run.exit_code == 0, run.output
    assert "count 1, seed 4, kind gradients, device cpu, most cells 16384, date 20" in run.stdout
    assert ", threads 1,2, instruction set " in run.stdout
    head, _, *rows = [line.split() for line in run.stdout.splitlines() if line[:1] in "t-12" and line]
    assert head[:2] == ["threads", "n"]  # in all else the rows are alike
    assert [row[:2] for row in rows[:2]] == [["1", "1"], ["2", "1"]]
    assert "slower than PyTorch" in run.stdout
    assert "Other programs took" in run.stdout
    assert "beyond 6 × limit" in run.stdout


def test_a_row_can_be_run_again() -> None:
    (drawn,) = draw_problems(Sampling(1, 5, "forwards", most_cells=16384))
    pytest.importorskip("torch")
    run = bench(str(drawn.case), "--kind", "forwards", "--rounds", "3", "--json")
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["results"][0]["case"] == str(drawn.case)


def test_a_wrong_gradient_stops_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(
        d.case for d in draw_problems(Sampling(9, 1, most_cells=16384)) if d.case.operator.short == "max2d"
    )
    right = functions.max_pool2d_backward

    def wrong(*arguments: Any, **more: Any) -> Any:
        result = right(*arguments, **more)
        result[-1, -1, -1, -1] += 1
        return result

    monkeypatch.setattr(functions, "max_pool2d_backward", wrong)
    run = bench("--drawn", "9", "--seed", "1", *SMALL)
    assert run.exit_code == 1
    assert run.stdout == ""
    assert run.stderr == f"{case}: the result differs from the reference\n"


@pytest.mark.parametrize("name", ["adaptive_avg_pool2d", "max_pool2d"])
@pytest.mark.parametrize("which", ["values", "indices"])
def test_a_wrong_forward_stops_and_is_named(name: str, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from pooltide.torch import functional

    right = getattr(functional, name)

    def wrong(*arguments: Any, **more: Any) -> Any:
        result = right(*arguments, **more)
        broken = result[which == "indices"] if isinstance(result, tuple) else result
        broken.view(-1)[0] += 1
        return result

    monkeypatch.setattr(functional, name, wrong)
    case = "max2d:2x3x11x13:k3:f32:i64" if name == "max_pool2d" else "adaptive_avg2d:2x3x11x13:o5x4:f32"
    run = bench(case, "--kind", "forwards", "--rounds", "3")
    assert run.exit_code == 1
    assert run.stderr.endswith(f"{case}: the forward differs from PyTorch's on the CPU\n")


@pytest.mark.parametrize(
    "case", ["adaptive_avg2d:2x5x17x17:o7x7:f32:cl", "adaptive_avg3d:1x5x7x11x13:o3x5x2:f32:cl"]
)
def test_pytorchs_own_differences_do_not_fail_ours(case: str) -> None:
    """PyTorch rounds the first differently for channels-last, and its out form of the second is wrong."""
    pytest.importorskip("torch")
    run = bench(case, "--rounds", "3", "--json")
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)["results"][0]["seconds"]
    assert "torch" in found
    assert ("torch out=" in found) == ("3d" not in case)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--drawn", "0"), "'--drawn'"),
        (("--drawn", "2", "--seed", "-1"), "'--seed'"),
        (("--drawn", "2", "--most-cells", "5"), "'--most-cells'"),
        (("--drawn", "2", "--shape", "wave"), "--shape is not for --drawn"),
        (("--drawn", "2", "--dtype", "f32"), "--dtype is not for --drawn"),
        (("avg2d:1x1x5x5:k3", "--drawn", "2"), "PROBLEM is not for --drawn"),
        (("--drawn", "2", "--models"), "--drawn and --models exclude each other"),
        (("--models", "--kind", "all"), "--kind is not for --models"),
        (("--scale", "0.5"), "--scale is not for a PROBLEM and the named shapes"),
        (("avg2d:1x1x5x5:k3", "--seed", "0"), "--seed is not for a PROBLEM"),
        (("--drawn", "2", "--threads", "1,0"), "it has '0'; it must be numbers from 1 to 4096, or all"),
        (("--drawn", "2", "--threads", "two"), "it has 'two'"),
        (("--drawn", "2", "--threads", ""), "it has ''"),
        (("avg2d:1x1x5x5:k3", "--threads", "1,2"), "--threads has 2 numbers; it must be one"),
    ],
)
def test_wrong_usage_is_explained(arguments: tuple[str, ...], text: str) -> None:
    run = bench(*arguments)
    assert run.exit_code == 2
    assert text in run.stderr


@pytest.mark.filterwarnings("ignore:.*PyTorch's gradient failed")  # avg_pool3d in fp16 and bf16, on the CPU
def test_a_gpu_measures_drawn_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a benchmark on a GPU, on the CPU and with a clock of the host."""
    torch = pytest.importorskip("torch")
    from pooltide.cli.bench import cuda_timing, drawn_problems, forward_pools
    from pooltide.kernels.cuda import launch

    for name, value in {"DEVICE": "cpu", "COPY_BYTES": 1 << 16, "FLUSH_BYTES": 1 << 16}.items():
        monkeypatch.setattr(cuda_timing, name, value)
    monkeypatch.setattr(cuda_timing, "elapsed_seconds", lambda run: bool(run() is not run) * 0.5)
    monkeypatch.setattr(cuda_timing, "current_facts", lambda: H200)
    monkeypatch.setattr(launch, "device_facts", lambda device: H200)
    monkeypatch.setattr(drawn_problems, "precompile", lambda cases, facts: None)
    prepare = forward_pools.prepare
    monkeypatch.setattr(forward_pools, "prepare", lambda case, device: prepare(case, "cpu"))
    torch.manual_seed(0)
    problems = draw_problems(Sampling(12, 7, "all", "cuda", 1 << 14))
    rows = [row for group in drawn_problems.measure_cuda(problems, 3) for row in group]
    assert [row.measurement.case for row in rows] == [one.case for one in problems]
    for row in rows:
        problem = problem_of(row.measurement.case)
        moved = limit_seconds(problem, 2 * (1 << 16) / 0.5, None)
        assert row.forward or row.measurement.limit == pytest.approx(moved)
        assert row.measurement.times["ours"] == [0.5] * 3
        assert row.forward or row.kernel in [name for name, _ in KERNELS[problem.kind]]
        assert prod(problem.output_plane) > 0


def test_the_limit_counts_the_additions_of_all_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from pooltide.cli.bench import cuda_timing

    monkeypatch.setattr(cuda_timing, "current_facts", lambda: H200)
    assert cuda_timing.additions_per_second() == 128 * 132 * 1.98e9


def test_kernels_are_compiled_into_the_cache_before_they_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        nvrtc.library()
    except NoCompiler as why:
        pytest.skip(str(why))
    monkeypatch.setenv("POOLTIDE_CACHE", str(tmp_path))
    from pooltide.cli.bench.drawn_problems import problems_of

    found = draw_problems(Sampling(6, 11, "all", "cuda", 1 << 14))
    assert {drawn.forward for drawn in found} == {True, False}
    problems = [pair for drawn in found for pair in problems_of(drawn)]
    precompile(problems, H200)
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.cubin")}
    planned = {launch.source for problem, layout in problems for launch in plan(problem, layout, H200)}
    assert len(kept) == len(planned) > 1
    monkeypatch.setattr(nvrtc, "compile_program", lambda *_: pytest.fail("it compiles again"))
    assert all(code_for(source, H200.capability) for source in planned)


def test_kernels_that_do_not_compile_are_no_error_before_they_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POOLTIDE_CACHE", str(tmp_path))
    problem = problem_of(parse("avg2d:1x3x6x6:k3:f32"))
    precompile([(problem, "planes")] * 2, replace(H200, capability=1))
    precompile([], H200)
    assert not list(tmp_path.iterdir())


def test_the_version_of_the_compiler_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    def missing() -> Any:
        raise NoCompiler("the library is not found")

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(nvrtc, "library", missing)
    about = machine_of("cuda")
    assert (about["device"], about["torch"]) == ("NVIDIA H200", torch.__version__)
    assert about["nvrtc"] == "not found"
    monkeypatch.setattr(nvrtc, "library", lambda: nvrtc.Library("", None, (13, 4), ()))
    assert machine_of("cuda")["nvrtc"] == "13.4"


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["gradients", "forwards"])
def test_drawn_problems_on_a_gpu(kind: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no NVIDIA GPU")
    run = bench("--drawn", "8", "--kind", kind, "--device", "cuda", "--most-cells", "262144", "--json")
    assert run.exit_code == 0, run.output
    rows = json.loads(run.stdout)["rows"]
    assert len(rows) == 8
    assert all(row["ours_to_limit"] > 0 for row in rows)
    assert kind == "forwards" or all(row["kernel"] for row in rows)
