"""Writes the tables of docs/performance.md from the JSON of `pooltide bench`.

    python tools/tables.py
    pooltide bench --drawn 200 --seed 91 --device cuda --json | python tools/tables.py h200-91.json

The second form first keeps what the tables need in docs/measured/h200-91.json.
In the page, a table follows a line such as `<!-- drawn h200-91.json h200-92.json -->` and ends before
`<!-- end -->`. The first word says which table, the others are files of docs/measured:

    shapes   one row for each case of `pooltide bench --json`
    drawn    one row for each group of problems of `pooltide bench --drawn N --json`; files are pooled
    slower   the problems of such files in which PyTorch is faster, the slowest first; with their instructions
             and bytes if one of the files is of `pooltide bench --instructions --json`
    scaling  one row for each case of several `pooltide bench FILE --threads N --json`, and its speed-ups
    models   one row for each model of `pooltide bench --models --json`
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "performance.md"
TABLE = re.compile(r"<!-- (\w+) ([^>]+) -->\n(.*?)<!-- end -->\n", re.DOTALL)
OUT, FRESH = "torch ÷ ours, out=", "torch ÷ ours, fresh"
COPY = "equal copy"
Measured = dict[str, Any]


def fill(page: str) -> str:
    """Returns the page with its tables written anew."""
    return TABLE.sub(lambda found: _filled(found[1], found[2].split()), page)


def _filled(kind: str, names: list[str]) -> str:
    files = [json.loads((DOCS / "measured" / name).read_text("utf-8")) for name in names]
    return f"<!-- {kind} {' '.join(names)} -->\n\n{_source(files)}\n\n{KINDS[kind](files)}\n<!-- end -->\n"


def _source(files: list[Measured]) -> str:
    """A sentence that says where and when the figures were measured."""
    about, seeds = files[0], list(dict.fromkeys(str(file["seed"]) for file in files if "seed" in file))
    where = [about.get("processor") or about["device"]]
    measured = [file for file in files if "tool" not in file]
    if threads := ", ".join(dict.fromkeys(str(file["threads"]) for file in measured if file.get("threads"))):
        where.append(f"{threads} thread{'s' * (threads != '1')}")
    where += [about[key] for key in ("instruction_set",) if about.get(key)]
    where += [f"PyTorch {about['torch']}"] if about.get("torch") else []
    where += [f"seeds {', '.join(seeds)}"] if seeds else []
    return f"{about['date']}: {', '.join(where)}."


def shapes(files: list[Measured]) -> str:
    rows = [
        [
            f"`{result['case']}`",
            f"{result['limit_seconds'] * 1e3:.3g}",
            _number(result["ours_to_limit"]),
            _number(result["ratios"].get(OUT)),
            _number(result["ratios"].get(FRESH)),
        ]
        for file in files
        for result in file["results"]
        if result.get("seconds")
    ]
    return _table(["case", "limit, ms", "ours ÷ limit", "PyTorch ÷ ours, out=", "fresh"], rows)


def drawn(files: list[Measured]) -> str:
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for row in _rows(files):
        groups.setdefault(_group(row), []).append(row)
    several = len({group[-1] for group in groups}) > 1
    copied = any(COPY in row["seconds"] for row in _rows(files))
    head = ["", *(["threads"] if several else []), "problems", "ours ÷ limit: median", "90 % below", "worst"]
    head += ["a copy of as many bytes ÷ limit: median"] if copied else []
    head += ["PyTorch ÷ ours, out=: mean", "worst", "fresh: mean", "worst", "slower than PyTorch"]
    rows = []
    for group in sorted(groups, key=lambda group: (*group[:-1], int(group[-1] or 0))):
        members = groups[group]
        limits = sorted(row["ours_to_limit"] for row in members)
        copies = [row["seconds"][COPY] / row["limit_seconds"] for row in members if COPY in row["seconds"]]
        ratios = [[r for row in members if (r := row["ratios"].get(form))] for form in (OUT, FRESH)]
        rows.append(
            [
                f"{group[1]}, {group[2]}",
                *([group[-1]] if several else []),
                str(len(members)),
                *map(_number, (median(limits), limits[math.ceil(0.9 * len(limits)) - 1], limits[-1])),
                *([_number(median(copies))] if copied else []),
                *(_number(of(form)) if form else "–" for form in ratios for of in (geometric_mean, min)),
                str(len(_slower(members))),
            ]
        )
    return _table(head, rows)


def slower(files: list[Measured]) -> str:
    counts = {row["case"]: row for file in files if "tool" in file for row in file["results"]}
    files = [file for file in files if "tool" not in file]
    rows = [
        [f"`{row['case']}`", *([str(row["threads"])] if row["threads"] else []), row["kernel"] or "–"]
        + [_number(row["ratios"].get(form)) for form in (OUT, FRESH)]
        + (_counts(counts.get(row["case"])) if counts else [])
        for row in _slower(_rows(files))
    ]
    threads = ["threads"] if any(row["threads"] for row in _rows(files)) else []
    head = ["case", *threads, "kernel", "PyTorch ÷ ours, out=", "fresh"]
    head += ["instructions per cell: ours, PyTorch", "bytes per cell: least, ours, PyTorch"] if counts else []
    return _table(head, rows) if rows else "None.\n"


def scaling(files: list[Measured]) -> str:
    """PyTorch's speed-ups are in brackets."""
    files = sorted(files, key=lambda file: int(file["threads"]))
    times = [{row["case"]: row["seconds"] for row in file["results"]} for file in files]

    def faster(case: str, some: Measured) -> str:
        ours, theirs = (times[0][case][name] / some[case][name] for name in ("ours out=", "torch out="))
        return f"{ours:.1f} ({theirs:.1f})"

    rows = [
        [f"`{case}`", f"{found['ours out='] * 1e3:.3f} ({found['torch out='] * 1e3:.3f})"]
        + [faster(case, some) for some in times[1:]]
        for case, found in times[0].items()
    ]
    return _table(["case", "1 thread, ms", *(f"{file['threads']} threads" for file in files[1:])], rows)


def _counts(row: Measured | None) -> list[str]:
    if row is None:
        return ["–", "–"]
    sides = [row[side] for side in ("ours", "torch") if row.get(side)]
    counts = [
        [side["instructions"] for side in sides],
        [row["least_bytes"], *(side["bytes"] for side in sides)],
    ]
    return [", ".join(map(_number, numbers)) for numbers in counts]


def models(files: list[Measured]) -> str:
    found = [model for file in files for model in file["models"]]
    ways = list(dict.fromkeys(way for model in found for way in model["seconds"]))
    of_device = {
        title: key
        for title, key in {"host, ms": "host_seconds", "device, ms": "device_seconds"}.items()
        if all(model.get(key) for model in found)
    }
    memory = all(model.get("peak_bytes") for model in found)
    head = ["model", "plain, ms", *(f"{way} ÷ plain" for way in ways[1:])]
    rows = [
        [model["model"], f"{model['seconds']['plain'] * 1e3:.2f}"]
        + [f"{model['seconds'][way] / model['seconds']['plain']:.2f}" for way in ways[1:]]
        + [f"{model[key][way] * 1e3:.2f}" for key in of_device.values() for way in ways]
        + ([f"{model['peak_bytes'][way] / 2**20:.0f}" for way in ways] if memory else [])
        for model in found
    ]
    head += [f"{title}: {way}" for title in of_device for way in ways]
    return _table(head + ([f"peak of memory, MiB: {way}" for way in ways] if memory else []), rows)


def _rows(files: list[Measured]) -> list[Measured]:
    """All rows; `slower` says whether the benchmark counted a row as slower than PyTorch."""
    return [
        row | {"slower": {key: row[key] for key in ("case", "kind", "threads")} in file["slower_than_torch"]}
        for file in files
        for row in file["rows"]
    ]


def _group(row: Measured) -> tuple[str, ...]:
    words = row["case"].split(":")
    dtype = next(word for word in words if word in ("f32", "bf16", "f16", "f64"))
    return row["kind"], dtype, "channels-last" if "cl" in words else "planes", str(row["threads"] or "")


def _slower(rows: Iterable[Measured]) -> list[Measured]:
    """The rows in which PyTorch is faster, the slowest of ours first."""

    def least(row: Measured) -> float:
        return min((r for form in (OUT, FRESH) if (r := row["ratios"].get(form))), default=math.inf)

    return sorted((row for row in rows if row["slower"]), key=least)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 1.95 else f"{value:.2f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


KINDS: dict[str, Callable[[list[Measured]], str]] = {
    "shapes": shapes,
    "drawn": drawn,
    "slower": slower,
    "scaling": scaling,
    "models": models,
}


def keep(measured: Measured, name: str) -> None:
    """Writes what the tables need to a file of docs/measured."""
    for row in measured.get("rows", []) + measured.get("results", []):
        for key in ("result_bytes", "spread"):
            row.pop(key, None)
        row["ratios"] = {form: ratio for form, ratio in row.get("ratios", {}).items() if ratio is not None}
    text = json.dumps(measured, ensure_ascii=False, separators=(",", ":"))
    (DOCS / "measured" / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        keep(json.load(sys.stdin), sys.argv[1])
    PAGE.write_text(fill(PAGE.read_text("utf-8")), encoding="utf-8")
