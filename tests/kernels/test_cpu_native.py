"""native/check on another processor, and with faults: random problems against the formulas. test_sanitized.py has more."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import enumeration
from c_programs import need_compiler
from enumeration import geometries
from native_build import FLAGS, compile_objects
from native_build import KERNELS as NEEDED
from paths import NATIVE
from replay import Replay

KERNELS = 21  # in native/kernels/
SPOILED = 5 * 3  # the kernels that read indices, with indices of 1, 4 and 8 bytes
PARTS = ("check/check", *NEEDED)


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


@pytest.fixture(scope="module")
def on_aarch64(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """Returns a function: of the name of a program of native/check/, the command that runs it in an emulator."""
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("NOT TESTED: no g++-aarch64-linux-gnu or qemu-user here")
    where, flags = tmp_path_factory.mktemp("aarch64"), ("-O2", "-static")
    shared = compile_objects(where, compiler, flags, NEEDED, ("baseline",))

    def command(name: str) -> list[str]:
        program = str(where / name)
        objects = [*compile_objects(where, compiler, flags, (f"check/{name}",)), *shared]
        subprocess.run([compiler, *flags, *objects, "-o", program, "-lpthread"], check=True)
        return [emulator, program]

    return command


@pytest.mark.slow
def test_on_aarch64(on_aarch64: Callable[[str], list[str]]) -> None:
    check([*on_aarch64("check"), "200", "15"], ["baseline"])  # most seeds miss a kernel


@pytest.mark.slow
def test_enumerated_geometries_on_aarch64(
    on_aarch64: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One geometry of 2000; and a wrong bit of an expected result is seen. tests/support/replay.py runs all."""
    program = on_aarch64("replay")
    said = re.fullmatch(r"(\d+) problems, (\d+) runs agree\n", Replay(program).run(geometries((9, 2000))))
    assert said
    assert int(said[1]) > 2000
    assert int(said[2]) > 2 * int(said[1])
    right = enumeration.torch_averages
    monkeypatch.setattr(enumeration, "torch_averages", lambda *given: (right(*given)[0], -right(*given)[1]))
    with pytest.raises(AssertionError, match=r"FAILED: baseline .* problem 2 0 "):
        Replay(program).run(geometries((100, 1000), "strided_avg2d"))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program of native/check, for one instruction set."""
    need_compiler("g++")
    where = tmp_path_factory.mktemp("right")
    return compile_objects(where, "g++", ("-O1", "-DPOOLTIDE_ONLY_BASELINE"), PARTS, ("baseline",))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "right", "wrong", "kernels", "flag", "says"),
    [
        # A reciprocal in place of a division rounds twice.
        ("quotients.h", "v / by;", "v * (1 / by);", "average_gradients", "-O1", "FAILED trial"),
        # An index of -2^63 overflows a signed subtraction.
        (
            "scatter.h",
            "(uint64_t)index[i] - mine.from",
            "(int64_t)index[i] - mine.from",
            "maximum_gradients",
            "-fsanitize=signed-integer-overflow",
            "runtime error: signed integer overflow: -9223372036854775808 - ",
        ),
    ],
    ids=["reciprocal", "signed index"],
)
def test_the_check_can_fail(
    source: str,
    right: str,
    wrong: str,
    kernels: str,
    flag: str,
    says: str,
    objects: list[str],
    tmp_path: Path,
) -> None:
    broken = tmp_path / "native"
    shutil.copytree(NATIVE, broken)
    changed = broken / "gradient" / source
    text = changed.read_text()
    assert right in text
    changed.write_text(text.replace(right, wrong))
    program = tmp_path / "check"
    flags = [*FLAGS[:-1], f"-I{broken}", flag, "-DPOOLTIDE_ISA=baseline", "-DPOOLTIDE_ONLY_BASELINE"]
    others = [name for name in objects if kernels not in name]
    files = [str(broken / "kernels" / f"{kernels}.cpp"), *others]
    subprocess.run(["g++", *flags, *files, "-o", str(program), "-lpthread"], check=True)
    done = subprocess.run([str(program), "200", "7"], capture_output=True, text=True, timeout=120)
    assert says in done.stdout + done.stderr
    assert (done.returncode == 1) == (flag == "-O1")
