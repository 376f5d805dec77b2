"""GPU kernels on the host with the constants of their planners opened wide: halved, doubled, eightfold.

    python tests/support/simt_wide.py FIRST END SHARE [--known]

plans the random problems of some seeds, each with SHARE constants changed, one at a time, and compares the
bits of every launch that differs from the usual one. --known: only of kernels that the usual constants compile,
so that little must be compiled. tests/cuda/test_simt_wide.py starts it with AddressSanitizer loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from random import Random

import simt_forwards
import simt_problems
from pooltide.kernels.cuda.choice import KERNELS, candidate
from pooltide.kernels.cuda.cost import family
from pooltide.kernels.cuda.task import Launch, Task
from pooltide.problem.problem import Problem
from tunables import FACTORS, opened, tunables

# The general kernels are not planned, but the same for all problems.
CHANGES = [
    (tunable, factor)
    for tunable, factor in product(tunables(), FACTORS)
    if not tunable.module.__name__.endswith((".general", ".cost"))
]
Planned = list[tuple[str, tuple[Launch, ...]]]
Numbers = list[tuple[str, int, int, int, str, list[bytes]]]


def numbers(launches: tuple[Launch, ...]) -> str:
    """All that a launch gives to a kernel."""
    return repr(
        [
            (one.source, one.grid, one.block, one.shared, one.arguments, [t.tobytes() for t in one.tables])
            for one in launches
        ]
    )


class Opened:
    """Plans a problem with changed constants; returns the launches that differ from each other."""

    def __init__(self, usual: Callable[[Problem, str, bool], Planned], share: int, known: bool) -> None:
        self.usual, self.share, self.known = usual, share, known
        self.random = Random(1)

    def __call__(self, problem: Problem, layout: str, small: bool) -> Planned:
        usual = self.usual(problem, layout, small)
        seen = {numbers(launches) for _, launches in usual}
        sources = {launch.source for _, launches in usual for launch in launches}
        facts = simt_problems.SMALL if small else simt_forwards.SMALL
        found: Planned = []
        for tunable, factor in self.random.sample(CHANGES, self.share):
            with opened(tunable, factor):
                task = Task(problem, layout, facts, aligned=not small)
                for name, planner in KERNELS.get(problem.kind, ()):
                    launches = candidate(task, planner)
                    if isinstance(launches, str) or (key := numbers(launches)) in seen:
                        continue
                    if self.known and not {launch.source for launch in launches} <= sources:
                        continue
                    seen.add(key)
                    where = tunable.module.__name__.rpartition(".")[2]
                    found.append((f"{family(name)}, {where}.{tunable.name} × {factor}", launches))
        return found


def main(first: str, end: str, share: str, known: str = "") -> None:
    runs, names = 0, set[str]()
    for checker_of, usual in (
        (simt_problems.GradientChecker, simt_problems.launches),
        (simt_forwards.ForwardChecker, simt_forwards.launches),
    ):
        checker = checker_of(Opened(usual, int(share), bool(known)))
        for seed in range(int(first), int(end)):
            checker.random(seed)
        checker.run(1)
        runs += checker.runs
        names |= {name.partition(", ")[0] for name in checker.names}
    print(f"{runs} runs, {len(names)} kernels: {', '.join(sorted(names))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
