"""What a program leaves behind at aclFinalize: a sentence for each kind of thing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..acl.handles import aclIntArray, aclOpExecutor, aclTensor
from ..acl.memory import MEMORY
from ..acl.stream import Stream
from .table import Table

_NAMED = 4  # things that a sentence lists


def leftovers(table: Table) -> list[str]:
    live = table.live()
    blocks = MEMORY.live()
    found = []
    if blocks:
        listed = _listed(f"{block.address:#x} ({block.size} bytes)" for block in blocks)
        total = sum(block.size for block in blocks)
        found.append(
            f"{_count(blocks, 'block')} of device memory, {total} bytes, {_is(blocks)} still allocated: "
            f"{listed}; each must be given back by aclrtFree."
        )
    for kind, name, by in (
        (aclTensor, "aclTensor", "aclDestroyTensor"),
        (aclIntArray, "aclIntArray", "aclDestroyIntArray"),
        (Stream, "stream", "aclrtDestroyStream"),
    ):
        if left := [thing for thing in live if isinstance(thing, kind)]:
            listed = "" if kind is Stream else f": {_listed(map(str, left))}"
            found.append(f"{_count(left, name)} {_is(left)} still there{listed}; each must end by {by}.")
    executors = [thing for thing in live if isinstance(thing, aclOpExecutor)]
    if idle := [executor for executor in executors if not executor.used]:
        found.append(
            f"{_count(idle, 'executor')} {_is(idle, 'was', 'were')} never run: {_listed(map(str, idle))}; "
            "each must be run by its operator's phase two, or end by aclDestroyAclOpExecutor."
        )
    if kept := [executor for executor in executors if executor.used]:
        found.append(
            f"{_count(kept, 'repeatable executor')} {_is(kept)} still there: {_listed(map(str, kept))}; "
            "each must end by aclDestroyAclOpExecutor."
        )
    return found


def _count(things: list[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _is(things: list[Any], one: str = "is", many: str = "are") -> str:
    return one if len(things) == 1 else many


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - _NAMED} more" if len(all_names) > _NAMED else ""
    return ", ".join(all_names[:_NAMED]) + more
