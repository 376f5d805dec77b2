"""Writes the section of a failing case: the reason, the verdicts, where the errors are, the worst cells."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np

from ..geometry import Tables, tables
from . import picture
from .errormap import Cell, ErrorMap
from .measures import bin_names

if TYPE_CHECKING:
    from .report_page import Entry

_MOST_WINDOWS = 400
_MOST_HELD = 12  # windows of the worst cell along an axis
_LONGEST_SIDE = 420  # pixels of a heat map
_LETTER = 7  # pixels that a letter of a label takes at most, on average
_GROUPS = (
    (0,),
    (1,),
    (2,),
    (3,),
    (4,),
    (5,),
    (6,),
    (7,),
    (8, 9),
    (10, 11),
    (12, 14),
    (15, 18),
    (19,),
)  # bins


def section(entry: Entry, *, opened: bool) -> str:
    """`opened`: the details are shown at once."""
    name = escape(entry.name)
    details = [_verdicts(entry.verdicts)]
    if entry.errors:
        details += ['<div class="figures">', _heat_map(entry.errors)]
    details.append(_histogram(entry.histogram, entry.misplaced))
    if entry.errors:
        details += ["</div>", _worst(entry.errors)]
    return (
        f'<section class="case" id="case-{name}">'
        f'<h2>{name} <span class="badge {entry.status}">{entry.status}</span></h2>'
        f'<p class="reason">{escape(entry.why)}</p><p><code>{escape(entry.case)}</code></p>'
        f"<details{' open' if opened else ''}><summary>Where the errors are</summary>"
        f"{''.join(details)}</details>"
        f"<pre>{escape(entry.reproduce)}</pre></section>"
    )


def _verdicts(verdicts: Sequence[tuple[str, str, str]]) -> str:
    if not verdicts:
        return ""
    rows = "".join(
        f'<tr><td class="word" data-label="standard">{escape(name)}</td>'
        f'<td class="{status.lower()}">{escape(status)}</td><td>{escape(text)}</td></tr>'
        for name, status, text in verdicts
    )
    head = "<thead><tr><th>standard</th><th>verdict</th><th>figures</th></tr></thead>"
    return f"<details><summary>All verdicts</summary><table>{head}<tbody>{rows}</tbody></table></details>"


def _heat_map(errors: ErrorMap) -> str:
    """The worst slice of the plane, 0 in white; windows in grey, those of the worst cell in blue."""
    depth = int(np.argmax(errors.errors.max(axis=(1, 2))))
    shown = errors.errors[depth]
    height, width = shown.shape
    finite = shown[np.isfinite(shown)].max(initial=0)
    intensity = np.where(np.isfinite(shown), np.log2(1 + shown) / max(np.log2(1 + finite), 1) * 0.85, 1.0)
    colours = picture.heat(np.where(shown > 0, np.maximum(intensity, 0.15), 0))
    image = base64.b64encode(picture.png(colours)).decode()
    x, y = (max(1.0, min(24.0, _LONGEST_SIDE / size)) for size in (width, height))
    x, y = (min(x, y), min(x, y)) if min(height, width) > 4 else (x, max(y, 4.0))
    across, down = width * x, height * y
    vertical, horizontal = ("", *errors.axes)[-2:]
    down_and = f"{vertical} down and " if vertical else ""
    darkest = "NaN or Inf out of place" if np.isinf(shown).any() else f"{finite:.0f} ULP"
    left, wide = _room(vertical, horizontal, height, across)
    where = f"{errors.axes[0]} = {depth} of 0 to {len(errors.errors) - 1}, " if len(errors.errors) > 1 else ""
    return (
        f'<figure><svg class="heat" role="img" aria-label="Map of the errors" '
        f'viewBox="{-left} -4 {wide:.0f} {down + 34:.0f}" '
        f'width="{wide:.0f}" height="{down + 34:.0f}">'
        f'<image href="data:image/png;base64,{image}" width="{across:g}" height="{down:g}" '
        f'preserveAspectRatio="none"/><path class="edge" d="M0 0h{across:g}v{down:g}h{-across:g}z"/>'
        f"{_windows(errors, x, y)}{_ticks(vertical, horizontal, height, width, across, down)}</svg>"
        f"<figcaption>Largest error over all planes, {where}{height}×{width} cells, {down_and}{horizontal} "
        f"across. White: no error; darkest: {darkest}.{_windows_note(errors)}</figcaption></figure>"
    )


def _room(vertical: str, horizontal: str, height: int, across: float) -> tuple[int, float]:
    """The pixels left of the map, which the labels of its rows need, and the width of the whole picture."""
    left = 10 + _LETTER * max(len(f"{vertical} 0"), len(str(height - 1)))
    return left, left + max(across, _LETTER * len(f"{horizontal} 0")) + 16


def _ticks(vertical: str, horizontal: str, height: int, width: int, across: float, down: float) -> str:
    """The names of the axes, and the numbers of the first and last cell."""
    labels = [
        (f"{vertical} 0", -4, 10, "end") if vertical else ("", 0, 0, "end"),
        (f"{height - 1}", -4, down, "end") if height > 1 else ("", 0, 0, "end"),
        (f"{horizontal} 0", 0, down + 14, "start"),
        (f"{width - 1}", across, down + 14, "end") if width > 1 else ("", 0, 0, "end"),
    ]
    return "".join(
        f'<text x="{at:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        for text, at, y, anchor in labels
        if text
    )


def _windows(errors: ErrorMap, x: float, y: float) -> str:
    if errors.problem is None or not errors.problem.gradient:  # a forward's map is of its windows already
        return ""
    _, h, w = (tables(axis) for axis in errors.problem.axes)
    _, outputs_h, outputs_w = errors.problem.output_plane
    parts = []
    if outputs_h * outputs_w <= _MOST_WINDOWS:
        parts.append(_boxes("window", h, w, range(outputs_h), range(outputs_w), x, y))
    if errors.worst:
        row, column = errors.worst[0].position[3:]
        rows, columns = (
            range(int(t.first_window[i]), int(t.first_window[i] + t.window_count[i]))[:_MOST_HELD]
            for t, i in ((h, row), (w, column))
        )
        parts.append(_boxes("held", h, w, rows, columns, x, y))
        parts.append(f'<path class="cell" d="M{column * x:g} {row * y:g}h{x:g}v{y:g}h{-x:g}z"/>')
    return "".join(parts)


def _boxes(kind: str, h: Tables, w: Tables, rows: Iterable[int], columns: Any, x: float, y: float) -> str:
    boxes = []
    for oh in rows:
        top, tall = h.start[oh] * y, (h.end[oh] - h.start[oh]) * y
        for ow in columns:
            left, wide = w.start[ow] * x, (w.end[ow] - w.start[ow]) * x
            boxes.append(f"M{left:g} {top:g}h{wide:g}v{tall:g}h{-wide:g}z")
    return f'<path class="{kind}" d="{"".join(boxes)}"/>'


def _windows_note(errors: ErrorMap) -> str:
    if errors.problem is None:
        return " No case is known, so no windows are drawn."
    if not errors.problem.gradient:
        return " Each cell is a window of the pool."
    return " Blue: the windows that hold the worst cell, which is framed in black." if errors.worst else ""


def _histogram(histogram: Sequence[int], misplaced: int) -> str:
    """Bars on a logarithmic scale, which shows one wrong cell among a million."""
    if not histogram:
        return ""
    names = bin_names()
    bars = []
    for group in _GROUPS:
        first, last = names[group[0]], names[group[-1]]
        name = first if first == last else f"{first.split('–')[0]}–{last.split('–')[-1]}"
        bars.append((name, sum(histogram[group[0] : group[-1] + 1]), ""))
    while len(bars) > 2 and bars[-1][1] == 0:
        bars.pop()
    if misplaced:
        bars.append(("NaN or Inf out of place", misplaced, "fail"))
    tallest = np.log10(1 + max(n for _, n, _ in bars)) or 1.0
    rows = "".join(
        f'<b>{name}</b><i class="{kind}" style="width:{np.log10(1 + n) / tallest:.1%}"></i><span>{n}</span>'
        for name, n, kind in bars
    )
    return (
        f'<figure><div class="histogram">{rows}</div><figcaption>Cells by their distance from the golden '
        f"value in ULPs; the bars are logarithmic.</figcaption></figure>"
    )


def _worst(errors: ErrorMap) -> str:
    if not errors.worst:
        return ""
    axes = ("n", "c", *errors.axes)
    labels = (", ".join(axes), "result", "golden", "ULP", "terms")
    head = "".join(f"<th>{label}</th>" for label in labels)
    forward = errors.problem is not None and not errors.problem.gradient
    source = "the input" if forward else "grad_output"
    rows = "".join(_cell(cell, labels, len(axes)) for cell in errors.worst)
    return (
        f"<h3>The worst cells</h3><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f'<p class="faint">A term is an element of {source}, by its position and value.</p>'
    )


def _cell(cell: Cell, labels: Sequence[str], axes: int) -> str:
    ulp = "out of place" if isinf(cell.ulp) else f"{cell.ulp:.0f}"
    values = (
        _position(cell.position, axes),
        _number(cell.actual),
        _number(cell.golden),
        ulp,
        _terms(cell, axes - 2),
    )
    kinds = ("", "number", "number", "number", "")
    cells = [
        f'<td data-label="{label}" class="{kind}">{escape(value)}</td>'
        for label, value, kind in zip(labels, values, kinds, strict=True)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _number(value: float) -> str:
    """All digits that tell a value from the next one: nine of a float32."""
    with np.errstate(over="ignore"):
        narrow = np.isnan(value) or float(np.float32(value)) == value
    return f"{value:.9g}" if narrow else repr(value)


def _terms(cell: Cell, axes: int) -> str:
    terms = [
        f"({', '.join(map(str, t.position[-axes:]))})" + ("" if t.value is None else f" {t.value:.6g}")
        for t in cell.terms
    ]
    more = [f"… and {cell.more} more"] if cell.more else []
    return "; ".join(terms + more) or "none"


def _position(position: tuple[int, ...], axes: int) -> str:
    """(n, c, d, h, w) without the axes that the case does not have."""
    return ", ".join(map(str, (*position[:2], *position[2:][-(axes - 2) :])))
