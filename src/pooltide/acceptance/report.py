"""Writes the report: one HTML page without other files, whose table can be sorted and filtered.

The page is `report.html` with its {{MARKS}} replaced. Each failed case gets a section: the errors over the
plane with the windows, the ULP histogram, the worst cells and the terms of their sums.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from math import isinf
from typing import Any

import numpy as np

from .. import __version__
from ..geometry import tables
from . import picture
from .errormap import Cell, ErrorMap
from .measures import bin_names

MOST_SECTIONS = 50
_MOST_WINDOWS = 900


@dataclass(frozen=True, slots=True)
class Entry:
    """One case of the report. `values` has one value for each column."""

    name: str
    case: str
    status: str  # pass | fail | error
    values: tuple[Any, ...] = ()
    note: str = ""
    histogram: tuple[int, ...] = ()
    errors: ErrorMap | None = None


def page(
    title: str, facts: Sequence[tuple[str, str]], columns: Sequence[str], entries: Sequence[Entry]
) -> str:
    failing = [e for e in entries if e.status != "pass" and (e.errors or e.histogram)]
    sections = failing[:MOST_SECTIONS]
    counts = [(kind, sum(entry.status == kind for entry in entries)) for kind in ("pass", "fail", "error")]
    left = len(failing) - len(sections)
    marks = {
        "TITLE": escape(title),
        "VERSION": escape(__version__),
        "FACTS": "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts),
        "COUNTS": "".join(f'<span class="count {kind}"><b>{n}</b> {kind}</span>' for kind, n in counts),
        "HEAD": "".join(f"<th>{escape(c)}</th>" for c in ("name", "status", *columns, "case", "note")),
        "ROWS": "\n".join(_row(entry, {id(s) for s in sections}) for entry in entries),
        "SECTIONS": "\n".join(map(_section, sections))
        + (f"<p>{left} more failing cases are in the table only.</p>" if left else ""),
    }
    text = files("pooltide").joinpath("acceptance", "report.html").read_text("utf-8")
    head, *parts = text.split("{{")
    for part in parts:
        mark, _, rest = part.partition("}}")
        head += marks[mark] + rest
    return head


def _row(entry: Entry, sections: set[int]) -> str:
    name = escape(entry.name)
    link = f'<a href="#case-{name}">{name}</a>' if id(entry) in sections else name
    values = "".join(
        f'<td class="number" data-value="{_key(v)}">{escape(_shown(v))}</td>' for v in entry.values
    )
    return (
        f'<tr data-status="{entry.status}"><td>{link}</td>'
        f'<td class="{entry.status}">{entry.status}</td>{values}'
        f"<td><code>{escape(entry.case)}</code></td><td>{escape(entry.note)}</td></tr>"
    )


def _key(value: Any) -> str:
    return escape(str(value), quote=True)


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _section(entry: Entry) -> str:
    parts = [f'<section id="case-{escape(entry.name)}"><h2>{escape(entry.name)}</h2>']
    parts += [f"<p>{escape(entry.note)}</p>"] if entry.note else []
    if entry.errors:
        parts += ['<div class="figures">', _heat_map(entry.errors)]
    if entry.histogram:
        parts.append(_histogram(entry.histogram))
    if entry.errors:
        parts += ["</div>", _worst(entry.errors.worst)]
    return "".join([*parts, f"<pre>reproduce: pooltide run {escape(entry.case)}</pre></section>"])


def _heat_map(errors: ErrorMap) -> str:
    """The worst slice of the plane, 0 in white; windows in grey, those of the worst cell in blue."""
    depth = int(np.argmax(errors.errors.max(axis=(1, 2))))
    shown = errors.errors[depth]
    height, width = shown.shape
    finite = shown[np.isfinite(shown)].max(initial=0)
    share = np.where(np.isfinite(shown), np.log2(1 + shown) / max(np.log2(1 + finite), 1) * 0.85, 1.0)
    image = base64.b64encode(
        picture.png(picture.heat(np.where(shown > 0, np.maximum(share, 0.15), 0)))
    ).decode()
    scale = max(1, min(24, 480 // max(height, width)))
    where = f"depth {depth} of {len(errors.errors)}, " if len(errors.errors) > 1 else ""
    darkest = "NaN or Inf out of place" if np.isinf(shown).any() else f"{finite:.0f} ULP"
    return (
        f'<figure><svg class="heat" viewBox="0 0 {width} {height}" width="{width * scale}" '
        f'height="{height * scale}"><image href="data:image/png;base64,{image}" width="{width}" '
        f'height="{height}"/>{_windows(errors)}</svg><figcaption>Largest error over all planes, {where}'
        f"{height}×{width} cells; darkest: {darkest}."
        f"{_windows_note(errors)}</figcaption></figure>"
    )


def _windows(errors: ErrorMap) -> str:
    if errors.problem is None:
        return ""
    _, h, w = (tables(axis) for axis in errors.problem.axes)
    _, outputs_h, outputs_w = errors.problem.output_plane
    rectangles = []
    if outputs_h * outputs_w <= _MOST_WINDOWS:
        every = [(oh, ow) for oh in range(outputs_h) for ow in range(outputs_w)]
        rectangles += [_rectangle(h, w, oh, ow, "window") for oh, ow in every]
    if errors.worst:
        y, x = errors.worst[0].position[3:]
        for oh in range(int(h.first_window[y]), int(h.first_window[y] + h.window_count[y]))[:30]:
            for ow in range(int(w.first_window[x]), int(w.first_window[x] + w.window_count[x]))[:30]:
                rectangles.append(_rectangle(h, w, oh, ow, "window held"))
        rectangles.append(f'<rect class="cell" x="{x}" y="{y}" width="1" height="1"/>')
    return "".join(rectangles)


def _rectangle(h: Any, w: Any, oh: int, ow: int, kind: str) -> str:
    top, left = int(h.start[oh]), int(w.start[ow])
    return (
        f'<rect class="{kind}" x="{left}" y="{top}" width="{int(w.end[ow]) - left}" '
        f'height="{int(h.end[oh]) - top}"><title>window {oh}, {ow}</title></rect>'
    )


def _windows_note(errors: ErrorMap) -> str:
    if errors.problem is None:
        return " No case is known, so no windows are drawn."
    return " Blue: the windows that hold the worst cell." if errors.worst else ""


def _histogram(histogram: Sequence[int]) -> str:
    """Bars on a logarithmic scale, which shows one wrong cell among a million."""
    last = max([i for i, n in enumerate(histogram) if n], default=0)
    bars = []
    tallest = np.log10(1 + max(histogram)) or 1.0
    for i, (name, n) in enumerate(list(zip(bin_names(), histogram, strict=True))[: last + 1]):
        tall = float(np.log10(1 + n) / tallest * 120)
        bars.append(
            f'<rect class="bar" x="{i * 72 + 4}" y="{140 - tall:.1f}" width="64" height="{tall:.1f}"/>'
            f'<text x="{i * 72 + 36}" y="{134 - tall:.1f}">{n}</text>'
            f'<text x="{i * 72 + 36}" y="156">{name}</text>'
        )
    width = (last + 1) * 72 + 8
    return (
        f'<figure><svg class="histogram" viewBox="0 0 {width} 164" width="{width}" height="164">'
        f"{''.join(bars)}</svg>"
        "<figcaption>Cells by distance in ULPs (finite pairs; logarithmic).</figcaption></figure>"
    )


def _worst(worst: Sequence[Cell]) -> str:
    if not worst:
        return ""
    rows = "".join(
        f"<tr><td>{_position(cell.position)}</td><td class='number'>{cell.actual!r}</td>"
        f"<td class='number'>{cell.golden!r}</td>"
        f"<td class='number'>{'out of place' if isinf(cell.ulp) else f'{cell.ulp:.0f}'}</td>"
        f"<td>{_terms(cell)}</td></tr>"
        for cell in worst
    )
    heads = ("n, c, d, h, w", "actual", "golden", "ULP", "outputs (d, h, w) that feed it")
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f'<table class="worst"><tr>{head}</tr>{rows}</table>'


def _terms(cell: Cell) -> str:
    terms = [
        f"({_position(t.position)})" + ("" if t.value is None else f" {t.value:.6g}") for t in cell.terms
    ]
    more = [f"… and {cell.more} more"] if cell.more else []
    return escape("; ".join(terms + more)) or "none"


def _position(position: tuple[int, ...]) -> str:
    return ", ".join(map(str, position))
