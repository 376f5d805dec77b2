"""Shows how far a long command is, with an estimate, on the standard error output.

On a terminal it is a bar. Elsewhere it is a line now and then, so that a log shows that work goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from .speech import say

_SECONDS = 30.0  # between two lines


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Gives a function to call after each case; `total` is the number of cases, if it is known.

    No thread draws the bar, as workers are forked while it is shown.
    """
    if not sys.stderr.isatty() or (sys.stdout.isatty() and what == "compare"):
        yield _lines(what, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bar:
        task = bar.add_task(what, total=total)
        every = max(1, (total or 0) // 200)

        def advance() -> None:
            bar.advance(task)
            if bar.tasks[0].completed % every == 0:
                bar.refresh()

        yield advance


def _lines(what: str, total: int | None) -> Callable[[], None]:
    start = last = monotonic()
    done = 0

    def advance() -> None:
        nonlocal last, done
        done += 1
        now = monotonic()
        if now - last >= _SECONDS:
            last = now
            say(f"{what}: {done} {estimate(done, total, now - start)}", err=True)

    return advance


def estimate(done: int, total: int | None, seconds: float) -> str:
    """What follows the number of finished cases: how many there are, and how long the others take."""
    if total is None or total < done:
        return "cases"
    left = seconds / done * (total - done)
    words = f"{left / 3600:.1f} hours" if left >= 3600 else f"{left / 60:.0f} minutes"
    return f"of {total} cases, about {words if left >= 60 else 'a minute'} left"
