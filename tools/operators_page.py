"""Writes docs/operators.md, the tables that are printed from the operator pages.

python tools/operators_page.py
"""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from pooltide.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "operators.md"


def _ops(*options: str) -> str:
    run = CliRunner().invoke(main, ["ops", "--markdown", *options], catch_exceptions=False)
    assert run.exit_code == 0, run.output
    return run.output.strip()


TEXT = """\
# Operators

`python tools/operators_page.py` prints this page from the operator pages of the package.

## The gradients

As `pooltide ops` prints it; "not yet" means that CANN's two-phase interface of the operator is not here yet.

{functions}

## What runs where

As `pooltide ops --support` prints it; the first rows are the gradients, the others the forwards.

{support}

## What runs on which product

{products}

# Parameters and rules

Rules are checked in this order; the first that fails gives the status.

{reference}
"""


def page() -> str:
    """Returns the text of the page."""
    products, functions, reference = _ops().split("\n\n", 2)
    return TEXT.format(functions=functions, support=_ops("--support"), products=products, reference=reference)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
