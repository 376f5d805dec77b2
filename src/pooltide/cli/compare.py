"""`pooltide compare`: judges results in a file or a directory by their golden data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..acceptance.comparison import (
    Comparison,
    Pair,
    compare,
    error_map,
    extra_files,
    pair_entry,
    pair_files,
)
from ..acceptance.manifest import Manifest, ManifestError, Shard, read_manifest
from ..acceptance.manifest_entry import MANIFEST
from ..acceptance.measures import PRECISIONS
from ..acceptance.notation import parse
from ..acceptance.summaries import about
from ..acceptance.tensorfile import TensorFileError
from ..acceptance.verdicts import DEFAULT, LEVELS, THIRD, Verdict
from ..acceptance.words import BY_SHORT_DTYPE, NotationError
from ..operators.dtypes import DTYPES
from ..writing import why, write_whole
from . import reports
from .arguments import NamedPath, OutputPath, shard_option
from .output import NoAnswer, one_line, progress, reproduce, say

if TYPE_CHECKING:
    from ..acceptance.errormap import ErrorMap
    from ..acceptance.report_page import Entry

_DTYPES = {short: dtype for short, dtype in BY_SHORT_DTYPE.items() if dtype.name in PRECISIONS}
_MOST_EXTRA = 10  # extra files that are listed without -v
_PATH = NamedPath(exists=True)
Outcome = Comparison | TensorFileError


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    case: str
    outcome: Outcome
    line: int  # of the case in its file

    def verdict(self, standard: str) -> Verdict | None:
        """None: the case could not be compared."""
        return self.outcome.verdict(standard) if isinstance(self.outcome, Comparison) else None


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be compared: two files, or directories and perhaps a part of their cases."""

    actual: Path
    golden: Path
    third: Path | None
    level: str
    dtype: str | None
    case: str
    shard: Shard | None
    only: tuple[str, ...]

    def has(self, place: int, name: str) -> bool:
        """Whether a case of the manifest is to be compared."""
        return (not self.only or name in self.only) and (self.shard is None or self.shard.has(place))


@click.command()
@click.argument("actual", type=_PATH)
@click.argument("golden", type=_PATH)
@click.option("--third", type=_PATH, help="Another's result, such as a GPU's, for two and benchmark.")
@reports.standard_option
@click.option(
    "--level", type=click.Choice(list(LEVELS)), default="L1", show_default=True, help="Of two and benchmark."
)
@click.option(
    "--dtype", type=click.Choice([*_DTYPES, "hf32"]), help="Of .bin files; hf32: computed in HFLOAT32."
)
@click.option("--case", "case", help="The case of two files, so that the report can draw its windows.")
@shard_option
@click.option("--only", multiple=True, metavar="NAME", help="Compare this case alone; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per case, and a summary.")
@click.option("--csv", "csv_file", type=OutputPath(dir_okay=False), help="Write msprobe's table of details.")
@reports.verbose_option
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
    report: Path | None,
) -> None:
    """Compare ACTUAL with GOLDEN: two files (.npy, .bin or .pt), or a directory with one of pooltide golden.

    A directory has NAME/grad_input.npy or NAME.npy (or .bin, or .pt) for each case of the golden manifest, or
    it is a dump of msprobe. Forwards have output in place of grad_input.
    Prints a line for each case and a summary. Exit status 2 when a case could not be compared (a file is
    missing, can't be read, or has not the manifest's sha256), else 1 when the verdict of the standard fails
    for any case, else 0. docs/acceptance.md has the formulas of the standards.
    """
    if standard in THIRD and third is None:
        raise click.UsageError(
            f"--standard {standard} needs --third, another's result for the same golden files"
        )
    tally = reports.Tally()
    rows: list[Row] = []
    try:
        notation = "" if case is None else str(parse(case))
        request = Request(actual, golden, third, level, dtype, notation, shard, only)
        manifest = _manifest(request)
        with progress("compare", _total(request, manifest)) as advance:
            for row in _rows(request, manifest):
                advance()
                tally.add(row.verdict(standard))
                if as_json:
                    say(json.dumps(_record(row, standard, request), ensure_ascii=False))
                else:
                    _print(row, standard, verbose, request)
                if report is not None or csv_file is not None:
                    rows.append(row)
    except ManifestError as error:
        raise NoAnswer(str(error)) from None
    except NotationError as error:
        raise click.UsageError(str(error)) from None
    extra = [] if manifest is None or only else [str(path) for path in extra_files(actual, manifest)]
    if as_json:
        known = {"extra": extra} | about(manifest, shard, level if third else None)
        say(json.dumps({"summary": tally.record(standard) | known}, ensure_ascii=False))
    else:
        _print_extra(extra, verbose)
        say(tally.summary(standard))
    if csv_file is not None:
        _write_csv(csv_file, rows)
    if report is not None:
        _write_report(report, rows, standard, request, extra)
    raise SystemExit(tally.exit_status)


def _manifest(request: Request) -> Manifest | None:
    """The manifest of a golden directory; None for two files. UsageError: the arguments do not fit."""
    golden = request.golden
    if len({path.is_dir() for path in (request.actual, golden, request.third) if path is not None}) > 1:
        raise click.UsageError("ACTUAL, GOLDEN and --third must all be files, or all directories")
    if not golden.is_dir():
        if request.only or request.shard:
            raise click.UsageError("--only and --shard are for directories; two files are one case")
        _check_names(request)
        return None
    if request.dtype or request.case:
        raise click.UsageError("--dtype and --case are for two files; the manifest has them for directories")
    manifest = read_manifest(golden)
    if not len(manifest) or not manifest.complete:
        what = "is not complete" if len(manifest) else "has no case"
        raise ManifestError(f"{golden / MANIFEST} {what}; start pooltide golden again")
    if unknown := [name for name in request.only if name not in manifest]:
        raise click.UsageError(f"--only is {unknown[0]!r}; it must be a name of {golden / MANIFEST}")
    return manifest


def _total(request: Request, manifest: Manifest | None) -> int:
    count = 1 if manifest is None else len(manifest)
    return len(request.only) or (request.shard.count(count) if request.shard else count)


def _rows(request: Request, manifest: Manifest | None) -> Iterator[Row]:
    if manifest is None:
        yield Row(request.actual.name, request.case, _outcome(partial(_pair, request), request.level), 1)
        return
    for entry in manifest.entries(request.has):
        pair = partial(pair_entry, entry, request.golden, request.actual, request.third)
        yield Row(entry["name"], entry["case"], _outcome(pair, request.level), entry["line"])


def _pair(request: Request) -> Pair:
    """Two files, or three."""
    known = DTYPES["FLOAT32"] if request.dtype == "hf32" else _DTYPES.get(request.dtype or "")
    rounding = "HFLOAT32" if request.dtype == "hf32" else "keep"
    actual = request.actual
    pair = pair_files(actual.name, actual, request.golden, request.third, known, rounding)
    return replace(pair, case=request.case)


def _outcome(pair: Callable[[], Pair], level: str) -> Outcome:
    try:
        return compare(pair(), level)
    except TensorFileError as error:
        return error


def _check_names(request: Request) -> None:
    for path in filter(None, (request.actual, request.golden, request.third)):
        if path.suffix not in (".npy", ".bin", ".pt"):
            text = f"the name ends in {path.suffix!r}; it must end in .npy, .bin or .pt"
            raise click.UsageError(f"{path}: {text}")
    if request.dtype is None and request.actual.suffix == request.golden.suffix == ".bin":
        raise click.UsageError(f"{request.actual}: a .bin file has no dtype; give it with --dtype")


def _print(row: Row, standard: str, verbose: bool, request: Request) -> None:
    if isinstance(row.outcome, TensorFileError):
        say(one_line(f"error {row.name}: {row.outcome}"))
        return
    verdict, m = row.outcome.verdict(standard), row.outcome.measures
    say(one_line(reports.case_line(row.name, verdict, m)))
    if verbose:
        about = [f"      case     {row.case}"] if row.case else []
        say("\n".join([*about, *reports.details(m, row.outcome.verdicts, standard)]))
    if not verdict.passed:
        say(_reproduce(row, standard, request))


def _reproduce(row: Row, standard: str, request: Request) -> str:
    """The same comparison of this case alone: a command that computes the case would judge another result."""
    options = {
        "--only": row.name if request.golden.is_dir() else None,
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
    record |= reports.figures(row.outcome.measures, row.outcome.verdicts)
    passed = row.outcome.verdict(standard).passed
    return record if passed else record | {"reproduce": _reproduce(row, standard, request)}


def _write_csv(path: Path, rows: list[Row]) -> None:
    from ..acceptance.msprobe_csv import details

    outcomes = ((r.name, r.outcome if isinstance(r.outcome, Comparison) else str(r.outcome)) for r in rows)
    try:
        write_whole(path, details(outcomes))
    except OSError as error:
        raise NoAnswer(f"{path}: can't be written: {why(error)}") from None


def _write_report(path: Path, rows: list[Row], standard: str, request: Request, extra: list[str]) -> None:
    facts = {"compared": f"the results of {request.actual} with the golden data of {request.golden}"}
    facts |= {"third result": str(request.third)} if request.third else {}
    facts |= reports.standard_facts(standard, request.level)
    cases = [parse(row.case) for row in rows if row.case]
    facts |= {"product": reports.products(cases, None)} if cases else {}
    wrong = [str(row.outcome).partition(": ") for row in rows if isinstance(row.outcome, TensorFileError)]
    files = [(name, what) for name, _, what in wrong]
    files += [(name, "extra: no case of the golden data has this name") for name in extra]
    entries = _entries(rows, standard, request)
    reports.write_report(path, "pooltide compare", facts, reports.COLUMNS, entries, files)


def _entries(rows: list[Row], standard: str, request: Request) -> list[Entry]:
    """The entries of the report. Files of the cases that get a section are read a second time."""
    from ..acceptance.report_page import MOST_SECTIONS, Entry

    source = request.golden if request.golden.is_dir() else None
    entries, sections = [], 0
    for row in rows:
        if isinstance(row.outcome, TensorFileError):
            entries.append(Entry(row.name, row.case, "error", ("",) * len(reports.COLUMNS), str(row.outcome)))
            continue
        m, chosen = row.outcome.measures, row.outcome.verdict(standard)
        entry = reports.entry(row.name, row.case, (), m, chosen, row.outcome.verdicts)
        if not chosen.passed:
            sections += 1
            errors = _errors(row.outcome, source) if sections <= MOST_SECTIONS else None
            entry = replace(entry, reproduce=_reproduce(row, standard, request), errors=errors)
        entries.append(entry)
    return entries


def _errors(outcome: Outcome, golden: Path | None) -> ErrorMap | None:
    try:
        return error_map(outcome.pair, golden) if isinstance(outcome, Comparison) else None
    except TensorFileError:  # a file has changed since it was compared
        return None
