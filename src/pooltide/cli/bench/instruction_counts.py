"""`pooltide bench --instructions`: counts the instructions and bytes of a call, on one thread.

Times on a machine that other programs use vary by a factor of two; counts vary by less than a hundredth. So
counts decide between two variants of a kernel. Valgrind's callgrind counts: it runs callgrind_program.py,
which makes each call between two marks, and writes its counters at every mark. Valgrind has no AVX-512, so
the kernels are those of AVX2.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...acceptance.notation import Case
from ..output import aligned, say
from .callgrind_program import MARK
from .printing import Failure, number, report_failures

LINE_BYTES = 64  # of a line of the cache
# Makes glibc's memset and memcpy use vectors: callgrind counts `rep stosb` once for each byte.
TUNABLES = ":".join(f"glibc.cpu.x86_rep_{name}_threshold=1073741824" for name in ("stosb", "movsb"))
CELLS = 1 << 20  # of a named shape: counts per cell hardly depend on N


@dataclass(frozen=True, slots=True)
class Count:
    """Of one call."""

    instructions: int
    moved_bytes: int  # between the first-level cache, as callgrind simulates it, and the memory behind it

    @staticmethod
    def read(path: Path) -> Count:
        """The counters of one dump of callgrind."""
        lines = dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)
        counts = dict(zip(lines["events"].split(), map(int, lines["totals"].split()), strict=False))
        return Count(counts["Ir"], LINE_BYTES * (counts.get("D1mr", 0) + counts.get("D1mw", 0)))


def missing_tools() -> str:
    """The names of the programs that are needed and not installed, joined by commas."""
    return ", ".join(name for name in ("valgrind", "vgdb") if shutil.which(name) is None)


def run_counts(cases: list[tuple[str, Case]], errors: list[Failure], kind: str, as_json: bool) -> int:
    """Prints the counts of some cases. Returns the exit status."""
    words = list(dict.fromkeys(str(case) for _, case in cases))
    counted = _counts(kind, words) if words else []
    errors += [Failure(**row) for row in counted if "text" in row]
    rows = [row for row in counted if "text" not in row]
    if as_json:
        say(json.dumps({"tool": "callgrind", "threads": 1, "results": rows}, indent=1))
    elif rows:
        say("Counts per cell of the pool's input, one thread, by callgrind.\n")
        say(_table(rows))
    return report_failures(errors)


def resized(case: Case) -> Case:
    """The case with another batch, so that its input has about `CELLS` cells."""
    return replace(case, shape=(max(1, CELLS // prod(case.shape[1:])), *case.shape[1:]))


def _counts(kind: str, words: list[str]) -> list[dict[str, Any]]:
    with TemporaryDirectory() as folder:
        dumps = Path(folder) / "counts"
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes"]
        command += [f"--dump-before={MARK}", f"--callgrind-out-file={dumps}"]
        command += [sys.executable, "-m", "pooltide.cli.bench.callgrind_program", kind, *words]
        environment = os.environ | {"GLIBC_TUNABLES": TUNABLES}
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if run.returncode:
            return [{"text": f"callgrind ended with status {run.returncode}: {run.stderr[-1000:]}"}]
        rows: list[dict[str, Any]] = [json.loads(line) for line in run.stdout.splitlines()]
        dump = 0
        for row in rows:
            for name in row.pop("counted", ()):
                dump += 2  # a dump at the mark before the call, and one at the mark after it
                row[name] = _per_cell(Count.read(dumps.with_name(f"{dumps.name}.{dump}")), row["cells"])
    return rows


def _per_cell(count: Count, cells: int) -> dict[str, float]:
    return {"instructions": count.instructions / cells, "bytes": count.moved_bytes / cells}


def _table(rows: list[dict[str, Any]]) -> str:
    head = ["instructions: ours", "torch", "bytes: least", "ours", "torch", "kernel", "case"]
    return aligned(head, [_cells(row) for row in rows])


def _cells(row: dict[str, Any]) -> list[str]:
    ours, torch = row["ours"], row.get("torch", {})
    instructions = [number(ours["instructions"]), number(torch.get("instructions"))]
    moved = [number(row["least_bytes"]), number(ours["bytes"]), number(torch.get("bytes"))]
    return [*instructions, *moved, row["kernel"] or "–", row["case"]]
