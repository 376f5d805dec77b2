"""The program that callgrind runs for instruction_counts.py: calls some cases, each between two marks.

    valgrind --tool=callgrind … python -m pooltide.cli.bench.callgrind_program gradients CASE CASE …

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
from math import prod
from typing import Any

from ...acceptance.notation import Case, parse
from . import cpu_gradients
from .cpu_timing import use_threads
from .measurement import Benchmark
from .printing import FAILURES, failure

MARK = "getsid"  # a function of the C library that nothing else calls


def main(kind: str, words: list[str]) -> None:
    for word in words:
        case = parse(word)
        try:
            row = _row(_prepare(kind, case))
        except FAILURES as error:
            row = asdict(failure(case, error))
        print(json.dumps(row), flush=True)


def _prepare(kind: str, case: Case) -> Benchmark:
    if kind == "gradients":
        return cpu_gradients.prepare(case)
    from . import forward_pools

    return forward_pools.prepare(case, "cpu")


def _row(benchmark: Benchmark) -> dict[str, Any]:
    """What is known of a case, and whose calls were counted, in order."""
    use_threads(1)
    forms = benchmark.implementations
    runs = {name: forms.get(f"{name} out=", forms.get(name)) for name in ("ours", "torch")}
    present = {name: run for name, run in runs.items() if run is not None}
    _instrument("on")
    for run in present.values():
        _count(run)
    _instrument("off")
    problem = benchmark.problem
    cells = prod(problem.shape("out" if problem.gradient else "input"))
    return {
        "case": str(benchmark.case),
        "kernel": benchmark.kernel,
        "cells": cells,
        "least_bytes": benchmark.problem.least_bytes / cells,
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
