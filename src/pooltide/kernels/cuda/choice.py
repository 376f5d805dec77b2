"""Chooses the GPU kernel of a problem: the first kernel of its kind that does not refuse. Uses no device.

`refuse` returns the reason why no kernel can compute a problem, or None if one can.
`plan` returns the launches of the chosen kernel.
`kernels` returns the names of the kernels up to the chosen one, each with the reason against it.
A launch of a forward takes the tensors x and out, and for maxima with indices or offsets a third tensor for
these. A result without elements needs no launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ...problem.problem import Problem
from .average_plan import column_average, mean_average, wide_average
from .axis_plan import axis_maximum
from .channel_plan import channel_maximum
from .dense_plan import dense_average
from .disjoint_plan import scatter_disjoint
from .driver import DeviceFacts
from .flat_plan import flat_average
from .general_plan import general
from .maximum_plan import direct_maximum, reduced_maximum, rolling_maximum, sectioned_maximum
from .rolling_plan import filled_average, rolling_average
from .scatter_plan import gather_channels, scatter_bands, scatter_channels, scatter_planes
from .sparse_plan import scatter_few
from .staged_plan import direct_average
from .staged_plan import staged_average as staged_average_gradient
from .task import Launch, Planner, Task
from .tile_plan import staged_average, staged_maximum
from .volume_plan import scatter_volumes
from .walk_plan import walk_channels

LAYOUTS = frozenset({"planes", "channels_last"})
_MOST = 2**30  # elements of a plane, or of an image whose channels are innermost
# The last but one kernel of a kind refuses nothing. The general one after it is never chosen: it computes
# while the chosen kernel is compiled (launch.py).
KERNELS: dict[str, tuple[tuple[str, Planner], ...]] = {
    "average_gradient": (
        ("filled average", filled_average),
        ("flat average", flat_average),
        ("rolling average", rolling_average),
        ("dense average", dense_average),
        ("staged average", staged_average_gradient),
        ("direct average", direct_average),
        ("general gradient of averages", general),
    ),
    "maximum_gradient": (
        ("scatter of few windows", scatter_few),
        ("scatter of whole planes", scatter_planes),
        ("gather of channels", gather_channels),
        ("scatter of disjoint windows", scatter_disjoint),
        ("scatter of channels in volumes", walk_channels),
        ("scatter of channels", scatter_channels),
        ("scatter of volumes", scatter_volumes),
        ("scatter of bands", scatter_bands),
        ("general gradient of maxima", general),
    ),
    "maximum": (
        ("staged maximum", staged_maximum),
        ("maximum by axes", axis_maximum),
        ("maximum of channels", channel_maximum),
        ("maximum of shared windows", reduced_maximum),
        ("rolling maximum", rolling_maximum),
        ("sectioned maximum", sectioned_maximum),
        ("direct maximum", direct_maximum),
        ("general maximum", general),
    ),
    "average": (
        ("mean of planes", mean_average),
        ("average of staged windows", staged_average),
        ("average of wide windows", wide_average),
        ("average of columns", column_average),
        ("general average", general),
    ),
}


def refuse(problem: Problem, layout: str = "planes") -> str | None:
    if problem.kind not in KERNELS:
        return f"it has no kernel for the kind {problem.kind}"
    inner = problem.batch[1] if layout == "channels_last" else 1
    if max(prod(problem.input_plane), prod(problem.output_plane)) * inner > _MOST:
        return f"{'an image' if inner > 1 else 'a plane'} has more than {_MOST} elements"
    if max(max(axis.reach, axis.s, axis.p) for axis in problem.axes) > _MOST:
        return f"a window, a stride or a padding is longer than {_MOST} cells"
    if problem.rounding != "keep":
        return f"it does not round gradOutput to {problem.rounding}"
    return None


def plan(problem: Problem, layout: str, facts: DeviceFacts, aligned: bool = True) -> tuple[Launch, ...]:
    """The launches of the chosen kernel. `aligned`: tensors begin at multiples of 16 bytes."""
    for _, found in _walk(Task(problem, layout, facts, aligned)):
        if not isinstance(found, str):
            return found
    raise AssertionError("the last but one kernel of a kind refuses nothing")


def kernels(problem: Problem, layout: str, facts: DeviceFacts) -> list[tuple[str, str | None]]:
    """The kernels up to the chosen one, each with the reason against it; None: it is chosen."""
    walked = _walk(Task(problem, layout, facts))
    return [(name, found if isinstance(found, str) else None) for name, found in walked]


def _walk(task: Task) -> Iterator[tuple[str, tuple[Launch, ...] | str]]:
    for name, planner in KERNELS[task.problem.kind]:
        found = planner(task)
        yield name, found
        if not isinstance(found, str):
            return
