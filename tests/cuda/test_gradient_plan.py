"""How the GPU kernels of the gradients of averages divide a problem; no GPU is needed."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from cuda_problems import H200
from pooltide.acceptance.notation import parse
from pooltide.acceptance.trial import problem_of
from pooltide.geometry import UNIT, Axis
from pooltide.kernels.cuda import choice, kernel_tables
from pooltide.kernels.cuda.average_gradient import average_dense, average_flat, average_walk
from pooltide.kernels.cuda.runtime.driver import DeviceFacts
from pooltide.kernels.cuda.task import Task
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem, strided_axis


def dense(text: str) -> average_dense.Plan:
    case = parse(text)
    task = Task(problem_of(case), "channels_last" if case.channels_last else "planes", H200)
    _, h, w = task.problem.axes
    cells = average_dense._cells(task, average_dense.rows_of(h), average_dense.rows_of(w))
    assert cells is not None
    plan = average_dense._best(task, cells)
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("case", "most"),
    [
        ("avg3d:2x64x112x7x7:k4:s1:p2", 2),
        ("avg3d:2x64x14x16x16:k4:s1:p2", 2),
        ("avg2d:64x64x8x8:k7:s1:p3", 2),
        ("avg2d:2x64x64x64:k9:s1:p4", 3),
        ("avg2d:2x64x50x50:k13:s1:p6", 3),
        ("avg3d:2x64x16x25x25:k7:s2:p3", 2),
        ("avg3d:2x64x16x23x23:k5:s1:p2:cl", 2),
    ],
)
def test_lanes_of_a_dense_average_read_different_banks(case: str, most: int) -> None:
    """Of the first quotients that the lanes of a warp read at once, `most` are in one bank."""
    plan = dense(case)
    tile, cells, (pitch, slice_pitch, plane_pitch) = plan.tile, plan.cells, plan.pitches
    shape = (tile.h, tile.share, tile.d, tile.w, tile.c)
    h, share, d, w, c = np.unravel_index(np.arange(min(32, tile.size)), shape)
    at = share * plane_pitch + d * slice_pitch + h * cells.h * pitch + w * cells.w * tile.c + c
    assert np.bincount(at % 32).max() <= most


def test_a_tall_plane_is_planned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of a long axis are not cached, so that writing them out for each band would take minutes."""
    written = []

    def counted(axis: Axis) -> Any:
        written.append(axis)
        return original(axis)

    original = kernel_tables.tables
    monkeypatch.setattr(kernel_tables, "tables", counted)
    found = kernel_tables.bands((UNIT, Axis(1 << 17, 1 << 17, 3, 1, 1), Axis(4, 4)), 64)
    assert len(found) == 1 << 13
    assert len(written) <= 6


def test_the_divisor_of_huge_windows_is_exact() -> None:
    """The product of three extents may exceed 64 bits."""
    axes = tuple(strided_axis(n, 1, k, 1, k // 2) for n, k in ((2, 3000001), (3, 3000001), (4, 4000001)))
    problem = Problem("average_gradient", (1, 1), axes, DTYPES["FLOAT64"], "extent")
    extents = [int(kernel_tables.tables(axis).extent[0]) for axis in axes]
    assert prod(extents) > 2**63
    assert kernel_tables.divisors(problem)[1][0] == float(prod(extents))


def test_the_stride_of_a_single_window_does_not_count() -> None:
    assert strided_axis(64, 1, 13, 2**70, 0).s == 64
    assert strided_axis(64, 2, 13, 51, 0).s == 51


def test_windows_longer_than_a_kernel_can_count_are_refused() -> None:
    axes = (UNIT, strided_axis(5, 6, 2**33, 1, 2**32), strided_axis(5, 6, 2**33, 1, 2**32))
    problem = Problem("average_gradient", (1, 2), axes, DTYPES["FLOAT32"], "extent")
    assert choice.refuse(problem) == "a window, a stride or a padding is longer than 1073741824 cells"


@pytest.mark.parametrize(
    ("axes", "dtype", "facts"),
    [
        ((UNIT, Axis(100, 1), Axis(12, 14001)), "FLOAT64", H200),
        (
            (UNIT, UNIT, Axis(33, 32)),
            "FLOAT16",
            DeviceFacts(75, 40, 64 << 10, 64 << 10, 1024, 65536, 4 << 20, 1),
        ),
    ],
    ids=["H200", "64 KB"],
)
def test_a_staged_average_fits_shared_memory(axes: Any, dtype: str, facts: DeviceFacts) -> None:
    problem = Problem("average_gradient", (100000, 16), axes, DTYPES[dtype], "chained")
    found = average_walk.staged_average(Task(problem, "planes", facts))
    assert isinstance(found, str) or found[0].shared <= facts.shared_per_block


def test_a_flat_average_is_not_unrolled_for_ever() -> None:
    task = Task(problem_of(parse("avg3d:1x1x128x128x128:k119:s1")), "planes", H200)
    assert "the kernel would take seconds to compile" in str(average_flat.flat_average(task))
