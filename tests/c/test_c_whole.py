"""Whole programs, in the manner of CANN's documents, compile unchanged and print what is right.

test_c_documents.py does the same with the documents' programs, where the documents are at hand.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from c_programs import compile_program, run_program
from paths import PROGRAMS
from shares import fast_first

WHOLE = PROGRAMS / "whole"
MAXIMA = [0, 0, 0, -2, 0.25, 0, 0, 0]
OUTPUTS = {
    "adaptive_avg3d": [value / 2 for value in (3, 5, 7, 11, 13, 17) for _ in range(2)],
    "avg2d": [1.0, 1, 1, 2, 2, 2] * 2,
    "adaptive_max2d": MAXIMA,
    "adaptive_max3d": MAXIMA,
}
# Programs made from adaptive_max2d: what stands there, and what stands there instead.
INT32 = {"<int64_t> indicesHost": "<int32_t> indicesHost"}
CHANGES = {
    "adaptive_max3d": INT32
    | {"2d": "3d", "{1, 1, 1, 2}": "{1, 1, 1, 1, 2}", "{1, 1, 2, 4}": "{1, 1, 1, 2, 4}", "INT64": "INT32"},
    "wrong": INT32,
}
# The block holds two int32, so the first index is read from both of them, and the second is outside.
WRONG = "indices reaches bytes 0 to 16 of a block of 8 bytes"


def _source(name: str, folder: Path) -> Path:
    if name not in CHANGES:
        return WHOLE / f"{name}.cpp"
    text = (WHOLE / "adaptive_max2d.cpp").read_text("utf-8")
    for old, new in CHANGES[name].items():
        assert old in text
        text = text.replace(old, new)
    (folder / f"{name}.cpp").write_text(text, encoding="utf-8")
    return folder / f"{name}.cpp"


def _build(source: Path, directory: Path, standard: str, cxx: str) -> Path:
    # As in the documents, int64_t is printed with %ld: no warnings.
    flags = (f"-std={standard}", "-w", f"-I{WHOLE}")
    return compile_program(source, directory / "program", *flags, cxx=cxx)


@pytest.mark.parametrize(("standard", "cxx"), fast_first([("c++11", "g++"), ("c++17", "clang++")]))
@pytest.mark.parametrize("name", fast_first(OUTPUTS))
def test_program(name: str, standard: str, cxx: str, tmp_path: Path) -> None:
    source = _source(name, tmp_path)
    run = run_program(_build(source, tmp_path, standard, cxx), environment={"POOLTIDE_CHECKS": "strict"})
    assert (run.returncode, run.stderr) == (0, "")
    printed = re.findall(r"^result\[(\d+)\] is: (\S+)$", run.stdout, re.M)
    assert [int(index) for index, _ in printed] == list(range(len(OUTPUTS[name])))
    assert [float(value) for _, value in printed] == OUTPUTS[name]


@pytest.mark.parametrize(("checks", "status"), [("warn", 0), ("strict", 1)])
def test_a_wrong_program_is_told_so(checks: str, status: int, tmp_path: Path) -> None:
    """The indices are written as int32 and declared as int64, so their block is half as long."""
    source = _source("wrong", tmp_path)
    run = run_program(_build(source, tmp_path, "c++17", "g++"), environment={"POOLTIDE_CHECKS": checks})
    assert run.returncode == status
    assert WRONG in run.stderr
    assert ("aclrtSynchronizeStream failed. ERROR: 500000" in run.stdout) == (checks == "strict")
