"""Takes the program's mistakes: calls that fail, and what the checks find.

Prints each distinct one once, counts the others, and knows at the end what was found. It must not decide what
a mistake is, nor touch memory, streams or tensors.

Two mistakes are equal when one place of the program makes the same call with the same mistake: their
sentences may differ in numbers, as addresses do in a loop.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from .call_sites import Site, capture, describe_site, lines
from .state import STATE

Origins = tuple[tuple[str, Site | None], ...]  # ("the memory was taken", where)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_MAX_FINDINGS = 10_000  # distinct ones; more are neither kept nor printed


def say(line: str) -> None:
    """Print a line on stderr. A stderr that is closed or full must not stop the program."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"pooltide: {line}\n")  # one write, as other threads write too
            sys.stderr.flush()


@dataclass(eq=False)
class Finding:
    message: str
    site: Site | None
    origins: Origins
    certain: bool  # the checks found it; else a call failed, as its document says
    count: int = 0
    noticed: int = 0  # how often the program asked for the message
    shown: bool = False

    @property
    def is_mistake(self) -> bool:
        """Whether the program should be told at its end: it did not look at a failure itself."""
        return self.certain or self.noticed < self.count

    def line(self) -> str:
        line = self.message
        for what, site in (("at", self.site), *((f"{what} at", site) for what, site in self.origins)):
            if where := describe_site(site):
                begin = what[0].upper() if what.startswith(("at", "the ")) else what[0]  # names stay
                line += f" {begin}{what[1:]} {where}."
        return line

    def as_json(self) -> dict[str, Any]:
        origins = [{"what": what, "lines": lines(site)} for what, site in self.origins]
        return {"message": self.message, "count": self.count, "lines": lines(self.site), "origins": origins}


@dataclass
class Findings:
    """All findings of the process, and those since the runtime started by their key."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _current: dict[tuple[Any, ...], Finding] = field(default_factory=dict)
    _all: list[Finding] = field(default_factory=list)

    def record(
        self,
        message: str,
        *,
        certain: bool,
        origins: Origins = (),
        located: bool = True,
        at: Site | None = None,
    ) -> Finding:
        """Count a mistake at this place, or else of the current call; with `located` false, of no call."""
        if at is None and located:
            at = capture()
        key = (_NUMBER.sub("#", message), at)
        with self._lock:
            finding = self._current.get(key)
            if finding is None:
                finding = Finding(message, at, origins, certain)
                if len(self._all) < _MAX_FINDINGS:
                    self._current[key] = finding
                    self._all.append(finding)
            finding.count += 1
        return finding

    def show(self, finding: Finding, effect: str = "") -> None:
        """Print a finding, unless an equal one was printed."""
        with self._lock:
            if finding.shown or STATE.checks == "off" or len(self._all) >= _MAX_FINDINGS:
                return
            finding.shown = True
            finding.message += effect
        say(finding.line())
        if os.environ.get("POOLTIDE_ABORT", "0") not in ("", "0"):
            os.abort()

    def end_run(self) -> None:
        """Print which findings came more than once; equal ones are printed again from now on."""
        with self._lock:
            ended, self._current = list(self._current.values()), {}
        for finding in ended:
            if finding.shown and finding.count > 1 and STATE.checks != "off":
                say(f"{finding.count} times: {finding.line()}")

    def show_rest(self) -> None:
        """Print the findings that made a call or a job fail and that the program never asked for."""
        for finding in list(self._all):
            if finding.certain and finding.noticed < finding.count:
                self.show(finding)

    def mistakes(self) -> int:
        return sum(finding.is_mistake for finding in self._all)

    def write_report(self) -> None:
        """Write all findings to the file that POOLTIDE_REPORT names, if it names one."""
        if not (path := os.environ.get("POOLTIDE_REPORT")):
            return
        try:
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"findings": [finding.as_json() for finding in self._all]}, file, indent=1)
        except OSError as error:
            say(f"POOLTIDE_REPORT is {path}, which can't be written: {error.strerror}")


FINDINGS = Findings()


def _after_fork() -> None:
    """In a child: the parent's findings are the parent's."""
    FINDINGS.__init__()  # type: ignore[misc]


def _end_program() -> None:
    """The end of a Python program; c/dispatch.py has that of C."""
    FINDINGS.show_rest()
    FINDINGS.end_run()
    FINDINGS.write_report()


atexit.register(_end_program)
os.register_at_fork(after_in_child=_after_fork)
