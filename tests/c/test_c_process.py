"""The library in a process: threads, sanitizers, fork, signals, the environment, a process that runs Python."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from c_programs import COMPILERS, POOLTIDE, compile_program, need_compiler, run_program
from hostile.c_calls import operators_header
from late_calls import NOT_ENDED
from paths import PROGRAMS
from pooltide.c import build
from pooltide.c.build import BuildInputs, install, libpython
from pooltide.c.generate import ALIASES, LIBRARY
from shares import fast_first


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(PROGRAMS / "smallest.c", tmp_path_factory.mktemp("c") / "smallest")


@pytest.mark.parametrize("cxx", fast_first(COMPILERS))
@pytest.mark.parametrize("standard", fast_first(["c99", "c17"]))
def test_headers_are_c(cxx: str, standard: str, tmp_path: Path) -> None:
    flags = (f"-std={standard}", "-pedantic", "-Werror")
    run = run_program(compile_program(PROGRAMS / "smallest.c", tmp_path / "program", *flags, cxx=cxx))
    assert run.stdout.startswith("status 0"), run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["none", "address", "thread"])
def test_threads(sanitizer: str, tmp_path: Path) -> None:
    flags = [] if sanitizer == "none" else [f"-fsanitize={sanitizer}", "-g", "-O1"]
    program = compile_program(
        PROGRAMS / "threads.cpp", tmp_path / "program", "-std=c++11", "-pthread", *flags
    )
    run = run_program(program, environment={"TSAN_OPTIONS": "halt_on_error=0"})
    assert run.stdout == "8 threads, 200 rounds, 0 wrong\n", run.stdout + run.stderr[-2000:]
    assert run.returncode == 0, run.stderr[-4000:]
    refused = [line for line in run.stderr.splitlines() if "padding is" in line]
    assert len(refused) == 2, run.stderr[:4000]
    assert refused[1].startswith(f"pooltide: {8 * 200} times: ")
    assert run.stderr.splitlines() == refused, run.stderr[:4000]


@pytest.mark.parametrize("sanitizer", fast_first(["address", "thread"]))
def test_a_sanitizer_still_sees_the_program_s_own_faults(sanitizer: str, tmp_path: Path) -> None:
    """Otherwise a run without findings would prove nothing."""
    leak = "int main(void) { void *volatile p = malloc(7); p = NULL; return aclInit(NULL) || aclFinalize() || p; }"
    race = (
        "static int shared; static void *work(void *p) { shared++; return p; }\n"
        "int main(void) { pthread_t t; if (aclInit(NULL)) return 2; pthread_create(&t, NULL, work, NULL);\n"
        "work(NULL); pthread_join(t, NULL); return aclFinalize(); }"
    )
    source = tmp_path / "program.c"
    include = "#include <pthread.h>\n#include <stdlib.h>\n#include <acl/acl.h>\n"
    source.write_text(include + (leak if sanitizer == "address" else race))
    program = compile_program(source, tmp_path / "program", f"-fsanitize={sanitizer}", "-g", "-pthread")
    run = run_program(program)
    assert run.returncode != 0
    assert ("7 byte(s) leaked" if sanitizer == "address" else "data race") in run.stderr


@pytest.mark.parametrize("level", ["strict", "warn", "off"])
@pytest.mark.slow
def test_garbage_is_survived(level: str, tmp_path: Path) -> None:
    (tmp_path / "operators.h").write_text(operators_header())
    flags = ("-fsanitize=address", "-g", f"-I{tmp_path}")
    program = compile_program(PROGRAMS / "garbage.cpp", tmp_path / "program", *flags)
    # The program also allocates terabytes. The search for leaks, which stops all threads, sometimes crashes.
    no_abort = {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0"}
    run = run_program(program, environment=no_abort | {"POOLTIDE_CHECKS": level})
    assert run.stdout == "20000 calls tried, 0 bytes outside, right\n", run.stderr[-2000:]
    assert run.returncode == (1 if level == "strict" else 0), run.stderr[-2000:]
    assert "internal error" not in run.stderr
    said = run.stderr.count("pooltide: ") - run.stderr.count("pooltide: [")  # without what aclAppLog prints
    assert said == 0 if level == "off" else said > 1000


def test_fork_gives_the_child_an_error(tmp_path: Path) -> None:
    run = run_program(compile_program(PROGRAMS / "fork.c", tmp_path / "program", "-std=gnu11"))
    assert run.returncode == 0, run.stderr
    assert re.search(r"child: 500000 aclrtMalloc: this process was forked", run.stdout)
    assert "pooltide: aclrtMalloc: this process was forked" in run.stderr


def test_fork_before_the_first_call_is_well(tmp_path: Path) -> None:
    run = run_program(compile_program(PROGRAMS / "fork_first.c", tmp_path / "program", "-std=gnu11"))
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""


def test_fork_while_another_thread_makes_the_first_call(tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "fork_while_starting.c", tmp_path / "program", "-pthread")
    run = run_program(program)
    assert run.stdout == "first call 0, 0 children hung, 0 wrong, some refused\n", run.stderr


@pytest.mark.parametrize(
    ("action", "end"),
    [("siginfo", 0), ("plain", 0), ("ignored", -signal.SIGSEGV), ("default", -signal.SIGSEGV)],
)
def test_a_stack_overflow_does_what_the_program_set(action: str, end: int, tmp_path: Path) -> None:
    run = run_program(compile_program(PROGRAMS / "stack_overflow.c", tmp_path / "program"), action)
    assert (run.returncode, run.stdout) == (end, "" if end else "handled\n" * 3), run.stderr


def test_a_program_s_own_handler_runs_after_the_line_about_device_memory(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(
        """
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <acl/acl.h>
static sigjmp_buf back;
static void handler(int number) { siglongjmp(back, number); }
int main(void) {
    static char memory[8192];  /* too small for Python */
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    void *block = NULL;
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &action, NULL);
    if (aclInit(NULL) || aclrtSetDevice(0) || aclrtMalloc(&block, 12, ACL_MEM_MALLOC_HUGE_FIRST)) return 2;
    for (volatile int round = 0; round < 3; round++)
        if (sigsetjmp(back, 1) == 0) printf("%d", *(volatile int *)block);
    return aclrtFree(block) || aclFinalize();
}
"""
    )
    run = run_program(compile_program(source, tmp_path / "program", "-std=gnu11"))
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
    assert run.stderr.count("pooltide: the host read device memory") == 1
    assert run.stderr.count("pooltide: 3 times: the host read device memory") == 1


@pytest.mark.parametrize("before", fast_first(["idle", "late", "busy", "streams"]))
def test_a_process_ends_with_its_last_thread(before: str, tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "main_thread_exits.c", tmp_path / "program", "-pthread")
    run = run_program(program, before)
    assert (run.returncode, run.stdout) == (0, "the last thread ended\n"), run.stderr


def test_environment_variables_have_no_effect(smallest: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('the wrong numpy')")
    for name in (LIBRARY, *ALIASES, libpython(Path())[0].name):
        (tmp_path / name).write_text("not a library")
    hostile = {
        "PYTHONHOME": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
        "PYTHONSTARTUP": str(tmp_path / "numpy.py"),
        "PATH": str(tmp_path),
        "LD_LIBRARY_PATH": str(tmp_path),
    }
    run = run_program(smallest, environment=hostile)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("status 0, torch absent")


def test_the_python_side_is_light() -> None:
    code = "import sys, pooltide.c.dispatch; print(*{'torch', 'click', 'rich'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "\n"


@pytest.mark.slow
def test_without_room_for_guarded_addresses(tmp_path: Path) -> None:
    """With a limit on the address space, host accesses to device memory are not found; other faults are."""

    def limit(source: Path) -> subprocess.CompletedProcess[str]:
        program = compile_program(source, tmp_path / source.stem)
        return run_program(Path("/bin/sh"), "-c", f"ulimit -v 8000000; exec {program}")

    assert limit(PROGRAMS / "faults" / "double_free.c").returncode == 1
    touching = limit(PROGRAMS / "faults" / "host_reads_device_memory.c")
    assert touching.returncode == 0
    left = touching.stderr.splitlines()
    assert [line.startswith(NOT_ENDED) for line in left] == [True, True], touching.stderr  # a block, a stream


def _broken(source: str, inputs: BuildInputs, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    need_compiler("gcc")
    made = install(inputs, tmp_path / "root")
    program = tmp_path / "program"
    command = ["gcc", *made.compile_flags, str(PROGRAMS / source), "-o", str(program), *made.link_flags]
    subprocess.run(command, check=True)
    return run_program(program)


@pytest.mark.parametrize(
    ("inputs", "why"),
    fast_first(
        [
            (BuildInputs(python="/nowhere/bin/python"), "/nowhere/bin/python can't be loaded"),
            (
                BuildInputs(libpython="/nowhere/libpython.so"),
                "libpython can't be loaded: /nowhere/libpython.so",
            ),
        ]
    ),
    ids=["no interpreter", "no libpython"],
)
def test_an_interpreter_that_cannot_start_never_looks_like_success(
    inputs: BuildInputs, why: str, tmp_path: Path
) -> None:
    run = _broken("smallest.c", inputs, tmp_path)
    assert run.returncode == 1
    assert re.match(r"status 500000, torch absent, message .*can't be loaded", run.stdout)
    assert run.stderr.startswith("pooltide: aclInit: ")
    assert why in run.stderr
    assert "; install pooltide again, run `pooltide cflags`" in run.stderr


@pytest.mark.slow
def test_as_a_plug_in_with_local_symbols(tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "plugin.c", tmp_path / "program", "-ldl")
    run = run_program(program, str(install().lib / LIBRARY))
    assert (run.returncode, run.stdout, run.stderr) == (0, "aclInit: 0\n", "")


def test_joins_a_running_interpreter() -> None:
    """The library and the Python of the process share one runtime."""
    code = f"""
import ctypes
library = ctypes.CDLL({str(install().lib / LIBRARY)!r})
assert library.aclInit(None) == 0 == library.aclrtSetDevice(0)
from pooltide import acl
assert acl.aclInit(None) == 100002, "the runtime of the library is this one"
block = ctypes.c_void_p()
assert library.aclrtMalloc(ctypes.byref(block), ctypes.c_size_t(12), 0) == 0
assert acl.aclrtFree(block.value) == 0
assert library.aclFinalize() == 0
print("joined")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "joined\n", run.stderr


@pytest.mark.slow
def test_the_names_that_programs_link_with(tmp_path: Path) -> None:
    need_compiler("gcc")
    made = install()
    names = [f"-l{alias.removeprefix('lib').removesuffix('.so')}" for alias in ALIASES]
    flags = [*made.compile_flags, *made.link_flags[:-1], *names]
    program = tmp_path / "program"
    subprocess.run(["gcc", str(PROGRAMS / "smallest.c"), "-o", str(program), *flags], check=True)
    assert run_program(program).stdout.startswith("status 0")


@pytest.mark.slow
def test_cflags(tmp_path: Path) -> None:
    need_compiler("g++")

    def flags(*options: str) -> list[str]:
        done = subprocess.run([POOLTIDE, "cflags", *options], capture_output=True, text=True, check=True)
        return done.stdout.split()

    program = tmp_path / "program"
    source = str(PROGRAMS / "threads.cpp")
    subprocess.run(["g++", *flags(), "-c", source, "-o", f"{program}.o"], check=True)
    subprocess.run(["g++", f"{program}.o", "-pthread", *flags("--libs"), "-o", str(program)], check=True)
    both = subprocess.run([POOLTIDE, "cflags", "--libs", "--cmake"], capture_output=True, check=False)
    assert both.returncode == 2


@pytest.mark.slow
def test_cmake(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed: the package config is NOT tested")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(user C)\nfind_package(pooltide REQUIRED)\n"
        f"add_executable(program {PROGRAMS / 'smallest.c'})\ntarget_link_libraries(program pooltide::acl)\n"
    )
    cflags = subprocess.run([POOLTIDE, "cflags", "--cmake"], capture_output=True, text=True, check=True)
    build = tmp_path / "build"
    configure = ["cmake", "-S", tmp_path, "-B", build, f"-Dpooltide_DIR={cflags.stdout.strip()}"]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
    assert run_program(build / "program").stdout.startswith("status 0")


@pytest.mark.slow
def test_a_function_outside_the_table_is_a_link_error(tmp_path: Path) -> None:
    need_compiler("g++")
    source = tmp_path / "program.cpp"
    source.write_text('extern "C" int aclrtNoSuchCall(unsigned *); int main() { return aclrtNoSuchCall(0); }')
    command = [POOLTIDE, "cc", str(source), "-o", str(tmp_path / "program")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "aclrtNoSuchCall" in done.stderr


def test_trace_has_a_line_for_every_call(tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "faults" / "double_free.c", tmp_path / "program")
    run = run_program(program, environment={"POOLTIDE_TRACE": "1"})
    calls = re.findall(r"^pooltide: trace: (\w+)\((.*)\) = (.*), [\d.]+ µs, thread \d+$", run.stderr, re.M)
    assert [name for name, _, _ in calls] == [
        "aclInit", "aclrtSetDevice", "aclrtCreateStream", "aclrtMalloc", "aclrtMemcpy", "aclrtFree", "aclrtFree",
    ]  # fmt: skip
    assert re.fullmatch(r"devPtr=0x\w+, size=12, policy=ACL_MEM_MALLOC_HUGE_FIRST", calls[3][1])
    assert re.search(r"count=12, kind=ACL_MEMCPY_HOST_TO_DEVICE$", calls[4][1])
    assert [status for _, _, status in calls] == ["0"] * 6 + ["107000 ACL_ERROR_RT_PARAM_INVALID"]


@pytest.mark.parametrize(
    ("calls", "statuses"),
    fast_first(
        [
            ("FMIF", "100001 message 0 0"),
            ("IFIMF", "0 0 0 none 0"),
            ("IMF", "0 none 0"),
            ("IIM", "0 100002 message"),
            ("IFFM", "0 0 100037 message"),
            ("IFDM", "0 0 100001 message"),
            ("IDIF", "0 0 100002 0"),
            ("JMI", "100000 message 0"),
            ("DIF", "0 0 0"),
        ],
        fast=2,
    ),
)
def test_calls_before_the_import_are_answered_as_after_it(calls: str, statuses: str, tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "early.c", tmp_path / "program")
    for environment in ({}, {"POOLTIDE_CHECKS": "warn"}):  # with a setting, nothing is answered early
        assert run_program(program, calls, environment=environment).stdout.split() == statuses.split()


def test_the_start_does_not_import_the_package(smallest: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: what the start opens is NOT tested")
    run = subprocess.run(
        ["strace", "-f", "-e", "openat", smallest], capture_output=True, text=True, check=True
    )
    assert "_multiarray_umath" not in run.stderr


@pytest.mark.parametrize("sample", fast_first(["new_addresses", "double_buffer"]))
def test_a_trace_of_a_sample(sample: str, tmp_path: Path) -> None:
    program = compile_program(
        PROGRAMS / "samples" / f"{sample}.cpp", tmp_path / "program", "-std=c++11", "-pthread"
    )
    run = run_program(program, "1", environment={"POOLTIDE_TRACE": "1"})
    assert run.returncode == 0, run.stderr
    if sample == "new_addresses":
        assert re.search(
            r"trace: aclGetViewShape\(tensor=0x\w+, viewDims=\{1, 1, 1, 4\}, viewDimsNum=4\) = 0", run.stderr
        )
    else:
        assert re.search(
            r"trace: aclrtEventElapsedTime\(ms=[\d.e-]+, startEvent=0x\w+, endEvent=0x", run.stderr
        )


@pytest.mark.slow
def test_round_trips_can_be_timed(tmp_path: Path) -> None:
    """tools/measure.py reads these numbers; the test does not judge them."""
    run = run_program(compile_program(PROGRAMS / "round_trip.cpp", tmp_path / "program", "-O2"))
    line = r"a tenth below [\d.]+ us, half below [\d.]+ us\n"
    assert re.fullmatch(f"both phases: {line}repeatable: {line}", run.stdout), run.stdout + run.stderr


@pytest.mark.parametrize(
    ("compiler", "status", "message"),
    fast_first(
        [
            ("'", 2, 'Error: $CC is "\'"; it must be a command: No closing quotation.\n'),
            ("/no/such/cc", 2, "Error: $CC is '/no/such/cc'; it must be a command that can be run.\n"),
            (" ", 0, ""),
        ]
    ),
)
def test_a_bad_compiler_is_one_sentence(compiler: str, status: int, message: str, tmp_path: Path) -> None:
    command = [POOLTIDE, "cc", PROGRAMS / "smallest.c", "-o", tmp_path / "program"]
    run = subprocess.run(
        command, env=os.environ | {"CC": compiler}, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (status, message)


def test_another_python_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = libpython(tmp_path)
    monkeypatch.setattr(build, "libpython", lambda library: found)
    monkeypatch.setattr(build, "VERSION", "3.2")
    run = _broken("smallest.c", BuildInputs(), tmp_path)
    assert run.returncode == 1
    assert "this library was built for Python 3.2, and the process runs Python 3." in run.stderr
    assert "; run the program with Python 3.2, or install pooltide for the other" in run.stderr
