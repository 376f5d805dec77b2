"""Prints text. Control characters are escaped, so that text from a file can't control the terminal."""

from __future__ import annotations

import shlex
from unicodedata import category

import click

_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, direction of writing, lone surrogates, line ends


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
    click.echo(visible(text), err=err)


def reproduce(*words: object) -> str:
    """The last line of a failure: a command that can be pasted into a shell."""
    return f"reproduce: {shlex.join(['pooltide', *map(str, words)])}"
