"""native/check under sanitizers, and on another processor: random problems against the formulas."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paths import NATIVE
from pooltide import _native

FLAGS = ["-std=c++17", "-g1", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", f"-I{NATIVE}"]
SANITIZE = ["-Og", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SETS = {
    "baseline": [],
    "avx2": ["-mavx2", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mf16c"],
}


KERNELS = 21  # in native/kernels.cpp
SPOILED = 5 * 3  # the kernels that read indices, with indices of 1, 4 and 8 bytes
PARTS = ("check/check", "prepared", "threads/thread_pool")


def build(where: Path, compiler: str, flags: list[str], sets: list[str]) -> Path:
    def compile_one(name: str, source: str, more: list[str]) -> str:
        target = str(where / f"{name}.o")
        command = [compiler, *FLAGS, *flags, *more, "-c", str(NATIVE / source), "-o", target]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
        return target

    jobs = [(f"kernels_{isa}", "kernels.cpp", [*SETS[isa], f"-DPOOLTIDE_ISA={isa}"]) for isa in sets]
    jobs += [(Path(name).name, f"{name}.cpp", []) for name in PARTS]
    with ThreadPoolExecutor(2) as workers:
        objects = list(workers.map(lambda job: compile_one(*job), jobs))
    program = where / "check"
    subprocess.run([compiler, *flags, *objects, "-o", str(program), "-lpthread"], check=True)
    return program


def check(command: list[str], sets: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    line = r"(\d+) trials agree, (\d+) kernels, (\d+) with extreme indices of some size, on: (.*)\n"
    found = re.fullmatch(line, done.stdout)
    assert found, done.stdout
    assert int(found[1]) == int(command[-2])
    assert int(found[2]) == KERNELS, "a kernel was not reached"
    assert int(found[3]) == SPOILED, "extreme indices did not reach a kernel"
    assert found[4].split() == sets


@pytest.mark.skipif(platform.machine() != "x86_64", reason="NOT TESTED: this machine is no x86-64")
@pytest.mark.slow
def test_under_address_and_undefined_sanitizers(tmp_path: Path) -> None:
    if (compiler := shutil.which("g++")) is None:
        pytest.skip("NOT TESTED: no g++ here")
    program = build(tmp_path, compiler, SANITIZE, list(SETS))
    check([str(program), "600", "7"], _native.instruction_sets())


@pytest.mark.slow
def test_on_aarch64(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("NOT TESTED: no g++-aarch64-linux-gnu or qemu-user here")
    program = build(tmp_path, compiler, ["-O2", "-static"], ["baseline"])
    check([emulator, str(program), "400", "15"], ["baseline"])  # other seeds miss a kernel


@pytest.mark.slow
def test_the_check_can_fail(tmp_path: Path) -> None:
    """A reciprocal in place of a division rounds twice: the program must notice."""
    if (compiler := shutil.which("g++")) is None:
        pytest.skip("NOT TESTED: no g++ here")
    broken = tmp_path / "native"
    shutil.copytree(NATIVE, broken)
    source = (broken / "gradient" / "quotients.h").read_text()
    assert source.count("v / by;") == 1
    (broken / "gradient" / "quotients.h").write_text(source.replace("v / by;", "v * (1 / by);"))
    program = tmp_path / "check"
    files = [str(broken / f"{name}.cpp") for name in (*PARTS, "kernels")]
    flags = [*FLAGS[:-1], f"-I{broken}", "-O1", "-DPOOLTIDE_ISA=baseline", "-DPOOLTIDE_ONLY_BASELINE"]
    subprocess.run([compiler, *flags, *files, "-o", str(program), "-lpthread"], check=True)
    done = subprocess.run([str(program), "200", "7"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout.startswith("FAILED trial")
