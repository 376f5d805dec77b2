"""Streams: each is a queue of jobs and a worker thread that runs them in order.

A worker begins a moment after a job was submitted to an idle stream, and a thread that waits for the
stream runs the queued jobs itself until then: handing a small job to another thread takes longer than
the job. A timer of the system wakes the worker, so that the worker takes no time of Python's lock before.
A stream stores the failures of its jobs until a thread synchronizes the stream.

Ctrl-C may raise KeyboardInterrupt in the main thread after any call of a function, in here too. So:

- Locks are held by `with`, and are locks of the interpreter. Condition and Event are written in Python: an
  interrupt in their methods leaves their lock held.
- A change takes effect by one assignment or one call, and what follows it can be left out.
- A thread that waits looks again after a while (_SLICE), in case a wake-up was left out.
- A thread that waits runs only jobs that are short and may be run again: an interrupted job stays first in
  the queue. The worker, which no interrupt reaches, runs the others.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from .order import Clock, wait_for
from .state import BAD_ALLOC, INTERNAL, STATE, Refused, format_message, say
from .timer import AT_ONCE, SOON, Timer

# The system's name of a worker and of the threads that it starts. The C library uses the name to
# distinguish them from the program's threads (c/ending.h).
_THREAD_NAME = "[pooltide]"
_SLICE = 0.05  # seconds
QUICK_BYTES = 4 << 20  # that a job moves in about a millisecond


@dataclass(frozen=True, slots=True)
class Job:
    title: str  # of the function that submitted it, for messages
    run: Callable[[], object]
    drop: Callable[[], object] = lambda: None  # called instead of `run` by aclrtDestroyStreamForce
    quick: bool = True  # a thread that waits may run it


@dataclass(frozen=True)
class Failure:
    status: int
    title: str
    text: str

    @property
    def message(self) -> str:
        return format_message(self.title, self.text, self.status)


class Stream:
    def __init__(self, name: str = "a stream") -> None:
        self.alive = True
        self.waited = 0  # the last job that the host has waited for
        self.clock: Clock = {}  # the jobs of other streams that come before this stream's next job
        self._name = name
        self._lock = threading.RLock()  # a signal's handler may call the stream again
        self._jobs: deque[tuple[int, Job]] = deque()  # with their numbers; the first may be running
        self._finished = 0  # the number of the last job that is done
        self._skipped = 0  # the number of the last job that was dropped
        self._runner: object | None = None  # stands for the thread that runs the first job
        self._waking = False  # the worker is up, or will be soon
        self._bells: deque[threading.Lock] = deque()  # of threads that wait
        self._timer = Timer()
        self._failures: list[Failure] = []
        self._worker = threading.Thread(target=self._work, name="pooltide-stream", daemon=True)
        self._worker.start()

    def __str__(self) -> str:
        return self._name

    @property
    def in_flight(self) -> bool:
        """Whether the stream has jobs that the host has not waited for."""
        return self.waited < self._last()

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
                self._wake(SOON)
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
        """Whether all jobs are done. The host then knows it, as if it had waited."""
        with self._lock:
            last = self._last()
            known = {self: last, **self.clock}
            done = self._finished == last
            if not done and not self._waking:
                self._wake(AT_ONCE)
        if done:
            wait_for(known)
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
        known = {self: last, **self.clock}
        while self._finished < last:
            if end is None and self._run_next(waiting=True):
                continue
            left = _SLICE if end is None else min(end - time.monotonic(), _SLICE)
            if left <= 0:
                return False
            self._sleep(last, left)
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
        with self._lock:
            if not self.alive:
                return
            self.alive = False
            dropped = self._drop_jobs() if force else []
            self._timer.start(AT_ONCE)
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
            with self._lock:
                if failure is not None:
                    self._failures.append(failure)
                self._finished = number if number > self._skipped else self._skipped
                self._remove_finished()
        finally:
            if self._runner is me:  # no interrupt comes between these two lines
                self._runner = None
        while self._bells:
            with contextlib.suppress(IndexError):  # another thread may have rung it
                self._bells.popleft().release()
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
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        if self._runner is None:
            self._timer.start(AT_ONCE)
        if self._finished < last:
            bell.acquire(timeout=seconds)
        with contextlib.suppress(ValueError):  # it was rung
            self._bells.remove(bell)


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
