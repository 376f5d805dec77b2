"""The C library of a command: with the operators of the folders that --operators or the environment names."""

from __future__ import annotations

import hashlib
import os

import click

from ..c.build import BuildInputs, CannotBuild, Installation, install, plain_root
from ..operators.catalog import FOLDERS, folders
from ..operators.pages.skeleton import from_prototype, page_text
from ..operators.pages.user import file_name
from ..operators.toml import PageError
from ..writing import why, write_own
from .output import NoAnswer

operators_option = click.option(
    "--operators",
    multiple=True,
    metavar="FOLDER",
    help=f"A folder with pages of your operators; without it, those of {FOLDERS}.",
)


def installation(operators: tuple[str, ...], declared: tuple[str, ...] = ()) -> Installation:
    """Build what is missing. `declared` are declarations of operators without pages. Raises NoAnswer."""
    try:
        where = folders(os.pathsep.join(operators) if operators else None)
        return install(BuildInputs(folders=(*where, *_declared(declared))))
    except (CannotBuild, PageError) as error:
        raise NoAnswer(str(error)) from None
    except OSError as error:
        raise NoAnswer(f"{error.filename}: can't be written: {why(error)}") from None


def _declared(declarations: tuple[str, ...]) -> tuple[str, ...]:
    """A folder with a page for each declaration; () for none."""
    if not declarations:
        return ()
    pages = dict(from_prototype(text) for text in declarations)
    name = hashlib.sha256("\n".join(sorted(declarations)).encode(errors="replace")).hexdigest()[:16]
    folder = plain_root() / "declared" / name
    folder.mkdir(parents=True, exist_ok=True)
    for operator, fields in pages.items():
        text = page_text(operator, fields, declared=True)
        write_own(folder / f"{file_name(operator)}.toml", [text.encode()])
    return (str(folder),)
