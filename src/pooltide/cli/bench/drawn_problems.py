"""`pooltide bench --drawn`: measures drawn problems, and says where they are slow.

A list of tuned shapes hides slow problems next to it; drawn problems find them. Rows with the same dtype,
layout and number of threads have one summary. Two lists follow: problems in which PyTorch is faster,
and problems that take more than six times the limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass
from math import ceil
from statistics import median
from typing import Any

from ...acceptance.words import short_dtype
from ...problem.problem import Problem
from ..output import aligned, say, tracked
from . import cpu_gradients
from .cpu_timing import time_rounds, use_threads
from .measurement import Benchmark, Measurement
from .precompile import precompile
from .printing import (
    FAILURES,
    RATIOS,
    failure,
    geometric_mean,
    in_words,
    machine_of,
    number,
    other_load,
    record,
    report_failures,
)
from .sampling import DrawnProblem, Sampling, draw_problems

SLOWER = {"cpu": 0.95, "cuda": 0.97}  # PyTorch ÷ ours, below which ours counts as slower
GROUP = ("kind", "dtype", "layout", "threads")
BEYOND = 6.0  # times the limit: problems above it are listed
MAX_SECONDS = 0.15  # after which no round of a problem begins on a GPU


@dataclass(frozen=True, slots=True)
class Row:
    forward: bool
    threads: int | None  # None on a GPU
    kernel: str | None
    measurement: Measurement

    @property
    def group(self) -> tuple[str, ...]:
        """Rows with the same group have one summary."""
        case = self.measurement.case
        kind = "forward" if self.forward else "gradient"
        if case.operator.regional:
            kind = f"{case.operator.function.removesuffix('_backward')} {kind}"
        layout = "channels-last" if case.channels_last else "planes"
        return kind, short_dtype(case.dtype), layout, "–" if self.threads is None else str(self.threads)

    @property
    def ratios(self) -> list[float | None]:
        """PyTorch ÷ ours: out=, fresh. None: one of them has no such form."""
        return [self.measurement.ratio(*pair) for pair in RATIOS.values()]


@dataclass(frozen=True, slots=True)
class Summary:
    group: tuple[str, ...]  # as in Row
    count: int
    limit_median: float | None  # ours ÷ limit
    limit_p90: float | None
    limit_worst: float | None
    out_mean: float | None  # PyTorch ÷ ours, out=
    out_worst: float | None
    fresh_mean: float | None  # PyTorch ÷ ours, fresh
    fresh_worst: float | None

    @property
    def figures(self) -> list[float | None]:
        return list(astuple(self)[2:])


def run_drawn(sampling: Sampling, threads: tuple[int, ...], rounds: int, as_json: bool) -> int:
    """Draws and measures problems, and prints the results. Returns the exit status."""
    problems, device = draw_problems(sampling), sampling.device
    measured = measure_cuda(problems, rounds) if device == "cuda" else measure(problems, threads, rounds)
    rows: list[Row] = []
    try:
        for problem_rows in tracked(measured, sampling.count):
            rows += problem_rows
    except FAILURES as error:
        return report_failures([failure(problems[len(rows) // len(threads)].case, error)])
    about = asdict(sampling) | machine_of(device)
    about |= {} if device == "cuda" else {"threads": ",".join(map(str, threads))}
    if as_json:
        say(json.dumps(about | {"rounds": rounds} | document(rows, device), indent=1))
    else:
        print_summary(rows, device, in_words(about))
    return 0


def measure(problems: list[DrawnProblem], threads: tuple[int, ...], rounds: int) -> Iterator[list[Row]]:
    """Yields the rows of each problem, one for each number of threads. WrongResult: a result is wrong."""
    for drawn in problems:
        use_threads(threads[0])
        benchmark = _prepare(drawn)
        rows = []
        for count in threads:
            use_threads(count)
            if count != threads[0]:
                benchmark.verify()
            rows.append(Row(drawn.forward, count, benchmark.kernel, _last(time_rounds(benchmark, rounds))))
        yield rows


def measure_cuda(problems: list[DrawnProblem], rounds: int) -> Iterator[list[Row]]:
    """Yields the row of each problem. WrongResult: a result is wrong."""
    from . import cuda_gradients, cuda_timing

    windows = (drawn for drawn in problems if not drawn.case.operator.regional)
    precompile([pair for drawn in windows for pair in problems_of(drawn)], cuda_timing.current_facts())
    buffers = cuda_timing.make_buffers()
    for drawn in problems:
        if drawn.forward or drawn.case.operator.regional:
            benchmark = _prepare(drawn, "cuda")
        else:
            benchmark = cuda_gradients.prepare(drawn.case, cuda_gradients.drawn_tensors(drawn.case))
        measurement = _last(cuda_timing.time_rounds(benchmark, rounds, buffers, MAX_SECONDS))
        yield [Row(drawn.forward, None, benchmark.kernel, measurement)]


def problems_of(drawn: DrawnProblem) -> list[tuple[Problem, str]]:
    """The problems, with their layout, whose kernels the measurement of a drawn problem runs."""
    from . import forward_pools

    layout = "channels_last" if drawn.case.channels_last else "planes"
    gradient = cpu_gradients.problem_to_time(drawn.case)
    problems = forward_pools.problems_of(gradient) if drawn.forward else [gradient]
    return [(problem, layout) for problem in problems]


def _prepare(drawn: DrawnProblem, device: str = "cpu") -> Benchmark:
    if drawn.case.operator.regional:
        from . import region_pools

        return region_pools.prepare(drawn.case, device)
    if not drawn.forward:
        return cpu_gradients.prepare(drawn.case)
    from . import forward_pools

    return forward_pools.prepare(drawn.case, device)


def _last(measurements: Iterator[Measurement | None]) -> Measurement:
    *_, last = measurements
    assert last is not None
    return last


def summaries(rows: list[Row]) -> list[Summary]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [_summary(groups[group]) for group in sorted(groups)]


def _summary(rows: list[Row]) -> Summary:
    limits = [value for row in rows if (value := row.measurement.ours_to_limit) is not None]
    out, fresh = ([row.ratios[form] for row in rows] for form in (0, 1))
    return Summary(
        rows[0].group,
        len(rows),
        _statistic(limits, median),
        _statistic(limits, p90),
        _statistic(limits, max),
        *(geometric_mean(out), _statistic(out, min)),
        *(geometric_mean(fresh), _statistic(fresh, min)),
    )


def _statistic(values: list[Any], function: Callable[[list[float]], float]) -> float | None:
    present = [value for value in values if value is not None]
    return function(present) if present else None


def p90(values: list[float]) -> float:
    """The smallest value that is at least as large as nine tenths of all."""
    return sorted(values)[ceil(0.9 * len(values)) - 1]


def slower(rows: list[Row], below: float) -> list[Row]:
    """The rows in which PyTorch is faster in one form, the slowest of ours first."""
    worst = [(min(present), row) for row in rows if (present := [r for r in row.ratios if r is not None])]
    return [row for ratio, row in sorted(worst, key=lambda pair: pair[0]) if ratio < below]


def beyond(rows: list[Row]) -> list[Row]:
    """The rows that take more than `BEYOND` times their limits, the slowest first."""
    listed = [row for row in rows if (row.measurement.ours_to_limit or 0) > BEYOND]
    return sorted(listed, key=lambda row: -(row.measurement.ours_to_limit or 0))


def document(rows: list[Row], device: str) -> dict[str, Any]:
    """All rows, the summaries and the two lists, for JSON."""
    return {
        "summary": [_plain(summary) for summary in summaries(rows)],
        "slower_than_torch": [_key(row) for row in slower(rows, SLOWER[device])],
        "beyond_limit": [_key(row) for row in beyond(rows)],
        "rows": [_key(row) | {"kernel": row.kernel} | record("", row.measurement) for row in rows],
    }


def _plain(summary: Summary) -> dict[str, Any]:
    fields = asdict(summary)
    return dict(zip(GROUP, fields.pop("group"), strict=True)) | fields


def _key(row: Row) -> dict[str, Any]:
    return {"case": str(row.measurement.case), "kind": row.group[0], "threads": row.threads}


def print_summary(rows: list[Row], device: str, about: str) -> None:
    say(f"{about}\n")
    limits = ["ours ÷ limit: median", "p90", "worst"]
    ratios = ["torch ÷ ours, out=: mean", "worst", "fresh: mean", "worst"]
    groups = summaries(rows)
    differ = [i for i in range(len(GROUP)) if len({summary.group[i] for summary in groups}) > 1] or [1]
    cells = [
        [*(summary.group[i] for i in differ), str(summary.count), *map(number, summary.figures)]
        for summary in groups
    ]
    say(aligned([*(GROUP[i] for i in differ), "n", *limits, *ratios], cells))
    if text := other_load(row.measurement.other_load for row in rows):
        say(text)
    _print_list(f"slower than PyTorch (PyTorch ÷ ours < {SLOWER[device]})", slower(rows, SLOWER[device]))
    _print_list(f"beyond {BEYOND:.0f} × limit", beyond(rows))


def _print_list(title: str, rows: list[Row]) -> None:
    say(f"\n{title}: {len(rows) or 'none'}")
    if not rows:
        return
    head = ["torch ÷ ours, out=", "fresh", "ours ÷ limit", "kind", "threads", "kernel", "case"]
    say(aligned(head, [[*_figures(row), *_names(row)] for row in rows]))


def _figures(row: Row) -> list[str]:
    return [number(value) for value in (*row.ratios, row.measurement.ours_to_limit)]


def _names(row: Row) -> list[str]:
    kind, _, _, threads = row.group
    return [kind, threads, row.kernel or "–", str(row.measurement.case)]
