"""The differentiable pools: forward, backward, double backward, and hooks that return other tensors."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch.autograd import grad
from torch.autograd.graph import saved_tensors_hooks

import pooltide.torch

from . import problems
from .calls import MEMORY, REFUSALS, Call
from .tensors import OTHER_DTYPES, STRANGE, filled
from .torch_calls import no_memory, spoil
from .worker import our_message

Pool = Callable[..., Any]
MODES = ("forward", "backward", "backward", "double", "hook", "prehook", "saved", "scribble", "vmap", "twice")


def draw(
    rng: Random, module: Any = pooltide.torch.functional, title: str = "pooltide.torch.functional"
) -> Call:
    MEMORY.begin()
    problem = problems.draw(rng, rng.choice(problems.POOLS), large=0.0005)
    x = filled(rng, problem.input, problem.dtype).detach()
    given: dict[str, Any] = {"input": x} | (problem.attributes or {"output_size": problem.outputs})
    if module is torch.nn.functional:  # its 1-D pools take fewer forms of ints
        given = {name: plain(value) for name, value in given.items()}
    if problem.is_max and rng.random() < 0.4:
        given["return_indices"] = True
    mode = rng.choice(MODES)
    pool = getattr(module, problem.pool)
    label, other = _other(rng)
    grad_output = filled(rng, problem.output, problem.dtype)
    call = Call(
        f"{title}.{problem.pool}", lambda **given: STEPS[mode](pool, given, grad_output, other), given
    )
    hooked = f" returns <{label}>" if mode in ("hook", "prehook", "saved") else ""
    call.title = f"[{mode}{hooked}] {call.title}"
    no_channels = len(problem.batch) == 1 and not problem.batch[0]  # PyTorch refuses these
    plain_mode = mode in ("forward", "backward", "double", "twice")
    call.good = plain_mode and module is not torch.nn.functional and not no_channels
    call.accepted = lambda error: accepted(error, problem.pool, call)
    if rng.random() < 0.35:
        for argument in rng.sample(list(given), min(len(given), rng.choice((1, 1, 1, 2)))):
            spoil(rng, call, argument)
        if module is torch.nn.functional and call.labels.get("input") == "<without memory>":
            given["input"] = x  # PyTorch's own forwards, which nobody replaces, crash on freed memory
        if module is torch.nn.functional and problem.pool == "max_pool1d":
            given["kernel_size"] = plain(
                problem.attributes["kernel_size"]
            )  # PyTorch's loops over 2**62 cells
    return call


def plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(int, value))
    return value if isinstance(value, (bool, torch.Tensor)) or value is None else int(value)


def accepted(error: BaseException, function: str, call: Call) -> bool:
    """Our messages of a bad call, and PyTorch's own errors."""
    names = {function, f"{function}_backward", function.replace("1d", "2d") + "_backward"}
    ours = isinstance(error, REFUSALS) and any(our_message(name, error) for name in names)
    if ours or isinstance(error, RuntimeError):
        return (not call.good and not BROKEN.search(str(error))) or no_memory(error)
    return not call.good and (TORCH.search(str(error)) is not None or _by_torch(error))


# How PyTorch's argument parser, its dispatcher and its hooks begin their messages; and its bugs.
TORCH = re.compile(
    r"^\w+\(\): argument|aten::|unpack_hook|Overflow when unpacking|^Dimension (out of range|specified as)|^Strides must"
)
BROKEN = re.compile(r"INTERNAL ASSERT FAILED(?!.*(python_arg_parser|functorch))", re.S)


def _by_torch(error: BaseException) -> bool:
    """Whether no line of pooltide took part, or PyTorch's Python raised the error."""
    files, trace = [], error.__traceback__
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return not any("/pooltide/" in file for file in files) or (
        "/torch/" in files[-1] and "/pooltide/" not in files[-1]
    )


def _other(rng: Random) -> tuple[str, Callable[[torch.Tensor], Any]]:
    """What a hook returns instead of a tensor, and its label."""
    label = rng.choice([*STRANGE, "shape", "dtype", "noise", "noise"])

    def change(tensor: torch.Tensor) -> Any:
        if label in STRANGE:
            return STRANGE[label](tensor)
        if label == "shape":
            return tensor.new_ones((*tensor.shape[:-1], tensor.shape[-1] + 1))
        if label == "dtype":
            return tensor.to(rng.choice(OTHER_DTYPES))
        return torch.full_like(tensor, rng.choice((127, 7, 1)))

    return label, change


def _forward(pool: Pool, given: dict[str, Any], *_: Any) -> Any:
    with torch.no_grad():
        return pool(**given)


def _values(pool: Pool, given: dict[str, Any]) -> tuple[Any, Any]:
    x = given["input"]
    if isinstance(x, torch.Tensor) and x.is_leaf and x.dtype.is_floating_point:
        x = x.detach().requires_grad_()
    found = pool(**given | {"input": x})
    return x, found[0] if isinstance(found, tuple) else found


def _backward(pool: Pool, given: dict[str, Any], g: Any, *_: Any) -> Any:
    x, y = _values(pool, given)
    return grad(y, x, g)


def _twice(pool: Pool, given: dict[str, Any], g: Any, *_: Any) -> Any:
    x, y = _values(pool, given)
    grad(y, x, g, retain_graph=True)
    return grad(y, x, g)


def _double(pool: Pool, given: dict[str, Any], g: Any, *_: Any) -> Any:
    x, y = _values(pool, given)
    g = g.detach().requires_grad_()
    (found,) = grad(y, x, g, create_graph=True)
    return grad(found, g, torch.ones_like(found))


def _hook(pool: Pool, given: dict[str, Any], g: Any, other: Any) -> Any:
    x, y = _values(pool, given)
    y.register_hook(other)
    return grad(y, x, g)


def _prehook(pool: Pool, given: dict[str, Any], g: Any, other: Any) -> Any:
    x, y = _values(pool, given)
    y.grad_fn.register_prehook(lambda grads: (other(g), *grads[1:]))
    return grad(y, x, g)


def _saved(pool: Pool, given: dict[str, Any], g: Any, other: Any) -> Any:
    x = given["input"]
    if issubclass(type(x), torch.Tensor) and not (x.dtype.is_floating_point and _has_cells(x)):
        return _backward(pool, given, g)  # these keep PyTorch's own nodes, which crash on other saved tensors
    with saved_tensors_hooks(lambda tensor: tensor, other):
        x, y = _values(pool, given)
    return grad(y, x, g)


def _has_cells(x: torch.Tensor) -> bool:
    return x.is_nested or x.numel() > 0


def _scribble(pool: Pool, given: dict[str, Any], g: Any, other: Any) -> Any:
    x, y = _values(pool, given)
    for kept in getattr(y.grad_fn, "saved_tensors", ()):
        kept.data.fill_(127)
    return grad(y, x, g)


def _vmap(pool: Pool, given: dict[str, Any], g: Any, other: Any) -> Any:
    rest = {name: value for name, value in given.items() if name != "input"}
    x = given["input"]
    # A copy of freed memory would end the process: PyTorch does not check.
    many = x.expand(2, *x.shape) if issubclass(type(x), torch.Tensor) else x
    return torch.func.vmap(lambda x: pool(x, **rest))(many)


STEPS: dict[str, Callable[..., Any]] = {
    "forward": _forward, "backward": _backward, "double": _double, "hook": _hook, "prehook": _prehook,
    "saved": _saved, "scribble": _scribble, "vmap": _vmap, "twice": _twice,
}  # fmt: skip
