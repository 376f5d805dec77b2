"""The GPU gradient of maxima in channels-last volumes: which problems it takes, and its tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cuda_problems import H200, any_cost, strided
from geometries import maxima_gradient
from pooltide.geometry import UNIT, Axis
from pooltide.kernels.cuda.choice import KERNELS, kernels, plan
from pooltide.kernels.cuda.task import Task
from pooltide.kernels.cuda.walk_plan import walk_channels
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
def test_deep_windows_that_overlap_are_walked(given: Problem) -> None:
    assert kernels(given, "channels_last", H200)[-1] == (NAME, None)
    first, again = plan(given, "channels_last", H200)
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
            problem((2, 3), "FLOAT32", *(strided(n, 3, 1, 1) for n in (7, 31, 37))),
            "3 channels are innermost, too few for the lanes of a warp",
        ),
        (
            problem((2, 64), "FLOAT64", Axis(433, 2), Axis(7, 3), Axis(5, 3)),
            "a window has 217 slices, too many cells for a warp",
        ),
        (
            problem((64, 64), "FLOAT32", *[strided(6, 5, 1, 0)] * 3),
            "a walk is estimated at 1.63 times the cost of boxes, of at most 0.85",
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
    with any_cost():
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
    with any_cost():
        for name, planner in KERNELS["maximum_gradient"]:
            found = planner(Task(given, layout, H200))
            assert isinstance(found, str) or found[0].shared <= H200.shared_per_block, name
