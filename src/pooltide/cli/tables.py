"""Formats tables as aligned text, which fits the screen, or as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import wrap

Rows = Sequence[Sequence[str]]
_LEAST = 80  # columns of a screen, and of output that is no terminal
_NARROWEST = 8  # a column that words are broken for


def screen_width() -> int:
    return max(_LEAST, get_terminal_size().columns)


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
    for least in (words, [min(width, _NARROWEST) for width in widths]):
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
