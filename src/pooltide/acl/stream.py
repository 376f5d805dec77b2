"""A stream: an ordered queue with a worker of its own.

What goes wrong in a job is kept until somebody synchronizes; then it is that thread's message.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from .state import BAD_ALLOC, INTERNAL, STATE, say

# The system's name of a worker and of the threads that it starts. By this name the C library knows
# that they are not the program's (c/ending.h).
_THREAD_NAME = "[pooltide]"


@dataclass(eq=False)
class Failure(Exception):
    """A job that failed for a reason that the program's author should read."""

    status: int
    message: str


class Stream:
    def __init__(self) -> None:
        self.alive = True
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._pending = 0
        self._failures: list[Failure] = []
        self._worker = threading.Thread(target=self._work, name="pooltide-stream", daemon=True)
        self._worker.start()

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue a job; False when the stream was destroyed meanwhile."""
        with self._idle:
            if self.alive:
                self._pending += 1
                self._jobs.put(job)
            return self.alive

    def synchronize(self) -> Failure | None:
        """Wait for all that was submitted; the first failure since the last time."""
        with self._idle:
            self._idle.wait_for(lambda: self._pending == 0)
            failures, self._failures = self._failures, []
        return failures[0] if failures else None

    def wait(self) -> None:
        """Wait for all that was submitted, and leave failures for who synchronizes."""
        with self._idle:
            self._idle.wait_for(lambda: self._pending == 0)

    def close(self) -> None:
        """Finish what is queued, then end the worker. A failure that nobody asked for is said."""
        with self._idle:
            if not self.alive:
                return
            self.alive = False
            self._jobs.put(None)
        self._worker.join()
        for failure in self._failures if STATE.checks != "off" else ():
            say(f"a stream was destroyed before anybody learned that {failure.message}")

    def _work(self) -> None:
        with (
            contextlib.suppress(OSError),
            open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as name,
        ):
            name.write(_THREAD_NAME)
        while (job := self._jobs.get()) is not None:
            failure = _outcome(job)
            with self._idle:
                if failure is not None:
                    self._failures.append(failure)
                self._pending -= 1
                self._idle.notify_all()


def _outcome(job: Callable[[], None]) -> Failure | None:
    try:
        job()
    except Failure as found:
        return found
    except MemoryError:
        return Failure(BAD_ALLOC, f"a job ran out of memory. [{BAD_ALLOC} ACL_ERROR_BAD_ALLOC]")
    except Exception as error:  # a bug of ours: the program must learn of it, and go on
        text = f"internal error, please report it: {type(error).__name__}: {error}"
        say(text)
        return Failure(INTERNAL, f"{text} [{INTERNAL} ACL_ERROR_INTERNAL_ERROR]")
    return None


class Streams:
    """Every stream that lives, and the default one that a null handle means."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: list[Stream] = []
        self._default: Stream | None = None

    def create(self) -> Stream:
        stream = Stream()
        with self._lock:
            self._live.append(stream)
        return stream

    def default(self) -> Stream:
        with self._lock:
            if self._default is None:
                self._default = Stream()
                self._live.append(self._default)
            return self._default

    def destroy(self, stream: Stream) -> None:
        with self._lock:
            self._live = [other for other in self._live if other is not stream]
            if stream is self._default:
                self._default = None
        stream.close()

    def live(self) -> list[Stream]:
        with self._lock:
            return list(self._live)

    def close_all(self) -> None:
        with self._lock:
            live, self._live, self._default = self._live, [], None
        for stream in live:
            stream.close()


STREAMS = Streams()


def _after_fork() -> None:
    """The parent's workers don't run in a child, so nobody may wait for its streams there."""
    for stream in STREAMS._live:
        stream.alive = False
    STREAMS.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)
