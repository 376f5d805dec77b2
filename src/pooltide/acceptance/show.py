"""Draws a case as four panels of one (h, w) plane: windows, coverage, what is read and what is computed.

The last two are grad_output and grad_input, or the input and output of a forward. The coverage of a cell is
the number of windows that hold it. A volume is drawn as one slice: input depth d, and the middle one of the
windows that hold d. The values are those of the first plane of the case, drawn from its seed. Of a pool over
regions of interest, show_regions.py draws the regions in place of windows.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..geometry import Axis, Tables, cells_of_windows, tables
from ..problem.problem import Problem
from ..problem.regions import RegionProblem
from .inputs import draw, source_plane
from .notation import Case
from .oracle import golden_result
from .panels import Panel, Undrawable, arranged, coverage, signed
from .picture import SERIES, Lines, Picture, box
from .show_regions import draw_regions
from .trial import problem_of

_LARGEST = 1024  # cells along a side
_MOST_WINDOWS = 1 << 16


def draw_case(case: Case, depth: int | None = None) -> Picture:
    problem = problem_of(case)
    if isinstance(problem, RegionProblem):
        return draw_regions(case, problem)
    check_drawable(problem, depth)
    _check_size(problem)
    d, h, w = (tables(axis) for axis in problem.axes)
    depth = problem.axes[0].length // 2 if depth is None else depth
    one = replace(problem, batch=(1, 1))
    source, indices = draw(one, case.data)
    result = golden_result(one, source, indices).values
    held = min(int(d.first_window[depth] + d.window_count[depth] // 2), problem.output_plane[0] - 1)
    cells, windows = (result, source) if source_plane(one) == one.output_plane else (source, result)
    deep, high, wide = (_coverage_along(axis) for axis in problem.axes)
    inside, outside = cells[0, 0, depth], windows[0, 0, held]
    named = [("grad output", outside), ("grad input", inside)] if problem.gradient else []
    panels = [
        _windows(h, w),
        coverage(int(deep[depth]) * np.outer(high, wide)),
        *(signed(name, values) for name, values in named or [("input", inside), ("output", outside)]),
    ]
    where = f", slice d={depth} of {problem.axes[0].length}" if problem.axes[0].length > 1 else ""
    vertical, horizontal = ("", *case.operator.axes)[-2:]
    return arranged(str(case), where, panels, (vertical, horizontal))


def check_drawable(problem: Problem, depth: int | None) -> None:
    """Raises Undrawable if the problem has no windows with cells, or no slice `depth`."""
    if 0 in (problem.planes, *problem.input_plane, *problem.output_plane):
        raise Undrawable("the case has no cell; a picture needs one")
    if problem.unpool:
        raise Undrawable("an unpool has no windows; a picture needs some")
    if depth is not None and not 0 <= depth < problem.axes[0].length:
        raise Undrawable(f"the slice is {depth}; it must be 0 to {problem.axes[0].length - 1}")


def _check_size(problem: Problem) -> None:
    for name, (_, h, w) in (("input", problem.input_plane), ("output", problem.output_plane)):
        if max(h, w) > _LARGEST:
            raise Undrawable(f"the {name}'s plane is {h}×{w}; a picture has at most {_LARGEST} cells a side")
    if (windows := prod(problem.output_plane[1:])) > _MOST_WINDOWS:
        raise Undrawable(f"the plane has {windows} windows; a picture has at most {_MOST_WINDOWS}")


def _windows(h: Tables, w: Tables) -> Panel:
    """The outlines of all windows, each a little smaller than its neighbours, so that none hides another."""
    rows, columns = h.first_window.size, w.first_window.size
    outlines = [Lines([], colour, 1.5) for colour in SERIES]
    for oh, ow in product(range(h.start.size), range(w.start.size)):
        inset = (1 + oh % 2 + 2 * (ow % 2)) * 0.06
        top, left, bottom, right = (int(edge) for edge in (h.start[oh], w.start[ow], h.end[oh], w.end[ow]))
        sides = (left + inset, top + inset, right - left - 2 * inset, bottom - top - 2 * inset)
        outlines[(oh * 3 + ow) % len(SERIES)].polylines.append(box(*sides))
    return Panel(
        f"windows, {h.start.size}×{w.start.size}", np.full((rows, columns, 3), 255, np.uint8), outlines
    )


def _coverage_along(axis: Axis) -> NDArray[np.int64]:
    """How many windows of the axis read each cell; cells that dilation skips are not read."""
    counts = np.zeros(axis.length, np.int64)
    for first, cells in zip(*cells_of_windows(axis), strict=True):
        counts[first : first + cells * axis.dilation : axis.dilation] += 1
    return counts
