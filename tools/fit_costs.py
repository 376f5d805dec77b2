#!/usr/bin/env python3
"""Fits the coefficients of src/pooltide/kernels/cuda/costs.json to measured times of candidates.

    pooltide bench --regret 500 --seed N --device cuda --json > docs/measured/DEVICE-regret.json
    python tools/fit_costs.py docs/measured/DEVICE-regret.json

Each kernel's coefficients are those with the least error of log(estimated ÷ measured time). Prints, for each
kernel, the error that is left, and the regret of the choice on problems that a fit has not seen: each tenth
of the problems is judged by coefficients that are fitted to the other nine.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from pooltide.acceptance.notation import parse
from pooltide.acceptance.trial import problem_of
from pooltide.cli.bench.forward_pools import problems_of
from pooltide.kernels.cuda import choice, cost
from pooltide.kernels.cuda.runtime.driver import H200
from pooltide.kernels.cuda.task import Launch, Task

FILE = Path(__file__).parent.parent / "src/pooltide/kernels/cuda/costs.json"
START, WIDTH = 0.0, 0.1  # log of every coefficient before the fit; errors beyond WIDTH count less
RIDGE = 0.0005  # weight of a coefficient that moves away from START
HOPELESS, HOPELESS_WEIGHT = 2.5, 0.3  # candidates that much slower than the fastest need less care
BOUNDS = {"memory": (log(0.95), log(2.0)), "lanes that wait": (log(1.0), log(3.0))}
OTHERS = ("launch", "memory", "waiting", "memory_waiting")
FOLDS = 10
MIN_TIMES = 20  # of a kernel in a layout; if there are fewer, both layouts share coefficients


@dataclass(frozen=True)
class Timed:
    """A candidate of problem number `problem` with its measured time."""

    problem: int
    kind: str
    kernel: tuple[str, str]  # layout and name
    features: cost.Features
    seconds: float
    weight: float


def read(files: Iterable[Path]) -> list[Timed]:
    records = [json.loads(file.read_text("utf-8")) for file in files]
    rows = [row | {"work": record.get("work", {})} for record in records for row in record["rows"]]
    found = []
    for number, row in enumerate(rows):
        case = parse(row["case"])
        gradient = problem_of(case)
        problem = {str(one): one for one in (gradient, *problems_of(gradient))}[row["problem"]]
        layout = "channels_last" if case.channels_last else "planes"
        task = Task(problem, layout, H200)
        best = min(row["seconds"].values())
        for name, seconds in row["seconds"].items():
            if launch := _launch(task, name, row):
                weight = HOPELESS_WEIGHT if seconds > HOPELESS * best else 1.0
                kernel, features = (layout, cost.family(name)), cost.features(task, launch)
                found.append(Timed(number, problem.kind, kernel, features, seconds, weight))
    times = Counter(one.kernel for one in found)
    return [replace(one, kernel=_fitted_as(*one.kernel, times)) for one in found]


def _launch(task: Task, name: str, row: dict[str, Any]) -> Launch | cost.Shape | None:
    """What was timed: as recorded, or, if it is a forward or an older record, as planned now."""
    if task.problem.gradient and "launches" in row:
        grid, block, shared, registers, *work = row["launches"][name]
        names = row["work"][cost.family(name)]
        return cost.Shape(grid, block, shared, registers, tuple(zip(names, work, strict=True)))
    planned = dict(choice.KERNELS[task.problem.kind])[name](task)
    return None if isinstance(planned, str) else planned[0]


def _fitted_as(layout: str, name: str, times: Counter[tuple[str, str]]) -> tuple[str, str]:
    """The layout and name under which a kernel's coefficients are kept."""
    if times[layout, name] >= MIN_TIMES:
        return layout, name
    return max(((one, name) for one in sorted(choice.LAYOUTS)), key=times.__getitem__)


def stack(timed: list[Timed]) -> cost.Features:
    names = timed[0].features.work
    return cost.Features(
        np.array([one.features.memory for one in timed]),
        {name: np.array([one.features.work[name] for one in timed]) for name in names},
        np.array([one.features.warps for one in timed]),
        np.array([one.features.threads for one in timed]),
    )


def fit(timed: list[Timed]) -> cost.Coefficients:
    """Levenberg and Marquardt's method on the logs of the coefficients, with weights for outliers."""
    features = stack(timed)
    names = [*OTHERS, *features.work]
    measured = np.log([one.seconds for one in timed])
    weights = np.array([one.weight for one in timed])
    low = np.array([BOUNDS.get(name, (-5.0, 8.0))[0] for name in names])
    high = np.array([BOUNDS.get(name, (-5.0, 8.0))[1] for name in names])
    at, damping = np.clip(np.full(len(names), START), low, high), 1e-2

    def errors(at: Any) -> Any:
        return (np.log(coefficients(names, at).seconds(features)) - measured) * weights

    def loss(e: Any, at: Any) -> float:
        return float(
            (np.sqrt(1 + (e / WIDTH) ** 2) - 1).sum() * 2 * WIDTH**2 + RIDGE * ((at - START) ** 2).sum()
        )

    e = errors(at)
    for _ in range(200):
        slope = np.stack([(errors(at + step) - e) / 1e-4 for step in np.eye(len(names)) * 1e-4], axis=1)
        robust = (1 / np.sqrt(1 + (e / WIDTH) ** 2))[:, None]
        normal = slope.T @ (robust * slope) + RIDGE * np.eye(len(names))
        pull = slope.T @ (robust[:, 0] * e) + RIDGE * (at - START)
        moved = np.clip(at - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), pull), low, high)
        new = errors(moved)
        gain = loss(e, at) - loss(new, moved)
        if gain > 0:
            at, e, damping = moved, new, max(damping / 3, 1e-9)
        else:
            damping *= 5
        if damping > 1e6 or 0 < gain < 1e-7:
            break
    return coefficients(names, at)


def coefficients(names: list[str], logs: Any) -> cost.Coefficients:
    values = dict(zip(names, np.exp(logs).tolist(), strict=True))
    rest = {name: values.pop(name) for name in OTHERS}
    return cost.Coefficients(work=values, **rest)


def fit_all(timed: list[Timed]) -> dict[tuple[str, str], cost.Coefficients]:
    kernels = defaultdict(list)
    for one in timed:
        kernels[one.kernel].append(one)
    return {name: fit(of_kernel) for name, of_kernel in kernels.items()}


def regrets(timed: list[Timed], fitted: dict[tuple[str, str], cost.Coefficients]) -> dict[int, float]:
    problems = defaultdict(list)
    for one in timed:
        problems[one.problem].append(one)
    found = {}
    for number, candidates in problems.items():
        chosen = min(candidates, key=lambda one: float(fitted[one.kernel].seconds(one.features)))
        found[number] = chosen.seconds / min(one.seconds for one in candidates)
    return found


def judged(timed: list[Timed]) -> dict[str, float]:
    """The regret on problems that the fit has not seen."""
    values: list[float] = []
    for fold in range(FOLDS):
        seen = [one for one in timed if one.problem % FOLDS != fold]
        unseen = [one for one in timed if one.problem % FOLDS == fold]
        values += regrets(unseen, fit_all(seen)).values()
    values.sort()
    mean = exp(sum(map(log, values)) / len(values))
    figures = {"mean": mean, "p90": values[int(0.9 * len(values))], "worst": values[-1]}
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", nargs="+", type=Path)
    files = parser.parse_args().records
    timed = read(files)
    fitted = fit_all(timed)
    regret = {kind: judged([one for one in timed if one.kind == kind]) for kind in choice.KERNELS}
    costs: dict[str, dict[str, Any]] = {"planes": {}, "channels_last": {}}
    for (layout, name), of_kernel in fitted.items():
        ours = [one for one in timed if one.kernel == (layout, name)]
        left = np.log(of_kernel.seconds(stack(ours)) / np.array([one.seconds for one in ours]))
        print(f"{name}, {layout}: {len(ours)} times, standard error of log {left.std():.2f}")
        work = {part: float(f"{value:.3g}") for part, value in of_kernel.work.items()}
        others = {part: float(f"{getattr(of_kernel, part):.3g}") for part in OTHERS}
        costs[layout][name] = others | {"work": work}
    for kind, figures in regret.items():
        print(f"{kind}: regret on unseen problems {figures}")
    about = {"device": "NVIDIA H200", "fitted": str(date.today()), "records": [file.name for file in files]}
    text = json.dumps(about | {"regret on unseen problems": regret} | costs, indent=1)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
