"""Programs in the manner of public samples: correct under the strictest checks, with sanitizers, in two threads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from c_programs import compile_program, run_program
from paths import PROGRAMS
from pooltide.c.build import install
from shares import fast_first

SAMPLES = sorted((PROGRAMS / "samples").glob("*.cpp"))
# The one call of a sample that must fail, whose message is printed.
SAID = {"raii": "aclnnAdaptiveMaxPool2dBackward: gradInput has shape (2, 2, 4)"}


def test_there_are_samples() -> None:
    assert len(SAMPLES) >= 4


@pytest.mark.parametrize("sanitizer", fast_first(["", "address,undefined"]))
@pytest.mark.parametrize("source", fast_first(SAMPLES), ids=lambda path: path.stem)
def test_sample(source: Path, sanitizer: str, tmp_path: Path) -> None:
    flags = [f"-fsanitize={sanitizer}", "-g"] if sanitizer else ["-O2"]
    program = compile_program(
        source, tmp_path / "program", "-std=c++11", "-pedantic", "-Werror", "-pthread", *flags
    )
    for threads in ("1", "2"):
        run = run_program(program, threads, environment={"POOLTIDE_CHECKS": "strict"})
        assert (run.returncode, run.stdout) == (0, f"{threads} threads, 0 wrong\n"), run.stderr
        lines = run.stderr.splitlines()
        assert len(lines) == (int(threads) if source.stem in SAID else 0), run.stderr
        assert all(SAID[source.stem] in line for line in lines)


@pytest.mark.slow
def test_samples_with_find_package(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed: the package config is NOT tested")
    programs = "".join(
        f"add_executable({source.stem} {source})\n"
        f"target_link_libraries({source.stem} PRIVATE pooltide::acl Threads::Threads)\n"
        for source in SAMPLES
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(samples CXX)\nset(CMAKE_CXX_STANDARD 11)\n"
        f"find_package(Threads REQUIRED)\nfind_package(pooltide REQUIRED)\n{programs}"
    )
    build = tmp_path / "build"
    configure = ["cmake", "-S", str(tmp_path), "-B", str(build), f"-Dpooltide_DIR={install().cmake}"]
    for command in (configure, ["cmake", "--build", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for source in SAMPLES:
        assert (
            run_program(build / source.stem, "2", environment={"POOLTIDE_CHECKS": "strict"}).returncode == 0
        )
