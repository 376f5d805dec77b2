"""`pooltide golden`: writes inputs and golden results of many cases, in several processes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..acceptance.cases import CasesError
from ..acceptance.foreign import read_cases
from ..acceptance.golden import Made, Task, claimed, clean, finish, foreign, prune, start
from ..acceptance.locking import locked
from ..acceptance.manifest import Manifest, ManifestError, Shard, begin, versions
from ..acceptance.manifest_entry import MANIFEST, result_of
from ..acceptance.workers import Work, WorkerDied, make_all
from ..kernels.threads import get_num_threads
from ..writing import append_own, why
from .arguments import NOTATION, CaseSource, NamedPath, failed, product_option, shard_option, source_argument
from .output import NoAnswer, one_line, progress, reproduce, say
from .reports import report_option, write_report

if TYPE_CHECKING:
    from ..acceptance.report_page import Entry


_MAX_NAMES = 5  # older cases that are named


@dataclass(slots=True)
class Outcome:
    """What became of the cases. `entries` are for the report."""

    total: int = 0  # cases of the list, or of the shard
    good: int = 0
    bad: int = 0
    skipped: int = 0
    names: set[str] = field(default_factory=set)  # of the good cases
    older: list[str] = field(default_factory=list)  # other cases that the manifest has, or had before --prune
    stopped: str = ""  # why the work stopped early
    status: int = 0  # the exit status of an early stop
    entries: list[tuple[int, Entry]] = field(default_factory=list)

    def stop(self, text: str, status: int = 2) -> None:
        self.stopped, self.status = text, status


@click.command(epilog=NOTATION)
@source_argument
@click.option(
    "--from",
    "foreign_file",
    type=NamedPath(exists=True),
    help="Instead of PROBLEM: a dump of msprobe (its directory or dump.json), or cases of msOpST or ATK.",
)
@click.option("-o", "--output", required=True, type=NamedPath(file_okay=False), help="The directory.")
@product_option
@click.option("--float64", is_flag=True, help="Write the float64 result too, not rounded.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Processes.  [default: one per core]")
@shard_option
@click.option("--prune", "pruned", is_flag=True, help="Remove older cases that are not in the list.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per case, and a summary.")
@report_option
def command(
    source: CaseSource | None,
    foreign_file: Path | None,
    output: Path,
    product: str | None,
    float64: bool,
    jobs: int | None,
    shard: Shard | None,
    pruned: bool,
    as_json: bool,
    report: Path | None,
) -> None:
    """Write a case's seeded inputs and its result, computed in float64 and rounded once.

    OUTPUT/NAME has .npy and raw .bin files, OUTPUT/manifest.jsonl their shapes, dtypes, seeds and sha256.
    Started again, it continues. A bad case is reported with its line, and the other cases are made.
    """
    source = _chosen(source, foreign_file)
    outcome = Outcome()
    try:
        with locked(output):
            manifest = _known(output, shard)
            maker = Maker(output, manifest, product, float64, as_json, report is not None, pruned, outcome)
            maker.make(source, shard, jobs or get_num_threads())
    except ManifestError as error:
        raise NoAnswer(str(error)) from None
    summary: dict[str, Any] = {
        "cases": outcome.total,
        "made": outcome.good,
        "bad": outcome.bad,
        "skipped": outcome.skipped,
    }
    summary |= {"older": outcome.older, "pruned": pruned and not outcome.stopped, "stopped": outcome.stopped}
    if as_json:
        say(json.dumps({"summary": summary}, ensure_ascii=False))
    else:
        skipped = f", {outcome.skipped} skipped" if outcome.skipped else ""
        say(f"{output / MANIFEST}: {outcome.good} of {outcome.total} cases, {outcome.bad} bad{skipped}")
        _print_older(output, outcome, pruned)
    entries = [entry for _, entry in sorted(outcome.entries, key=lambda pair: pair[0])]
    facts = {"made": f"golden data in {output}"} | ({"shard": str(shard)} if shard else {})
    write_report(report, "pooltide golden", facts, ("dtype", "shape", "seed"), entries)
    if outcome.stopped:
        say(outcome.stopped, err=True)
    raise SystemExit(outcome.status or (1 if outcome.bad else 0))


def _print_older(output: Path, outcome: Outcome, pruned: bool) -> None:
    if not outcome.older:
        return
    names = ", ".join(outcome.older[:_MAX_NAMES]) + (", …" if len(outcome.older) > _MAX_NAMES else "")
    what = "are no longer in the manifest" if pruned else "stay, and are compared too; --prune removes them"
    say(f"{output}: older cases that were not made now {what}: {len(outcome.older)} ({names})", err=True)
    if pruned and (kept := [name for name in outcome.older if os.path.lexists(output / name)]):
        say(f"{output / kept[0]} stays, because it has files that pooltide golden did not write", err=True)


def _chosen(source: CaseSource | None, file: Path | None) -> CaseSource:
    if (source is None) == (file is None):
        raise click.UsageError("give PROBLEM or --from, one of them")
    if file is None:
        assert source is not None
        return source
    try:
        lines = list(read_cases(file))
    except CasesError as error:
        raise NoAnswer(str(error)) from None
    if not lines:
        raise NoAnswer(f"{file} has no pool")
    return CaseSource(iter(lines), len(lines))


@dataclass(slots=True)
class Maker:
    """Makes the cases of a source in a directory, and writes down what became of them."""

    output: Path
    manifest: Manifest
    product: str | None
    float64: bool
    as_json: bool
    reported: bool
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
        if self.reported and not made.skipped:
            self.outcome.entries.append((made.number, _entry(made)))


def _known(output: Path, shard: Shard | None) -> Manifest:
    try:
        manifest = start(output)
    except ManifestError as error:
        raise NoAnswer(f"{error}; give another --output, or remove it") from None
    except OSError as error:
        raise NoAnswer(f"{output}: can't be made: {why(error)}") from None
    if len(manifest) and manifest.shard != shard:
        has = f"shard {manifest.shard}" if manifest.shard else "all cases"
        raise click.UsageError(f"{output} has {has}; give the same --shard, or another --output")
    for key, value in versions().items():
        if len(manifest) and manifest.versions.get(key) != value:
            text = f"{output} was made with {key} {manifest.versions.get(key)}, and this is {value}"
            raise click.UsageError(f"{text}; give another --output")
    return manifest


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
    from ..acceptance.report_page import Entry

    if made.entry is None:
        return Entry(made.name, made.case, "error", ("", "", ""), made.error)
    about = made.entry["files"][result_of(made.entry)]
    shape = "×".join(map(str, about["shape"]))
    return Entry(made.name, made.case, "pass", (about["dtype"], shape, made.entry["seed"]))
