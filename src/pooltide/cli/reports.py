"""What run, golden and compare share: options, figures as text or JSON, exit statuses, the HTML report.

Exit status of run and compare: 2 if a case could not be compared, else 1 if a verdict failed, else 0.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from .. import __version__
from ..acceptance.measures import SHARES, Measures, bin_names
from ..acceptance.notation import Case
from ..acceptance.verdicts import DEFAULT, PASS, STANDARDS, THIRD, WARNING, Verdict
from ..operators.pages import HOST, PRODUCTS
from ..writing import why, write_whole
from .arguments import OutputPath
from .output import NoAnswer, say, visible

if TYPE_CHECKING:
    from ..acceptance.report_page import Entry

report_option = click.option(
    "--report",
    type=OutputPath(dir_okay=False),
    help="Write a page with all cases and, for those that fail, where the errors are.",
)
standard_option = click.option(
    "--standard",
    "--verdict",
    "standard",
    type=click.Choice(list(STANDARDS)),
    default=DEFAULT,
    metavar="NAME",
    show_default=True,
    help=f"What decides the exit status: {', '.join(STANDARDS)}.",
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Print all verdicts and figures of each case."
)
MEASURES = ("MERE", "MARE", "RMSE", "max ULP", "differing")
COLUMNS = ("MERE", "MARE", "RMSE", "cosine", "max ULP", "differing", "NaN", "Inf")  # of the report


@dataclass(slots=True)
class Tally:
    """How many cases passed, gave a warning, failed, or could not be compared."""

    passed: int = 0
    warnings: int = 0
    failed: int = 0
    errors: int = 0

    def add(self, verdict: Verdict | None) -> None:
        """Count a case; None: it could not be compared."""
        if verdict is None:
            self.errors += 1
        elif verdict.passed:
            self.passed += 1
        elif verdict.status == WARNING:
            self.warnings += 1
        else:
            self.failed += 1

    @property
    def exit_status(self) -> int:
        return 2 if self.errors else 1 if self.failed or self.warnings else 0

    def summary(self, standard: str) -> str:
        total = self.passed + self.warnings + self.failed + self.errors
        rest = [f"{self.warnings} warning{'s' if self.warnings > 1 else ''}"] if self.warnings else []
        rest += [f"{self.failed} fail"] if self.failed else []
        rest += [f"{self.errors} could not be compared"] if self.errors else []
        counts = ", ".join([f"{self.passed} of {total} pass", *rest])
        return f"{counts}; the standard is {standard}: {STANDARDS[standard]}"

    def record(self, standard: str) -> dict[str, Any]:
        counts = {"pass": self.passed, "warning": self.warnings, "fail": self.failed, "error": self.errors}
        return {"standard": standard, **counts, "exit_status": self.exit_status}


def measured(m: Measures) -> tuple[Any, ...]:
    """The values of MEASURES."""
    return m.mere, m.mare, m.rmse, m.max_ulp, m.differing


def case_line(label: str, verdict: Verdict, m: Measures, about: str = "") -> str:
    """The one line of a case: its status, its name, and what decided."""
    text = differences(m) if verdict.passed else f"{verdict.name}: {verdict.text}"
    return f"{verdict.status:4}  {label}: {about}{text}{_nonfinite(m)}"


def differences(m: Measures) -> str:
    indices = f" and {m.indices} indices" if m.indices else ""
    if m.differing == 0:
        return f"all {m.count} cells{indices} equal"
    return f"{m.differing} of {m.count} cells differ, at most {m.max_ulp} ULP"


def _nonfinite(m: Measures) -> str:
    """How many NaN and Inf there are, in the result and in the golden values; "" if there are none."""
    if not (m.nan or m.inf or m.golden_nan or m.golden_inf):
        return ""
    if m.misplaced == 0:
        return f"; {m.nan} NaN and {m.inf} Inf, as golden"
    return f"; {m.nan} NaN (golden {m.golden_nan}), {m.inf} Inf (golden {m.golden_inf})"


def details(m: Measures, verdicts: Sequence[Verdict], standard: str) -> list[str]:
    """The lines that -v adds to a case; the verdict that decides is marked."""
    ulps = ", ".join(f"{name}: {n}" for name, n in histogram(m).items())
    measures = [
        f"error    MERE {m.mere:.3g}, MARE {m.mare:.3g}, RMSE {m.rmse:.3g}, mean abs {m.mean_abs:.3g}, "
        f"largest abs {m.max_abs:.3g}",
        f"cosine   {m.cosine:.9g}, balance {m.balance:.3g}, wrong small values {m.small_errors} of {m.small}",
        f"ULP      {ulps}",
    ]
    lines = measures if m.finite else ["error    no cell is finite in both, so there are no figures"]
    for v in verdicts:
        lines.append(f"{v.name:13} {v.status}: {v.text}{' (decides)' if v.name == standard else ''}")
    decided = next(v.passed for v in verdicts if v.name == standard)
    if decided and not all(v.passed for v in verdicts):
        lines.append(f"{standard} decides; docs/acceptance.md says why others can fail a good result")
    return [f"      {line}" for line in lines]


def histogram(m: Measures) -> dict[str, int]:
    """The cells by their distance in ULPs, without the distances that no cell has."""
    return {name: n for name, n in zip(bin_names(), m.histogram, strict=True) if n}


def figures(m: Measures, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Measures and verdicts for JSON. Infinite measures, and those of no finite cell, are None."""
    counts = ("count", "misplaced", "nan", "inf", "golden_nan", "golden_inf")
    values = {
        **dict(zip(MEASURES, measured(m), strict=True)),
        "mean_abs": m.mean_abs,
        "max_abs": m.max_abs,
        "cosine": m.cosine,
        **{f"within_{error:g}": share for error, share in zip(SHARES, m.shares, strict=True)},
        "small_error_ratio": m.small_ratio,
        "balance": m.balance,
        "mean_ulp": m.mean_ulp,
        "ulp_share": m.ulp_share,
    }
    return {
        **{name: getattr(m, name) for name in counts},
        **{name: value if m.finite and isfinite(value) else None for name, value in values.items()},
        "differing": m.differing,
        "ulp_histogram": histogram(m),
        "verdicts": {v.name: {"pass": v.passed, "status": v.status, "text": v.text} for v in verdicts},
    }


def standard_facts(standard: str, level: str = "") -> dict[str, str]:
    """What decided, for the report."""
    levels = f", level {level}" if level and standard in THIRD else ""
    return {"standard": f"{standard}{levels}: {STANDARDS[standard]}"}


def products(cases: Iterable[Case | None], product: str | None) -> str:
    """The products of the cases, for the report; `product` overrides them."""
    used = {product or case.product or HOST for case in cases if case is not None}
    return ", ".join(PRODUCTS[name] for name in PRODUCTS if name in used)


def entry(
    name: str, case: str, first: tuple[Any, ...], m: Measures, verdict: Verdict, verdicts: Sequence[Verdict]
) -> Entry:
    """A compared case in the report; `first` are values before those of COLUMNS."""
    from ..acceptance.report_page import Entry

    counts = (_beside(m.nan, m.golden_nan), _beside(m.inf, m.golden_inf))
    errors = (*measured(m)[:3], m.cosine, m.max_ulp) if m.finite else ("",) * 5  # empty cells are sorted last
    values = (*first, *errors, m.differing, *counts)
    if verdict.passed:
        return Entry(name, case, "pass", values)
    status, word = ("warning", "warns") if verdict.status == WARNING else ("fail", "fails")
    why = f"{verdict.name} {word}: {verdict.text}{_nonfinite(m)}"
    every = tuple((v.name, v.status, v.text) for v in verdicts)
    return Entry(name, case, status, values, why, "", m.histogram, m.misplaced, every)


def record_entry(record: Mapping[str, Any], standard: str) -> Entry:
    """A case that compare --json printed, in the report; a map of its errors would need the files."""
    from ..acceptance.report_page import Entry

    name, case = record["name"], record["case"]
    if "error" in record:
        return Entry(name, case, "error", ("",) * len(COLUMNS), record["error"])
    errors = [record[key] for key in COLUMNS[:5]]
    if all(value is None for value in errors):  # no cell is finite
        errors = [""] * 5
    m = Measures(**{key: record[key] for key in ("misplaced", "nan", "inf", "golden_nan", "golden_inf")})
    counts = _beside(m.nan, m.golden_nan), _beside(m.inf, m.golden_inf)
    values = (*(inf if value is None else value for value in errors), record["differing"], *counts)
    verdicts = tuple((key, v["status"], v["text"]) for key, v in record["verdicts"].items())
    _, status, text = next(verdict for verdict in verdicts if verdict[0] == standard)
    if status == PASS:
        return Entry(name, case, "pass", values)
    word = "warns" if status == WARNING else "fails"
    bins = tuple(record["ulp_histogram"].get(bin_name, 0) for bin_name in bin_names())
    why, again = f"{standard} {word}: {text}{_nonfinite(m)}", record.get("reproduce", "")
    return Entry(name, case, status.lower(), values, why, again, bins, m.misplaced, verdicts)


def _beside(ours: int, golden: int) -> int | str:
    return ours if ours == golden else f"{ours} ({golden})"


def write_report(
    path: Path | None,
    title: str,
    facts: Mapping[str, str],
    columns: Sequence[str],
    entries: Sequence[Entry],
    files: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the report; without a path, do nothing. `files` are (path, what is wrong with it)."""
    if path is None:
        return
    from ..acceptance.report_page import Report, page

    words = click.get_current_context().find_root().obj or []
    known = {**facts, **_surroundings(), "command": shlex.join(["pooltide", *words])}
    try:
        write_whole(path, visible(page(Report(title, known, columns, entries, files))).encode())
    except OSError as error:
        raise NoAnswer(f"{path}: can't be written: {why(error)}") from None
    say(f"report: {path}", err=True)


def _surroundings() -> dict[str, str]:
    """When, on which machine, and by which versions the report was made."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": ", ".join(filter(None, (processor(), machine))),
        "versions": f"pooltide {__version__}, NumPy {np.__version__}, Python {platform.python_version()}",
    }


def processor() -> str:
    """The name of the processor, or "" where Linux does not say it."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else ""
