"""Compiled code that AddressSanitizer and UBSan watch: calls at the end of a program, and indices of hostile callers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from test_cpu_native import check

from c_programs import need_compiler, run_program
from late_calls import NOT_ENDED, PLACES, all_right
from native_build import compile_objects
from paths import PROGRAMS, ROOT, SUPPORT, TESTS
from pooltide import _native
from pooltide.c.build import BuildInputs, install
from sanitized import FLAGS, SANITIZERS, environment_with, kernels

# A stray of every size in every kind of call that reads indices; the kernels of the CPU see them unchanged.
EXTREMES = """
import numpy as np, pooltide
from pooltide import _native
limits = (-1, 36, -2**31, 2**31 - 1, 2**31, -2**32, 2**32, -2**63, 2**63 - 1)
raised = 0
for isa in _native.instruction_sets():
    _native.use_instruction_set(isa)
    for dtype in (np.int32, np.int64):
        for n in limits:
            if not np.iinfo(dtype).min <= n <= np.iinfo(dtype).max:
                continue
            for kind in (np.float32, np.float64, np.float16):
                for last in (False, True):
                    grad, large = np.ones((2, 16, 3, 3), kind), np.ones((2, 16, 6, 6), kind)
                    indices = np.zeros(grad.shape, dtype)
                    indices[0, 3, 1, 1] = indices[1, 15, 2, 2] = n
                    if last:  # channels-last
                        grad, large, indices = (
                            np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for a in (grad, large, indices)
                        )
                    for call in (
                        lambda: pooltide.max_pool2d_backward(grad, large.shape, indices, 2),
                        lambda: pooltide.adaptive_max_pool2d_backward(grad, large.shape, indices),
                        lambda: pooltide.max_unpool2d(grad, indices, 2),
                        lambda: pooltide.max_unpool2d_backward(large, grad.shape, indices, 2),
                    ):
                        try:
                            call()
                        except IndexError as error:
                            assert str(n) in str(error), error
                            raised += 1
print(raised)
"""


REGIONS = """
import pooltide, regions
from pooltide import _native
sets = _native.instruction_sets()
for seed in range(1200):
    _native.use_instruction_set(sets[seed % len(sets)])
    pooltide.set_num_threads(1 + seed % 3)
    call = regions.draw(seed, hostile=seed % 2 == 0)
    call.gradient(call.forward()[1])
print(seed + 1)
"""


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The kernels for every instruction set, with sanitizers."""
    need_compiler("g++")
    return kernels(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def python(objects: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment whose compiled code has sanitizers."""
    return environment_with(tmp_path_factory.mktemp("sanitized") / "python", objects)


def _run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Without libstdc++, AddressSanitizer ends the process at an exception of C++, such as PyTorch's.
    libraries = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    options = "detect_leaks=0:allocator_may_return_null=1:handle_segv=0"
    watched = {
        "LD_PRELOAD": " ".join("".join(libraries).split()),
        "ASAN_OPTIONS": options,
        "PYTHONPATH": f"{TESTS}{os.pathsep}{SUPPORT}",
    }
    return subprocess.run(
        [str(python), *arguments],
        env=os.environ | watched,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.slow
def test_native_check(objects: list[str], tmp_path: Path) -> None:
    main, program = compile_objects(tmp_path, "g++", FLAGS, ("check/check",)), tmp_path / "check"
    subprocess.run(["g++", *SANITIZERS, *main, *objects, "-o", str(program), "-lpthread"], check=True)
    check([str(program), "200", "15"], _native.instruction_sets())


@pytest.mark.slow
def test_extreme_indices(python: Path) -> None:
    run = _run(python, "-c", EXTREMES)
    assert (run.returncode, run.stderr) == (0, ""), run.stderr[-4000:]
    assert int(run.stdout) == len(_native.instruction_sets()) * (4 + 9) * 3 * 2 * 4


@pytest.mark.slow
@pytest.mark.parametrize(("entrance", "calls"), [("numpy", 1500), ("acl", 300), ("torch", 300)])
def test_hostile_calls(entrance: str, calls: int, python: Path) -> None:
    """One call after another uses another instruction set: hostile/worker.py."""
    if entrance == "torch":
        pytest.importorskip("torch")
    arguments = ("--entrance", entrance, "--calls", str(calls), "--seed", "31", "--limit", "120")
    run = _run(python, "-m", "tests.hostile", *arguments)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]


@pytest.mark.slow
def test_regions_of_all_kinds(python: Path) -> None:
    """Boxes that leave the image, are empty or inverted, have NaN, infinities and huge numbers."""
    run = _run(python, "-c", REGIONS)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", "1200\n"), run.stderr[-4000:]


@pytest.mark.slow
def test_the_sanitizers_watch(python: Path) -> None:
    """Otherwise a run without findings would prove nothing: an address that is handed in is read outside its array."""
    code = "import numpy as np; from pooltide import _native as n\na = np.ones(4, 'f4')\nprint(n.unpool(a.ctypes.data, np.zeros(400000, 'i8'), np.ones(4000000, 'f4'), 400000, 1, 10, 1, 4, 8, False, 1))"
    run = _run(python, "-c", code)
    assert run.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in run.stderr


@pytest.mark.slow
def test_calls_at_the_end_of_a_program(python: Path, tmp_path: Path) -> None:
    made = install(BuildInputs(python=str(python)), tmp_path / "library")
    program = tmp_path / "program"
    command = ["g++", "-std=c++11", "-pthread", "-g", *SANITIZERS, f"-I{PROGRAMS}", *made.compile_flags]
    subprocess.run(
        [*command, str(PROGRAMS / "late_calls.cpp"), "-o", str(program), *made.link_flags], check=True
    )
    for where in PLACES:
        run = run_program(program, where, environment={"ASAN_OPTIONS": "detect_leaks=0"})
        assert (run.returncode, run.stdout) == (0, all_right(where)), run.stderr
        assert all(line.startswith(NOT_ENDED) for line in run.stderr.splitlines()), run.stderr
