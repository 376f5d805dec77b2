"""The one cache: all that is derived from the metadata of calls, bounded by its bytes.

Checked calls, plans, tables, prepared kernels of every entrance and device are here. `CALLS.get(key)` returns
what is kept under a key, or None; `CALLS.add(key, value, *tables)` keeps a value. `tables` are the parts of
it that take memory, each with its `nbytes`; several values may share them. `@cached` keeps what a function
returns.

Values are in two generations. A new one goes to the first. When that has half of the bytes, it becomes the
second, and the second is forgotten, except what was used since: a use moves a value to the first. So a value
that is used again while less than half of the bytes are added stays, and a use of it costs one look-up.
Who runs a call has references to its parts, so forgetting them meanwhile is safe.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable
from functools import wraps
from typing import Any, TypeVar

Key = Hashable
Result = TypeVar("Result")
VARIABLE = "POOLTIDE_CACHE_BYTES"
BYTES = 256 << 20  # by default
ENTRY = 2 << 10  # what a key and a value take in Python, on average, without tables


class _First(dict[Key, Any]):
    """The first generation. Compiled code looks keys up in it as in a dictionary, and finds no others."""

    def __init__(self, move: Callable[[Key], Any]) -> None:
        self.move = move

    def __missing__(self, key: Key) -> Any:
        return self.move(key)


class Cache:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.known: dict[Key, Any] = _First(self._move)  # the first generation: it stays the same object
        self.get: Callable[[Key], Any] = self.known.__getitem__  # None is never a key
        self._tables: list[tuple[Key, tuple[Any, ...]]] = []  # of the values in the first generation
        self._held: dict[int, Any] = {}  # the same tables, each once
        self._bytes = 0  # of the first generation
        self._second: dict[Key, tuple[Any, tuple[Any, ...]]] = {}
        self.renew_lock()

    def renew_lock(self) -> None:
        # A finalizer or a signal's handler may make a call in the thread that holds the lock.
        self._lock = threading.RLock()

    @property
    def nbytes(self) -> int:
        """The bytes of both generations; tables that are in both count twice."""
        held = {id(table): table for _, tables in self._second.values() for table in tables}
        second: int = sum(table.nbytes for table in held.values())
        return self._bytes + len(self._second) * ENTRY + second

    def add(self, key: Key | None, value: Any, *tables: Any) -> None:
        """Keeps a value, which is not None, unless it has no key or is larger than the cache."""
        if key is None:
            return
        own = tuple([table for table in tables if table is not None]) if tables else ()
        whole = self._size(own, {}) if own else ENTRY
        if whole > self.limit:
            return
        forgotten = None  # until the lock is free: to free memory of a GPU may take long
        with self._lock:
            before = len(self.known)
            self.known[key] = value  # a key of a problem takes long to hash: not one time more than needed
            if len(self.known) > before:
                more = self._size(own, self._held) if own else whole
                if self._bytes + more > self.limit // 2:
                    forgotten, more = self._age(whole), whole  # it holds no tables then
                    self.known[key] = value
                self._bytes += more
                if own:
                    self._held.update((id(table), table) for table in own)
                self._tables.append((key, own))
        del forgotten

    def _size(self, tables: tuple[Any, ...], held: dict[int, Any]) -> int:
        size: int = sum(table.nbytes for table in tables if id(table) not in held)
        return ENTRY + size

    def _age(self, more: int) -> Any:
        """Makes the first generation the second, if `more` bytes fit beside it; returns what is forgotten."""
        forgotten = self._second, dict(self.known), self._held
        fits = self._bytes + more <= self.limit
        tables = self._tables if fits else []
        self._second = {key: (self.known.get(key), own) for key, own in tables}
        self._tables, self._held, self._bytes = [], {}, 0
        self.known.clear()
        return forgotten

    def _move(self, key: Key) -> Any:
        """Moves a value from the second generation to the first and returns it; None if there is none."""
        if not self._second:
            return None
        value, tables = self._second.get(key, (None, ()))
        if value is not None:
            self.add(key, value, *tables)
        return value

    def clear(self) -> None:
        with self._lock:
            forgotten = self._age(self.limit + 1)
        del forgotten


def cached(
    tables: Callable[[Any], Iterable[Any]] = lambda result: (),
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Keeps what a function of positional arguments returns; `tables` lists the parts with nbytes."""

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(function)
        def call(*arguments: Hashable) -> Result:
            key = (function, *arguments)
            if (found := CALLS.get(key)) is None:
                found = (function(*arguments),)
                CALLS.add(key, found, *tables(found[0]))
            result: Result = found[0]
            return result

        return call

    return decorate


def _limit_at_start() -> int:
    text = os.environ.get(VARIABLE, "")
    if not text.strip():
        return BYTES
    if not (text.strip().isdecimal() and len(text) < 40):
        must = f"it must be a number of bytes. The limit is {BYTES}."
        warnings.warn(f"{VARIABLE}: the environment has {text[:40]!r}; {must}", RuntimeWarning, stacklevel=2)
        return BYTES
    return int(text)


CALLS = Cache(_limit_at_start())
os.register_at_fork(after_in_child=CALLS.renew_lock)  # another thread may have held it
