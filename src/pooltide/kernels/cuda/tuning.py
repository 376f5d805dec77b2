"""Measures every kernel that can compute a problem, on tensors drawn on the device.

    measure(task, device)      seconds of each candidate, and the candidates whose bits differ
    tune(task, device)         the same; the fastest kernel is used from now on (tuned.py)
    random_indices(problem)    a random cell of its window for every window

Before each launch the cache of the device is overwritten, as in a benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from ...geometry import tables
from ...problem.problem import Problem
from . import tuned
from .choice import KERNELS, candidates, kernels
from .launch import PreparedLaunches, prepared_tasks, take_tuned
from .task import Launch, Task

ROUNDS = 7
HOPELESS = 3.0  # times the fastest of the first round: such a candidate is timed once
CACHE_BYTES = 64 << 20  # of a device that does not say how large its cache is


@dataclass(frozen=True, slots=True)
class Candidates:
    chosen: str  # the kernel that the planners choose
    seconds: dict[str, float]  # of each kernel that can compute the problem
    wrong: tuple[str, ...]  # the kernels whose results differ from that of the chosen kernel: none, or a bug
    launches: dict[str, Launch]  # the first one of each

    @property
    def fastest(self) -> str:
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def regret(self) -> float:
        """Time of the chosen kernel ÷ time of the fastest."""
        return self.seconds[self.chosen] / self.seconds[self.fastest]


def measure(task: Task, device: int, rounds: int = ROUNDS, tiles: int = 0) -> Candidates:
    """Raises torch.OutOfMemoryError if the tensors of the problem do not fit. `tiles`: as of `candidates`."""
    with torch.cuda.device(device):
        return _measure(task, device, rounds, tiles)


def tune(task: Task, device: int) -> Candidates:
    """Measures, and keeps the fastest kernel."""
    measured = measure(task, device)
    tuned.keep(task, measured.fastest)
    return measured


def tune_prepared() -> list[tuple[Task, Candidates]]:
    """Tunes the problems of all calls of this process so far, whose next calls take the fastest kernel."""
    measured = [(task, tune(task, device)) for task, device in prepared_tasks()]
    take_tuned()
    return measured


def _measure(task: Task, device: int, rounds: int, tiles: int) -> Candidates:
    problem = task.problem
    general = KERNELS[problem.kind][-1][0]
    chosen = kernels(problem, task.layout, task.facts, task.aligned)[-1][0]
    planned = dict(candidates(problem, task.layout, task.facts, task.aligned, tiles))
    names = [chosen, *(name for name in planned if name not in (chosen, general))]
    given, indices, out = _tensors(task)
    results = [out] if problem.gradient or indices is None else [out, indices]
    runs, expected, wrong = {}, None, []
    for name in names:
        run = PreparedLaunches(problem, task.layout, device, task.aligned, planned[name])
        for result in results:
            result.view(torch.uint8).fill_(255)
        run(given, indices, out)
        found = [result.view(torch.uint8).clone() for result in results]
        expected = expected or found
        if all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)):
            runs[name] = run
        else:
            wrong.append(name)
    del expected, found
    properties: Any = torch.cuda.get_device_properties(device)
    size = 4 * getattr(properties, "L2_cache_size", CACHE_BYTES)
    flush = torch.empty(size, dtype=torch.uint8, device=device)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            flush.zero_()
            times[name].append(_elapsed(run, given, indices, out))
        best = min(min(seconds) for seconds in times.values())
        hopeful = [name for name in runs if name == chosen or min(times[name]) < HOPELESS * best]
        runs = {name: runs[name] for name in hopeful}
    seconds = {name: median(of_kernel) for name, of_kernel in times.items()}
    return Candidates(chosen, seconds, tuple(wrong), {name: planned[name][0] for name in seconds})


def _elapsed(run: PreparedLaunches, *tensors: Any) -> float:
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    begin.record()
    run(*tensors)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _tensors(task: Task) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Flat tensors of a problem: what its kernel reads first, indices, and the result."""
    problem = task.problem
    dtype: torch.dtype = getattr(torch, problem.dtype.name.lower())
    cells, windows = problem.cells, problem.cells // max(_product(problem.input_plane), 1)
    windows *= _product(problem.output_plane)
    read, written = (windows, cells) if problem.gradient else (cells, windows)
    given = torch.randn(read, device="cuda").to(dtype)
    out = torch.empty(written, dtype=dtype, device="cuda")
    if not problem.index_bytes:
        return given, None, out
    if not problem.gradient:
        return given, torch.empty(windows, dtype=_index_dtype(problem), device="cuda"), out
    indices = random_indices(problem)
    if task.layout == "channels_last":
        indices = indices.permute(0, 2, 3, 4, 1)
    return given, indices.to(_index_dtype(problem)).contiguous().flatten(), out


def _product(plane: tuple[int, int, int]) -> int:
    return plane[0] * plane[1] * plane[2]


def _index_dtype(problem: Problem) -> torch.dtype:
    return {1: torch.uint8, 4: torch.int32, 8: torch.int64}[problem.index_bytes]


def random_indices(problem: Problem, device: str = "cuda") -> torch.Tensor:
    """A random cell of its window for every window, as a volume (N, C, D, H, W): indices, or offsets."""
    shape, offsets = (*problem.batch, *problem.output_plane), problem.offset_tables
    indices = torch.zeros(shape, dtype=torch.int64, device=device)
    for i, axis in enumerate(problem.axes):
        table, along = tables(axis), [1] * 5
        along[2 + i] = axis.outputs
        start, end, step, size = table.start, table.end, 1, axis.length
        if offsets:
            start, step, size = offsets.first_cell[i], axis.dilation, offsets.most[i]
        cells = torch.tensor(-((start - end) // step), device=device).view(along)
        first = 0 if offsets else torch.tensor(start, device=device).view(along)
        indices = indices * size + first + (torch.rand(shape, device=device) * cells).long()
    return indices
