"""`pooltide run`: compute, hold against the float64 reference, time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from ..acceptance.cases import Line
from ..acceptance.inputs import TooLarge
from ..acceptance.tensorfile import npy_header, raw_bytes
from ..acceptance.trial import Refused, Trial, run
from ..kernels.plan import BACKENDS, NoBackend
from ..writing import why, write_whole
from .paths import NamedPath
from .problems import NOTATION, failed, problem_argument, product_option
from .reports import MEASURES, judged, measured, report_option, verdict_option, write_report
from .speech import one_line, reproduce, say

if TYPE_CHECKING:
    from ..acceptance.anatomy import Anatomy
    from ..acceptance.report import Entry

_COLUMNS = ("backend", "ms", *MEASURES, "single", "mixed", "bits")


@click.command(epilog=NOTATION)
@problem_argument
@product_option
@click.option("--backend", type=click.Choice(list(BACKENDS)), help="Instead of the first that can do it.")
@click.option("--repeat", type=click.IntRange(1, 1_000_000), default=1, help="Runs; the best time counts.")
@click.option("--save", type=NamedPath(file_okay=False), help="Keep each result as SAVE/NAME.npy.")
@verdict_option
@report_option
def command(
    problems: list[Line],
    product: str | None,
    backend: str | None,
    repeat: int,
    save: Path | None,
    verdict: str,
    report: Path | None,
) -> None:
    """Compute a case from its seed; print the plan, the error against float64, and the time.

    Without a product the case is a call of this library's functions. Exit status 1 when the verdict fails.
    """
    if verdict == "two":
        raise click.UsageError("--verdict two needs a third result; pooltide compare --third gives it")
    good = True
    entries: list[Entry] = []
    for line in problems:
        trial: Trial | None = None
        try:
            if line.case is None:
                raise Refused(line.error)
            trial = run(line.case, product, backend, repeat)
            passed = next(v.passed for v in trial.verdicts if v.name == verdict)
            note = ""
            say(_told(trial, passed, product, backend))
            _save(save, line.name, trial)
        except (Refused, TooLarge, NoBackend, MemoryError) as error:
            note = str(error) or "there was not enough memory"
            passed = False
            say(failed(line, note) if len(problems) > 1 else one_line(note), err=True)
            if line.case is not None:
                say(_reproduce(str(line.case), product, backend), err=True)
        good &= passed
        if report is not None:
            entries.append(_entry(line, trial, passed, note))
    write_report(report, "pooltide run", _COLUMNS, entries)
    raise SystemExit(0 if good else 1)


def _save(directory: Path | None, name: str, trial: Trial) -> None:
    if directory is None:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        result = np.ascontiguousarray(trial.actual).reshape(trial.case.shape)
        write_whole(directory / f"{name}.npy", npy_header(result), raw_bytes(result))
    except OSError as error:
        raise click.UsageError(f"{directory}: can't be written: {why(error)}") from None


def _told(trial: Trial, passed: bool, product: str | None, backend: str | None) -> str:
    m = trial.measures
    rate = trial.plan.problem.least_bytes / trial.seconds / 1e9 if trial.seconds else 0.0
    lines = [
        f"case     {trial.case}",
        str(trial.plan),
        f"error    MERE {m.mere:.3g}, MARE {m.mare:.3g}, RMSE {m.rmse:.3g}; {m.differing} of {m.count} "
        f"differ from the correctly rounded result, at most {m.max_ulp} ULP",
        f"time     {trial.seconds * 1e3:.3f} ms, {rate:.2f} GB/s of what must move",
        *(f"{v.name:8} {'pass' if v.passed else 'FAIL'}: {v.text}" for v in trial.verdicts),
    ]
    return "\n".join(lines if passed else [*lines, _reproduce(str(trial.case), product, backend)])


def _reproduce(case: str, product: str | None, backend: str | None) -> str:
    options = ["--product", product] if product else []
    options += ["--backend", backend] if backend else []
    return reproduce("run", case, *options)


def _entry(line: Line, trial: Trial | None, passed: bool, note: str) -> Entry:
    from ..acceptance.report import Entry

    text = str(line.case) if line.case else ""
    if trial is None:
        return Entry(line.name, text, "error", ("",) * len(_COLUMNS), note)
    m = trial.measures
    values = (trial.plan.backend, trial.seconds * 1e3, *measured(m), *judged(trial.verdicts))
    if passed:
        return Entry(line.name, text, "pass", values)
    return Entry(line.name, text, "fail", values, note, m.histogram, _anatomy(trial))


def _anatomy(trial: Trial) -> Anatomy:
    from ..acceptance.anatomy import dissect

    problem = trial.plan.problem
    grad = np.ascontiguousarray(trial.grad_output).reshape(problem.planes, -1)
    indices = (
        None if trial.indices is None else np.ascontiguousarray(trial.indices).reshape(problem.planes, -1)
    )
    return dissect(
        [(np.ascontiguousarray(trial.actual).ravel(), trial.golden.ravel())],
        problem.batch,
        problem.input_plane,
        problem,
        lambda plane: grad[plane],
        None if indices is None else lambda plane: indices[plane],
    )
