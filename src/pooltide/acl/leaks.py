"""Takes the objects that a program made, and the blocks of memory, when it calls aclFinalize.

Returns a sentence for each kind of object or memory that the program did not release. It must not release it.

Of the objects of a Python program, only streams and contexts need a call: Python frees the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .call_sites import Site, describe_site
from .contexts import CONTEXTS, aclrtContext
from .events import aclrtEvent
from .executors import aclOpExecutor
from .memory_blocks import HOST_MEMORY, MEMORY, Block
from .scalars_and_lists import (
    aclBoolArray,
    aclFloatArray,
    aclIntArray,
    aclScalar,
    aclScalarList,
    aclTensorList,
)
from .stream_queue import Stream
from .tensor_descriptors import aclTensor

_MAX_LISTED = 4  # objects that a sentence lists
_LISTS = (aclTensorList, aclScalarList)
_VALUES = (aclTensor, aclIntArray, aclBoolArray, aclFloatArray, aclScalar, *_LISTS)


def _objects_of_python() -> dict[Any, Site | None]:
    contexts = list(CONTEXTS.live)
    streams = {stream: stream.made for context in contexts for stream in context.created_streams()}
    return dict.fromkeys(contexts) | streams


_sources: list[Callable[[], Mapping[Any, Site | None]]] = [_objects_of_python]


def list_by(source: Callable[[], Mapping[Any, Site | None]]) -> None:
    """Let this function list the live objects, and where each was made, for C programs."""
    _sources[:] = [source]


def leaks() -> list[str]:
    """A sentence for each kind of leak."""
    objects = _sources[0]()
    members = {member for owner in objects if isinstance(owner, _LISTS) for member in owner.values}
    live = {leaked: site for leaked, site in objects.items() if leaked not in members}
    explicit = [context for context in _of(live, aclrtContext) if context.explicit]
    executors, destroyer = _of(live, aclOpExecutor), "destroyed by aclDestroyAclOpExecutor"
    unused = [executor for executor in executors if not executor.used]
    used = [executor for executor in executors if executor.used]
    names = [(kind, kind.__name__, kind.__name__.replace("acl", "aclDestroy", 1)) for kind in _VALUES]
    taken = [block for block in MEMORY.live() if not block.owned]
    registered = [block for block in taken if block.registered]
    return [
        *_blocks([block for block in taken if not block.registered], "device memory", "aclrtFree"),
        *_blocks(registered, "registered memory", "aclrtHostUnregister"),
        *_blocks(HOST_MEMORY.live(), "host memory", "aclrtFreeHost"),
        *(
            text
            for kind, name, call in names
            for text in _objects(live, _of(live, kind), name, f"destroyed by {call}")
        ),
        *_objects(live, _of(live, Stream), "stream", "destroyed by aclrtDestroyStream", listed=False),
        *_objects(live, _of(live, aclrtEvent), "event", "destroyed by aclrtDestroyEvent", listed=False),
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
