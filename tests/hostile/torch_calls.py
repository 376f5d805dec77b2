"""The gradients on tensors: pooltide.torch's twelve functions."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import torch

import pooltide.torch

from . import problems
from .calls import MEMORY, Call, odd_value
from .numpy_calls import equal_bits
from .problems import FLOATS
from .tensors import TYPES, filled, indices_for, spoil_tensor, written

COMPARED = 0.05
torch.set_num_threads(2)


def draw(rng: Random) -> Call:
    MEMORY.begin()
    problem = problems.draw(rng, rng.choice(problems.POOLS))
    given: dict[str, Any] = {"grad_output": filled(rng, problem.output, problem.dtype)}
    given["input"] = problem.input if rng.random() < 0.7 else filled(rng, problem.input, problem.dtype)
    if problem.is_max:
        given["indices"] = indices_for(rng, problem, rng.choice(("int32", "int64")))
    name = f"{problem.pool}_backward"
    call = Call(f"pooltide.torch.{name}", getattr(pooltide.torch, name), given, accepted=no_memory)
    given |= problem.attributes
    if rng.random() < 0.4:
        given["out"] = written(rng, call, problem.input, TYPES[problem.dtype])
    if rng.random() < 0.5:
        for argument in rng.sample(list(given), min(len(given), rng.choice((1, 1, 1, 2)))):
            spoil(rng, call, argument)
    elif rng.random() < COMPARED:
        call.check = lambda result: _compare(call, problem, result)
    return call


def spoil(rng: Random, call: Call, argument: str, output: str = "out") -> None:
    """Replace an argument by an odd one."""
    value = call.given[argument]
    if type(value) is torch.Tensor and rng.random() < 0.9:
        spoil_tensor(rng, call, argument, value, output)
        return
    known = {"self": "x", "grad_input": "out"}.get(argument, argument)
    kind = "shape" if argument == "input" and type(value) is tuple else known
    label, odd = odd_value(rng, kind)
    call.make_odd(argument, odd, "" if type(odd) in (int, str, float) else f"<{label}>")


def no_memory(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def to_array(tensor: torch.Tensor, dtype: str) -> Any:
    if dtype == "bfloat16":
        return tensor.contiguous().view(torch.int16).numpy().view(FLOATS[dtype])
    return tensor.numpy()


def _compare(call: Call, problem: problems.Problem, result: torch.Tensor) -> str | None:
    """Whether the result has the bits of the NumPy function's."""
    found = np.array(to_array(result, problem.dtype))
    if MEMORY.outside(call.written):
        return None
    given = {name: value for name, value in call.given.items() if name != "out"}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            given[name] = value.numpy() if name == "indices" else to_array(value, problem.dtype)
    expected = getattr(pooltide, call.name)(**given)
    return None if equal_bits(found, expected) else f"{call.name} differs from the NumPy function"
