"""Joins the shards of golden data, or of the results of compare --json, to what one run would write."""

from __future__ import annotations

import heapq
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..writing import why, write_parts
from .cases import CasesError, bounded, parse_json
from .entries import MANIFEST
from .golden import PARTIAL, clean, finish, foreign, put, start
from .manifest import Manifest, ManifestError, begin, read_manifest


def merge_golden(parts: Sequence[Path], output: Path) -> int:
    """Join golden directories in another one; returns the number of cases. Started again, it continues.

    The files are hard links where the file system has them, and copies elsewhere; the parts stay as they are.
    ManifestError: the parts do not fit together. OSError: the output can't be written.
    """
    manifests = [_complete(part) for part in parts]
    _check(parts, manifests)
    found = start(output)
    begin(found, None)
    clean(output)
    with found.path.open("ab") as file:
        for part, manifest in zip(parts, manifests, strict=True):
            for entry in manifest.entries():
                if found.get(entry["name"]) == entry and (output / entry["name"]).is_dir():
                    continue
                if text := foreign(output / entry["name"], entry["name"] in found):
                    raise ManifestError(text)
                _link(part, output, entry)
                found.add(entry, file)
    finish(output, found, complete=True)
    return len(found)


def _complete(part: Path) -> Manifest:
    found = read_manifest(part)
    if not found.complete:
        raise ManifestError(f"{part / MANIFEST} is not complete; start pooltide golden again")
    return found


def _check(parts: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    """Raise ManifestError unless the parts are of one version, all shards of one number, and disjoint."""
    first = manifests[0]
    seen: dict[str, Path] = {}
    shards: dict[int, Path] = {}
    for part, found in zip(parts, manifests, strict=True):
        for key, value in first.versions.items():
            if found.versions.get(key) != value:
                other = f"{found.versions.get(key)}; it must be {value}, as of {parts[0]}"
                raise ManifestError(f"{part}: {key} is {other}")
        if (found.shard is None) != (first.shard is None):
            raise ManifestError(f"{part} and {parts[0]}: one is a shard, the other is not; all must be alike")
        if found.shard and first.shard:
            if found.shard.of != first.shard.of:
                raise ManifestError(f"{part} is shard {found.shard}; it must be one of {first.shard.of}")
            if found.shard.number in shards:
                raise ManifestError(f"{part} is shard {found.shard}, as {shards[found.shard.number]} is")
            shards[found.shard.number] = part
        for name in found.offsets:
            if name in seen:
                raise ManifestError(
                    f"{part} has the case {name}, as {seen[name]} has; each may be there once"
                )
            seen[name] = part
    if first.shard and (missing := sorted({*range(1, first.shard.of + 1)} - shards.keys())):
        names = ", ".join(f"{number}/{first.shard.of}" for number in missing[:8])
        raise ManifestError(f"shard {names} is missing; give all {first.shard.of}")


def _link(part: Path, output: Path, entry: Mapping[str, Any]) -> None:
    name = entry["name"]
    work = output / PARTIAL / f"{name}.{os.getpid()}"
    work.mkdir()
    for role, about in entry["files"].items():
        for suffix in about["sha256"]:
            file = f"{role}.{suffix}"
            try:
                os.link(part / name / file, work / file)
            except FileNotFoundError:
                raise ManifestError(f"{part / name / file}: the file is missing; {MANIFEST} has it") from None
            except OSError:  # another file system, or one without links
                shutil.copyfile(part / name / file, work / file)
    put(output, name, work)


def merge_results(parts: Sequence[Path], output: Path) -> int:
    """Join what compare --json printed for each shard; returns the number of cases.

    CasesError: a file is not such a result. OSError: the output can't be written.
    """
    summaries: list[dict[str, Any]] = []
    count = 0

    def lines() -> Iterator[bytes]:
        nonlocal count
        records = [_records(part, summaries) for part in parts]
        for record in heapq.merge(*records, key=lambda record: (record["line"], record["name"])):
            count += 1
            yield _text(record)
        yield _text({"summary": _summary(parts, summaries)})

    write_parts(output, lines())
    return count


def _text(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _records(part: Path, summaries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The records of one file; its summary goes to `summaries`."""
    summary = None
    try:
        with part.open("rb") as file:
            for number, line in enumerate(bounded(file), 1):
                record = _record(part, number, line)
                if summary is not None:
                    raise CasesError(f"{part}, line {number}: there is a line after the summary")
                if "summary" in record:
                    summary = record["summary"]
                else:
                    yield record
    except OSError as error:
        raise CasesError(f"{part}: can't be read: {why(error)}") from None
    if not isinstance(summary, dict) or not summary.keys() >= _COUNTS:
        raise CasesError(f"{part}: the file has no summary at its end; it must be what compare --json prints")
    summaries.append(summary)


_COUNTS = {"standard", "pass", "fail", "error", "exit_status", "extra"}


def _record(part: Path, number: int, line: bytes) -> dict[str, Any]:
    with suppress(CasesError):
        record = parse_json(line)
        if isinstance(record, dict) and ("summary" in record or {"line", "name"} <= record.keys()):
            return record
    raise CasesError(f"{part}, line {number}: the line is not one that compare --json prints")


def _summary(parts: Sequence[Path], summaries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found = list(summaries)
    standards = {summary["standard"] for summary in found}
    if len(standards) > 1:
        names = " and ".join(sorted(map(str, standards)))
        raise CasesError(f"{parts[0]} and others: the standards are {names}; they must be one")
    counts = {key: sum(summary[key] for summary in found) for key in ("pass", "fail", "error")}
    status = 2 if counts["error"] else 1 if counts["fail"] else 0
    extra = sorted({path for summary in found for path in summary["extra"]})
    return {"standard": standards.pop(), **counts, "exit_status": status, "extra": extra}
