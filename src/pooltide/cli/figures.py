"""Prints the results of contests, and why there is none, as tables and text, or as records for JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from math import exp, log
from textwrap import fill
from typing import Any

from ..acceptance.inputs import TooLarge
from ..acceptance.notation import Case
from ..acceptance.trial import Refused
from ..acceptance.words import short_dtype
from ..kernels.cuda import nvrtc
from ..kernels.cuda.driver import NoCompiler
from ..kernels.plan import NoBackend
from ..kernels.threads import get_num_threads
from .entries import Result, Wrong
from .machine import processor
from .speech import one_line, say
from .tables import aligned, screen_width

LARGE = 32 << 20  # bytes of a result
FAILURES = (Wrong, Refused, TooLarge, NoBackend, NoCompiler, MemoryError)  # why a case has no result
RATIOS = {
    "torch ÷ ours, out=": ("torch out=", "ours out="),
    "torch ÷ ours, fresh": ("torch", "ours"),
}
_CUDA_RATIOS = {
    "compile ÷ ours": ("compile", "ours"),
    "alone: ours ÷ limit": ("ours alone", "limit"),
    "torch ÷ limit": ("torch alone", "limit"),
    "wall: ours ÷ torch": ("ours wall", "torch wall"),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a case has no result."""

    text: str
    wrong: bool = False  # the result is wrong; otherwise there is none


def machine_of(device: str) -> dict[str, Any]:
    """What the figures were measured on."""
    if device == "cuda":
        import torch

        gpu = torch.cuda.get_device_name()
        return {"date": _today(), "device": gpu, "torch": torch.__version__, "nvrtc": _nvrtc_version()}
    from .. import _native

    return {
        "date": _today(),
        "device": "cpu",
        "processor": f"{processor() or platform.machine()}, {os.cpu_count()} cores",
        "torch": _version("torch"),
        "threads": get_num_threads(),
        "instruction_set": _native.instruction_set(),
    }


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _nvrtc_version() -> str:
    try:
        return ".".join(map(str, nvrtc.library().version))
    except NoCompiler:  # then the cases fail with this reason
        return "not found"


def in_words(facts: dict[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in facts.items())


def failure(case: Case, error: Exception) -> Failure:
    text = str(error) or "there was not enough memory"
    return Failure(text if text.startswith(f"{case}:") else f"{case}: {text}", isinstance(error, Wrong))


def report_failures(failures: list[Failure]) -> int:
    """Prints the failures. Returns the exit status: 2 if a case has no result, else 1 if one is wrong."""
    for one in failures:
        say(one_line(one.text), err=True)
    return 2 if any(not one.wrong for one in failures) else 1 if failures else 0


def record(name: str, result: Result) -> dict[str, Any]:
    """`ours ÷ limit` is of the out= form where there is one."""
    return {
        "name": name,
        "case": str(result.case),
        "result_bytes": result.result_bytes,
        "limit_seconds": result.limit,
        "ours_to_limit": result.ours_to_limit,
        "torch_to_limit": result.torch_to_limit,
        "others": result.others,
        "seconds": {name: result.typical(name) for name in result.times},
        "spread": {name: result.spread(name) for name in result.times},
        "ratios": {title: result.ratio(*pair) for title, pair in (RATIOS | _CUDA_RATIOS).items()},
    }


def print_tables(found: list[tuple[str, Result]], rounds: int, machine: dict[str, Any]) -> None:
    ratios = RATIOS | (_CUDA_RATIOS if machine["device"] != "cpu" else {})
    head = ["limit ms", "ours ms", "±", "ours ÷ limit", "torch ÷ limit", *ratios, "case"]
    rows = []
    for _, result in found:
        ours = f"ours{result.form}"
        taken = (result.typical(ours) or 0.0) * 1e3
        cells = [f"{result.limit * 1e3:.3f}", f"{taken:.3f}", f"{result.spread(ours):.0%}"]
        cells += [number(result.ours_to_limit), number(result.torch_to_limit)]
        cells += [number(result.ratio(*pair)) for pair in ratios.values()]
        rows.append([*cells, str(result.case)])
    about = f"medians of {rounds} rounds, {in_words(machine)}; ± is half the quartiles' distance"
    say(fill(about, screen_width()) + "\n")
    say(aligned(head, rows))
    if text := load(result.others for _, result in found):
        say(f"\n{text}")
    if len(found) > 1:
        say(f"\ngeometric means; large: results of {LARGE >> 20} MB and more\n")
        say(_means([result for _, result in found]))


def load(shares: Iterable[float | None]) -> str:
    """How busy other programs kept the machine; empty if that is unknown, as on a GPU."""
    known = [share for share in shares if share is not None]
    if not known:
        return ""
    return f"Other programs took {min(known):.0%} to {max(known):.0%} of the processors."


def _means(results: list[Result]) -> str:
    limits = ("torch ÷ limit", "ours ÷ limit, large", "torch ÷ ours, fresh, large")
    rows = []
    for kind in dict.fromkeys((r.case.operator.short, short_dtype(r.case.dtype)) for r in results):
        mine = [r for r in results if (r.case.operator.short, short_dtype(r.case.dtype)) == kind]
        large = [r for r in mine if r.result_bytes >= LARGE]
        means = [geometric_mean([r.ratio(*pair) for r in mine]) for pair in RATIOS.values()]
        means.append(geometric_mean([r.torch_to_limit for r in mine]))
        means.append(geometric_mean([r.ours_to_limit for r in large]))
        means.append(geometric_mean([r.ratio("torch", "ours") for r in large]))
        rows.append([*kind, *map(number, means)])
    return aligned(["operator", "dtype", *RATIOS, *limits], rows)


def geometric_mean(values: list[float | None]) -> float | None:
    """Of the values that are there; None if there are none."""
    present = [value for value in values if value]
    return exp(sum(map(log, present)) / len(present)) if present else None


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
