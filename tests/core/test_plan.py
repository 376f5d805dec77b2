"""Plans are metadata: any size, cached, printable, with the reasons of those who refused."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import numpy as np
import pytest

from calls import AVG2, GOOD, T, phase_one
from pooltide.geometry import UNIT, Axis
from pooltide.kernels import Arrays, cpu, reference
from pooltide.kernels.plan import BACKENDS, NoBackend, layout_of, plan
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem

F32, F16, I64 = DTYPES["FLOAT32"], DTYPES["FLOAT16"], DTYPES["INT64"]
AXES = (UNIT, Axis(7, 3), Axis(11, 5))
AVERAGE = Problem("average_gradient", (2, 3), AXES, F32, "chained")
INDEXED = Problem("maximum_gradient", (2, 3), AXES, F16, index_dtype=I64)
PLANES = ("planes", "planes")


@pytest.mark.usefixtures("runtime")
def test_two_to_the_forty_elements_are_checked_and_planned() -> None:
    shape = (2**10, 2**10, 2**10, 2**10)
    grad = (2**10, 2**10, 2**9, 2**9)
    tensors = {n: T(shape, "FLOAT32", "NCHW") for n in ("self", "gradInput")}
    values = GOOD[AVG2] | tensors | {"gradOutput": T(grad, "FLOAT32", "NCHW"), "padding": [0]}
    values |= {"kernelSize": [2], "stride": [2]}
    _, executor, status, message = phase_one(AVG2, values)
    assert status == 0, message
    problem = executor.work.executable.problem
    assert problem.cells == 2**40
    assert problem.least_bytes == 4 * (2**40 + 2**38)
    assert "1024→512 k2s2p0" in str(executor.work.executable)


def test_plans_are_cached_and_printable() -> None:
    assert plan(AVERAGE, PLANES) is plan(AVERAGE, PLANES)
    text = str(plan(INDEXED, ("strided", "planes", "planes"), only="reference"))
    assert "maximum_gradient FLOAT16 2×3 planes, h:7→3 w:11→5, by INT64" in text
    assert "backend  reference" in text
    assert "scratch  1848 bytes" in text


def test_a_plan_names_its_kernel_and_the_reasons_against_those_before() -> None:
    if not cpu.BUILT:
        pytest.skip("NOT TESTED: the extension is not built")
    square = Problem(
        "average_gradient", (1, 1), (UNIT, Axis(7, 5, 3, 1, 0), Axis(9, 7, 3, 1, 0)), F32, "extent"
    )
    square_plan = plan(square, PLANES)
    assert square_plan.kernels[-1] == ("sliding_3x3", None)
    assert (
        "one_window",
        "a plane has more than one window, or cells outside its window",
    ) in square_plan.kernels
    assert "kernel   sliding_3x3" in str(square_plan)
    assert "not      long_row: a plane has more than one row" in str(square_plan)
    short = Problem(
        "average_gradient", (1, 1), (UNIT, Axis(4, 2, 3, 1, 0), Axis(9, 7, 3, 1, 0)), F32, "extent"
    )
    assert ("sliding_3x3", "some rows of cells share all their windows") in plan(short, PLANES).kernels


def test_the_first_that_does_not_refuse_is_chosen_and_reasons_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proud = types.ModuleType("proud")
    proud.LAYOUTS = frozenset({"planes"})  # type: ignore[attr-defined]
    proud.refuse = lambda problem, layout: "it is beneath me"  # type: ignore[attr-defined]
    monkeypatch.setattr(
        sys.modules["pooltide.kernels.plan"], "BACKENDS", {"proud": proud, "reference": BACKENDS["reference"]}
    )
    problem = replace(AVERAGE, batch=(1, 977))  # plans are kept; no other test has this problem
    executable = plan(problem, PLANES)
    assert executable.backend == "reference"
    assert executable.refused == (("proud", "it is beneath me"),)
    assert "refused  proud: it is beneath me" in str(executable)
    with pytest.raises(NoBackend, match="proud: it is beneath me"):
        plan(problem, PLANES, only="proud")


def test_a_backend_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(NoBackend, match=r"'abacus' is unknown; known are .*reference"):
        plan(AVERAGE, PLANES, only="abacus")


@pytest.mark.parametrize(
    ("shape", "strides", "layout"),
    [
        ((2, 3, 5, 7, 11), (1155, 385, 77, 11, 1), "planes"),
        ((2, 3, 5, 7, 11), (1155, 1, 231, 33, 3), "channels_last"),
        ((2, 3, 5, 7, 11), (1155, 385, 77, 1, 7), "strided"),
        ((2, 3, 5, 7, 11), (0, 385, 77, 11, 1), "strided"),
        ((1, 1, 5, 7, 11), (9, 9, 77, 11, 1), "planes"),
        ((2, 3, 0, 7, 11), (5, 4, 3, 2, 1), "planes"),
        ((2, 3, 1, 1, 1), (3, 1, 9, 9, 9), "planes"),
    ],
)
def test_layouts(shape: tuple[int, ...], strides: tuple[int, ...], layout: str) -> None:
    assert layout_of(shape, strides) == layout


def test_planned_copies_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that takes only planes gets copies; what it computes is what was asked for."""
    narrow = types.ModuleType("narrow")
    vars(narrow).update(vars(reference), LAYOUTS=frozenset({"planes"}))
    monkeypatch.setitem(BACKENDS, "narrow", narrow)
    rng = np.random.default_rng(5)
    g = rng.standard_normal((2, 3, 1, 5, 3)).astype(np.float16).transpose(0, 1, 2, 4, 3)
    indices = rng.integers(0, 77, (2, 3, 1, 3, 5))
    out = np.full((2, 3, 1, 11, 7), np.nan, np.float16).transpose(0, 1, 2, 4, 3)
    executable = plan(INDEXED, ("strided", "planes", "strided"), only="narrow")
    assert executable.copied == ("grad_output", "out")
    workspace = np.empty(executable.scratch, np.uint8)
    assert executable.run(Arrays(g, None, indices, out), workspace) is None
    direct = np.empty((2, 3, 1, 7, 11), np.float16)
    whole = plan(INDEXED, ("strided", "planes", "planes"), only="reference")
    assert whole.run(Arrays(g, None, indices, direct)) is None
    np.testing.assert_array_equal(out, direct)


def test_rounding_first_is_a_planned_copy() -> None:
    rounded = Problem("average_gradient", (2, 3), AXES, F32, "chained", rounding="HFLOAT32")
    assert plan(rounded, PLANES).copied == ("grad_output",)


def test_every_backend_has_the_names_that_an_executable_calls() -> None:
    pytest.importorskip("torch")
    from pooltide.kernels.cuda import launch

    for backend in (*BACKENDS.values(), launch):
        assert {"LAYOUTS", "refuse", "prepare", "scratch", "run"} <= vars(backend).keys(), backend
