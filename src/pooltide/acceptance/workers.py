"""Makes golden data in several processes.

Workers end when their parent has died. An interrupt takes effect between two cases.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from .golden import Made, Task, make

_MOST_AT_ONCE = 16  # cases in one message to a worker


class WorkerDied(RuntimeError):
    """A worker process was killed, most often because the memory was full."""


def make_all(tasks: Sequence[Task], directory: Path, known: Mapping[str, Any], jobs: int) -> Iterator[Made]:
    """The outcomes of all tasks, in the order in which they end."""
    work = [(task, known.get(task.name)) for task in tasks]
    if jobs == 1 or len(tasks) < 2:
        for task, entry in work:
            yield make(task, directory, entry)
        return
    size = min(max(len(work) // (jobs * 8), 1), _MOST_AT_ONCE)
    chunks = [work[at : at + size] for at in range(0, len(work), size)]
    with ProcessPoolExecutor(min(jobs, len(chunks)), initializer=_start) as pool:
        futures = [pool.submit(_make_chunk, chunk, directory) for chunk in chunks]
        try:
            for future in as_completed(futures):
                yield from future.result()
        except BrokenProcessPool:
            raise WorkerDied("a worker process died; perhaps memory ran out: try fewer --jobs") from None
        finally:
            for future in futures:
                future.cancel()


def _make_chunk(chunk: Sequence[tuple[Task, Any]], directory: Path) -> list[Made]:
    return [make(task, directory, entry) for task, entry in chunk]


def _start() -> None:
    """Start a worker: only the parent handles Ctrl-C, and the worker ends when the parent has died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
