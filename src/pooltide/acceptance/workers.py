"""Makes golden data in several processes.

Workers end when their parent has died. An interrupt takes effect between two cases.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any

from .golden import Made, Task, make

_MOST_AT_ONCE = 16  # cases in one message to a worker
_WAITING = 4  # messages per worker that wait or are worked on
Work = tuple[Task, Mapping[str, Any] | None]  # a task, and the entry that the manifest has for its name


class WorkerDied(RuntimeError):
    """A worker process was killed, most often because the memory was full."""


def make_all(work: Iterable[Work], directory: Path, jobs: int, total: int) -> Iterator[Made]:
    """The outcomes of all tasks, in the order in which they end. At most a few tasks per job wait at a time.

    `total` is the number of tasks: few tasks are given out one by one.
    """
    if jobs == 1 or total == 1:
        for task, entry in work:
            yield make(task, directory, entry)
        return
    size = min(max(total // (jobs * 8), 1), _MOST_AT_ONCE)
    chunks = _chunks(work, size)
    waiting: set[Future[list[Made]]] = set()
    with ProcessPoolExecutor(jobs, initializer=_start) as pool:
        try:
            while True:
                for chunk in islice(chunks, jobs * _WAITING - len(waiting)):
                    waiting.add(pool.submit(_make_chunk, chunk, directory))
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                made = [outcome for future in done for outcome in future.result()]
                if any(outcome.full for outcome in made):
                    made += _finished(waiting)
                yield from sorted(made, key=lambda outcome: outcome.full)  # what is finished comes first
        except BrokenProcessPool:
            raise WorkerDied("a worker process died; perhaps memory ran out: try fewer --jobs") from None
        finally:
            for future in waiting:
                future.cancel()


def _finished(waiting: set[Future[list[Made]]]) -> list[Made]:
    """The outcomes of the tasks that have begun; the other tasks are dropped."""
    begun = [future for future in waiting if not future.cancel()]
    return [made for future in begun for made in future.result()]


def _chunks(work: Iterable[Work], size: int) -> Iterator[list[Work]]:
    source = iter(work)
    while chunk := list(islice(source, size)):
        yield chunk


def _make_chunk(chunk: list[Work], directory: Path) -> list[Made]:
    """The outcomes of some tasks; none after one whose files can't be written."""
    made = []
    for task, entry in chunk:
        made.append(make(task, directory, entry))
        if made[-1].full:
            break
    return made


def _start() -> None:
    """Start a worker: only the parent handles Ctrl-C, and the worker ends when the parent has died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
