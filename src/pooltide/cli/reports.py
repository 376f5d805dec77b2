"""What run, golden and compare share: options, figures as text or JSON, and the HTML report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import click

from ..acceptance.verdicts import VERDICTS, Measures, Verdict, bin_names
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
    type=click.Choice(VERDICTS),
    default="mixed",
    show_default=True,
    help="The verdict that decides the exit status.",
)
MEASURES = ("MERE", "MARE", "RMSE", "max ULP", "differing")


def measured(m: Measures) -> tuple[Any, ...]:
    """The values of MEASURES."""
    return m.mere, m.mare, m.rmse, m.max_ulp, m.differing


def judged(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    return tuple("pass" if v.passed else "FAIL" for v in verdicts)


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    return [f"{v.name:8} {answer}: {v.text}" for v, answer in zip(verdicts, judged(verdicts), strict=True)]


def histogram(m: Measures) -> dict[str, int]:
    """The cells by their distance in ULPs, without the distances that no cell has."""
    return {name: n for name, n in zip(bin_names(), m.histogram, strict=True) if n}


def figures(m: Measures, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Measures and verdicts for JSON, which has no infinity: an infinite measure is None."""
    finite = (value if isfinite(value) else None for value in measured(m))
    return {
        "count": m.count,
        "misplaced": m.misplaced,
        **dict(zip(MEASURES, finite, strict=True)),
        "ulp_histogram": histogram(m),
        "verdicts": {v.name: {"pass": v.passed, "text": v.text} for v in verdicts},
    }


def write_report(path: Path | None, title: str, columns: Sequence[str], entries: Sequence[Any]) -> None:
    """Write the report; without a path, do nothing."""
    if path is None:
        return
    from ..acceptance.report import page

    facts = [("command", shlex.join(["pooltide", *sys.argv[1:]])), ("cases", str(len(entries)))]
    try:
        write_whole(path, visible(page(title, facts, columns, entries)).encode())
    except OSError as error:
        raise click.UsageError(f"{path}: can't be written: {why(error)}") from None
    say(f"report: {path}", err=True)
