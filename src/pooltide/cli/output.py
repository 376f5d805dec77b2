"""What commands print: text, tables, and how far a long command is.

Control characters are escaped, so that text from a file can't control the terminal. On a terminal, verdicts
have colours. Tables are aligned text, which fits the screen, or Markdown. Progress goes to the standard error
output: on a terminal a bar, elsewhere a line now and then, so that a log shows that work goes on.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import wrap
from time import monotonic
from typing import TextIO, TypeVar
from unicodedata import category

import click

T = TypeVar("T")
Rows = Sequence[Sequence[str]]
_MIN_WIDTH = 80  # columns of a screen, and of output that is no terminal
_MIN_COLUMN = 8  # a column that words are broken for
_COLOURS = {"pass": "green", "warning": "yellow", "FAIL": "red"}
_VERDICT = re.compile(rf"^({'|'.join(_COLOURS)})(?=  )", re.M)
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, direction of writing, lone surrogates, line ends
_SECONDS = 30.0  # between two lines


class NoAnswer(click.ClickException):
    """The command can't do its work, though its usage is right; the text says why."""

    exit_code = 2


def visible(text: str) -> str:
    """The text with control characters escaped as \\u001b, but not line feeds.

    JSON has the same escapes, so a JSON document stays valid.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(_escaped(c) if c != "\n" and category(c) in _HIDDEN else c for c in text)


def _escaped(character: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _utf16(ord(character)))


def _utf16(code: int) -> tuple[int, ...]:
    if code < 0x10000:
        return (code,)
    return 0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code & 0x3FF)


def one_line(text: str) -> str:
    """The text on one line: a line feed, in a path or name, is escaped too."""
    return visible(text).replace("\n", "\\n")


def say(text: str, *, err: bool = False) -> None:
    text = visible(text)
    click.echo(_coloured(text) if _has_colours(sys.stderr if err else sys.stdout) else text, err=err)


def _has_colours(stream: TextIO | None) -> bool:
    """True for a terminal; https://no-color.org says how users refuse colours."""
    return not os.environ.get("NO_COLOR") and stream is not None and stream.isatty()


def _coloured(text: str) -> str:
    """The text with the verdict at the start of a line in its colour."""
    return _VERDICT.sub(lambda verdict: click.style(verdict[0], fg=_COLOURS[verdict[0]], bold=True), text)


def reproduce(*words: object) -> str:
    """The last line of a failure: a command that can be pasted into a shell."""
    return f"reproduce: {shlex.join(['pooltide', *map(str, words)])}"


def screen_width() -> int:
    return max(_MIN_WIDTH, get_terminal_size().columns)


def aligned(head: Sequence[str], rows: Rows) -> str:
    """A table; texts that are too long for the screen go on in the next line of their column."""
    columns = list(zip(head, *rows, strict=True))
    widths = _fitting(columns, screen_width() - 2 * (len(head) - 1))
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(_row(line, widths) for line in lines)


def _row(cells: Sequence[str], widths: list[int]) -> str:
    parts = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return "\n".join(
        "  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip()
        for line in zip_longest(*parts, fillvalue="")
    )


def _wrapped(cell: str, width: int) -> list[str]:
    words = (part for word in cell.split() for part in _broken(word, width))
    return wrap(" ".join(words), width, break_on_hyphens=False) or [""]


def _broken(word: str, width: int) -> Iterator[str]:
    """A word in parts that fit the width, if possible broken after _, /, : or -."""
    while len(word) > width:
        at = max(word.rfind(mark, 0, width) for mark in "_/:-") + 1 or width
        yield word[:at]
        word = word[at:]
    yield word


def _fitting(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """The widths of the columns. The widest shrink first, and words stay whole as long as that fits."""
    widths = [max(1, *map(len, column)) for column in columns]
    words = [max((len(word) for cell in column for word in cell.split()), default=1) for column in columns]
    for least in (words, [min(width, _MIN_COLUMN) for width in widths]):
        while sum(widths) > room:
            spare = [width - low for width, low in zip(widths, least, strict=True)]
            if max(spare) <= 0:
                break
            widest = max((i for i, more in enumerate(spare) if more > 0), key=lambda i: widths[i])
            widths[widest] -= 1
    return widths


def markdown(head: Sequence[str], rows: Rows) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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


def tracked(items: Iterable[T], total: int | None = None) -> Iterable[T]:
    """The items; on a terminal, with a bar that goes away at the end."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, "", total, console=console, transient=True, disable=not console.is_terminal)
