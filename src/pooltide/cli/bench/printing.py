"""Prints measurements, and why a case has none, as tables and text, or as records for JSON."""

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

from ...acceptance.inputs import TooLarge
from ...acceptance.notation import Case
from ...acceptance.trial import Refused
from ...acceptance.words import short_dtype
from ...kernels.cuda.runtime import nvrtc
from ...kernels.cuda.runtime.driver import NoCompiler
from ...kernels.plan import NoBackend
from ...kernels.threads import get_num_threads
from ..output import aligned, one_line, say, screen_width
from ..reports import processor
from .measurement import Measurement, WrongResult

LARGE = 32 << 20  # bytes of a result
FAILURES = (WrongResult, Refused, TooLarge, NoBackend, NoCompiler, MemoryError)  # why a case has no result
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
    from ... import _native

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
    return Failure(text if text.startswith(f"{case}:") else f"{case}: {text}", isinstance(error, WrongResult))


def report_failures(failures: list[Failure]) -> int:
    """Prints the failures. Returns the exit status: 2 if a case has no result, else 1 if one is wrong."""
    for one in failures:
        say(one_line(one.text), err=True)
    return 2 if any(not one.wrong for one in failures) else 1 if failures else 0


def record(name: str, measurement: Measurement) -> dict[str, Any]:
    """The measurement for JSON; `ours ÷ limit` is of the out= form where there is one."""
    return {
        "name": name,
        "case": str(measurement.case),
        "result_bytes": measurement.result_bytes,
        "limit_seconds": measurement.limit,
        "ours_to_limit": measurement.ours_to_limit,
        "torch_to_limit": measurement.torch_to_limit,
        "others": measurement.other_load,
        "seconds": {name: measurement.typical(name) for name in measurement.times},
        "spread": {name: measurement.spread(name) for name in measurement.times},
        "ratios": {title: measurement.ratio(*pair) for title, pair in (RATIOS | _CUDA_RATIOS).items()},
    }


def print_tables(named: list[tuple[str, Measurement]], rounds: int, machine: dict[str, Any]) -> None:
    ratios = RATIOS | (_CUDA_RATIOS if machine["device"] != "cpu" else {})
    head = ["limit ms", "ours ms", "±", "ours ÷ limit", "torch ÷ limit", *ratios, "case"]
    measurements = [measurement for _, measurement in named]
    rows = []
    for measurement in measurements:
        ours = f"ours{measurement.form}"
        milliseconds = (measurement.typical(ours) or 0.0) * 1e3
        cells = [f"{measurement.limit * 1e3:.3f}", f"{milliseconds:.3f}", f"{measurement.spread(ours):.0%}"]
        cells += [number(measurement.ours_to_limit), number(measurement.torch_to_limit)]
        cells += [number(measurement.ratio(*pair)) for pair in ratios.values()]
        rows.append([*cells, str(measurement.case)])
    about = f"medians of {rounds} rounds, {in_words(machine)}; ± is half the quartiles' distance"
    say(fill(about, screen_width()) + "\n")
    say(aligned(head, rows))
    if text := other_load(one.other_load for one in measurements):
        say(f"\n{text}")
    if len(measurements) > 1:
        say(f"\ngeometric means; large: results of {LARGE >> 20} MB and more\n")
        say(_means(measurements))


def other_load(loads: Iterable[float | None]) -> str:
    """How busy other programs kept the machine; empty if that is unknown, as on a GPU."""
    known = [load for load in loads if load is not None]
    if not known:
        return ""
    return f"Other programs took {min(known):.0%} to {max(known):.0%} of the processors."


def _means(measurements: list[Measurement]) -> str:
    more = ("torch ÷ limit", "ours ÷ limit, large", "torch ÷ ours, fresh, large")
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for one in measurements:
        groups.setdefault((one.case.operator.short, short_dtype(one.case.dtype)), []).append(one)
    rows = []
    for kind, group in groups.items():
        large = [one for one in group if one.result_bytes >= LARGE]
        means = [geometric_mean([one.ratio(*pair) for one in group]) for pair in RATIOS.values()]
        means.append(geometric_mean([one.torch_to_limit for one in group]))
        means.append(geometric_mean([one.ours_to_limit for one in large]))
        means.append(geometric_mean([one.ratio("torch", "ours") for one in large]))
        rows.append([*kind, *map(number, means)])
    return aligned(["operator", "dtype", *RATIOS, *more], rows)


def geometric_mean(values: list[float | None]) -> float | None:
    """Of the values that are there; None if there are none."""
    present = [value for value in values if value]
    return exp(sum(map(log, present)) / len(present)) if present else None


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
