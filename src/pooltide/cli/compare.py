"""`pooltide compare`: judges results in a file or a directory by their golden data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..acceptance.comparison import Comparison, Pair, compare, error_map, pair_entry, pair_files
from ..acceptance.manifest import MANIFEST, ManifestError, read_manifest
from ..acceptance.notation import parse
from ..acceptance.tensorfile import GoldenError, TensorFileError
from ..acceptance.verdicts import LEVELS, STANDARDS, VERDICTS
from ..acceptance.words import BY_SHORT_DTYPE, NotationError
from ..operators.dtypes import DTYPES
from . import reports
from .paths import NamedPath
from .speech import one_line, reproduce, say
from .tables import aligned

if TYPE_CHECKING:
    from ..acceptance.errormap import ErrorMap
    from ..acceptance.report import Entry

_DTYPES = {short: dtype for short, dtype in BY_SHORT_DTYPE.items() if dtype.name in STANDARDS}
_MOST_ROWS = 40
_PATH = NamedPath(exists=True)
Outcome = Comparison | TensorFileError
Row = tuple[str, str, Outcome]  # name, case


@click.command()
@click.argument("actual", type=_PATH)
@click.argument("golden", type=_PATH)
@click.option("--third", type=_PATH, help="Another's result, such as a GPU's: gives the verdict two.")
@reports.verdict_option
@click.option("--level", type=click.Choice(list(LEVELS)), default="L1", show_default=True, help="Of two.")
@click.option(
    "--dtype", type=click.Choice([*_DTYPES, "hf32"]), help="Of .bin files; hf32: computed in HFLOAT32."
)
@click.option("--case", "case", help="The case of two files, so that the report can draw its windows.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per case.")
@reports.report_option
def command(
    actual: Path,
    golden: Path,
    third: Path | None,
    verdict: str,
    level: str,
    dtype: str | None,
    case: str | None,
    as_json: bool,
    report: Path | None,
) -> None:
    """Compare ACTUAL with GOLDEN: two files (.npy or .bin), or a directory with one of pooltide golden.

    A directory has NAME/grad_input.npy or NAME.npy (or .bin) for each case of the golden manifest.
    Exit status 1 when the chosen verdict fails for any case, or a result is missing or can't be read;
    2 when golden data are missing, or are not what the manifest's sha256 says.

    \b
    single  MERE < T, MARE < 10·T     T = 2^-10 float16, 2^-7 bfloat16,
            of |a-g|/(|g|+1e-7)           2^-13 float32, 2^-11 HFLOAT32
    two     MARE, MERE, RMSE over the third's: at most
            10/2/2 (L0), 5/1.5/1.5 (L1), 2/1.2/1.2 (L2)
    mixed   |a-g| <= atol + rtol·|g| for 99 % of the cells, no error above
            max(limit, 32 ULP); rtol/atol/limit = 2^-9/2^-9/0.1 float16,
            2^-6/2^-6/1 bfloat16, 2^-10/2^-16/0.01 float32
    bits    equal bits
    """
    if verdict == "two" and third is None:
        raise click.UsageError("--verdict two needs --third, another's result for the same golden files")
    rows: list[Row] = []
    try:
        if case is not None:
            case = str(parse(case))
        for name, text, pair in _pairs(actual, golden, third, dtype, case):
            rows.append((name, text, _compared(pair, level)))
            if as_json:
                say(json.dumps(_record(*rows[-1]), ensure_ascii=False))
    except (ManifestError, NotationError) as error:
        raise click.UsageError(str(error)) from None
    if not as_json:
        say(_text(rows, verdict))
    if report is not None:
        source = golden if golden.is_dir() else None
        columns = (*reports.MEASURES, *(name for name in VERDICTS if third or name != "two"))
        entries = [_entry(*row, verdict, len(columns)) for row in rows]
        entries = _with_errors(entries, {name: outcome for name, _, outcome in rows}, source)
        reports.write_report(report, "pooltide compare", columns, entries)
    if any(isinstance(outcome, GoldenError) for *_, outcome in rows):
        raise SystemExit(2)
    raise SystemExit(0 if all(_passed(outcome, verdict) for *_, outcome in rows) else 1)


def _pairs(
    actual: Path, golden: Path, third: Path | None, dtype: str | None, case: str | None
) -> Iterator[tuple[str, str, Pair | TensorFileError]]:
    """For each case: its name, its notation, and its pair or the error of opening it."""
    if golden.is_dir() != actual.is_dir() or (third is not None and third.is_dir() != golden.is_dir()):
        raise click.UsageError("ACTUAL, GOLDEN and --third must all be files, or all directories")
    rounding = "HFLOAT32" if dtype == "hf32" else "keep"
    if not golden.is_dir():
        _check_names(actual, golden, third, dtype)
        known = DTYPES["FLOAT32"] if dtype == "hf32" else _DTYPES.get(dtype or "")
        try:
            pair = pair_files(actual.name, actual, golden, third, known, rounding)
            yield actual.name, case or "", replace(pair, case=case or "")
        except TensorFileError as error:
            yield actual.name, case or "", error
        return
    if dtype or case:
        raise click.UsageError("--dtype and --case are for two files; the manifest has them for directories")
    found = read_manifest(golden)
    if not found.entries or not found.complete:
        what = "is not complete" if found.entries else "has no case"
        raise ManifestError(f"{golden / MANIFEST} {what}; start pooltide golden again")
    for entry in found.entries.values():
        try:
            yield entry["name"], entry["case"], pair_entry(entry, golden, actual, third)
        except TensorFileError as error:
            yield entry["name"], entry["case"], error


def _check_names(actual: Path, golden: Path, third: Path | None, dtype: str | None) -> None:
    for path in filter(None, (actual, golden, third)):
        if path.suffix not in (".npy", ".bin"):
            raise click.UsageError(f"{path}: the name ends in {path.suffix!r}; it must end in .npy or .bin")
    if dtype is None and actual.suffix == golden.suffix == ".bin":
        raise click.UsageError(f"{actual}: a .bin file has no dtype; give it with --dtype")


def _compared(pair: Pair | TensorFileError, level: str) -> Outcome:
    try:
        return pair if isinstance(pair, TensorFileError) else compare(pair, level)
    except TensorFileError as error:
        return error


def _passed(outcome: Outcome, verdict: str) -> bool:
    return isinstance(outcome, Comparison) and outcome.verdict(verdict).passed


def _text(rows: list[Row], verdict: str) -> str:
    bad = [row for row in rows if not _passed(row[2], verdict)]
    parts = []
    if len(rows) == 1 and isinstance(rows[0][2], Comparison):
        parts.append(_one(rows[0][2]))
    else:
        listed = rows if len(rows) <= _MOST_ROWS else bad[:_MOST_ROWS]
        good = [(name, outcome) for name, _, outcome in listed if isinstance(outcome, Comparison)]
        if good:
            head = ["case", "MERE", "MARE", "max ULP", *(v.name for v in good[0][1].verdicts)]
            parts.append(aligned(head, [_cells(name, outcome) for name, outcome in good]))
        wrong = [(name, outcome) for name, _, outcome in listed if isinstance(outcome, TensorFileError)]
        parts += [one_line(f"{name}: {outcome}") for name, outcome in wrong]
        if len(bad) > len(listed):
            parts.append(f"… and {len(bad) - len(listed)} more that fail; --json or --report has them all")
    parts.append(f"{verdict}: {len(rows) - len(bad)} of {len(rows)} pass")
    if bad and (case := next((case for _, case, _ in bad if case), "")):
        parts.append(reproduce("run", case))
    return "\n".join(parts)


def _cells(name: str, outcome: Comparison) -> list[str]:
    m = outcome.measures
    return [name, f"{m.mere:.3g}", f"{m.mare:.3g}", str(m.max_ulp), *reports.judged(outcome.verdicts)]


def _one(outcome: Comparison) -> str:
    m = outcome.measures
    error = f"error    MERE {m.mere:.3g}, MARE {m.mare:.3g}, RMSE {m.rmse:.3g}, largest {m.max_abs:.3g}"
    ulps = ", ".join(f"{name}: {n}" for name, n in reports.histogram(m).items())
    return "\n".join(
        [*reports.verdict_lines(outcome.verdicts), error, f"ULP      {ulps or 'no finite cells'}"]
    )


def _record(name: str, case: str, outcome: Outcome) -> dict[str, Any]:
    record: dict[str, Any] = {"name": name, "case": case}
    if isinstance(outcome, TensorFileError):
        return record | {"error": str(outcome)}
    return record | reports.figures(outcome.measures, outcome.verdicts)


def _entry(name: str, case: str, outcome: Outcome, verdict: str, width: int) -> Entry:
    from ..acceptance.report import Entry

    if isinstance(outcome, TensorFileError):
        return Entry(name, case, "error", ("",) * width, str(outcome))
    values = (*reports.measured(outcome.measures), *reports.judged(outcome.verdicts))
    chosen = outcome.verdict(verdict)
    if chosen.passed:
        return Entry(name, case, "pass", values)
    return Entry(name, case, "fail", values, chosen.text, outcome.measures.histogram)


def _with_errors(entries: list[Entry], outcomes: dict[str, Outcome], golden: Path | None) -> list[Entry]:
    """Read the files a second time, but only those of the cases that get a section in the report."""
    from ..acceptance.report import MOST_SECTIONS

    failing = [entry.name for entry in entries if entry.status == "fail"][:MOST_SECTIONS]
    found = {name: _errors(outcomes[name], golden) for name in failing}
    return [replace(entry, errors=found.get(entry.name)) for entry in entries]


def _errors(outcome: Outcome, golden: Path | None) -> ErrorMap | None:
    try:
        return error_map(outcome.pair, golden) if isinstance(outcome, Comparison) else None
    except TensorFileError:  # a file has changed since it was compared
        return None
