"""`pooltide golden`: writes inputs and golden results of many cases, in several processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..acceptance.cases import CasesError
from ..acceptance.foreign import read_cases
from ..acceptance.golden import start
from ..acceptance.locking import locked
from ..acceptance.manifest import Manifest, ManifestError, versions
from ..acceptance.manifest_entry import MANIFEST
from ..acceptance.pack import SUFFIX, PackError, write_pack
from ..acceptance.shard import Shard
from ..kernels.threads import get_num_threads
from ..writing import why
from .arguments import (
    NOTATION,
    CaseSource,
    NamedPath,
    OutputPath,
    product_option,
    shard_option,
    source_argument,
)
from .golden_maker import Maker, Outcome
from .output import NoAnswer, say
from .reports import collected, report_option, write_report
from .verdict_lines import language_option

if TYPE_CHECKING:
    from ..acceptance.report_page import Fact
_MAX_NAMES = 5  # older cases that are named


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
@click.option(
    "--pack", type=OutputPath(dir_okay=False), help="Write all to one .tar file too, which compare reads."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per case, and a summary.")
@language_option
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
    pack: Path | None,
    as_json: bool,
    report: Path | None,
) -> None:
    """Write a case's seeded inputs and its result, computed in float64 and rounded once.

    OUTPUT/NAME has .npy and raw .bin files, OUTPUT/manifest.jsonl their shapes, dtypes, seeds and sha256.
    Started again, it continues. A bad case is reported with its line, and the other cases are made.
    """
    if pack is not None and pack.suffix != SUFFIX:
        raise click.UsageError(f"--pack is {pack}; the name must end in {SUFFIX}")
    source = _chosen(source, foreign_file)
    outcome = Outcome(rows=collected(report))
    try:
        with locked(output):
            manifest = _known(output, shard)
            maker = Maker(output, manifest, product, float64, as_json, pruned, outcome)
            maker.make(source, shard, jobs or get_num_threads())
            digest = _packed(pack, manifest, outcome)
    except ManifestError as error:
        raise NoAnswer(str(error)) from None
    summary: dict[str, Any] = {
        "cases": outcome.total,
        "made": outcome.good,
        "bad": outcome.bad,
        "skipped": outcome.skipped,
    }
    summary |= {"older": outcome.older, "pruned": pruned and not outcome.stopped, "stopped": outcome.stopped}
    summary |= {"pack": str(pack), "sha256": digest} if pack else {}
    if as_json:
        say(json.dumps({"summary": summary}, ensure_ascii=False))
    else:
        skipped = f", {outcome.skipped} skipped" if outcome.skipped else ""
        made = f"{outcome.good} of {outcome.total} cases, {outcome.bad} bad{skipped}"
        say(f"{output / MANIFEST}: {made if outcome.total else f'the shard {shard} of the list has no case'}")
        if digest:
            say(f"{pack}: {len(manifest)} cases, sha256 {digest}")
        _print_older(output, outcome, pruned)
    facts: dict[str, Fact] = {"made": (f"golden data in {output}", f"{output} 中的标杆数据")}
    facts |= {"shard": str(shard)} if shard else {}
    write_report(report, "pooltide golden", facts, ("dtype", "shape", "seed"), outcome.rows)
    if outcome.stopped:
        say(outcome.stopped, err=True)
    raise SystemExit(outcome.status or (1 if outcome.bad else 0))


def _packed(pack: Path | None, manifest: Manifest, outcome: Outcome) -> str:
    """Write the pack; returns its sha256, or "" where there is none. A set that was stopped is not packed."""
    if pack is None or outcome.stopped:
        return ""
    try:
        return write_pack(pack, manifest.path, manifest.entries())
    except (OSError, PackError) as error:
        text = f"{pack}: can't be written: {why(error)}" if isinstance(error, OSError) else str(error)
        outcome.stop(text)
        return ""


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
