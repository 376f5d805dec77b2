"""The objects and the memory that a program did not release before aclFinalize."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..acl.handles import aclIntArray, aclOpExecutor, aclTensor
from ..acl.memory import MEMORY
from ..acl.stream import Stream
from .table import HandleTable

_NAMED = 4  # objects that a sentence lists


def leaks(table: HandleTable) -> list[str]:
    """A sentence for each kind of leak."""
    live = table.live()
    found = []
    if blocks := MEMORY.live():
        listed = _listed(f"{block.address:#x} ({block.size} bytes)" for block in blocks)
        total = sum(block.size for block in blocks)
        found.append(
            f"{_count(blocks, 'block')} of device memory, {total} bytes, {_is(blocks)} still allocated: "
            f"{listed}; each must be freed by aclrtFree."
        )
    executors = [thing for thing in live if isinstance(thing, aclOpExecutor)]
    for things, name, must in (
        ([t for t in live if isinstance(t, aclTensor)], "aclTensor", "destroyed by aclDestroyTensor"),
        ([t for t in live if isinstance(t, aclIntArray)], "aclIntArray", "destroyed by aclDestroyIntArray"),
        ([t for t in live if isinstance(t, Stream)], "stream", "destroyed by aclrtDestroyStream"),
        (
            [executor for executor in executors if not executor.used],
            "unused executor",
            "run by its operator's phase two, or destroyed by aclDestroyAclOpExecutor",
        ),
        (
            [executor for executor in executors if executor.used],
            "repeatable executor",
            "destroyed by aclDestroyAclOpExecutor",
        ),
    ):
        if things:
            listed = "" if name == "stream" else f": {_listed(map(str, things))}"
            found.append(f"{_count(things, name)} {_is(things)} still live{listed}; each must be {must}.")
    return found


def _count(things: list[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _is(things: list[Any]) -> str:
    return "is" if len(things) == 1 else "are"


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - _NAMED} more" if len(all_names) > _NAMED else ""
    return ", ".join(all_names[:_NAMED]) + more
