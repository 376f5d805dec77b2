"""Counts which faults each standard catches, and how often it fails right results.

A fault of each kind in turn is put into the right result of a drawn case (faults.py); one that changes no bit
is no fault, and another case is drawn. Right results are sums in another order, and sums of float16 and
bfloat16 that are kept in their dtype. The third result, for the standards that need one, is a sum in float32
in another order. The same seed gives the same faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import numpy as np

from .faults import FAULTS, Random, Result, Sample, summed
from .inputs import draw
from .measures import Measures, index_measures, measure, precision_of
from .notation import parse
from .oracle import golden_result
from .trial import Refused, windows_of
from .verdicts import STANDARDS, judge
from .words import joined, short_names

RIGHT = ("sums in float16 or bfloat16", "other orders of addition")
_MAX_TRIES = 1000
_SIDES = {1: (20, 200), 2: (5, 30), 3: (3, 10)}  # by the number of axes


@dataclass(frozen=True, slots=True)
class Trial:
    """One result: a fault, or a right result; and the standards that passed it."""

    kind: str  # of FAULTS, or of RIGHT
    case: str
    passed: frozenset[str]


@dataclass(slots=True)
class Tally:
    """How many results of each kind there were, and how many of them each standard passed."""

    counts: Counter[str] = field(default_factory=Counter)
    passed: Counter[tuple[str, str]] = field(default_factory=Counter)  # by standard and kind

    def add(self, trial: Trial) -> None:
        self.counts[trial.kind] += 1
        self.passed.update((standard, trial.kind) for standard in trial.passed)

    def missed(self, standard: str, kind: str) -> int:
        return self.passed[standard, kind]

    def caught(self, standard: str, kind: str) -> int:
        return self.counts[kind] - self.passed[standard, kind]

    def total(self, count: Callable[[str, str], int], standard: str) -> int:
        """The sum of `caught` or `missed` over all kinds of faults."""
        return sum(count(standard, kind) for kind in FAULTS)


def trials(faults: int, seed: int) -> Iterator[Trial]:
    """As many faults, the kinds in turn, and for every four of them a right result of each kind."""
    random = np.random.Generator(np.random.PCG64(seed))
    kinds = islice(cycle(FAULTS), faults)
    for number, kind in enumerate(kinds):
        yield _trial(kind, random, _fault)
        if number % 4 == 3:
            for right in RIGHT:
                yield _trial(right, random, _right)


def _trial(kind: str, random: Random, make: Callable[[Sample, str, Random], Result | None]) -> Trial:
    """The trial of the first drawn sample that has a result of this kind."""
    for _ in range(_MAX_TRIES):
        sample = _draw(random, kind)
        if sample is not None and (result := make(sample, kind, random)) is not None:
            return Trial(kind, str(sample.case), _passed(sample, result, random))
    raise AssertionError(f"no case has a result of the kind {kind}")


def _fault(sample: Sample, kind: str, random: Random) -> Result | None:
    """A wrong result; None: the sample can't have the fault, or the fault changes no bit of it."""
    result = FAULTS[kind](sample, random)
    if result is None:
        return None
    measures = _measured(sample, *result)
    return result if measures.differing or measures.wrong_indices else None


def _right(sample: Sample, kind: str, random: Random) -> Result | None:
    if kind == RIGHT[0]:
        narrow = sample.problem.dtype.itemsize == 2
        return summed(sample, sample.problem.dtype.numpy, None) if narrow else None
    return summed(sample, sample.problem.dtype.accumulator, random)


def _passed(sample: Sample, result: Result, random: Random) -> frozenset[str]:
    """The standards that pass the result."""
    precision = precision_of(sample.problem.dtype, sample.problem.rounding)
    third = summed(sample, sample.problem.dtype.accumulator, random)
    third_values = sample.golden.rounded if third is None else third[0]
    verdicts = judge(
        _measured(sample, *result),
        precision,
        measure(third_values.reshape(-1), sample.golden.values.reshape(-1), precision),
    )
    return frozenset(verdict.name for verdict in verdicts if verdict.passed)


def _measured(sample: Sample, values: Any, indices: Any) -> Measures:
    precision = precision_of(sample.problem.dtype, sample.problem.rounding)
    measures = measure(values.reshape(-1), sample.golden.values.reshape(-1), precision)
    if sample.golden.indices is None or indices is None:
        return measures
    return measures + index_measures(indices, sample.golden.indices)


def _draw(random: Random, kind: str) -> Sample | None:
    """A drawn case with its right result; None: the drawn case is none."""
    case = parse(":".join(_words(random, kind)))
    try:
        problem = windows_of(case, "a fault")
    except Refused:
        return None
    source, indices = draw(problem, case.data)
    return Sample(case, problem, source, indices, golden_result(problem, source, indices))


def _words(random: Random, kind: str) -> Iterator[str]:
    """The words of a case: distinct sides where they can be, small planes, several images and channels."""
    tie = kind == "index tie"
    pools = [op for op in short_names().values() if op.windows in ("strided", "adaptive")]
    pools = [op for op in pools if op.kind == "maximum" or not tie]
    pool = pools[random.integers(len(pools))]
    axes = len(pool.axes)
    sides = tuple(int(random.integers(*_SIDES[axes])) for _ in range(axes))
    yield pool.short
    yield joined((int(random.integers(1, 5)), int(random.integers(1, 9)), *sides))
    if pool.windows == "adaptive":
        yield f"o{joined(tuple(int(random.integers(1, side + 1)) for side in sides))}"
    else:
        kernel = tuple(int(random.integers(2, 1 + min(side, 5))) for side in sides)
        yield f"k{joined(kernel)}"
        yield f"s{joined(tuple(int(random.integers(1, k + 1)) for k in kernel))}"
        yield f"p{joined(tuple(int(random.integers(0, k // 2 + 1)) for k in kernel))}"
        yield from ["ceil"] if random.integers(2) else []
        yield from ["nopad"] if random.integers(2) and pool.average else []
    yield _one(random, "f32", "f16", "bf16")
    yield from [] if pool.average else ["i64"]
    yield "integers" if tie else _one(random, "normal", "uniform", "wide")
    yield from ["nan"] if kind == "NaN routing" else []
    yield f"seed{random.integers(1, 2**31)}"


def _one(random: Random, *choices: str) -> str:
    return choices[random.integers(len(choices))]


def tables(tally: Tally) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of two tables: the counts of each standard, and what each standard caught of each kind."""
    standards = [
        [name, str(tally.total(tally.caught, name)), str(tally.total(tally.missed, name))]
        + [str(tally.caught(name, right)) for right in RIGHT]
        for name in STANDARDS
    ]
    kinds = [
        [kind, str(tally.counts[kind]), *(str(tally.caught(name, kind)) for name in STANDARDS)]
        for kind in FAULTS
    ]
    return standards, kinds
