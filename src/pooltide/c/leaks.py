"""Takes the table of handles, and the blocks of memory, when a C program calls aclFinalize.

Returns a sentence for each kind of object or memory that the program did not release. It must not release it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import acl
from ..acl.call_sites import Site, describe_site
from ..acl.memory_blocks import HOST_MEMORY, MEMORY, Block
from ..acl.stream_queue import Stream
from .handle_table import HandleTable

_MAX_LISTED = 4  # objects that a sentence lists
_LISTS = (acl.aclTensorList, acl.aclScalarList)
_VALUES = (acl.aclTensor, acl.aclIntArray, acl.aclBoolArray, acl.aclFloatArray, acl.aclScalar, *_LISTS)


def leaks(table: HandleTable) -> list[str]:
    """A sentence for each kind of leak."""
    members = {member for owner in table.live() if isinstance(owner, _LISTS) for member in owner.values}
    live = {leaked: site for leaked, site in table.live().items() if leaked not in members}
    explicit = [context for context in _of(live, acl.aclrtContext) if context.explicit]
    executors, destroyer = _of(live, acl.aclOpExecutor), "destroyed by aclDestroyAclOpExecutor"
    unused = [executor for executor in executors if not executor.used]
    used = [executor for executor in executors if executor.used]
    names = [(kind, kind.__name__, kind.__name__.replace("acl", "aclDestroy", 1)) for kind in _VALUES]
    return [
        *_blocks([block for block in MEMORY.live() if not block.registered], "device memory", "aclrtFree"),
        *_blocks(
            [block for block in MEMORY.live() if block.registered], "registered memory", "aclrtHostUnregister"
        ),
        *_blocks(HOST_MEMORY.live(), "host memory", "aclrtFreeHost"),
        *(
            text
            for kind, name, call in names
            for text in _objects(live, _of(live, kind), name, f"destroyed by {call}")
        ),
        *_objects(live, _of(live, Stream), "stream", "destroyed by aclrtDestroyStream", listed=False),
        *_objects(live, _of(live, acl.aclrtEvent), "event", "destroyed by aclrtDestroyEvent", listed=False),
        *_objects(live, explicit, "context", "destroyed by aclrtDestroyContext", listed=False),
        *_objects(live, unused, "unused executor", f"run by its operator's phase two, or {destroyer}"),
        *_objects(live, used, "repeatable executor", destroyer),
    ]


def _of(live: Iterable[Any], kind: type[Any]) -> list[Any]:
    return [handle for handle in live if isinstance(handle, kind)]


def _objects(
    sites: Mapping[Any, Site | None], objects: list[Any], name: str, must: str, *, listed: bool = True
) -> list[str]:
    """The sentence as a list, empty without objects. It says where the first objects were made.

    `listed`: the sentence also names these objects.
    """
    places = ((f"{each}" if listed else "", describe_site(sites.get(each))) for each in objects[:_MAX_LISTED])
    words = [f"{text}{', ' if text and at else ''}{at and f'made at {at}'}" for text, at in places]
    names = f": {_names(words, len(objects))}" if any(words) else ""
    return [f"{_count(objects, name)} still live{names}; each must be {must}."] if objects else []


def _blocks(blocks: list[Block], where: str, must: str) -> list[str]:
    if not blocks:
        return []
    names = _names([_block(block) for block in blocks[:_MAX_LISTED]], len(blocks))
    total = sum(block.size for block in blocks)
    count = _count(blocks, "block", f" of {where}, {total} bytes,")
    return [f"{count} still allocated: {names}; each must be freed by {must}."]


def _block(block: Block) -> str:
    taken = f", taken at {at}" if (at := describe_site(block.made)) else ""
    return f"{block.address:#x} ({block.size} bytes{taken})"


def _count(objects: list[Any], name: str, suffix: str = "") -> str:
    """ "1 stream is" or "2 streams are", with the suffix before the verb."""
    one = len(objects) == 1
    return f"{len(objects)} {name}{'' if one else 's'}{suffix} {'is' if one else 'are'}"


def _names(names: list[str], count: int) -> str:
    """The first names of `count` objects."""
    rest = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(names) + rest
