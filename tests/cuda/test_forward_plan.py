"""Plans of GPU forwards: how problems are divided, and that a device can launch what is planned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuda_problems import H200
from pooltide.geometry import UNIT, Axis, strided_outputs
from pooltide.kernels.cuda.choice import KERNELS, plan
from pooltide.kernels.cuda.task import Task
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem, with_offsets
from simt_forwards import SMALL, VOLUMES, launches, random_forward, shapes, tiny_limits


def strided(length: int, k: int, s: int, p: int) -> Axis:
    return Axis(length, strided_outputs(length, k, s, p, False), k, s, p)


def problem(kind: str, batch: tuple[int, int], axis: Axis, quotient: str = "", d: Axis = UNIT) -> Problem:
    found = Problem(kind, batch, (d, axis, axis), DTYPES["FLOAT32"], quotient)
    return (with_offsets(found) or found) if kind == "maximum" else found


@pytest.mark.parametrize("small", [True, False])
def test_a_device_can_launch_what_is_planned(small: bool) -> None:
    facts = SMALL if small else H200
    for seed in range(120):
        for layout in ("planes", "channels_last"):
            for name, found in launches(random_forward(seed)[0], layout, small):
                for launch in found:
                    threads = dict(launch.source.defines)["THREADS"]
                    assert 0 < launch.block <= threads <= 1024, name
                    assert launch.shared <= facts.shared_per_block, name
                    assert 0 < launch.grid < 2**31, name


def test_the_last_specialised_kernel_of_a_kind_refuses_nothing() -> None:
    with tiny_limits():
        for seed in range(120):
            for layout in ("planes", "channels_last"):
                given = random_forward(seed)[0]
                # The general kernel is never chosen, and one kernel alone computes a mean.
                planner = KERNELS[given.kind][0 if given.quotient == "mean" else -2][1]
                assert not isinstance(planner(Task(given, layout, SMALL)), str)


def test_random_problems_reach_every_variant_of_tiles() -> None:
    """Those that tests run on the host: even seeds are planned with tiny limits."""
    reached: dict[str, set[tuple[str, int]]] = {"staged maximum": set(), "average of staged windows": set()}
    for seed in range(0, 80, 2):
        for name, found in launches(random_forward(seed)[0], "planes", small=True):
            if name in reached:
                reached[name] |= {
                    (key, value) for key, value in found[0].source.defines if isinstance(value, int)
                }
    flags = ("WHOLE", "STEADY", "PADDED", "CLIPPED_H", "CLIPPED_W")
    variants = {(flag, value) for flag in flags for value in (0, 1)} | {("ELEMENT", n) for n in range(4)}
    for defines in reached.values():
        assert defines >= variants | {("COLUMNS", 0), ("COLUMNS", 3), ("ROWS", 1), ("ROWS", 3)}
    assert reached["staged maximum"] >= {("INDEX", 1), ("INDEX", 8), ("SEARCHED", 0), ("SEARCHED", 1)}


def test_random_problems_reach_every_variant_of_boxes() -> None:
    reached, segment_rows = set(), set()
    for seed in (*range(0, 80, 2), *range(VOLUMES, VOLUMES + 24, 2)):
        for name, (launch, *_) in launches(random_forward(seed)[0], "planes", small=True):
            if name == "maximum by axes":
                reached |= set(launch.source.defines)
                numbers = [number for kind, number in launch.source.parameters if not kind.endswith("*")]
                rows = dict(zip(numbers, launch.arguments, strict=True))["segment_rows"]
                segment_rows |= {rows == 1} if ("SEGMENTED", 1) in launch.source.defines else set()
    flags = ("SEGMENTED", "STEADY", "PADDED", "CLIPPED_W", "SLICES_FIRST")
    variants = {(flag, value) for flag in flags for value in (0, 1)} | {("ELEMENT", n) for n in range(4)}
    assert reached >= variants | {("COLUMNS", 0), ("COLUMNS", 3), ("INDEX", 1), ("INDEX", 8)}
    assert segment_rows == {False, True}  # segments of several rows, and of one


@pytest.mark.parametrize(
    ("axis", "spread"),
    [(strided(28, 2, 2, 0), 1), (strided(28, 3, 2, 1), 0), (strided(224, 2, 2, 0), 0)],
    ids=str,
)
def test_threads_spread_over_rows_of_disjoint_windows(axis: Axis, spread: int) -> None:
    given = Problem("maximum", (64, 64), (UNIT, axis, axis), DTYPES["FLOAT32"])
    (launch,) = dict(launches(given, "planes", small=False))["rolling maximum"]
    assert dict(launch.source.defines)["SPREAD"] == spread


def test_a_window_of_one_row_is_whole_only_if_the_plane_has_one_row() -> None:
    axes = (UNIT, Axis(3, 1, 2, 3, 1, dilation=2), Axis(64, 1))
    given = Problem("maximum", (64, 64), axes, DTYPES["FLOAT32"])
    found = [dict(launch[0].source.defines) for _, launch in launches(given, "planes", small=False)]
    assert [defines["WHOLE"] for defines in found if "WHOLE" in defines] == [0]


@pytest.mark.parametrize(("planes", "rows"), [(64 * 6, 64), (55 * 53, 55), (2 * 397, 2), (397, 1)])
def test_planes_of_one_row_become_the_rows_of_fewer_planes(planes: int, rows: int) -> None:
    for kind, quotient, name in (
        ("maximum", "", "rolling maximum"),
        ("average", "extent", "average of columns"),
    ):
        given = Problem(kind, (planes, 1), (UNIT, UNIT, strided(40, 2, 2, 0)), DTYPES["FLOAT32"], quotient)
        (launch,) = dict(launches(given, "planes", small=False))[name]
        numbers = [number for kind, number in launch.source.parameters if not kind.endswith("*")]
        arguments = dict(zip(numbers, launch.arguments, strict=True))
        assert (arguments["planes"], arguments["H"], arguments["Ho"]) == (planes // rows, rows, rows)


@pytest.mark.parametrize(
    ("kind", "channels", "dtype", "images", "vector"),
    [
        ("average", 64, "BFLOAT16", 64, 8),
        ("average", 36, "BFLOAT16", 64, 4),
        ("average", 70, "BFLOAT16", 64, 2),
        ("average", 33, "BFLOAT16", 64, 1),
        ("average", 64, "FLOAT32", 64, 4),
        ("average", 64, "FLOAT64", 64, 2),
        ("average", 64, "BFLOAT16", 5, 4),  # few threads
        ("average", 64, "BFLOAT16", 1, 2),
        ("average", 64, "FLOAT32", 1, 1),
        ("maximum", 64, "BFLOAT16", 256, 4),
        ("maximum", 64, "FLOAT64", 256, 2),
    ],
)
def test_threads_take_up_to_16_bytes_of_channels(
    kind: str, channels: int, dtype: str, images: int, vector: int
) -> None:
    given = problem(kind, (images, channels), strided(64, 3, 1, 1), "valid" if kind == "average" else "")
    (launch,) = plan(replace(given, dtype=DTYPES[dtype]), "channels_last", H200)
    assert dict(launch.source.defines)["VECTOR"] == vector


def test_shapes_reach_every_vector_of_channels() -> None:
    """Those that tests run on the host."""
    reached = {
        (launch.source.file, dict(launch.source.defines)["VECTOR"], dict(launch.source.defines)["ELEMENT"])
        for given in shapes()
        for small in (True, False)
        for _, (launch, *_) in launches(given, "channels_last", small)
        if launch.source.file in ("average_columns.cu", "maximum_columns.cu")
    }
    assert reached >= {
        ("average_columns.cu", 8, 3),
        ("average_columns.cu", 4, 0),
        ("average_columns.cu", 2, 1),
        ("average_columns.cu", 4, 3),
    }
    assert reached >= {
        ("maximum_columns.cu", 4, 3),
        ("maximum_columns.cu", 4, 0),
        ("maximum_columns.cu", 2, 1),
        ("maximum_columns.cu", 2, 3),
    }


def test_sizes_share_a_few_kernels() -> None:
    pools = (("maximum", (3, 2, 1), ""), ("maximum", (2, 2, 0), ""), ("average", (2, 2, 0), "extent"))
    for kind, axis, quotient in pools:
        for layout in ("planes", "channels_last"):
            planned = [
                plan(problem(kind, (2, 64), strided(length, *axis), quotient), layout, H200)
                for length in range(20, 220, 3)
            ]
            assert len({found[0].source for found in planned}) <= 6


def test_rows_longer_than_two_gigabytes_have_wide_pitches() -> None:
    long = problem("average", (1, 1), UNIT, "extent")
    long = replace(long, quotient="chained", axes=(UNIT, UNIT, Axis(2**29, 4)))
    source = launches(long, "planes", small=False)[-2][1][0].source
    assert ("i64", "pitch") in source.parameters


@pytest.mark.parametrize(
    ("batch", "axis", "dtype"),
    [((28, 64), Axis(166, 1), "BFLOAT16"), ((45, 32), Axis(181, 1), "FLOAT32"), ((4, 1039), Axis(72, 2), "FLOAT64")],
    ids=str,
)  # fmt: skip
def test_few_huge_windows_of_channels_have_threads_for_a_third_of_the_device(
    batch: tuple[int, int], axis: Axis, dtype: str
) -> None:
    given = replace(problem("maximum", batch, axis), dtype=DTYPES[dtype])
    (launch,) = plan(given, "channels_last", H200)
    resident = H200.multiprocessors * H200.threads_per_multiprocessor
    assert launch.source.file == "maximum_reduce.cu"
    assert resident / 3 <= launch.grid * launch.block <= resident
