"""One cost for the GPU kernels of a problem: the seconds that a launch takes, estimated from its work.

A planner of a gradient states the work of its launch in instructions of single threads, by what they are for
(`work`), and the registers of a thread; `_of_windows` states that of a forward.
`seconds` turns work into time:

    time = launch + ((bytes / bandwidth · memory)³ + (Σ coefficient · instructions / rate)³)^⅓

Memory and instructions overlap, so the larger of the two counts most. Both take longer with few warps on a
multiprocessor (`waiting`), and if there are too few threads for the device. costs.json has a few coefficients
for each kernel and layout; `tools/fit_costs.py` fits them to measured times of candidates of drawn problems.
`fastest` chooses a kernel's tile by the same estimate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

import numpy as np

from .runtime.driver import H200, DeviceFacts
from .task import RESERVED, RESIDENT_BLOCKS, SECTOR, Launch, Task, Work
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
        most: Any = max if isinstance(measured.threads, float) else np.maximum
        issued = issued * (1 + self.waiting / measured.warps) * most(FULL_LANES / measured.threads, 1)
        moved = measured.memory * self.memory * (1 + self.memory_waiting / measured.warps)
        moved = moved * most(FULL_MEMORY / measured.threads, 1)
        return 1e-6 * self.launch + (moved**3 + issued**3) ** (1 / 3)


@dataclass(frozen=True, slots=True)
class Features:
    """What `Coefficients` takes of a launch: seconds in theory, and how full a multiprocessor is."""

    memory: Any
    work: dict[str, Any]
    warps: Any  # that fit a multiprocessor
    threads: Any  # of all blocks, for each multiprocessor


@dataclass(frozen=True, slots=True)
class Shape:
    """What a cost needs of a launch, or of one launch for each of many tiles: then fields are arrays."""

    grid: Any
    block: Any
    shared: Any  # bytes
    registers: Any
    work: Work


def features(task: Task, launch: Launch | Shape) -> Features:
    facts = task.facts
    by_threads = facts.threads_per_multiprocessor // launch.block
    by_shared = facts.shared_per_multiprocessor // (launch.shared + RESERVED)
    by_registers = facts.registers_per_multiprocessor // (launch.registers * launch.block)
    if isinstance(launch, Launch):
        fit = max(min(by_threads, by_shared, by_registers, RESIDENT_BLOCKS), 1)
    else:
        fit = np.minimum(np.minimum(by_threads, by_shared), by_registers).clip(1, RESIDENT_BLOCKS)
    warps = fit * launch.block / 32
    windows = _of_windows(task, launch) if isinstance(launch, Launch) and not task.problem.gradient else ()
    rate = _rate(facts)
    work = {name: count / rate for name, count in (*windows, *launch.work, *_of_cells(task))}
    return Features(_memory_seconds(task), work, warps, launch.grid * launch.block / facts.multiprocessors)


def _rate(facts: DeviceFacts) -> float:
    """Instructions of single threads that a device issues in a second."""
    return facts.multiprocessors * CORES * ISSUED * (facts.clock_khz or H200.clock_khz) * 1e3


def _of_windows(task: Task, launch: Launch) -> tuple[tuple[str, float], ...]:
    """The work of a forward, whichever way it takes: coefficients say which parts a kernel has.

    A kernel compares or adds whole windows, or rows first, then the columns of these, then slices.
    """
    problem, vector = task.problem, int(dict(launch.source.defines).get("VECTOR", 1))
    axes = d, h, w = tuple(windows_of(axis) for axis in problem.axes)
    of_d, of_h, of_w = (float(axis.count.sum()) for axis in axes)  # cells of all windows
    planes, of_slices = problem.planes, problem.planes * d.length
    windows, inside = planes * d.outputs * h.outputs * w.outputs, planes * of_d * of_h * of_w
    # Side by side threads read cells of windows side by side, which are so many sectors of memory apart.
    apart = max(w.length * problem.dtype.itemsize / SECTOR, 1) / max(w.outputs, 1) * (task.inner == 1)
    return (
        *(("cells of windows", inside), ("vectors of windows", inside / vector)),
        ("16-bit cells of windows", inside * (problem.dtype.itemsize == 2)),
        ("sectors of windows", inside * min(apart, 1)),
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
    return float(coefficients(task.layout)[family(kernel)].seconds(features(task, launches[0])))


def stacked(tiles: list[Shape]) -> Shape:
    """The shapes of tiles as one of arrays."""
    names = [name for name, _ in tiles[0].work]
    counts = np.array([[count for _, count in tile.work] for tile in tiles], float).T
    grid, block, shared, registers = (
        np.array([getattr(tile, name) for tile in tiles]) for name in ("grid", "block", "shared", "registers")
    )
    return Shape(grid, block, shared, registers, tuple(zip(names, counts, strict=True)))


def fastest(task: Task, kernel: str, tiles: Shape, legal: Any) -> int | None:
    """The number of the legal tile with the least estimated time; None if no tile is legal."""
    if not np.any(legal):
        return None
    times = np.where(legal, coefficients(task.layout)[kernel].seconds(features(task, tiles)), np.inf)
    least = times.argmin()
    if explored := _explored.get():
        draw, most = explored
        return int(draw.choice(np.flatnonzero(legal & (times <= most * times[least]))))
    return int(least)


def nth(tiles: Any, n: int) -> Any:
    """The dataclass with the n-th numbers of its arrays, also of those in tuples."""

    def at(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(at, value))
        return value[n].item() if isinstance(value, np.ndarray) else value

    return replace(tiles, **{one.name: at(getattr(tiles, one.name)) for one in fields(tiles)})


def instructions(task: Task, kernel: str, work: Work) -> Any:
    """What work costs, in instructions of a full device; to compare ways to do the same."""
    known = coefficients(task.layout)[kernel].work
    return sum(known[name] * count for name, count in work)


_explored: ContextVar[tuple[Random, float] | None] = ContextVar("explored", default=None)


@contextmanager
def exploring(draw: Random, most: float) -> Iterator[None]:
    """Lets `fastest` draw a tile whose estimate is at most so many times the least."""
    token = _explored.set((draw, most))
    try:
        yield
    finally:
        _explored.reset(token)


def least_seconds(task: Task, kernels: Iterable[str]) -> dict[str, float]:
    """What no launch of a kernel falls below, known before it is planned, of kernels with coefficients."""
    memory, fitted = _memory_seconds(task), coefficients(task.layout)
    found = ((name, fitted[family(name)]) for name in kernels if family(name) in fitted)
    return {name: 1e-6 * of_kernel.launch + memory * of_kernel.memory for name, of_kernel in found}


@cache
def coefficients(layout: str) -> dict[str, Coefficients]:
    """Of all kernels; those of the other layout for a kernel that was not fitted in this one."""
    costs = json.loads((files(__package__) / "costs.json").read_text("utf-8"))
    fitted = costs["planes"] | costs["channels_last"] | costs[layout]
    return {name: Coefficients(**values) for name, values in fitted.items()}


def family(kernel: str) -> str:
    """The name without the number of a drawn tile: "dense average, tile 1"."""
    return kernel.partition(", ")[0]
