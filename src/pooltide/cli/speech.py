"""What the commands print. Text that came from a file can't steer the terminal."""

from __future__ import annotations

import shlex
from unicodedata import category

import click

_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, direction of writing, lone surrogates, line ends


def visible(text: str) -> str:
    """The text with its control characters as \\u001b; line feeds stay.

    The escapes are those of JSON too, so a JSON document stays one.
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
    """A sentence that may hold a path or a name: a line feed in it can't begin a line of its own."""
    return visible(text).replace("\n", "\\n")


def say(text: str, *, err: bool = False) -> None:
    click.echo(visible(text), err=err)


def reproduce(*words: object) -> str:
    """The last line of a failure: a command that a shell takes as it stands."""
    return f"reproduce: {shlex.join(['pooltide', *map(str, words)])}"
