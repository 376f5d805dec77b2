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
from .chinese import both, spoken
from .errormap import Cell, ErrorMap
from .ulps import bin_names

if TYPE_CHECKING:
    from .report_rows import Entry

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
_KINDS = ("", "number", "number", "number", "")  # of the columns of the worst cells


def section(entry: Entry, *, opened: bool) -> str:
    """`opened`: the details are shown at once."""
    name = escape(entry.name)
    details = [_verdicts(entry.verdicts)]
    errors = entry.errors() if entry.errors is not None else None
    if errors:
        details += ['<div class="figures">', _heat_map(errors)]
    details.append(_histogram(entry.histogram, entry.misplaced))
    if errors:
        details += ["</div>", _worst(errors)]
    where = both("Where the errors are", "误差在哪里")
    return (
        f'<section class="case" id="case-{name}">'
        f'<h2>{name} <span class="badge {entry.status}">{entry.status}</span></h2>'
        f'<p class="reason">{spoken(entry.why)}</p><p><code>{escape(entry.case)}</code></p>'
        f"<details{' open' if opened else ''}><summary>{where}</summary>"
        f"{''.join(details)}</details>"
        f"<pre>{escape(entry.reproduce)}</pre></section>"
    )


def _verdicts(verdicts: Sequence[tuple[str, str, str]]) -> str:
    if not verdicts:
        return ""
    rows = "".join(
        f'<tr><td class="word" data-label="standard">{escape(name)}</td>'
        f'<td class="{status.lower()}">{escape(status)}</td><td>{spoken(text)}</td></tr>'
        for name, status, text in verdicts
    )
    heads = (both("standard", "标准"), both("verdict", "结论"), both("figures", "指标"))
    head = f"<thead><tr>{''.join(f'<th>{text}</th>' for text in heads)}</tr></thead>"
    title = both("All verdicts", "所有结论")
    return f"<details><summary>{title}</summary><table>{head}<tbody>{rows}</tbody></table></details>"


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
    nonfinite = bool(np.isinf(shown).any())
    left, wide = _room(vertical, horizontal, height, across)
    caption = _caption(errors, depth, "NaN or Inf" if nonfinite else f"{finite:.0f} ULP")
    return (
        f'<figure><svg class="heat" role="img" aria-label="Map of the errors" '
        f'viewBox="{-left} -4 {wide:.0f} {down + 34:.0f}" '
        f'width="{wide:.0f}" height="{down + 34:.0f}">'
        f'<image href="data:image/png;base64,{image}" width="{across:g}" height="{down:g}" '
        f'preserveAspectRatio="none"/><path class="edge" d="M0 0h{across:g}v{down:g}h{-across:g}z"/>'
        f"{_windows(errors, x, y)}{_ticks(vertical, horizontal, height, width, across, down)}</svg>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _caption(errors: ErrorMap, depth: int, darkest: str) -> str:
    """`darkest`: what the darkest cells of the map have."""
    height, width = errors.errors.shape[1:]
    slices, (vertical, horizontal) = len(errors.errors), ("", *errors.axes)[-2:]
    where = f"{errors.axes[0]} = {depth} of 0 to {slices - 1}, " if slices > 1 else ""
    there = f"{errors.axes[0]} = {depth}（0 到 {slices - 1}），" if slices > 1 else ""
    down_and = f"{vertical} down and " if vertical else ""
    down = f"纵向为 {vertical}，" if vertical else ""
    note, other = _windows_note(errors)
    out, beside = (" out of place", " 位置不对") if "NaN" in darkest else ("", "")
    return both(
        f"Largest error over all planes, {where}{height}×{width} cells, {down_and}{horizontal} across. "
        f"White: no error; darkest: {darkest}{out}.{note}",
        f"所有平面中的最大误差，{there}{height}×{width} 个元素，{down}横向为 {horizontal}。"
        f"白色：无误差；最深：{darkest}{beside}。{other}",
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


def _windows_note(errors: ErrorMap) -> tuple[str, str]:
    """In English and Chinese."""
    if errors.problem is None:
        return " No case is known, so no windows are drawn.", "用例未知，因此没有画出窗口。"
    if not errors.problem.gradient:
        return " Each cell is a window of the pool.", "每个元素是池化的一个窗口。"
    if not errors.worst:
        return "", ""
    english = " Blue: the windows that hold the worst cell, which is framed in black."
    return english, "蓝色：覆盖最差元素的窗口；该元素用黑框标出。"


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
        bars.append((both("NaN or Inf out of place", "NaN 或 Inf 位置不对"), misplaced, "fail"))
    tallest = np.log10(1 + max(n for _, n, _ in bars)) or 1.0
    rows = "".join(
        f'<b>{name}</b><i class="{kind}" style="width:{np.log10(1 + n) / tallest:.1%}"></i><span>{n}</span>'
        for name, n, kind in bars
    )
    caption = both(
        "Cells by their distance from the golden value in ULPs; the bars are logarithmic.",
        "按与标杆值的距离（ULP）统计的元素个数；条形长度为对数。",
    )
    return f'<figure><div class="histogram">{rows}</div><figcaption>{caption}</figcaption></figure>'


def _worst(errors: ErrorMap) -> str:
    if not errors.worst:
        return ""
    axes = ("n", "c", *errors.axes)
    place = ", ".join(axes)
    labels = ((place, place), ("result", "结果"), ("golden", "标杆"), ("ULP", "ULP"), ("terms", "各项"))
    head = "".join(
        f'<th class="{kind}">{both(*label)}</th>' for label, kind in zip(labels, _KINDS, strict=True)
    )
    forward = errors.problem is not None and not errors.problem.gradient
    source, other = ("the input", "输入") if forward else ("grad_output", "grad_output")
    title = both("The worst cells", "误差最大的元素")
    note = both(
        f"A term is an element of {source}, by its position and value.",
        f"每一项是 {other} 的一个元素：位置和数值。",
    )
    rows = "".join(_cell(cell, labels, len(axes)) for cell in errors.worst)
    return (
        f"<h3>{title}</h3><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f'<p class="faint">{note}</p>'
    )


def _cell(cell: Cell, labels: Sequence[tuple[str, str]], axes: int) -> str:
    ulp = both("out of place", "位置不对") if isinf(cell.ulp) else f"{cell.ulp:.0f}"
    values = (
        _position(cell.position, axes),
        _number(cell.actual),
        _number(cell.golden),
        ulp,
        _terms(cell, axes - 2),
    )
    cells = [
        f'<td data-label="{english}" data-zh="{other}" class="{kind}">{value}</td>'
        for (english, other), value, kind in zip(labels, values, _KINDS, strict=True)
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
    more = [both(f"… and {cell.more} more", f"…另有 {cell.more} 项")] if cell.more else []
    return "; ".join(terms + more) or both("none", "无")


def _position(position: tuple[int, ...], axes: int) -> str:
    """(n, c, d, h, w) without the axes that the case does not have."""
    return ", ".join(map(str, (*position[:2], *position[2:][-(axes - 2) :])))
