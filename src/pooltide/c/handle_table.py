"""Takes Python objects that a C program shall hold, and words that it passes as handles.

Returns a word for each object, and the object of a word. It must not touch the objects.

A word is not an object's address, so the table recognizes a word that a program invented or used too late.
The words are in a range without access rights: a program that dereferences a handle gets SIGSEGV.
"""

from __future__ import annotations

import threading
from typing import Any

from ..acl.addresses import reserve
from ..acl.call_sites import Site, capture
from ..acl.error_reports import InvalidHandle
from ..acl.executors import aclOpExecutor
from ..acl.memory_blocks import MEMORY

_STEP = 16
_SLOTS = 1 << 26
_FALLBACK = 1 << 40  # the first word when no range can be reserved
_REMEMBERED = 1024  # destroyed objects that a message can still name


class HandleTable:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._base = reserve(_SLOTS * _STEP) or _FALLBACK
        self._next = 0
        self._objects: dict[int, Any] = {}
        self._sites: dict[int, Site | None] = {}  # where each object was made

    def add(self, object_: Any) -> int:
        site = capture()
        with self._lock:
            if self._next % 1024 == 1023:
                self._sweep()
            while (word := self._base + self._next % _SLOTS * _STEP) in self._objects:
                self._next += 1
            self._next += 1
            self._objects[word] = object_
            self._sites[word] = site
            return word

    def word(self, object_: Any) -> int:
        """The handle of an object: the one that it has, or a new one."""
        word: int | None = getattr(object_, "c_handle", None)
        if word is not None and self._objects.get(word) is object_:
            return word
        word = self.add(object_)
        if hasattr(object_, "c_handle"):
            object_.c_handle = word
        return word

    def find(self, word: int | None) -> Any:
        """The object of a handle; None for null; InvalidHandle for any other word."""
        if word is None or (object_ := self._objects.get(word)) is not None:
            return None if word is None else object_
        if self._base <= word < self._base + min(self._next, _SLOTS) * _STEP:
            return InvalidHandle(word, "a handle that was used up or destroyed")
        if MEMORY.find(word) is not None:
            return InvalidHandle(word, "the address of device memory")
        return InvalidHandle(word, "which no call gave out")

    def done_site(self, word: int | None) -> Site | None:
        """Where an object was made that is used up or destroyed; None for other words."""
        if word is None or (object_ := self._objects.get(word)) is None or not _is_done(object_):
            return None
        return self._sites.get(word)

    def contains(self, word: int) -> bool:
        """Whether the word is in the range of handles."""
        return self._base <= word < self._base + _SLOTS * _STEP

    def live(self) -> dict[Any, Site | None]:
        """The live objects, and where each was made."""
        with self._lock:
            live = ((word, object_) for word, object_ in self._objects.items() if not _is_done(object_))
            return {object_: self._sites.get(word) for word, object_ in live}

    def _sweep(self) -> None:
        done = [word for word, object_ in self._objects.items() if _is_done(object_)]
        for word in done[:-_REMEMBERED]:
            del self._objects[word], self._sites[word]


def _is_done(object_: Any) -> bool:
    if isinstance(object_, aclOpExecutor) and object_.used and not object_.repeatable:
        return True
    return not object_.alive


TABLE = HandleTable()
