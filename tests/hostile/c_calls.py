"""Random calls of the C library, from several threads, with sanitizers in the program and the library.

    python tests/hostile/c_calls.py --calls 1000000 --threads 4 --sanitizer address

The program is tests/programs/garbage.cpp. It makes at most SHARE calls per run, each run with another
seed, so that a crash loses only the rest of one run. The program detects hangs itself, call by call:
the number of calls and the speed of the machine do not matter. The exit status is 0 when every call
was made and no fault was found.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from pooltide.c.build import BuildInputs, compiler, install

PROGRAMS = Path(__file__).parents[1] / "programs"
SHARE = 20_000  # calls of one run of the program
FLAGS = {
    "none": (),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"),
    "thread": ("-fsanitize=thread",),
}
OPTIONS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1",  # the program also allocates terabytes
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "allocator_may_return_null=1",
}


def run(
    calls: int,
    seed: int,
    *,
    threads: int = 4,
    sanitizer: str = "address",
    source: Path = PROGRAMS / "garbage.cpp",
) -> dict[str, int]:
    """Count the calls that were made and the faults of each kind; describe the faults on stderr."""
    found = {"calls": 0, "crashes": 0, "hangs": 0, "bytes_outside": 0}
    with tempfile.TemporaryDirectory() as folder:
        program = _build(Path(folder), sanitizer, source)
        for first in range(0, calls, SHARE):
            share = min(SHARE, calls - first)
            command = [str(program), str(share), str(seed + first // SHARE), str(threads)]
            _one_share(command, found)
    return found


def _build(folder: Path, sanitizer: str, source: Path) -> Path:
    """Compile the program and a separate library, both with the sanitizer."""
    flags = FLAGS[sanitizer] and (*FLAGS[sanitizer], "-g", "-O1")
    made = install(BuildInputs(flags=flags), folder / "library")
    program = folder / "program"
    inputs = ["-pthread", *made.compile_flags, str(source)]
    subprocess.run(
        [*compiler(c_only=False), *flags, *inputs, "-o", str(program), *made.link_flags], check=True
    )
    return program


def _one_share(command: list[str], found: dict[str, int]) -> None:
    done = subprocess.run(
        command, env=os.environ | OPTIONS, capture_output=True, text=True, errors="replace", check=False
    )
    if line := re.fullmatch(r"(\d+) calls tried, (\d+) bytes outside, right\n", done.stdout):
        found["calls"] += int(line[1])
        found["bytes_outside"] += int(line[2])
    lines = done.stderr.splitlines()
    faults = [text for text in lines if not text.startswith("pooltide: ") or "internal error" in text]
    if not line or done.returncode or faults:
        found["hangs" if done.returncode == -signal.SIGALRM else "crashes"] += 1
        end = f"ends with {done.returncode}: {' '.join(command[1:])}"
        print(end, *faults[:60], sep="\n", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=SHARE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--sanitizer", choices=FLAGS, default="address")
    given = parser.parse_args()
    found = run(given.calls, given.seed, threads=given.threads, sanitizer=given.sanitizer)
    print(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found.items()))
    return 1 if any(count for name, count in found.items() if name != "calls") else 0


if __name__ == "__main__":
    sys.exit(main())
