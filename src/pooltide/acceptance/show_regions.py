"""Draws a case of a pool over regions of interest, in four panels.

They are the boxes of the first image that has some, how many regions reach each cell, and the values of the
first of these regions and of the image.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.regions.reference import cells_of_bin, samples_of_bin
from ..operators.pages import HOST
from ..problem.regions import RegionProblem
from .inputs import draw
from .notation import Case
from .oracle import golden_result
from .panels import Panel, Undrawable, arranged, coverage, signed
from .picture import SERIES, Lines, Picture, box
from .trial import checked_boxes

Array = NDArray[Any]
_LARGEST = 1024  # cells along a side
_MOST_BINS = 1 << 16  # of all regions


def draw_regions(case: Case, problem: RegionProblem) -> Picture:
    if problem.empty:
        raise Undrawable("the case has no cell or no region; a picture needs one")
    if max(problem.plane) > _LARGEST:
        size = "×".join(map(str, problem.plane))
        raise Undrawable(f"the plane is {size}; a picture has at most {_LARGEST} cells a side")
    if (bins := problem.regions * prod(problem.bins)) > _MOST_BINS:
        raise Undrawable(f"the regions have {bins} bins; a picture has at most {_MOST_BINS}")
    boxes = checked_boxes(problem, case.call(HOST), case)
    assert boxes is not None
    source, indices = draw(problem, case.data)
    result = golden_result(problem, source, indices, boxes).values
    image = int(boxes[0, 0])
    own = np.flatnonzero(boxes[:, 0] == image)
    cells, pooled = (result, source) if problem.gradient else (source, result)
    inside = (f"grad input, image {image}" if problem.gradient else f"input, image {image}"), cells[image, 0]
    outside = ("grad output" if problem.gradient else "output") + f", region {own[0]}", pooled[own[0], 0]
    reached = np.sum([reach(problem, row) for row in boxes[own]], 0)
    panels = [
        _outlines(problem, boxes[own], f"boxes, {len(own)} of image {image}"),
        coverage(reached, "regions that reach a cell"),
        *(
            signed(name, values)
            for name, values in ([outside, inside] if problem.gradient else [inside, outside])
        ),
    ]
    vertical, horizontal = case.operator.axes[-2:]
    return arranged(str(case), "", panels, (vertical, horizontal))


def reach(problem: RegionProblem, box: Array) -> NDArray[np.int64]:
    """1 for each cell of the plane that a region reads, or that its gradient goes to."""
    reached = np.zeros(problem.plane, np.int64)
    with np.errstate(all="ignore"):
        for ph, pw in np.ndindex(problem.bins):
            if problem.sampled:
                for corners in samples_of_bin(problem, box, ph, pw):
                    reached[np.ix_(corners[0], corners[1])] = 1
            else:
                rows, columns = cells_of_bin(problem, box, ph, pw)
                reached[rows.start : rows.stop, columns.start : columns.stop] = 1
    return reached


def _outlines(problem: RegionProblem, boxes: Array, title: str) -> Panel:
    """The boxes, in cells, as far as they are inside the plane; the first with its bins."""
    height, width = problem.plane
    # A position counts from the middle of the first cell, or, of an aligned pool, from its edge.
    shift = 0.0 if problem.aligned or not problem.sampled else 0.5
    with np.errstate(all="ignore"):
        corners = np.nan_to_num(boxes[:, 1:].astype(np.float64) * problem.spatial_scale + shift)
    corners = np.clip(corners, 0, [width, height, width, height])
    lines = [Lines([], colour, 1.5) for colour in SERIES]
    for at, (left, top, right, bottom) in enumerate(corners):
        lines[at % len(lines)].polylines.append(box(left, top, right - left, bottom - top))
    left, top, right, bottom = corners[0]
    rows, columns = (
        np.linspace(*ends, bins + 1)[1:-1]
        for ends, bins in zip(((top, bottom), (left, right)), problem.bins, strict=True)
    )
    inner = [[(left, y), (right, y)] for y in rows] + [[(x, top), (x, bottom)] for x in columns]
    return Panel(title, np.full((height, width, 3), 255, np.uint8), [*lines, Lines(inner, SERIES[0], 0.75)])
