"""The results of compare --json, and how those of shards are joined to what one run prints.

A file has a line for each case and a summary at its end, which says what was compared: the shard, and the
sha256 and number of cases of the golden data. So a shard that is missing or there twice is noticed, and so is
one that was judged otherwise: by another standard or level, or by another version. A shard of golden data
is one of a list of cases, so it has the sha256 of that list.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..writing import why, write_parts
from .cases import LONGEST, CasesError, bounded, parse_json
from .manifest import Manifest
from .manifest_entry import SHA256
from .shard import Shard, read_shard
from .verdicts import DEFAULT, FAIL, LEVELS, PASS, STANDARDS, WARNING, WEAK_THIRD, ZEROS

_CELLS = ("misplaced", "nan", "inf", "golden_nan", "golden_inf", "differing")
_FIGURES = ("MERE", "MARE", "RMSE", "cosine", "max ULP")
_COUNTS = ("pass", "warning", "fail", "error")
_GOLDEN = {"sha256", "cases", "shard", "list_sha256", "left_out"}  # what is said of golden data
# What all parts must have alike, and how a message calls it.
_ALIKE = {
    "standard": "standards",
    "level": "levels",
    "pooltide": "versions of pooltide",
    "label": "labels",
    "golden": "golden data",
}


def about(
    manifest: Manifest | None, shard: Shard | None, level: str | None, label: str | None
) -> dict[str, Any]:
    """What a summary says besides its counts: how the results were judged, and which cases were compared.

    No manifest stands for two files, no shard for all cases, and no level for results without a third one.
    """
    golden = None
    if manifest is not None:
        of = manifest.shard and str(manifest.shard)
        golden = {
            "sha256": manifest.digest,
            "cases": len(manifest),
            "shard": of,
            "list_sha256": manifest.list_sha256 or None,
            "left_out": manifest.left_out,
        }
    judged = {"level": level, "pooltide": __version__, "label": label}
    return {**judged, "shard": shard and str(shard), "golden": golden}


@dataclass(slots=True)
class _Part:
    """One file: its summary, and what its lines say."""

    path: Path
    summary: dict[str, Any] = field(default_factory=dict)
    total: int = 0
    errors: int = 0
    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)  # cases by standard and status

    def records(self) -> Iterator[dict[str, Any]]:
        """The records of the cases; afterwards the part has its summary."""
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(bounded(file), 1):
                    record = _record(self.path, number, line)
                    if self.summary:
                        raise CasesError(f"{self.path}, line {number}: there is a line after the summary")
                    if "summary" in record:
                        self.summary = record["summary"]
                        continue
                    self.total += 1
                    self.errors += "error" in record
                    self.statuses.update((n, v["status"]) for n, v in record.get("verdicts", {}).items())
                    yield record
        except OSError as error:
            raise CasesError(f"{self.path}: can't be read: {why(error)}") from None
        self._check()

    def _check(self) -> None:
        """Raise CasesError unless the summary has the counts of the lines, and these are all of its share."""
        if not self.summary:
            text = "the file has no summary at its end; it must be what compare --json prints"
            raise CasesError(f"{self.path}: {text}")
        standard = self.summary["standard"]
        counts = {status.lower(): self.statuses[standard, status] for status in (PASS, WARNING, FAIL)}
        counts["error"] = self.errors
        if wrong := next((key for key in _COUNTS if counts[key] != self.summary[key]), None):
            text = f"{wrong} is {self.summary[wrong]}; the lines have {counts[wrong]}"
            raise CasesError(f"{self.path}: {text}")
        if self.total != (judged := sum(counts.values())):
            text = f"{self.total - judged} of {self.total} cases have no verdict of the standard {standard}"
            raise CasesError(f"{self.path}: {text}")
        golden, shard = self.summary["golden"], self.summary["shard"]
        if golden is None:
            raise CasesError(f"{self.path}: two files were compared; it must be directories")
        if self.total != (share := read_shard(shard or "1/1").count(golden["cases"])):
            text = f"the file has {self.total} cases; it must have all {share} of its share"
            raise CasesError(f"{self.path}: {text}")

    @property
    def shard(self) -> Shard | None:
        """The share of the whole: of compare --shard, or of golden --shard."""
        text = self.summary["shard"] or self.summary["golden"]["shard"]
        return read_shard(text) if text else None


def merge_results(
    paths: Sequence[Path], output: Path, see: Callable[[dict[str, Any]], None] = lambda record: None
) -> dict[str, Any]:
    """Join what compare --json printed for each shard; returns the summary. `see` gets each record in turn.

    CasesError: a file is not such a result, or the files are not all shards of one comparison. OSError: the
    output can't be written.
    """
    parts = [_Part(path) for path in paths]
    summary: dict[str, Any] = {}

    def lines() -> Iterator[bytes]:
        before, twice = (0, ""), ""
        for record in heapq.merge(*(part.records() for part in parts), key=_key):
            if _key(record) <= before:
                twice = twice or record["name"][:100]
            before = _key(record)
            see(record)
            yield _text(record)
        summary.update(_joined(parts))
        if twice:
            raise CasesError(f"{paths[0]} and others: the case {twice} is there twice, or out of order")
        yield _text({"summary": summary})

    write_parts(output, lines())
    return summary


def deciding(path: Path) -> str:
    """The standard in the summary of a file; the default where there is none: merging then refuses it."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LONGEST))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
        return str(_record(path, 0, last)["summary"]["standard"])
    except (OSError, CasesError, KeyError):
        return DEFAULT


def _key(record: Mapping[str, Any]) -> tuple[int, str]:
    return record["line"], record["name"]


def _text(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _joined(parts: Sequence[_Part]) -> dict[str, Any]:
    """The summary of all parts. CasesError: they do not fit together."""
    first = parts[0]
    _check_shards(parts)
    for part in parts[1:]:
        for key, what in _ALIKE.items():
            if part.summary[key] != first.summary[key] and not (key == "golden" and _of_golden(part)):
                values = f"{_short(first.summary[key])} and {_short(part.summary[key])}"
                raise CasesError(f"{first.path} and {part.path}: the {what} are {values}; they must be one")
        if part.summary["golden"]["list_sha256"] != first.summary["golden"]["list_sha256"]:
            text = "the golden data were made from different lists of cases; they must be of one"
            raise CasesError(f"{first.path} and {part.path}: {text}")
    counts = {key: sum(part.summary[key] for part in parts) for key in _COUNTS}
    extra = sorted({path for part in parts for path in part.summary["extra"]})
    golden = first.summary["golden"]
    if _of_golden(first):  # the sha256 of the whole set is not known
        sums = {key: sum(p.summary["golden"][key] for p in parts) for key in ("cases", "left_out")}
        golden = {"sha256": None, "shard": None, "list_sha256": None, **sums}
    bad = counts["fail"] or counts["warning"] or golden["left_out"]
    status = 2 if counts["error"] else 1 if bad else 0
    judged = {key: first.summary[key] for key in ("level", "pooltide", "label")}
    doubts = sum((Counter(part.summary.get("doubts", {})) for part in parts), Counter[str]())
    whole = {"extra": extra, **judged, "shard": None, "golden": golden}
    return summed(first.summary["standard"], counts, status, doubts) | whole


def summed(standard: str, counts: dict[str, int], status: int, doubts: dict[str, int]) -> dict[str, Any]:
    """The beginning of a summary; `doubts` are why passes say little, with the number of the passes."""
    return {"standard": standard, **counts, "exit_status": status} | ({"doubts": doubts} if doubts else {})


def _of_golden(part: _Part) -> bool:
    """Whether all cases of a shard of golden data were compared."""
    return part.summary["shard"] is None and part.summary["golden"]["shard"] is not None


def _short(value: Any) -> str:
    return value["sha256"][:12] if isinstance(value, dict) and value["sha256"] else str(value or "none")


def _check_shards(parts: Sequence[_Part]) -> None:
    """Raise CasesError unless each shard is there once."""
    seen: dict[int, Path] = {}
    of = parts[0].shard.of if parts[0].shard else 1
    for part in parts:
        shard = part.shard or Shard(1, 1)
        if shard.of != of or _of_golden(part) != _of_golden(parts[0]):
            raise CasesError(f"{part.path} is shard {shard}; it must be one of {of}, as {parts[0].path} is")
        if shard.number in seen:
            raise CasesError(f"{part.path} is shard {shard}, as {seen[shard.number]} is; give each once")
        seen[shard.number] = part.path
    if missing := [f"{number}/{of}" for number in range(1, of + 1) if number not in seen]:
        raise CasesError(f"shard {', '.join(missing[:8])} is missing; give all {of}")


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    with suppress(CasesError):
        record = parse_json(line)
        if isinstance(record, dict) and (_is_case(record) or _is_summary(record.get("summary"))):
            return record
    raise CasesError(f"{path}, line {number}: the line is not one that compare --json prints")


def _is_case(record: Mapping[str, Any]) -> bool:
    texts = (record.get("name"), record.get("case"), record.get("error", ""), record.get("reproduce", ""))
    if "summary" in record or not _is_count(record.get("line")) or not all(isinstance(t, str) for t in texts):
        return False
    if "error" in record:
        return "verdicts" not in record
    verdicts, bins = record.get("verdicts"), record.get("ulp_histogram")
    if not isinstance(verdicts, dict) or not isinstance(bins, dict):
        return False
    counts = all(map(_is_count, (*(record.get(key) for key in _CELLS), *bins.values())))
    figures = all(type(record.get(key)) in (int, float, type(None)) for key in _FIGURES)
    return counts and figures and all(map(_is_verdict, verdicts.values()))


def _is_verdict(verdict: Any) -> bool:
    if not isinstance(verdict, dict) or not isinstance(verdict.get("text"), str):
        return False
    status = verdict.get("status")
    return status in (PASS, WARNING, FAIL) and verdict.get("pass") is (status == PASS)


def _is_summary(summary: Any) -> bool:
    if not isinstance(summary, dict) or summary.get("standard") not in list(STANDARDS):
        return False
    extra, golden = summary.get("extra"), summary.get("golden", 0)
    counts = all(_is_count(summary.get(key)) for key in (*_COUNTS, "exit_status"))
    names = isinstance(extra, list) and all(isinstance(path, str) for path in extra)
    judged = summary.get("level", 0) in (None, *LEVELS) and isinstance(summary.get("pooltide"), str)
    judged = judged and isinstance(summary.get("label", 0), str | None)
    doubts = summary.get("doubts", {})
    known = isinstance(doubts, dict) and doubts.keys() <= {ZEROS, WEAK_THIRD}
    known = known and all(map(_is_count, doubts.values()))
    cases = _is_shard(summary.get("shard", 0)) and (golden is None or _is_golden(golden))
    return counts and names and judged and known and cases


def _is_golden(golden: Any) -> bool:
    if not isinstance(golden, dict) or golden.keys() != _GOLDEN:
        return False
    digests = (golden["sha256"], golden["list_sha256"])
    known = all(d is None or (isinstance(d, str) and SHA256.fullmatch(d)) for d in digests)
    counts = all(_is_count(golden[key]) for key in ("cases", "left_out"))
    return known and counts and _is_shard(golden["shard"])


def _is_shard(value: Any) -> bool:
    try:
        return value is None or (isinstance(value, str) and read_shard(value) is not None)
    except ValueError:
        return False


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
