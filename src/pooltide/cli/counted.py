"""The program that callgrind runs for instructions.py: makes the calls of some cases, each between two marks.

    valgrind --tool=callgrind … python -m pooltide.cli.counted gradients CASE CASE …

Writes one line of JSON for each case. Only the calls are instrumented: importing PyTorch under
instrumentation takes minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..acceptance.notation import parse
from .contest import enter, use_threads
from .entries import Entry
from .figures import FAILURES, failure

MARK = "getsid"  # a function of the C library that nothing else calls


def main(kind: str, words: list[str]) -> None:
    for word in words:
        case = parse(word)
        try:
            row = _row(_entry(kind, case))
        except FAILURES as error:
            row = asdict(failure(case, error))
        print(json.dumps(row), flush=True)


def _entry(kind: str, case: Any) -> Entry:
    if kind == "gradients":
        return enter(case)
    from .forward_contest import enter as enter_forward

    return enter_forward(case, "cpu")


def _row(entry: Entry) -> dict[str, Any]:
    """What is known of a case, and whose calls were counted, in order."""
    use_threads(1)
    runners = {name: entry.runners.get(f"{name} out=", entry.runners.get(name)) for name in ("ours", "torch")}
    present = {name: run for name, run in runners.items() if run is not None}
    _instrument("on")
    for run in present.values():
        _count(run)
    _instrument("off")
    cells = entry.problem.cells
    return {
        "case": str(entry.case),
        "kernel": entry.kernel,
        "cells": cells,
        "least_bytes": entry.problem.least_bytes / cells,
        "counted": list(present),
    }


def _count(run: Callable[[], Any]) -> None:
    run()  # plans, caches and pages are ready afterwards
    os.getsid(0)
    run()
    os.getsid(0)


def _instrument(state: str) -> None:
    command = ["vgdb", f"--pid={os.getpid()}", "instrumentation", state]
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
