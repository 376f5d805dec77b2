"""Streams: each is a queue of jobs and a worker thread that runs them in order.

A worker begins a moment after a job was submitted to an idle stream, and a thread that waits for the
stream runs the queued jobs itself until then: handing a small job to another thread takes longer than
the job. A timer of the system wakes the worker, so that the worker takes no time of Python's lock before.
A stream stores the failures of its jobs until a thread synchronizes the stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from .order import Clock, wait_for
from .state import BAD_ALLOC, INTERNAL, STATE, Refused, format_message, say

# The system's name of a worker and of the threads that it starts. The C library uses the name to
# distinguish them from the program's threads (c/ending.h).
_THREAD_NAME = "[pooltide]"
# Settings of a timer. The first is longer than a program takes from phase two to its wait. It is set when the
# worker has nothing to do, and never changed before it is over: setting a timer takes as long as a small job.
_SOON, _AT_ONCE = (struct.pack("@qqqq", 0, 0, 0, nanoseconds) for nanoseconds in (200_000, 1))
_LIBC = ctypes.PyDLL(None, use_errno=True)  # its calls keep Python's lock, as they return at once


@dataclass(frozen=True, slots=True)
class Job:
    title: str  # of the function that submitted it, for messages
    run: Callable[[], object]
    drop: Callable[[], object] = lambda: None  # called instead of `run` by aclrtDestroyStreamForce


@dataclass(frozen=True)
class Failure:
    status: int
    title: str
    text: str

    @property
    def message(self) -> str:
        return format_message(self.title, self.text, self.status)


class Timer:
    """Wakes one thread after a while. The thread waits outside of Python, and costs no other thread time."""

    def __init__(self) -> None:
        self._file = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "no timer is left")

    def start(self, setting: bytes) -> None:
        """Set the time of the next wake-up, instead of one that was set before."""
        _LIBC.timerfd_settime(self._file, 0, setting, None)

    def wait(self) -> None:
        os.read(self._file, 8)

    def close(self) -> None:
        os.close(self._file)


class Stream:
    def __init__(self, name: str = "a stream") -> None:
        self.alive = True
        self.waited = 0  # the last job that the host has waited for
        self.clock: Clock = {}  # the jobs of other streams that come before this stream's next job
        self._name = name
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._submitted = self._finished = 0
        self._running = self._waking = False  # a thread runs a job; the worker is up, or will be soon
        self._timer = Timer()
        self._failures: list[Failure] = []
        self._worker = threading.Thread(target=self._work, name="pooltide-stream", daemon=True)
        self._worker.start()

    def __str__(self) -> str:
        return self._name

    @property
    def in_flight(self) -> bool:
        """Whether the stream has jobs that the host has not waited for."""
        return self.waited < self._submitted

    def submit(self, job: Job) -> int:
        """Queue a job; returns its number, or 0 when the stream is destroyed."""
        with self._changed:
            if not self.alive:
                return 0
            self._submitted += 1
            self._jobs.append(job)
            if not self._waking:
                self._waking = True
                self._timer.start(_SOON)
            return self._submitted

    def require_submit(self, job: Job, status: int) -> int:
        """Queue a job; returns its number. Raises Refused with this status when the stream is destroyed."""
        if not (number := self.submit(job)):
            text = "stream was destroyed during this call; it must live until the call returns."
            raise Refused(status, text)
        return number

    def finished(self) -> bool:
        """Whether all jobs are done. The host then knows it, as if it had waited."""
        with self._changed:
            known = {self: self._submitted, **self.clock}
            done = self._finished == self._submitted
        if done:
            wait_for(known)
        return done

    def synchronize(self) -> Failure | None:
        """Wait for all jobs; returns the first failure since the last call, or None."""
        self.wait()
        with self._changed:
            failures, self._failures = self._failures, []
        return failures[0] if failures else None

    def wait(self, seconds: float | None = None, job: int | None = None) -> bool:
        """Wait for all jobs, or up to a job; their failures stay for `synchronize`. False: time ran out."""
        end = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            last = self._submitted if job is None else job
            known = {self: last, **self.clock}
            while self._finished < last:
                if end is None and self._jobs and not self._running:
                    self._run_next()
                    continue
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        if job is None:
            wait_for(known)
            for stream, last in known.items():
                if self.clock.get(stream, last + 1) <= last:
                    self.clock.pop(stream, None)  # another thread may have done it
        return True

    def close(self, *, force: bool = False) -> None:
        """Finish the queued jobs, end the worker, and print the failures that were not reported yet.

        `force` drops the queued jobs, except the one that runs.
        """
        with self._changed:
            if not self.alive:
                return
            self.alive = False
            dropped = list(self._jobs) if force else []
            if force:
                self._jobs.clear()
                self._finished += len(dropped)
            self._timer.start(_AT_ONCE)
            self._changed.notify_all()
        for job in dropped:
            job.drop()
        self.wait()
        self._worker.join()
        self._timer.close()
        for failure in self._failures if STATE.checks != "off" else ():
            say(f"a stream was destroyed without aclrtSynchronizeStream after a failure: {failure.message}")

    def _work(self) -> None:
        with (
            contextlib.suppress(OSError),
            open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as name,
        ):
            name.write(_THREAD_NAME)
        while True:
            self._timer.wait()
            with self._changed:
                while self._jobs or self._running:
                    if self._jobs and not self._running:
                        self._run_next()
                    else:
                        self._changed.wait()
                if not self.alive:
                    return
                self._waking = False

    def _run_next(self) -> None:
        """Run the first job of the queue, without the lock, which the caller holds."""
        job, failure = self._jobs.popleft(), None
        self._running = True
        self._changed.release()
        try:
            failure = _outcome(job)
        finally:  # Ctrl-C may end the job of a thread that waits
            self._changed.acquire()
            self._running = False
            self._finished += 1
            if failure is not None:
                self._failures.append(failure)
            self._changed.notify_all()


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
    return Failure(status, job.title, text)


class Streams:
    """All live streams."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: list[Stream] = []
        self._numbers = itertools.count(1)

    def create(self, name: str | None = None) -> Stream:
        """A new stream. Messages call it by its name: by default, its number in the order of creation."""
        with self._lock:
            stream = Stream(name or f"stream {next(self._numbers)}")
            self._live.append(stream)
        return stream

    def destroy(self, stream: Stream, *, force: bool = False) -> None:
        with self._lock:
            self._live = [other for other in self._live if other is not stream]
        stream.close(force=force)

    def live(self) -> list[Stream]:
        with self._lock:
            return list(self._live)

    def close_all(self) -> None:
        with self._lock:
            live, self._live = self._live, []
            self._numbers = itertools.count(1)
        for stream in live:
            stream.close()


STREAMS = Streams()


def _after_fork() -> None:
    """In a child: the parent's workers do not run there, so a wait for its streams would never end."""
    for stream in STREAMS._live:
        stream.alive = False
    STREAMS.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)
