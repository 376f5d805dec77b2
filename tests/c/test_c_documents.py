"""The programs printed in CANN's documents compile unchanged and print what the documents say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from c_programs import compile_program, compile_with_cc, run_program
from paths import ROOT
from shares import fast_first

DOCUMENTS = ROOT.parent / "shared" / "documents"
OUTPUTS = {
    "000": [quarter / 2 for quarter in range(1, 9) for _ in range(2)],
    "001": [0.0625] * 256,
    "002": [0.0625] * 256,
    "003": [0.0] * 4,
}


def _program(number: str) -> bytes:
    found = sorted(DOCUMENTS.glob(f"{number}_*.txt"))
    if not found:
        pytest.skip(f"{DOCUMENTS} has no document {number}: the documents' programs are NOT tested")
    blocks = re.findall(rb"```[A-Za-z+]*\r?\n(.*?)```", found[0].read_bytes(), re.S)
    (program,) = [block for block in blocks if b"int main" in block]
    return program


def _build(number: str, directory: Path, standard: str, cxx: str) -> Path:
    source = directory / "program.cpp"
    source.write_bytes(_program(number))
    # The programs print int64_t with %ld: no warnings, as their text must stay unchanged.
    return compile_with_cc(source, directory / "program", f"-std={standard}", "-w", cxx=cxx)


@pytest.mark.parametrize("cxx", fast_first(["g++", "clang++"]))
@pytest.mark.parametrize("standard", fast_first(["c++11", "c++17"]))
@pytest.mark.parametrize("number", fast_first(OUTPUTS))
def test_program(number: str, standard: str, cxx: str, tmp_path: Path) -> None:
    run = run_program(_build(number, tmp_path, standard, cxx))
    assert run.returncode == 0, run.stderr
    printed = re.findall(r"^(?:out )?result\[(\d+)\] is: (\S+)$", run.stdout, re.M)
    assert [int(index) for index, _ in printed] == list(range(len(OUTPUTS[number])))
    assert [float(value) for _, value in printed] == OUTPUTS[number]
    lines = run.stderr.splitlines()
    if number != "003":
        assert lines == []
    else:
        assert len(lines) == 1
        assert "indices reaches bytes 0 to 8 of a block of 4 bytes" in lines[0]


@pytest.mark.slow
def test_strict_refuses_the_faulty_one(tmp_path: Path) -> None:
    run = run_program(_build("003", tmp_path, "c++17", "g++"), environment={"POOLTIDE_CHECKS": "strict"})
    assert "aclrtSynchronizeStream failed. ERROR: 500000" in run.stdout
    assert "indices reaches bytes 0 to 8 of a block of 4 bytes" in run.stderr


@pytest.mark.parametrize("level", ["warn", "strict"])
@pytest.mark.slow
def test_a_program_without_its_wait_is_told_so_every_time(level: str, tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    wait = rb"  ret = aclrtSynchronizeStream\(stream\);\r?\n  CHECK_RET.*\n"
    text, removed = re.subn(wait, b"", _program("001"))
    assert removed == 1
    source.write_bytes(text)
    program = compile_program(source, tmp_path / "program", "-std=c++17", "-w")
    for _ in range(8):
        run = run_program(program, environment={"POOLTIDE_CHECKS": level})
        assert re.search(
            r"aclrtMemcpy: src is 0x\w+, memory that aclnnAvgPool2dBackward writes \(gradInput\) on stream 1, and "
            r"the program has not waited for that; call aclrtSynchronizeStream first\.",
            run.stderr,
        )
        assert ("copy result from device to host failed. ERROR: 107000" in run.stdout) == (level == "strict")
