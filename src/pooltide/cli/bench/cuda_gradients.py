"""The benchmark of a gradient on a GPU: our function, PyTorch's operator, and that by torch.compile."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from ... import torch as functions
from ...acceptance.inputs import arrays
from ...acceptance.notation import Case, Data
from ...kernels.cuda.launch import kernels
from ...kernels.cuda.tuning import random_indices
from ...operators.pages import HOST
from ...problem.problem import Problem
from ...torch.tensors import TYPES
from . import cuda_timing
from .cpu_gradients import check_sample, problem_to_time
from .measurement import Benchmark, Implementations, Measurement, attributes_of
from .pytorch_gradients import in_layout, pytorch_calls, torch_dtype, torch_tensor


class Tensors(NamedTuple):
    """Of a gradient: (N, C, …) on the device, in the layout of the case. The result is full of NaN."""

    grad: torch.Tensor
    indices: torch.Tensor | None
    result: torch.Tensor


def measure(case: Case, rounds: int, compile: bool = False) -> Iterator[Measurement | None]:
    """Yields None after each round, and the measurement at the end. Frees the memory of the device.

    With `compile`, PyTorch's operator is also timed as torch.compile compiles it.
    """
    try:
        yield from _measure(case, rounds, compile)
    finally:
        torch.compiler.reset()  # else it keeps the tensors of compiled calls
        gc.collect()
        torch.cuda.empty_cache()


def _measure(case: Case, rounds: int, compile: bool) -> Iterator[Measurement | None]:
    problem = problem_to_time(case)
    if case.data == Data():
        tensors = drawn_tensors(case)
    else:
        tensors = _copied(case, arrays(case.call(HOST), problem, case.data))
    benchmark = prepare(case, tensors)
    implementations = benchmark.implementations
    names = [name for name in ("ours", "torch") if name in implementations]
    if compile and "torch" in names:
        implementations = implementations | _compiled(case, implementations["torch"])
    benchmark = replace(benchmark, implementations=implementations)
    for measurement in cuda_timing.time_rounds(benchmark, rounds, cuda_timing.make_buffers()):
        if measurement is None:
            yield None
            continue
        times = measurement.times | {f"{name} wall": [] for name in names}
        for name in names * 9:
            times[f"{name} wall"].append(cuda_timing.wall_seconds(implementations[name]))
        into = {"ours": _ours(case, tensors), "torch": _theirs(case, tensors)}
        for name in names:
            times[f"{name} alone"] = cuda_timing.graph_seconds(into[name], tensors.result)
        yield replace(measurement, times=times | {"limit": [measurement.limit, measurement.limit]})


def prepare(case: Case, tensors: Tensors) -> Benchmark:
    """The benchmark of a gradient, after our result was checked."""
    problem = problem_to_time(case)
    grad, indices, result = tensors
    run = _ours(case, tensors)
    ours: Implementations = {"ours out=": lambda: run(result), "ours": lambda: run(None)}

    def verify() -> None:
        result.fill_(float("nan"))
        run(result)
        inputs = (_volume(problem, tensor, problem.output_plane) for tensor in (grad, indices))
        check_sample(case, problem, (*inputs, _volume(problem, result, problem.input_plane)), _to_numpy)

    verify()
    layout = "channels_last" if case.channels_last else "planes"
    kernel, _ = kernels(problem, layout, result.get_device())[-1]
    nbytes = result.numel() * result.element_size()
    return Benchmark(case, problem, nbytes, ours | _pytorch(case, tensors), verify, kernel)


def _pytorch(case: Case, tensors: Tensors) -> Implementations:
    """PyTorch's operator; none where it fails. Our result was compared with the reference before."""
    grad, indices, result = tensors
    fresh, into = pytorch_calls(case, grad, torch.empty_like(result), indices, result)
    try:
        theirs = fresh().reshape(result.shape)
    except RuntimeError as error:
        warnings.warn(f"{case}: PyTorch's gradient failed: {error}", stacklevel=2)
        return {}
    if case.dtype.name == "FLOAT32" and not torch.allclose(theirs, result, rtol=1e-4, atol=1e-5):
        warnings.warn(f"{case}: PyTorch's result on this device is far from the reference's", stacklevel=2)
    return {"torch out=": into, "torch": fresh}


def _copied(case: Case, data: Any) -> Tensors:
    """The arrays as tensors on the device."""
    grad, indices, out = data
    if indices is not None:
        indices = in_layout(case, torch.from_numpy(indices.astype("int64")).to(cuda_timing.DEVICE))
    g, result = (in_layout(case, torch_tensor(case, array).to(cuda_timing.DEVICE)) for array in (grad, out))
    return Tensors(g, indices, result)


def drawn_tensors(case: Case) -> Tensors:
    """Tensors with random values that are drawn on the device, which takes less time than copying them."""
    problem, device = problem_to_time(case), cuda_timing.DEVICE
    axes = len(case.operator.axes)
    dtype = torch_dtype(problem.dtype)

    def shaped(volume: torch.Tensor) -> torch.Tensor:
        return in_layout(case, volume.reshape(*case.shape[:-axes], *volume.shape[5 - axes :]))

    grad = shaped(torch.randn(*problem.batch, *problem.output_plane, device=device).to(dtype))
    indices = None if problem.index_dtype is None else shaped(random_indices(problem, cuda_timing.DEVICE))
    result = torch.full((*problem.batch, *problem.input_plane), float("nan"), dtype=dtype, device=device)
    return Tensors(grad, indices, shaped(result))


def _volume(problem: Problem, tensor: torch.Tensor | None, plane: tuple[int, ...]) -> torch.Tensor | None:
    return None if tensor is None else tensor.reshape(*problem.batch, *plane)


def _to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    host = tensor.cpu().contiguous()
    if host.dtype != torch.bfloat16:
        return host.numpy()
    return host.view(torch.int16).numpy().view(TYPES[torch.bfloat16].numpy)


def _ours(case: Case, tensors: Tensors) -> Callable[[torch.Tensor | None], Any]:
    """Our gradient, which writes to its argument; None: it allocates its result."""
    function = getattr(functions, case.operator.function)
    grad, indices, result = tensors
    x = torch.empty_like(result)
    inputs = (grad, x) if indices is None else (grad, x, indices)
    attributes = attributes_of(case)
    options = {} if indices is None else {"check_indices": False}  # the check waits for the device
    return lambda target: function(*inputs, *attributes, out=target, **options)


def _theirs(case: Case, tensors: Tensors) -> Callable[[torch.Tensor], Any]:
    grad, indices, result = tensors
    x = torch.empty_like(result)
    return lambda target: pytorch_calls(case, grad, x, indices, target)[1]()


def _compiled(case: Case, fresh: Callable[[], Any]) -> Implementations:
    compiled = torch.compile(fresh, dynamic=False)
    try:
        compiled()
    except RuntimeError as error:  # then the others are timed without it
        warnings.warn(f"{case}: torch.compile failed: {error}", stacklevel=2)
        return {}
    return {"compile": compiled}
