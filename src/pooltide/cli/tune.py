"""`pooltide tune`: measures the GPU kernels that can compute problems, and keeps the fastest of each."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import click

from .arguments import NOTATION, GradientProblems
from .output import NoAnswer, aligned, say, tracked


@click.command(epilog=NOTATION)
@click.argument("problems", metavar="PROBLEM", type=GradientProblems())
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object for each problem instead of a table."
)
def command(problems: Any, as_json: bool) -> None:
    """Measure every GPU kernel that can compute a problem, and use the fastest from now on.

    The choice is kept beside the compiled kernels, for this kind of GPU. It changes no bit of any result.
    Exit status 1: the kernels gave different bits.
    """
    if find_spec("torch") is None:
        raise NoAnswer("tune needs PyTorch, which is not installed: pip install torch")
    import torch

    if not torch.cuda.is_available():
        raise NoAnswer("tune needs an NVIDIA GPU that PyTorch sees, and there is none")
    from ..kernels.cuda.choice import refuse
    from ..kernels.cuda.runtime.driver import device_facts
    from ..kernels.cuda.task import Task
    from ..kernels.cuda.tuning import tune
    from .bench.cpu_gradients import problem_to_time

    device = torch.cuda.current_device()
    cases, tasks = [], []
    for line in problems:
        if (case := line.case) is None:
            raise NoAnswer(line.error)
        cases.append(case)
        layout = "channels_last" if case.channels_last else "planes"
        tasks.append(Task(problem_to_time(case), layout, device_facts(device)))
        if reason := refuse(tasks[-1].problem, layout):
            raise NoAnswer(f"{case}: {reason}")
    measured = list(tracked((tune(task, device) for task in tasks), len(tasks)))
    if as_json:
        for case, one in zip(cases, measured, strict=True):
            facts = {"chosen": one.chosen, "fastest": one.fastest, "wrong": one.wrong, "seconds": one.seconds}
            say(json.dumps({"case": str(case)} | facts))
    else:
        rows = [
            (f"{one.regret:.2f}", one.chosen, one.fastest, str(case))
            for case, one in zip(cases, measured, strict=True)
        ]
        say(aligned(("gain", "before", "now", "case"), rows))
    raise SystemExit(any(one.wrong for one in measured))
