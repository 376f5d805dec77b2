"""`pooltide golden`: inputs and golden results for many cases, by many processes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..acceptance.cases import Line
from ..acceptance.golden import Made, Task, claim, clean, finish, start
from ..acceptance.manifest import MANIFEST, ManifestError, write_manifest
from ..acceptance.workers import WorkerDied, make_all
from ..kernels.threads import get_num_threads
from ..writing import why
from .paths import NamedPath
from .problems import NOTATION, problem_argument, product_option
from .reports import report_option, write_report
from .speech import one_line, reproduce, say

if TYPE_CHECKING:
    from ..acceptance.report import Entry

_PATIENCE = 3.0  # seconds: the workers of a program that was killed keep its lock for a moment


@click.command(epilog=NOTATION)
@problem_argument
@click.option("-o", "--output", required=True, type=NamedPath(file_okay=False), help="The directory.")
@product_option
@click.option("--float64", "wide", is_flag=True, help="Keep the float64 result too, not rounded.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Processes (the cores there are).")
@report_option
def command(
    problems: list[Line], output: Path, product: str | None, wide: bool, jobs: int | None, report: Path | None
) -> None:
    """Write a case's seeded inputs and its result, computed in float64 and rounded once.

    OUTPUT/NAME has .npy and raw .bin files, OUTPUT/manifest.jsonl their shapes, dtypes, seeds and sha256.
    Started again, it goes on where it was. A bad case is reported with its line; the others go on.
    """
    with _alone(output):
        made, stopped = _make(problems, output, product, wide, jobs or get_num_threads())
    bad_ones = [one for one in made if one.entry is None]
    say(f"{output / MANIFEST}: {len(made) - len(bad_ones)} of {len(problems)} cases, {len(bad_ones)} bad")
    write_report(
        report, "pooltide golden", ("dtype", "shape", "seed"), [*map(_entry, sorted(made, key=_line))]
    )
    if stopped:
        say(stopped, err=True)
    raise SystemExit(1 if stopped or bad_ones else 0)


def _make(
    problems: list[Line], output: Path, product: str | None, wide: bool, jobs: int
) -> tuple[list[Made], str]:
    """What became of each case, and the sentence why the work stopped early, if it did."""
    entries = _known(output)
    made = [Made(line.number, line.name, "", None, line.error) for line in problems if line.case is None]
    tasks = [_task(line, product, wide) for line in problems if line.case is not None]
    stopped = ""
    try:
        with _terminating(), _progress(len(tasks)) as advance:
            write_manifest(output, entries, complete=False)
            foreign = claim(output, [task.name for task in tasks], entries)
            clean(output)
            refused = [task for task in tasks if task.name in foreign]
            made += [Made(t.number, t.name, t.case, None, foreign[t.name]) for t in refused]
            for bad in made:
                say(_failed(bad), err=True)
            free = [task for task in tasks if task.name not in foreign]
            with _appending(output, entries) as append:
                for one in make_all(free, output, dict(entries), jobs):
                    made.append(one)
                    advance()
                    if one.entry is None:
                        say(_failed(one), err=True)
                    elif entries.get(one.name) != one.entry:
                        append(one.entry)
    except KeyboardInterrupt:
        stopped = "interrupted; start it again to go on"
    except WorkerDied as error:
        stopped = f"{output}: {error}"
    except OSError as error:
        stopped = f"{output}: {why(error)}"
    return made, _finished(output, entries, complete=not stopped) or stopped


def _known(output: Path) -> dict[str, Any]:
    try:
        return start(output)
    except ManifestError as error:
        raise click.UsageError(f"{error}; give another --output, or remove it") from None
    except OSError as error:
        raise click.UsageError(f"{output}: can't be made: {why(error)}") from None


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """Lock the directory: two programs that write one manifest would lose each other's lines."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        directory = os.open(output, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise click.UsageError(f"{output}: can't be made: {why(error)}") from None
    try:
        _lock(output, directory)
        yield
    finally:
        os.close(directory)


def _lock(output: Path, directory: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                text = "another pooltide golden writes there; wait for it, or give another --output"
                raise click.UsageError(f"{output}: {text}") from None
            time.sleep(0.1)
        except OSError:  # a file system without locks
            return None


def _task(line: Line, product: str | None, wide: bool) -> Task:
    assert line.case is not None
    case = replace(line.case, product=product or line.case.product)
    return Task(line.number, line.name, str(case), wide)


def _finished(output: Path, entries: Mapping[str, Any], *, complete: bool) -> str:
    """The manifest put in order; else the sentence why not. What was appended to it stays good."""
    try:
        finish(output, entries, complete=complete)
    except OSError as error:
        return f"{output}: can't be written: {why(error)}"
    return ""


@contextmanager
def _appending(output: Path, entries: dict[str, Any]) -> Iterator[Any]:
    """Each finished case goes into the manifest at once, so that a kill loses none."""
    with (output / MANIFEST).open("a", encoding="utf-8") as file:

        def append(entry: Mapping[str, Any]) -> None:
            entries[entry["name"]] = entry
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            file.flush()

        yield append


@contextmanager
def _terminating() -> Iterator[None]:
    """SIGTERM stops as cleanly as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar where there is a terminal; nothing where there is none.

    It draws itself when it is told to, not from a thread: workers are forked while it stands.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        task = progress.add_task("golden", total=total)
        every = max(1, total // 200)

        def advance() -> None:
            progress.advance(task)
            if progress.tasks[0].completed % every == 0:
                progress.refresh()

        yield advance


def _failed(made: Made) -> str:
    text = one_line(f"line {made.number} ({made.name}): {made.error}")
    return f"{text}\n{reproduce('run', made.case)}" if made.case else text


def _line(made: Made) -> int:
    return made.number


def _entry(made: Made) -> Entry:
    from ..acceptance.report import Entry

    if made.entry is None:
        return Entry(made.name, made.case, "error", ("", "", ""), made.error)
    about = made.entry["files"]["grad_input"]
    shape = "×".join(map(str, about["shape"]))
    return Entry(made.name, made.case, "pass", (about["dtype"], shape, made.entry["seed"]))
