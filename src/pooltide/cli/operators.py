"""`pooltide operators`: begins a page of your own operator, and reads pages."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..operators.catalog import documented, folders, user_operators
from ..operators.pages.skeleton import from_prototype, from_words, function_text, page_text
from ..operators.pages.user import file_name, load_file
from ..operators.toml import PageError
from .output import NoAnswer, aligned, say


@click.group()
def command() -> None:
    """Describe operators of your own: a page, and a Python function that computes."""


@command.command()
@click.argument("operator")
@click.argument("parameters", nargs=-1, metavar="[NAME:TYPE]...")
@click.option("--folder", default=".", type=click.Path(path_type=Path), help="Where the two files go.")
def new(operator: str, parameters: tuple[str, ...], folder: Path) -> None:
    """Write the page of OPERATOR and the file of its function.

    OPERATOR is a name with parameters, aclnnRelu self:tensor out:output, or phase one in the words of CANN's
    document: 'aclnnReluGetWorkspaceSize(const aclTensor *self, aclTensor *out)'. TYPE is tensor, output or
    in_place; tensor_list, scalar, int_array, float_array, bool_array; bool, int64, int32, double, float or
    string.
    """
    try:
        if "(" in operator:
            if parameters:
                raise PageError("the declaration has the parameters already; give it alone")
            name, fields = from_prototype(operator)
        else:
            name, fields = operator, from_words(parameters or ("self:tensor", "out:output"))
        if name in documented():
            raise PageError(f"operator is {name}, which pooltide has; it must be another")
        page, code = (folder / f"{file_name(name)}{ending}" for ending in (".toml", ".py"))
        if existing := [path for path in (page, code) if path.exists()]:
            raise PageError(f"{existing[0]} exists already; remove it, or choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        code.write_text(function_text(name, fields), "utf-8")
        page.write_text(page_text(name, fields), "utf-8")
        try:
            load_file(page)
        except PageError:
            page.unlink()
            code.unlink()
            raise
    except PageError as error:
        raise NoAnswer(str(error)) from None
    say(f"wrote {page} and {code}")


@command.command(name="list")
@click.argument("where", nargs=-1, metavar="[FOLDER]...")
def list_(where: tuple[str, ...]) -> None:
    """Read the pages of the folders, or of POOLTIDE_OPERATORS, and list their operators."""
    try:
        known = user_operators(folders(os.pathsep.join(where) if where else None))
    except PageError as error:
        raise NoAnswer(str(error)) from None
    rows = [[op.name, str(op.python or "only declared"), op.header, op.page] for op in known.values()]
    say(aligned(["operator", "computed by", "header", "page"], rows))
