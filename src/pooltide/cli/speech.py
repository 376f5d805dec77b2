"""Prints text: control characters are escaped, so that text from a file can't control the terminal.

On a terminal, verdicts have colours.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import TextIO
from unicodedata import category

import click

_COLOURS = {"pass": "green", "warning": "yellow", "FAIL": "red"}
_VERDICT = re.compile(rf"^({'|'.join(_COLOURS)})(?=  )", re.M)
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, direction of writing, lone surrogates, line ends


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
    return _VERDICT.sub(lambda found: click.style(found[0], fg=_COLOURS[found[0]], bold=True), text)


def reproduce(*words: object) -> str:
    """The last line of a failure: a command that can be pasted into a shell."""
    return f"reproduce: {shlex.join(['pooltide', *map(str, words)])}"
