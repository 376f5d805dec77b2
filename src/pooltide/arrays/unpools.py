"""Max unpooling on NumPy arrays and its gradient, with PyTorch's names, argument order and defaults.

An unpool writes each value of `input` to the cell that its index names, and 0 to the other cells. Of equal
indices in a plane the last one counts. `output_size` is the plane of the result, or its whole shape. None
means the plane of which a pool with these windows makes the input's plane. An index outside the plane raises
IndexError. What `out` holds then is unspecified; nothing outside `out` is touched.
"""

from __future__ import annotations

from collections.abc import Sequence

from .calls import Array, gradient, unpool

Ints = int | Sequence[int]
Input = Array | Sequence[int]


def max_unpool1d(
    input: Array,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """1-D max unpooling; an index counts cells in its plane: w."""
    attributes = (kernel_size, stride, padding, output_size)
    found: Array = unpool("max_unpool1d", input, indices, attributes, out)
    return found


def max_unpool1d_backward(
    grad_output: Array,
    input: Input,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 1-D max unpooling: `grad_output` at the indices. `input` is the input or its shape."""
    attributes = (kernel_size, stride, padding, output_size)
    return gradient("max_unpool1d_backward", grad_output, input, indices, attributes, out)


def max_unpool2d(
    input: Array,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """2-D max unpooling; an index counts cells in its plane: h·W + w."""
    attributes = (kernel_size, stride, padding, output_size)
    found: Array = unpool("max_unpool2d", input, indices, attributes, out)
    return found


def max_unpool2d_backward(
    grad_output: Array,
    input: Input,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 2-D max unpooling: `grad_output` at the indices. `input` is the input or its shape."""
    attributes = (kernel_size, stride, padding, output_size)
    return gradient("max_unpool2d_backward", grad_output, input, indices, attributes, out)


def max_unpool3d(
    input: Array,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """3-D max unpooling; an index counts cells in its plane: (d·H + h)·W + w."""
    attributes = (kernel_size, stride, padding, output_size)
    found: Array = unpool("max_unpool3d", input, indices, attributes, out)
    return found


def max_unpool3d_backward(
    grad_output: Array,
    input: Input,
    indices: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 3-D max unpooling: `grad_output` at the indices. `input` is the input or its shape."""
    attributes = (kernel_size, stride, padding, output_size)
    return gradient("max_unpool3d_backward", grad_output, input, indices, attributes, out)
