"""`pooltide merge`: joins the shards of golden data, or of the results of compare --json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..acceptance.cases import CasesError
from ..acceptance.locking import locked
from ..acceptance.manifest import ManifestError, is_pack
from ..acceptance.manifest_entry import MANIFEST
from ..acceptance.merging import merge_golden
from ..acceptance.summaries import deciding, merge_results
from ..writing import check_file, why
from . import reports
from .arguments import NamedPath, refuse_data
from .output import NoAnswer, say
from .verdict_lines import doubted, language_option

if TYPE_CHECKING:
    from ..acceptance.report_page import Fact
    from ..acceptance.report_rows import Rows


@click.command()
@click.argument("parts", nargs=-1, required=True, type=NamedPath(exists=True))
@click.option("-o", "--output", required=True, type=NamedPath(), help="The directory, or the file, to write.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object in place of a sentence.")
@reports.label_option
@language_option
@reports.report_option
def command(
    parts: tuple[Path, ...], output: Path, as_json: bool, label: str | None, report: Path | None
) -> None:
    """Join PARTS: directories of golden --shard, or files that compare --shard --json printed.

    The manifest, or the results, are byte for byte what one run without shards writes. All shards must be
    there, of one version; results must have been judged by one standard and level. Golden files are linked or
    copied; the parts stay as they are. The exit status of golden data is 1 when a shard could not make a
    case; that of results is that of the whole comparison: 2 when a
    case could not be compared, else 1 when one failed.
    """
    if packs := [part for part in parts if is_pack(part)]:
        text = (
            "is a pack; it must be the directory that it was made from, and golden --pack packs the whole set"
        )
        raise NoAnswer(f"{packs[0]} {text}")
    kinds = {part.is_dir() for part in parts}
    if len(kinds) != 1:
        raise click.UsageError("PARTS are files and directories; they must be one or the other")
    if any(os.path.exists(output) and output.samefile(part) for part in parts):
        raise click.UsageError(f"{output} is one of the parts, which stay as they are; give another --output")
    if kinds == {True} and report:
        raise click.UsageError("--report is of results; golden data have no verdicts")
    verdicts: dict[str, int] = {}
    left_out = 0
    rows = reports.collected(report)
    try:
        if kinds == {True}:
            with locked(output):
                count, left_out = merge_golden(parts, output)
            written = output / MANIFEST
        else:
            refuse_data(output)
            check_file(output)
            see = (lambda record: None) if rows is None else partial(_collect, rows, deciding(parts[0]))
            merged, written = merge_results(parts, output, see), output
            verdicts = {key: merged[key] for key in ("pass", "warning", "fail", "error", "exit_status")}
            count, left_out = merged["golden"]["cases"], merged["golden"]["left_out"]
    except (ManifestError, CasesError) as error:
        raise NoAnswer(str(error)) from None
    except OSError as error:
        raise NoAnswer(f"{output}: can't be written: {why(error)}") from None
    summary = {"output": str(written), "cases": count, "parts": len(parts)} | verdicts
    summary["left_out"] = left_out
    text = f"{written}: {count} cases of {len(parts)} parts"
    if verdicts:
        doubts, _ = doubted(merged.get("doubts", {}))
        text += f", {verdicts['pass']} pass{f' ({doubts})' if doubts else ''}"
        text += f", {verdicts['warning']} warn" if verdicts["warning"] else ""
        text += f", {verdicts['fail']} fail, {verdicts['error']} could not be compared"
    if of := verdicts and merged["golden"]["shard"]:
        text += f"; the golden data are shard {of} of a set, and the other shards have the other cases"
    if left_out:
        text += f"; the parts left out {left_out}, which could not be made"
    say(json.dumps(summary) if as_json else text)
    if report:
        _write_report(report, merged, rows, parts, label)
    raise SystemExit(verdicts.get("exit_status", 1 if left_out else 0))


def _collect(rows: Rows, standard: str, record: Mapping[str, Any]) -> None:
    """Add a record to the report; one without the verdict that decides is refused when all are read."""
    if "error" in record or standard in record["verdicts"]:
        rows.add(reports.record_entry(record, standard))


def _write_report(
    path: Path, merged: dict[str, Any], rows: Rows | None, parts: Any, label: str | None
) -> None:
    count = len(parts)
    facts: dict[str, Fact] = {"label": name} if (name := label or merged["label"]) else {}
    facts["compared"] = (
        f"the results of {count} files of compare --json",
        f"compare --json 的 {count} 个文件中的结果",
    )
    facts |= reports.standard_facts(merged["standard"], merged.get("doubts", {}), merged["level"] or "")
    facts |= reports.golden_fact(*(merged["golden"][key] for key in ("cases", "sha256", "left_out")))
    files = [(name, "extra: no case of the golden data has this name") for name in merged["extra"]]
    reports.write_report(path, "pooltide merge", facts, reports.COLUMNS, rows, files)
