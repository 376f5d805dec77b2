"""Runs a Python function of a user's page.

Returns the function's result, or raises `UserCodeError`: whatever the function does, the program gets a
sentence. A function that takes too long is interrupted; one that waits in compiled code is only named.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from .pages.references import PythonFunction

LIMIT = "POOLTIDE_OPERATOR_SECONDS"
_DEFAULT = 60.0
_POLL = 0.05  # seconds
_SHOWN = 3  # frames that a message lists
_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_EXAMPLES = str(Path(__file__).parent.parent / "examples") + os.sep


class UserCodeError(Exception):
    """The text says what the function did, as a sentence without a full stop."""


class _Taken(BaseException):
    """Ends `_take_interrupt`."""


class _TooLong(BaseException):
    """Not an Exception, so that the function's own handlers do not catch it."""


def run_user_code(function: PythonFunction, arguments: dict[str, Any]) -> Any:
    """The result of the function with those of the arguments that it takes. Raises UserCodeError."""
    try:
        with _watched(function):
            return function.load()(**function.choose(arguments))
    except (MemoryError, UserCodeError):
        raise
    except _TooLong:
        where = _where(sys.exc_info()[2], function)
        text = f"{function} ran for more than {_limit():g} s{where}, so it was interrupted"
        raise UserCodeError(f"{text} ({LIMIT} sets this limit)") from None
    except BaseException as error:  # SystemExit, too: the program must go on
        words = " ".join(traceback.format_exception_only(error)[-1].split())
        raise UserCodeError(
            f"{function} raised {words[:500]}{_where(error.__traceback__, function)}"
        ) from None


def _where(trace: TracebackType | None, function: PythonFunction) -> str:
    """The lines of a traceback, the innermost in the function's folder first, without this package's."""
    frames = [frame for frame in traceback.extract_tb(trace) if _is_theirs(frame.filename)]
    theirs = [at for at, frame in enumerate(frames) if Path(frame.filename).parent == function.file.parent]
    frames = frames[: theirs[-1] + 1] if theirs else frames
    lines = [f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in reversed(frames)]
    return ", at " + ", called at ".join(lines[:_SHOWN]) if lines else ""


def _is_theirs(file: str) -> bool:
    return not file.startswith(_PACKAGE) or file.startswith(_EXAMPLES)


def _limit() -> float:
    with contextlib.suppress(ValueError):
        seconds = float(os.environ.get(LIMIT) or _DEFAULT)
        if 0 < seconds <= threading.TIMEOUT_MAX:
            return seconds
    return _DEFAULT


class _Watch:
    """A thread that interrupts other threads at the end of their time.

    It starts at the first use, looks at the time every _POLL seconds, and ends after a second without work.
    An interrupt inside a Condition would leave its lock held, so nothing wakes the thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[int, tuple[float, PythonFunction]] = {}  # by thread
        self._interrupted: set[int] = set()  # threads
        self._started = False

    def add(self, function: PythonFunction) -> None:
        with self._lock:
            self._ends[threading.get_ident()] = time.monotonic() + _limit(), function
            if not self._started:
                self._started = True
                threading.Thread(target=self._work, name="pooltide-watch", daemon=True).start()

    def remove(self) -> None:
        while True:
            with contextlib.suppress(_TooLong):  # which may come here, after the function has ended
                return self._remove()

    def _remove(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            self._ends.pop(thread, None)
            interrupted = thread in self._interrupted
            self._interrupted.discard(thread)
        if interrupted:
            _take_interrupt(thread)

    def _work(self) -> None:
        with (
            contextlib.suppress(OSError),
            open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as name,
        ):
            name.write("[pooltide]")  # c/process_exit.h: not a thread of the program
        busy = time.monotonic()
        while True:
            with self._lock:
                now = time.monotonic()
                busy = now if self._ends else busy
                if now > busy + 1:
                    self._started = False
                    return
                for thread, (end, function) in list(self._ends.items()):
                    if end <= now:
                        self._ends[thread] = now + _limit(), function
                        _say_where(thread, function)
                        self._interrupted.add(thread)
                        _interrupt(thread, _TooLong)
            time.sleep(_POLL)


def _interrupt(thread: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def _take_interrupt(thread: int) -> None:
    """Lets no interrupt of this thread come later: another exception takes the place of a pending one.

    To set no exception would not do: from then on the interpreter would look for one at every instruction,
    and CPython 3.11 would hang under a profiler.
    """
    with contextlib.suppress(_Taken):
        _interrupt(thread, _Taken)
        while True:
            time.sleep(0)


def _say_where(thread: int, function: PythonFunction) -> None:
    frame: FrameType | None = sys._current_frames().get(thread)
    while frame is not None and not _is_theirs(frame.f_code.co_filename):
        frame = frame.f_back
    at = f" at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else ""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"pooltide: {function} has run for {_limit():g} s and is{at}; it is interrupted.\n")


_WATCH = _Watch()


def _after_fork() -> None:
    """In a child, where the thread that watches is missing."""
    _WATCH.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def _watched(function: PythonFunction) -> Iterator[None]:
    _WATCH.add(function)
    try:
        yield
    finally:
        _WATCH.remove()
