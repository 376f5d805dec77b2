"""Which kernel was measured to be the fastest for a problem: kept on disk, beside compiled code.

    keep(task, kernel)     remembers the name of the fastest kernel of a problem on a device
    plan(task)             the launches of that kernel; if nothing was measured, those of the chosen kernel

All kernels have the same bits, so a measured choice changes no result. Uses no device.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from . import choice
from .runtime import code_cache
from .source import header_texts
from .task import Launch, Task

_PREFIX = "fastest-"


def keep(task: Task, kernel: str) -> None:
    code_cache.store(_name(task), kernel.encode())
    _has_any.cache_clear()


def fastest(task: Task) -> str | None:
    """The kernel that was measured to be the fastest; None if nothing was measured."""
    stored = code_cache.load(_name(task)) if _has_any(code_cache.folder()) else None
    return None if stored is None else stored.decode(errors="replace")


@cache
def _has_any(folder: Path | None) -> bool:
    """Whether anything was measured before this process began, or by it: most users never measure."""
    return folder is not None and any(folder.glob(f"{_PREFIX}*"))


def plan(task: Task) -> tuple[Launch, ...]:
    planner = dict(choice.KERNELS[task.problem.kind]).get(fastest(task) or "")
    launches = choice.candidate(task, planner) if planner else ""
    if isinstance(launches, str):  # nothing was measured, or by another version
        return choice.plan(task.problem, task.layout, task.facts, task.aligned)
    return launches


def _name(task: Task) -> str:
    facts = repr(task.problem), task.layout, str(task.aligned), repr(task.facts)
    return _PREFIX + code_cache.key(_kernels(), *facts)


@cache
def _kernels() -> str:
    """Changes when a kernel does: measurements of other kernels do not count."""
    return code_cache.key(header_texts())
