"""Second derivatives: the derivatives of our gradients with respect to grad_output.

The gradient of an average is linear in grad_output; its derivative is the average itself.
The gradient of a maximum scatters to indices; its derivative gathers from them.
`register` adds both to the operators. `differentiable` calls an operator; under `torch.func` and forward
mode, which need an autograd function, it calls `Gradient` instead.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.autograd import forward_ad

from ..tensors import check_memory
from . import sharding
from .custom_operators import AXES, FUNCTIONS, split

Tensor = torch.Tensor


class Gradient(torch.autograd.Function):
    """Calls the operator named by the first argument, in a form that torch.func can transform."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: str, grad_output: Tensor, *rest: Any) -> Tensor:
        result: Tensor = getattr(torch.ops.pooltide, function).default(grad_output, *rest)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        function, _, *rest = inputs
        _save(ctx, function, inputs[1:])
        indices = split(function, rest[1:])[0]
        ctx.rest = [None if value is indices and indices is not None else value for value in rest]
        ctx.save_for_forward(*([] if indices is None else [indices]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, *_backward(ctx, grad)


class ForwardGradient(Gradient):
    """Adds the derivative in forward mode, which torch.compile refuses to trace."""

    @staticmethod
    def jvp(ctx: Any, _: Any, tangent: Tensor, *__: Any) -> Tensor:
        """Returns the same gradient of the tangent: a gradient is linear in grad_output."""
        plane, *rest = ctx.rest
        operands = [*ctx.saved_tensors, *rest[1:]] if ctx.saved_tensors else rest
        return Gradient.forward(ctx.function, tangent, plane, *operands)


def differentiable(function: str, *arguments: Any) -> Tensor:
    """Calls the operator `function` so that autograd and all active transforms can follow."""
    if not torch.compiler.is_compiling():
        sharding.add_rules()
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        node = Gradient if torch.compiler.is_compiling() else ForwardGradient
        gradient: Tensor = node.apply(function, *arguments)  # type: ignore[no-untyped-call]
    else:
        gradient = getattr(torch.ops.pooltide, function).default(*arguments)
    return gradient


def register(library: torch.library.Library) -> None:
    """Adds the derivatives to the operators in `library`."""
    for function in FUNCTIONS:
        torch.library.register_autograd(
            f"pooltide::{function}",
            _backward,
            setup_context=lambda ctx, inputs, output, function=function: _save(ctx, function, inputs),
            lib=library,
        )


def _save(ctx: Any, function: str, arguments: Any) -> None:
    """Saves in `ctx` what `_backward` needs from the arguments of the operator."""
    grad_output, _, *rest = arguments
    indices, ctx.attributes, *_ = split(function, rest)
    ctx.function, ctx.axes = function, AXES[function]
    ctx.outputs = grad_output.shape[-ctx.axes :]
    ctx.arguments = len(arguments)
    ctx.save_for_backward(*([] if indices is None else [indices]))


def _backward(ctx: Any, grad: Tensor) -> Any:
    from .. import functional

    if ctx.saved_tensors:
        (indices,) = ctx.saved_tensors
        if not torch.compiler.is_compiling():
            check_memory(ctx.function, grad, indices)
        # flatten fails under is_grads_batched, and -1 without an image
        rows = grad.reshape(*grad.shape[: -ctx.axes], prod(grad.shape[-ctx.axes :]))
        derivative = rows.gather(-1, indices.flatten(-ctx.axes).long()).view(indices.shape)
    elif ctx.attributes:
        kernel, stride, *rest = ctx.attributes
        derivative = functional.average_of(ctx.function, grad, kernel, stride or None, *rest)
    else:
        derivative = functional.average_of(ctx.function, grad, ctx.outputs)
    return derivative, *[None] * (ctx.arguments - 1)
