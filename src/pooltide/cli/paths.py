"""The type of arguments that name a file or a directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


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
        return super().convert(value, param, ctx)
