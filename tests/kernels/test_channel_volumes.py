"""The GPU gradient of maxima in channels-last volumes: which problems it takes, and its tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cuda_problems import H200, strided
from geometries import maxima_gradient
from pooltide.geometry import UNIT, Axis
from pooltide.kernels.cuda.choice import candidates
from pooltide.kernels.cuda.maximum_gradient.scatter_walk import walk_channels
from pooltide.kernels.cuda.task import Task
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem

NAME = "scatter of channels in volumes"


def problem(batch: tuple[int, int], dtype: str, *axes: Axis) -> Problem:
    d, h, w = axes
    return maxima_gradient(batch, (d, h, w), DTYPES[dtype], DTYPES["INT64"])


THREES = problem((2, 64), "FLOAT32", *(strided(n, 3, 1, 1) for n in (35, 95, 97)))
SEVENS = problem((22, 128), "BFLOAT16", *(strided(n, 7, 1, 3) for n in (56, 19, 10)))
ADAPTIVE = problem((173, 16), "BFLOAT16", Axis(17, 6), Axis(22, 12), Axis(22, 17))


@pytest.mark.parametrize("given", [THREES, SEVENS, ADAPTIVE], ids=str)
def test_deep_windows_that_overlap_can_be_walked(given: Problem) -> None:
    first, again = dict(candidates(given, "channels_last", H200))[NAME]
    assert dict(first.source.defines)["WALK"] == 1
    assert again.source == first.source


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            problem((2, 64), "FLOAT32", UNIT, strided(31, 3, 1, 1), strided(37, 3, 1, 1)),
            "images have one slice",
        ),
        (
            problem((2, 1), "FLOAT32", *(strided(n, 3, 1, 1) for n in (7, 31, 37))),
            "lanes own channels, and images have one",
        ),
        (
            problem((2, 64), "FLOAT64", Axis(433, 2), Axis(7, 3), Axis(5, 3)),
            "a window has 217 slices, too many cells for a warp",
        ),
    ],
    ids=str,
)
def test_other_windows_are_refused_with_a_reason(given: Problem, reason: str) -> None:
    assert walk_channels(Task(given, "channels_last", H200)) == reason


@pytest.mark.parametrize("multiprocessors", [1, 20, 132, 400])
@pytest.mark.parametrize("given", [THREES, SEVENS, ADAPTIVE], ids=str)
def test_tiles_hold_every_cell_once_and_fit_the_device(given: Problem, multiprocessors: int) -> None:
    facts = replace(H200, multiprocessors=multiprocessors)
    found = walk_channels(Task(given, "channels_last", facts))
    assert not isinstance(found, str)
    held = np.zeros(given.input_plane, np.int32)
    for d, h, w, nd, nh, nw in found[0].tables[0][:, :6]:
        held[d : d + nd, h : h + nh, w : w + nw] += 1
    assert (held == 1).all()
    assert all(launch.shared <= facts.shared_per_block for launch in found)
    assert found[0].grid >= multiprocessors


@pytest.mark.parametrize("layout", ["planes", "channels_last"])
@pytest.mark.parametrize("depth", [1, 9])
def test_very_long_axes_have_a_plan(layout: str, depth: int) -> None:
    given = problem(
        (1, 16), "FLOAT32", strided(depth, 3, 2, 1), strided(2999, 3, 2, 1), strided(701, 3, 2, 1)
    )
    for name, launches in candidates(given, layout, H200):
        assert launches[0].shared <= H200.shared_per_block, name
