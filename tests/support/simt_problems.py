"""The GPU kernels on the host, over enumerated geometries: every kernel that takes a problem, bit by bit.

    python tests/support/simt_problems.py [--share AT N] [--only KIND] [--random FIRST END] [--corners] [--add LINE]

runs every N-th geometry from the AT-th on (none if N is 0), then the random problems of some seeds, with indices
that name cells outside their windows or planes, then the corners. LINE is added to device.h, to break the kernels. tests/cuda/test_simt_problems.py
starts this program with AddressSanitizer loaded.
"""

from __future__ import annotations

from math import inf, prod
from random import Random
from typing import Any

import numpy as np

from cuda_problems import H200, changed, expected, own_indices, random_task, spoil, strided, tiny_bands
from enumeration import bits, difference
from geometries import flat, maxima_gradient
from pooltide.geometry import UNIT, Axis
from pooltide.kernels.cuda.choice import KERNELS, candidate
from pooltide.kernels.cuda.cost import exploring, family
from pooltide.kernels.cuda.maximum_gradient import ordered
from pooltide.kernels.cuda.runtime.driver import DeviceFacts
from pooltide.kernels.cuda.source import headers
from pooltide.kernels.cuda.task import Launch, Task
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem
from simt_sweep import Collector, sweep, sweep_arguments

COMPARED = "scatter that compares lanes"  # a way of several kernels, which problems must reach, too
SMALL = DeviceFacts(90, 1, 8 << 10, 16 << 10, 2048, 65536, 1 << 20, 1_980_000)


def launches(
    problem: Problem, layout: str, small: bool, facts: DeviceFacts = H200
) -> list[tuple[str, tuple[Launch, ...]]]:
    """The launches of every kernel that takes the problem. `small`: as if bands and tiles were tiny.

    Tiles are drawn, so that slow ones are tried, too.
    """
    # However many lanes must be compared, so that more problems reach this way of a scatter.
    tiles = tiny_bands(48, 4 * 32 * 4) if small else exploring(Random(problem.cells), inf)
    with changed(ordered, COMPARED=31), tiles:
        task = Task(problem, layout, SMALL if small else facts, aligned=not small)
        planned = [
            (family(name), candidate(task, planner)) for name, planner in KERNELS.get(problem.kind, ())
        ]
    return [(name, found) for name, found in planned if not isinstance(found, str)]


def compares_lanes(found: tuple[Launch, ...]) -> bool:
    """Whether a scatter finds equal cells by comparing lanes (NEAR of ordered.h)."""
    return any(dict(launch.source.defines).get("NEAR") for launch in found)


class GradientChecker(Collector):
    def gradient(self, problem: Problem, grad: Any, indices: Any, want: Any) -> None:
        self.problems.append((problem, "planes", grad, indices, want, None))
        self.problems.append((problem, "channels_last", grad, indices, want, None))

    def random(self, seed: int) -> None:
        problem, layout, grad, indices = random_task(seed)
        self.problems.append((problem, layout, grad, indices, *expected(problem, grad, indices)))

    def corners(self) -> None:
        """Problems that geometries and seeds do not have.

        Divisors whose product is rounded; windows without a cell; one slice of cells, several of windows, where
        some indices name cells of other windows.
        """
        huge = tuple(strided(5, k, 3, k // 2, ceil=True) for k in (6001, 6003, 6005))
        empty = UNIT, Axis(4, 7, 2, 1), strided(6, 3, 1, 1)
        for axes, batch in ((huge, (2, 3)), (empty, (12, 4))):
            quotient = "extent" if axes == huge else "override"
            problem = Problem("average_gradient", batch, axes, DTYPES["FLOAT32"], quotient, 3)
            grad = np.random.default_rng(3).standard_normal(problem.batch + problem.output_plane)
            given = problem, "planes", grad.astype(np.float32), None
            self.problems += [(*given, *expected(problem, given[2], None))] * 4  # as usual, and as if small
        for axes in ((Axis(1, 3), Axis(19, 12), Axis(19, 12)), (Axis(1, 2), Axis(24, 12), Axis(19, 12))):
            rng = np.random.default_rng(3)
            problem = maxima_gradient((2, 2), axes, DTYPES["FLOAT32"], DTYPES["INT64"])
            grad = rng.standard_normal(problem.batch + problem.output_plane).astype(np.float32)
            for kind in ("none", "foreign"):
                indices = own_indices(problem, rng)
                spoil(indices, prod(problem.input_plane), rng, kind)
                given = problem, "planes", grad, indices
                self.problems += [
                    (*given, *expected(problem, grad, indices))
                ] * 4  # as usual, and as if small

    def one(self, label: str, found: tuple[Launch, ...], *given: Any) -> None:
        problem, layout, grad, indices, want, fault = given
        self.names |= {COMPARED} if compares_lanes(found) else set()
        dtype = problem.dtype.numpy
        out = np.full(want.size, np.nan, dtype)
        faults = np.array([0, 2**63 - 1], np.uint64)
        counts = np.full(max(found[0].counts, 1), -1, np.int32)
        tensors: list[Any] = [flat(grad.astype(dtype), layout)]
        if indices is not None:
            tensors.append(flat(indices, layout))
        tensors.append(out)
        if indices is not None:
            tensors += [faults, counts]
        self.run_launches(label, found, tensors)
        right = flat(want.astype(dtype), layout)
        assert (bits(out) == bits(right)).all(), f"{label}: {difference(out, right)}"
        counted = [0, 2**63 - 1] if fault is None else [fault.number, fault.position]
        assert faults.tolist() == counted, f"{label}: counted {faults.tolist()}, must be {counted}"


def main() -> None:
    parser = sweep_arguments()
    parser.add_argument("--add", default="", metavar="LINE")
    args = parser.parse_args()
    texts = headers()
    changed = texts | {"device.h": f"{texts['device.h']}\n{args.add}\n"} if args.add else None
    sweep(GradientChecker(launches, changed), args)


if __name__ == "__main__":
    main()
