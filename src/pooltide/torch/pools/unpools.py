"""Max unpooling on tensors and its gradient, with PyTorch's names, argument order and defaults.

unpool_kernels.py computes them. PyTorch's own unpool computes what something else than autograd must follow
(a compiler, torch.func, forward mode, a dispatch mode, a subclass, autocast), and what our rules refuse but
PyTorch takes. An object or a mode with `__torch_function__` gets the call first.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import handle_torch_function, has_torch_function_unary

from ...operators.binding import bind
from ...operators.catalog import operators
from ...operators.plain import kinds, plain, plain_shape
from ...operators.window_rules import unpooled_plane
from ..errors import FAULTS, ShapeError, as_pytorch, joined
from ..gradients import Input, may_skip_dispatcher, tracing
from ..tensors import DEVICES, arrays_on, check_memory, is_tensor, shortage
from .unpool_kernels import Plane, flat_indices, move, move_by_operators

Tensor = torch.Tensor
# Looked up at import: a program may later put our functions in the place of PyTorch's.
PYTORCH = {name: getattr(F, name) for name in ("max_unpool1d", "max_unpool2d", "max_unpool3d")}


class _Unpool(torch.autograd.Function):
    """An unpool that only autograd follows. PyTorch's gradient is contiguous, so is ours."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, indices: Tensor, name: str, plane: Plane, attributes: tuple[Any, ...]
    ) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.pool_name, ctx.shape, ctx.attributes = name, tuple(x.shape), attributes
        return move(name, x, indices, plane, gather=False, check=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (indices,) = ctx.saved_tensors
        try:
            grad_input = _gather(
                f"{ctx.pool_name}_backward", grad, ctx.shape, indices, ctx.attributes, None, check=False
            )
        except FAULTS as error:
            raise as_pytorch(error) from None
        if not grad_input.numel():
            return (
                torch.empty_like(indices, dtype=grad_input.dtype),
                None,
                None,
                None,
                None,
            )  # PyTorch's strides
        return grad_input.reshape(-1).view(ctx.shape), None, None, None, None


def unpool(name: str, input: Tensor, indices: Tensor, attributes: tuple[Any, ...]) -> Tensor:
    if has_torch_function_unary(input):
        return _handled(name, input, indices, attributes)
    if torch.compiler.is_compiling() or tracing():
        return _by_pytorch(name, input, indices, attributes)
    attributes = tuple(map(plain, attributes))
    for argument, tensor in (("input", input), ("indices", indices)):
        if text := shortage(tensor):
            raise ShapeError(f"{name}: {argument} {text}")
    if not _kernel_may_read(input, indices):
        return _by_pytorch(name, input, indices, attributes)
    try:
        plane = _checked(name, None, input, indices, attributes, None)
    except (TypeError, ValueError) as error:
        return _by_pytorch_after(error, name, input, indices, attributes)
    try:
        if input.requires_grad and torch.is_grad_enabled():
            unpooled: Tensor = _Unpool.apply(input, indices, name, plane, attributes)  # type: ignore[no-untyped-call]
        else:
            unpooled = move(name, input, indices, plane, gather=False, check=True)
    except FAULTS as error:
        raise as_pytorch(error) from None
    return unpooled


def _handled(name: str, input: Any, indices: Any, attributes: tuple[Any, ...]) -> Tensor:
    """Returns what `__torch_function__` of the input or of an active mode makes of the call."""
    from .. import functional

    arguments = dict(zip(("kernel_size", "stride", "padding", "output_size"), attributes, strict=True))
    result: Tensor = handle_torch_function(getattr(functional, name), (input,), input, indices, **arguments)
    return result


def _kernel_may_read(input: Any, indices: Any) -> bool:
    """Whether our kernels can read the tensors and nothing but autograd must follow. True for non-tensors."""
    with torch.no_grad():
        if not may_skip_dispatcher(input, indices):
            return False
    if not is_tensor(input):
        return True
    kind = input.device.type
    return kind in DEVICES and 0 not in input.shape[1:] and not torch.is_autocast_enabled(kind)


def _by_pytorch(name: str, input: Tensor, indices: Tensor, attributes: tuple[Any, ...]) -> Tensor:
    if isinstance(indices, Tensor) and indices.dtype == torch.int32:
        indices = indices.long()
    theirs: Tensor = PYTORCH[name](input, indices, *attributes)
    return theirs


def _by_pytorch_after(
    error: Exception, name: str, input: Any, indices: Any, attributes: tuple[Any, ...]
) -> Tensor:
    """Returns PyTorch's result for what our rules refuse; raises with both texts if PyTorch refuses, too."""
    usual = is_tensor(input) and is_tensor(indices) and kinds(attributes) is not None
    if not usual or torch.are_deterministic_algorithms_enabled():  # PyTorch names the determinism first
        raise as_pytorch(error) from None
    try:
        return _by_pytorch(name, input, indices, attributes)
    except (TypeError, ValueError, RuntimeError, IndexError) as theirs:
        raise joined(as_pytorch(error), str(theirs)) from None


def _checked(name: str, grad: Any, input: Any, indices: Any, attributes: tuple[Any, ...], out: Any) -> Plane:
    """Returns the unpooled plane; raises for the first bad argument."""
    first = input if grad is None else grad
    device = first.device if is_tensor(first) else torch.device("cpu")
    return unpooled_plane(bind(arrays_on(device), operators()[name], grad, input, indices, attributes, out))


def _gather(
    name: str, grad: Tensor, input: Input, indices: Tensor, attributes: tuple[Any, ...], out: Any, check: bool
) -> Tensor:
    """Returns the gradient `name`; raises for the first bad argument."""
    check_memory(name, grad, indices, out)
    plane = _checked(name, grad, input, indices, attributes, out)
    if may_skip_dispatcher(grad, indices) and grad.device.type in DEVICES:
        return move(name, grad, indices, plane, True, check)
    flat, good = flat_indices(indices, plane)
    return move_by_operators(grad, torch.where(good, flat, prod(plane)), indices.shape, plane, True)


def unpool_gradient(
    name: str, grad: Tensor, input: Input, indices: Tensor, attributes: tuple[Any, ...], out: Tensor | None
) -> Tensor:
    shape = input if is_tensor(input) else plain_shape(input)
    gradient = _gather(name, grad, shape, indices, tuple(map(plain, attributes)), out, True)
    return gradient if out is None else out.copy_(gradient)
