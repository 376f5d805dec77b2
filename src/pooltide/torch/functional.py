"""Differentiable pools: PyTorch's forward, our gradient, and as little as possible kept in between.

A gradient of an average needs only the input's shape, so the input is not kept. A gradient of a
maximum needs where it was found: indices are kept in the smallest integer type that holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F

from .gradients import Ints, gradient
from .operators import ARRAYS, AXES
from .tensors import lies_channels_last

Tensor = torch.Tensor
Size = int | None | Sequence[int | None]


def avg_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """As torch.nn.functional.avg_pool2d; only the input's shape is kept for the gradient."""
    attributes = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return average("avg_pool2d_backward", input, *attributes)


def adaptive_avg_pool3d(input: Tensor, output_size: Size) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool3d; only the input's shape is kept for the gradient."""
    return average("adaptive_avg_pool3d_backward", input, output_size)


def adaptive_max_pool2d(
    input: Tensor, output_size: Size, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """As torch.nn.functional.adaptive_max_pool2d; small indices are kept for the gradient."""
    result, indices = _Maximum.apply(input, output_size, 2)  # type: ignore[no-untyped-call]
    return (result, indices) if return_indices else result


def adaptive_max_pool3d(
    input: Tensor, output_size: Size, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """As torch.nn.functional.adaptive_max_pool3d; small indices are kept for the gradient."""
    result, indices = _Maximum.apply(input, output_size, 3)  # type: ignore[no-untyped-call]
    return (result, indices) if return_indices else result


def average(function: str, input: Tensor, *attributes: Any) -> Tensor:
    """The average pool whose gradient `function` is."""
    result: Tensor = _Average.apply(input, function, *attributes)  # type: ignore[no-untyped-call]
    return result


def smallest_index_dtype(cells: int) -> torch.dtype:
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if cells - 1 <= torch.iinfo(dtype).max:
            return dtype
    return torch.int64


class _Average(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, function: str, *attributes: Any) -> Tensor:
        return getattr(F, function.removesuffix("_backward"))(input, *attributes)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        input, ctx.function, *attributes = inputs
        ctx.attributes = tuple(attributes) if ARRAYS[ctx.function] else ()
        ctx.shape = input.shape
        ctx.last = lies_channels_last(input, AXES[ctx.function])
        ctx.arguments = len(inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        found = gradient(
            ctx.function, grad_output, tuple(ctx.shape), None, ctx.attributes, ctx.last, within=True
        )
        return (found, *[None] * (ctx.arguments - 1))


class _Maximum(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, output_size: Size, axes: int) -> tuple[Tensor, Tensor]:
        pool = F.adaptive_max_pool2d if axes == 2 else F.adaptive_max_pool3d
        return pool(input, output_size, return_indices=True)  # type: ignore[call-overload, no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, _, ctx.axes = inputs
        _, indices = output
        ctx.shape = input.shape
        ctx.last = lies_channels_last(input, ctx.axes)
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices.to(smallest_index_dtype(prod(input.shape[-ctx.axes :]))))

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, _: Tensor) -> Any:
        (indices,) = ctx.saved_tensors
        if indices.dtype not in (torch.int32, torch.int64):
            indices = indices.to(torch.int32)
        function = f"adaptive_max_pool{ctx.axes}d_backward"
        return (
            gradient(function, grad_output, tuple(ctx.shape), indices, (), ctx.last, within=True),
            None,
            None,
        )
