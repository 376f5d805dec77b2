"""Times our functions, PyTorch's operators, the same compiled by torch.compile, and a copy, on a GPU.

Most times are taken on the device, between two events. Before each call the cache is overwritten, because a
kernel that finds its data in the cache would be faster than the limit. `alone` times have no launch: a graph
of calls is replayed, each of which writes to another result, so that no result stays in the cache. `wall`
times are those of the host, per call, over many calls.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import torch

from .. import torch as ours
from ..acceptance.inputs import arrays
from ..acceptance.notation import Case
from ..arrays.volumes import as_volume
from ..operators.pages import HOST
from .contest import Result, Runners, Wrong, aten_call, attributes_of, check_sample, timeable, torch_tensor

COPY_BYTES = 1 << 30
SWEEP_BYTES = 2 << 30  # four times the cache, and long enough that the host is ahead of the device
WALL_CALLS = 100  # for one wall time
RESULTS_BYTES = 256 << 20  # that the calls of a graph write, at least


def contest(
    case: Case, rounds: int, compile: bool = False, channels_last: bool = False
) -> Iterator[Result | None]:
    """Yields None after each round, and the result at the end. Frees the memory of the device."""
    try:
        yield from _contest(case, rounds, compile, channels_last)
    finally:
        torch.compiler.reset()  # else it keeps the tensors of compiled calls
        gc.collect()
        torch.cuda.empty_cache()


def _contest(case: Case, rounds: int, compile: bool, channels_last: bool) -> Iterator[Result | None]:
    problem = timeable(case)
    drawn = arrays(case.call(HOST), problem, case.data)
    runners, into, result = _runners(case, drawn, compile, channels_last)
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
    times |= {f"{name} wall": [] for name in ("ours", "torch")}
    for name in ("ours", "torch") * 9:
        times[f"{name} wall"].append(_wall_seconds(runners[name]))
    del sweep
    times |= {f"{name} alone": alone_seconds(run, result) for name, run in into.items()}
    limit = problem.least_bytes * median(times["copy"]) / (2 * COPY_BYTES)
    yield Result(case, drawn[2].nbytes, limit, times | {"limit": [limit, limit]})


Into = dict[str, Callable[[torch.Tensor], Any]]


def _runners(
    case: Case, drawn: Any, compile: bool, channels_last: bool
) -> tuple[Runners, Into, torch.Tensor]:
    def on_gpu(tensor: torch.Tensor) -> torch.Tensor:
        last = (
            {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim()) if channels_last else None
        )
        return tensor.cuda().to(memory_format=last or torch.contiguous_format)

    grad, indices, out = drawn
    g, x = on_gpu(torch_tensor(case, grad)), on_gpu(torch_tensor(case, out))
    result = torch.full_like(x, float("nan"))
    where = None if indices is None else on_gpu(torch.from_numpy(indices.astype("int64")))
    function = getattr(ours, case.operator.function)
    given = (g, x) if where is None else (g, x, where)
    more = attributes_of(case)
    quiet = {} if where is None else {"check_indices": False}  # the check waits for the device
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
        except RuntimeError as error:  # then the contest goes on without it
            warnings.warn(f"{case}: torch.compile failed: {error}", stacklevel=2)
    alone: Into = {
        "ours": lambda target: function(*given, *more, out=target, **quiet),
        "torch": lambda target: aten_call(case, g, x, where, target)[1](),
    }
    return runners, alone, result


def _half(case: Case) -> bool:
    return case.dtype.name == "BFLOAT16"


def alone_seconds(run: Callable[[torch.Tensor], Any], result: torch.Tensor) -> list[float]:
    """Seconds per call, without its launch; the calls write to several results like this one."""
    nbytes = max(result.numel() * result.element_size(), 1)
    targets = [torch.empty_like(result) for _ in range(max(min(RESULTS_BYTES // nbytes, 64), 4))]
    run(targets[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for target in targets:
            run(target)
    graph.replay()
    return [elapsed_seconds(graph.replay) / len(targets) for _ in range(9)]


def _device_seconds(run: Callable[[], Any], sweep: torch.Tensor) -> float:
    sweep.zero_()
    return elapsed_seconds(run)


def elapsed_seconds(run: Callable[[], Any]) -> float:
    timed: Any = torch.cuda.Event
    begin, end = timed(enable_timing=True), timed(enable_timing=True)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _wall_seconds(run: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    for _ in range(WALL_CALLS // 10):
        run()
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(WALL_CALLS):
        run()
    torch.cuda.synchronize()
    return (perf_counter() - start) / WALL_CALLS
