"""Takes the jobs of a stream, in order, and the threads that wait for them.

Returns when a job is done, and the failures of jobs, which the stream keeps until a thread synchronizes it.
It must not touch memory or tensors: only the jobs do.

A stream is a queue and a worker thread. The worker begins a moment after a job was submitted to an idle
stream, and a thread that waits for the stream runs the queued jobs itself until then: handing a small job to
another thread takes longer than the job. A timer of the system wakes the worker, so that the worker does not
hold the GIL before.

Ctrl-C may raise KeyboardInterrupt in the main thread after any call of a function, in here too. So:

- Locks are held by `with`, and are locks of the interpreter. Condition and Event are written in Python: an
  interrupt in their methods leaves their lock held.
- A change takes effect by one assignment or one call, and the lines after it may be skipped.
- A thread that waits looks again after _SLICE seconds, in case an interrupt skipped the wake-up.
- A thread that waits runs only jobs that are short and may be run again: an interrupted job stays first in
  the queue. The worker, which no interrupt reaches, runs the others.
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
from dataclasses import dataclass, field
from typing import ClassVar

from .call_sites import Site, capture, enter_job
from .error_reports import BAD_ALLOC, INTERNAL, RT_INVALID, Refused, format_message
from .findings import Finding, say
from .races import Clock, wait_for
from .state import STATE

# The system's name of a worker and of the threads that it starts. The C library uses the name to
# distinguish them from the program's threads (c/process_exit.h).
_THREAD_NAME = "[pooltide]"
_SLICE = 0.05  # seconds
QUICK_BYTES = 4 << 20  # that a job moves in about a millisecond
# Settings of a timer. _SOON is longer than a program takes from phase two to its wait. It is set when the
# worker is idle, and never changed before it is over: setting a timer takes as long as a small job.
_SOON, _AT_ONCE = (struct.pack("@qqqq", 0, 0, 0, nanoseconds) for nanoseconds in (200_000, 1))
_LIBC = ctypes.PyDLL(None, use_errno=True)  # its calls keep the GIL, as they return at once
_IDS = itertools.count(1)
FAILED_JOBS: list[Callable[[Stream, Failure], None]] = []  # called in the thread of a job that failed


@dataclass(slots=True, eq=False)  # a frozen one takes three times as long to make
class Job:
    title: str  # of the function that submitted it, for messages
    run: Callable[[], object]
    drop: Callable[[], object] = lambda: None  # called instead of `run` by aclrtDestroyStreamForce
    quick: bool = True  # a thread that waits may run it
    site: Site | None = field(default_factory=capture)  # of the call that submitted it


@dataclass(frozen=True)
class Failure:
    status: int
    title: str
    text: str
    finding: Finding

    @property
    def message(self) -> str:
        return format_message(self.title, self.text, self.status)


class _Timer:
    """Wakes one thread after a while. The thread waits without the GIL."""

    def __init__(self) -> None:
        self._file = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "no timer is left")

    def start(self, setting: bytes) -> None:
        """Set the time of the next wake-up, which replaces an earlier setting."""
        _LIBC.timerfd_settime(self._file, 0, setting, None)

    def wait(self) -> None:
        os.read(self._file, 8)

    def close(self) -> None:
        os.close(self._file)


class Stream:
    must_be: ClassVar[str] = "a stream of aclrtCreateStream"

    def __init__(self, name: str = "a stream", device: int = 0) -> None:
        self.alive = True
        self.released = False  # by aclrtResetDevice
        self.caller: tuple[int, int] | None = None  # the thread that must end a job, and the job's number
        self.waited = 0  # the last job that the host has waited for
        self.clock: Clock = {}  # the jobs of other streams that come before this stream's next job
        self._name = name
        self.device = device
        self.made = capture()
        self.id = next(_IDS)
        self._lock = threading.RLock()  # a signal's handler may call the stream again
        self._jobs: deque[tuple[int, Job]] = deque()  # with their numbers; the first may be running
        self._finished = 0  # the number of the last job that is done
        self._skipped = 0  # the number of the last job that was dropped
        self._runner: object | None = None  # identifies the thread that runs the first job
        self._waking = False  # the worker is awake, or will be soon
        self._waiters: deque[threading.Lock] = deque()  # released when a job is done
        self._timer = _Timer()
        self._failures: list[Failure] = []
        self._worker = threading.Thread(target=self._work, name="pooltide-stream", daemon=True)
        self._worker.start()

    def __str__(self) -> str:
        return self._name

    @property
    def in_flight(self) -> bool:
        """Whether the stream has jobs that the host has not waited for."""
        return self.waited < self._last()

    @property
    def last_finished(self) -> int:
        """The number of the last job that is done."""
        return self._finished

    def _last(self) -> int:
        """The number of the last job that was submitted."""
        with self._lock:
            return self._jobs[-1][0] if self._jobs else self._finished

    def submit(self, job: Job) -> int:
        """Queue a job; returns its number, or 0 when the stream is destroyed."""
        with self._lock:
            if not self.alive:
                return 0
            number = self._last() + 1
            self._jobs.append((number, job))
            if not self._waking:
                self._wake(_SOON)
            return number

    def _wake(self, setting: bytes) -> None:
        self._timer.start(setting)
        self._waking = True

    def require_submit(self, job: Job, status: int) -> int:
        """Queue a job; returns its number. Raises Refused with this status when the stream is destroyed."""
        if not (number := self.submit(job)):
            text = "stream was destroyed during this call; it must live until the call returns."
            raise Refused(status, text)
        return number

    def finished(self) -> bool:
        """Whether all jobs are done. If so, the host counts as having waited for them."""
        with self._lock:
            last = self._last()
            jobs = {self: last, **self.clock}
            done = self._finished == last
            if not done and not self._waking:
                self._wake(_AT_ONCE)
        if done:
            wait_for(jobs)
        return done

    def synchronize(self) -> Failure | None:
        """Wait for all jobs; returns the first failure since the last call, or None."""
        self.wait()
        with self._lock:
            failures, self._failures = self._failures, []
        return failures[0] if failures else None

    def wait(self, seconds: float | None = None, job: int | None = None) -> bool:
        """Wait for all jobs, or up to a job; their failures stay for `synchronize`. False: time ran out."""
        end = None if seconds is None else time.monotonic() + seconds
        last = self._last() if job is None else job
        jobs = {self: last, **self.clock}
        while self._finished < last:
            if end is None:
                self._refuse_endless_wait({self: last} if job else jobs)
                if self._run_next(waiting=True):
                    continue
            left = _SLICE if end is None else min(end - time.monotonic(), _SLICE)
            if left <= 0:
                return False
            self._sleep(last, left)
        if job is None:
            wait_for(jobs)
            for stream, last in jobs.items():
                if self.clock.get(stream, last + 1) <= last:
                    self.clock.pop(stream, None)  # another thread may have done it
        return True

    def refuse_endless_wait(self) -> None:
        """Raises Refused if this thread would wait for all jobs forever, as one of them waits for it."""
        self._refuse_endless_wait({self: self._last(), **self.clock})

    def _refuse_endless_wait(self, jobs: Clock) -> None:
        for stream, last in jobs.items():
            thread, number = stream.caller or (0, 0)
            if thread == threading.get_ident() and number <= last and self.alive:
                text = (
                    f"{stream} waits for a callback of aclrtLaunchCallback, which this thread calls in "
                    "aclrtProcessReport; another thread must make this call, as it would never return here."
                )
                raise Refused(RT_INVALID, text, certain=True)

    def close(self, *, force: bool = False) -> None:
        """Finish the queued jobs, end the worker, and print the failures that were not reported yet.

        `force` drops the queued jobs, except the one that runs.
        """
        with self._lock:
            if not self.alive:
                return
            self.alive = False
            dropped = self._drop_jobs() if force else []
            self._timer.start(_AT_ONCE)
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
            if self._run_next():
                continue
            with self._lock:
                idle = self._finished == self._last()
                if idle:
                    self._waking = False
            if not idle:
                self._sleep(self._finished + 1, _SLICE)
            elif self.alive:
                self._timer.wait()
            else:
                return

    def _run_next(self, *, waiting: bool = False) -> bool:
        """Run the first job of the queue; returns False if there is none, or another thread runs it.

        `waiting`: run it only if it is quick.
        """
        me = object()
        try:
            with self._lock:
                self._remove_finished()
                if self._runner is None and self._jobs and not (waiting and not self._jobs[0][1].quick):
                    self._runner = me
                    number, job = self._jobs[0]
            if self._runner is not me:
                return False
            failure = _outcome(job)
            if failure is not None:
                for report in FAILED_JOBS:
                    report(self, failure)
            with self._lock:
                if failure is not None:
                    self._failures.append(failure)
                self._finished = number if number > self._skipped else self._skipped
                self._remove_finished()
        finally:
            if self._runner is me:  # no interrupt comes between these two lines
                self._runner = None
        while self._waiters:
            with contextlib.suppress(IndexError):  # another thread may have released it
                self._waiters.popleft().release()
        return True

    def _remove_finished(self) -> None:
        while self._jobs and self._jobs[0][0] <= self._finished:
            self._jobs.popleft()

    def _drop_jobs(self) -> list[Job]:
        """Empty the queue, except a job that runs; returns the jobs that were dropped."""
        self._remove_finished()
        last, running = self._last(), int(self._runner is not None and bool(self._jobs))
        dropped = [job for _, job in list(self._jobs)[running:]]
        if running:
            self._skipped = last
        else:
            self._finished = last
        while len(self._jobs) > running:
            self._jobs.pop()
        return dropped

    def _sleep(self, last: int, seconds: float) -> None:
        """Wait until a job is done, but not if the job `last` is done already."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        if self._runner is None:
            self._timer.start(_AT_ONCE)
        if self._finished < last:
            waiter.acquire(timeout=seconds)
        with contextlib.suppress(ValueError):  # it was released
            self._waiters.remove(waiter)


def _outcome(job: Job) -> Failure | None:
    before = enter_job(job.site)
    try:
        return _run(job)
    finally:
        enter_job(before)


def _run(job: Job) -> Failure | None:
    try:
        job.run()
        return None
    except Refused as refused:
        error = refused
    except MemoryError:
        text = "the machine has too little memory for this call; free some, or use smaller tensors."
        error = Refused(BAD_ALLOC, text)
    except Exception as bug:  # in pooltide: the program must learn of it, and go on
        text = f"internal error, please report it: {type(bug).__name__}: {bug}"
        error = Refused(INTERNAL, text)
        say(f"{job.title}: {text}")
    return Failure(error.status, job.title, error.text, error.record(job.title))
