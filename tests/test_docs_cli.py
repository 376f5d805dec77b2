"""The session of docs/cli.md is what happens: its commands run, and print what the page prints."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from commandline import PROGRAM

from pooltide.acceptance.cases import FIELDS
from pooltide.acceptance.notation import parse
from pooltide.acceptance.words import short_names

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
