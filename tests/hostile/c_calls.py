"""Random calls of the C library, from several threads, with sanitizers in the program and the library.

    python tests/hostile/c_calls.py --calls 1000000 --threads 4 --sanitizer address

The program is tests/programs/garbage.cpp. It is run in shares, each with a seed of its own, so that
a crash costs one share. The exit status is 0 when nothing was found.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pooltide.c.build import Recipe, compiler, install

PROGRAMS = Path(__file__).parents[1] / "programs"
SHARE = 20_000  # calls of one run of the program
FLAGS = {
    "none": (),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"),
    "thread": ("-fsanitize=thread",),
}
OPTIONS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1",  # the program asks for terabytes, too
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
    limit: float = 600,
) -> dict[str, int]:
    """What was found, in numbers; what it was goes to stderr. `limit`: seconds after which a share hangs."""
    found = {"calls": 0, "crashes": 0, "hangs": 0, "bytes_outside": 0}
    with tempfile.TemporaryDirectory() as folder:
        program = _build(Path(folder), sanitizer, source)
        for first in range(0, calls, SHARE):
            share = min(SHARE, calls - first)
            command = [str(program), str(share), str(seed + first // SHARE), str(threads)]
            _one_share(command, limit, found)
    return found


def _build(folder: Path, sanitizer: str, source: Path) -> Path:
    """The program and a library of its own, both with the sanitizer."""
    flags = FLAGS[sanitizer] and (*FLAGS[sanitizer], "-g", "-O1")
    made = install(Recipe(flags=flags), folder / "library")
    program = folder / "program"
    inputs = ["-pthread", *made.compile_flags, str(source)]
    subprocess.run(
        [*compiler(c_only=False), *flags, *inputs, "-o", str(program), *made.link_flags], check=True
    )
    return program


def _one_share(command: list[str], limit: float, found: dict[str, int]) -> None:
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                command,
                env=os.environ | OPTIONS,
                stdout=subprocess.PIPE,
                stderr=said,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            found["hangs"] += 1
            print(f"hangs: {' '.join(command[1:])}", file=sys.stderr)
            return
        line = re.fullmatch(r"(\d+) calls tried, (\d+) bytes outside, right\n", done.stdout.decode())
        if line:
            found["calls"] += int(line[1])
            found["bytes_outside"] += int(line[2])
        said.seek(0)
        lines = said.read().decode(errors="replace").splitlines()
        faults = [text for text in lines if not text.startswith("pooltide: ") or "internal error" in text]
        if not line or done.returncode or faults:
            found["crashes"] += 1
            print(
                f"ends with {done.returncode}: {' '.join(command[1:])}",
                *faults[:60],
                sep="\n",
                file=sys.stderr,
            )


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
