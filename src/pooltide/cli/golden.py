"""`pooltide golden`: inputs and golden results for many cases, by many processes."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..cases import Line
from ..golden import MANIFEST, Made, ManifestError, Task, finish, read_manifest
from ..threads import get_num_threads
from ..workers import WorkerDied, make_all
from .problems import NOTATION, problem_argument, product_option
from .reports import report_option, write_report

if TYPE_CHECKING:
    from ..report import Entry


@click.command(epilog=NOTATION)
@problem_argument
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="The directory."
)
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
    entries = _known(output)
    tasks = [_task(line, product, wide) for line in problems if line.case is not None]
    known = {t.name: entries[t.name] for t in tasks if t.name in entries and _same(entries[t.name], t)}
    made = [Made(line.number, line.name, "", None, line.error) for line in problems if line.case is None]
    for bad in made:
        click.echo(_failed(bad), err=True)
    stopped = ""
    try:
        with _terminating(), _appending(output, entries) as append, _progress(len(tasks)) as advance:
            for one in make_all(tasks, output, known, jobs or get_num_threads()):
                made.append(one)
                advance()
                if one.entry is None:
                    click.echo(_failed(one), err=True)
                elif one.name not in known or one.entry is not known[one.name]:
                    append(one.entry)
    except KeyboardInterrupt:
        stopped = "interrupted; start it again to go on"
    except (WorkerDied, OSError) as error:
        stopped = f"{output}: {getattr(error, 'strerror', None) or error}"
    stopped = _finished(output, entries) or stopped
    bad_ones = [one for one in made if one.entry is None]
    click.echo(
        f"{output / MANIFEST}: {len(made) - len(bad_ones)} of {len(problems)} cases, {len(bad_ones)} bad"
    )
    write_report(
        report, "pooltide golden", ("dtype", "shape", "seed"), [*map(_entry, sorted(made, key=_line))]
    )
    if stopped:
        click.echo(stopped, err=True)
    raise SystemExit(1 if stopped or bad_ones else 0)


def _known(output: Path) -> dict[str, Any]:
    try:
        output.mkdir(parents=True, exist_ok=True)
        return read_manifest(output, broken_tail=True) if (output / MANIFEST).exists() else {}
    except ManifestError as error:
        raise click.UsageError(f"{error}; give another --output, or remove it") from None
    except OSError as error:
        raise click.UsageError(f"{output}: can't be made: {error.strerror}") from None


def _task(line: Line, product: str | None, wide: bool) -> Task:
    assert line.case is not None
    case = replace(line.case, product=product or line.case.product)
    return Task(line.number, line.name, str(case), wide)


def _finished(output: Path, entries: Mapping[str, Any]) -> str:
    """The manifest put in order; else the sentence why not. What was appended to it stays good."""
    try:
        finish(output, entries)
    except OSError as error:
        return f"{output}: can't be written: {error.strerror}"
    return ""


def _same(entry: Mapping[str, Any], task: Task) -> bool:
    return entry["case"] == task.case and ("grad_input_float64" in entry["files"]) == task.wide


@contextmanager
def _appending(output: Path, entries: dict[str, Any]) -> Iterator[Any]:
    """Each finished case goes into the manifest at once, so that a kill loses none."""
    finish(output, entries)
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
    text = f"line {made.number} ({made.name}): {made.error}"
    return f"{text}\nreproduce: pooltide run {made.case}" if made.case else text


def _line(made: Made) -> int:
    return made.number


def _entry(made: Made) -> Entry:
    from ..report import Entry

    if made.entry is None:
        return Entry(made.name, made.case, "error", ("", "", ""), made.error)
    about = made.entry["files"]["grad_input"]
    shape = "×".join(map(str, about["shape"]))
    return Entry(made.name, made.case, "pass", (about["dtype"], shape, made.entry["seed"]))
