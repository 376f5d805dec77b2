"""Random calls of the C library, from several threads, with sanitizers in the program and the library.

    python tests/hostile/c_calls.py --calls 1000000 --threads 4 --sanitizer address

The program is tests/c/programs/garbage.cpp. It makes at most SHARE calls per run, each run with another
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
from pooltide.c.signatures import CFunction, operator_functions
from pooltide.operators.catalog import documented

PROGRAMS = Path(__file__).parents[1] / "c" / "programs"
OWN_RACES = Path(__file__).parent / "own_races.txt"
SHARE = 20_000  # calls of one run of the program
FLAGS = {
    "none": (),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"),
    "thread": ("-fsanitize=thread",),
}
OPTIONS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1",  # the program also allocates terabytes
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # The threads share device memory and do not wait for each other's jobs: a kernel races with a copy or a fill for
    # the contents of a block, in any call that waits for the job and so runs it. These races are the program's own.
    "TSAN_OPTIONS": f"allocator_may_return_null=1:print_suppressions=0:suppressions={OWN_RACES}",
}


ARGUMENTS = {"aclTensor *": "tensor()", "aclIntArray *": "array()", "bool": "below(2) != 0"} | {
    "int64_t": "number()",
    "int8_t": "static_cast<int8_t>(below(5))",
    "int32_t": "static_cast<int32_t>(number())",
    "float": "static_cast<float>(below(8)) / 4",
    "char *": '(below(3) ? "avg" : below(2) ? "max" : nullptr)',
}


def operators_header() -> str:
    """C++ code of any_operator(): one phase of one operator, chosen at random, with random arguments."""
    phases = [phase for operator in documented().values() for phase in operator_functions(operator)]
    includes = "".join(f'#include "{path}"\n' for path in dict.fromkeys(phase.header for phase in phases))
    cases = "".join(f"        case {at}: {_call(phase)} break;\n" for at, phase in enumerate(phases))
    return f"""{includes}
static void any_operator() {{
    Fenced<uint64_t, 1> size;
    Fenced<aclOpExecutor *, 1> made;
    uint64_t *const to = below(100) ? size.values() : nullptr;
    const uint64_t bytes = static_cast<uint64_t>(below(2) ? 4096 : number());
    switch (below({len(phases)})) {{
{cases}    }}
}}
"""


def _call(phase: CFunction) -> str:
    if not phase.name.endswith("GetWorkspaceSize"):
        return f"{phase.name}(memory(), bytes, executor(), stream());"
    given = [ARGUMENTS[p.type.removeprefix("const ")] for p in phase.parameters if not p.out]
    return f"keep(EXECUTOR, {phase.name}({', '.join(given)}, to, made.values()), made[0]);"


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
    (folder / "operators.h").write_text(operators_header())
    inputs = ["-pthread", f"-I{folder}", *made.compile_flags, str(source)]
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
