"""Draws a case as four panels of one (h, w) plane: windows, coverage, what is read and what is computed.

These two are grad_output and grad_input, or the input and output of a forward. The coverage of a cell is the
number of windows that hold it. A volume is drawn as one slice: input depth d, and the middle one of the
windows that hold d. The values are those of the first plane of the case, drawn from its seed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..geometry import Tables, tables
from ..problem.problem import Problem
from . import picture
from .inputs import draw, source_plane
from .notation import Case
from .oracle import golden_result
from .picture import INK, SERIES, Canvas
from .trial import problem_of

_GAP, _HEAD = 24, 40
_PANEL = 480  # pixels of the longer side of a panel, where cells can be that small
_LARGEST = 1024  # cells along a side
_MOST_WINDOWS = 1 << 16
_GRID: picture.Colour = (225, 225, 225)


class Undrawable(ValueError):
    """A case that can't be drawn; the text says why."""


def draw_case(case: Case, depth: int | None = None) -> Canvas:
    problem = problem_of(case)
    _check(problem, depth)
    d, h, w = (tables(axis) for axis in problem.axes)
    depth = problem.axes[0].length // 2 if depth is None else depth
    one = replace(problem, batch=(1, 1))
    source, indices = draw(one, case.data)
    result = golden_result(one, source, indices).values
    held = min(int(d.first_window[depth] + d.window_count[depth] // 2), problem.output_plane[0] - 1)
    cells, windows = (result, source) if source_plane(one) == one.output_plane else (source, result)
    of_windows = windows[0, 0, held].astype(np.float64)
    scale = max(1, min(40, _PANEL // max(h.first_window.size, w.first_window.size)))
    coverage = int(d.window_count[depth]) * np.outer(h.window_count, w.window_count)
    inside = _gridded(_signed(cells[0, 0, depth].astype(np.float64), scale), scale)
    outside = _signed(of_windows, _fitting(of_windows, h.first_window.size * scale))
    named = [("grad output", outside), ("grad input", inside)] if problem.gradient else []
    panels = [
        ("windows", _windows(h, w, scale)),
        (f"coverage, at most {coverage.max()}", _numbers(coverage, scale)),
        *(named or [("input", inside), ("output", outside)]),
    ]
    where = f" slice d={depth} of {problem.axes[0].length}" if problem.axes[0].length > 1 else ""
    return _side_by_side(f"{case}{where}", panels)


def _check(problem: Problem, depth: int | None) -> None:
    if 0 in (problem.planes, *problem.input_plane, *problem.output_plane):
        raise Undrawable("the case has no cell; a picture needs one")
    for name, (_, h, w) in (("input", problem.input_plane), ("output", problem.output_plane)):
        if max(h, w) > _LARGEST:
            raise Undrawable(f"the {name}'s plane is {h}×{w}; a picture has at most {_LARGEST} cells a side")
    if (windows := prod(problem.output_plane[1:])) > _MOST_WINDOWS:
        raise Undrawable(f"the plane has {windows} windows; a picture has at most {_MOST_WINDOWS}")
    if problem.kind.startswith("unpool"):
        raise Undrawable("an unpool has no windows; a picture needs some")
    if depth is not None and not 0 <= depth < problem.axes[0].length:
        raise Undrawable(f"the slice is {depth}; it must be 0 to {problem.axes[0].length - 1}")


def _windows(h: Tables, w: Tables, scale: int) -> Canvas:
    """The outlines of all windows, each a little smaller than its neighbours, so that none hides another."""
    canvas = _gridded(picture.blank(h.first_window.size * scale, w.first_window.size * scale), scale)
    for oh, ow in product(range(h.start.size), range(w.start.size)):
        inset = (oh % 2 + 2 * (ow % 2)) if scale >= 12 else 0
        edges = (h.start[oh], w.start[ow], h.end[oh], w.end[ow])
        top, left, bottom, right = (int(edge) * scale for edge in edges)
        colour = SERIES[(oh * 3 + ow) % len(SERIES)]
        for line in range(2 if scale >= 12 else 1):
            at = inset * 2 + line
            picture.frame(canvas, top + at, left + at, bottom - at, right - at, colour)
    return canvas


def _numbers(counts: NDArray[Any], scale: int) -> Canvas:
    canvas = _gridded(picture.enlarge(picture.heat(counts / max(counts.max(), 1)), scale), scale)
    size = 2 if scale >= 24 else 1
    if scale < 12:
        return canvas
    for (y, x), count in np.ndenumerate(counts):
        word = str(count)
        if picture.text_width(word, size) <= scale:
            left = x * scale + (scale - picture.text_width(word, size)) // 2 + size // 2
            colour = INK if count <= counts.max() * 0.6 else picture.PAPER
            picture.text(canvas, word, y * scale + (scale - 5 * size) // 2, left, colour, size)
    return canvas


def _signed(values: NDArray[np.float64], scale: int) -> Canvas:
    finite = np.abs(values[np.isfinite(values)])
    largest = finite.max(initial=0) or 1.0
    return picture.enlarge(picture.heat(np.clip(values / largest, -1, 1)), scale)


def _fitting(values: NDArray[Any], height: int) -> int:
    rows, columns = (int(size) for size in values.shape)
    return max(1, min(40, height // rows, _PANEL // max(rows, columns)))


def _gridded(canvas: Canvas, scale: int) -> Canvas:
    if scale >= 6:
        canvas[::scale] = _GRID
        canvas[:, ::scale] = _GRID
    return canvas


def _side_by_side(title: str, panels: list[tuple[str, Canvas]]) -> Canvas:
    columns = [max(part.shape[1], picture.text_width(name)) for name, part in panels]
    width = max(sum(columns) + _GAP * (len(panels) + 1), picture.text_width(title) + 2 * _GAP)
    height = max(part.shape[0] for _, part in panels) + 2 * _HEAD + _GAP
    canvas = picture.blank(height, width)
    picture.text(canvas, title, _HEAD // 2, _GAP)
    x = _GAP
    for (name, part), column in zip(panels, columns, strict=True):
        picture.text(canvas, name, _HEAD + _HEAD // 2, x)
        picture.paste(canvas, part, 2 * _HEAD, x)
        picture.frame(canvas, 2 * _HEAD - 1, x - 1, 2 * _HEAD + part.shape[0] + 1, x + part.shape[1] + 1, INK)
        x += column + _GAP
    return canvas
