"""Forward pools on NumPy arrays of any strides, with PyTorch's names, argument order and defaults.

A result is channels-last if its input is, else C-contiguous. With `out` the function writes the values there
and returns `out`; with return_indices `out` is a pair, for values and int64 indices. A window without cells
(dilation can step over the plane) has value -inf and PyTorch's index, which may be outside the plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..problem.forwards import AdaptiveArguments, PoolArguments, StridedArguments
from .calls import Array, forward

Ints = int | Sequence[int]
Sizes = int | Sequence[int | None] | None


def avg_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    out: Array | None = None,
) -> Array:
    """1-D average pooling."""
    pool = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad)
    return _average("avg_pool1d", input, pool, out)


def avg_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """2-D average pooling."""
    pool = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return _average("avg_pool2d", input, pool, out)


def avg_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """3-D average pooling."""
    pool = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return _average("avg_pool3d", input, pool, out)


def adaptive_avg_pool1d(input: Array, output_size: Ints, *, out: Array | None = None) -> Array:
    """1-D average pooling to a given size."""
    return _average("adaptive_avg_pool1d", input, AdaptiveArguments(output_size), out)


def adaptive_avg_pool2d(input: Array, output_size: Sizes, *, out: Array | None = None) -> Array:
    """2-D average pooling to a given size; None keeps an axis as it is."""
    return _average("adaptive_avg_pool2d", input, AdaptiveArguments(output_size), out)


def adaptive_avg_pool3d(input: Array, output_size: Sizes, *, out: Array | None = None) -> Array:
    """3-D average pooling to a given size; None keeps an axis as it is."""
    return _average("adaptive_avg_pool3d", input, AdaptiveArguments(output_size), out)


def max_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """1-D max pooling; with return_indices also the index of each maximum, flat in its plane."""
    pool = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return forward("max_pool1d", input, pool, return_indices, out)


def max_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """2-D max pooling; with return_indices also the index of each maximum, flat in its plane."""
    pool = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return forward("max_pool2d", input, pool, return_indices, out)


def max_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """3-D max pooling; with return_indices also the index of each maximum, flat in its plane."""
    pool = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return forward("max_pool3d", input, pool, return_indices, out)


def adaptive_max_pool1d(
    input: Array, output_size: Ints, return_indices: bool = False, *, out: Any = None
) -> Any:
    """1-D max pooling to a given size; with return_indices also the index of each maximum in its plane."""
    return forward("adaptive_max_pool1d", input, AdaptiveArguments(output_size), return_indices, out)


def adaptive_max_pool2d(
    input: Array, output_size: Sizes, return_indices: bool = False, *, out: Any = None
) -> Any:
    """2-D max pooling to a given size; with return_indices also the index of each maximum in its plane."""
    return forward("adaptive_max_pool2d", input, AdaptiveArguments(output_size), return_indices, out)


def adaptive_max_pool3d(
    input: Array, output_size: Sizes, return_indices: bool = False, *, out: Any = None
) -> Any:
    """3-D max pooling to a given size; with return_indices also the index of each maximum in its plane."""
    return forward("adaptive_max_pool3d", input, AdaptiveArguments(output_size), return_indices, out)


def _average(name: str, input: Array, arguments: PoolArguments, out: Array | None) -> Array:
    found: Array = forward(name, input, arguments, False, out)
    return found
