"""The program that calls the runtime while a process ends, and what it prints."""

from __future__ import annotations

from pathlib import Path

from c_programs import compile_program
from paths import PROGRAMS

PLACES = {"static": 1, "atexit": 1, "local": 2, "key": 1, "flight": 1}  # of late calls, and their number
NOT_ENDED = "pooltide: the program ended without aclFinalize: "


def late_calls(target: Path, *flags: str) -> Path:
    return compile_program(
        PROGRAMS / "late_calls.cpp", target, "-std=c++11", "-pthread", f"-I{PROGRAMS}", *flags
    )


def all_right(where: str) -> str:
    return f"{'static' if where == 'flight' else where}: right\n" * PLACES[where]
