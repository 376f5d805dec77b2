"""Compiles kernels on at most two threads, while calls run on general kernels.

    start(source, device) -> Job       compiles, or joins a compilation that was started before
    wait(timeout)                      until nothing is being compiled

A thread ends when no job is left. When the interpreter exits, jobs that have not begun are dropped, and the
interpreter waits for those that have: NVRTC cannot be interrupted. A forked child starts without jobs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread, main_thread
from time import monotonic, sleep

from ..source import Source
from .compiler import compiled
from .driver import Kernel, NoCompiler

THREADS = 2
_SLICE = 0.005  # seconds


@dataclass(slots=True, eq=False)
class Job:
    """A kernel that is being compiled. After `done`, it has the kernel or the reason why there is none."""

    source: Source
    device: int
    done: bool = False
    kernel: Kernel | None = None
    reason: str = ""

    def run(self) -> None:
        try:
            self.kernel = compiled(self.source, self.device)
        except NoCompiler as missing:
            self.reason = str(missing)
        except Exception as error:
            self.reason = f"{type(error).__name__}: {error}"
        finally:
            self.done = True


@dataclass(slots=True)
class _State:
    lock: Lock = field(default_factory=Lock)
    queue: deque[Job] = field(default_factory=deque)
    jobs: dict[tuple[Source, int], Job] = field(default_factory=dict)  # not done, or failed
    threads: int = 0


_state = _State()


def _forget() -> None:
    global _state
    _state = _State()


os.register_at_fork(after_in_child=_forget)


def start(source: Source, device: int, thread: Callable[..., Thread] = Thread) -> Job:
    """Returns the job of this kernel. A job that failed is returned again: it would fail again."""
    state = _state
    with state.lock:
        if known := state.jobs.get((source, device)):
            return known
        job = state.jobs[source, device] = Job(source, device)
        state.queue.append(job)
        if state.threads == THREADS:
            return job
        state.threads += 1
    try:
        thread(target=_work, args=(state,), name="pooltide compiler").start()
    except RuntimeError:  # the interpreter is exiting, or the system has no thread left
        _work(state)
    return job


def _work(state: _State) -> None:
    while True:
        with state.lock:
            if not main_thread().is_alive():
                for job in state.queue:
                    job.reason = "the interpreter exits"
                    job.done = True
                state.queue.clear()
            if not state.queue:
                state.threads -= 1
                return
            job = state.queue.popleft()
        job.run()
        with state.lock:
            if job.kernel is not None:
                del state.jobs[job.source, job.device]


def unfinished() -> list[Job]:
    """The jobs that are waiting or being compiled."""
    with _state.lock:
        return [job for job in _state.jobs.values() if not job.done]


def wait(timeout: float | None = None) -> bool:
    """Waits until no kernel is being compiled; returns False if that took longer than `timeout` seconds.

    It looks again and again: Ctrl-C in an Event would leave the Event's lock held.
    """
    end = None if timeout is None else monotonic() + timeout
    for job in unfinished():
        while not job.done:
            if end is not None and monotonic() >= end:
                return False
            sleep(_SLICE)
    return True
