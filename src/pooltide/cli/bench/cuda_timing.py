"""Times the implementations of a benchmark, and a copy of memory, on a GPU.

Most times are taken on the device, between two events. Before each call the cache is overwritten, because a
kernel that finds its data in the cache would be faster than the limit. `graph_seconds` has no launch: a graph
of calls is replayed, each of which writes to another result, so that no result stays in the cache.
`wall_seconds` are those until the device is done, per call, over many calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch._C._autograd import DeviceType

from ...kernels.cuda.runtime.driver import DeviceFacts, device_facts
from .measurement import Benchmark, Measurement
from .roofline import limit_seconds

DEVICE = "cuda"
COPY_BYTES = 1 << 30
FLUSH_BYTES = 2 << 30  # four times the cache, and long enough that the host is ahead of the device
WALL_CALLS = 100  # for one wall time
GRAPH_BYTES = 256 << 20  # that the calls of a graph write, at least
MIN_ROUNDS = 3
ADDITIONS_PER_CYCLE = 128  # in float32, of a multiprocessor of recent NVIDIA GPUs


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """The memory of the copy, and memory that is overwritten to flush the cache."""

    source: torch.Tensor
    target: torch.Tensor
    flush: torch.Tensor


def make_buffers() -> Buffers:
    source, target = torch.ones((2, COPY_BYTES // 4), device=DEVICE)
    return Buffers(source, target, torch.empty(FLUSH_BYTES // 4, device=DEVICE))


def time_rounds(
    benchmark: Benchmark, rounds: int, buffers: Buffers, max_seconds: float = inf
) -> Iterator[Measurement | None]:
    """Yields None after each round, and the measurement at the end.

    After `max_seconds` no round begins, but there are at least three.
    """
    implementations = benchmark.implementations | {"copy": lambda: buffers.target.copy_(buffers.source)}
    if (half := benchmark.problem.least_bytes // 2) <= COPY_BYTES:  # what a copy reads, and what it writes
        source, target = buffers.source[: half // 4], buffers.target[: half // 4]
        implementations["equal copy"] = lambda: target.copy_(source)
    times: dict[str, list[float]] = {name: [] for name in implementations}
    start = perf_counter()
    for turn in range(rounds + 1):
        if turn > MIN_ROUNDS and perf_counter() - start > max_seconds:
            break
        for name, run in implementations.items():
            buffers.flush.zero_()
            seconds = elapsed_seconds(run)
            times[name] += [seconds] if turn else []  # the first round warms up
        yield None
    bytes_per_second = 2 * COPY_BYTES / median(times["copy"])
    limit = limit_seconds(benchmark.problem, bytes_per_second, additions_per_second())
    limit = max(limit, benchmark.operations / additions_per_second())
    yield Measurement(benchmark.case, benchmark.result_bytes, limit, times)


def additions_per_second() -> float:
    """Float32 additions of the device at its highest clock."""
    facts = current_facts()
    return ADDITIONS_PER_CYCLE * facts.multiprocessors * facts.clock_khz * 1e3


def current_facts() -> DeviceFacts:
    return device_facts(torch.cuda.current_device())


def graph_seconds(run: Callable[[torch.Tensor], Any], result: torch.Tensor) -> list[float]:
    """Seconds per call, without its launch; the calls write to several results like this one."""
    nbytes = max(result.numel() * result.element_size(), 1)
    targets = [torch.empty_like(result) for _ in range(max(min(GRAPH_BYTES // nbytes, 64), 4))]
    run(targets[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for target in targets:
            run(target)
    graph.replay()
    return [elapsed_seconds(graph.replay) / len(targets) for _ in range(9)]


def elapsed_seconds(run: Callable[[], Any]) -> float:
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def wall_seconds(
    run: Callable[[], Any], calls: int = WALL_CALLS, warm_calls: int = WALL_CALLS // 10
) -> float:
    """Seconds of the host per call, until the device is done."""
    torch.cuda.synchronize()
    for _ in range(warm_calls):
        run()
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(calls):
        run()
    torch.cuda.synchronize()
    return (perf_counter() - start) / calls


def host_seconds(run: Callable[[], Any]) -> float:
    """Seconds until the host has submitted a call to an idle device."""
    torch.cuda.synchronize()
    start = perf_counter()
    run()
    return perf_counter() - start


def device_seconds(run: Callable[[], Any]) -> float:
    """Seconds of the kernels of a call, without the gaps between them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    # A launch, an event of the CPU, has the time of its kernel too.
    rows = [
        row
        for row in seen.key_averages()
        if row.device_type == DeviceType.CUDA and not row.is_user_annotation
    ]
    return sum(float(row.self_device_time_total) for row in rows) / 1e6
