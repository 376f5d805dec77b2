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
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from .. import torch as ours
from ..acceptance.inputs import arrays
from ..acceptance.notation import Case, Data
from ..geometry import tables
from ..kernels.cuda.driver import DeviceFacts, device_facts
from ..kernels.cuda.launch import kernels
from ..operators.pages import HOST
from ..problem.problem import Problem
from ..torch.tensors import TYPES
from .aten import aten_call, in_layout, torch_dtype, torch_tensor
from .contest import check_sample, timeable
from .entries import Entry, Result, Runners, attributes_of
from .limit import LANES, least_seconds

DEVICE = "cuda"
COPY_BYTES = 1 << 30
SWEEP_BYTES = 2 << 30  # four times the cache, and long enough that the host is ahead of the device
WALL_CALLS = 100  # for one wall time
RESULTS_BYTES = 256 << 20  # that the calls of a graph write, at least
LEAST_ROUNDS = 3


class Tensors(NamedTuple):
    """Of a gradient: (N, C, …) on the device, in the layout of the case. The result is full of NaN."""

    grad: torch.Tensor
    indices: torch.Tensor | None
    result: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """The memory of the copy, and memory that is overwritten to clear the cache."""

    source: torch.Tensor
    target: torch.Tensor
    sweep: torch.Tensor


def make_stage() -> Stage:
    source, target = torch.ones((2, COPY_BYTES // 4), device=DEVICE)
    return Stage(source, target, torch.empty(SWEEP_BYTES // 4, device=DEVICE))


def contest(case: Case, rounds: int, compile: bool = False) -> Iterator[Result | None]:
    """Yields None after each round, and the result at the end. Frees the memory of the device."""
    try:
        yield from _contest(case, rounds, compile)
    finally:
        torch.compiler.reset()  # else it keeps the tensors of compiled calls
        gc.collect()
        torch.cuda.empty_cache()


def _contest(case: Case, rounds: int, compile: bool) -> Iterator[Result | None]:
    problem = timeable(case)
    plain = case.data == Data()
    tensors = drawn_tensors(case) if plain else _copied(case, arrays(case.call(HOST), problem, case.data))
    entry = enter(case, tensors)
    names = [name for name in ("ours", "torch") if name in entry.runners]
    runners = entry.runners | (
        _compiled(case, entry.runners["torch"]) if compile and "torch" in names else {}
    )
    for found in timed(replace(entry, runners=runners), rounds, make_stage()):
        if found is None:
            yield None
            continue
        times = found.times | {f"{name} wall": [] for name in names}
        for name in names * 9:
            times[f"{name} wall"].append(_wall_seconds(runners[name]))
        into = {"ours": _ours(case, tensors), "torch": _theirs(case, tensors)}
        times |= {f"{name} alone": alone_seconds(into[name], tensors.result) for name in names}
        yield replace(found, times=times | {"limit": [found.limit, found.limit]})


def enter(case: Case, tensors: Tensors) -> Entry:
    """The contestants of a gradient, after their results were checked."""
    problem = timeable(case)
    grad, indices, result = tensors
    run = _ours(case, tensors)
    runners = {"ours out=": lambda: run(result), "ours": lambda: run(None)}

    def verify() -> None:
        result.fill_(float("nan"))
        run(result)
        given = (_volume(problem, tensor, cells=False) for tensor in (grad, indices))
        check_sample(case, problem, (*given, _volume(problem, result)), _to_numpy)

    verify()
    runners |= _torch(case, tensors)
    layout = "channels_last" if case.channels_last else "planes"
    name, _ = kernels(problem, layout, result.get_device())[-1]
    return Entry(case, problem, result.numel() * result.element_size(), runners, verify, name)


def _torch(case: Case, tensors: Tensors) -> Runners:
    """PyTorch's contestants; none where PyTorch fails. The result was compared with the reference before."""
    grad, indices, result = tensors
    fresh, into = aten_call(case, grad, torch.empty_like(result), indices, result)
    try:
        theirs = fresh().reshape(result.shape)
    except RuntimeError as error:
        warnings.warn(f"{case}: PyTorch's gradient failed: {error}", stacklevel=2)
        return {}
    if case.dtype.name == "FLOAT32" and not torch.allclose(theirs, result, rtol=1e-4, atol=1e-5):
        warnings.warn(f"{case}: PyTorch's result on this device is far from the reference's", stacklevel=2)
    return {"torch out=": into, "torch": fresh}


def timed(entry: Entry, rounds: int, stage: Stage, seconds: float = inf) -> Iterator[Result | None]:
    """Yields None after each round, and the result at the end.

    After `seconds` no round begins, but there are at least three.
    """
    runners = entry.runners | {"copy": lambda: stage.target.copy_(stage.source)}
    if (half := entry.problem.least_bytes // 2) <= COPY_BYTES:  # what a copy reads, and what it writes
        source, target = stage.source[: half // 4], stage.target[: half // 4]
        runners["equal copy"] = lambda: target.copy_(source)
    times: dict[str, list[float]] = {name: [] for name in runners}
    start = perf_counter()
    for turn in range(rounds + 1):
        if turn > LEAST_ROUNDS and perf_counter() - start > seconds:
            break
        for name, run in runners.items():
            taken = _device_seconds(run, stage.sweep)
            times[name] += [taken] if turn else []  # the first round warms up
        yield None
    rate = 2 * COPY_BYTES / median(times["copy"])
    limit = least_seconds(entry.problem, rate, additions_per_second())
    yield Result(entry.case, entry.result_bytes, limit, times)


def additions_per_second() -> float:
    """Float32 additions of the device at its highest clock."""
    facts = current_facts()
    return LANES * facts.multiprocessors * facts.clock_khz * 1e3


def current_facts() -> DeviceFacts:
    return device_facts(torch.cuda.current_device())


def _copied(case: Case, drawn: Any) -> Tensors:
    grad, indices, out = drawn
    where = None if indices is None else in_layout(case, torch.from_numpy(indices.astype("int64")).to(DEVICE))
    g, result = (in_layout(case, torch_tensor(case, array).to(DEVICE)) for array in (grad, out))
    return Tensors(g, where, result)


def drawn_tensors(case: Case) -> Tensors:
    """Tensors with random values that are drawn on the device, which takes less time than copying them."""
    problem = timeable(case)
    axes = len(case.operator.axes)
    dtype = torch_dtype(problem.dtype)

    def laid(volume: torch.Tensor) -> torch.Tensor:
        return in_layout(case, volume.reshape(*case.shape[:-axes], *volume.shape[5 - axes :]))

    grad = laid(torch.randn(*problem.batch, *problem.output_plane, device=DEVICE).to(dtype))
    indices = None if problem.index_dtype is None else laid(random_indices(problem))
    result = torch.full((*problem.batch, *problem.input_plane), float("nan"), dtype=dtype, device=DEVICE)
    return Tensors(grad, indices, laid(result))


def random_indices(problem: Problem) -> torch.Tensor:
    """A random cell of its window for every window, as a volume."""
    shape = (*problem.batch, *problem.output_plane)
    found = torch.zeros(shape, dtype=torch.int64, device=DEVICE)
    for i, axis in enumerate(problem.axes):
        table, along = tables(axis), [1] * 5
        along[2 + i] = axis.outputs
        start, cells = (
            torch.tensor(edge, device=DEVICE).view(along) for edge in (table.start, table.end - table.start)
        )
        found = found * axis.length + start + (torch.rand(shape, device=DEVICE) * cells).long()
    return found


def _volume(problem: Problem, tensor: torch.Tensor | None, cells: bool = True) -> torch.Tensor | None:
    plane = problem.input_plane if cells else problem.output_plane
    return None if tensor is None else tensor.reshape(*problem.batch, *plane)


def _to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    host = tensor.cpu().contiguous()
    if host.dtype != torch.bfloat16:
        return host.numpy()
    return host.view(torch.int16).numpy().view(TYPES[torch.bfloat16].numpy)


def _ours(case: Case, tensors: Tensors) -> Callable[[torch.Tensor | None], Any]:
    """Our gradient, which writes to its argument; None: it allocates its result."""
    function = getattr(ours, case.operator.function)
    grad, indices, result = tensors
    x = torch.empty_like(result)
    given = (grad, x) if indices is None else (grad, x, indices)
    more = attributes_of(case)
    quiet = {} if indices is None else {"check_indices": False}  # the check waits for the device
    return lambda target: function(*given, *more, out=target, **quiet)


def _theirs(case: Case, tensors: Tensors) -> Callable[[torch.Tensor], Any]:
    grad, indices, result = tensors
    x = torch.empty_like(result)
    return lambda target: aten_call(case, grad, x, indices, target)[1]()


def _compiled(case: Case, fresh: Callable[[], Any]) -> Runners:
    compiled = torch.compile(fresh, dynamic=False)
    try:
        compiled()
    except RuntimeError as error:  # then the contest goes on without it
        warnings.warn(f"{case}: torch.compile failed: {error}", stacklevel=2)
        return {}
    return {"compile": compiled}


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
