"""The runtime calls around the pools do what their pages say, from C."""

from __future__ import annotations

from pathlib import Path

import pytest

from c_programs import compile_program, run_program
from paths import PROGRAMS


def test_the_calls_work_at_strict(tmp_path: Path) -> None:
    program = compile_program(
        PROGRAMS / "runtime_calls.c", tmp_path / "program", "-Wall", "-Wextra", "-pthread"
    )
    run = run_program(program, environment={"POOLTIDE_CHECKS": "strict", "POOLTIDE_EXIT_STATUS": "0"})
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
    lines = run.stderr.splitlines()
    expected = (
        "aclrtMemcpy2d: dpitch is 2",
        "dst is 0x",
        "never written",
        "aclprofInit: it belongs to profiling",
    )
    assert all(any(text in line for line in lines) for text in expected), run.stderr
    assert len(lines) == len(expected), run.stderr


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("POOLTIDE_EDITION", "5", "set_edition: edition is '5'; it must be one of 6.3, 7.0,"),
        ("POOLTIDE_DEVICES", "0", "POOLTIDE_DEVICES=0. It must be a number from 1 to 64."),
        ("POOLTIDE_DEVICES", "many", "POOLTIDE_DEVICES=many. It must be"),
    ],
)
def test_a_bad_setting_fails_the_first_call(name: str, value: str, says: str, tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "smallest.c", tmp_path / "program")
    run = run_program(program, environment={name: value})
    assert run.returncode != 0
    assert says in run.stderr
