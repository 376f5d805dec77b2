"""Makes the cases of a list in a directory, for `golden`, and prints and counts what became of them."""

from __future__ import annotations

import hashlib
import json
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..acceptance.cases import CasesError
from ..acceptance.golden import Made, Task, claimed, clean, finish, foreign, prune
from ..acceptance.manifest import Manifest, begin
from ..acceptance.manifest_entry import result_of
from ..acceptance.shard import Shard
from ..acceptance.workers import Work, WorkerDied, make_all
from ..writing import append_own, why
from .arguments import CaseSource, failed
from .output import one_line, progress, reproduce, say

if TYPE_CHECKING:
    from ..acceptance.report_rows import Entry, Rows


@dataclass(slots=True)
class Outcome:
    """What became of the cases. `rows` are those of the report."""

    total: int = 0  # cases of the list, or of the shard
    good: int = 0
    bad: int = 0
    skipped: int = 0
    names: set[str] = field(default_factory=set)  # of the good cases
    older: list[str] = field(default_factory=list)  # other cases that the manifest has, or had before --prune
    stopped: str = ""  # why the work stopped early
    status: int = 0  # the exit status of an early stop
    rows: Rows | None = None  # of the report

    def stop(self, text: str, status: int = 2) -> None:
        self.stopped, self.status = text, status


@dataclass(slots=True)
class Maker:
    """Makes the cases of a source in a directory, and writes down what became of them."""

    output: Path
    manifest: Manifest
    product: str | None
    float64: bool
    as_json: bool
    pruned: bool
    outcome: Outcome
    advance: Callable[[], None] = lambda: None  # shows that a case has ended
    order: deque[int] = field(default_factory=deque)  # lines that were begun and are not written down
    ended: dict[int, Made] = field(default_factory=dict)  # those of them that have ended, by line

    def make(self, source: CaseSource, shard: Shard | None, jobs: int) -> None:
        total = source.total if shard is None else shard.count(source.total)
        self.outcome.total = total
        try:
            with _sigterm_interrupts(), progress("golden", total) as advance:
                self.advance = advance
                begin(self.manifest, shard)
                before = claimed(self.output)
                clean(self.output)
                with append_own(self.manifest.path) as file:
                    work = self._work(source, shard, before)
                    for made in make_all(work, self.output, jobs, total):
                        if made.full:
                            self.outcome.stop(
                                f"{made.error}; what is finished was kept: start it again to go on"
                            )
                            break
                        if made.entry is not None and not made.kept:
                            self.manifest.add(made.entry, file)
                        self._note(made)
        except KeyboardInterrupt:
            self.outcome.stop("interrupted; start it again to go on", 1)
        except (WorkerDied, CasesError) as error:
            self.outcome.stop(f"{self.output}: {error}")
        except OSError as error:
            self.outcome.stop(f"{self.output}: can't be written: {why(error)}")
        for number in [number for number in self.order if number in self.ended]:  # an earlier case is missing
            self._write_down(self.ended.pop(number))
        try:
            if not self.outcome.stopped:
                self._find_older()
            self.manifest.left_out = self.outcome.bad
            finish(self.output, self.manifest, complete=not self.outcome.stopped)
        except OSError as error:
            self.outcome.stop(f"{self.output}: can't be written: {why(error)}")

    def _find_older(self) -> None:
        """Find the cases that the manifest has from another list, or that can't be made any more."""
        self.outcome.older = [name for name in self.manifest.offsets if name not in self.outcome.names]
        if self.pruned:
            prune(self.output, self.manifest, self.outcome.older)

    def _work(self, source: CaseSource, shard: Shard | None, before: set[str]) -> Iterator[Work]:
        """The tasks of the shard with what the manifest knows of them; cases without a task are noted.

        In the end the manifest has the sha256 of the whole list, so that `merge` joins no other lists.
        """
        listed = hashlib.sha256(f"float64 {self.float64}\n".encode())
        for place, line in enumerate(source.lines):
            case = None
            if line.case is not None:
                case = str(replace(line.case, product=self.product or line.case.product))
            if shard is not None:
                listed.update(f"{line.name} {case or line.error}\n".encode())
                self.manifest.list_sha256 = listed.hexdigest()
                if not shard.has(place):
                    continue
            self.order.append(line.number)
            if case is None:
                self._note(Made(line.number, line.name, "", None, line.error, skipped=line.skipped))
                continue
            ours = line.name in self.manifest or line.name in before
            if text := foreign(self.output / line.name, ours):
                self._note(Made(line.number, line.name, case, None, text))
                continue
            task = Task(line.number, line.name, case, self.float64, line.supplied)
            yield task, self.manifest.get(line.name) if line.supplied is None else None

    def _note(self, made: Made) -> None:
        """Write down a case, and those after it that ended before it: in the order of their lines."""
        self.advance()
        self.ended[made.number] = made
        while self.order and self.order[0] in self.ended:
            self._write_down(self.ended.pop(self.order.popleft()))

    def _write_down(self, made: Made) -> None:
        if made.entry is not None:
            self.outcome.good += 1
            self.outcome.names.add(made.name)
        elif made.skipped:
            self.outcome.skipped += 1
            if not self.as_json:
                say(one_line(f"skipped {made.name}: {made.error}"), err=True)
        else:
            self.outcome.bad += 1
            if not self.as_json:
                say(_failed(made), err=True)
        if self.as_json:
            key = "skipped" if made.skipped else "error"
            about = {key: made.error} if made.entry is None else {"files": made.entry["files"]}
            record = {"line": made.number, "name": made.name, "case": made.case}
            say(json.dumps(record | about, ensure_ascii=False))
        if self.outcome.rows is not None and not made.skipped:
            self.outcome.rows.add(_entry(made))


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _failed(made: Made) -> str:
    text = failed(made, made.error)
    return f"{text}\n{reproduce('run', made.case)}" if made.case and ":given" not in made.case else text


def _entry(made: Made) -> Entry:
    from ..acceptance.report_rows import Entry

    if made.entry is None:
        return Entry(made.name, made.case, "error", ("", "", ""), made.error)
    about = made.entry["files"][result_of(made.entry)]
    shape = "×".join(map(str, about["shape"]))
    return Entry(made.name, made.case, "pass", (about["dtype"], shape, made.entry["seed"]))
