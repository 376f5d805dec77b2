"""Differentiable pools: the functions of torch.nn.functional with our gradients.

They take and return what PyTorch's functions do, and save less memory for the backward pass.
An average saves only the input's shape. A maximum saves its position: one byte per window if windows have
at most 256 cells, else an index in the smallest integer type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, cast, overload

import torch

from ..problem.forwards import AdaptiveArguments, StridedArguments
from .differentiable_pools import average, average_of, maximum
from .gradients import Ints
from .scripting import script_as_pytorchs
from .unpools import max_unpool1d, max_unpool2d, max_unpool3d

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "average_of",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]

Tensor = torch.Tensor
Size = int | None | Sequence[int | None]
Pair = tuple[Tensor, Tensor]  # values and indices
Maxima = Tensor | Pair


class StridedMaximum(Protocol):
    """The type of max_pool1d and its siblings: type checkers learn from it what a call returns."""

    @overload
    def __call__(
        self, input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
        dilation: Ints = 1, ceil_mode: bool = False, return_indices: Literal[False] = False,
    ) -> Tensor: ...  # fmt: skip
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
        dilation: Ints = 1, ceil_mode: bool = False, *, return_indices: Literal[True],
    ) -> Pair: ...  # fmt: skip
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints,
        dilation: Ints, ceil_mode: bool, return_indices: Literal[True],
    ) -> Pair: ...  # fmt: skip
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
        dilation: Ints = 1, ceil_mode: bool = False, return_indices: bool = False,
    ) -> Maxima: ...  # fmt: skip


class AdaptiveMaximum(Protocol):
    """The type of adaptive_max_pool1d and its siblings."""

    @overload
    def __call__(
        self, input: Tensor, output_size: Size, return_indices: Literal[False] = False
    ) -> Tensor: ...
    @overload
    def __call__(self, input: Tensor, output_size: Size, return_indices: Literal[True]) -> Pair: ...
    @overload
    def __call__(self, input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima: ...


def _strided(function: Callable[..., Any]) -> StridedMaximum:
    return cast(StridedMaximum, function)


def _adaptive(function: Callable[..., Any]) -> AdaptiveMaximum:
    return cast(AdaptiveMaximum, function)


def avg_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """As torch.nn.functional.avg_pool1d; the gradient needs only the input's shape."""
    pool = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad)
    return average("avg_pool1d", input, pool)


def avg_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """As torch.nn.functional.avg_pool2d; the gradient needs only the input's shape."""
    pool = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return average("avg_pool2d", input, pool, out)


def avg_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """As torch.nn.functional.avg_pool3d; the gradient needs only the input's shape."""
    pool = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return average("avg_pool3d", input, pool, out)


def adaptive_avg_pool1d(input: Tensor, output_size: Ints) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool1d; the gradient needs only the input's shape."""
    return average("adaptive_avg_pool1d", input, AdaptiveArguments(output_size))


def adaptive_avg_pool2d(input: Tensor, output_size: Size) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool2d; the gradient needs only the input's shape."""
    return average("adaptive_avg_pool2d", input, AdaptiveArguments(output_size))


def adaptive_avg_pool3d(input: Tensor, output_size: Size) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool3d; the gradient needs only the input's shape."""
    return average("adaptive_avg_pool3d", input, AdaptiveArguments(output_size))


@_strided
def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Maxima:
    """As torch.nn.functional.max_pool1d; saves one byte per window if that suffices."""
    pool = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return maximum("max_pool1d", input, pool, return_indices)


@_strided
def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Maxima:
    """As torch.nn.functional.max_pool2d; saves one byte per window if that suffices."""
    pool = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return maximum("max_pool2d", input, pool, return_indices)


@_strided
def max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Maxima:
    """As torch.nn.functional.max_pool3d; saves one byte per window if that suffices."""
    pool = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return maximum("max_pool3d", input, pool, return_indices)


@_adaptive
def adaptive_max_pool1d(input: Tensor, output_size: Ints, return_indices: bool = False) -> Maxima:
    """As torch.nn.functional.adaptive_max_pool1d; saves one byte per window if that suffices."""
    return maximum("adaptive_max_pool1d", input, AdaptiveArguments(output_size), return_indices)


@_adaptive
def adaptive_max_pool2d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima:
    """As torch.nn.functional.adaptive_max_pool2d; saves one byte per window if that suffices."""
    return maximum("adaptive_max_pool2d", input, AdaptiveArguments(output_size), return_indices)


@_adaptive
def adaptive_max_pool3d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima:
    """As torch.nn.functional.adaptive_max_pool3d; saves one byte per window if that suffices."""
    return maximum("adaptive_max_pool3d", input, AdaptiveArguments(output_size), return_indices)


script_as_pytorchs(globals())
