"""Handles for C: each is a word that names a Python object, never the object's address.

A word that a program makes up, or keeps too long, is looked up and found wanting; following it
faults, as the words lie in a range that nobody may touch.
"""

from __future__ import annotations

import threading
from typing import Any

from ..acl.addresses import reserve
from ..acl.handles import aclOpExecutor
from ..acl.memory import MEMORY
from ..acl.state import NoHandle

_STEP = 16
_SLOTS = 1 << 26
_FALLBACK = 1 << 40  # where words start when no range can be reserved
_REMEMBERED = 4096  # objects that are done with, and that a message can still name


class Table:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._base = reserve(_SLOTS * _STEP) or _FALLBACK
        self._next = 0
        self._objects: dict[int, Any] = {}

    def add(self, thing: Any) -> int:
        with self._lock:
            if self._next % 1024 == 1023:
                self._sweep()
            while (word := self._base + self._next % _SLOTS * _STEP) in self._objects:
                self._next += 1
            self._next += 1
            self._objects[word] = thing
            return word

    def find(self, word: int | None) -> Any:
        """What a word names; None for null, NoHandle for what never was a handle or is forgotten."""
        if word is None or (thing := self._objects.get(word)) is not None:
            return None if word is None else thing
        if self._base <= word < self._base + min(self._next, _SLOTS) * _STEP:
            return NoHandle(word, "a handle that was used up or destroyed")
        if MEMORY.find(word) is not None:
            return NoHandle(word, "the address of device memory")
        return NoHandle(word, "which no call gave out")

    def holds(self, word: int) -> bool:
        return self._base <= word < self._base + _SLOTS * _STEP

    def live(self) -> list[Any]:
        with self._lock:
            return [thing for thing in self._objects.values() if not _done(thing)]

    def _sweep(self) -> None:
        done = [word for word, thing in self._objects.items() if _done(thing)]
        for word in done[:-_REMEMBERED]:
            del self._objects[word]


def _done(thing: Any) -> bool:
    if isinstance(thing, aclOpExecutor) and thing.used and not thing.repeatable:
        return True
    return not thing.alive
