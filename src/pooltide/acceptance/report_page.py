"""Writes the report: one HTML page without other files, whose table can be sorted and filtered.

The page is `report.html` with its {{MARKS}} replaced. The cases are in it as JSON, from which a script draws
the table; each of the first failing cases gets a section, which report_section.py writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from math import isfinite
from typing import Any

from .. import __version__
from .errormap import ErrorMap
from .report_section import section

MOST_SECTIONS = 50
_MEANINGS = {
    "MERE": "The mean relative error: the mean of |a - g| / (|g| + 1e-7).",
    "MARE": "The largest relative error.",
    "RMSE": "The root of the mean of (a - g) squared.",
    "cosine": "The cosine similarity of the result and the golden values.",
    "max ULP": "The largest distance from a to g, counted in values of the dtype.",
    "differing": "Cells whose bits differ from the golden ones.",
    "NaN": "NaN in the result; in brackets those of the golden values, if they are another number.",
    "Inf": "Inf and -Inf in the result; in brackets those of the golden values, if they are another number.",
    "backend": "What computed the result.",
    "ms": "Milliseconds of the computation.",
    "dtype": "The dtype of the result.",
    "shape": "The shape of the result.",
    "seed": "The seed of the data.",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One case of the report. `values` has one value for each column; `why` is the reason of a failure."""

    name: str
    case: str
    status: str  # pass | warning | fail | error
    values: tuple[Any, ...] = ()
    why: str = ""
    reproduce: str = ""
    histogram: tuple[int, ...] = ()
    misplaced: int = 0  # cells with a NaN or Inf out of place
    verdicts: tuple[tuple[str, str, str], ...] = ()  # standard, status, text
    errors: ErrorMap | None = None


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    facts: Mapping[str, str]
    columns: Sequence[str]
    entries: Sequence[Entry]
    files: Sequence[tuple[str, str]] = ()  # path, what is wrong with it
    meanings: Mapping[str, str] | None = None  # of further columns


def page(report: Report) -> str:
    failing = [entry for entry in report.entries if entry.status in ("warning", "fail")]
    meanings = _MEANINGS | dict(report.meanings or {})
    columns = [(name, meanings[name]) for name in report.columns]
    left = len(failing) - MOST_SECTIONS
    marks = {
        "TITLE": escape(report.title),
        "VERDICT": _verdict(report.entries),
        "FACTS": _pairs(report.facts.items()),
        "FILES": _files(report.files),
        "LEGEND": _pairs(columns),
        "SECTIONS": "\n".join(section(e, opened=i == 0) for i, e in enumerate(failing[:MOST_SECTIONS]))
        + (f"<p>{left} more failing cases are in the table only.</p>" if left > 0 else ""),
        "FOOTER": f"pooltide {escape(__version__)}",
        "DATA": _data(columns, report.entries),
    }
    text = files("pooltide").joinpath("acceptance", "report.html").read_text("utf-8")
    head, *parts = text.split("{{")
    for part in parts:
        mark, _, rest = part.partition("}}")
        head += marks[mark] + rest
    return head


def _verdict(entries: Sequence[Entry]) -> str:
    kinds = (
        ("pass", "pass"),
        ("warning", "warn"),
        ("fail", "fail"),
        ("error", "could not be compared"),
    )
    counts = [(kind, words, sum(entry.status == kind for entry in entries)) for kind, words in kinds]
    shown = [f'<span class="{kind}"><b>{n}</b> {words}</span>' for kind, words, n in counts if n]
    return f"Of {len(entries)} cases, {', '.join(shown) or 'none is here'}."


def _pairs(pairs: Any) -> str:
    return "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs)


def _files(files: Sequence[tuple[str, str]]) -> str:
    if not files:
        return ""
    items = "".join(f"<dt><code>{escape(path)}</code></dt><dd>{escape(what)}</dd>" for path, what in files)
    return f'<section id="files"><h2>Missing, unreadable and extra files</h2><dl>{items}</dl></section>'


def _data(columns: Sequence[tuple[str, str]], entries: Sequence[Entry]) -> str:
    """The table as JSON that can't end its script element."""
    rows = [[e.name, e.status, e.why, *map(_value, e.values), e.case] for e in entries]
    text = json.dumps({"columns": columns, "rows": rows}, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if isfinite(value) else "inf"
    return value
