"""The gradients on tensors: same names, argument order and defaults as the NumPy functions.

`grad_output` is (N, C, …) or unbatched (C, …). `input` is the forward's input or its shape; the functions
use only its shape and layout. The result has `input`'s shape and memory format (`grad_output`'s memory
format if `input` is a shape) and `grad_output`'s dtype. The functions write it to `out` if given.

An index outside its plane raises IndexError. On a GPU the function waits for the GPU to find such an index.
With `check_indices=False` it does not wait: the GPU drops the index, and `index_errors` counts it.
"""

from __future__ import annotations

from torch import Tensor

from ..arrays.gradients import takes_indices
from .gradients import Input, Ints, gradient


def avg_pool1d_backward(
    grad_output: Tensor,
    input: Input,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Gradient of 1-D average pooling."""
    attributes = (kernel_size, stride, padding, ceil_mode, count_include_pad)
    return gradient("avg_pool1d_backward", grad_output, input, None, attributes, out)


def avg_pool2d_backward(
    grad_output: Tensor,
    input: Input,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Gradient of 2-D average pooling."""
    attributes = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return gradient("avg_pool2d_backward", grad_output, input, None, attributes, out)


def avg_pool3d_backward(
    grad_output: Tensor,
    input: Input,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Gradient of 3-D average pooling."""
    attributes = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return gradient("avg_pool3d_backward", grad_output, input, None, attributes, out)


def adaptive_avg_pool1d_backward(grad_output: Tensor, input: Input, *, out: Tensor | None = None) -> Tensor:
    """Gradient of 1-D adaptive average pooling."""
    return gradient("adaptive_avg_pool1d_backward", grad_output, input, None, (), out)


def adaptive_avg_pool2d_backward(grad_output: Tensor, input: Input, *, out: Tensor | None = None) -> Tensor:
    """Gradient of 2-D adaptive average pooling."""
    return gradient("adaptive_avg_pool2d_backward", grad_output, input, None, (), out)


def adaptive_avg_pool3d_backward(grad_output: Tensor, input: Input, *, out: Tensor | None = None) -> Tensor:
    """Gradient of 3-D adaptive average pooling."""
    return gradient("adaptive_avg_pool3d_backward", grad_output, input, None, (), out)


@takes_indices
def max_pool1d_backward(
    grad_output: Tensor,
    input: Input,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    *,
    out: Tensor | None = None,
    check_indices: bool = True,
) -> Tensor:
    """Gradient of 1-D max pooling; an index counts cells in its plane: w."""
    attributes = (kernel_size, stride, padding, dilation, ceil_mode)
    return gradient("max_pool1d_backward", grad_output, input, indices, attributes, out, check_indices)


@takes_indices
def max_pool2d_backward(
    grad_output: Tensor,
    input: Input,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    *,
    out: Tensor | None = None,
    check_indices: bool = True,
) -> Tensor:
    """Gradient of 2-D max pooling; an index counts cells in its plane: h·W + w."""
    attributes = (kernel_size, stride, padding, dilation, ceil_mode)
    return gradient("max_pool2d_backward", grad_output, input, indices, attributes, out, check_indices)


@takes_indices
def max_pool3d_backward(
    grad_output: Tensor,
    input: Input,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    *,
    out: Tensor | None = None,
    check_indices: bool = True,
) -> Tensor:
    """Gradient of 3-D max pooling; an index counts cells in its plane: (d·H + h)·W + w."""
    attributes = (kernel_size, stride, padding, dilation, ceil_mode)
    return gradient("max_pool3d_backward", grad_output, input, indices, attributes, out, check_indices)


@takes_indices
def adaptive_max_pool1d_backward(
    grad_output: Tensor,
    input: Input,
    indices: Tensor,
    *,
    out: Tensor | None = None,
    check_indices: bool = True,
) -> Tensor:
    """Gradient of 1-D adaptive max pooling; an index counts cells in its plane: w."""
    return gradient("adaptive_max_pool1d_backward", grad_output, input, indices, (), out, check_indices)


@takes_indices
def adaptive_max_pool2d_backward(
    grad_output: Tensor,
    input: Input,
    indices: Tensor,
    *,
    out: Tensor | None = None,
    check_indices: bool = True,
) -> Tensor:
    """Gradient of 2-D adaptive max pooling; an index counts cells in its plane: h·W + w."""
    return gradient("adaptive_max_pool2d_backward", grad_output, input, indices, (), out, check_indices)


@takes_indices
def adaptive_max_pool3d_backward(
    grad_output: Tensor,
    input: Input,
    indices: Tensor,
    *,
    out: Tensor | None = None,
    check_indices: bool = True,
) -> Tensor:
    """Gradient of 3-D adaptive max pooling; an index counts cells in its plane: (d·H + h)·W + w."""
    return gradient("adaptive_max_pool3d_backward", grad_output, input, indices, (), out, check_indices)
