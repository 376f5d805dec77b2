"""The GPU gradient of maxima with few windows: which problems it takes, and its launches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuda_problems import H200, strided
from geometries import maxima_gradient
from pooltide.geometry import UNIT, Axis
from pooltide.kernels.cuda.choice import candidates
from pooltide.kernels.cuda.maximum_gradient.scatter_few import scatter_few
from pooltide.kernels.cuda.task import Task
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem
from simt_few import NAME


def problem(batch: tuple[int, int], dtype: str, *axes: Axis) -> Problem:
    d, h, w = (UNIT,) * (3 - len(axes)) + axes
    return maxima_gradient(batch, (d, h, w), DTYPES[dtype], DTYPES["INT64"])


WHOLE = problem((2, 1024), "BFLOAT16", Axis(140, 1), Axis(140, 1))
LAYERS = problem((2, 1991), "BFLOAT16", strided(38, 5, 5, 1), strided(8, 5, 5, 2), strided(8, 5, 5, 0))


@pytest.mark.parametrize(
    ("given", "layout"),
    [
        (WHOLE, "planes"),
        (problem((57, 16), "FLOAT32", Axis(180, 7), Axis(180, 7)), "planes"),
        (problem((22, 32), "FLOAT32", Axis(92, 1), Axis(17, 1), Axis(17, 1)), "channels_last"),
        (problem((14, 512), "FLOAT32", *[strided(n, 7, 7, 0) for n in (16, 12, 12)]), "channels_last"),
        (problem((849, 16), "FLOAT32", Axis(64, 4), Axis(64, 8)), "channels_last"),
        (LAYERS, "channels_last"),
    ],
    ids=str,
)
def test_few_windows_are_taken(given: Problem, layout: str) -> None:
    assert NAME in dict(candidates(given, layout, H200))


def test_the_result_is_filled_by_the_first_of_one_or_two_launches() -> None:
    launches = [dict(candidates(WHOLE, layout, H200))[NAME] for layout in ("planes", "channels_last")]
    assert [len(each) for each in launches] == [1, 2]


@pytest.mark.parametrize("layout", ["planes", "channels_last"])
def test_more_pairs_of_windows_than_can_be_compared_are_refused(layout: str) -> None:
    given = problem((2, 3), "FLOAT32", strided(512, 4, 4, 0), strided(512, 4, 4, 0))
    reason = "268435456 pairs of windows are too many to compare for a plane of 1048576 bytes"
    assert scatter_few(Task(given, layout, H200)) == reason


@pytest.mark.parametrize("multiprocessors", [1, 20, 132, 400])
@pytest.mark.parametrize("given", [WHOLE, LAYERS], ids=str)
def test_blocks_fill_the_whole_result_once(given: Problem, multiprocessors: int) -> None:
    facts = replace(H200, multiprocessors=multiprocessors)
    for layout in ("planes", "channels_last"):
        first = dict(candidates(given, layout, facts))[NAME][0]
        names = [name for kind, name in first.source.parameters if not kind.endswith("*")]
        span = dict(zip(names, first.arguments, strict=True))["span"]
        assert isinstance(span, int)
        size = given.cells * given.dtype.itemsize
        assert (first.grid - 1) * span * 16 <= size < first.grid * span * 16 + 16
        assert first.grid >= multiprocessors
