"""The objects and the memory that a program did not release before aclFinalize."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..acl.contexts import aclrtContext
from ..acl.events import aclrtEvent
from ..acl.executors import aclOpExecutor
from ..acl.memory_blocks import HOST_MEMORY, MEMORY, Block
from ..acl.scalars_and_lists import (
    aclBoolArray,
    aclFloatArray,
    aclIntArray,
    aclScalar,
    aclScalarList,
    aclTensorList,
)
from ..acl.stream_queue import Stream
from ..acl.tensor_descriptors import aclTensor
from .handle_table import HandleTable

_NAMED = 4  # objects that a sentence lists
_DESTROYERS: dict[type[Any], str] = {
    kind: kind.__name__.replace("acl", "aclDestroy", 1)
    for kind in (
        *(aclTensor, aclIntArray, aclBoolArray, aclFloatArray, aclScalar),
        *(aclTensorList, aclScalarList),
    )
}


def leaks(table: HandleTable) -> list[str]:
    """A sentence for each kind of leak."""
    in_lists = {
        member
        for owner in table.live()
        if isinstance(owner, (aclTensorList, aclScalarList))
        for member in owner.values
    }
    live = [thing for thing in table.live() if thing not in in_lists]
    found = [
        *_blocks(MEMORY.live(), "device", "aclrtFree"),
        *_blocks(HOST_MEMORY.live(), "host", "aclrtFreeHost"),
    ]
    executors = [thing for thing in live if isinstance(thing, aclOpExecutor)]
    for things, name, must in (
        *((_of(live, kind), kind.__name__, f"destroyed by {maker}") for kind, maker in _DESTROYERS.items()),
        (_of(live, Stream), "stream", "destroyed by aclrtDestroyStream"),
        (_of(live, aclrtEvent), "event", "destroyed by aclrtDestroyEvent"),
        (
            [context for context in _of(live, aclrtContext) if context.explicit],
            "context",
            "destroyed by aclrtDestroyContext",
        ),
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
            plain = name in ("stream", "event", "context")
            listed = "" if plain else f": {_listed(map(str, things))}"
            found.append(f"{_count(things, name)} {_is(things)} still live{listed}; each must be {must}.")
    return found


def _of(live: list[Any], kind: type[Any]) -> list[Any]:
    return [thing for thing in live if isinstance(thing, kind)]


def _blocks(blocks: list[Block], where: str, must: str) -> list[str]:
    if not blocks:
        return []
    listed = _listed(f"{block.address:#x} ({block.size} bytes)" for block in blocks)
    total = sum(block.size for block in blocks)
    return [
        f"{_count(blocks, 'block')} of {where} memory, {total} bytes, {_is(blocks)} still allocated: "
        f"{listed}; each must be freed by {must}."
    ]


def _count(things: list[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _is(things: list[Any]) -> str:
    return "is" if len(things) == 1 else "are"


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - _NAMED} more" if len(all_names) > _NAMED else ""
    return ", ".join(all_names[:_NAMED]) + more
