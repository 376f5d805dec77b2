"""The parent process: starts workers, sees how they end, and starts the next one after the bad call."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .worker import COUNTERS, ENTRANCES, same

START_LIMIT = 180.0  # seconds that a worker may take to import everything
MOST_DEATHS = 25  # of one worker; a fault that kills at every turn needs no more evidence


@dataclass
class Finding:
    kind: str  # odd error | outside | crash | hang | suite
    text: str
    call: str
    reproduce: str
    count: int = 1


@dataclass
class Report:
    """What came of all calls of one entrance."""

    entrance: str
    counts: Counter[str] = field(default_factory=Counter)  # of COUNTERS, crashes and hangs
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, finding: Finding) -> Finding:
        """Returns the first finding of this cause."""
        known = self.findings.setdefault(f"{finding.kind} {same(finding.text)}", finding)
        if known is not finding:
            known.count += 1
        return known


class Worker:
    """One process after another over the trials first, first + step, … of an entrance."""

    def __init__(self, report: Report, seed: int, indices: range, limit: float) -> None:
        self.report, self.seed, self.indices, self.limit = report, seed, indices, limit
        self.folder = Path(tempfile.mkdtemp(prefix="hostile-"))
        self.counters = np.memmap(self.folder / "counters", np.int64, "w+", shape=len(COUNTERS))
        self.deaths = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._start(indices.start)

    def _start(self, first: int) -> None:
        self.counters[0] = -1
        self._last, self._since = -1, time.monotonic()
        with (self.folder / "stderr").open("wb") as errors:
            self.process = _python(
                self.report.entrance, self.seed, first, self.indices, self.folder, stderr=errors
            )

    def poll(self) -> bool:
        """Whether there is more to do."""
        assert self.process is not None
        index, now = int(self.counters[0]), time.monotonic()
        if index != self._last:
            self._last, self._since = index, now
        status = self.process.poll()
        if status is None:
            if now - self._since < (self.limit if index >= 0 else START_LIMIT):
                return True
            self.process.kill()
            self.process.wait()
            return self._died("hang", f"took more than {self.limit:g} s")
        if status == 0:
            return False
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return self._died("crash", f"{name} {self._stack()}")

    def _died(self, kind: str, text: str) -> bool:
        index = int(self.counters[0])
        if index < 0:
            raise RuntimeError(f"the worker of {self.report.entrance} does not start:\n{self._errors()}")
        self.report.counts[{"crash": "crashes", "hang": "hangs"}[kind]] += 1
        finding = self.report.add(Finding(kind, text, "", self.reproduction(index)))
        finding.call = finding.call or describe(self.report.entrance, self.seed, index)
        self.deaths += 1
        following = index + self.indices.step
        if following >= self.indices.stop:
            return False
        if self.deaths == MOST_DEATHS:
            text = f"trials from {following} on were left out after {MOST_DEATHS} crashes and hangs"
            self.report.add(Finding("left out", text, "", self.reproduction(following)))
            return False
        self._start(following)
        return True

    def reproduction(self, index: int) -> str:
        return f"python -m tests.hostile --entrance {self.report.entrance} --seed {self.seed} --only {index}"

    def _errors(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")[-2000:]

    def _stack(self) -> str:
        """The innermost Python lines, as faulthandler wrote them before the end."""
        current = self._errors().rpartition("Current thread")[2]
        lines = [line.split("/")[-1] for line in current.splitlines() if line.startswith("  File")]
        return " < ".join(lines[:3])

    def counted(self) -> Counter[str]:
        return Counter(dict(zip(COUNTERS[1:], map(int, self.counters[1:]), strict=True)))

    def close(self) -> None:
        """Take the worker's counts and findings over."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.report.counts += self.counted()
        path = self.folder / "findings"
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            self.report.add(Finding(row["kind"], row["text"], row["call"], self.reproduction(row["index"])))
        shutil.rmtree(self.folder)


def _python(entrance: str, seed: int, first: int, indices: range, folder: object, **more: Any) -> Any:
    tests = Path(__file__).parent.parent
    path = os.pathsep.join([str(tests), str(tests / "support"), os.environ.get("PYTHONPATH", "")])
    arguments = map(str, (entrance, seed, first, indices.stop, indices.step, folder))
    return subprocess.Popen(
        [sys.executable, "-m", "hostile.worker", *arguments],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "2"},
        stdin=subprocess.DEVNULL,
        **{"stdout": subprocess.DEVNULL} | more,
    )


def describe(entrance: str, seed: int, index: int) -> str:
    """The call of one trial as Python text; a process of its own draws it and does not make it."""
    process = _python(entrance, seed, index, range(1), "--describe", stdout=-1, stderr=subprocess.STDOUT)
    try:
        text: bytes = process.communicate(timeout=START_LIMIT)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return "(drawing the call takes too long)"
    return text.decode(errors="replace").strip()


def run(
    calls: dict[str, int],
    seed: int,
    workers: int = 1,
    limit: float = 20.0,
    only: int | None = None,
    progress: Callable[[list[Report]], None] = lambda reports: None,
) -> list[Report]:
    """Try so many calls of each entrance, with so many processes at a time. Ctrl+C ends it early."""
    reports = {name: Report(name) for name in calls}
    waiting = _shares(calls, workers, only)
    active: list[Worker] = []
    try:
        while waiting or active:
            while waiting and len(active) < workers:
                name, indices = waiting.pop(0)
                if name == "c":
                    run_c(reports[name], calls[name], seed)
                else:
                    active.append(Worker(reports[name], seed, indices, limit))
            for worker in [worker for worker in active if not worker.poll()]:
                active.remove(worker)
                worker.close()
            progress([*reports.values(), *(live(worker) for worker in active)])
            time.sleep(0.05)
    except KeyboardInterrupt:
        pass  # what was found until now is worth a report
    finally:
        for worker in active:
            worker.close()
    return list(reports.values())


def live(worker: Worker) -> Report:
    """The counts of a worker that has not ended."""
    return Report(worker.report.entrance, worker.counted())


def _shares(calls: dict[str, int], workers: int, only: int | None) -> list[tuple[str, range]]:
    """The trials of each entrance, dealt out to `workers` processes."""
    shares = []
    for name, count in calls.items():
        if name == "c":
            shares.append((name, range(1)))
            continue
        if only is not None:
            shares.append((name, range(only, only + 1)))
            continue
        each = CALLS_PER_TRIAL.get(name, 1)
        trials = max(1, -(-count // each))
        shares += [(name, range(first, trials, workers)) for first in range(min(workers, trials))]
    return shares


CALLS_PER_TRIAL = {"acl": 16}  # roughly


def run_c(report: Report, calls: int, seed: int) -> None:
    """The C entrance has processes of its own."""
    found = import_module(f"{__package__}.c_calls").run(calls, seed)
    lost = {name: found[name] for name in ("crashes", "hangs")}
    calls_made, outside = found["calls"], found["bytes_outside"]
    report.counts.update(lost, calls=calls_made, results=calls_made - sum(lost.values()), outside=outside)
    for kind in ("crashes", "hangs", "bytes_outside"):
        if found[kind]:
            report.add(Finding(kind, str(found), "the C program", f"c_calls.run({calls}, {seed})"))


def entrances() -> Iterator[str]:
    """The entrances that can be tried here."""
    for name in ENTRANCES:
        if name not in ("torch", "functional", "patch") or find_spec("torch"):
            yield name
    if find_spec(f"{__package__}.c_calls"):
        yield "c"
