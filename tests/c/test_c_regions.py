"""A C program that calls CANN's pools over regions of interest."""

from __future__ import annotations

from pathlib import Path

from c_programs import compile_program, run_program
from paths import PROGRAMS

# Of the plane 1 … 16. Each sample of the aligned region is in the middle of a cell, so a bin has the mean of four.
EXPECTED = """aclnnRoiAlignV2: 3.5 5.5 11.5 13.5
aclnnRoiAlignV2Backward: 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25
aclnnRoiAlign: 6 8 14 16
aclnnRoiAlignV2: 0 0 0 0
"""


def test_the_program_prints_what_was_worked_out_by_hand(tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "roi_align.c", tmp_path / "program", "-lm")
    run = run_program(program)
    assert (run.returncode, run.stdout) == (0, EXPECTED), run.stderr
    lines = [line for line in run.stderr.splitlines() if "boxes" in line]
    assert len(lines) == 1
    assert "aclnnRoiAlignV2: boxes[0, 0] is 1; it must be 0 to 0, the number of an image." in lines[0]
    assert "The region is 0, and adds nothing to a gradient." in lines[0]
    assert run_program(program, environment={"POOLTIDE_CHECKS": "strict"}).returncode == 2
