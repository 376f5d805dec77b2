"""What the programs that run GPU kernels on the host share: their arguments, and a checker that collects problems."""

from __future__ import annotations

import argparse
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import simt
from enumeration import Checker, geometries
from pooltide.kernels.cuda.task import Launch
from pooltide.problem.problem import Problem

# The launches of every kernel that takes a problem; True: plan as if the limits of kernels were tiny.
Planner = Callable[[Problem, str, bool], list[tuple[str, tuple[Launch, ...]]]]


class Collector(Checker):
    """Collects the problems first, so that one compilation serves all of them; then runs them."""

    def __init__(self, launches: Planner, texts: dict[str, str] | None = None) -> None:
        super().__init__()
        self.launches, self.texts = launches, texts  # `texts` instead of the files of device/
        self.problems: list[tuple[Any, ...]] = []  # a problem, its layout, and what `one` takes after them
        self.names: set[str] = set()

    def forward(self, problem: Problem, x: Any, values: Any, places: Any) -> None:
        pass

    def gradient(self, problem: Problem, grad: Any, indices: Any, want: Any) -> None:
        pass

    def paths(self, prepared: Any, given: Any, want: Any, places: Any, layout: str) -> None:
        raise NotImplementedError

    @abstractmethod
    def random(self, seed: int) -> None:
        """Collect the random problem of this seed."""

    def corners(self) -> None:
        """Collect problems that geometries and seeds do not have."""

    @abstractmethod
    def one(self, label: str, found: tuple[Launch, ...], *given: Any) -> None:
        """Run a kernel and compare its results; `given` is one of `problems`."""

    def run(self, seed: int) -> None:
        planned = [
            (name, found, given)
            for number, given in enumerate(self.problems)
            for name, found in self.launches(*given[:2], number // 2 % 2 == 0)
        ]
        simt.build((launch.source for _, found, _ in planned for launch in found), self.texts)
        for name, found, given in planned:
            self.names.add(name)
            self.seed, label = seed + self.runs, "{}: {} {}".format(name, *given)
            self.one(label, found, *given)
            self.runs += 1

    def run_launches(self, label: str, found: tuple[Launch, ...], tensors: list[Any]) -> None:
        for launch in found:
            simt.run(
                launch.source, launch.grid, launch.block, launch.shared, launch.arguments,
                [*tensors, *launch.tables], seed=self.seed, label=label, texts=self.texts,
            )  # fmt: skip


def sweep_arguments() -> argparse.ArgumentParser:
    """What the programs that run kernels on the host take."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", nargs=2, type=int, default=(0, 4001), metavar=("AT", "N"))
    parser.add_argument("--only", default="")
    parser.add_argument("--corners", action="store_true")
    parser.add_argument("--random", nargs=2, type=int, default=[], action="append", metavar=("FIRST", "END"))
    parser.add_argument("--seed", type=int, default=1)
    return parser


def sweep(checker: Collector, args: argparse.Namespace) -> None:
    """Run the geometries, random problems and corners of the arguments; print how many, and which kernels they reached."""
    count = 0
    for number, geometry in geometries(tuple(args.share), args.only) if args.share[1] else ():
        checker.check(number, geometry)
        count += 1
    for seed in (seed for ends in args.random for seed in range(*ends)):
        checker.random(seed)
    if args.corners:
        checker.corners()
    checker.run(args.seed)
    print(f"{count} geometries, {checker.runs} runs, kernels: {', '.join(sorted(checker.names))}")
