"""Times our functions, PyTorch's operators and a copy of memory on one case, in turns: the contestants.

    limit = bytes that must move / bytes per second that the copy moved in the same run

Every round runs each contestant once, so that a slow moment of the machine affects all of them; each round
begins with another contestant. Before a contestant is timed, the threads of the others must be idle (those of
OpenMP spin for some milliseconds after a call), and the contestant runs once without being timed. All write
to the same memory. A round in which other programs took more than a tenth of the processors is repeated, at
most twice the number of rounds in all. With one thread, processor time is measured, which other programs
change little. Figures are medians over the rounds. A case whose result differs from the reference has none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from statistics import median, quantiles
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..acceptance.inputs import arrays
from ..acceptance.notation import Case
from ..acceptance.trial import Refused, problem_of
from ..acceptance.verdicts import bits_of
from ..arrays import gradients
from ..arrays.volumes import as_volume
from ..kernels import Arrays, reference
from ..kernels.threads import get_num_threads
from ..operators.pages import HOST
from ..problem.problem import Problem

Array = NDArray[Any]
COPY_BYTES = 64 << 20
SAMPLE = 12  # planes compared with the reference, bit by bit
DISTURBED = 0.1  # share of the processors that other programs take
Runners = dict[str, Callable[[], Any]]


class Wrong(ValueError):
    """The result is wrong, so its time says nothing."""


@dataclass(frozen=True, slots=True)
class Result:
    case: Case
    result_bytes: int
    limit: float  # seconds
    times: dict[str, list[float]]  # seconds, by contestant
    others: float | None = None  # share of the processors that other programs took

    def typical(self, name: str) -> float | None:
        """The median of a contestant; None if it did not run."""
        return median(self.times[name]) if name in self.times else None

    def spread(self, name: str) -> float:
        return spread(self.times[name])

    def ratio(self, above: str, below: str) -> float | None:
        a, b = self.typical(above), self.typical(below)
        return None if a is None or b is None else a / b


def spread(times: list[float]) -> float:
    """Half the distance between the quartiles, relative to the median."""
    low, middle, high = quantiles(times, n=4)
    return (high - low) / 2 / middle


def contest(case: Case, rounds: int) -> Iterator[Result | None]:
    """Yields None after each round, and the result at the end."""
    problem = timeable(case)
    drawn = arrays(case.call(HOST), problem, case.data)
    runners = _ours(case, *drawn)
    _verify(case, problem, drawn, runners)
    if find_spec("torch"):
        runners |= _torch(case, *drawn)
    times: dict[str, list[float]] = {name: [] for name in runners}
    with ThreadPoolExecutor(get_num_threads()) as workers:
        runners["copy"] = _copy(workers)
        times["copy"] = []
        yield None
        shares: list[float] = []
        again = 2 * rounds
        while len(shares) < rounds:
            found, share = _round(runners, len(shares))
            if share > DISTURBED and again > 0 and get_num_threads() > 1:
                again -= 1
                continue
            shares.append(share)
            for name, taken in found.items():
                times[name].append(taken)
            yield None
    speed = 2 * COPY_BYTES / median(times["copy"])
    yield Result(case, drawn[2].nbytes, problem.least_bytes / speed, times, sum(shares) / rounds)


def timeable(case: Case) -> Problem:
    """The problem of a case. Refused: the rules refuse it, or it has no cells."""
    problem = problem_of(case)
    if 0 in (problem.planes, *problem.input_plane, *problem.output_plane):
        raise Refused("the case has no cell; there is nothing to time")
    return problem


def _round(runners: Runners, turn: int) -> tuple[dict[str, float], float]:
    """The seconds of each contestant, and the share of the processors that other programs took."""
    names = list(runners)
    start, before = perf_counter(), _others()
    first = turn % len(names)
    found = {name: seconds(runners[name]) for name in names[first:] + names[:first]}
    share = (_others() - before) / (perf_counter() - start) / (os.cpu_count() or 1)
    return found, max(share, 0.0)  # negative by rounding: the system counts in hundredths of a second


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
    """The seconds of one call, after another call that is not timed."""
    clock = perf_counter if get_num_threads() > 1 else process_time
    _wait_for_idle_threads()
    run()
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


def attributes_of(case: Case) -> list[Any]:
    """The attributes of a case in the order of the parameters of our function."""
    given = [(role, value) for role, value in case.attributes if role != "cube_math_type"]
    return [value or None if role in ("stride", "divisor_override") else value for role, value in given]


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
    check_sample(case, problem, *(None if a is None else as_volume(a, axes) for a in drawn))


def check_sample(case: Case, problem: Problem, grad: Any, indices: Any, out: Any) -> None:
    """Compare some planes of the result with the reference, bit by bit. Wrong: they differ."""
    planes = np.unique(np.linspace(0, problem.planes - 1, SAMPLE).astype(int))
    sample = replace(problem, batch=(1, len(planes)))

    def chosen(array: Any) -> Any:
        return array[planes // problem.batch[1], planes % problem.batch[1]][None]

    want = np.empty(sample.batch + sample.input_plane, problem.dtype.numpy)
    scratch = np.empty(reference.scratch(sample), np.uint8)
    picked = None if indices is None else chosen(indices)
    if reference.run(sample, "planes", Arrays(chosen(grad), None, picked, want), scratch) is not None:
        raise Refused(f"{case}: an index is outside its plane")
    if not np.array_equal(bits_of(chosen(out)), bits_of(want)):
        raise Wrong(f"{case}: the result differs from the reference")


def torch_tensor(case: Case, array: Array) -> Any:
    import torch

    if case.dtype.name == "BFLOAT16" and array.itemsize == 2:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def aten_call(
    case: Case, grad: Any, x: Any, indices: Any, result: Any
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two calls of PyTorch's gradient of the case: one allocates its result, the other writes to `result`."""
    import torch

    from ..torch.aten_fallback import aten_call as named

    call = case.call(HOST)
    attributes = attributes_of(case)
    if attributes:
        arrays = [call.kernel, call.stride, call.padding]
        arrays += [call.pairs("dilation")] if call.role("dilation") else []
        attributes = [*map(list, arrays), *attributes[len(arrays) :]]
    name, arguments = named(case.operator.function, grad, x, indices, attributes)
    fresh = getattr(torch.ops.aten, name).default
    target = result.unsqueeze(-2) if len(case.operator.axes) == 1 else result
    if name == "_adaptive_avg_pool2d_backward":
        into = partial(torch.ops.aten._adaptive_avg_pool2d_backward.out, out=target)
    else:
        into = partial(getattr(torch.ops.aten, name.removeprefix("_")).grad_input, grad_input=target)
    return lambda: fresh(*arguments), lambda: into(*arguments)


def _torch(case: Case, grad: Array, indices: Array | None, out: Array) -> Runners:
    import torch

    torch.set_num_threads(get_num_threads())
    ours, result = out.copy(), torch_tensor(case, out)
    x = torch.empty_like(result)
    where = None if indices is None else torch.from_numpy(indices.astype(np.int64))
    fresh, into = aten_call(case, torch_tensor(case, grad), x, where, result)
    try:
        into()
    except NotImplementedError:  # PyTorch has no avg_pool3d in halves on the CPU
        return {}
    if case.dtype.name == "FLOAT32" and not np.array_equal(bits_of(ours), bits_of(out)):
        raise Wrong(f"{case}: the result differs from PyTorch's")
    return {"torch out=": into, "torch": fresh}
