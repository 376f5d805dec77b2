"""Handles for C: each handle is a word that stands for a Python object; it is not the object's address.

The table recognizes a word that a program invented or used too late. The words are in a range without
access rights, so a program that dereferences a handle gets SIGSEGV.
"""

from __future__ import annotations

import threading
from typing import Any

from ..acl.addresses import reserve
from ..acl.error_reports import InvalidHandle
from ..acl.executors import aclOpExecutor
from ..acl.memory_blocks import MEMORY

_STEP = 16
_SLOTS = 1 << 26
_FALLBACK = 1 << 40  # the first word when no range can be reserved
_REMEMBERED = 4096  # destroyed objects that a message can still name


class HandleTable:
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

    def word(self, thing: Any) -> int:
        """The handle of an object: the one that it has, or a new one."""
        known: int | None = getattr(thing, "c_handle", None)
        if known is not None and self._objects.get(known) is thing:
            return known
        word = self.add(thing)
        if hasattr(thing, "c_handle"):
            thing.c_handle = word
        return word

    def find(self, word: int | None) -> Any:
        """The object of a handle; None for null; InvalidHandle for any other word."""
        if word is None or (thing := self._objects.get(word)) is not None:
            return None if word is None else thing
        if self._base <= word < self._base + min(self._next, _SLOTS) * _STEP:
            return InvalidHandle(word, "a handle that was used up or destroyed")
        if MEMORY.find(word) is not None:
            return InvalidHandle(word, "the address of device memory")
        return InvalidHandle(word, "which no call gave out")

    def contains(self, word: int) -> bool:
        """Whether the word is in the range of handles."""
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
