"""`pooltide bench --regret`: times every kernel that can compute drawn problems, to judge the choice.

Regret is the time of the chosen kernel ÷ the time of the fastest one, other tiles of all kernels included.
The results of all kernels are compared bit by bit; a difference is a bug, and gives the exit status 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...problem.problem import Problem
from ..output import aligned, say, tracked
from .drawn_problems import p90, problems_of
from .precompile import precompile
from .printing import geometric_mean, in_words, machine_of, number
from .sampling import DrawnProblem, Sampling, draw_problems

if TYPE_CHECKING:
    from ...kernels.cuda.task import Launch
    from ...kernels.cuda.tuning import Candidates

LISTED = 10  # problems with the largest regret
TILES = 4  # other tiles of each kernel that are tried, at most


@dataclass(frozen=True, slots=True)
class Row:
    drawn: DrawnProblem
    problem: Problem
    measured: Candidates


def run_regret(sampling: Sampling, rounds: int, as_json: bool) -> int:
    """Draws problems, measures their kernels, and prints the regret. Returns the exit status."""
    drawn = draw_problems(sampling)
    rows = [row for rows in tracked(_measure(drawn, rounds), len(drawn)) for row in rows]
    about = asdict(sampling) | machine_of("cuda") | {"rounds": rounds}
    if as_json:
        say(json.dumps(about | {"work": _work_of(rows), "rows": [_record(row) for row in rows]}))
    else:
        _print(rows, in_words(about))
    for row in rows:
        for kernel in row.measured.wrong:
            say(
                f"{row.drawn.case}: the bits of {kernel} differ from those of {row.measured.chosen}", err=True
            )
    return int(any(row.measured.wrong for row in rows))


def _measure(problems: list[DrawnProblem], rounds: int) -> Iterator[list[Row]]:
    import torch

    from ...kernels.cuda.task import Task
    from ...kernels.cuda.tuning import measure
    from . import cuda_timing

    facts, device = cuda_timing.current_facts(), torch.cuda.current_device()
    precompile([pair for drawn in problems for pair in problems_of(drawn)], facts, True, TILES)
    for drawn in problems:
        tasks = dict.fromkeys(Task(problem, layout, facts) for problem, layout in problems_of(drawn))
        yield [Row(drawn, task.problem, measure(task, device, rounds, TILES)) for task in tasks]


def _record(row: Row) -> dict[str, Any]:
    seconds = {name: float(f"{value:.4g}") for name, value in row.measured.seconds.items()}
    return {
        "case": str(row.drawn.case),
        "problem": str(row.problem),
        "chosen": row.measured.chosen,
        "seconds": seconds,
        "launches": {name: _numbers(launch) for name, launch in row.measured.launches.items() if launch.work},
    }


def _numbers(launch: Launch) -> list[float]:
    """What an estimate takes of a launch (kernels/cuda/cost.py); `_work_of` names those after the fourth."""
    sizes = [float(getattr(launch, name)) for name in ("grid", "block", "shared", "registers")]
    numbers = [float(f"{number:.3g}") for _, number in launch.work]
    return [int(number) if number.is_integer() else number for number in (*sizes, *numbers)]


def _work_of(rows: list[Row]) -> dict[str, list[str]]:
    """The names of the work of each kernel."""
    launches = [one for row in rows for one in row.measured.launches.items() if one[1].work]
    return {name.partition(", ")[0]: [part for part, _ in launch.work] for name, launch in launches}


def _print(rows: list[Row], about: str) -> None:
    say(f"{about}\n")
    by_kernel: dict[str, list[Row]] = {}
    for row in rows:
        by_kernel.setdefault(row.measured.chosen, []).append(row)
    groups = {**dict(sorted(by_kernel.items())), "all": rows}
    head = ["chosen kernel", "n", "regret: mean", "p90", "worst"]
    say(aligned(head, [[name, *_figures(group)] for name, group in groups.items()]))
    worst = sorted(rows, key=lambda row: -row.measured.regret)[:LISTED]
    say(f"\nthe {len(worst)} largest\n")
    cells = [
        [number(row.measured.regret), row.measured.chosen, row.measured.fastest, str(row.drawn.case)]
        for row in worst
    ]
    say(aligned(["regret", "chosen", "fastest", "case"], cells))


def _figures(rows: list[Row]) -> list[str]:
    regrets: list[float] = [row.measured.regret for row in rows]
    return [str(len(rows)), number(geometric_mean([*regrets])), number(p90(regrets)), number(max(regrets))]
