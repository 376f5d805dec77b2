"""docs/cli.md names every command, option, operator and field. test_consoles.py runs its commands."""

from __future__ import annotations

import re
from importlib import import_module

import click
import pytest

from paths import DOCS
from pooltide.acceptance.cases import FIELDS
from pooltide.acceptance.notation import parse
from pooltide.acceptance.words import short_names
from pooltide.cli import COMMANDS

PAGE = DOCS / "cli.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="NO DOCS: the tests run outside the source tree")


def test_the_examples_are_cases() -> None:
    first = PAGE.read_text().partition("\n```\n")[2].partition("\n```")[0]
    examples = first.splitlines()
    assert len(examples) == 4
    assert {str(parse(line)) for line in examples} == set(examples)


def test_every_operator_and_field_is_there() -> None:
    text = PAGE.read_text()
    for name in (*short_names(), *FIELDS):
        assert f"`{name}`" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_there(name: str) -> None:
    (row,) = re.findall(rf"^\| `pooltide {name}\b.*$", PAGE.read_text(), re.M)
    command = import_module(f"pooltide.cli.{name}").command
    options = {max(option.opts, key=len) for option in command.params if isinstance(option, click.Option)}
    elsewhere = {"--help", "--report", "--output"}  # below the table; --output is -o in the row
    assert not [option for option in options - elsewhere if f"`{option}" not in row]
