"""`pooltide compare`: judges results in a file or a directory by their golden data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..acceptance.cases import CasesError
from ..acceptance.comparison import Comparison, Pair, error_map
from ..acceptance.manifest import Manifest, ManifestError
from ..acceptance.notation import parse
from ..acceptance.results import results_in
from ..acceptance.shard import Shard
from ..acceptance.summaries import about
from ..acceptance.tensorfile import TensorFileError
from ..acceptance.verdicts import DEFAULT, LEVELS, THIRD
from ..acceptance.words import NotationError
from ..writing import why, write_parts
from . import reports, verdict_lines
from .arguments import NamedPath, OutputPath, shard_option
from .compare_request import RAW_DTYPES, Request, Row, count_of, manifest_of, rows_of
from .output import NoAnswer, one_line, progress, reproduce, say

if TYPE_CHECKING:
    from ..acceptance.errormap import ErrorMap
    from ..acceptance.msprobe_csv import Details
    from ..acceptance.report_page import Fact
    from ..acceptance.report_rows import Entry, Rows

_START, _OURS = 1000, (b"<title>pooltide", b"API Name,Bench Dtype")  # what a report or a table begins with
_MOST_EXTRA = 10  # extra files that are listed without -v
_PATH = NamedPath(exists=True)


@click.command()
@click.argument("actual", type=_PATH)
@click.argument("golden", type=_PATH)
@click.option("--third", type=_PATH, help="Another's result, such as a GPU's, for two and benchmark.")
@verdict_lines.standard_option
@click.option(
    "--level", type=click.Choice(list(LEVELS)), default="L1", show_default=True, help="Of two and benchmark."
)
@click.option(
    "--dtype", type=click.Choice([*RAW_DTYPES, "hf32"]), help="Of .bin files; hf32: computed in HFLOAT32."
)
@click.option("--case", "case", help="The case of two files, so that the report can draw its windows.")
@shard_option
@click.option("--only", multiple=True, metavar="NAME", help="Compare this case alone; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per case, and a summary.")
@click.option("--csv", "csv_file", type=OutputPath(dir_okay=False), help="Write msprobe's table of details.")
@verdict_lines.verbose_option
@reports.label_option
@verdict_lines.language_option
@reports.report_option
def command(
    actual: Path,
    golden: Path,
    third: Path | None,
    standard: str,
    level: str,
    dtype: str | None,
    case: str | None,
    shard: Shard | None,
    only: tuple[str, ...],
    as_json: bool,
    csv_file: Path | None,
    verbose: bool,
    label: str | None,
    report: Path | None,
) -> None:
    """Compare ACTUAL with GOLDEN: two files (.npy, .bin or .pt), or a directory with a golden set.

    A golden set is what pooltide golden made: its directory, or the .tar file of --pack.
    The directory ACTUAL has NAME/grad_input.npy or NAME.npy (or .bin, or .pt) for each case of the golden
    manifest, or it is a dump of msprobe. Forwards have output in place of grad_input.
    Prints a line for each case and a summary. Exit status 2 when a case could not be compared (a file is
    missing, can't be read, or has not the manifest's sha256), else 1 when the verdict of the standard fails
    for any case, else 0. docs/acceptance.md has the formulas of the standards.
    """
    if standard in THIRD and third is None:
        raise click.UsageError(
            f"--standard {standard} needs --third, another's result for the same golden files"
        )
    for output in filter(None, (report, csv_file)):
        _refuse_others(output, filter(None, (actual, golden, third)))
    tally = verdict_lines.Tally()
    kept = Kept(reports.collected(report), _details(csv_file))
    try:
        notation = "" if case is None else str(parse(case))
        request = Request(actual, golden, third, level, dtype, notation, shard, only)
        manifest = manifest_of(request)
        results = None if manifest is None else results_in(actual)
        extra: list[str] = []
        if manifest is not None and results is not None and not only:
            tally.left_out = manifest.left_out
            extra = [str(path) for path in results.extra(manifest)]
        with progress("compare", count_of(request, manifest)) as advance:
            for row in rows_of(request, manifest, results):
                advance()
                tally.add(row.verdict(standard))
                if as_json:
                    say(json.dumps(_record(row, standard, request), ensure_ascii=False))
                else:
                    _print(row, standard, verbose, request)
                kept.add(row, standard, request, manifest)
    except (ManifestError, CasesError) as error:
        raise NoAnswer(str(error)) from None
    except NotationError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        known = {"extra": extra} | about(manifest, shard, level if third else None, label)
        say(json.dumps({"summary": tally.record(standard) | known}, ensure_ascii=False))
    else:
        _print_extra(extra, verbose)
        if manifest is not None and manifest.shard:
            say(f"{golden} is shard {manifest.shard} of a set; the other shards have the other cases")
        say(tally.summary(standard))
    if csv_file is not None and kept.details is not None:
        _write_csv(csv_file, kept.details)
    if report is not None:
        _write_report(report, kept, standard, request, manifest, extra, label, tally.doubts)
    raise SystemExit(tally.exit_status)


def _refuse_others(output: Path, folders: Iterable[Path]) -> None:
    """NoAnswer: the output would replace a file in a compared directory that is no earlier output."""
    if not output.is_file() or not output.stat().st_size:
        return
    inside = any(folder.is_dir() and output.resolve().is_relative_to(folder.resolve()) for folder in folders)
    with output.open("rb") as file:
        start = file.read(_START)
    if inside and not any(words in start for words in _OURS):
        text = "the file is in a compared directory, and is no report or table of pooltide"
        raise NoAnswer(f"{output}: {text}; give another name")


def _print(row: Row, standard: str, verbose: bool, request: Request) -> None:
    if isinstance(row.outcome, TensorFileError):
        say(one_line(f"error {row.name}: {row.outcome}"))
        return
    verdict, m = row.outcome.verdict(standard), row.outcome.measures
    say(one_line(verdict_lines.case_line(row.name, verdict, m)))
    if verbose:
        about = [f"      case     {row.case}"] if row.case else []
        say("\n".join([*about, *verdict_lines.details(m, row.outcome.verdicts, standard)]))
    if not verdict.passed:
        say(_reproduce(row, standard, request))


def _reproduce(row: Row, standard: str, request: Request) -> str:
    """The same comparison of this case alone: a command that computes the case would judge another result."""
    options = {
        "--only": row.name if request.is_set else None,
        "--third": request.third,
        "--standard": standard if standard != DEFAULT else None,
        "--level": request.level if standard in THIRD else None,
        "--dtype": request.dtype,
        "--case": request.case,
    }
    words = [word for name, value in options.items() if value for word in (name, value)]
    return reproduce("compare", request.actual, request.golden, *words, "-v")


def _print_extra(extra: list[str], verbose: bool) -> None:
    shown = extra if verbose else extra[:_MOST_EXTRA]
    for path in shown:
        say(one_line(f"extra {path}: no case of the golden data has this name"))
    if len(shown) < len(extra):
        say(f"extra {len(extra) - len(shown)} more files; -v lists them")


def _record(row: Row, standard: str, request: Request) -> dict[str, Any]:
    record: dict[str, Any] = {"line": row.line, "name": row.name, "case": row.case}
    if isinstance(row.outcome, TensorFileError):
        return record | {"error": str(row.outcome)}
    record |= verdict_lines.figures(row.outcome.measures, row.outcome.verdicts, standard)
    passed = row.outcome.verdict(standard).passed
    return record if passed else record | {"reproduce": _reproduce(row, standard, request)}


@dataclass(slots=True)
class Kept:
    """What the report and the table need of the cases; it may be nothing."""

    rows: Rows | None
    details: Details | None
    files: list[tuple[str, str]] = field(default_factory=list)  # that could not be compared, and why

    def add(self, row: Row, standard: str, request: Request, manifest: Manifest | None) -> None:
        """NoAnswer: the disk is full."""
        try:
            self._add(row, standard, request, manifest)
        except OSError as error:
            raise NoAnswer(f"a temporary file can't be written: {why(error)}") from None

    def _add(self, row: Row, standard: str, request: Request, manifest: Manifest | None) -> None:
        if self.details is not None:
            about = row.outcome if isinstance(row.outcome, Comparison) else str(row.outcome)
            self.details.add(row.name, about)
        if self.rows is not None:
            self.rows.add(_entry(row, standard, request, manifest))
            if isinstance(row.outcome, TensorFileError):
                name, _, what = str(row.outcome).partition(": ")
                self.files.append((name, what))


def _details(csv_file: Path | None) -> Details | None:
    if csv_file is None:
        return None
    from ..acceptance.msprobe_csv import Details

    return Details()


def _write_csv(path: Path, details: Details) -> None:
    try:
        write_parts(path, details.parts())
    except OSError as error:
        raise NoAnswer(f"{path}: can't be written: {why(error)}") from None


def _write_report(
    path: Path,
    kept: Kept,
    standard: str,
    request: Request,
    manifest: Manifest | None,
    extra: list[str],
    label: str | None,
    doubts: Mapping[str, int],
) -> None:
    actual, golden = request.actual, request.golden
    facts: dict[str, Fact] = {"label": label} if label else {}
    facts["compared"] = (
        f"the results of {actual} with the golden data of {golden}",
        f"{actual} 的结果与 {golden} 的标杆数据",
    )
    facts |= {"third result": str(request.third)} if request.third else {}
    facts |= reports.standard_facts(standard, doubts, request.level)
    if manifest is not None:
        facts |= reports.golden_fact(len(manifest), manifest.digest, manifest.left_out, manifest.versions)
    if kept.rows is not None and kept.rows.products:
        facts |= reports.product_fact(kept.rows.products)
    files = [*kept.files, *((name, "extra: no case of the golden data has this name") for name in extra)]
    reports.write_report(path, "pooltide compare", facts, reports.COLUMNS, kept.rows, files)


def _entry(row: Row, standard: str, request: Request, manifest: Manifest | None) -> Entry:
    """The entry of the report. Files of the cases that get a map are read a second time."""
    from ..acceptance.report_rows import Entry

    if isinstance(row.outcome, TensorFileError):
        return Entry(row.name, row.case, "error", ("",) * len(reports.COLUMNS), str(row.outcome))
    m, chosen = row.outcome.measures, row.outcome.verdict(standard)
    entry = reports.entry(row.name, row.case, (), m, chosen, row.outcome.verdicts)
    if chosen.passed:
        return entry
    errors = partial(_errors, row.outcome.pair, manifest)
    return replace(entry, reproduce=_reproduce(row, standard, request), errors=errors)


def _errors(pair: Pair, manifest: Manifest | None) -> ErrorMap | None:
    try:
        return error_map(pair, manifest)
    except TensorFileError:  # a file has changed since it was compared
        return None
