"""The contest on a GPU: our functions on tensors, PyTorch's operators, what torch.compile makes of
them, and a device-to-device copy, in turns.

Times are the device's own, between events, with the cache swept before each: a kernel that finds its
data there would beat the limit. `wall` times are the host's, per call of many in a row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import torch

from .. import torch as ours
from ..functions import as_volume
from ..inputs import arrays
from ..notation import Case
from ..pages import HOST
from ..trial import problem_of
from .contest import Result, Runners, Wrong, aten_call, attributes_of, check_sample, torch_tensor

COPY_BYTES = 1 << 30
SWEEP_BYTES = 2 << 30  # four times the cache, and long enough that the host is ahead of the device
ROW = 100  # calls in a row for a wall time


def contest(case: Case, rounds: int, compile: bool) -> Iterator[Result | None]:
    """Yields None after each round, the result at last."""
    problem = problem_of(case)
    drawn = arrays(case.call(HOST), problem, case.data)
    runners, result = _runners(case, drawn, compile)
    runners["ours out="]()
    axes = len(case.operator.axes)
    back = result.cpu()
    drawn[2][...] = back.view(torch.int16).numpy().view(drawn[2].dtype) if _half(case) else back.numpy()
    check_sample(case, problem, *(None if a is None else as_volume(a, axes) for a in drawn))
    source, target = torch.ones((2, COPY_BYTES // 4), device="cuda")
    runners["copy"] = lambda: target.copy_(source)
    sweep = torch.empty(SWEEP_BYTES // 4, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in runners}
    for turn in range(-2, rounds):  # two to warm up
        taken = {name: _device_seconds(run, sweep) for name, run in runners.items()}
        if turn >= 0:
            for name, seconds in taken.items():
                times[name].append(seconds)
        if turn >= -1:
            yield None
    for name in ("ours", "torch"):
        times[f"{name} wall"] = [_wall_seconds(runners[name]) for _ in range(5)]
    speed = 2 * COPY_BYTES / median(times["copy"])
    yield Result(case, drawn[2].nbytes, problem.least_bytes / speed, times)


def _runners(case: Case, drawn: Any, compile: bool) -> tuple[Runners, torch.Tensor]:
    grad, indices, out = drawn
    g, x = torch_tensor(case, grad).cuda(), torch_tensor(case, out).cuda()
    result = torch.full_like(x, float("nan"))
    where = None if indices is None else torch.from_numpy(indices.astype("int64")).cuda()
    function = getattr(ours, case.operator.function)
    given = (g, x) if where is None else (g, x, where)
    more = attributes_of(case)
    quiet = {} if where is None else {"check_indices": False}  # waiting for the device is no kernel's time
    fresh, into = aten_call(case, g, x, where, result)
    runners: Runners = {
        "ours out=": lambda: function(*given, *more, out=result, **quiet),
        "ours": lambda: function(*given, *more, **quiet),
        "torch out=": into,
        "torch": fresh,
    }
    runners["torch"]()
    theirs = fresh()
    runners["ours out="]()
    if case.dtype.name == "FLOAT32" and not torch.allclose(theirs, result, rtol=1e-4, atol=1e-5):
        raise Wrong(f"{case}: the result is far from PyTorch's")
    if compile:
        compiled = torch.compile(fresh, dynamic=False)
        try:
            compiled()
            runners["compile"] = compiled
        except RuntimeError as error:  # a compiler that fails is no contestant
            warnings.warn(f"{case}: torch.compile failed: {error}", stacklevel=2)
    return runners, result


def _half(case: Case) -> bool:
    return case.dtype.name == "BFLOAT16"


def _device_seconds(run: Callable[[], Any], sweep: torch.Tensor) -> float:
    timed: Any = torch.cuda.Event
    begin, end = timed(enable_timing=True), timed(enable_timing=True)
    sweep.zero_()
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _wall_seconds(run: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(ROW):
        run()
    torch.cuda.synchronize()
    return (perf_counter() - start) / ROW
