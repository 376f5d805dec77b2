"""Times our functions, PyTorch's operators and a copy of memory on one case, in turns: the contestants.

Every round runs each contestant once, so that a slow moment of the machine affects all of them; the order
changes from round to round. Before a contestant is timed, the threads of the others must be idle (those of
OpenMP spin for some milliseconds after a call), and the contestant runs some times without being timed: the
calls of others, above all the copy, leave the cache without the arrays, and one call does not bring them all
back. All write to the same memory. A round in which other programs took more than a fifth of a processor is
repeated, at most twice the number of rounds in all. With one thread, processor time is measured, which
other programs change little. Figures are medians over the rounds. A case whose result differs from the
reference has none.
`enter` makes the contestants of a gradient, `timed` runs them; cuda_contest.py and forward_contest.py have
the same for a GPU and for forwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..acceptance.inputs import arrays
from ..acceptance.measures import bits_of
from ..acceptance.notation import Case
from ..acceptance.trial import Refused, plan_of, problem_of
from ..arrays import gradients
from ..arrays.volumes import as_volume
from ..kernels import Arrays, reference
from ..kernels.threads import get_num_threads, set_num_threads
from ..operators.pages import HOST
from ..problem.problem import Problem
from .entries import Entry, Result, Runners, Wrong, attributes_of
from .limit import least_seconds

Array = NDArray[Any]
COPY_BYTES = 64 << 20
SAMPLE = 12  # planes compared with the reference, bit by bit
# Before a call is timed, it runs at least so often and so long: threads that were just woken may share a
# processor for some milliseconds, until the system moves them.
WARM_CALLS, WARM_SECONDS = 2, 0.02
DISTURBED = 0.2  # processors that other programs take: a team waits for the thread that shares one with them


def contest(case: Case, rounds: int) -> Iterator[Result | None]:
    """Yields None after each round, and the result at the end."""
    yield from timed(enter(case), rounds)


def enter(case: Case) -> Entry:
    """The contestants of a gradient, after their results were checked."""
    problem = timeable(case)
    drawn = arrays(case.call(HOST), problem, case.data)
    ours = _ours(case, *drawn)
    verify = partial(_verify, case, problem, drawn, ours)
    verify()
    theirs: Runners = {}
    if find_spec("torch"):
        from .aten import contestants

        theirs = contestants(case, *drawn)
    kernels = plan_of(case).kernels
    chosen = next((name for name, reason in kernels if reason is None), None)
    return Entry(case, problem, drawn[2].nbytes, ours | theirs, verify, chosen)


def timed(entry: Entry, rounds: int) -> Iterator[Result | None]:
    """Yields None after each round, and the result at the end. Uses the threads of `use_threads`."""
    use_threads(get_num_threads())
    with ThreadPoolExecutor(get_num_threads()) as workers:
        runners = entry.runners | {"copy": _copy(workers)}
        times: dict[str, list[float]] = {name: [] for name in runners}
        yield None
        shares: list[float] = []
        again = 2 * rounds
        while len(shares) < rounds:
            found, share = _round(runners, len(shares))
            if share * (os.cpu_count() or 1) > DISTURBED and again > 0 and get_num_threads() > 1:
                again -= 1
                continue
            shares.append(share)
            for name, taken in found.items():
                times[name].append(taken)
            yield None
    limit = least_seconds(entry.problem, 2 * COPY_BYTES / median(times["copy"]), None)
    yield Result(entry.case, entry.result_bytes, limit, times, sum(shares) / rounds)


def use_threads(count: int) -> None:
    """Sets the number of threads, ours and PyTorch's."""
    set_num_threads(count)
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(count)


def timeable(case: Case) -> Problem:
    """The problem of a case. Refused: the rules refuse it, or it has no cells."""
    problem = problem_of(case)
    if problem.kind.startswith("unpool"):
        raise Refused("bench does not time unpools; it times the twelve pools and their gradients")
    if 0 in (problem.planes, *problem.input_plane, *problem.output_plane):
        raise Refused("the case has no cell; there is nothing to time")
    return problem


def _round(runners: Runners, turn: int) -> tuple[dict[str, float], float]:
    """The seconds of each contestant, and the share of the processors that other programs took."""
    others = watch_others()
    found = {name: seconds(runners[name]) for name in order(list(runners), turn)}
    return found, others()


def watch_others() -> Callable[[], float]:
    """A function that returns which share of the processors other programs took since this call."""
    start, before = perf_counter(), _others()

    def share() -> float:
        taken = (_others() - before) / (perf_counter() - start) / (os.cpu_count() or 1)
        return max(taken, 0.0)  # negative by rounding: the system counts in hundredths of a second

    return share


def order(names: list[str], turn: int) -> list[str]:
    """The names in an order in which, from turn to turn, another contestant runs before each of them."""
    first = turn // 2 % len(names)
    rotated = names[first:] + names[:first]
    return rotated[::-1] if turn % 2 else rotated


def _others() -> float:
    """Seconds of processor time that other programs have used; 0 if the system does not report it."""
    try:
        with open("/proc/stat") as stat:
            user, nice, system, _, _, irq, softirq, stolen = map(int, stat.readline().split()[1:9])
    except (OSError, ValueError):
        return 0.0
    ticks = user + nice + system + irq + softirq + stolen
    return ticks / os.sysconf("SC_CLK_TCK") - process_time()


def seconds(run: Callable[[], Any]) -> float:
    """The seconds of one call, after calls that are not timed."""
    clock = perf_counter if get_num_threads() > 1 else process_time
    _wait_for_idle_threads()
    end, calls = perf_counter() + WARM_SECONDS, 0
    while calls < WARM_CALLS or perf_counter() < end:
        run()
        calls += 1
    start = clock()
    run()
    return clock() - start


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


def _ours(case: Case, grad: Array, indices: Array | None, out: Array) -> Runners:
    function = getattr(gradients, case.operator.function)
    attributes = attributes_of(case)
    given_arrays = (grad, case.shape) if indices is None else (grad, case.shape, indices)
    return {
        "ours out=": lambda: function(*given_arrays, *attributes, out=out),
        "ours": lambda: function(*given_arrays, *attributes),
    }


def _verify(case: Case, problem: Problem, drawn: Any, runners: Runners) -> None:
    axes = len(case.operator.axes)
    try:
        runners["ours out="]()
    except (TypeError, ValueError, IndexError) as error:  # the function refuses the call
        raise Refused(str(error)) from None
    if not np.array_equal(bits_of(runners["ours"]()), bits_of(drawn[2])):
        raise Wrong(f"{case}: out= and a fresh result differ")
    check_sample(case, problem, (None if a is None else as_volume(a, axes) for a in drawn))


def check_sample(
    case: Case, problem: Problem, volumes: Iterable[Any], read: Callable[[Any], Array] = np.asarray
) -> None:
    """Compare some planes of the result with the reference, bit by bit. Wrong: they differ.

    `volumes` are grad_output, indices or None, and the result; `read` makes NumPy arrays of their planes.
    """
    grad, indices, out = volumes
    planes = sample_planes(problem)
    sample = replace(problem, batch=(1, len(planes)))

    def chosen(array: Any) -> Array:
        return read(array[planes // problem.batch[1], planes % problem.batch[1]])[None]

    want = np.empty(sample.batch + sample.input_plane, problem.dtype.numpy)
    scratch = np.empty(reference.scratch(sample), np.uint8)
    picked = None if indices is None else chosen(indices)
    if reference.run(sample, "planes", Arrays(chosen(grad), None, picked, want), scratch) is not None:
        raise Refused(f"{case}: an index is outside its plane")
    if not np.array_equal(bits_of(chosen(out)), bits_of(want)):
        raise Wrong(f"{case}: the result differs from the reference")


def sample_planes(problem: Problem) -> NDArray[np.intp]:
    """The planes to compare, counted through all images."""
    return np.unique(np.linspace(0, problem.planes - 1, SAMPLE).astype(np.intp))
