"""`pooltide golden`: writes inputs and golden results of many cases, in several processes."""

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
from .problems import NOTATION, failed, problem_argument, product_option
from .reports import products, report_option, write_report
from .speech import reproduce, say

if TYPE_CHECKING:
    from ..acceptance.report import Entry

_PATIENCE = 3.0  # seconds to wait for the lock: workers of a killed program hold it for a moment


@click.command(epilog=NOTATION)
@problem_argument
@click.option("-o", "--output", required=True, type=NamedPath(file_okay=False), help="The directory.")
@product_option
@click.option("--float64", is_flag=True, help="Write the float64 result too, not rounded.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Processes.  [default: one per core]")
@report_option
def command(
    problems: list[Line],
    output: Path,
    product: str | None,
    float64: bool,
    jobs: int | None,
    report: Path | None,
) -> None:
    """Write a case's seeded inputs and its result, computed in float64 and rounded once.

    OUTPUT/NAME has .npy and raw .bin files, OUTPUT/manifest.jsonl their shapes, dtypes, seeds and sha256.
    Started again, it continues. A bad case is reported with its line, and the other cases are made.
    """
    work = [_task(line, product, float64) for line in problems]
    with _locked(output):
        made, stopped = _make(work, output, jobs or get_num_threads())
    bad = sum(one.entry is None for one in made)
    say(f"{output / MANIFEST}: {len(made) - bad} of {len(problems)} cases, {bad} bad")
    in_order = sorted(made, key=lambda one: one.number)
    facts = {
        "made": f"golden data in {output}",
        "product": products((line.case for line in problems), product),
    }
    write_report(report, "pooltide golden", facts, ("dtype", "shape", "seed"), [*map(_entry, in_order)])
    if stopped:
        say(stopped, err=True)
    raise SystemExit(1 if stopped or bad else 0)


def _make(work: list[Task | Made], output: Path, jobs: int) -> tuple[list[Made], str]:
    """The outcome of each case, and why the work stopped early, or ""."""
    entries = _known(output)
    made = [one for one in work if isinstance(one, Made)]
    tasks = [one for one in work if isinstance(one, Task)]
    stopped = ""
    try:
        with _sigterm_interrupts(), _progress(len(tasks)) as advance:
            write_manifest(output, entries, complete=False)
            foreign = claim(output, [task.name for task in tasks], entries)
            clean(output)
            made += [
                Made(t.number, t.name, t.case, None, foreign[t.name]) for t in tasks if t.name in foreign
            ]
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
def _locked(output: Path) -> Iterator[None]:
    """Make and lock the directory: two writers of one manifest would lose lines of each other."""
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


def _task(line: Line, product: str | None, float64: bool) -> Task | Made:
    """The task of a line, or the outcome of a line that can't be read."""
    if line.case is None:
        return Made(line.number, line.name, "", None, line.error)
    case = replace(line.case, product=product or line.case.product)
    return Task(line.number, line.name, str(case), float64)


def _finished(output: Path, entries: Mapping[str, Any], *, complete: bool) -> str:
    """Sort and close the manifest; return "" or why that failed, in which case the old manifest stays."""
    try:
        finish(output, entries, complete=complete)
    except OSError as error:
        return f"{output}: can't be written: {why(error)}"
    return ""


@contextmanager
def _appending(output: Path, entries: dict[str, Any]) -> Iterator[Any]:
    """Gives a function that appends an entry to the manifest at once, so that a kill loses none."""
    with (output / MANIFEST).open("a", encoding="utf-8") as file:

        def append(entry: Mapping[str, Any]) -> None:
            entries[entry["name"]] = entry
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            file.flush()

        yield append


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """Gives a function to call after each case; on a terminal it draws a progress bar.

    No thread draws the bar, as workers are forked while it is shown.
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
    text = failed(made, made.error)
    return f"{text}\n{reproduce('run', made.case)}" if made.case else text


def _entry(made: Made) -> Entry:
    from ..acceptance.report import Entry

    if made.entry is None:
        return Entry(made.name, made.case, "error", ("", "", ""), made.error)
    about = made.entry["files"]["grad_input"]
    shape = "×".join(map(str, about["shape"]))
    return Entry(made.name, made.case, "pass", (about["dtype"], shape, made.entry["seed"]))
