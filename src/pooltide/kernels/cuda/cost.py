"""One cost for the GPU kernels of a problem: the seconds that a launch takes, estimated from its work.

A planner of a gradient states the work of its launch in instructions of single threads, by what they are for
(`work`), and the registers of a thread; `_of_windows` states that of a forward.
`seconds` turns work into time:

    time = launch + ((bytes / bandwidth · memory)³ + (Σ coefficient · instructions / rate)³)^⅓

Memory and instructions overlap, so the larger of the two counts most. Both take longer with few warps on a
multiprocessor (`waiting`), and if there are too few threads for the device. costs.json has a few coefficients
for each kernel and layout; `tools/fit_costs.py` fits them to measured times of candidates of drawn problems.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from .runtime.driver import H200
from .task import RESERVED, RESIDENT_BLOCKS, Launch, Task
from .windows.columns import windows_of

BANDWIDTH = 4.0e12  # bytes a second of an H200; of other devices, in proportion to its peak
ISSUED = 0.88  # instructions that a multiprocessor issues for each lane and cycle
CORES = 128  # of a multiprocessor
FULL_MEMORY, FULL_LANES = 128, 1024  # threads of a multiprocessor that keep memory and lanes busy


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Of one kernel: how much longer the parts of its work take than in theory."""

    launch: float  # microseconds
    memory: float
    waiting: float  # with n warps on a multiprocessor, instructions take 1 + waiting / n times as long
    memory_waiting: float  # the same for memory
    work: dict[str, float]

    def seconds(self, measured: Features) -> Any:
        """Of one launch, or of many: then the features are arrays."""
        issued = sum(self.work.get(name, 1.0) * seconds for name, seconds in measured.work.items())
        issued = issued * (1 + self.waiting / measured.warps) * np.maximum(FULL_LANES / measured.threads, 1)
        moved = measured.memory * self.memory * (1 + self.memory_waiting / measured.warps)
        moved = moved * np.maximum(FULL_MEMORY / measured.threads, 1)
        return 1e-6 * self.launch + (moved**3 + issued**3) ** (1 / 3)


@dataclass(frozen=True, slots=True)
class Features:
    """What `Coefficients` takes of a launch: seconds in theory, and how full a multiprocessor is."""

    memory: Any
    work: dict[str, Any]
    warps: Any  # that fit a multiprocessor
    threads: Any  # of all blocks, for each multiprocessor


def features(task: Task, launches: tuple[Launch, ...]) -> Features:
    launch, facts = launches[0], task.facts
    fit = min(
        facts.threads_per_multiprocessor // launch.block,
        facts.shared_per_multiprocessor // (launch.shared + RESERVED),
        facts.registers_per_multiprocessor // (launch.registers * launch.block),
        RESIDENT_BLOCKS,
    )
    rate = facts.multiprocessors * CORES * ISSUED * (facts.clock_khz or H200.clock_khz) * 1e3
    windows = () if task.problem.gradient else _of_windows(task, launch)
    work = {name: count / rate for name, count in (*windows, *launch.work, *_of_cells(task))}
    threads = launch.grid * launch.block / facts.multiprocessors
    return Features(_memory_seconds(task), work, max(fit, 1) * launch.block / 32, threads)


def _of_windows(task: Task, launch: Launch) -> tuple[tuple[str, float], ...]:
    """The work of a forward, whichever way it takes: coefficients say which parts a kernel has.

    A kernel compares or adds whole windows, or rows first, then the columns of these, then slices.
    """
    problem, vector = task.problem, int(dict(launch.source.defines).get("VECTOR", 1))
    axes = d, h, w = tuple(windows_of(axis) for axis in problem.axes)
    of_d, of_h, of_w = (float(axis.count.sum()) for axis in axes)  # cells of all windows
    planes, of_slices = problem.planes, problem.planes * d.length
    windows, inside = planes * d.outputs * h.outputs * w.outputs, planes * of_d * of_h * of_w
    return (
        *(("cells of windows", inside), ("vectors of windows", inside / vector)),
        ("16-bit cells of windows", inside * (problem.dtype.itemsize == 2)),
        ("cells of rows", of_slices * h.length * of_w),
        ("cells of rows of windows", planes * of_d * h.length * of_w),
        ("rows of windows", planes * of_d * of_h * w.outputs),
        ("rows of slices", of_slices * of_h * w.outputs),
        ("slices of windows", planes * of_d * h.outputs * w.outputs if d.most > 1 else 0),
        *(("windows", windows), ("vectors", windows / vector), ("indices", windows * problem.index_bytes)),
        ("clipped windows", windows * (h.clipped + w.clipped)),
        ("searches", windows * (d.most + h.most + w.most)),
        *(("cells", problem.cells), ("threads", launch.grid * launch.block)),
    )


def _of_cells(task: Task) -> tuple[tuple[str, float], ...]:
    """What a cell costs more in 16 bits, with channels innermost, or in short rows."""
    problem = task.problem
    cells, channels, narrow = problem.cells, task.inner > 1, problem.dtype.itemsize == 2
    odd = channels and task.inner % 2
    short = not channels and problem.axes[2].length < 32
    return (
        ("16-bit cells", cells * narrow),
        ("16-bit channels", cells * (narrow and channels)),
        *(("channels", cells * channels), ("odd channels", cells * odd), ("short rows", cells * short)),
    )


def _memory_seconds(task: Task) -> float:
    peak = task.facts.peak_bandwidth or H200.peak_bandwidth  # some drivers do not tell it
    return task.problem.least_bytes / (BANDWIDTH * peak / H200.peak_bandwidth)


def seconds(task: Task, kernel: str, launches: tuple[Launch, ...]) -> float:
    """The estimated time of a candidate. Raises KeyError for a kernel without coefficients."""
    return float(coefficients(task.layout)[family(kernel)].seconds(features(task, launches)))


def least_seconds(task: Task, kernel: str) -> float | None:
    """What no launch of the kernel falls below, known before it is planned; None without coefficients."""
    fitted = coefficients(task.layout).get(family(kernel))
    return None if fitted is None else 1e-6 * fitted.launch + _memory_seconds(task) * fitted.memory


@cache
def coefficients(layout: str) -> dict[str, Coefficients]:
    """Of all kernels; those of the other layout for a kernel that was not fitted in this one."""
    costs = json.loads((files(__package__) / "costs.json").read_text("utf-8"))
    fitted = costs["planes"] | costs["channels_last"] | costs[layout]
    return {name: Coefficients(**values) for name, values in fitted.items()}


def family(kernel: str) -> str:
    """The name without its variant, as variants share coefficients: "rolling average, 8 bytes"."""
    return kernel.partition(", ")[0]
