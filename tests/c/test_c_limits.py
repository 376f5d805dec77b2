"""The library at the limits of a process: its end, cancelled threads, small stacks, no files, odd paths."""

from __future__ import annotations

import os
import pwd
import re
import resource
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner

import pooltide
from c_programs import compile_program, need_compiler, run_program
from late_calls import NOT_ENDED, PLACES, all_right, late_calls
from paths import PROGRAMS
from pooltide import acl
from pooltide.c import build
from pooltide.c.build import BuildInputs, install
from pooltide.c.generate import LIBRARY
from pooltide.c.handle_table import HandleTable
from pooltide.cli import main
from shares import fast_first

# The loader compares the words of a path eight bytes at a time.
LOADER = "{\n  loader\n  Memcheck:Addr8\n  fun:strncmp\n  fun:is_dst\n}\n"
CMAKE_LISTS = (
    "cmake_minimum_required(VERSION 3.13)\nproject(user C)\nfind_package(pooltide REQUIRED)\n"
    f"add_executable(program {PROGRAMS / 'smallest.c'})\ntarget_link_libraries(program pooltide::acl)\n"
)


@pytest.mark.parametrize("where", PLACES)
def test_calls_at_the_end_of_a_program(where: str, tmp_path: Path) -> None:
    run = run_program(late_calls(tmp_path / "program"), where)
    assert (run.returncode, run.stdout) == (0, all_right(where)), run.stderr
    lines = run.stderr.splitlines()
    assert lines
    assert all(line.startswith(NOT_ENDED) for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("where", PLACES)
def test_calls_at_the_end_of_a_program_use_no_freed_memory(where: str, tmp_path: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed: the memory of late calls is NOT tested")
    (tmp_path / "loader").write_text(LOADER)
    options = ("-q", f"--suppressions={tmp_path / 'loader'}", "--error-exitcode=9")
    program = late_calls(tmp_path / "program", "-g")
    run = run_program(Path("valgrind"), *options, str(program), where)
    assert (run.returncode, run.stdout) == (0, all_right(where)), run.stderr[:4000]


def test_a_call_after_the_end_of_the_process_s_python() -> None:
    code = f"""
import ctypes
library, libc = ctypes.CDLL({str(install().lib / LIBRARY)!r}), ctypes.CDLL(None)
assert library.aclInit(None) == 0 == library.aclrtSetDevice(0)
libc.__cxa_atexit(library.aclFinalize, None, None)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    why = "pooltide: aclFinalize: the Python of this process has ended; call before its end.\n"
    assert (run.returncode, run.stderr) == (0, why)


def test_cancelled_threads(tmp_path: Path) -> None:
    run = run_program(compile_program(PROGRAMS / "cancelled.c", tmp_path / "program", "-pthread"))
    assert run.stdout == "40 cancelled, then status 0, cancellation enabled\n", run.stderr[-2000:]
    assert run.returncode == 0


def test_small_stacks(tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "small_stack.c", tmp_path / "program", "-pthread", f"-I{PROGRAMS}")
    sizes = (16, 32, 64, 128, 512)  # ascending, as a thread may get the stack of an earlier one
    run = run_program(program, *map(str, sizes))
    statuses = [f"{size} KB: status {0 if size >= 128 else 500000}\n" for size in sizes]
    assert (run.returncode, run.stdout) == (0, "".join(statuses)), run.stderr
    sentence = r"pooltide: aclrtSetDevice: (\d+) KB of the thread's stack are left; 96 KB must be"
    assert [
        int(left) < size for left, size in zip(re.findall(sentence, run.stderr), sizes, strict=False)
    ] == [True] * 3


def test_host_pages(tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "host_pages.c", tmp_path / "program", f"-I{PROGRAMS}")
    run = run_program(program, "2000", str(tmp_path / "own"))
    assert (run.returncode, run.stdout) == (0, "0 wrong, own file kept, fast\n"), run.stderr


def test_destroyed_objects_take_little_memory() -> None:
    """A message can still name the last ones; a stream takes about 5 KB."""
    table = HandleTable()
    words = []
    for _ in range(6000):
        live = acl.aclIntArray((1,))
        words.append(table.add(live))
        live.alive = False
    known = [isinstance(table.find(word), acl.aclIntArray) for word in words]
    assert all(known[-1000:])
    assert sum(known) < 2100


def test_without_files(tmp_path: Path) -> None:
    program = compile_program(PROGRAMS / "no_files_left.c", tmp_path / "program", f"-I{PROGRAMS}")
    most = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    run = run_program(Path("/bin/sh"), "-c", f"ulimit -n {most}; exec {program}")
    lines = "gradient 0\ncopy 0\nfill 0\ncopy later 0\nevent 0\nstream 200000\nmessage aclrtCreateStream: the system has no room for another stream"
    assert run.stdout.startswith(lines), run.stdout + run.stderr
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("name", fast_first(["with,comma", "with space", 'with"quote']))
def test_odd_install_paths(name: str, tmp_path: Path) -> None:
    missing = f"/no/{name}/libpython.so"
    for inputs, start in ((BuildInputs(), "status 0"), (BuildInputs(libpython=missing), "status 500000")):
        made = install(inputs, tmp_path / name)
        command = ["gcc", *made.compile_flags, str(PROGRAMS / "smallest.c"), "-o", str(tmp_path / "program")]
        subprocess.run([*command, *made.link_flags], check=True)
        run = run_program(tmp_path / "program")
        assert run.stdout.startswith(start), run.stderr
        assert (missing in run.stderr) == bool(inputs.libpython)


MAKEFILE = """
program: {source}
	$(CC) $(shell pooltide cflags) {source} -o program $(shell pooltide cflags --libs)
"""
EVAL = 'eval "gcc $(pooltide cflags) $0 -o program $(pooltide cflags --libs)"'
CMAKE = 'cmake -S . -B build -Dpooltide_DIR="$(pooltide cflags --cmake)" && cmake --build build && mv build/program .'
PREFIX = 'root="$(pooltide cflags --prefix)" && gcc "-I$root/include" $0 -o program "-L$root/lib64" -lascendcl "-Wl,-rpath,$root/lib64"'


@pytest.fixture(scope="module")
def odd_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a virtual environment whose path has a space, with the package and its command."""
    root = tmp_path_factory.mktemp("with space")
    venv.create(root, symlinks=True)
    others = [str(Path(pooltide.__file__).parent.parent)]
    others += [path for path in sys.path if path.endswith("site-packages")]
    packages = next(root.glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    command = root / "bin" / "pooltide"
    command.write_text(f'#!/bin/sh\nexec "{root}/bin/python" -m pooltide "$@"\n')
    command.chmod(0o755)
    return command.parent


@pytest.mark.slow
@pytest.mark.parametrize("command", [EVAL, "make", PREFIX, CMAKE], ids=["script", "make", "prefix", "cmake"])
def test_commands_of_the_page_with_a_space_in_the_path(
    command: str, odd_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/c.md says about quotes."""
    need_compiler("gcc")
    program = command.split()[0]
    if program in ("make", "cmake") and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: paths with a space are NOT tested with it")
    source = PROGRAMS / "smallest.c"
    (tmp_path / "Makefile").write_text(MAKEFILE.format(source=source))
    (tmp_path / "CMakeLists.txt").write_text(CMAKE_LISTS)
    monkeypatch.setenv("PATH", f"{odd_environment}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(
        ["sh", "-c", command, str(source)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    run = run_program(tmp_path / "program")
    assert run.stdout.startswith("status 0"), run.stderr
    run_path = str(odd_environment.parent / "lib" / "pooltide")
    assert run_path.encode() in (tmp_path / "program").read_bytes()


@pytest.mark.slow
def test_cmake_with_a_dollar_in_the_path(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed: the package config is NOT tested")
    (tmp_path / "CMakeLists.txt").write_text(CMAKE_LISTS)
    made, built = install(root=tmp_path / "with$dollar"), tmp_path / "build"
    subprocess.run(["cmake", "-S", tmp_path, "-B", built, f"-Dpooltide_DIR={made.cmake}"], check=True)
    subprocess.run(["cmake", "--build", built], check=True)
    assert run_program(built / "program").stdout.startswith("status 0")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(build.sys, "base_prefix", sys.prefix)
    done = CliRunner().invoke(main, ["cflags"])
    assert done.exit_code == 2
    assert done.output == (
        "Error: this user has no home directory; set $XDG_CACHE_HOME to a directory for the library.\n"
    )
