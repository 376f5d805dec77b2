"""The cases of a report: the rows of its table, their counts by group, and the worst failures.

Rows are kept as JSON in a temporary file, so that memory does not grow with the number of cases. A case
belongs to a group of each kind:

    operator   the first word of the case
    dtype      f16, bf16, f32 or f64
    layout     contiguous, channels-last, or views where a tensor has strides or an offset of its own
    layer      the name without its last part and without step and rank of a dump; none for names without dots
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from math import isfinite
from tempfile import SpooledTemporaryFile
from typing import Any

from ..operators.pages import HOST, PRODUCTS
from .chinese import chinese
from .errormap import ErrorMap
from .measures import PRECISIONS
from .words import BY_SHORT_DTYPE

MOST_SECTIONS = 50
STATUSES = ("pass", "warning", "fail", "error")
KINDS = ("operator", "dtype", "layout", "layer")
_IN_MEMORY = 1 << 24  # bytes of rows
_DTYPES = [short for short, dtype in BY_SHORT_DTYPE.items() if dtype.name in PRECISIONS]
_PREFIX = re.compile(r"(?:step\d+\.)?(?:rank\d*\.)?")
_VIEW = re.compile(r"\w+\.(?:s-?\d|off\d|cl$)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One case of the report. `values` has one value for each column; `why` is the reason of a failure."""

    name: str
    case: str
    status: str  # one of STATUSES
    values: tuple[Any, ...] = ()
    why: str = ""
    reproduce: str = ""
    histogram: tuple[int, ...] = ()
    misplaced: int = 0  # cells with a NaN or Inf out of place
    verdicts: tuple[tuple[str, str, str], ...] = ()  # standard, status, text
    errors: Callable[[], ErrorMap | None] | None = None  # called for the worst cases alone
    severity: tuple[float, ...] = ()  # of two failing cases, the larger one is worse


class Rows:
    """The rows of a report, in the order of the cases. `add` may raise OSError: the disk is full."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.groups: dict[str, dict[str, Counter[str]]] = {kind: {} for kind in KINDS}
        self.products: set[str] = set()
        self._places: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        self._heap: list[tuple[tuple[float, ...], int, Entry]] = []
        self._number = count()

    def add(self, entry: Entry) -> None:
        self.counts[entry.status] += 1
        places = []
        for kind, group in groups_of(entry).items():
            self.groups[kind].setdefault(group, Counter())[entry.status] += 1
            places.append(self._places[kind].setdefault(group, len(self._places[kind])))
        if entry.case:
            self.products.add(next((word for word in entry.case.split(":") if word in PRODUCTS), HOST))
        more = _more(entry) if entry.status != "pass" else 0
        row = [entry.name, entry.status, *map(_value, entry.values), entry.case, places, more]
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        self._file.write(text.encode("utf-8", "backslashreplace") + b"\n")
        if entry.status in ("warning", "fail"):
            # Of equal ones the earlier is worse.
            item = (_badness(entry), -next(self._number), entry)
            if len(self._heap) < MOST_SECTIONS:
                heapq.heappush(self._heap, item)
            else:
                heapq.heappushpop(self._heap, item)

    def __len__(self) -> int:
        return self.counts.total()

    @property
    def worst(self) -> list[Entry]:
        """The failing cases that get a section, the worst first."""
        return [entry for *_, entry in sorted(self._heap, key=lambda item: item[:2], reverse=True)]

    @property
    def failing(self) -> int:
        return self.counts["fail"] + self.counts["warning"]

    def texts(self) -> Iterator[str]:
        """Each row as JSON."""
        self._file.seek(0)
        for line in self._file:
            yield line.decode().rstrip("\n")

    def names(self) -> dict[str, list[str]]:
        """The groups of each kind, by the places that rows have."""
        return {kind: list(places) for kind, places in self._places.items()}


def _badness(entry: Entry) -> tuple[float, ...]:
    return (float(entry.status == "fail"), *entry.severity)


def groups_of(entry: Entry) -> dict[str, str]:
    """The group of a case by kind; "" where it has none."""
    words = entry.case.split(":") if entry.case else []
    layout = "channels-last" if "cl" in words else "views" if any(map(_VIEW.match, words)) else "contiguous"
    known = {
        "operator": words[0] if words else "",
        "dtype": next((word for word in words if word in _DTYPES), ""),
        "layout": layout if words else "",
    }
    name = entry.name[_PREFIX.match(entry.name).end() :]  # type: ignore[union-attr]
    return known | {"layer": name.rpartition(".")[0] if words else ""}


def _more(entry: Entry) -> dict[str, Any]:
    """What a case that does not pass has besides its row."""
    more: dict[str, Any] = {"why": entry.why}
    if (translated := chinese(entry.why)) != entry.why:
        more["zh"] = translated
    if entry.reproduce:
        more["again"] = entry.reproduce
    if entry.severity:
        more["bad"] = [value if isfinite(value) else 1e300 for value in entry.severity]
    return more


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if isfinite(value) else "inf"
    return value
