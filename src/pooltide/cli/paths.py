"""The types of arguments that name a file or a directory.

A path that can't be read or written is an error of the files, not of the usage.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ..writing import check_directory, check_file, why
from .speech import NoAnswer


class NamedPath(click.Path):
    """A click.Path with a name: an empty one would mean the working directory, and none has a null byte."""

    def __init__(self, **kinds: bool) -> None:
        super().__init__(path_type=Path, **kinds)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fspath(value)
        if not text:
            self.fail("the path is empty; it must name a file or a directory", param, ctx)
        if "\0" in text:
            self.fail(f"the path {text!r} has a null byte; it must have none", param, ctx)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise NoAnswer(error.message) from None


class OutputPath(NamedPath):
    """A file or a directory that is written after the work, but checked before it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        try:
            check_file(path) if self.file_okay else check_directory(path)
        except OSError as error:
            raise NoAnswer(f"{path}: can't be written: {why(error)}") from None
        return path
