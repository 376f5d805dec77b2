"""The HTML report of run, golden, compare and merge: its options, its facts, and the entries of cases."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from .. import __version__
from ..acceptance import chinese
from ..acceptance.measures import Measures
from ..acceptance.notation import Case
from ..acceptance.ulps import bin_names
from ..acceptance.verdicts import PASS, STANDARDS, THIRD, WARNING, Verdict
from ..operators.pages import HOST, PRODUCTS
from ..writing import why, write_parts
from .arguments import OutputPath
from .output import NoAnswer, say, visible
from .verdict_lines import doubted, language, measured, nonfinite

if TYPE_CHECKING:
    from ..acceptance.report_page import Fact
    from ..acceptance.report_rows import Entry, Rows

report_option = click.option(
    "--report",
    type=OutputPath(dir_okay=False),
    help="Write a page with all cases and errors.",
)
label_option = click.option(
    "--label", metavar="TEXT", help="What computed the results, such as chip and driver."
)
COLUMNS = ("MERE", "MARE", "RMSE", "cosine", "max ULP", "differing", "NaN", "Inf")  # of the report


def standard_facts(standard: str, doubts: Mapping[str, int], level: str = "") -> dict[str, Fact]:
    """What decided, for the report, and how many passes say little."""
    levels = f", level {level}" if level and standard in THIRD else ""
    english = f"{standard}{levels}: {STANDARDS[standard]}"
    facts: dict[str, Fact] = {"standard": (english, f"{standard}{levels}：{chinese.STANDARDS[standard]}")}
    return facts | ({"passed": doubted(doubts)} if doubts else {})


def golden_fact(
    cases: int, sha256: str | None, left_out: int, versions: Mapping[str, str] | None = None
) -> dict[str, Fact]:
    """Which golden data decided, for the report; `left_out` more cases could not be made."""
    made = ", ".join(f"{key} {value}" for key, value in (versions or {}).items())
    english, other = (f", made by {made}", f"，由 {made} 生成") if made else ("", "")
    digest = f"sha256 {sha256 or 'unknown'}"
    if left_out:
        english += f"; {left_out} more cases of the list could not be made, and were not compared"
        other += f"；列表中另有 {left_out} 个用例无法生成，没有比较"
    return {"golden data": (f"{cases} cases, {digest}{english}", f"{cases} 个用例，{digest}{other}")}


def products(cases: Iterable[Case | None], product: str | None) -> dict[str, Fact]:
    """The products of the cases, for the report; `product` overrides them."""
    return product_fact({product or case.product or HOST for case in cases if case is not None})


def product_fact(used: Container[str]) -> dict[str, Fact]:
    english = [PRODUCTS[name] for name in PRODUCTS if name in used]
    other = ["本库的函数" if name == HOST else PRODUCTS[name] for name in PRODUCTS if name in used]
    return {"product": (", ".join(english), "、".join(other))}


def entry(
    name: str, case: str, first: tuple[Any, ...], m: Measures, verdict: Verdict, verdicts: Sequence[Verdict]
) -> Entry:
    """A compared case in the report; `first` are values before those of COLUMNS."""
    from ..acceptance.report_rows import Entry

    counts = (_beside(m.nan, m.golden_nan), _beside(m.inf, m.golden_inf))
    errors = (*measured(m)[:3], m.cosine, m.max_ulp) if m.finite else ("",) * 5  # empty cells are sorted last
    values = (*first, *errors, m.differing, *counts)
    if verdict.passed:
        return Entry(name, case, "pass", values)
    status, word = ("warning", "warns") if verdict.status == WARNING else ("fail", "fails")
    why = f"{verdict.name} {word}: {verdict.text}{nonfinite(m)}"
    every = tuple((v.name, v.status, v.text) for v in verdicts)
    severity = _severity(m.misplaced, m.max_ulp if m.finite else None)
    return Entry(name, case, status, values, why, "", m.histogram, m.misplaced, every, severity=severity)


def _severity(misplaced: int, max_ulp: float | None) -> tuple[float, ...]:
    """NaN and Inf out of place are worse than any distance; no distance (None) is the largest."""
    return float(misplaced), float(inf if max_ulp is None else max_ulp)


def record_entry(record: Mapping[str, Any], standard: str) -> Entry:
    """A case that compare --json printed, in the report; a map of its errors would need the files."""
    from ..acceptance.report_rows import Entry

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
    why, again = f"{standard} {word}: {text}{nonfinite(m)}", record.get("reproduce", "")
    severity = _severity(m.misplaced, record["max ULP"])
    return Entry(
        name, case, status.lower(), values, why, again, bins, m.misplaced, verdicts, severity=severity
    )


def _beside(ours: int, golden: int) -> int | str:
    return ours if ours == golden else f"{ours} ({golden})"


def collected(report: Path | None) -> Rows | None:
    """The rows that a report needs; None: there is no report."""
    if report is None:
        return None
    from ..acceptance.report_rows import Rows

    return Rows()


def write_report(
    path: Path | None,
    title: str,
    facts: Mapping[str, Fact],
    columns: Sequence[str],
    rows: Rows | None,
    files: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the report; without a path, do nothing. `files` are (path, what is wrong with it)."""
    if path is None or rows is None:
        return
    from ..acceptance.report_page import Report, page

    words = click.get_current_context().find_root().obj or []
    known = {**facts, **_surroundings(), "command": shlex.join(["pooltide", *words])}
    parts = page(Report(title, known, columns, rows, files, language()))
    try:
        write_parts(path, (visible(part).encode() for part in parts))
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
