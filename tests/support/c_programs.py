"""Compiling and running C and C++ programs against the package, as a user would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pooltide.c.build import install

POOLTIDE = Path(sys.executable).with_name("pooltide")
COMPILERS = {"g++": "gcc", "clang++": "clang"}
_COMPILED: dict[tuple[bytes, str, tuple[str, ...], str], Path] = {}
HANG = 900  # seconds; no test depends on the speed of a program


def need_compiler(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: what it would compile is NOT tested")


def compile_with_cc(source: Path, target: Path, *flags: str, cxx: str = "g++") -> Path:
    """Runs `pooltide cc`, as a user would, with warnings as errors."""
    need_compiler(cxx)
    environment = os.environ | {"CXX": cxx, "CC": COMPILERS[cxx]}
    return _compile([str(POOLTIDE), "cc"], source, target, *flags, environment=environment)


def compile_program(source: Path, target: Path, *flags: str, cxx: str = "g++") -> Path:
    """What `compile_with_cc` does, without its start of Python, and once for equal arguments."""
    need_compiler(cxx)
    key = (source.read_bytes(), source.suffix, flags, cxx)
    if key not in _COMPILED:
        made = install()
        command = [COMPILERS[cxx] if source.suffix == ".c" else cxx, *made.compile_flags]
        _COMPILED[key] = _compile(command, source, target, *flags, *made.link_flags)
    return _COMPILED[key]


def _compile(
    command: list[str], source: Path, target: Path, *flags: str, environment: Mapping[str, str] | None = None
) -> Path:
    command = [*command, str(source), "-o", str(target), "-Wall", "-Wextra", *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    return target


def run_program(
    program: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLTIDE_")}
    return subprocess.run(
        [str(program), *arguments],
        env=clean | dict(environment or {}),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=HANG,
    )


def like(pattern: str) -> re.Pattern[str]:
    """A line in which * stands for anything."""
    return re.compile("^" + re.escape(pattern).replace(r"\*", ".*") + "$", re.M)
