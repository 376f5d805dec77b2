"""The benchmark of a pool over regions of interest, or of its gradient: ours, and torchvision's.

On the CPU, ours is the NumPy function; `prepare` compares the first regions and channels with the reference,
bit by bit, and in float32 all with torchvision's. On a GPU, ours is the function on tensors, whose values are
drawn there; `prepare` compares the first channels with the result on the CPU.
The limit has three operations for each corner of a sample, as the contract has: a product, a quotient, a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...acceptance.inputs import arrays
from ...acceptance.notation import Case
from ...acceptance.region_inputs import boxes_of
from ...acceptance.trial import Refused, dtype_of_boxes, plan_of, problem_of
from ...acceptance.ulps import bits_of
from ...arrays import functions
from ...kernels import Arrays
from ...kernels.plan import plan
from ...operators.pages import HOST
from ...problem.regions import RegionProblem
from .cpu_gradients import chosen_kernel
from .cpu_timing import time_on
from .measurement import Benchmark, Implementations, Measurement, WrongResult

Array = NDArray[Any]
_PART = 24  # regions, and channels of the result, that are compared with the reference
_CHECKED = 8  # channels of the result that are compared with the CPU's


def measure(case: Case, rounds: int, device: str) -> Iterator[Measurement | None]:
    """Yields None after each round, and the measurement at the end."""
    yield from time_on(device, prepare(case, device), rounds)


def prepare(case: Case, device: str) -> Benchmark:
    """The benchmark, after the result was checked."""
    problem, call = problem_of(case), case.call(HOST)
    assert isinstance(problem, RegionProblem)
    if problem.empty:
        raise Refused("the case has no cell or no region; there is nothing to time")
    boxes = boxes_of(problem, case.data, kind := dtype_of_boxes(call))
    assert boxes is not None
    assert kind is not None
    boxes = boxes.astype(kind.numpy)
    if device == "cuda":
        return on_tensors(case, problem, boxes, device)
    source, indices, out = arrays(call, problem, case.data)
    data = source, boxes, indices
    function = partial(getattr(functions, case.operator.function), *_arguments(case, *data))
    verify = partial(_verify, case, problem, data, function, out)
    verify()
    ours: Implementations = {"ours out=": lambda: function(out=out), "ours": function}
    theirs = (
        _torchvision(case, *(_tensor(case, array) for array in data)) if find_spec("torchvision") else None
    )
    kernel = chosen_kernel(plan_of(case).kernels)
    if theirs is None:
        return Benchmark(case, problem, out.nbytes, ours, verify, kernel)
    if case.dtype.name == "FLOAT32" and not np.array_equal(out, np.asarray(_first(theirs())), equal_nan=True):
        raise WrongResult(f"{case}: the result differs from torchvision's")
    return Benchmark(case, problem, out.nbytes, ours | {"torch": theirs}, verify, kernel)


def on_tensors(case: Case, problem: RegionProblem, boxes: Array, device: str) -> Benchmark:
    """The benchmark of our function on tensors of a device."""
    import torch

    from .pytorch_gradients import torch_dtype

    generator = torch.Generator(device).manual_seed(case.data.seed)
    form = torch.channels_last if case.channels_last else torch.contiguous_format
    rows, name = _tensor(case, boxes).to(device), case.operator.function

    def drawn(role: str) -> Any:
        values = torch.randn(problem.shape(role), device=device, generator=generator)
        return values.to(torch_dtype(case.dtype)).contiguous(memory_format=form)

    functional = import_module("pooltide.torch.functional")
    module = import_module("pooltide.torch") if problem.gradient else functional
    indices = None
    if problem.gradient and problem.index_dtype is not None:
        x = drawn("out")
        scale = problem.spatial_scale
        indices = functional.roi_pool(x, rows, problem.bins, scale, return_indices=True)[1]
        indices = indices.to(torch_dtype(problem.index_dtype)).contiguous(memory_format=form)
    source = drawn("grad_output" if problem.gradient else "input")
    ours = partial(getattr(module, name), *_arguments(case, source, rows, indices))

    def verify() -> None:
        few = min(_CHECKED, problem.channels) * problem.batch[1] // problem.channels
        small = replace(case, shape=(problem.batch[0], few, *problem.plane))
        read = few if not problem.gradient else min(_CHECKED, problem.channels)
        parts = [None if t is None else t[:, :read].cpu() for t in (source, indices)]
        host = _first(getattr(module, name)(*_arguments(small, parts[0], rows.cpu(), parts[1])))
        if not torch.equal(_first(ours())[:, : host.shape[1]].cpu(), host):
            raise WrongResult(f"{case}: the result differs from that on the CPU")

    verify()
    alike = rows.to(source.dtype)
    theirs = _torchvision(case, source, alike, indices) if find_spec("torchvision") else None
    both: Implementations = {"ours": ours} | ({} if theirs is None else {"torch": theirs})
    nbytes = prod(problem.shape("out")) * problem.dtype.itemsize
    return Benchmark(case, problem, nbytes, both, verify, operations=_operations(problem, boxes))


def _operations(problem: RegionProblem, boxes: Array) -> float:
    """Of the corners of samples in the plane, about; pools over cells have one for each bin, at least."""
    if not problem.sampled:
        return float(problem.regions * problem.channels * prod(problem.bins))
    samples = np.ones(len(boxes))
    for axis in (0, 1):
        low, high = (boxes[:, 1 + axis + i].astype(np.float64) * problem.spatial_scale for i in (0, 2))
        side, bins = problem.plane[1 - axis], problem.bins[1 - axis]
        length = high - low if problem.aligned else np.maximum(high - low, 1)
        grid = problem.sampling_ratio if problem.sampling_ratio > 0 else np.ceil(length / bins)
        inside = np.clip(high, 0, side) - np.clip(low, 0, side)
        samples = samples * np.maximum(grid * bins * np.minimum(inside / np.maximum(length, 1e-9), 1), 0)
    return 12 * problem.channels * float(np.nansum(samples))


def _arguments(case: Case, source: Any, boxes: Any, indices: Any) -> list[Any]:
    """The arguments of our function, by position."""
    attributes = dict(case.attributes)
    given = [source, case.shape, boxes] if case.operator.gradient else [source, boxes, case.plane]
    if case.operator.gradient and indices is not None:
        given.append(indices)
    roles = ("spatial_scale", "sampling_ratio", "aligned")
    return [*given, *(attributes[p.role] for p in case.operator.parameters if p.role in roles)]


def _verify(
    case: Case, problem: RegionProblem, data: tuple[Any, ...], function: Callable[..., Any], out: Array
) -> None:
    function(out=out)
    if not np.array_equal(bits_of(function()), bits_of(out)):
        raise WrongResult(f"{case}: out= and a fresh result differ")
    source, boxes, indices = data
    channels = min(problem.channels, _PART)
    inputs = channels * problem.batch[1] // problem.channels
    part = replace(
        problem, regions=min(problem.regions, _PART), batch=(problem.batch[0], inputs), index_dtype=None
    )
    if indices is not None and problem.gradient:
        part = replace(part, index_dtype=problem.index_dtype)
        indices = indices[: part.regions, :channels]
    else:
        indices = None
    source = source[: part.regions, :channels] if problem.gradient else source[:, :inputs]
    boxes = boxes[: part.regions]
    small = replace(case, shape=part.batch + part.plane, index_dtype=part.index_dtype)
    got = getattr(functions, case.operator.function)(*_arguments(small, source, boxes, indices))
    expected = np.empty_like(got)
    wide = np.ascontiguousarray(boxes, problem.dtype.accumulator)
    grad_output, x = (source, None) if problem.gradient else (None, source)
    executable = plan(part, ("strided",) * len(part.roles), only="reference")
    executable.run(Arrays(grad_output, x, indices, expected, wide))
    if not np.array_equal(bits_of(got), bits_of(expected)):
        raise WrongResult(f"{case}: the result differs from the reference")


def _tensor(case: Case, array: Array | None) -> Any:
    from .pytorch_gradients import torch_tensor

    return None if array is None else torch_tensor(case, array)


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def _torchvision(case: Case, source: Any, boxes: Any, indices: Any) -> Callable[[], Any] | None:
    """torchvision's operator; None where it has none for the dtype."""
    import torch

    import_module("torchvision")  # it registers its operators

    attributes = dict(case.attributes)
    scale, ratio, aligned = attributes.get("spatial_scale", 1.0), attributes.get("sampling_ratio"), False
    aligned = attributes.get("aligned", False)
    name = case.operator.function.removesuffix("_backward")
    options = [] if "pool" in name else [ratio, aligned] if name == "roi_align" else [ratio]
    forward = getattr(torch.ops.torchvision, name)
    try:
        if not case.operator.gradient:
            call = partial(forward, source, boxes, scale, *case.plane, *options)
        else:
            backward = getattr(torch.ops.torchvision, f"_{name}_backward")
            saved = []
            if name != "roi_align":  # the channel of each bin, or where its maximum is
                x = torch.zeros(case.shape, dtype=source.dtype, device=source.device)
                saved = [forward(x, boxes, scale, *case.plane, *options)[1]]
                if name == "roi_pool":  # its operator takes contiguous indices for granted
                    saved = [indices.contiguous().to(saved[0].dtype)]
            after = [*case.shape, *options] if name == "roi_align" else [*options, *case.shape]
            call = partial(backward, source, boxes, *saved, scale, *case.plane, *after)
        call()
    except (RuntimeError, NotImplementedError):
        return None
    return call
