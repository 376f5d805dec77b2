"""PyTorch's own pools and its backward operators while `pooltide.torch.patch()` is in force."""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

import torch

import pooltide.torch
from pooltide.torch.aten import ATEN

from . import functional_calls, problems
from .calls import MEMORY, Call
from .functional_calls import accepted, plain
from .tensors import TYPES, filled, indices_for, written
from .torch_calls import spoil, to_array

COMPARED = 0.05
PATCH = pooltide.torch.patch()
warnings.simplefilter("ignore")


def draw(rng: Random) -> Call:
    if rng.random() < 0.25:
        return functional_calls.draw(rng, torch.nn.functional, "torch.nn.functional")
    MEMORY.begin()
    pool = rng.choice([pool for pool in problems.POOLS if "1d" not in pool])
    problem = problems.draw(rng, pool)
    name = ATEN[f"{pool}_backward"]
    given: dict[str, Any] = {
        "grad_output": filled(rng, problem.output, problem.dtype),
        "self": filled(rng, problem.input, problem.dtype),
    }
    given |= {name: plain(value) for name, value in problem.attributes.items()}
    if problem.is_max:
        given["indices"] = indices_for(rng, problem, "int64")
    form = "default"
    call = Call("", len, given)
    if name != "_adaptive_avg_pool2d_backward" and rng.random() < 0.5:
        form, name = "grad_input", name.removeprefix("_")
        given["grad_input"] = written(rng, call, problem.input, TYPES[problem.dtype])
    call.function = getattr(getattr(torch.ops.aten, name), form)
    call.title = f"torch.ops.aten.{name}.{form}"
    call.accepted = lambda error: accepted(error, pool, call)
    if rng.random() < 0.5:
        for argument in rng.sample(list(given), min(len(given), rng.choice((1, 1, 1, 2)))):
            spoil(rng, call, argument, "grad_input")
        _keep_resized_results_out_of_guarded_memory(call)
    elif rng.random() < COMPARED:
        call.check = lambda result: _compare(call, problem, result)
    return call


def _keep_resized_results_out_of_guarded_memory(call: Call) -> None:
    """PyTorch resizes a result of another shape than `self` in its storage, which here is a whole slot."""
    x = call.given["self"]
    if "grad_input" not in call.given or "grad_input" in call.labels or not issubclass(type(x), torch.Tensor):
        return
    result = call.given["grad_input"]
    if type(result) is torch.Tensor and not x.is_nested and result.shape != x.shape:
        call.given["grad_input"] = result.clone()


def _compare(call: Call, problem: problems.Problem, result: torch.Tensor) -> str | None:
    """Whether the result has the bits of pooltide.torch's function."""
    found = result.clone()
    if MEMORY.outside(call.written):
        return None
    given = {name: value for name, value in call.given.items() if name != "grad_input"}
    given["input"] = given.pop("self")
    function = f"{problem.pool}_backward"
    expected = getattr(pooltide.torch, function)(**given)
    a, b = (to_array(tensor, problem.dtype) for tensor in (found, expected))
    if a.shape == b.shape and ((a == b) | ((a != a) & (b != b))).all():
        return None
    return f"{function} under patch() differs from pooltide.torch's"
