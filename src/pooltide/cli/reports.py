"""What run, golden and compare share of the report: the option, the columns, the writing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..acceptance.verdicts import Measures, Verdict
from ..writing import why, write_whole
from .paths import NamedPath
from .speech import say, visible

report_option = click.option(
    "--report",
    type=NamedPath(dir_okay=False),
    help="Write a page with all cases and, for those that fail, where the errors are.",
)
verdict_option = click.option(
    "--verdict",
    type=click.Choice(["single", "two", "mixed", "bits"]),
    default="mixed",
    show_default=True,
    help="The verdict that decides the exit status.",
)
MEASURES = ("MERE", "MARE", "RMSE", "max ULP", "differing")


def measured(m: Measures) -> tuple[Any, ...]:
    return m.mere, m.mare, m.rmse, m.max_ulp, m.differing


def judged(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    return tuple("pass" if v.passed else "FAIL" for v in verdicts)


def write_report(path: Path | None, title: str, columns: Sequence[str], entries: Sequence[Any]) -> None:
    """Nothing without a path. The report's module is only loaded when one is asked for."""
    if path is None:
        return
    from ..acceptance.report import page

    facts = [("command", shlex.join(["pooltide", *sys.argv[1:]])), ("cases", str(len(entries)))]
    try:
        write_whole(path, visible(page(title, facts, columns, entries)).encode())
    except OSError as error:
        raise click.UsageError(f"{path}: can't be written: {why(error)}") from None
    say(f"report: {path}", err=True)
