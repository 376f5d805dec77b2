"""Differentiable pools: our gradient, and as little as possible kept for it.

A gradient of an average needs only the input's shape, so the input is not kept. A gradient of a
maximum needs where it was found: one byte per window tells that where windows have at most 256 cells.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from ..forward_checks import Adaptive, Strided
from ..plan import NoBackend
from . import pools
from .gradients import Ints, gradient, is_plain
from .operators import ARRAYS
from .tensors import lies_channels_last

Tensor = torch.Tensor
Size = int | None | Sequence[int | None]
Maxima = Tensor | tuple[Tensor, Tensor]


def avg_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """As torch.nn.functional.avg_pool1d; only the input's shape is kept for the gradient."""
    asked = Strided(kernel_size, stride, padding, 1, ceil_mode, count_include_pad)
    return _average("avg_pool1d", input, asked)


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
    asked = Strided(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return _average("avg_pool2d", input, asked)


def avg_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """As torch.nn.functional.avg_pool3d; only the input's shape is kept for the gradient."""
    asked = Strided(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return _average("avg_pool3d", input, asked)


def adaptive_avg_pool1d(input: Tensor, output_size: Ints) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool1d; only the input's shape is kept for the gradient."""
    return _average("adaptive_avg_pool1d", input, Adaptive(output_size))


def adaptive_avg_pool2d(input: Tensor, output_size: Size) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool2d; only the input's shape is kept for the gradient."""
    return _average("adaptive_avg_pool2d", input, Adaptive(output_size))


def adaptive_avg_pool3d(input: Tensor, output_size: Size) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool3d; only the input's shape is kept for the gradient."""
    return _average("adaptive_avg_pool3d", input, Adaptive(output_size))


def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Maxima:
    """As torch.nn.functional.max_pool1d; a byte per window is kept for the gradient."""
    return _maximum(
        "max_pool1d", input, Strided(kernel_size, stride, padding, dilation, ceil_mode), return_indices
    )


def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Maxima:
    """As torch.nn.functional.max_pool2d; a byte per window is kept for the gradient."""
    return _maximum(
        "max_pool2d", input, Strided(kernel_size, stride, padding, dilation, ceil_mode), return_indices
    )


def max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Maxima:
    """As torch.nn.functional.max_pool3d; a byte per window is kept for the gradient."""
    return _maximum(
        "max_pool3d", input, Strided(kernel_size, stride, padding, dilation, ceil_mode), return_indices
    )


def adaptive_max_pool1d(input: Tensor, output_size: Ints, return_indices: bool = False) -> Maxima:
    """As torch.nn.functional.adaptive_max_pool1d; a byte per window is kept for the gradient."""
    return _maximum("adaptive_max_pool1d", input, Adaptive(output_size), return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima:
    """As torch.nn.functional.adaptive_max_pool2d; a byte per window is kept for the gradient."""
    return _maximum("adaptive_max_pool2d", input, Adaptive(output_size), return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima:
    """As torch.nn.functional.adaptive_max_pool3d; a byte per window is kept for the gradient."""
    return _maximum("adaptive_max_pool3d", input, Adaptive(output_size), return_indices)


def average_of(function: str, input: Tensor, *attributes: Any) -> Tensor:
    """The average whose gradient `function` is, its attributes in the order of that gradient's page."""
    if ARRAYS[function]:
        kernel, stride, padding, *rest = attributes
        asked: pools.Asked = Strided(kernel, stride, padding, 1, *rest)
    else:
        asked = Adaptive(*attributes)
    return _average(function.removesuffix("_backward"), input, asked)


def _average(name: str, input: Tensor, asked: pools.Asked) -> Tensor:
    if pools.is_foreign(input):
        return pools.foreign(name, input, asked)  # type: ignore[no-any-return]
    result: Tensor = _Average.apply(input, name, asked)  # type: ignore[no-untyped-call]
    return result


def _maximum(name: str, input: Tensor, asked: pools.Asked, return_indices: bool) -> Maxima:
    if pools.is_foreign(input):
        return pools.foreign(name, input, asked, return_indices)  # type: ignore[no-any-return]
    alone = not return_indices and not (input.requires_grad and torch.is_grad_enabled())
    if alone and (plain := pools.ready_for(name, input, asked)) is not None:
        return pools.values_of(plain, input)
    ready = pools.ready_for(name, input, asked, "offsets")
    if alone and ready is not None:
        found: Tensor = pools.own(name, input, asked)
        return found
    result, *places = _Maximum.apply(input, name, asked, ready, return_indices)  # type: ignore[no-untyped-call]
    return (result, places[-1]) if return_indices else result


def smallest_index_dtype(cells: int) -> torch.dtype:
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if cells - 1 <= torch.iinfo(dtype).max:
            return dtype
    return torch.int64


class _Average(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, name: str, asked: pools.Asked) -> Tensor:
        ready = pools.ready_for(name, input, asked)
        found: Tensor = pools.own(name, input, asked) if ready is None else pools.values_of(ready, input)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        input, ctx.name, ctx.asked = inputs
        ctx.shape = input.shape
        ctx.last = lies_channels_last(input, int(ctx.name[-2]))

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        attributes = pools.attributes(ctx.name, ctx.asked)
        function, shape = sys.intern(f"{ctx.name}_backward"), tuple(ctx.shape)  # shortcuts know it by address
        found = gradient(function, grad_output, shape, None, attributes, ctx.last, within=True)
        return found, None, None


class _Maximum(torch.autograd.Function):
    """Values and what is kept of their places; then int64 indices if asked for."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor, name: str, asked: pools.Asked, ready: pools.Ready | None, return_indices: bool
    ) -> tuple[Tensor, ...]:
        if ready is not None and ready.kernel is not None and not return_indices:
            return pools.maxima_of(ready, input)
        if not return_indices:
            input = pools.cast(name, input, asked)
        plain = pools.ready_for(name, input, asked, "indices")
        found = pools.own(name, input, asked, True) if plain is None else pools.maxima_of(plain, input)
        values, indices = found
        if ready is None:
            kept = indices.to(smallest_index_dtype(prod(input.shape[-int(name[-2]) :])))
        else:
            kept = pools.offsets_from(ready, indices)
        return (values, kept, indices) if return_indices else (values, kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, ctx.name, ctx.asked, ctx.ready, _ = inputs
        _, kept, *indices = output
        ctx.shape = input.shape
        ctx.last = lies_channels_last(input, int(ctx.name[-2]))
        ctx.mark_non_differentiable(kept, *indices)
        ctx.save_for_backward(kept)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, *_: Tensor) -> Any:
        (kept,) = ctx.saved_tensors
        function, shape = sys.intern(f"{ctx.name}_backward"), tuple(ctx.shape)  # shortcuts know it by address
        if ctx.ready is not None and is_plain(grad_output, kept):
            try:
                return pools.gradient_from(ctx.ready, function, grad_output, kept, shape, ctx.last), *[
                    None
                ] * 4
            except NoBackend:
                pass  # some backends read no offsets
        if ctx.ready is not None:
            kept = pools.indices_from(ctx.ready, kept)
        elif kept.dtype not in (torch.int32, torch.int64):
            kept = kept.to(torch.int32)
        attributes = pools.attributes(ctx.name, ctx.asked)
        return gradient(function, grad_output, shape, kept, attributes, ctx.last, within=True), *[None] * 4
