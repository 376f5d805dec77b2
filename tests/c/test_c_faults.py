"""One faulty program for each finding of the checks, with the line that the library must print."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from c_programs import compile_program, like, run_program
from paths import PROGRAMS
from shares import fast_first, fast_some

FAULTS = sorted((PROGRAMS / "faults").glob("*.c"))
OUTCOMES = {"goes on": 0, "is told": 0, "fails": 1, "dies": -signal.SIGSEGV}
# Programs whose fate the system decides at the level off, as host memory has no guards then.
UNGUARDED = (
    *("host_memory_read_far_behind_its_end", "host_memory_used_after_its_end"),
    "host_memory_written_before_its_start",
)
STRICT = {"goes on": 1, "is told": 86}  # the exit statuses at strict, where they differ


def _expected(source: Path) -> tuple[str, str]:
    found = re.match(r"/\* says: (.*)\n   warn: (.*) \*/\n", source.read_text("utf-8"))
    assert found, f"{source} does not say what it expects"
    return found[1], found[2]


def test_there_are_faults() -> None:
    assert len(FAULTS) >= 30


@pytest.mark.parametrize("level", fast_first(["warn", "strict", "off"]))
@pytest.mark.parametrize("source", fast_some(FAULTS, 5), ids=lambda path: path.stem)
def test_fault(source: Path, level: str, tmp_path: Path) -> None:
    says, at_warn = _expected(source)
    program = compile_program(source, tmp_path / "program")
    reference = {"POOLTIDE_BACKEND": "reference"}  # the backend that needs a workspace
    run = run_program(program, environment=reference | {"POOLTIDE_CHECKS": level})
    expected = (OUTCOMES | STRICT if level == "strict" else OUTCOMES)[at_warn]
    if level == "off" and source.stem in UNGUARDED:
        expected = run.returncode
    assert run.returncode == expected, run.stderr
    lines = [line for line in run.stderr.splitlines() if like(f"pooltide: {says}*").match(line)]
    assert len(lines) == (0 if level == "off" else 1), run.stderr
    if level == "off":  # the C library may say of an unguarded block that it is damaged
        assert "pooltide" not in run.stderr if source.stem in UNGUARDED else run.stderr == ""


def test_warn_is_the_default(tmp_path: Path) -> None:
    source = PROGRAMS / "faults" / "view_outside_its_block.c"
    run = run_program(compile_program(source, tmp_path / "program"))
    assert run.returncode == 0
    assert like(f"pooltide: {_expected(source)[0]}").search(run.stderr)
