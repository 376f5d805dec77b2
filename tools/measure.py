"""Times the command line and the C library, and prints a table of medians.

    python tools/measure.py

`pooltide bench` times the kernels. Run both on an idle machine.
"""

from __future__ import annotations

import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = Path(__file__).parent.parent / "tests" / "c" / "programs"
POOLTIDE = Path(sys.executable).with_name("pooltide")
KINDS = (
    "avg2d:2x5x17x19:k3x2:s2:p1",
    "adaptive_avg3d:2x3x7x11x13:o2x3x5",
    "adaptive_max2d:2x5x17x11:o3x5:i64",
    "adaptive_max3d:2x3x7x11x13:o3x2x5",
)


def seconds(run: Callable[[], object], times: int) -> str:
    def once() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    taken = sorted(once() for _ in range(times))
    return f"{statistics.median(taken):.3f} s ({taken[0]:.3f} to {taken[-1]:.3f}, {times} runs)"


def call(*command: object) -> str:
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def compiled(source: str, folder: Path) -> Path:
    program = folder / Path(source).stem
    call(POOLTIDE, "cc", PROGRAMS / source, "-O2", "-o", program)
    return program


def golden(folder: Path, count: int) -> str:
    cases = folder / "cases.csv"
    dtypes = ("f32", "f16", "bf16")
    cases.write_text("\n".join(f"{KINDS[i % 4]}:{dtypes[i % 3]}:seed{i}" for i in range(count)))
    return seconds(lambda: call(POOLTIDE, "golden", cases, "-o", folder / "golden", "--jobs", 2), 1)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        smallest, round_trip = compiled("smallest.c", folder), compiled("round_trip.cpp", folder)
        both_phases, again = re.findall(r"half below ([\d.]+) us", call(round_trip))
        check = (POOLTIDE, "check", "avg2d:32x64x112x112:k3:s2:p1:f32")
        rows = {
            "start and end of the smallest C program": seconds(lambda: call(smallest), 9),
            "phase one + phase two + synchronize, in C": f"{both_phases} µs (median of 2000)",
            "phase two + synchronize of a repeatable executor, in C": f"{again} µs (median of 2000)",
            "pooltide check, one problem": seconds(lambda: call(*check), 9),
            "pooltide golden, 10,000 small cases, 2 jobs": golden(folder, 10_000),
        }
    print(f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {platform.machine()}\n")
    for what, took in rows.items():
        print(f"| {what} | {took} |")


if __name__ == "__main__":
    main()
