"""How kernels of maxima write the places of cells: indices in the plane, or offsets in the window."""

from __future__ import annotations

from ..task import Task
from ..windows.columns import Windows

PLACES = tuple(
    ("int", name) for name in ("dilation_d", "dilation_h", "dilation_w", "place_d", "place_h", "place_w")
)


def places_of(offsets: bool, axes: tuple[Windows, ...]) -> tuple[int, ...]:
    """The dilations, and how far places are apart: slice to slice, row to row, cell to cell of a window."""
    _, h, w = axes
    dilations = tuple(axis.dilation for axis in axes)
    if offsets:
        return *dilations, h.most * w.most, w.most, 1
    return *dilations, dilations[0] * h.length * w.length, dilations[1] * w.length, dilations[2]


def index_parameter(task: Task) -> tuple[tuple[str, str], ...]:
    return (("Index*", "places"),) if task.problem.index_bytes else ()
