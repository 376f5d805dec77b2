"""What runs in the place of aten's max unpools and of the gradients of fractional max pools under `patch`.

PyTorch's kernels for them raise under `torch.use_deterministic_algorithms`: the unpools on every device, the
gradients on CUDA. Ours are deterministic. The overrides are at the device keys only: PyTorch's gradient of an
unpool is a gather, which is deterministic. They pass calls that our kernels do not take to PyTorch's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...kernels.plan import NoBackend
from ..errors import FAULTS, DtypeError, ShapeError, as_pytorch
from ..pools.unpool_kernels import move
from ..releases import can_call_aten
from ..tensors import DEVICES, TYPES, memory_format, shortage, unreadable
from . import gradient_overrides

Tensor = torch.Tensor
UNPOOLS = {"max_unpool2d": 2, "max_unpool3d": 3}  # their axes
_ONE_AXIS = "max_unpool1d, or max_unpool2d of width 1"  # PyTorch calls the second for the first
# aten's gradients, and the gradient of ours that adds by the same indices
FRACTIONAL = {
    "fractional_max_pool2d_backward": "adaptive_max_pool2d_backward",
    "fractional_max_pool3d_backward": "adaptive_max_pool3d_backward",
}

# The arguments of aten's operators.
ARGUMENTS = {
    "max_unpool2d": ("self", "indices", "output_size"),
    "max_unpool3d": ("self", "indices", "output_size", "stride", "padding"),
    **dict.fromkeys(FRACTIONAL, ("grad_output", "self", "kernel_size", "output_size", "indices")),
}


def unpool(name: str, aten_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the override of an unpool for a device key, for the functional and the out form."""
    axes = UNPOOLS[name]

    def override(keys: Any, x: Tensor, indices: Tensor, *rest: Any, out: Tensor | None = None) -> Tensor:
        fits = out is None or (out.dtype, out.device) == (x.dtype, x.device)
        if not gradient_overrides.depth or not fits or not _takes(x, indices, axes, *rest):
            ours = _must_be_deterministic() or not can_call_aten()  # the error that names what is wrong
            if gradient_overrides.depth and ours and (text := _fault(x, indices, axes, *rest)):
                kind = ShapeError if indices.dtype == torch.int64 else DtypeError
                raise kind(f"{name}: {text}.")
            out_argument = {} if out is None else {"out": out}
            return aten_kernel(keys, x, indices, *rest, **out_argument)  # type: ignore[no-any-return]
        try:
            called = _ONE_AXIS if axes == 2 and x.shape[-1] == rest[0][1] == 1 else name
            unpooled = move(called, x, indices, tuple(rest[0]), gather=False, check=False)
        except FAULTS as error:
            raise as_pytorch(error) from None
        if out is None:
            return unpooled
        if out.shape != unpooled.shape:
            last = unpooled.dim() == 4 and unpooled.is_contiguous(memory_format=torch.channels_last)
            form = memory_format(last and not unpooled.is_contiguous(), axes)
            out.resize_(unpooled.shape, memory_format=form)  # PyTorch's unpools do not warn either
        return out.copy_(unpooled)

    return override


def _takes(x: Tensor, indices: Tensor, axes: int, size: Sequence[int], *more: Sequence[int]) -> bool:
    """Whether our code computes the call. If not, PyTorch computes it, or raises for bad arguments."""
    if not _readable(x, indices):
        return False
    known = (
        x.is_floating_point()
        and x.dtype in TYPES
        and indices.dtype == torch.int64
        and x.device == indices.device
    )
    shapes = x.shape == indices.shape and x.dim() in (axes + 1, axes + 2) and 0 not in x.shape[-axes - 1 :]
    sizes = len(size) == axes and min(size) >= 0
    steps = all(len(sizes_of_axes) == axes for sizes_of_axes in more) and (not more or min(more[0]) > 0)
    there = x.device.type in DEVICES and x.device == indices.device
    return known and shapes and sizes and steps and there


def _must_be_deterministic() -> bool:
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled() and not warns


def _fault(x: Tensor, indices: Tensor, axes: int, size: Sequence[int], *more: Sequence[int]) -> str | None:
    """Returns what is wrong with arguments that PyTorch refuses, or None.

    PyTorch says first that the unpool is not deterministic, which is not what is wrong with such a call.
    `more` are the stride and the padding of a 3-D unpool.
    """
    shape = tuple(x.shape)
    if indices.dtype != torch.int64:
        return f"indices has dtype {indices.dtype}; it must be torch.int64"
    for values, name in zip((size, *more), ("output_size", "stride", "padding"), strict=False):
        if len(values) != axes:
            return f"{name} has {len(values)} values; it must have {axes}"
    if min(size) < 0:
        return f"output_size is {tuple(size)}; it must not be negative"
    if x.dim() not in (axes + 1, axes + 2):
        return f"input has {x.dim()} dimensions; it must have {axes + 1} or {axes + 2}"
    if shape != indices.shape:
        return f"indices has shape {tuple(indices.shape)}; it must have the shape of input, {shape}"
    if 0 in shape[1:]:
        return f"input has shape {shape}; only its first dimension may be 0"
    if more and min(more[0]) <= 0:
        return f"stride is {tuple(more[0])}; it must be positive"
    return None


def _readable(*tensors: Tensor) -> bool:
    return all(t is not None and not unreadable(t) and not shortage(t) for t in tensors)


def fractional(name: str, aten_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the override of a gradient for a device key, for the functional and the out form."""
    function = FRACTIONAL[name]

    def override(
        keys: Any,
        grad: Tensor,
        x: Tensor,
        kernel_size: Any,
        output_size: Any,
        indices: Tensor,
        grad_input: Tensor | None = None,
    ) -> Tensor:
        out_argument = {} if grad_input is None else {"grad_input": grad_input}
        if (
            gradient_overrides.depth
            and _readable(grad, x, indices)
            and gradient_overrides.refusal_of(grad) is None
            and x.numel()
        ):
            try:
                return gradient_overrides.computed(function, grad, x, False, (indices,), grad_input)
            except (NoBackend, TypeError, ValueError):
                pass  # PyTorch computes it, or raises its own error
        if (
            gradient_overrides.depth
            and grad_input is not None
            and torch._debug_has_internal_overlap(grad_input) == 1
        ):
            # PyTorch would write outside the memory of such a tensor.
            raise ShapeError(
                f"{function}: grad_input has strides {grad_input.stride()}, by which elements share memory; "
                "each must have its own."
            )
        return aten_kernel(keys, grad, x, kernel_size, output_size, indices, **out_argument)  # type: ignore[no-any-return]

    return override
