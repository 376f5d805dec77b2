"""The NumPy functions: PyTorch's names, order and defaults, on arrays of any strides.

`python tools/printed_pages.py` prints this module from the operator pages; changes here are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..problem.forwards import AdaptiveArguments, StridedArguments
from .array_calls import Array, average, forward, gradient, unpool
from .region_calls import Boxes, region_average, region_gradient, region_pool

Ints = int | Sequence[int]
Sizes = int | Sequence[int | None] | None
Input = Array | Sequence[int]

# fmt: off
__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d",
    "adaptive_avg_pool3d_backward",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_backward",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_backward",
    "avg_pool1d",
    "avg_pool1d_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "avg_pool3d",
    "avg_pool3d_backward",
    "max_pool1d",
    "max_pool1d_backward",
    "max_pool2d",
    "max_pool2d_backward",
    "max_pool3d",
    "max_pool3d_backward",
    "max_unpool1d",
    "max_unpool1d_backward",
    "max_unpool2d",
    "max_unpool2d_backward",
    "max_unpool3d",
    "max_unpool3d_backward",
    "ps_roi_align",
    "ps_roi_align_backward",
    "ps_roi_pool",
    "ps_roi_pool_backward",
    "roi_align",
    "roi_align_backward",
    "roi_pool",
    "roi_pool_backward",
]


def adaptive_avg_pool1d(input: Array, output_size: Ints, *, out: Array | None = None) -> Array:
    """1-D adaptive average pooling to a given size.

    Args:
        input (array): What is pooled, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            ml_dtypes.bfloat16.
        output_size (int or (int,)): Size of the result.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The average of each window, in `input`'s dtype; channels-last if `input` is, else C-contiguous.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `output_size` has the wrong number of ints, or an int that is too small; the result would have
            2**63 bytes or more; `out` does not have the result's shape; cells of `out` share memory; `out` is
            read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(4.0).reshape(1, 4)
        >>> pooltide.adaptive_avg_pool1d(x, 2).tolist()
        [[0.5, 2.5]]
    """
    return average("adaptive_avg_pool1d", input, AdaptiveArguments(output_size), out)


def adaptive_avg_pool1d_backward(grad_output: Array, input: Input, *, out: Array | None = None) -> Array:
    """Gradient of 1-D adaptive average pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `adaptive_avg_pool1d`, of shape (N, C, W) or (C, W) and
            dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `adaptive_avg_pool1d`, or its shape. The values are not read.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `grad_output`, `input` or `out` has no cells on a
            spatial axis; `input` and `out` have different shapes; `input` and `grad_output` differ in N or C;
            cells of `out` share memory; `out` is read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> grad_output = np.ones((1, 2))
        >>> pooltide.adaptive_avg_pool1d_backward(grad_output, (1, 4)).tolist()
        [[0.5, 0.5, 0.5, 0.5]]
    """
    return gradient("adaptive_avg_pool1d_backward", grad_output, input, None, (), out)


def adaptive_avg_pool2d(input: Array, output_size: Sizes, *, out: Array | None = None) -> Array:
    """2-D adaptive average pooling to a given size.

    Args:
        input (array): What is pooled, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64, float16
            or ml_dtypes.bfloat16.
        output_size (int, None or a tuple of 2 of them): Size of the result's plane. One int is the size on
            every axis; None keeps the input's size.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The average of each window, in `input`'s dtype; channels-last if `input` is, else C-contiguous.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `output_size` has the wrong number of ints, or an int that is too small; the result would have
            2**63 bytes or more; `out` does not have the result's shape; cells of `out` share memory; `out` is
            read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 4)
        >>> pooltide.adaptive_avg_pool2d(x, (1, 2)).tolist()
        [[[2.5, 4.5]]]
    """
    return average("adaptive_avg_pool2d", input, AdaptiveArguments(output_size), out)


def adaptive_avg_pool2d_backward(grad_output: Array, input: Input, *, out: Array | None = None) -> Array:
    """Gradient of 2-D adaptive average pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `adaptive_avg_pool2d`, of shape (N, C, H, W) or (C, H,
            W) and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `adaptive_avg_pool2d`, or its shape. The values are not read.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `input` and `out` have different shapes; `grad_output` or `input` has a rank that is not
            listed above; `input` and `grad_output` have different ranks; `grad_output` or `input` has no
            cells on a spatial axis; `input` and `grad_output` differ in N or C; cells of `out` share memory;
            `out` is read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> grad_output = np.ones((1, 1, 2))
        >>> pooltide.adaptive_avg_pool2d_backward(grad_output, (1, 2, 4)).tolist()
        [[[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]]
    """
    return gradient("adaptive_avg_pool2d_backward", grad_output, input, None, (), out)


def adaptive_avg_pool3d(input: Array, output_size: Sizes, *, out: Array | None = None) -> Array:
    """3-D adaptive average pooling to a given size.

    Args:
        input (array): What is pooled, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or ml_dtypes.bfloat16.
        output_size (int, None or a tuple of 3 of them): Size of the result's plane. One int is the size on
            every axis; None keeps the input's size.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The average of each window, in `input`'s dtype; channels-last if `input` is, else C-contiguous.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `output_size` has the wrong number of ints, or an int that is too small; the result would have
            2**63 bytes or more; `out` does not have the result's shape; cells of `out` share memory; `out` is
            read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 2, 2)
        >>> pooltide.adaptive_avg_pool3d(x, 1).tolist()
        [[[[3.5]]]]
    """
    return average("adaptive_avg_pool3d", input, AdaptiveArguments(output_size), out)


def adaptive_avg_pool3d_backward(grad_output: Array, input: Input, *, out: Array | None = None) -> Array:
    """Gradient of 3-D adaptive average pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `adaptive_avg_pool3d`, of shape (N, C, D, H, W) or (C,
            D, H, W) and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `adaptive_avg_pool3d`, or its shape. The values are not read.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `grad_output` or `input` has no cells on a spatial
            axis; `input` and `out` have different shapes; `input` and `grad_output` differ in N or C; cells
            of `out` share memory; `out` is read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> grad_output = np.ones((1, 1, 1, 1))
        >>> pooltide.adaptive_avg_pool3d_backward(grad_output, (1, 2, 2, 2)).tolist()
        [[[[0.125, 0.125], [0.125, 0.125]], [[0.125, 0.125], [0.125, 0.125]]]]
    """
    return gradient("adaptive_avg_pool3d_backward", grad_output, input, None, (), out)


def adaptive_max_pool1d(
    input: Array, output_size: Ints, return_indices: bool = False, *, out: Any = None
) -> Any:
    """1-D adaptive max pooling to a given size.

    Args:
        input (array): What is pooled, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            ml_dtypes.bfloat16.
        output_size (int or (int,)): Size of the result.
        return_indices (bool, default False): True: also return the index of each maximum.
        out (array or pair of arrays, default None): Receives the result (its shape, dtype, any strides). With
            `return_indices`, a pair, the second for the int64 indices. None: new arrays.

    Returns:
        array or pair of arrays: The maximum of each window, in `input`'s dtype; channels-last if `input` is,
            else C-contiguous. With `return_indices`, a pair of the maxima and their int64 indices, w in their
            plane. `out` if it is not None. A window without cells (dilation can step over the plane) has the
            value -inf and PyTorch's index, which may be outside the plane.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `output_size` has the wrong number of ints, or an int that is too small; the result would have
            2**63 bytes or more; `out` does not have the result's shape; cells of `out` share memory; `out` is
            read-only; the two arrays of `out` share memory.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[1.0, 3.0]], [[1, 3]])
    """
    return forward("adaptive_max_pool1d", input, AdaptiveArguments(output_size), return_indices, out)


def adaptive_max_pool1d_backward(
    grad_output: Array, input: Input, indices: Array, *, out: Array | None = None
) -> Array:
    """Gradient of 1-D adaptive max pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `adaptive_max_pool1d`, of shape (N, C, W) or (C, W) and
            dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `adaptive_max_pool1d`, or its shape. The values are not read.
        indices (array): The indices that `adaptive_max_pool1d` returns: w of each maximum in its plane of
            `input`. They have `grad_output`'s shape and dtype int32 or int64.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `grad_output` and `indices` have
            different shapes; `input` and `out` have different shapes; `input` and `grad_output` differ in N
            or C; `grad_output` or `input` has a negative size; cells of `out` share memory; `out` is
            read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> pooltide.adaptive_max_pool1d_backward(np.ones_like(values), x, indices).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """
    return gradient("adaptive_max_pool1d_backward", grad_output, input, indices, (), out)


def adaptive_max_pool2d(
    input: Array, output_size: Sizes, return_indices: bool = False, *, out: Any = None
) -> Any:
    """2-D adaptive max pooling to a given size.

    Args:
        input (array): What is pooled, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64, float16
            or ml_dtypes.bfloat16.
        output_size (int, None or a tuple of 2 of them): Size of the result's plane. One int is the size on
            every axis; None keeps the input's size.
        return_indices (bool, default False): True: also return the index of each maximum.
        out (array or pair of arrays, default None): Receives the result (its shape, dtype, any strides). With
            `return_indices`, a pair, the second for the int64 indices. None: new arrays.

    Returns:
        array or pair of arrays: The maximum of each window, in `input`'s dtype; channels-last if `input` is,
            else C-contiguous. With `return_indices`, a pair of the maxima and their int64 indices, h * W + w
            in their plane. `out` if it is not None. A window without cells (dilation can step over the plane)
            has the value -inf and PyTorch's index, which may be outside the plane.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `output_size` has the wrong number of ints, or an int that is too small; the result would have
            2**63 bytes or more; `out` does not have the result's shape; cells of `out` share memory; `out` is
            read-only; the two arrays of `out` share memory.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.adaptive_max_pool2d(x, (1, 2), return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[[5.0, 7.0]]], [[[5, 7]]])
    """
    return forward("adaptive_max_pool2d", input, AdaptiveArguments(output_size), return_indices, out)


def adaptive_max_pool2d_backward(
    grad_output: Array, input: Input, indices: Array, *, out: Array | None = None
) -> Array:
    """Gradient of 2-D adaptive max pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `adaptive_max_pool2d`, of shape (N, C, H, W) or (C, H,
            W) and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `adaptive_max_pool2d`, or its shape. The values are not read.
        indices (array): The indices that `adaptive_max_pool2d` returns: h * W + w of each maximum in its
            plane of `input`. They have `grad_output`'s shape and dtype int32 or int64.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `grad_output` and `indices` have
            different shapes; `input` and `out` have different shapes; `input` and `grad_output` differ in N
            or C; `grad_output` or `input` has a negative size; cells of `out` share memory; `out` is
            read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.adaptive_max_pool2d(x, (1, 2), return_indices=True)
        >>> pooltide.adaptive_max_pool2d_backward(np.ones_like(values), x, indices).tolist()
        [[[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]]
    """
    return gradient("adaptive_max_pool2d_backward", grad_output, input, indices, (), out)


def adaptive_max_pool3d(
    input: Array, output_size: Sizes, return_indices: bool = False, *, out: Any = None
) -> Any:
    """3-D adaptive max pooling to a given size.

    Args:
        input (array): What is pooled, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or ml_dtypes.bfloat16.
        output_size (int, None or a tuple of 3 of them): Size of the result's plane. One int is the size on
            every axis; None keeps the input's size.
        return_indices (bool, default False): True: also return the index of each maximum.
        out (array or pair of arrays, default None): Receives the result (its shape, dtype, any strides). With
            `return_indices`, a pair, the second for the int64 indices. None: new arrays.

    Returns:
        array or pair of arrays: The maximum of each window, in `input`'s dtype; channels-last if `input` is,
            else C-contiguous. With `return_indices`, a pair of the maxima and their int64 indices, (d * H +
            h) * W + w in their plane. `out` if it is not None. A window without cells (dilation can step over
            the plane) has the value -inf and PyTorch's index, which may be outside the plane.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `output_size` has the wrong number of ints, or an int that is too small; the result would have
            2**63 bytes or more; `out` does not have the result's shape; cells of `out` share memory; `out` is
            read-only; the two arrays of `out` share memory.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.adaptive_max_pool3d(x, 1, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[[[7.0]]]], [[[[7]]]])
    """
    return forward("adaptive_max_pool3d", input, AdaptiveArguments(output_size), return_indices, out)


def adaptive_max_pool3d_backward(
    grad_output: Array, input: Input, indices: Array, *, out: Array | None = None
) -> Array:
    """Gradient of 3-D adaptive max pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `adaptive_max_pool3d`, of shape (N, C, D, H, W) or (C,
            D, H, W) and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `adaptive_max_pool3d`, or its shape. The values are not read.
        indices (array): The indices that `adaptive_max_pool3d` returns: (d * H + h) * W + w of each maximum
            in its plane of `input`. They have `grad_output`'s shape and dtype int32 or int64.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `grad_output` and `indices` have
            different shapes; `input` and `out` have different shapes; `input` and `grad_output` differ in N
            or C; `grad_output` or `input` has a negative size; cells of `out` share memory; `out` is
            read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.adaptive_max_pool3d(x, 1, return_indices=True)
        >>> pooltide.adaptive_max_pool3d_backward(np.ones_like(values), x, indices).tolist()
        [[[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]]
    """
    return gradient("adaptive_max_pool3d_backward", grad_output, input, indices, (), out)


def avg_pool1d(
    input: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, *, out: Array | None = None
) -> Array:
    """1-D average pooling.

    Args:
        input (array): What is pooled, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            ml_dtypes.bfloat16.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Zeros at both ends of each axis, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The average of each window, in `input`'s dtype; channels-last if `input` is, else C-contiguous.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `kernel_size`, `stride` or `padding` has the wrong number of ints, or an int that is too small;
            `padding` is more than half of `kernel_size`; no window fits into `input`; the result would have
            2**63 bytes or more; `out` does not have the result's shape; cells of `out` share memory; `out` is
            read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(4.0).reshape(1, 4)
        >>> pooltide.avg_pool1d(x, kernel_size=2).tolist()
        [[0.5, 2.5]]
    """
    return average(
        "avg_pool1d", input, StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad),
        out
    )


def avg_pool1d_backward(
    grad_output: Array, input: Input, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, *, out: Array | None = None
) -> Array:
    """Gradient of 1-D average pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `avg_pool1d`, of shape (N, C, W) or (C, W) and dtype
            float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `avg_pool1d`, or its shape. The values are not read.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Padding of `avg_pool1d`, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `kernel_size`, `stride` or `padding` has the wrong
            number of ints, or an int that is too small; `padding` is more than half of `kernel_size`;
            `grad_output`, `input` or `out` has no cells on a spatial axis; `input` and `out` have different
            shapes; `input` and `grad_output` differ in N or C; `grad_output` does not have the plane that
            `avg_pool1d` makes of `input`; cells of `out` share memory; `out` is read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> grad_output = np.ones((1, 2))
        >>> pooltide.avg_pool1d_backward(grad_output, (1, 4), kernel_size=2).tolist()
        [[0.5, 0.5, 0.5, 0.5]]
    """
    return gradient(
        "avg_pool1d_backward", grad_output, input, None,
        (kernel_size, stride, padding, ceil_mode, count_include_pad), out
    )


def avg_pool2d(
    input: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, out: Array | None = None
) -> Array:
    """2-D average pooling.

    Args:
        input (array): What is pooled, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64, float16
            or ml_dtypes.bfloat16.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Zeros at both ends of each axis, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        divisor_override (int, default None): Divisor of every window, not 0. None: its number of cells.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The average of each window, in `input`'s dtype; channels-last if `input` is, else C-contiguous.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `kernel_size`, `stride` or `padding` has the wrong number of ints, or an int that is too small;
            `padding` is more than half of `kernel_size`; no window fits into `input`; the result would have
            2**63 bytes or more; `out` does not have the result's shape; cells of `out` share memory;
            `divisor_override` is 0; `out` is read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 4)
        >>> pooltide.avg_pool2d(x, kernel_size=2).tolist()
        [[[2.5, 4.5]]]
    """
    return average(
        "avg_pool2d", input,
        StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override), out
    )


def avg_pool2d_backward(
    grad_output: Array, input: Input, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    out: Array | None = None
) -> Array:
    """Gradient of 2-D average pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `avg_pool2d`, of shape (N, C, H, W) or (C, H, W) and
            dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `avg_pool2d`, or its shape. The values are not read.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Padding of `avg_pool2d`, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        divisor_override (int, default None): Divisor of every window, not 0. None: its number of cells.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `kernel_size`, `stride` or `padding` has the wrong
            number of ints, or an int that is too small; `padding` is more than half of `kernel_size`;
            `grad_output`, `input` or `out` has no cells on a spatial axis; `input` and `out` have different
            shapes; `input` and `grad_output` differ in N or C; `grad_output` does not have the plane that
            `avg_pool2d` makes of `input`; cells of `out` share memory; `divisor_override` is 0; `out` is
            read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> grad_output = np.ones((1, 1, 2))
        >>> pooltide.avg_pool2d_backward(grad_output, (1, 2, 4), kernel_size=2).tolist()
        [[[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]]
    """
    return gradient(
        "avg_pool2d_backward", grad_output, input, None,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), out
    )


def avg_pool3d(
    input: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, out: Array | None = None
) -> Array:
    """3-D average pooling.

    Args:
        input (array): What is pooled, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or ml_dtypes.bfloat16.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Zeros at both ends of each axis, at most `kernel_size` /
            2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        divisor_override (int, default None): Divisor of every window, not 0. None: its number of cells.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The average of each window, in `input`'s dtype; channels-last if `input` is, else C-contiguous.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `kernel_size`, `stride` or `padding` has the wrong number of ints, or an int that is too small;
            `padding` is more than half of `kernel_size`; `input` is shorter than `kernel_size` on an axis; no
            window fits into `input`; the result would have 2**63 bytes or more; `out` does not have the
            result's shape; cells of `out` share memory; `divisor_override` is 0; `out` is read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 2, 2)
        >>> pooltide.avg_pool3d(x, kernel_size=2).tolist()
        [[[[3.5]]]]
    """
    return average(
        "avg_pool3d", input,
        StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override), out
    )


def avg_pool3d_backward(
    grad_output: Array, input: Input, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    out: Array | None = None
) -> Array:
    """Gradient of 3-D average pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `avg_pool3d`, of shape (N, C, D, H, W) or (C, D, H, W)
            and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `avg_pool3d`, or its shape. The values are not read.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Padding of `avg_pool3d`, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        divisor_override (int, default None): Divisor of every window, not 0. None: its number of cells.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `kernel_size`, `stride` or `padding` has the wrong
            number of ints, or an int that is too small; `padding` is more than half of `kernel_size`;
            `grad_output`, `input` or `out` has no cells on a spatial axis; `input` and `out` have different
            shapes; `input` and `grad_output` differ in N or C; `grad_output` does not have the plane that
            `avg_pool3d` makes of `input`; cells of `out` share memory; `divisor_override` is 0; `out` is
            read-only.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> grad_output = np.ones((1, 1, 1, 1))
        >>> pooltide.avg_pool3d_backward(grad_output, (1, 2, 2, 2), kernel_size=2).tolist()
        [[[[0.125, 0.125], [0.125, 0.125]], [[0.125, 0.125], [0.125, 0.125]]]]
    """
    return gradient(
        "avg_pool3d_backward", grad_output, input, None,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), out
    )


def max_pool1d(
    input: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, out: Any = None
) -> Any:
    """1-D max pooling.

    Args:
        input (array): What is pooled, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            ml_dtypes.bfloat16.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Cells at both ends of each axis, never a maximum; at most
            `kernel_size` / 2.
        dilation (int or (int,), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        return_indices (bool, default False): True: also return the index of each maximum.
        out (array or pair of arrays, default None): Receives the result (its shape, dtype, any strides). With
            `return_indices`, a pair, the second for the int64 indices. None: new arrays.

    Returns:
        array or pair of arrays: The maximum of each window, in `input`'s dtype; channels-last if `input` is,
            else C-contiguous. With `return_indices`, a pair of the maxima and their int64 indices, w in their
            plane. `out` if it is not None. A window without cells (dilation can step over the plane) has the
            value -inf and PyTorch's index, which may be outside the plane.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `kernel_size`, `stride`, `padding` or `dilation` has the wrong number of ints, or an int that is
            too small; `padding` is more than half of `kernel_size`; no window fits into `input`; the result
            would have 2**63 bytes or more; `out` does not have the result's shape; cells of `out` share
            memory; `out` is read-only; the two arrays of `out` share memory.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.max_pool1d(x, kernel_size=2, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[1.0, 3.0]], [[1, 3]])
    """
    return forward(
        "max_pool1d", input, StridedArguments(kernel_size, stride, padding, dilation, ceil_mode),
        return_indices, out
    )


def max_pool1d_backward(
    grad_output: Array, input: Input, indices: Array, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, dilation: Ints = 1, ceil_mode: bool = False, *, out: Array | None = None
) -> Array:
    """Gradient of 1-D max pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `max_pool1d`, of shape (N, C, W) or (C, W) and dtype
            float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `max_pool1d`, or its shape. The values are not read.
        indices (array): The indices that `max_pool1d` returns: w of each maximum in its plane of `input`.
            They have `grad_output`'s shape and dtype int32 or int64.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Padding of `max_pool1d`, at most `kernel_size` / 2.
        dilation (int or (int,), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `kernel_size`, `stride`, `padding` or
            `dilation` has the wrong number of ints, or an int that is too small; `padding` is more than half
            of `kernel_size`; `grad_output`, `input` or `out` has no cells on a spatial axis; `grad_output`
            and `indices` have different shapes; `input` and `out` have different shapes; `input` and
            `grad_output` differ in N or C; `grad_output` or `input` has a negative size; `grad_output` does
            not have the plane that `max_pool1d` makes of `input`; cells of `out` share memory; `out` is
            read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.max_pool1d(x, kernel_size=2, return_indices=True)
        >>> pooltide.max_pool1d_backward(np.ones_like(values), x, indices, kernel_size=2).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """
    return gradient(
        "max_pool1d_backward", grad_output, input, indices,
        (kernel_size, stride, padding, dilation, ceil_mode), out
    )


def max_pool2d(
    input: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, out: Any = None
) -> Any:
    """2-D max pooling.

    Args:
        input (array): What is pooled, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64, float16
            or ml_dtypes.bfloat16.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Cells at both ends of each axis, never a maximum; at most
            `kernel_size` / 2.
        dilation (int or (int, int), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        return_indices (bool, default False): True: also return the index of each maximum.
        out (array or pair of arrays, default None): Receives the result (its shape, dtype, any strides). With
            `return_indices`, a pair, the second for the int64 indices. None: new arrays.

    Returns:
        array or pair of arrays: The maximum of each window, in `input`'s dtype; channels-last if `input` is,
            else C-contiguous. With `return_indices`, a pair of the maxima and their int64 indices, h * W + w
            in their plane. `out` if it is not None. A window without cells (dilation can step over the plane)
            has the value -inf and PyTorch's index, which may be outside the plane.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `kernel_size`, `stride`, `padding` or `dilation` has the wrong number of ints, or an int that is
            too small; `padding` is more than half of `kernel_size`; no window fits into `input`; the result
            would have 2**63 bytes or more; `out` does not have the result's shape; cells of `out` share
            memory; `out` is read-only; the two arrays of `out` share memory.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.max_pool2d(x, kernel_size=2, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[[5.0, 7.0]]], [[[5, 7]]])
    """
    return forward(
        "max_pool2d", input, StridedArguments(kernel_size, stride, padding, dilation, ceil_mode),
        return_indices, out
    )


def max_pool2d_backward(
    grad_output: Array, input: Input, indices: Array, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, dilation: Ints = 1, ceil_mode: bool = False, *, out: Array | None = None
) -> Array:
    """Gradient of 2-D max pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `max_pool2d`, of shape (N, C, H, W) or (C, H, W) and
            dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `max_pool2d`, or its shape. The values are not read.
        indices (array): The indices that `max_pool2d` returns: h * W + w of each maximum in its plane of
            `input`. They have `grad_output`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Padding of `max_pool2d`, at most `kernel_size` / 2.
        dilation (int or (int, int), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `kernel_size`, `stride`, `padding` or
            `dilation` has the wrong number of ints, or an int that is too small; `padding` is more than half
            of `kernel_size`; `grad_output`, `input` or `out` has no cells on a spatial axis; `grad_output`
            and `indices` have different shapes; `input` and `out` have different shapes; `input` and
            `grad_output` differ in N or C; `grad_output` does not have the plane that `max_pool2d` makes of
            `input`; cells of `out` share memory; `out` is read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.max_pool2d(x, kernel_size=2, return_indices=True)
        >>> pooltide.max_pool2d_backward(np.ones_like(values), x, indices, kernel_size=2).tolist()
        [[[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]]
    """
    return gradient(
        "max_pool2d_backward", grad_output, input, indices,
        (kernel_size, stride, padding, dilation, ceil_mode), out
    )


def max_pool3d(
    input: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False, return_indices: bool = False, *, out: Any = None
) -> Any:
    """3-D max pooling.

    Args:
        input (array): What is pooled, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or ml_dtypes.bfloat16.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Cells at both ends of each axis, never a maximum; at most
            `kernel_size` / 2.
        dilation (int or (int, int, int), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        return_indices (bool, default False): True: also return the index of each maximum.
        out (array or pair of arrays, default None): Receives the result (its shape, dtype, any strides). With
            `return_indices`, a pair, the second for the int64 indices. None: new arrays.

    Returns:
        array or pair of arrays: The maximum of each window, in `input`'s dtype; channels-last if `input` is,
            else C-contiguous. With `return_indices`, a pair of the maxima and their int64 indices, (d * H +
            h) * W + w in their plane. `out` if it is not None. A window without cells (dilation can step over
            the plane) has the value -inf and PyTorch's index, which may be outside the plane.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input` has a rank that is not listed above; `input` has no cells on a spatial axis;
            `kernel_size`, `stride`, `padding` or `dilation` has the wrong number of ints, or an int that is
            too small; `padding` is more than half of `kernel_size`; no window fits into `input`; the result
            would have 2**63 bytes or more; `out` does not have the result's shape; cells of `out` share
            memory; `out` is read-only; the two arrays of `out` share memory.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.max_pool3d(x, kernel_size=2, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[[[7.0]]]], [[[[7]]]])
    """
    return forward(
        "max_pool3d", input, StridedArguments(kernel_size, stride, padding, dilation, ceil_mode),
        return_indices, out
    )


def max_pool3d_backward(
    grad_output: Array, input: Input, indices: Array, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, dilation: Ints = 1, ceil_mode: bool = False, *, out: Array | None = None
) -> Array:
    """Gradient of 3-D max pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `max_pool3d`, of shape (N, C, D, H, W) or (C, D, H, W)
            and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `max_pool3d`, or its shape. The values are not read.
        indices (array): The indices that `max_pool3d` returns: (d * H + h) * W + w of each maximum in its
            plane of `input`. They have `grad_output`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Padding of `max_pool3d`, at most `kernel_size` / 2.
        dilation (int or (int, int, int), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `kernel_size`, `stride`, `padding` or
            `dilation` has the wrong number of ints, or an int that is too small; `padding` is more than half
            of `kernel_size`; `grad_output`, `input` or `out` has no cells on a spatial axis; `grad_output`
            and `indices` have different shapes; `input` and `out` have different shapes; `input` and
            `grad_output` differ in N or C; `grad_output` does not have the plane that `max_pool3d` makes of
            `input`; cells of `out` share memory; `out` is read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.max_pool3d(x, kernel_size=2, return_indices=True)
        >>> pooltide.max_pool3d_backward(np.ones_like(values), x, indices, kernel_size=2).tolist()
        [[[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]]
    """
    return gradient(
        "max_pool3d_backward", grad_output, input, indices,
        (kernel_size, stride, padding, dilation, ceil_mode), out
    )


def max_unpool1d(
    input: Array, indices: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    output_size: Sequence[int] | None = None, *, out: Array | None = None
) -> Array:
    """1-D max unpooling: the inverse of max pooling, with zeros between the maxima.

    Args:
        input (array): Values to write, of shape (N, C, W) or (C, W) and dtype float32, float64, float16 or
            ml_dtypes.bfloat16.
        indices (array): The cell of each value: w in its plane of the result. They have `input`'s shape and
            dtype int32 or int64.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Padding of the max pool that is reversed.
        output_size (tuple of ints, default None): Plane of the result, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The values of `input` at their indices, and 0 in all other cells; C-contiguous. Of equal
            indices in a plane the last one counts. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input`, `indices` or `out` has a rank that is not listed above; `input` has no cells on a
            spatial axis; `kernel_size`, `stride`, `padding` or `output_size` has the wrong number of ints, or
            an int that is too small; `output_size` differs from what None means by `stride` or more on an
            axis; `input` and `indices` have different shapes; `out` does not have the plane that
            `output_size` says; cells of `out` share memory; `out` is read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.max_pool1d(x, kernel_size=2, return_indices=True)
        >>> pooltide.max_unpool1d(values, indices, kernel_size=2).tolist()
        [[0.0, 1.0, 0.0, 3.0]]
    """
    return unpool("max_unpool1d", input, indices, (kernel_size, stride, padding, output_size), out)


def max_unpool1d_backward(
    grad_output: Array, input: Input, indices: Array, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, output_size: Sequence[int] | None = None, *, out: Array | None = None
) -> Array:
    """Gradient of 1-D max unpooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `max_unpool1d`, of shape (N, C, W) or (C, W) and dtype
            float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `max_unpool1d`, or its shape. The values are not read.
        indices (array): The indices of `max_unpool1d`: w in its plane of `grad_output`. They have `input`'s
            shape and dtype int32 or int64.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Padding of the max pool that `max_unpool1d` reverses.
        output_size (tuple of ints, default None): Plane of `grad_output`, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`: `grad_output` at the indices, in its dtype; C-contiguous.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`
            has no cells on a spatial axis; `kernel_size`, `stride`, `padding` or `output_size` has the wrong
            number of ints, or an int that is too small; `output_size` differs from what None means by
            `stride` or more on an axis; `input` and `indices` have different shapes; `grad_output` does not
            have the plane that `output_size` says; `input` and `out` have different shapes; cells of `out`
            share memory; `out` is read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.max_pool1d(x, kernel_size=2, return_indices=True)
        >>> pooltide.max_unpool1d_backward(x, values, indices, kernel_size=2).tolist()
        [[1.0, 3.0]]
    """
    return gradient(
        "max_unpool1d_backward", grad_output, input, indices, (kernel_size, stride, padding, output_size), out
    )


def max_unpool2d(
    input: Array, indices: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    output_size: Sequence[int] | None = None, *, out: Array | None = None
) -> Array:
    """2-D max unpooling: the inverse of max pooling, with zeros between the maxima.

    Args:
        input (array): Values to write, of shape (N, C, H, W) or (C, H, W) and dtype float32, float64, float16
            or ml_dtypes.bfloat16.
        indices (array): The cell of each value: h * W + w in its plane of the result. They have `input`'s
            shape and dtype int32 or int64.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Padding of the max pool that is reversed.
        output_size (tuple of ints, default None): Plane of the result, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The values of `input` at their indices, and 0 in all other cells; C-contiguous. Of equal
            indices in a plane the last one counts. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input`, `indices` or `out` has a rank that is not listed above; `input` has no cells on a
            spatial axis; `kernel_size`, `stride`, `padding` or `output_size` has the wrong number of ints, or
            an int that is too small; `output_size` differs from what None means by `stride` or more on an
            axis; `input` and `indices` have different shapes; `out` does not have the plane that
            `output_size` says; cells of `out` share memory; `out` is read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.max_pool2d(x, kernel_size=2, return_indices=True)
        >>> pooltide.max_unpool2d(values, indices, kernel_size=2).tolist()
        [[[0.0, 0.0, 0.0, 0.0], [0.0, 5.0, 0.0, 7.0]]]
    """
    return unpool("max_unpool2d", input, indices, (kernel_size, stride, padding, output_size), out)


def max_unpool2d_backward(
    grad_output: Array, input: Input, indices: Array, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, output_size: Sequence[int] | None = None, *, out: Array | None = None
) -> Array:
    """Gradient of 2-D max unpooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `max_unpool2d`, of shape (N, C, H, W) or (C, H, W) and
            dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `max_unpool2d`, or its shape. The values are not read.
        indices (array): The indices of `max_unpool2d`: h * W + w in its plane of `grad_output`. They have
            `input`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Padding of the max pool that `max_unpool2d` reverses.
        output_size (tuple of ints, default None): Plane of `grad_output`, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`: `grad_output` at the indices, in its dtype; C-contiguous.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`
            has no cells on a spatial axis; `kernel_size`, `stride`, `padding` or `output_size` has the wrong
            number of ints, or an int that is too small; `output_size` differs from what None means by
            `stride` or more on an axis; `input` and `indices` have different shapes; `grad_output` does not
            have the plane that `output_size` says; `input` and `out` have different shapes; cells of `out`
            share memory; `out` is read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.max_pool2d(x, kernel_size=2, return_indices=True)
        >>> pooltide.max_unpool2d_backward(x, values, indices, kernel_size=2).tolist()
        [[[5.0, 7.0]]]
    """
    return gradient(
        "max_unpool2d_backward", grad_output, input, indices, (kernel_size, stride, padding, output_size), out
    )


def max_unpool3d(
    input: Array, indices: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    output_size: Sequence[int] | None = None, *, out: Array | None = None
) -> Array:
    """3-D max unpooling: the inverse of max pooling, with zeros between the maxima.

    Args:
        input (array): Values to write, of shape (N, C, D, H, W) or (C, D, H, W) and dtype float32, float64,
            float16 or ml_dtypes.bfloat16.
        indices (array): The cell of each value: (d * H + h) * W + w in its plane of the result. They have
            `input`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Padding of the max pool that is reversed.
        output_size (tuple of ints, default None): Plane of the result, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The values of `input` at their indices, and 0 in all other cells; C-contiguous. Of equal
            indices in a plane the last one counts. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `input` and `out` have different
            dtypes.
        ValueError: `input`, `indices` or `out` has a rank that is not listed above; `input` has no cells on a
            spatial axis; `kernel_size`, `stride`, `padding` or `output_size` has the wrong number of ints, or
            an int that is too small; `output_size` differs from what None means by `stride` or more on an
            axis; `input` and `indices` have different shapes; `out` does not have the plane that
            `output_size` says; cells of `out` share memory; `out` is read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.max_pool3d(x, kernel_size=2, return_indices=True)
        >>> pooltide.max_unpool3d(values, indices, kernel_size=2).tolist()
        [[[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 7.0]]]]
    """
    return unpool("max_unpool3d", input, indices, (kernel_size, stride, padding, output_size), out)


def max_unpool3d_backward(
    grad_output: Array, input: Input, indices: Array, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, output_size: Sequence[int] | None = None, *, out: Array | None = None
) -> Array:
    """Gradient of 3-D max unpooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `max_unpool3d`, of shape (N, C, D, H, W) or (C, D, H,
            W) and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `max_unpool3d`, or its shape. The values are not read.
        indices (array): The indices of `max_unpool3d`: (d * H + h) * W + w in its plane of `grad_output`.
            They have `input`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Padding of the max pool that `max_unpool3d` reverses.
        output_size (tuple of ints, default None): Plane of `grad_output`, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`: `grad_output` at the indices, in its dtype; C-contiguous.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`
            has no cells on a spatial axis; `kernel_size`, `stride`, `padding` or `output_size` has the wrong
            number of ints, or an int that is too small; `output_size` differs from what None means by
            `stride` or more on an axis; `input` and `indices` have different shapes; `grad_output` does not
            have the plane that `output_size` says; `input` and `out` have different shapes; cells of `out`
            share memory; `out` is read-only.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.max_pool3d(x, kernel_size=2, return_indices=True)
        >>> pooltide.max_unpool3d_backward(x, values, indices, kernel_size=2).tolist()
        [[[[7.0]]]]
    """
    return gradient(
        "max_unpool3d_backward", grad_output, input, indices, (kernel_size, stride, padding, output_size), out
    )


def ps_roi_align(
    input: Array, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0, sampling_ratio: int = -1, *,
    out: Array | None = None
) -> Array:
    """Position-sensitive RoI align: each bin samples an input channel of its own.

    Args:
        input (array): What is pooled, of shape (N, C, H, W) and dtype float32, float64, float16 or
            ml_dtypes.bfloat16.
        boxes (array or list of arrays): The regions, in rows (K, 5): the number of an image, then x1, y1, x2,
            y2; or a list of arrays (L, 4), one for each image. They have the dtype of the values, or float32.
            Any position is allowed (docs/regions.md).
        output_size (int or (int, int)): Rows and columns of bins in a region. One int means both.
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        sampling_ratio (int, default -1): Samples of a bin on each axis, at most 32767. 0 or less: the bin's
            size in cells, rounded up.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The mean of the samples of each bin, of shape (K, C / (rows * columns), rows, columns), in
            `input`'s dtype; channels-last if `input` is, else C-contiguous. Bin (i, j) of channel c samples
            channel (c * rows + i) * columns + j of `input`. A bin without samples is NaN, as in torchvision.
            `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `input` and `out` have different dtypes.
        ValueError: `input`, `boxes` or `out` has a rank that is not listed above; `input` has no cells on a
            spatial axis; a plane has 2**31 cells or more; `boxes` has rows of another size, or a list of more
            arrays than images; `output_size` has the wrong number of ints, or an int that is too small;
            `sampling_ratio` is too large; the channels of `input` are no multiple of the bins; `out` does not
            have the shape of the result; cells of `out` share memory; `spatial_scale` is not finite; `out` is
            read-only.
        IndexError: The image of a region is no whole number from 0 to N - 1.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(16.0).reshape(1, 2, 2, 4)
        >>> boxes = np.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.ps_roi_align(x, boxes, (1, 2)).tolist()
        [[[[0.0, 9.0]]]]
    """
    return region_average("ps_roi_align", input, boxes, (output_size, spatial_scale, sampling_ratio), out)


def ps_roi_align_backward(
    grad_output: Array, input: Input, boxes: Boxes, spatial_scale: float = 1.0, sampling_ratio: int = -1, *,
    out: Array | None = None
) -> Array:
    """Gradient of position-sensitive RoI align with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `ps_roi_align`, of its shape, (K, channels, rows,
            columns of bins), and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `ps_roi_align`, or its shape. The values are not read.
        boxes (array or list of arrays): The regions, in rows (K, 5): the number of an image, then x1, y1, x2,
            y2; or a list of arrays (L, 4), one for each image. They have the dtype of the values, or float32.
            Any position is allowed (docs/regions.md).
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        sampling_ratio (int, default -1): Samples of a bin on each axis, at most 32767. 0 or less: the bin's
            size in cells, rounded up.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `grad_output` and `out` have different dtypes.
        ValueError: `grad_output`, `input`, `boxes` or `out` has a rank that is not listed above;
            `grad_output` or `input` has no cells on a spatial axis; a plane has 2**31 cells or more; `boxes`
            has rows of another size, or a list of more arrays than images; `sampling_ratio` is too large; the
            channels of `input` are no multiple of the bins; `grad_output` does not have the shape of the
            result; `input` and `out` have different shapes; cells of `out` share memory; `spatial_scale` is
            not finite; `out` is read-only.
        IndexError: The image of a region is no whole number from 0 to N - 1.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> boxes = np.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.ps_roi_align_backward(np.ones((1, 1, 1, 2)), (1, 2, 2, 4), boxes).tolist()
        [[[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]
    """
    return region_gradient(
        "ps_roi_align_backward", grad_output, input, boxes, None, (spatial_scale, sampling_ratio), out
    )


def ps_roi_pool(
    input: Array, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0, *, out: Array | None = None
) -> Array:
    """Position-sensitive RoI pooling: each bin averages an input channel of its own.

    Args:
        input (array): What is pooled, of shape (N, C, H, W) and dtype float32, float64, float16 or
            ml_dtypes.bfloat16.
        boxes (array or list of arrays): The regions, in rows (K, 5): the number of an image, then x1, y1, x2,
            y2; or a list of arrays (L, 4), one for each image. They have the dtype of the values, or float32.
            Any position is allowed (docs/regions.md).
        output_size (int or (int, int)): Rows and columns of bins in a region. One int means both.
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The mean of the cells of each bin, of shape (K, C / (rows * columns), rows, columns), in
            `input`'s dtype; channels-last if `input` is, else C-contiguous. Bin (i, j) of channel c has the
            cells of channel (c * rows + i) * columns + j of `input`, without the last row and column of the
            plane, as in torchvision. A bin without cells is 0. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `input` and `out` have different dtypes.
        ValueError: `input`, `boxes` or `out` has a rank that is not listed above; `input` has no cells on a
            spatial axis; a plane has 2**31 cells or more; `boxes` has rows of another size, or a list of more
            arrays than images; `output_size` has the wrong number of ints, or an int that is too small; the
            channels of `input` are no multiple of the bins; `out` does not have the shape of the result;
            cells of `out` share memory; `spatial_scale` is not finite; `out` is read-only.
        IndexError: The image of a region is no whole number from 0 to N - 1.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(16.0).reshape(1, 2, 2, 4)
        >>> boxes = np.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.ps_roi_pool(x, boxes, (1, 2)).tolist()
        [[[[0.0, 9.0]]]]
    """
    return region_average("ps_roi_pool", input, boxes, (output_size, spatial_scale), out)


def ps_roi_pool_backward(
    grad_output: Array, input: Input, boxes: Boxes, spatial_scale: float = 1.0, *, out: Array | None = None
) -> Array:
    """Gradient of position-sensitive RoI pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `ps_roi_pool`, of its shape, (K, channels, rows,
            columns of bins), and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `ps_roi_pool`, or its shape. The values are not read.
        boxes (array or list of arrays): The regions, in rows (K, 5): the number of an image, then x1, y1, x2,
            y2; or a list of arrays (L, 4), one for each image. They have the dtype of the values, or float32.
            Any position is allowed (docs/regions.md).
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `grad_output` and `out` have different dtypes.
        ValueError: `grad_output`, `input`, `boxes` or `out` has a rank that is not listed above;
            `grad_output` or `input` has no cells on a spatial axis; a plane has 2**31 cells or more; `boxes`
            has rows of another size, or a list of more arrays than images; the channels of `input` are no
            multiple of the bins; `grad_output` does not have the shape of the result; `input` and `out` have
            different shapes; cells of `out` share memory; `spatial_scale` is not finite; `out` is read-only.
        IndexError: The image of a region is no whole number from 0 to N - 1.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> boxes = np.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.ps_roi_pool_backward(np.ones((1, 1, 1, 2)), (1, 2, 2, 4), boxes).tolist()
        [[[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]
    """
    return region_gradient("ps_roi_pool_backward", grad_output, input, boxes, None, (spatial_scale,), out)


def roi_align(
    input: Array, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0, sampling_ratio: int = -1,
    aligned: bool = False, *, out: Array | None = None
) -> Array:
    """RoI align: the mean of interpolated samples in each bin of regions of interest.

    Args:
        input (array): What is pooled, of shape (N, C, H, W) and dtype float32, float64, float16 or
            ml_dtypes.bfloat16.
        boxes (array or list of arrays): The regions, in rows (K, 5): the number of an image, then x1, y1, x2,
            y2; or a list of arrays (L, 4), one for each image. They have the dtype of the values, or float32.
            Any position is allowed (docs/regions.md).
        output_size (int or (int, int)): Rows and columns of bins in a region. One int means both.
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        sampling_ratio (int, default -1): Samples of a bin on each axis, at most 32767. 0 or less: the bin's
            size in cells, rounded up.
        aligned (bool, default False): True: positions are moved by -0.5, so that the centre of a cell is at a
            whole number. False: each region has at least 1 × 1 cells.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The mean of the samples of each bin, of shape (K, C, rows, columns), in `input`'s dtype;
            channels-last if `input` is, else C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `input` and `out` have different dtypes.
        ValueError: `input`, `boxes` or `out` has a rank that is not listed above; `input` has no cells on a
            spatial axis; a plane has 2**31 cells or more; `boxes` has rows of another size, or a list of more
            arrays than images; `output_size` has the wrong number of ints, or an int that is too small;
            `sampling_ratio` is too large; `out` does not have the shape of the result; cells of `out` share
            memory; `spatial_scale` is not finite; `out` is read-only.
        IndexError: The image of a region is no whole number from 0 to N - 1.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 1, 2, 4)
        >>> boxes = np.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.roi_align(x, boxes, (1, 2)).tolist()
        [[[[2.5, 3.5]]]]
    """
    return region_average(
        "roi_align", input, boxes, (output_size, spatial_scale, sampling_ratio, aligned), out
    )


def roi_align_backward(
    grad_output: Array, input: Input, boxes: Boxes, spatial_scale: float = 1.0, sampling_ratio: int = -1,
    aligned: bool = False, *, out: Array | None = None
) -> Array:
    """Gradient of RoI align with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `roi_align`, of its shape, (K, channels, rows, columns
            of bins), and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `roi_align`, or its shape. The values are not read.
        boxes (array or list of arrays): The regions, in rows (K, 5): the number of an image, then x1, y1, x2,
            y2; or a list of arrays (L, 4), one for each image. They have the dtype of the values, or float32.
            Any position is allowed (docs/regions.md).
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        sampling_ratio (int, default -1): Samples of a bin on each axis, at most 32767. 0 or less: the bin's
            size in cells, rounded up.
        aligned (bool, default False): True: positions are moved by -0.5, so that the centre of a cell is at a
            whole number. False: each region has at least 1 × 1 cells.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `grad_output` and `out` have different dtypes.
        ValueError: `grad_output`, `input`, `boxes` or `out` has a rank that is not listed above;
            `grad_output` or `input` has no cells on a spatial axis; a plane has 2**31 cells or more; `boxes`
            has rows of another size, or a list of more arrays than images; `sampling_ratio` is too large;
            `grad_output` does not have the shape of the result; `input` and `out` have different shapes;
            cells of `out` share memory; `spatial_scale` is not finite; `out` is read-only.
        IndexError: The image of a region is no whole number from 0 to N - 1.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> boxes = np.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.roi_align_backward(np.ones((1, 1, 1, 2)), (1, 1, 2, 4), boxes).tolist()
        [[[[0.25, 0.5, 0.25, 0.0], [0.25, 0.5, 0.25, 0.0]]]]
    """
    return region_gradient(
        "roi_align_backward", grad_output, input, boxes, None, (spatial_scale, sampling_ratio, aligned), out
    )


def roi_pool(
    input: Array, boxes: Boxes, output_size: Ints, spatial_scale: float = 1.0, return_indices: bool = False,
    *, out: Any = None
) -> Any:
    """RoI pooling: the maximum of each bin of regions of interest.

    Args:
        input (array): What is pooled, of shape (N, C, H, W) and dtype float32, float64, float16 or
            ml_dtypes.bfloat16.
        boxes (array or list of arrays): The regions, in rows (K, 5): the number of an image, then x1, y1, x2,
            y2; or a list of arrays (L, 4), one for each image. They have the dtype of the values, or float32.
            Any position is allowed (docs/regions.md).
        output_size (int or (int, int)): Rows and columns of bins in a region. One int means both.
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        return_indices (bool, default False): True: also return the index of each maximum.
        out (array or pair of arrays, default None): Receives the result (its shape, dtype, any strides). With
            `return_indices`, a pair, the second for the int32 or int64 indices. None: new arrays.

    Returns:
        array or pair of arrays: The maximum of each bin, of shape (K, C, rows, columns), in `input`'s dtype;
            channels-last if `input` is, else C-contiguous. With `return_indices`, a pair of the maxima and
            their int32 indices, h * W + w in their plane. A bin without cells has 0 and the index -1. `out`
            if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `input` and `out` have different dtypes.
        ValueError: `input`, `boxes`, `out` or `out[1]` has a rank that is not listed above; `input` has no
            cells on a spatial axis; a plane has 2**31 cells or more; `boxes` has rows of another size, or a
            list of more arrays than images; `output_size` has the wrong number of ints, or an int that is too
            small; `out` or `out[1]` does not have the shape of the result; cells of `out` share memory;
            `spatial_scale` is not finite; `out` is read-only.
        IndexError: The image of a region is no whole number from 0 to N - 1.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x = np.arange(8.0).reshape(1, 1, 2, 4)
        >>> boxes = np.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.roi_pool(x, boxes, (1, 2)).tolist()
        [[[[5.0, 6.0]]]]
    """
    return region_pool("roi_pool", input, boxes, (output_size, spatial_scale), out, return_indices)


def roi_pool_backward(
    grad_output: Array, input: Input, boxes: Boxes, indices: Array, *, out: Array | None = None
) -> Array:
    """Gradient of RoI pooling with respect to its input.

    Args:
        grad_output (array): Gradient of the result of `roi_pool`, of its shape, (K, channels, rows, columns
            of bins), and dtype float32, float64, float16 or ml_dtypes.bfloat16.
        input (array or tuple of ints): Input of `roi_pool`, or its shape. The values are not read.
        boxes (array or list of arrays): The regions, in rows (K, 5): the number of an image, then x1, y1, x2,
            y2; or a list of arrays (L, 4), one for each image. They have the dtype of the values, or float32.
            Any position is allowed (docs/regions.md).
        indices (array): The indices that `roi_pool` returns: h * W + w of each maximum in its plane of
            `input`, or -1. They have `grad_output`'s shape and dtype int32 or int64.
        out (array, default None): Receives the result (its shape, dtype, any strides). None: a new array.

    Returns:
        array: The gradient with respect to `input`, of `input`'s shape and `grad_output`'s dtype;
            C-contiguous. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `grad_output` and `out` have different dtypes.
        ValueError: `grad_output`, `input`, `boxes`, `indices` or `out` has a rank that is not listed above;
            `grad_output` or `input` has no cells on a spatial axis; a plane has 2**31 cells or more; `boxes`
            has rows of another size, or a list of more arrays than images; `grad_output` or `indices` does
            not have the shape of the result; `input` and `out` have different shapes; cells of `out` share
            memory; `out` is read-only.
        IndexError: The image of a region is no whole number from 0 to N - 1.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.
        MemoryError: There is not enough memory.

    Example:
        >>> import numpy as np, pooltide
        >>> x, boxes = np.arange(8.0).reshape(1, 1, 2, 4), np.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> values, indices = pooltide.roi_pool(x, boxes, (1, 2), return_indices=True)
        >>> pooltide.roi_pool_backward(np.ones_like(values), x, boxes, indices).tolist()
        [[[[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]]]]
    """
    return region_gradient("roi_pool_backward", grad_output, input, boxes, indices, (), out)
