"""Our forward of a case and PyTorch's, on tensors that need a gradient, as a training step calls them.

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

from ..acceptance.notation import Case
from ..kernels.plan import make_plan, roles
from ..operators.dtypes import DTYPES
from ..problem.problem import Problem, with_offsets
from ..torch import functional
from .aten import in_layout, torch_dtype
from .contest import sample_planes, timeable, timed
from .entries import Entry, Result, Runners, Wrong, attributes_of

Pool = Callable[..., Any]


def contest(case: Case, rounds: int, device: str) -> Iterator[Result | None]:
    """Yields None after each round, and the result at the end."""
    entry = enter(case, device)
    if device == "cpu":
        yield from timed(entry, rounds)
        return
    from . import cuda_contest

    yield from cuda_contest.timed(entry, rounds, cuda_contest.make_stage())


def enter(case: Case, device: str) -> Entry:
    """The contestants of a forward, after their results were checked."""
    problem = _forward_of(timeable(case))
    dtype = torch_dtype(problem.dtype)
    random = torch.Generator(device).manual_seed(case.data.seed)
    x = torch.randn(case.shape, generator=random, device=device).to(dtype)
    x = in_layout(case, x).requires_grad_()
    name = case.operator.function.removesuffix("_backward")
    given = attributes_of(case) or [case.plane]
    pool, theirs = getattr(functional, name), getattr(F, name)
    verify = partial(_verify, case, problem, x.detach(), pool, theirs, given)
    verify()
    runners: Runners = {"ours": lambda: pool(x, *given)}
    try:
        theirs(x, *given)
        runners["torch"] = lambda: theirs(x, *given)
    except NotImplementedError:  # PyTorch has no such pool in this dtype
        pass
    result_bytes = problem.planes * prod(problem.output_plane) * problem.dtype.itemsize
    return Entry(case, problem, result_bytes, runners, verify, _kernel(case, problem, device))


def _forward_of(gradient: Problem) -> Problem:
    """The problem of the pool of which `gradient` is the gradient."""
    problem = replace(gradient, kind=gradient.kind.removesuffix("_gradient"))
    if problem.average:
        whole = problem.quotient == "chained" and prod(problem.output_plane) == 1
        return replace(problem, quotient="mean") if whole else problem
    return with_offsets(problem) or replace(problem, index_dtype=DTYPES["INT64"])


def problems_of(gradient: Problem) -> list[Problem]:
    """What `enter` computes: the timed forward, and the one with indices that is compared first."""
    problem = _forward_of(gradient)
    indexed = [] if problem.average else [replace(gradient, kind=problem.kind, index_dtype=DTYPES["INT64"])]
    return [problem, *indexed]


def _verify(
    case: Case, problem: Problem, x: torch.Tensor, pool: Pool, theirs: Pool, given: list[Any]
) -> None:
    """Raises Wrong if values, or the indices of maxima, are not the right ones."""
    more = {} if problem.average else {"return_indices": True}
    planes = torch.from_numpy(sample_planes(problem))
    axes = len(case.operator.axes)

    def chosen(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(problem.planes, *tensor.shape[-axes:])[planes.to(tensor.device)].cpu()

    def results(found: Any) -> list[torch.Tensor]:
        return [found] if problem.average else list(found)

    found = [chosen(tensor) for tensor in results(pool(x, *given, **more))]
    must = results(theirs(chosen(x).float(), *given, **more))
    must[0] = must[0].to(x.dtype)
    if all(map(torch.equal, found, must)):
        return
    leaves = problem.average and (x.is_cuda or problem.quotient == "mean")
    close = torch.allclose(found[0].float(), must[0].float(), rtol=0.02, atol=0.02)
    if not (leaves and close and torch.equal(found[0], chosen(theirs(x, *given)))):
        raise Wrong(f"{case}: the forward differs from PyTorch's on the CPU")


def _kernel(case: Case, problem: Problem, device: str) -> str | None:
    if device == "cuda" or problem.quotient == "mean":
        return None
    layout = "channels_last" if case.channels_last else "planes"
    kernels = make_plan(problem, (layout,) * len(roles(problem))).kernels
    return next((name for name, reason in kernels if reason is None), None)
