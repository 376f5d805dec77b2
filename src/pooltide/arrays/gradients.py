"""The NumPy functions: PyTorch's names, order and defaults, on arrays of any strides.

`grad_output` is (N, C, …) or unbatched (C, …); `input` is the forward's input or its shape.
The result has `input`'s shape and `grad_output`'s dtype, and is written to `out` if given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .calls import Array, gradient

Ints = int | Sequence[int]
Input = Array | Sequence[int]
F = TypeVar("F", bound=Callable[..., Any])


def takes_indices(function: F) -> F:
    """Adds to a docstring what holds for the gradient of every max pool."""
    function.__doc__ = f"""{function.__doc__}

    `indices`, int32 or int64, have `grad_output`'s shape. An index outside the plane raises IndexError.
    What `out` holds then is unspecified; nothing outside `out` is touched.
    """
    return function


def avg_pool1d_backward(
    grad_output: Array,
    input: Input,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 1-D average pooling."""
    attributes = (kernel_size, stride, padding, ceil_mode, count_include_pad)
    return gradient("avg_pool1d_backward", grad_output, input, None, attributes, out)


def avg_pool2d_backward(
    grad_output: Array,
    input: Input,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 2-D average pooling."""
    attributes = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return gradient("avg_pool2d_backward", grad_output, input, None, attributes, out)


def avg_pool3d_backward(
    grad_output: Array,
    input: Input,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 3-D average pooling."""
    attributes = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return gradient("avg_pool3d_backward", grad_output, input, None, attributes, out)


def adaptive_avg_pool1d_backward(grad_output: Array, input: Input, *, out: Array | None = None) -> Array:
    """Gradient of 1-D adaptive average pooling."""
    return gradient("adaptive_avg_pool1d_backward", grad_output, input, None, (), out)


def adaptive_avg_pool2d_backward(grad_output: Array, input: Input, *, out: Array | None = None) -> Array:
    """Gradient of 2-D adaptive average pooling."""
    return gradient("adaptive_avg_pool2d_backward", grad_output, input, None, (), out)


def adaptive_avg_pool3d_backward(grad_output: Array, input: Input, *, out: Array | None = None) -> Array:
    """Gradient of 3-D adaptive average pooling."""
    return gradient("adaptive_avg_pool3d_backward", grad_output, input, None, (), out)


@takes_indices
def max_pool1d_backward(
    grad_output: Array,
    input: Input,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 1-D max pooling; an index counts cells in its plane: w."""
    attributes = (kernel_size, stride, padding, dilation, ceil_mode)
    return gradient("max_pool1d_backward", grad_output, input, indices, attributes, out)


@takes_indices
def max_pool2d_backward(
    grad_output: Array,
    input: Input,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 2-D max pooling; an index counts cells in its plane: h·W + w."""
    attributes = (kernel_size, stride, padding, dilation, ceil_mode)
    return gradient("max_pool2d_backward", grad_output, input, indices, attributes, out)


@takes_indices
def max_pool3d_backward(
    grad_output: Array,
    input: Input,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 3-D max pooling; an index counts cells in its plane: (d·H + h)·W + w."""
    attributes = (kernel_size, stride, padding, dilation, ceil_mode)
    return gradient("max_pool3d_backward", grad_output, input, indices, attributes, out)


@takes_indices
def adaptive_max_pool1d_backward(
    grad_output: Array, input: Input, indices: Array, *, out: Array | None = None
) -> Array:
    """Gradient of 1-D adaptive max pooling; an index counts cells in its plane: w."""
    return gradient("adaptive_max_pool1d_backward", grad_output, input, indices, (), out)


@takes_indices
def adaptive_max_pool2d_backward(
    grad_output: Array, input: Input, indices: Array, *, out: Array | None = None
) -> Array:
    """Gradient of 2-D adaptive max pooling; an index counts cells in its plane: h·W + w."""
    return gradient("adaptive_max_pool2d_backward", grad_output, input, indices, (), out)


@takes_indices
def adaptive_max_pool3d_backward(
    grad_output: Array, input: Input, indices: Array, *, out: Array | None = None
) -> Array:
    """Gradient of 3-D adaptive max pooling; an index counts cells in its plane: (d·H + h)·W + w."""
    return gradient("adaptive_max_pool3d_backward", grad_output, input, indices, (), out)
