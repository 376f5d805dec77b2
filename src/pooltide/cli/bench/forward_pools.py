"""The benchmark of a forward: ours and PyTorch's, on tensors that need a gradient, as in a training step.

A maximum keeps what its gradient needs, so its limit counts one byte per window if that suffices.
Some planes of the result are compared with PyTorch's pool of the same planes in float32 on the CPU, rounded
once: the bits that a forward must have. Where pooltide leaves a forward to PyTorch (the mean of whole planes,
averages on a GPU), it may have the bits of PyTorch's result on the same device instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F

from ...acceptance.notation import Case
from ...kernels.plan import plan
from ...operators.dtypes import DTYPES
from ...problem.problem import Problem, with_offsets
from ...torch import functional
from .cpu_gradients import chosen_kernel, problem_to_time, sample_planes
from .cpu_timing import time_on
from .measurement import Benchmark, Implementations, Measurement, WrongResult, attributes_of
from .pytorch_gradients import in_layout, torch_dtype

Pool = Callable[..., Any]


def measure(case: Case, rounds: int, device: str) -> Iterator[Measurement | None]:
    """Yields None after each round, and the measurement at the end."""
    yield from time_on(device, prepare(case, device), rounds)


def prepare(case: Case, device: str) -> Benchmark:
    """The benchmark of a forward, after our result was checked."""
    problem = _forward_of(problem_to_time(case))
    dtype = torch_dtype(problem.dtype)
    random = torch.Generator(device).manual_seed(case.data.seed)
    x = torch.randn(case.shape, generator=random, device=device).to(dtype)
    x = in_layout(case, x).requires_grad_()
    name = case.operator.function.removesuffix("_backward")
    attributes = attributes_of(case) or [case.plane]
    ours, theirs = getattr(functional, name), getattr(F, name)
    verify = partial(_verify, case, problem, x.detach(), ours, theirs, attributes)
    verify()
    implementations: Implementations = {"ours": lambda: ours(x, *attributes)}
    try:
        theirs(x, *attributes)
        implementations["torch"] = lambda: theirs(x, *attributes)
    except NotImplementedError:  # PyTorch has no such pool in this dtype
        pass
    result_bytes = problem.planes * prod(problem.output_plane) * problem.dtype.itemsize
    kernel = _kernel(case, problem, device)
    return Benchmark(case, problem, result_bytes, implementations, verify, kernel)


def _forward_of(gradient: Problem) -> Problem:
    """The problem of the pool of which `gradient` is the gradient."""
    problem = replace(gradient, kind=gradient.kind.removesuffix("_gradient"))
    if problem.average:
        whole = problem.quotient == "chained" and prod(problem.output_plane) == 1
        return replace(problem, quotient="mean") if whole else problem
    return with_offsets(problem) or replace(problem, index_dtype=DTYPES["INT64"])


def problems_of(gradient: Problem) -> list[Problem]:
    """What `prepare` computes: the timed forward, and the one with indices that is compared first."""
    problem = _forward_of(gradient)
    indexed = [] if problem.average else [replace(gradient, kind=problem.kind, index_dtype=DTYPES["INT64"])]
    return [problem, *indexed]


def _verify(
    case: Case, problem: Problem, x: torch.Tensor, ours: Pool, theirs: Pool, attributes: list[Any]
) -> None:
    """Raises WrongResult if values, or the indices of maxima, are not the right ones."""
    options = {} if problem.average else {"return_indices": True}
    planes = torch.from_numpy(sample_planes(problem))
    axes = len(case.operator.axes)

    def sampled(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(problem.planes, *tensor.shape[-axes:])[planes.to(tensor.device)].cpu()

    def as_list(results: Any) -> list[torch.Tensor]:
        return [results] if problem.average else list(results)

    actual = [sampled(tensor) for tensor in as_list(ours(x, *attributes, **options))]
    expected = as_list(theirs(sampled(x).float(), *attributes, **options))
    expected[0] = expected[0].to(x.dtype)
    if all(map(torch.equal, actual, expected)):
        return
    by_pytorch = problem.average and (x.is_cuda or problem.quotient == "mean")
    close = torch.allclose(actual[0].float(), expected[0].float(), rtol=0.02, atol=0.02)
    if not (by_pytorch and close and torch.equal(actual[0], sampled(theirs(x, *attributes)))):
        raise WrongResult(f"{case}: the forward differs from PyTorch's on the CPU")


def _kernel(case: Case, problem: Problem, device: str) -> str | None:
    if device == "cuda" or problem.quotient == "mean":
        return None
    layout = "channels_last" if case.channels_last else "planes"
    return chosen_kernel(plan(problem, (layout,) * len(problem.roles)).kernels)
