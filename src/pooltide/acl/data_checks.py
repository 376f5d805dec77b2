"""Takes the data of a job that has computed: indices, inputs of maxima, and boxes.

Returns faults of data that no correct program has, though the job can use them. It must not change data.

At the level strict all data are checked, at warn the first _SAMPLE elements: so the check of a large job
takes no longer than that of a small one.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import cached
from ..geometry import Axis, spans
from ..operators.pages import Operator
from ..problem.problem import Problem
from ..problem.regions import RegionProblem
from .state import edition_from

Array = NDArray[Any]
_SAMPLE = 1 << 8
_MAX_TABLE = 1 << 20  # bytes of a table of the cells of windows


def checked_role(operator: Operator, product: str, problem: Problem) -> str | None:
    """The role of the array whose values `data_fault` looks at; None if there is none."""
    if problem.kind == "maximum_gradient" and not operator.masked:
        return "indices"
    return "input" if product in operator.finite_on else None


def data_fault(
    operator: Operator, problem: Problem, role: str, volume: Array, rank: int, checks: str
) -> tuple[str, str] | None:
    """What is wrong with indices, or with values that the document forbids, and the effect; None if nothing.

    `volume` is the array of the role, with axes N C D H W; `rank` is that of the tensor.
    """
    whole = checks == "strict"
    if role == "indices":
        if (found := _outside_window(problem, volume, whole=whole)) is None:
            return None
        count, at, value = found
        more = f" ({count} such indices were found)" if count > 1 else ""
        axes = len(operator.axes)
        shown = [*at[2 - (rank - axes) : 2], *at[5 - axes :]]  # without the axes that the tensors do not have
        text = f"{_name(operator, role)}{shown} is {value}, a cell outside the window of that place"
        must = f"it must be an index that the forward returned{more}"
        return f"{text}; {must}.", " The gradient goes to that cell."
    if not edition_from(operator.finite_from) or (kind := _forbidden(volume, whole=whole)) is None:
        return None
    must = f"since CANN {operator.finite_from} it must have neither NaN nor -Inf on this product"
    return f"{_name(operator, role)} has {kind}; {must}.", " The result is that of PyTorch."


def _name(operator: Operator, role: str) -> str:
    return next(p.name for p in operator.parameters if p.role == role)


def _sample(array: Array, *, whole: bool) -> Array:
    """The first planes of an array, and of one plane the first rows, that have about _SAMPLE elements."""
    if whole or array.size <= _SAMPLE:
        return array
    c, d, h, w = array.shape[1:]
    planes = max(_SAMPLE // max(d * h * w, 1), 1)
    rows = max(_SAMPLE // w, 1)
    return array[: max(planes // c, 1), :planes, : max(rows // h, 1), :rows]


@cached(lambda tables: tuple(table for pair in tables for table in pair))
def _windows(axes: tuple[Axis, Axis, Axis]) -> tuple[tuple[Array, Array], ...]:
    """The start and the length of each axis's windows, shaped as their axis of a volume."""
    shapes = ((-1, 1, 1), (-1, 1), (-1,))
    found = []
    for axis, shape in zip(axes, shapes, strict=True):
        start, end, _ = spans(axis)
        found.append((start.reshape(shape), (end - start).astype(np.uint64).reshape(shape)))
    return tuple(found)


@cached(lambda tables: tables or ())
def _cells(
    axes: tuple[Axis, Axis, Axis], plane: tuple[int, ...], windows: tuple[int, ...]
) -> tuple[Array, Array] | None:
    """Whether each cell of the plane is in each of the first windows, flat, and where a window's cells begin.

    None where the table is too large.
    """
    if prod(plane) * prod(windows) > _MAX_TABLE:
        return None
    cells = np.arange(prod(plane)).reshape(-1, *(1,) * len(windows))
    table = _inside(axes, plane, np.broadcast_to(cells, (prod(plane), *windows)))
    first = np.arange(prod(windows)).reshape(windows) * prod(plane)
    return np.ascontiguousarray(np.moveaxis(table, 0, -1)).reshape(-1), first


def _inside(axes: tuple[Axis, Axis, Axis], plane: tuple[int, ...], indices: Array) -> Array:
    """Whether each index is a cell of its window. The last three axes are those of the first windows."""
    rest: Any = indices.astype(np.int64)
    inside: Array = np.ones((), np.bool_)
    for axis, (start, length) in reversed(list(enumerate(_windows(axes)))):
        rest, cell = (0, rest) if axis == 0 else np.divmod(rest, plane[axis])
        index = (slice(indices.shape[axis - 3]), *(slice(None),) * (2 - axis))
        inside = inside & ((cell - start[index]).view(np.uint64) < length[index])
    return inside


def _outside_window(
    problem: Problem, indices: Array, *, whole: bool
) -> tuple[int, tuple[int, ...], int] | None:
    """(how many, where the first is, its value) of indices in the plane, but outside their windows."""
    part = _sample(indices, whole=whole)
    if part.size == 0:
        return None
    axes, plane = problem.axes, problem.input_plane
    if (found := _cells(axes, plane, part.shape[2:])) is not None:
        table, first = found
        if b"\0" not in table.take(part + first, mode="clip").tobytes():  # faster than all()
            return None
    flat = part.astype(np.int64)
    wrong = ~_inside(axes, plane, flat) & (flat >= 0) & (flat < prod(plane))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    return int(np.count_nonzero(wrong)), at, int(flat[at])


def _forbidden(values: Array, *, whole: bool) -> str | None:
    """ "NaN" or "-Inf", if the values have one."""
    part = _sample(values, whole=whole)
    if bool(np.isnan(part).any()):
        return "NaN"
    return "-Inf" if bool((part == -np.inf).any()) else None


def box_fault(
    operator: Operator, problem: RegionProblem, boxes: Array, *, whole: bool
) -> tuple[str, str] | None:
    """As `data_fault`, of boxes as rows of the image's number, x1, y1, x2, y2."""
    part = boxes if whole else boxes[: _SAMPLE // 5]
    images, name = problem.batch[0], _name(operator, "boxes")
    numbers = operator.by_role("box_images")
    place = "[{}, 0]" if numbers is None else "[{}]"
    bad: Any = ~((part[:, 0] >= 0) & (part[:, 0] < images))
    if bad.any():
        at, more = _first_of(bad, "boxes")
        text = f"{name if numbers is None else numbers.name}{place.format(at)} is {part[at, 0]:g}"
        must = f"it must be 0 to {images - 1}, the number of an image{more}"
        return f"{text}; {must}.", " The region is 0, and adds nothing to a gradient."
    corners = part[:, 1:]
    bad = np.isnan(corners).any(1)
    if bad.any():
        at, more = _first_of(bad, "boxes")
        return f"{name}[{at}] has NaN; it must have numbers{more}.", " The region has no sample."
    if not operator.boxes_from or not edition_from(operator.boxes_from):
        return None
    scale, (height, width) = part.dtype.type(problem.spatial_scale), problem.plane
    with np.errstate(all="ignore"):
        # The scale is rounded, so the sides of an image are, too.
        far = corners[:, 2:] * scale > np.array([width, height]) * (1 + 2.0**-20)
    bad = (corners[:, :2] < 0).any(1) | (corners[:, :2] > corners[:, 2:]).any(1) | far.any(1)
    if not bad.any():
        return None
    at, more = _first_of(bad, "boxes")
    box = ", ".join(f"{value:g}" for value in corners[at])
    since = f"since CANN {operator.boxes_from} it must have"
    must = f"{since} 0 <= x1 <= x2 <= {width} / spatialScale, and y alike{more}"
    return f"{name}[{at}] is ({box}); {must}.", " The result is that of torchvision."


def _first_of(bad: Array, what: str) -> tuple[int, str]:
    """Where the first is, and how many there are in words."""
    count = int(np.count_nonzero(bad))
    return int(np.argmax(bad)), f" ({count} such {what} were found)" if count > 1 else ""
