"""The second pass of maxima, for planes whose indices are outside their windows (two_passes.h)."""

from __future__ import annotations

from dataclasses import replace

from ..source import Argument
from ..task import Launch, Task

INDEXED = (
    *(("const Element*", "grad"), ("const Index*", "indices"), ("Element*", "out")),
    *(("unsigned long long*", "faults"), ("int*", "counts")),
    *(("const int*", "pieces"), ("const int*", "corners")),
)


def in_two_passes(task: Task, launch: Launch) -> tuple[Launch, ...]:
    """The launch; if blocks compute parts of planes, its second pass is the same with `redo` set."""
    if _argument(launch, "parts") == 1:
        return (launch,)
    return (replace(launch, counts=launch.grid, repair=lambda: redo(task, launch)),)


def redo(task: Task, launch: Launch, **changed: int) -> Launch:
    """Returns the launch of the second pass (two_passes.h). `changed` has new values of arguments."""
    numbers = _numbers(launch)
    arguments = list(launch.arguments)
    for name, value in {"redo": 1, **changed}.items():
        arguments[numbers.index(name)] = value
    grid = min(launch.grid, 4 * task.facts.multiprocessors)
    return replace(launch, grid=grid, arguments=tuple(arguments), counts=0)


def _numbers(launch: Launch) -> list[str]:
    return [name for kind, name in launch.source.parameters if not kind.endswith("*")]


def _argument(launch: Launch, name: str) -> Argument:
    return launch.arguments[_numbers(launch).index(name)]
