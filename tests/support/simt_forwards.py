"""The GPU forwards on the host, over enumerated geometries: every kernel that takes a problem, bit by bit.

    python tests/support/simt_forwards.py [--share AT N] [--only KIND] [--random FIRST END] [--corners] [--seed S]

runs every N-th geometry from the AT-th on (none if N is 0), then random problems with NaNs, infinities, equal cells
and both zeros, then the corners. tests/cuda/test_simt_forwards.py starts it with AddressSanitizer loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from cuda_problems import H200, TYPES, changed, random_windows
from enumeration import NONE, bits, difference
from geometries import flat
from pooltide.geometry import UNIT, Axis, strided_outputs
from pooltide.kernels import Arrays, reference
from pooltide.kernels.cuda.average import average_columns
from pooltide.kernels.cuda.choice import KERNELS
from pooltide.kernels.cuda.maximum import (
    maximum_axes,
    maximum_columns,
    maximum_reduce,
    maximum_staged,
)
from pooltide.kernels.cuda.runtime.driver import DeviceFacts
from pooltide.kernels.cuda.task import Launch, Task
from pooltide.kernels.cuda.windows import banks, boxes, columns, tile
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem, with_offsets
from simt_sweep import Collector, sweep, sweep_arguments

VOLUMES = 1000  # the first seed of volumes
ROWS = 2000  # and of planes with one row
SMALL = DeviceFacts(90, 1, 48 << 10, 64 << 10, 64, 65536, 1 << 20, 1_980_000)
# Planned for one multiprocessor, whose tiles small problems fill.
IN_TILES = ("staged maximum", "maximum by axes", "average of staged windows")
# Blocks and limits so small that small problems meet them.
TINY: dict[Any, dict[str, Any]] = {
    columns: {"THREADS": 64, "UNROLLED": 3},
    maximum_columns: {"ROWS_IN_REGISTERS": 3, "SECTION_BYTES": 8 << 10},
    maximum_reduce: {"FEWEST_CELLS": 1},
    maximum_staged: {"SEARCHED_ROWS": 2},
    average_columns: {"CELLS_IN_REGISTERS": 30},
    boxes: {"TILE_BYTES": (768, 6 << 10), "LEAST_BYTES": 256, "TWICE": (2, 99)},
    maximum_axes: {"THREADS": 32},
    banks: {"BRANCHES": 1},
    tile: {
        "THREADS": 32,
        "TILE_BYTES": (768, 6 << 10),
        "FEWEST_WINDOWS": 6,
    },
}


@contextmanager
def tiny_limits() -> Iterator[None]:
    """Plan as if blocks and limits were tiny."""
    with ExitStack() as stack:
        for module, values in TINY.items():
            stack.enter_context(changed(module, **values))
        yield


def launches(
    problem: Problem, layout: str, small: bool, facts: DeviceFacts = H200
) -> list[tuple[str, tuple[Launch, ...]]]:
    """The launches of every kernel that takes the problem. `small`: as if blocks and limits were tiny."""
    one = replace(facts, multiprocessors=1)
    with tiny_limits() if small else nullcontext():
        planned = [
            (name, planner(Task(problem, layout, SMALL if small else one if name in IN_TILES else facts)))
            for name, planner in KERNELS[problem.kind]
        ]
    return [(name, launch) for name, launch in planned if not isinstance(launch, str)]


class ForwardChecker(Collector):
    def forward(self, problem: Problem, x: Any, values: Any, places: Any) -> None:
        given = x.astype(problem.dtype.numpy), values.astype(problem.dtype.numpy), places
        self.problems += [(problem, layout, *given) for layout in ("planes", "channels_last")]

    def random(self, seed: int) -> None:
        self.computed(*random_forward(seed))

    def corners(self) -> None:
        """Small averages, and shapes that no seed has."""
        # So small that the first of two divisions may give -0, which the second one must keep.
        problem = Problem("average", (2, 3), (UNIT, Axis(9, 3), Axis(9, 3)), DTYPES["FLOAT32"], "chained")
        counts = np.random.default_rng(5).integers(-1, 6, problem.batch + problem.input_plane).clip(max=0)
        self.computed(problem, (counts * np.finfo(np.float32).smallest_subnormal).astype(np.float32))
        for problem in shapes():
            x = np.random.default_rng(6).integers(-2, 3, problem.batch + problem.input_plane)
            self.computed(problem, x.astype(problem.dtype.numpy))

    def computed(self, problem: Problem, x: Any) -> None:
        values = np.empty(problem.batch + problem.output_plane, x.dtype)
        places = {0: None, 1: np.empty(values.shape, np.uint8), 8: np.empty(values.shape, np.int64)}
        indices = places[problem.index_bytes]
        reference.run(problem, "planes", Arrays(input=x, indices=indices, out=values), NONE)
        self.forward(problem, x, values, indices)

    def one(self, label: str, found: tuple[Launch, ...], *given: Any) -> None:
        problem, layout, x, values, places = given
        shift = self.runs // 2 % 2  # elements: tensors need not be aligned to vectors
        out = np.full(values.size + shift, np.nan, values.dtype)[shift:]
        source = np.empty(x.size + shift, x.dtype)[shift:]
        source[:] = flat(x, layout)
        tensors: list[Any] = [source, out]
        if problem.index_bytes:
            tensors.append(
                np.full(values.size + shift, 255 if problem.offsets else -(2**60), places.dtype)[shift:]
            )
        self.run_launches(label, found, tensors)
        want = flat(values, layout)
        assert (bits(out) == bits(want)).all(), f"{label}: {difference(out, want)}"
        if problem.index_bytes:
            right = flat(places, layout)
            wrong = np.flatnonzero(tensors[2] != right)
            assert not len(wrong), (
                f"{label}: {len(wrong)} places differ, {tensors[2][wrong[0]]} for {right[wrong[0]]}"
            )


def shapes() -> list[Problem]:
    """Problems with tiny limits and with the real ones: two of each."""
    half, single = DTYPES["BFLOAT16"], DTYPES["FLOAT32"]
    short = UNIT, Axis(9, 5, 2, 2, 1), Axis(7, 4, 2, 2, 1)  # short rows of disjoint windows
    odd = UNIT, Axis(9, 3, 3, 3), Axis(5, 5, 1, 1)
    columns_of_cells = UNIT, Axis(40, 1), Axis(3, 3)
    overlapping = Axis(6, 3, 3, 2, 1), Axis(7, 4, 3, 2, 1), Axis(7, 4, 3, 2, 1)
    large = UNIT, Axis(60, 3), Axis(60, 7)  # averages of which few fit a tile
    found = [
        Problem("maximum", (5, 7), short, single, index_dtype=DTYPES["INT64"]),
        Problem("average", (5, 7), short, half, "valid"),
        Problem("average", (3, 40), odd, single, "extent"),
        *(
            replace(Problem("maximum", (2, channels), columns_of_cells, half), offsets=True)
            for channels in (6, 20, 70)
        ),
        Problem("maximum", (3, 50), overlapping, half, index_dtype=DTYPES["INT64"]),
        Problem("average", (3, 50), overlapping, half, "valid"),
        Problem("average", (1, 4), large, half, "chained"),
        Problem("average", (2, 8), (UNIT, Axis(8, 2), Axis(40, 4)), single, "chained"),  # rows of 10 cells
        Problem("average", (2, 6), (UNIT, Axis(12, 2), Axis(40, 2)), half, "chained"),  # of 20
        *channel_counts(),
    ]
    return [problem for problem in found for _ in range(2)]


def channel_counts() -> list[Problem]:
    """Channels-last volumes whose threads take 1, 2, 4 or 8 channels."""
    half, single, double = DTYPES["BFLOAT16"], DTYPES["FLOAT32"], DTYPES["FLOAT64"]
    near = Axis(5, 5, 3, 1, 1), Axis(9, 9, 3, 1, 1), Axis(6, 6, 3, 1, 1)
    apart = Axis(6, 3, 2, 2), Axis(9, 5, 2, 2, 1), Axis(6, 3, 2, 2)
    adaptive = Axis(5, 3), Axis(9, 4), Axis(40, 2)
    index = {"index_dtype": DTYPES["INT64"]}
    return [
        Problem("average", (2, 8), near, half, "valid"),
        Problem("average", (2, 12), near, single, "valid"),
        Problem("average", (2, 36), apart, half, "extent"),
        Problem("average", (2, 70), adaptive, half, "chained"),
        Problem("average", (2, 8), adaptive, half, "chained"),
        Problem("average", (2, 4), adaptive, double, "chained"),
        replace(Problem("maximum", (2, 8), near, half), offsets=True),
        Problem("maximum", (2, 36), near, half, **index),
        Problem("maximum", (2, 12), near, single),  # the first of two zeros wins
        Problem("maximum", (2, 4), near, double, **index),
        Problem("maximum", (2, 70), apart, half, **index),
        replace(Problem("maximum", (2, 12), adaptive, half), offsets=True),
    ]


def random_forward(seed: int) -> tuple[Problem, Any]:
    """The seed's problem and its input: few values, so that many are equal, among them NaN, ±inf and ±0.

    From seed VOLUMES on, problems have strided or adaptive windows of several slices, from ROWS on of one row.
    """
    rng = np.random.default_rng(seed)
    dtype = DTYPES[TYPES[(seed + seed // 8) % 4]]  # each type has seeds that are planned with tiny limits
    batch = (int(rng.integers(1, 4)), int(rng.choice([1, 3, 8, 33, 40])))
    lengths = [int(rng.choice([1, 2, 5, 8, 13, 24, 31, 40])) for _ in range(2)]
    if rng.integers(2):
        axes = random_windows(rng, lengths)
        axes[0] = tall(rng, axes[0]) if rng.integers(2) else axes[0]
    else:
        whole = rng.integers(4) == 0
        axes = [Axis(n, 1 if whole else int(rng.choice([1, 2, 3, max(n // 2, 1), n]))) for n in lengths]
    d, h, w = UNIT if rng.integers(2) else Axis(5, 2), *axes
    if not (h.adaptive and w.adaptive) and rng.integers(2):
        d = UNIT
    if seed >= ROWS:
        d, h, w = UNIT, UNIT, axes[1]
    elif seed >= VOLUMES:
        d, h, w = volume(rng)
    if seed // 4 % 2:
        quotient = "chained" if h.adaptive else str(rng.choice(["extent", "valid", "override"]))
        if prod_outputs((d, h, w)) == 1 and h.adaptive:
            quotient = "mean"
        problem = Problem("average", batch, (d, h, w), dtype, quotient, int(rng.choice([-7, 3, -4, 2**70])))
        x = rng.standard_normal(batch + problem.input_plane) * np.exp2(
            rng.integers(-9, 9, batch + problem.input_plane)
        )
        return problem, x.astype(dtype.numpy)
    problem = Problem("maximum", batch, (d, h, w), dtype)
    kind = int(rng.integers(3))
    if kind == 1:
        problem = Problem("maximum", batch, (d, h, w), dtype, index_dtype=DTYPES["INT64"])
    elif kind == 2:
        problem = with_offsets(problem) or problem
    values = np.array([-np.inf, -3, -0.0, 0.0, 2, np.inf, np.nan])
    odds = np.array(
        [[1, 0, 0, 0, 0, 0, 0], [1, 1, 5, 5, 0, 0, 0], [1, 5, 5, 5, 5, 1, 1], [1, 9, 0, 0, 0, 0, 1]][
            seed // 8 % 4
        ]
    )
    return problem, rng.choice(values, batch + problem.input_plane, p=odds / odds.sum()).astype(dtype.numpy)


def volume(rng: np.random.Generator) -> list[Axis]:
    lengths = [int(rng.choice([5, 7, 9, 13, 17])) for _ in range(3)]
    if rng.integers(3) == 0:
        return [Axis(n, int(rng.integers(1, n + 1))) for n in lengths]
    found = []
    for n in lengths:
        k, s = int(rng.integers(1, 8)), int(rng.integers(1, 4))
        p = int(rng.integers(0, k // 2 + 1))
        outputs = strided_outputs(n, k, s, p, bool(rng.integers(2)))
        found.append(Axis(n, outputs, k, s, p) if outputs > 0 else Axis(n, 1, n, n))
    return found


def tall(rng: np.random.Generator, axis: Axis) -> Axis:
    """Windows of more rows than registers hold."""
    k = int(rng.integers(4, 14))
    s, p = int(rng.integers(1, k + 2)), int(rng.integers(0, k // 2 + 1))
    outputs = (axis.length + 2 * p - k) // s + 1
    return Axis(axis.length, outputs, k, s, p) if outputs > 0 else axis


def prod_outputs(axes: tuple[Axis, ...]) -> int:
    return int(np.prod([axis.outputs for axis in axes]))


def main() -> None:
    sweep(ForwardChecker(launches), sweep_arguments().parse_args())


if __name__ == "__main__":
    main()
