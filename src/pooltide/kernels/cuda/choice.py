"""Chooses the GPU kernel of a problem: the one with the least estimated time (cost.py). Uses no device.

`refuse` returns the reason why no kernel can compute a problem, or None if one can.
`plan` returns the launches of the chosen kernel.
`kernels` returns the names of the kernels that were considered, each with the reason against it.
`candidates` returns every kernel that can compute a problem, with its launches.
A launch of a forward takes the tensors x and out, and for maxima with indices or offsets a third tensor for
these. A result without elements needs no launch.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod
from random import Random

from ...problem.problem import Problem
from . import cost
from .average.average_columns import column_average
from .average.average_staged import staged_average
from .average.average_wide import wide_average
from .average.mean import mean_average
from .average_gradient.average_dense import dense_average
from .average_gradient.average_fill import filled_average
from .average_gradient.average_flat import flat_average
from .average_gradient.average_rolling import rolling_average
from .average_gradient.average_walk import staged_average as staged_average_gradient
from .general.general import general
from .kernel_tables import same_divisors
from .maximum.maximum_axes import axis_maximum
from .maximum.maximum_columns import direct_maximum, rolling_maximum, sectioned_maximum
from .maximum.maximum_reduce import reduced_maximum
from .maximum.maximum_staged import staged_maximum
from .maximum_gradient.gather_channels import gather_channels
from .maximum_gradient.scatter_channels import scatter_channels
from .maximum_gradient.scatter_few import scatter_few
from .maximum_gradient.scatter_planes import scatter_bands, scatter_planes
from .maximum_gradient.scatter_volumes import scatter_volumes
from .maximum_gradient.scatter_walk import walk_channels
from .runtime.driver import H200, DeviceFacts
from .task import Launch, Planner, Task, unfit

LAYOUTS = frozenset({"planes", "channels_last"})
_MOST = 2**30  # elements of a plane, or of an image whose channels are innermost
_MOST_BYTES = 2**39  # of all tensors: with more, a grid may have too few blocks
# The general kernel of a kind computes while the chosen kernel is compiled (launch.py). It is chosen only
# where no other one can compute a problem.
KERNELS: dict[str, tuple[tuple[str, Planner], ...]] = {
    "average_gradient": (
        ("filled average", filled_average),
        ("flat average", flat_average),
        ("rolling average", rolling_average),
        ("dense average", dense_average),
        ("staged average", staged_average_gradient),
        ("general gradient of averages", general),
    ),
    "maximum_gradient": (
        ("scatter of few windows", scatter_few),
        ("scatter of whole planes", scatter_planes),
        ("gather of channels", gather_channels),
        ("scatter of channels in volumes", walk_channels),
        ("scatter of channels", scatter_channels),
        ("scatter of volumes", scatter_volumes),
        ("scatter of bands", scatter_bands),
        ("general gradient of maxima", general),
    ),
    "maximum": (
        ("staged maximum", staged_maximum),
        ("maximum by axes", axis_maximum),
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
    average = problem.kind in ("average", "average_gradient")
    if (
        average
        and prod(max(axis.reach, axis.length) for axis in problem.axes) >= 2**63
        and not same_divisors(problem)
    ):
        return "a divisor may exceed 64 bits"
    if problem.rounding != "keep":
        return f"it does not round gradOutput to {problem.rounding}"
    if problem.least_bytes > _MOST_BYTES and not _has_blocks(problem, layout):
        return f"its tensors have {problem.least_bytes} bytes, too many for the blocks of a grid"
    return None


def _has_blocks(problem: Problem, layout: str) -> bool:
    task = Task(problem, layout, H200)
    return any(isinstance(candidate(task, planner), tuple) for _, planner in KERNELS[problem.kind])


def plan(problem: Problem, layout: str, facts: DeviceFacts, aligned: bool = True) -> tuple[Launch, ...]:
    """The launches of the chosen kernel. `aligned`: tensors begin at multiples of 16 bytes."""
    planned, _, _ = _considered(Task(problem, layout, facts, aligned))
    return _whole(planned[_fastest(planned)][1])


def candidates(
    problem: Problem, layout: str, facts: DeviceFacts, aligned: bool = True, tiles: int = 0
) -> list[tuple[str, tuple[Launch, ...]]]:
    """Every kernel that computes the problem correctly, whatever its speed, with its launches.

    The general kernel is the last one. All have the same bits.
    `tiles`: how often other tiles of each kernel are drawn, of those whose estimate is at most twice the
    least. They are named as the kernel, with a number after a comma, and stand first.
    """
    task, known = Task(problem, layout, facts, aligned), KERNELS.get(problem.kind, ())
    planned = {
        name: launches for name, planner in known if isinstance(launches := candidate(task, planner), tuple)
    }
    others = list[tuple[str, tuple[Launch, ...]]]()
    for number in range(tiles):
        with cost.exploring(Random(number), 2.0):
            drawn = {name: candidate(task, dict(known)[name]) for name in planned}
        seen = [_facts_of(launches) for _, launches in (*planned.items(), *others)]
        others += [
            (f"{name}, tile {number}", launches)
            for name, launches in drawn.items()
            if isinstance(launches, tuple) and _facts_of(launches) not in seen
        ]
    return [*others, *planned.items()]


def _facts_of(launches: tuple[Launch, ...]) -> tuple[object, ...]:
    first = launches[0]
    return first.source, first.grid, first.block, first.shared, first.arguments


def candidate(task: Task, planner: Planner) -> tuple[Launch, ...] | str:
    """The launches of a kernel, or the reason why it can't compute the problem correctly on the device."""
    launches = planner(task)
    if isinstance(launches, str):
        return launches
    return unfit(launches, task.facts) or _whole(launches)


def _whole(launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """The launches with the second pass, if there is one."""
    *others, last = launches
    return launches if last.repair is None else (*others, replace(last, repair=None), last.repair())


def kernels(
    problem: Problem, layout: str, facts: DeviceFacts, aligned: bool = True
) -> list[tuple[str, str | None]]:
    """The kernels that were considered, each with the reason against it; the last one is chosen."""
    planned, slow, refused = _considered(Task(problem, layout, facts, aligned))
    chosen = _fastest(planned)
    of_chosen = f"that of {chosen} {_microseconds(planned[chosen][0])}"
    slower = sorted((seconds, name) for name, (seconds, _) in planned.items() if name != chosen)
    estimates = [(name, f"its estimate is {_microseconds(time)}, {of_chosen}") for time, name in slower]
    unplanned = [(name, f"it takes at least {_microseconds(time)}") for name, time in slow.items()]
    return [*estimates, *unplanned, *refused.items(), (chosen, None)]


_Planned = dict[str, tuple[float, tuple[Launch, ...]]]  # by kernel, with the estimated seconds


def _considered(task: Task) -> tuple[_Planned, dict[str, float], dict[str, str]]:
    """The candidates, the least times of kernels that were not planned, and why the others can't compute it.

    Kernels are planned in the order of the least time that they can take, so that those which can't be
    faster than the best so far need no plan. The general kernel has no estimate.
    """
    known = dict(KERNELS[task.problem.kind])
    least = cost.least_seconds(task, known)
    slow, refused, planned = dict[str, float](), dict[str, str](), _Planned()
    best = inf
    for name in sorted(least, key=least.__getitem__):
        if least[name] >= best:
            slow[name] = least[name]
        elif isinstance(launches := known[name](task), str):
            refused[name] = launches
        elif (seconds := cost.seconds(task, name, launches)) >= best:
            planned[name] = seconds, launches
        elif reason := unfit(launches, task.facts):
            refused[name] = reason
        else:
            planned[name], best = (seconds, launches), seconds
    if best == inf:
        launches = general(task)
        assert not isinstance(launches, str), launches
        planned[KERNELS[task.problem.kind][-1][0]] = inf, launches
    return planned, slow, refused


def _fastest(planned: _Planned) -> str:
    return min(planned, key=lambda name: planned[name][0])


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} µs"
