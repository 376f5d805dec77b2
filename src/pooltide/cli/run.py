"""`pooltide run`: computes cases, compares the results with the float64 reference, and takes the time.

With --plan it only prints which kernel would compute each case, and why not the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..acceptance.cases import Line
from ..acceptance.gpu_plan import GpuPlan, gpu_plan
from ..acceptance.inputs import TooLarge, result_plane
from ..acceptance.notation import Case
from ..acceptance.tensorfile import npy_header, raw_bytes
from ..acceptance.trial import Refused, Trial, defect, plan_of, run
from ..acceptance.verdicts import THIRD
from ..kernels.plan import BACKENDS, Executable, NoBackend
from ..operators.pages import HOST
from ..problem.regions import RegionProblem
from ..writing import why, write_own
from . import reports, verdict_lines
from .arguments import NOTATION, OutputPath, failed, problem_argument, product_option, refuse_overwriting
from .output import NoAnswer, one_line, reproduce, say

if TYPE_CHECKING:
    from ..acceptance.errormap import ErrorMap
    from ..acceptance.report_page import Fact
    from ..acceptance.report_rows import Entry

_INDICES = ".indices"  # added to the name of a case, for the file of its indices
_COLUMNS = ("backend", "ms", *reports.COLUMNS)
Outcome = Trial | Executable | GpuPlan | str  # str: why the case has neither


@click.command(epilog=NOTATION)
@problem_argument
@product_option
@click.option("--backend", type=click.Choice(list(BACKENDS)), help="Instead of the first that can do it.")
@click.option("--repeat", type=click.IntRange(1, 1_000_000), default=1, help="Runs; the best time counts.")
@click.option("--plan", "plan_only", is_flag=True, help="Print the plan and compute nothing.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="With --plan: the device of the plan."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per case.")
@click.option("--save", type=OutputPath(file_okay=False), help="Keep each result as SAVE/NAME.npy.")
@verdict_lines.standard_option
@verdict_lines.verbose_option
@verdict_lines.language_option
@reports.report_option
def command(
    problems: list[Line],
    product: str | None,
    backend: str | None,
    repeat: int,
    plan_only: bool,
    device: str,
    as_json: bool,
    save: Path | None,
    standard: str,
    verbose: bool,
    report: Path | None,
) -> None:
    """Compute a case from its seed; print the verdict on it and the time.

    Without a product the case is a call of this library's functions. With -v also the plan (the backend, its
    kernel, why not the kernels before it, the copies, the scratch buffer) and all verdicts.
    Exit status 2 when a case was refused or could not be computed, else 1 when a verdict failed.
    """
    if standard in THIRD:
        raise click.UsageError(
            f"--standard {standard} needs a third result; pooltide compare --third gives it"
        )
    if plan_only and (save or report):
        raise click.UsageError("--plan computes nothing; --save and --report need a result")
    if device == "cuda" and (backend or not plan_only):
        raise click.UsageError("--device cuda needs --plan, and no --backend")
    if save:
        _refuse_one_file_for_two(problems)
        for file in (save / f"{line.name}{end}.npy" for line in problems for end in ("", _INDICES)):
            refuse_overwriting(file, True, "--save", click.get_current_context())
    how = plan_of if plan_only else partial(run, repeat=repeat)
    compute = partial(gpu_plan if device == "cuda" else partial(how, backend=backend), product=product)
    options = [*_option("--product", product), *_option("--backend", backend)]
    options += ["--plan"] if plan_only else []
    options += ["--device", device] if device == "cuda" else []
    alone = len(problems) == 1
    tally = verdict_lines.Tally()
    rows = reports.collected(report)
    for line in problems:
        outcome = _outcome(line, compute)
        verdict = outcome.verdict(standard) if isinstance(outcome, Trial) else None
        if not isinstance(outcome, Executable | GpuPlan):
            tally.add(verdict)
        if as_json:
            say(json.dumps(_record(line, outcome, standard), ensure_ascii=False))
        else:
            lines = _text(line, outcome, standard, alone=alone, verbose=verbose)
            good = isinstance(outcome, Executable | GpuPlan) or (verdict is not None and verdict.passed)
            lines += [] if good or line.case is None else [reproduce("run", line.case, *options)]
            say("\n".join(lines), err=isinstance(outcome, str))
        if isinstance(outcome, Trial):
            _save(save, line.name, outcome)
        elif save and (save / f"{line.name}.npy").exists():
            say(f"{save / line.name}.npy is an older result, and stays: this run has none", err=True)
        if rows is not None:
            rows.add(_entry(line, outcome, standard, options))
    if as_json and not plan_only:
        say(json.dumps({"summary": tally.record(standard)}))
    elif not plan_only:
        say(tally.summary(standard))
    compared = ("our results with the float64 reference", "本库的结果与 float64 参考结果")
    facts: dict[str, Fact] = {"compared": compared, **reports.standard_facts(standard, tally.doubts)}
    facts |= reports.products((line.case for line in problems), product)
    reports.write_report(report, "pooltide run", facts, _COLUMNS, rows)
    raise SystemExit(tally.exit_status)


def _option(name: str, value: str | None) -> list[str]:
    return [name, value] if value else []


def _outcome(line: Line, compute: Callable[[Case], Trial | Executable | GpuPlan]) -> Outcome:
    if line.case is None:
        return line.error
    try:
        return compute(line.case)
    except (Refused, TooLarge, NoBackend, MemoryError) as error:
        return str(error) or "there was not enough memory"
    except Exception as error:
        return defect(error)


def _refuse_one_file_for_two(problems: list[Line]) -> None:
    """UsageError: --save would write the result of one case over the indices of another."""
    names = {line.name for line in problems if line.case}
    for line in problems:
        other = line.name + _INDICES
        if line.case and line.case.operator.writes_indices and other in names:
            text = f"has the name of the file for the indices of {line.name}; --save needs another name"
            raise click.UsageError(f"{other}: the case {text}")


def _save(directory: Path | None, name: str, trial: Trial) -> None:
    if directory is None:
        return
    results = {f"{name}.npy": (trial.actual, "out")}
    if trial.plan.problem.writes_indices and trial.indices is not None:
        results[f"{name}{_INDICES}.npy"] = (trial.indices, "indices")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, (array, role) in results.items():
            shape = trial.case.call(HOST).role(role).shape
            result = np.ascontiguousarray(array).reshape(shape)
            write_own(directory / file, [npy_header(result), raw_bytes(result)])
    except OSError as error:
        raise NoAnswer(f"{directory}: can't be written: {why(error)}") from None


def _text(line: Line, outcome: Outcome, standard: str, *, alone: bool, verbose: bool) -> list[str]:
    if isinstance(outcome, str):
        return [one_line(outcome) if alone else failed(line, outcome)]
    if isinstance(outcome, Executable | GpuPlan):
        return [f"case     {line.case}", str(outcome)]
    label = str(outcome.case) if alone else line.name
    about = f"{outcome.plan.backend}, {outcome.seconds * 1e3:.3f} ms, "
    lines = [verdict_lines.case_line(label, outcome.verdict(standard), outcome.measures, about)]
    if verbose:
        plan = f"case     {outcome.case}\n{outcome.plan}\n"
        plan += f"time     {outcome.seconds * 1e3:.3f} ms, {_rate(outcome):.2f} GB/s of what must move"
        lines += [f"      {part}" for part in plan.splitlines()]
        lines += verdict_lines.details(outcome.measures, outcome.verdicts, standard)
    return lines


def _rate(trial: Trial) -> float:
    """The bytes that must move, in GB/s."""
    return trial.plan.problem.least_bytes / trial.seconds / 1e9 if trial.seconds else 0.0


def _record(line: Line, outcome: Outcome, standard: str) -> dict[str, Any]:
    record = {"line": line.number, "name": line.name, "case": str(line.case) if line.case else ""}
    if isinstance(outcome, str):
        return record | {"error": outcome}
    if isinstance(outcome, Executable | GpuPlan):
        return record | {"plan": _plan_record(outcome)}
    record |= {"plan": _plan_record(outcome.plan), "seconds": outcome.seconds, "GB/s": _rate(outcome)}
    return record | verdict_lines.figures(outcome.measures, outcome.verdicts, standard)


def _plan_record(plan: Executable | GpuPlan) -> dict[str, Any]:
    return {
        "problem": str(plan.problem),
        "backend": plan.backend,
        "layout": plan.layout,
        "refused": dict(plan.refused),
        "kernel": next((name for name, reason in plan.kernels if reason is None), None),
        "not": {name: reason for name, reason in plan.kernels if reason is not None},
        "copied": plan.copied,
        "scratch": plan.scratch,
    }


def _entry(line: Line, outcome: Outcome, standard: str, options: list[str]) -> Entry:
    from ..acceptance.report_rows import Entry

    text = str(line.case) if line.case else ""
    if not isinstance(outcome, Trial):
        return Entry(line.name, text, "error", ("",) * len(_COLUMNS), str(outcome))
    m, verdict = outcome.measures, outcome.verdict(standard)
    values = (outcome.plan.backend, outcome.seconds * 1e3)
    entry = reports.entry(line.name, text, values, m, verdict, outcome.verdicts)
    if verdict.passed:
        return entry
    return replace(entry, reproduce=reproduce("run", text, *options), errors=_known(_errors(outcome)))


def _known(errors: ErrorMap) -> Callable[[], ErrorMap]:
    return lambda: errors


def _errors(trial: Trial) -> ErrorMap:
    from ..acceptance.errormap import map_errors

    problem = trial.plan.problem
    pair = np.ascontiguousarray(trial.actual).ravel(), trial.golden.ravel()
    if isinstance(problem, RegionProblem):
        n, c, h, w = problem.shape("out")
        return map_errors([pair], (n, c), (1, h, w), None, trial.case.operator.axes, None, None)
    source, indices = (
        None if array is None else np.ascontiguousarray(array).reshape(problem.planes, -1)
        for array in (trial.source, trial.indices)
    )
    return map_errors(
        [pair],
        problem.batch,
        result_plane(problem),
        problem,
        trial.case.operator.axes,
        None if source is None else source.__getitem__,
        None if indices is None else indices.__getitem__,
    )
