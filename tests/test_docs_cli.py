"""The session of docs/cli.md is what happens: its commands run, and print what the page prints."""

from __future__ import annotations

import os
import re
import subprocess
from importlib import import_module
from pathlib import Path

import click
import pytest
from commandline import PROGRAM

from pooltide.acceptance.cases import FIELDS
from pooltide.acceptance.notation import parse
from pooltide.acceptance.words import short_names
from pooltide.cli import COMMANDS

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="NO DOCS: the tests run outside the source tree")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.S | re.M)


def steps() -> list[tuple[str, str]]:
    found = []
    for block in blocks("console"):
        for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = step.partition("\n")
            found.append((command, output))
    return found


def test_the_session(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    session = steps()
    command, cases = session[0]
    assert command == "cat cases.csv"
    (tmp_path / "cases.csv").write_text(cases)
    for command, output in session:
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert done.stdout == output, command
        failing = "refused" in output or "FAIL" in output
        assert done.returncode == failing, command
    assert (tmp_path / "report.html").exists()
    assert len(session) >= 6


def test_the_examples_are_cases() -> None:
    examples = [line for line in blocks("")[0].splitlines() if line]
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
