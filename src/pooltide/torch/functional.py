"""Differentiable pools: the functions of torch.nn.functional with our gradients.

They take and return what PyTorch's functions do, and save less memory for the backward pass.

`python tools/printed_pages.py` prints this module from the operator pages; changes here are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

import torch

from ..problem.forwards import AdaptiveArguments, StridedArguments
from .gradients import Ints
from .pools.differentiable_pools import average, average_of, maximum
from .pools.regions import Boxes
from .pools.unpools import unpool
from .regions import region_average, region_pool

Tensor = torch.Tensor
Size = int | None | Sequence[int | None]
Pair = tuple[Tensor, Tensor]  # values and indices
Maxima = Tensor | Pair

# fmt: off
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
    "ps_roi_align",
    "ps_roi_pool",
    "roi_align",
    "roi_pool",
]


def adaptive_avg_pool1d(input: Tensor, output_size: Ints) -> Tensor:
    """1-D adaptive average pooling to a given size.

    As torch.nn.functional.adaptive_avg_pool1d. For the gradient, autograd saves only the input's shape.

    Args:
        input (tensor): What is pooled, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            bfloat16 (tensors of other dtypes go to PyTorch's function).
        output_size (int or (int,)): Size of the result.

    Returns:
        tensor: The average of each window, in `input`'s dtype.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.adaptive_avg_pool1d. If pooltide finds
            it, the error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(4.0).reshape(1, 4)
        >>> pooltide.torch.functional.adaptive_avg_pool1d(x, 2).tolist()
        [[0.5, 2.5]]
    """
    return average("adaptive_avg_pool1d", input, AdaptiveArguments(output_size))


def adaptive_avg_pool2d(input: Tensor, output_size: Size) -> Tensor:
    """2-D adaptive average pooling to a given size.

    As torch.nn.functional.adaptive_avg_pool2d. For the gradient, autograd saves only the input's shape.

    Args:
        input (tensor): What is pooled, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64, float16
            or bfloat16 (tensors of other dtypes go to PyTorch's function).
        output_size (int, None or a tuple of 2 of them): Size of the result's plane. One int is the size on
            every axis; None keeps the input's size.

    Returns:
        tensor: The average of each window, in `input`'s dtype.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.adaptive_avg_pool2d. If pooltide finds
            it, the error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 4)
        >>> pooltide.torch.functional.adaptive_avg_pool2d(x, (1, 2)).tolist()
        [[[2.5, 4.5]]]
    """
    return average("adaptive_avg_pool2d", input, AdaptiveArguments(output_size))


def adaptive_avg_pool3d(input: Tensor, output_size: Size) -> Tensor:
    """3-D adaptive average pooling to a given size.

    As torch.nn.functional.adaptive_avg_pool3d. For the gradient, autograd saves only the input's shape.

    Args:
        input (tensor): What is pooled, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or bfloat16 (tensors of other dtypes go to PyTorch's function).
        output_size (int, None or a tuple of 3 of them): Size of the result's plane. One int is the size on
            every axis; None keeps the input's size.

    Returns:
        tensor: The average of each window, in `input`'s dtype.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.adaptive_avg_pool3d. If pooltide finds
            it, the error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 2, 2)
        >>> pooltide.torch.functional.adaptive_avg_pool3d(x, 1).tolist()
        [[[[3.5]]]]
    """
    return average("adaptive_avg_pool3d", input, AdaptiveArguments(output_size))


@overload
def adaptive_max_pool1d(
    input: Tensor, output_size: Ints, return_indices: Literal[False] = False
) -> Tensor: ...
@overload
def adaptive_max_pool1d(input: Tensor, output_size: Ints, return_indices: Literal[True]) -> Pair: ...
@overload
def adaptive_max_pool1d(input: Tensor, output_size: Ints, return_indices: bool = False) -> Maxima: ...
def adaptive_max_pool1d(input: Tensor, output_size: Ints, return_indices: bool = False) -> Maxima:
    """1-D adaptive max pooling to a given size.

    As torch.nn.functional.adaptive_max_pool1d. For the gradient, autograd saves one byte per window if
    windows have at most 256 cells, else an index in the smallest integer type.

    Args:
        input (tensor): What is pooled, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            bfloat16 (tensors of other dtypes go to PyTorch's function).
        output_size (int or (int,)): Size of the result.
        return_indices (bool, default False): True: also return the index of each maximum.

    Returns:
        tensor or pair of tensors: The maximum of each window, in `input`'s dtype. With `return_indices`, a
            pair of the maxima and their int64 indices, w in their plane.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.adaptive_max_pool1d. If pooltide finds
            it, the error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.torch.functional.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[1.0, 3.0]], [[1, 3]])
    """
    return maximum("adaptive_max_pool1d", input, AdaptiveArguments(output_size), return_indices)


@overload
def adaptive_max_pool2d(
    input: Tensor, output_size: Size, return_indices: Literal[False] = False
) -> Tensor: ...
@overload
def adaptive_max_pool2d(input: Tensor, output_size: Size, return_indices: Literal[True]) -> Pair: ...
@overload
def adaptive_max_pool2d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima: ...
def adaptive_max_pool2d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima:
    """2-D adaptive max pooling to a given size.

    As torch.nn.functional.adaptive_max_pool2d. For the gradient, autograd saves one byte per window if
    windows have at most 256 cells, else an index in the smallest integer type.

    Args:
        input (tensor): What is pooled, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64, float16
            or bfloat16 (tensors of other dtypes go to PyTorch's function).
        output_size (int, None or a tuple of 2 of them): Size of the result's plane. One int is the size on
            every axis; None keeps the input's size.
        return_indices (bool, default False): True: also return the index of each maximum.

    Returns:
        tensor or pair of tensors: The maximum of each window, in `input`'s dtype. With `return_indices`, a
            pair of the maxima and their int64 indices, h * W + w in their plane.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.adaptive_max_pool2d. If pooltide finds
            it, the error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.torch.functional.adaptive_max_pool2d(x, (1, 2), return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[[5.0, 7.0]]], [[[5, 7]]])
    """
    return maximum("adaptive_max_pool2d", input, AdaptiveArguments(output_size), return_indices)


@overload
def adaptive_max_pool3d(
    input: Tensor, output_size: Size, return_indices: Literal[False] = False
) -> Tensor: ...
@overload
def adaptive_max_pool3d(input: Tensor, output_size: Size, return_indices: Literal[True]) -> Pair: ...
@overload
def adaptive_max_pool3d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima: ...
def adaptive_max_pool3d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima:
    """3-D adaptive max pooling to a given size.

    As torch.nn.functional.adaptive_max_pool3d. For the gradient, autograd saves one byte per window if
    windows have at most 256 cells, else an index in the smallest integer type.

    Args:
        input (tensor): What is pooled, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or bfloat16 (tensors of other dtypes go to PyTorch's function).
        output_size (int, None or a tuple of 3 of them): Size of the result's plane. One int is the size on
            every axis; None keeps the input's size.
        return_indices (bool, default False): True: also return the index of each maximum.

    Returns:
        tensor or pair of tensors: The maximum of each window, in `input`'s dtype. With `return_indices`, a
            pair of the maxima and their int64 indices, (d * H + h) * W + w in their plane.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.adaptive_max_pool3d. If pooltide finds
            it, the error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.torch.functional.adaptive_max_pool3d(x, 1, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[[[7.0]]]], [[[[7]]]])
    """
    return maximum("adaptive_max_pool3d", input, AdaptiveArguments(output_size), return_indices)


def avg_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True
) -> Tensor:
    """1-D average pooling.

    As torch.nn.functional.avg_pool1d. For the gradient, autograd saves only the input's shape.

    Args:
        input (tensor): What is pooled, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            bfloat16 (tensors of other dtypes go to PyTorch's function).
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Zeros at both ends of each axis, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.

    Returns:
        tensor: The average of each window, in `input`'s dtype.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.avg_pool1d. If pooltide finds it, the
            error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(4.0).reshape(1, 4)
        >>> pooltide.torch.functional.avg_pool1d(x, kernel_size=2).tolist()
        [[0.5, 2.5]]
    """
    return average(
        "avg_pool1d", input, StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad)
    )


def avg_pool2d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, out: Tensor | None = None
) -> Tensor:
    """2-D average pooling.

    As torch.nn.functional.avg_pool2d. For the gradient, autograd saves only the input's shape.

    Args:
        input (tensor): What is pooled, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64, float16
            or bfloat16 (tensors of other dtypes go to PyTorch's function).
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Zeros at both ends of each axis, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        divisor_override (int, default None): Divisor of every window, not 0. None: its number of cells.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The average of each window, in `input`'s dtype.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.avg_pool2d. If pooltide finds it, the
            error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 4)
        >>> pooltide.torch.functional.avg_pool2d(x, kernel_size=2).tolist()
        [[[2.5, 4.5]]]
    """
    return average(
        "avg_pool2d", input,
        StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override), out
    )


def avg_pool3d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, out: Tensor | None = None
) -> Tensor:
    """3-D average pooling.

    As torch.nn.functional.avg_pool3d. For the gradient, autograd saves only the input's shape.

    Args:
        input (tensor): What is pooled, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or bfloat16 (tensors of other dtypes go to PyTorch's function).
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Zeros at both ends of each axis, at most `kernel_size` /
            2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        divisor_override (int, default None): Divisor of every window, not 0. None: its number of cells.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The average of each window, in `input`'s dtype.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.avg_pool3d. If pooltide finds it, the
            error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 2, 2)
        >>> pooltide.torch.functional.avg_pool3d(x, kernel_size=2).tolist()
        [[[[3.5]]]]
    """
    return average(
        "avg_pool3d", input,
        StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override), out
    )


@overload
def max_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False
) -> Tensor: ...
@overload
def max_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, *, return_indices: Literal[True]
) -> Pair: ...
@overload
def max_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints, ceil_mode: bool,
    return_indices: Literal[True]
) -> Pair: ...
@overload
def max_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: bool = False
) -> Maxima: ...
def max_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: bool = False
) -> Maxima:
    """1-D max pooling.

    As torch.nn.functional.max_pool1d. For the gradient, autograd saves one byte per window if windows have at
    most 256 cells, else an index in the smallest integer type.

    Args:
        input (tensor): What is pooled, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            bfloat16 (tensors of other dtypes go to PyTorch's function).
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Cells at both ends of each axis, never a maximum; at most
            `kernel_size` / 2.
        dilation (int or (int,), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        return_indices (bool, default False): True: also return the index of each maximum.

    Returns:
        tensor or pair of tensors: The maximum of each window, in `input`'s dtype. With `return_indices`, a
            pair of the maxima and their int64 indices, w in their plane.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.max_pool1d. If pooltide finds it, the
            error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.torch.functional.max_pool1d(x, kernel_size=2, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[1.0, 3.0]], [[1, 3]])
    """
    return maximum(
        "max_pool1d", input, StridedArguments(kernel_size, stride, padding, dilation, ceil_mode),
        return_indices
    )


@overload
def max_pool2d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False
) -> Tensor: ...
@overload
def max_pool2d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, *, return_indices: Literal[True]
) -> Pair: ...
@overload
def max_pool2d(
    input: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints, ceil_mode: bool,
    return_indices: Literal[True]
) -> Pair: ...
@overload
def max_pool2d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: bool = False
) -> Maxima: ...
def max_pool2d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: bool = False
) -> Maxima:
    """2-D max pooling.

    As torch.nn.functional.max_pool2d. For the gradient, autograd saves one byte per window if windows have at
    most 256 cells, else an index in the smallest integer type.

    Args:
        input (tensor): What is pooled, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64, float16
            or bfloat16 (tensors of other dtypes go to PyTorch's function).
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Cells at both ends of each axis, never a maximum; at most
            `kernel_size` / 2.
        dilation (int or (int, int), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        return_indices (bool, default False): True: also return the index of each maximum.

    Returns:
        tensor or pair of tensors: The maximum of each window, in `input`'s dtype. With `return_indices`, a
            pair of the maxima and their int64 indices, h * W + w in their plane.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.max_pool2d. If pooltide finds it, the
            error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.torch.functional.max_pool2d(x, kernel_size=2, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[[5.0, 7.0]]], [[[5, 7]]])
    """
    return maximum(
        "max_pool2d", input, StridedArguments(kernel_size, stride, padding, dilation, ceil_mode),
        return_indices
    )


@overload
def max_pool3d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False
) -> Tensor: ...
@overload
def max_pool3d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, *, return_indices: Literal[True]
) -> Pair: ...
@overload
def max_pool3d(
    input: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints, ceil_mode: bool,
    return_indices: Literal[True]
) -> Pair: ...
@overload
def max_pool3d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: bool = False
) -> Maxima: ...
def max_pool3d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: bool = False
) -> Maxima:
    """3-D max pooling.

    As torch.nn.functional.max_pool3d. For the gradient, autograd saves one byte per window if windows have at
    most 256 cells, else an index in the smallest integer type.

    Args:
        input (tensor): What is pooled, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or bfloat16 (tensors of other dtypes go to PyTorch's function).
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Cells at both ends of each axis, never a maximum; at most
            `kernel_size` / 2.
        dilation (int or (int, int, int), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        return_indices (bool, default False): True: also return the index of each maximum.

    Returns:
        tensor or pair of tensors: The maximum of each window, in `input`'s dtype. With `return_indices`, a
            pair of the maxima and their int64 indices, (d * H + h) * W + w in their plane.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.max_pool3d. If pooltide finds it, the
            error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.torch.functional.max_pool3d(x, kernel_size=2, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[[[7.0]]]], [[[[7]]]])
    """
    return maximum(
        "max_pool3d", input, StridedArguments(kernel_size, stride, padding, dilation, ceil_mode),
        return_indices
    )


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    output_size: Sequence[int] | None = None
) -> Tensor:
    """1-D max unpooling: the inverse of max pooling, with zeros between the maxima.

    As torch.nn.functional.max_unpool1d. Of equal indices in a plane the last one counts, on every device.

    Args:
        input (tensor): Values to write, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            bfloat16 (tensors of other dtypes go to PyTorch's function).
        indices (tensor): The cell of each value: w in its plane of the result. They have `input`'s shape and
            dtype int32 or int64.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Padding of the max pool that is reversed.
        output_size (tuple of ints, default None): Plane of the result, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.

    Returns:
        tensor: The values of `input` at their indices, and 0 in all other cells.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.max_unpool1d. If pooltide finds it, the
            error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).
        RuntimeError: An index is outside its plane. The error is also an IndexError.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.torch.functional.max_pool1d(x, kernel_size=2, return_indices=True)
        >>> pooltide.torch.functional.max_unpool1d(values, indices, kernel_size=2).tolist()
        [[0.0, 1.0, 0.0, 3.0]]
    """
    return unpool("max_unpool1d", input, indices, (kernel_size, stride, padding, output_size))


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    output_size: Sequence[int] | None = None
) -> Tensor:
    """2-D max unpooling: the inverse of max pooling, with zeros between the maxima.

    As torch.nn.functional.max_unpool2d. Of equal indices in a plane the last one counts, on every device.

    Args:
        input (tensor): Values to write, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64,
            float16 or bfloat16 (tensors of other dtypes go to PyTorch's function).
        indices (tensor): The cell of each value: h * W + w in its plane of the result. They have `input`'s
            shape and dtype int32 or int64.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Padding of the max pool that is reversed.
        output_size (tuple of ints, default None): Plane of the result, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.

    Returns:
        tensor: The values of `input` at their indices, and 0 in all other cells.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.max_unpool2d. If pooltide finds it, the
            error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).
        RuntimeError: An index is outside its plane. The error is also an IndexError.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.torch.functional.max_pool2d(x, kernel_size=2, return_indices=True)
        >>> pooltide.torch.functional.max_unpool2d(values, indices, kernel_size=2).tolist()
        [[[0.0, 0.0, 0.0, 0.0], [0.0, 5.0, 0.0, 7.0]]]
    """
    return unpool("max_unpool2d", input, indices, (kernel_size, stride, padding, output_size))


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    output_size: Sequence[int] | None = None
) -> Tensor:
    """3-D max unpooling: the inverse of max pooling, with zeros between the maxima.

    As torch.nn.functional.max_unpool3d. Of equal indices in a plane the last one counts, on every device.

    Args:
        input (tensor): Values to write, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or bfloat16 (tensors of other dtypes go to PyTorch's function).
        indices (tensor): The cell of each value: (d * H + h) * W + w in its plane of the result. They have
            `input`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Padding of the max pool that is reversed.
        output_size (tuple of ints, default None): Plane of the result, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.

    Returns:
        tensor: The values of `input` at their indices, and 0 in all other cells.

    Raises:
        RuntimeError: An argument is wrong, as for torch.nn.functional.max_unpool3d. If pooltide finds it, the
            error is also a TypeError (wrong type or dtype) or a ValueError (wrong shape or value).
        RuntimeError: An index is outside its plane. The error is also an IndexError.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.torch.functional.max_pool3d(x, kernel_size=2, return_indices=True)
        >>> pooltide.torch.functional.max_unpool3d(values, indices, kernel_size=2).tolist()
        [[[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 7.0]]]]
    """
    return unpool("max_unpool3d", input, indices, (kernel_size, stride, padding, output_size))


def ps_roi_align(
    input: Tensor, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0, sampling_ratio: int = -1
) -> Tensor:
    """Position-sensitive RoI align: each bin samples an input channel of its own.

    As torchvision.ops.ps_roi_align, with deterministic gradients. Only `input` gets a gradient, which has
    none itself.

    Args:
        input (tensor): What is pooled, of shape (N, C, H, W) and dtype float32, float64, float16 or bfloat16.
        boxes (tensor or list of tensors): The regions, in rows (K, 5): the number of an image, then x1, y1,
            x2, y2; or a list of tensors (L, 4), one for each image. They have the dtype of the values, or
            float32. Any position is allowed (docs/regions.md).
        output_size (int or (int, int)): Rows and columns of bins in a region. One int means both.
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        sampling_ratio (int, default -1): Samples of a bin on each axis, at most 32767. 0 or less: the bin's
            size in cells, rounded up.

    Returns:
        tensor: The mean of the samples of each bin, of shape (K, C / (rows * columns), rows, columns), in
            `input`'s dtype. A bin without samples is NaN, as in torchvision.

    Raises:
        RuntimeError: An argument is wrong, or on the CPU the image of a region. The error is also a TypeError
            (wrong type or dtype), a ValueError (wrong shape or value) or an IndexError (wrong image).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(16.0).reshape(1, 2, 2, 4)
        >>> boxes = torch.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.torch.functional.ps_roi_align(x, boxes, (1, 2)).tolist()
        [[[[0.0, 9.0]]]]
    """
    return region_average("ps_roi_align", input, boxes, (output_size, spatial_scale, sampling_ratio))


def ps_roi_pool(input: Tensor, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0) -> Tensor:
    """Position-sensitive RoI pooling: each bin averages an input channel of its own.

    As torchvision.ops.ps_roi_pool, with deterministic gradients. Only `input` gets a gradient, which has none
    itself.

    Args:
        input (tensor): What is pooled, of shape (N, C, H, W) and dtype float32, float64, float16 or bfloat16.
        boxes (tensor or list of tensors): The regions, in rows (K, 5): the number of an image, then x1, y1,
            x2, y2; or a list of tensors (L, 4), one for each image. They have the dtype of the values, or
            float32. Any position is allowed (docs/regions.md).
        output_size (int or (int, int)): Rows and columns of bins in a region. One int means both.
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.

    Returns:
        tensor: The mean of the cells of each bin, of shape (K, C / (rows * columns), rows, columns), in
            `input`'s dtype. A bin without cells is 0.

    Raises:
        RuntimeError: An argument is wrong, or on the CPU the image of a region. The error is also a TypeError
            (wrong type or dtype), a ValueError (wrong shape or value) or an IndexError (wrong image).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(16.0).reshape(1, 2, 2, 4)
        >>> boxes = torch.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.torch.functional.ps_roi_pool(x, boxes, (1, 2)).tolist()
        [[[[0.0, 9.0]]]]
    """
    return region_average("ps_roi_pool", input, boxes, (output_size, spatial_scale))


def roi_align(
    input: Tensor, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0, sampling_ratio: int = -1,
    aligned: bool = False
) -> Tensor:
    """RoI align: the mean of interpolated samples in each bin of regions of interest.

    As torchvision.ops.roi_align, with deterministic gradients. Only `input` gets a gradient, which has none
    itself.

    Args:
        input (tensor): What is pooled, of shape (N, C, H, W) and dtype float32, float64, float16 or bfloat16.
        boxes (tensor or list of tensors): The regions, in rows (K, 5): the number of an image, then x1, y1,
            x2, y2; or a list of tensors (L, 4), one for each image. They have the dtype of the values, or
            float32. Any position is allowed (docs/regions.md).
        output_size (int or (int, int)): Rows and columns of bins in a region. One int means both.
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        sampling_ratio (int, default -1): Samples of a bin on each axis, at most 32767. 0 or less: the bin's
            size in cells, rounded up.
        aligned (bool, default False): True: positions are moved by -0.5, so that the centre of a cell is at a
            whole number. False: each region has at least 1 × 1 cells.

    Returns:
        tensor: The mean of the samples of each bin, of shape (K, C, rows, columns), in `input`'s dtype.

    Raises:
        RuntimeError: An argument is wrong, or on the CPU the image of a region. The error is also a TypeError
            (wrong type or dtype), a ValueError (wrong shape or value) or an IndexError (wrong image).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 1, 2, 4)
        >>> boxes = torch.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.torch.functional.roi_align(x, boxes, (1, 2)).tolist()
        [[[[2.5, 3.5]]]]
    """
    return region_average("roi_align", input, boxes, (output_size, spatial_scale, sampling_ratio, aligned))


@overload
def roi_pool(
    input: Tensor, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0,
    return_indices: Literal[False] = False
) -> Tensor: ...
@overload
def roi_pool(
    input: Tensor, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0, *,
    return_indices: Literal[True]
) -> Pair: ...
@overload
def roi_pool(
    input: Tensor, boxes: Boxes, output_size: Ints, spatial_scale: float, return_indices: Literal[True]
) -> Pair: ...
@overload
def roi_pool(
    input: Tensor, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0, return_indices: bool = False
) -> Maxima: ...
def roi_pool(
    input: Tensor, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0, return_indices: bool = False
) -> Maxima:
    """RoI pooling: the maximum of each bin of regions of interest.

    As torchvision.ops.roi_pool, with deterministic gradients. Only `input` gets a gradient, which has none
    itself.

    Args:
        input (tensor): What is pooled, of shape (N, C, H, W) and dtype float32, float64, float16 or bfloat16.
        boxes (tensor or list of tensors): The regions, in rows (K, 5): the number of an image, then x1, y1,
            x2, y2; or a list of tensors (L, 4), one for each image. They have the dtype of the values, or
            float32. Any position is allowed (docs/regions.md).
        output_size (int or (int, int)): Rows and columns of bins in a region. One int means both.
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        return_indices (bool, default False): True: also return the index of each maximum.

    Returns:
        tensor or pair of tensors: The maximum of each bin, of shape (K, C, rows, columns), in `input`'s
            dtype. With `return_indices`, a pair of the maxima and their int32 indices, h * W + w in their
            plane. A bin without cells has 0 and the index -1.

    Raises:
        RuntimeError: An argument is wrong, or on the CPU the image of a region. The error is also a TypeError
            (wrong type or dtype), a ValueError (wrong shape or value) or an IndexError (wrong image).

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 1, 2, 4)
        >>> boxes = torch.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.torch.functional.roi_pool(x, boxes, (1, 2)).tolist()
        [[[[5.0, 6.0]]]]
    """
    return region_pool("roi_pool", input, boxes, (output_size, spatial_scale), return_indices)
