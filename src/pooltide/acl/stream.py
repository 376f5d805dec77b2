"""Streams: each is a queue of jobs and a worker thread that runs them in order.

A stream stores the failures of its jobs until a thread synchronizes the stream.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from .state import BAD_ALLOC, INTERNAL, STATE, Refused, format_message, say

# The system's name of a worker and of the threads that it starts. The C library uses the name to
# distinguish them from the program's threads (c/ending.h).
_THREAD_NAME = "[pooltide]"


@dataclass(frozen=True)
class Job:
    title: str  # of the function that submitted it, for messages
    run: Callable[[], object]


@dataclass(frozen=True)
class Failure:
    status: int
    message: str


class Stream:
    def __init__(self) -> None:
        self.alive = True
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._pending = 0
        self._failures: list[Failure] = []
        self._worker = threading.Thread(target=self._work, name="pooltide-stream", daemon=True)
        self._worker.start()

    def submit(self, job: Job) -> bool:
        """Queue a job. Returns False when the stream is destroyed."""
        with self._idle:
            if self.alive:
                self._pending += 1
                self._jobs.put(job)
            return self.alive

    def synchronize(self) -> Failure | None:
        """Wait for all jobs; returns the first failure since the last call, or None."""
        with self._idle:
            self._idle.wait_for(lambda: self._pending == 0)
            failures, self._failures = self._failures, []
        return failures[0] if failures else None

    def wait(self) -> None:
        """Wait for all jobs, and leave their failures for `synchronize`."""
        with self._idle:
            self._idle.wait_for(lambda: self._pending == 0)

    def close(self) -> None:
        """Finish the queued jobs, end the worker, and print the failures that were not reported yet."""
        with self._idle:
            if not self.alive:
                return
            self.alive = False
            self._jobs.put(None)
        self._worker.join()
        for failure in self._failures if STATE.checks != "off" else ():
            say(f"a stream was destroyed without aclrtSynchronizeStream after a failure: {failure.message}")

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


def _outcome(job: Job) -> Failure | None:
    try:
        job.run()
        return None
    except Refused as error:
        status, text = error.status, error.text
    except MemoryError:
        status = BAD_ALLOC
        text = "the machine has too little memory for this call; free some, or use smaller tensors."
    except Exception as error:  # a bug in pooltide: the program must learn of it, and go on
        status, text = INTERNAL, f"internal error, please report it: {type(error).__name__}: {error}"
        say(f"{job.title}: {text}")
    return Failure(status, format_message(job.title, text, status))


class Streams:
    """All live streams. A null handle means the default stream."""

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
    """In a child: the parent's workers do not run there, so a wait for its streams would never end."""
    for stream in STREAMS._live:
        stream.alive = False
    STREAMS.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)
