"""Whatever the constants of the GPU planners, a launch that is planned has the right bits; see simt_wide.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

import simt
from cuda_problems import H200, changed, random_task, strided
from geometries import maxima_gradient
from paths import SUPPORT
from pooltide.geometry import UNIT
from pooltide.kernels.cuda.choice import KERNELS, LAYOUTS, candidate, candidates
from pooltide.kernels.cuda.maximum_gradient import scatter_planes
from pooltide.kernels.cuda.maximum_gradient.scatter_planes import scatter_bands
from pooltide.kernels.cuda.task import Launch, Task, unfit
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem
from simt_forwards import random_forward
from tunables import FACTORS, opened, scaled, tunables

PROGRAM = SUPPORT / "simt_wide.py"
TYPES = DTYPES["FLOAT32"], DTYPES["INT64"]
MAX_TUNABLES = 95  # constants that nobody fitted; fewer are better, more need a reason
on_host = pytest.mark.skipif(simt.why_not() is not None, reason=simt.why_not() or "")


@on_host
@pytest.mark.parametrize(
    ("seeds", "runs"),
    [
        pytest.param(("2", "3", "25", "--known"), 1, id="few"),
        pytest.param(("0", "24", "60", "--known"), 40, id="more", marks=pytest.mark.slow),
        pytest.param(("24", "32", "8"), 20, id="other kernels", marks=pytest.mark.slow),
    ],
)
def test_launches_with_opened_constants_have_the_expected_bits(seeds: tuple[str, ...], runs: int) -> None:
    done = simt.start(PROGRAM, *seeds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split(" runs")[0]) >= runs, done.stdout


def test_no_constant_makes_a_launch_that_a_device_refuses() -> None:
    problem, _ = random_forward(4)
    for tunable in tunables():
        for factor in (0.5, 8.0):
            with opened(tunable, factor):
                for name, launches in candidates(problem, "planes", H200):
                    assert unfit(launches, H200) is None, (name, tunable.name, factor)


def broken_conditions(task: Task, launch: Launch) -> Iterator[str]:
    """Conditions that .cu files state in words, and a launch breaks."""
    options, file = dict(launch.source.defines), launch.source.file
    itemsize = task.problem.dtype.itemsize
    vector, near, rows = (int(options.get(name, 1)) for name in ("VECTOR", "NEAR", "NEAR_ROWS"))
    if not 1 <= vector * itemsize <= 16 or vector & (vector - 1):
        yield f"a vector has {vector} elements of {itemsize} bytes"
    in_tiles = ("maximum_axes.cu", "maximum_staged.cu", "average_staged.cu")
    if file in in_tiles and int(options["COLUMNS"]) * itemsize > 128:
        yield "a batch of cells has more than one gap"
    if near - 1 + (rows - 1) * (2 * near - 1) > 32:
        yield "a word has no bit for each lane that is compared"
    if not 1 <= int(options.get("PACK", 1)) * task.sum_bytes <= 16:
        yield "a pack of sums is longer than a vector"
    if file == "average_rolling.cu" and int(options["WINDOWS"]) > 32:
        yield "a word has no bit for each window of a row"
    if file == "scatter_channels.cu" and int(options["LANES"]) % int(options["AHEAD"]):
        yield "a group of lanes loads windows in unequal parts"
    if file == "maximum_reduce.cu":
        numbers = [name for kind, name in launch.source.parameters if not kind.endswith("*")]
        arguments = dict(zip(numbers, launch.arguments, strict=True))
        if any(arguments[name] & (arguments[name] - 1) for name in ("parts", "lanes_w")):
            yield "threads that share a window are no power of two"


# Problems that would break a condition with some constant eight times as large, if planners did not state it.
HARD = {
    "many windows to a column": maxima_gradient((2, 3), (UNIT, UNIT, strided(200, 40, 1, 0)), *TYPES),
    "averages of rows of 2 bytes": Problem(
        "average_gradient",
        (2, 3),
        (UNIT, strided(9, 3, 1, 1), strided(101, 4, 3, 0)),
        DTYPES["FLOAT16"],
        "valid",
    ),
    "windows of 30 doubles": Problem(
        "maximum", (64, 64), (UNIT, strided(9, 3, 1, 1), strided(60, 30, 1, 0)), DTYPES["FLOAT64"]
    ),
}


def random_tasks(seed: int) -> list[Task]:
    forward, (gradient, layout, *_) = random_forward(seed)[0], random_task(seed)
    return [Task(gradient, layout, H200), *(Task(forward, layout, H200) for layout in sorted(LAYOUTS))]


@pytest.mark.parametrize(
    "tasks",
    [
        *(pytest.param([Task(problem, "planes", H200)], id=name) for name, problem in HARD.items()),
        *(
            pytest.param(random_tasks(seed), id=str(seed), marks=[pytest.mark.slow][: seed > 1])
            for seed in range(9)
        ),
    ],
)
def test_opened_constants_keep_the_conditions_of_kernels(tasks: list[Task]) -> None:
    for tunable, factor, task in product(tunables(), FACTORS, tasks):
        with opened(tunable, factor):
            for name, planner in KERNELS[task.problem.kind]:
                launches = candidate(task, planner)
                for launch in () if isinstance(launches, str) else launches:
                    broken = list(broken_conditions(task, launch))
                    assert not broken, (name, tunable.name, factor, broken)


def test_tiles_and_numbers_that_do_not_fit_are_refused() -> None:
    problem = maxima_gradient((1, 1), (UNIT, strided(4096, 3, 1, 1), strided(4096, 3, 1, 1)), *TYPES)
    task = Task(problem, "planes", H200)
    assert not isinstance(candidate(task, scatter_bands), str)
    with changed(scatter_planes, WARP_BYTES=64 << 20):
        assert "bytes of shared memory, of" in str(candidate(task, scatter_bands))
    (first, *_) = scatter_bands(task)
    assert isinstance(first, Launch)
    assert "it must fit int" in str(
        unfit((replace(first, arguments=(*first.arguments[:1], 2**31, *first.arguments[2:])),), H200)
    )
    assert "more than a grid numbers" in str(unfit((replace(first, grid=2**31),), H200))
    assert "a block has 2048 threads" in str(unfit((replace(first, block=2048),), H200))


def test_the_constants_are_counted() -> None:
    listed = tunables(imported=False)
    assert len({(one.module, one.name) for one in listed}) == len(listed) <= MAX_TUNABLES
    assert "WARP_BYTES" in {one.name for one in listed}
    assert scaled({True: 4, False: (2, 0.5)}, 8.0) == {True: 32, False: (16, 4.0)}
