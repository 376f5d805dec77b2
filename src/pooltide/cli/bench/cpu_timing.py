"""Times the implementations of a benchmark, and a copy of memory, on the CPU.

Every round times each implementation once, so that a slow moment of the machine affects all of them; the
order changes from round to round. Before a call is timed, the threads of the others must be idle (those of
OpenMP spin for some milliseconds after a call), and the call runs some times without being timed: the calls
of others, above all the copy, evict the arrays from the cache, and one call does not bring them all back.
Several short calls are timed together, because other programs delay single ones. A round in which other
programs took more than a fifth of a processor is repeated, at most twice the number of rounds in all. With
one thread, processor time is measured, which other programs change little. Figures are medians over the
rounds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

from ...kernels.threads import get_num_threads, set_num_threads
from .measurement import Benchmark, Implementations, Measurement
from .roofline import limit_seconds

COPY_BYTES = 64 << 20
# Before a call is timed, it runs at least this many times and this long: threads that were just woken may
# share a processor for some milliseconds, until the system moves them.
WARM_CALLS, WARM_SECONDS = 2, 0.02
WARM_TO_TIMED = 10  # so many calls that are not timed for each one that is
MAX_OTHER_LOAD = 0.2  # processors that other programs take: a team waits for the thread that shares one


def time_on(device: str, benchmark: Benchmark, rounds: int) -> Iterator[Measurement | None]:
    """`time_rounds` of the device."""
    if device == "cpu":
        return time_rounds(benchmark, rounds)
    from . import cuda_timing

    return cuda_timing.time_rounds(benchmark, rounds, cuda_timing.make_buffers())


def time_rounds(benchmark: Benchmark, rounds: int) -> Iterator[Measurement | None]:
    """Yields None after each round, and the measurement at the end. Uses the threads of `use_threads`."""
    use_threads(get_num_threads())
    with ThreadPoolExecutor(get_num_threads()) as workers:
        implementations = benchmark.implementations | {"copy": _copy(workers)}
        times: dict[str, list[float]] = {name: [] for name in implementations}
        yield None
        loads: list[float] = []
        retries = 2 * rounds
        while len(loads) < rounds:
            round_times, load = _time_round(implementations, len(loads))
            if load * len(os.sched_getaffinity(0)) > MAX_OTHER_LOAD and retries > 0 and get_num_threads() > 1:
                retries -= 1
                continue
            loads.append(load)
            for name, seconds in round_times.items():
                times[name].append(seconds)
            yield None
    limit = limit_seconds(benchmark.problem, 2 * COPY_BYTES / median(times["copy"]), None)
    yield Measurement(benchmark.case, benchmark.result_bytes, limit, times, sum(loads) / rounds)


def use_threads(count: int) -> None:
    """Sets the number of threads, ours and PyTorch's."""
    set_num_threads(count)
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(count)


def _time_round(implementations: Implementations, turn: int) -> tuple[dict[str, float], float]:
    """The seconds of each implementation, and the part of this program's processors that others took."""
    load = watch_other_load()
    times = {name: time_call(implementations[name]) for name in order(list(implementations), turn)}
    return times, load()


def watch_other_load() -> Callable[[], float]:
    """A function that returns which part of this program's processors others took since this call."""
    start, before = perf_counter(), _other_seconds()

    def load() -> float:
        part = (_other_seconds() - before) / (perf_counter() - start) / len(os.sched_getaffinity(0))
        return max(part, 0.0)  # negative by rounding: the system counts in hundredths of a second

    return load


def order(names: list[str], turn: int) -> list[str]:
    """The names in an order in which, from turn to turn, another implementation runs before each of them."""
    first = turn // 2 % len(names)
    rotated = names[first:] + names[:first]
    return rotated[::-1] if turn % 2 else rotated


def _other_seconds() -> float:
    """Seconds that other programs have used the processors of this one; 0 if the system does not say."""
    mine, ticks = {f"cpu{number}" for number in os.sched_getaffinity(0)}, 0
    try:
        with open("/proc/stat") as stat:
            for name, *counts in (line.split() for line in stat):
                if name in mine:
                    user, nice, system, _, _, irq, softirq, stolen = map(int, counts[:8])
                    ticks += user + nice + system + irq + softirq + stolen
    except (OSError, ValueError):
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK") - process_time()


def time_call(run: Callable[[], Any]) -> float:
    """The seconds of a call, after calls that are not timed."""
    clock = perf_counter if get_num_threads() > 1 else process_time
    _wait_for_idle_threads()
    end, calls = perf_counter() + WARM_SECONDS, 0
    while calls < WARM_CALLS or perf_counter() < end:
        run()
        calls += 1
    timed = max(1, calls // WARM_TO_TIMED)
    start = clock()
    for _ in range(timed):
        run()
    return (clock() - start) / timed


def _wait_for_idle_threads() -> None:
    """Wait until no thread of this process uses a processor, for at most about 0.1 s."""
    for _ in range(100):
        before = process_time()
        sleep(0.001)
        if process_time() - before < 0.0005:
            return


def _copy(workers: ThreadPoolExecutor) -> Callable[[], Any]:
    source, target = np.ones((2, COPY_BYTES // 8))
    parts = np.array_split(np.arange(source.size), get_num_threads())
    cuts = [slice(int(part[0]), int(part[-1]) + 1) for part in parts]
    return lambda: list(workers.map(lambda cut: np.copyto(target[cut], source[cut]), cuts))
