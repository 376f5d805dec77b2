"""Reads the pages (`pages/*.toml`) strictly: a key that nobody knows is a mistake, not a wish."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any


class PageError(ValueError):
    """A page that can't be what was meant; the text says where and what."""


@cache
def read(file_name: str) -> dict[str, Any]:
    """The tables of a page, which the caller must not change."""
    return tomllib.loads(files("pooltide").joinpath("operators", "pages", file_name).read_text("utf-8"))


def read_page(name: str, *, keys: Iterable[str]) -> dict[str, Any]:
    page = read(f"{name}.toml")
    exact_keys(f"{name}.toml", page, required=keys)
    return page


def exact_keys(
    where: str, table: Mapping[str, Any], required: Iterable[str], optional: Iterable[str] = ()
) -> None:
    required, optional = set(required), set(optional)
    if missing := sorted(required - table.keys()):
        raise PageError(f"{where}: {', '.join(missing)} is missing")
    if unknown := sorted(table.keys() - required - optional):
        known = ", ".join(sorted(required | optional))
        raise PageError(f"{where}: {', '.join(unknown)} is unknown; known are {known}")
