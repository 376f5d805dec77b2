"""The worker process: draws trials and runs them, one after the other, until one of them kills it.

The counters lie in a file that the parent maps too, so they survive a crash. The index of the trial is
written there before the trial runs; `--describe` prints what that trial would call, without calling it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import re
import resource
import signal
import sys
import traceback
from collections import Counter
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Protocol

import numpy as np

from pooltide import _native

COUNTERS = ("index", "calls", "results", "refusals", "odd", "outside")
ENTRANCES = {
    "numpy": "hostile.numpy_calls",
    "regions": "hostile.region_calls",
    "torch": "hostile.torch_calls",
    "functional": "hostile.functional_calls",
    "patch": "hostile.patch_calls",
    "acl": "hostile.acl_calls",
    "cli": "hostile.cli_calls",
    "files": "hostile.file_calls",
}
MORE_MEMORY = 4 << 30  # what a worker may allocate besides what it has when it starts
MOST_OF_A_KIND = 20  # findings written in full; further ones are only counted


class Tally:
    """The worker's counters and findings."""

    def __init__(self, counters: Any, findings: Path) -> None:
        self._counters = counters
        self._findings = findings
        self._seen: Counter[str] = Counter()

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            self._counters[COUNTERS.index(name)] += count

    def find(self, kind: str, text: str, call: str) -> None:
        """Record a finding: an odd error, or bytes changed outside."""
        if kind != "outside":
            self.add(odd=1)
        self._seen[group := f"{kind} {same(text)}"] += 1
        if self._seen[group] <= MOST_OF_A_KIND:
            index = int(self._counters[0])
            with self._findings.open("a") as file:
                print(json.dumps({"kind": kind, "text": text, "call": call, "index": index}), file=file)


class Trial(Protocol):
    """One call, or a few that belong together. Its text is the Python that a person would write."""

    def run(self, tally: Tally) -> None: ...

    def __str__(self) -> str: ...


def same(text: str) -> str:
    """The text without its values, to recognise findings of one cause."""
    text = re.sub(r"\d[\d, ]*|0x[0-9a-f]+|'[^']*'", "#", text)
    return re.sub(r"\b(adaptive_)?(avg|max)_pool#d(_with_indices)?(_backward)?", "POOL", text)[:160]


def our_message(function: str, error: BaseException) -> bool:
    """Whether an error has the form of our messages: function: argument has X; it must be Y."""
    return re.fullmatch(rf"{re.escape(function)}: .+; .+\.", str(error), re.S) is not None


def trial(module: Any, seed: int, index: int) -> Trial:
    found: Trial = module.draw(Random(f"{seed}/{index}"))
    return found


def main(name: str, seed: int, indices: range, counters: Any, findings: Path) -> None:
    faulthandler.enable()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the parent
    module = import_module(ENTRANCES.get(name, name))
    _limit_memory()
    tally = Tally(counters, findings)
    sets = _native.instruction_sets()
    for index in indices:
        counters[0] = index
        _native.use_instruction_set(sets[index % len(sets)])
        drawn = None
        try:
            drawn = trial(module, seed, index)
            drawn.run(tally)
        except Exception as error:
            where = " < ".join(
                f"{f.name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[:-4:-1]
            )
            tally.find("suite", f"{type(error).__name__}: {error} ({where})", str(drawn))


def _limit_memory() -> None:
    """A call that asks for too much gets an error here; without a limit it could stop the machine."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MORE_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    entrance, seed, first, last, step, folder = sys.argv[1:]
    if folder == "--describe":
        print(trial(import_module(ENTRANCES.get(entrance, entrance)), int(seed), int(first)))
    else:
        state = np.memmap(Path(folder) / "counters", np.int64, "r+", shape=len(COUNTERS))
        indices = range(int(first), int(last), int(step))
        main(entrance, int(seed), indices, state, Path(folder) / "findings")
