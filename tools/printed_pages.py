"""Writes the pages of docs/ that are printed, not typed.

    python tools/printed_pages.py

operators.md is printed from the operator pages, reference.md from signatures and docstrings, and the list of
differences in pytorch.md from tests/torch/pytorch_differences.toml. printed_functions.py first prints the
modules that have most of these docstrings.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from click.testing import CliRunner

import pooltide
import pooltide.torch
from pooltide import acl, aclnn
from pooltide.cli import main
from pooltide.operators import catalog

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DIFFERENCES = re.compile(r"(<!-- differences -->\n).*?(<!-- end -->\n)", re.DOTALL)
MODES = {"patch": "`patch()`", "forward": "`patch(forward=True)`", "functional": "`functional`"}
OPERATORS = """\
# Operators

`python tools/printed_pages.py` prints this page from the operator pages of the package.

## The functions

The last column is the operator of CANN with that meaning.
[regions.md](regions.md) says what the pools over regions of interest compute, and which boxes they take.

{functions}

## What runs where

As `pooltide ops --support` prints it; the first rows are the gradients, the others the forwards.

{support}

## What runs on which product

{products}

# Parameters and rules

Rules are checked in this order; the first that fails gives the status.
A rule is documented if CANN's documents have it, and decided if pooltide chose it because no document has it.
The item is that of the status in the error table of the document; rules of its other parts have none.
Below the rules are the document's own errors, and where the rules take more than the document says.

{reference}
"""
REFERENCE = """\
# Reference

`python tools/printed_pages.py` prints this page from the signatures and docstrings of the package.
[numpy.md](numpy.md), [pytorch.md](pytorch.md) and [cann.md](cann.md) have examples.

## pooltide, for NumPy

{numpy}

## pooltide.torch

{torch}

## pooltide.torch.functional

{functional}

## pooltide.acl

{acl}

## pooltide.aclnn

{aclnn}
"""


def _ops(*options: str) -> str:
    run = CliRunner().invoke(main, ["ops", "--markdown", *options], catch_exceptions=False)
    assert run.exit_code == 0, run.output
    return run.output.strip()


def operators() -> str:
    """Returns the text of docs/operators.md."""
    products, functions, reference = _ops().split("\n\n", 2)
    places = _sections(reference)

    def to_reference(name: str) -> str:
        return f"[{name}](reference.md#{name.lower()})"

    def to_section(cell: re.Match[str]) -> str:
        return f"[{cell[0]}](#{places[cell[0]]})" if cell[0] in places else cell[0]

    def with_functions(heading: re.Match[str]) -> str:
        names = [name for name in re.findall(r"\w+", heading[1]) if name in _described()]
        return f"{heading[0]}\n\nReference: {', '.join(map(to_reference, names))}."

    functions = re.sub(r"(?<=^\| )\w+_\w+", lambda cell: to_reference(cell[0]), functions, flags=re.M)
    functions, products = (re.sub(r"(?<=\| )aclnn\w+(?= \|)", to_section, t) for t in (functions, products))
    reference = re.sub(r"^## (.+)$", with_functions, reference, flags=re.M)
    return OPERATORS.format(
        functions=functions, support=_ops("--support"), products=products, reference=reference
    )


def _sections(reference: str) -> dict[str, str]:
    """By each name in a heading of docs/operators.md, the anchor of the heading, as GitHub makes it."""
    headings = re.findall(r"^## (.+)$", reference, re.M)
    return {
        name: re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in headings
        for name in re.findall(r"\w+", heading)
    }


def _described() -> set[str]:
    """The names of docs/reference.md that have a section, or a row, in docs/operators.md."""
    return {*pooltide.__all__} & {*catalog.operators()} | {n for n in dir(aclnn) if n.startswith("aclnn")}


def _entry(name: str, value: Any, places: dict[str, str]) -> str:
    signature = str(inspect.signature(value)).replace("'", "")
    text = f"### {name}\n\n```\n{name}{signature}\n```\n\n{_markdown(inspect.getdoc(value) or '')}".rstrip()
    if name in catalog.regions():
        return f"{text}\n\nBoxes and arithmetic: [regions.md](regions.md)."
    if name not in _described():
        return text
    section = places.get(name.removesuffix("GetWorkspaceSize"), "the-functions")
    return f"{text}\n\nDtypes and rules: [operators.md](operators.md#{section})."


def _markdown(text: str) -> str:
    """Returns a docstring whose sections (a line, then indented lines) are lists or code."""
    return "\n\n".join(map(_section, text.split("\n\n")))


def _section(paragraph: str) -> str:
    title, _, rest = paragraph.partition("\n")
    if not rest or not all(line.startswith("    ") for line in rest.splitlines()):
        return paragraph
    if (body := dedent(rest)).startswith(">>>"):
        return f"{title}\n\n```pycon\n{body}\n```"
    items = re.sub(r"\n +", " ", body).splitlines()
    return f"{title}\n\n" + "\n".join(re.sub(r"^(\w+)", r"- `\1`", item) for item in items)


def _entries(module: ModuleType, names: Iterable[str]) -> str:
    places = _sections(_ops().split("\n\n", 2)[2])
    found = [(name, getattr(module, name)) for name in sorted(names)]
    return "\n\n".join(_entry(name, value, places) for name, value in found if callable(value))


def reference() -> str:
    """Returns the text of docs/reference.md."""
    pools = [name for name in dir(pooltide.torch.functional) if name in pooltide.__all__]
    runtime = [name for name in dir(acl) if name.startswith(("acl", "set_", "get_", "tensor_"))]
    return REFERENCE.format(
        numpy=_entries(pooltide, pooltide.__all__),
        torch=_entries(pooltide.torch, pooltide.torch.__all__),
        functional=_entries(pooltide.torch.functional, pools),
        acl=_entries(acl, [name for name in runtime if inspect.isfunction(getattr(acl, name))]),
        aclnn=_entries(aclnn, [name for name in dir(aclnn) if name.startswith("aclnn")]),
    )


def pytorch() -> str:
    """Returns the text of docs/pytorch.md with its list of differences written anew."""
    listed = tomllib.loads((ROOT / "tests/torch/pytorch_differences.toml").read_text("utf-8"))["difference"]
    lines = [f"- {', '.join(MODES[mode] for mode in row['modes'])}: {row['reason']}\n" for row in listed]
    page = (DOCS / "pytorch.md").read_text("utf-8")
    return DIFFERENCES.sub(lambda found: f"{found[1]}\n{''.join(lines)}\n{found[2]}", page)


PAGES = {"operators.md": operators, "reference.md": reference, "pytorch.md": pytorch}

if __name__ == "__main__":
    import printed_functions

    if printed_functions.write():  # start again, with the new modules
        os.execv(sys.executable, [sys.executable, *sys.argv])
    for name, text in PAGES.items():
        (DOCS / name).write_text(text(), encoding="utf-8")
