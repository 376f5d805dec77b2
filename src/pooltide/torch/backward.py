"""The gradients on tensors: same names, argument order and defaults as the NumPy functions.

`python tools/printed_pages.py` prints this module from the operator pages; changes here are lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .gradients import Input, Ints, gradient
from .pools.regions import Boxes
from .pools.unpools import unpool_gradient
from .regions import region_gradient

# fmt: off
__all__ = [
    "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d_backward",
    "adaptive_max_pool1d_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    "avg_pool1d_backward",
    "avg_pool2d_backward",
    "avg_pool3d_backward",
    "max_pool1d_backward",
    "max_pool2d_backward",
    "max_pool3d_backward",
    "max_unpool1d_backward",
    "max_unpool2d_backward",
    "max_unpool3d_backward",
    "ps_roi_align_backward",
    "ps_roi_pool_backward",
    "roi_align_backward",
    "roi_pool_backward",
]


def adaptive_avg_pool1d_backward(grad_output: Tensor, input: Input, *, out: Tensor | None = None) -> Tensor:
    """Gradient of 1-D adaptive average pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `adaptive_avg_pool1d`, of shape (N, C, W) or (C, W)
            and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `adaptive_avg_pool1d`, or its shape. The values are not
            read.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `grad_output`, `input` or `out` has no cells on a
            spatial axis; `input` and `out` have different shapes; `input` and `grad_output` differ in N or C;
            cells of `out` share memory; tensors are on different devices; `out` is not None and autograd
            follows the call.

    Example:
        >>> import torch, pooltide.torch
        >>> grad_output = torch.ones((1, 2))
        >>> pooltide.torch.adaptive_avg_pool1d_backward(grad_output, (1, 4)).tolist()
        [[0.5, 0.5, 0.5, 0.5]]
    """
    return gradient("adaptive_avg_pool1d_backward", grad_output, input, None, (), out)


def adaptive_avg_pool2d_backward(grad_output: Tensor, input: Input, *, out: Tensor | None = None) -> Tensor:
    """Gradient of 2-D adaptive average pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `adaptive_avg_pool2d`, of shape (N, C, H, W) or (C, H,
            W) and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `adaptive_avg_pool2d`, or its shape. The values are not
            read.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `input` and `out` have different shapes; `grad_output` or `input` has a rank that is not
            listed above; `input` and `grad_output` have different ranks; `grad_output` or `input` has no
            cells on a spatial axis; `input` and `grad_output` differ in N or C; cells of `out` share memory;
            tensors are on different devices; `out` is not None and autograd follows the call.

    Example:
        >>> import torch, pooltide.torch
        >>> grad_output = torch.ones((1, 1, 2))
        >>> pooltide.torch.adaptive_avg_pool2d_backward(grad_output, (1, 2, 4)).tolist()
        [[[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]]
    """
    return gradient("adaptive_avg_pool2d_backward", grad_output, input, None, (), out)


def adaptive_avg_pool3d_backward(grad_output: Tensor, input: Input, *, out: Tensor | None = None) -> Tensor:
    """Gradient of 3-D adaptive average pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `adaptive_avg_pool3d`, of shape (N, C, D, H, W) or (C,
            D, H, W) and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `adaptive_avg_pool3d`, or its shape. The values are not
            read.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `grad_output` or `input` has no cells on a spatial
            axis; `input` and `out` have different shapes; `input` and `grad_output` differ in N or C; cells
            of `out` share memory; tensors are on different devices; `out` is not None and autograd follows
            the call.

    Example:
        >>> import torch, pooltide.torch
        >>> grad_output = torch.ones((1, 1, 1, 1))
        >>> pooltide.torch.adaptive_avg_pool3d_backward(grad_output, (1, 2, 2, 2)).tolist()
        [[[[0.125, 0.125], [0.125, 0.125]], [[0.125, 0.125], [0.125, 0.125]]]]
    """
    return gradient("adaptive_avg_pool3d_backward", grad_output, input, None, (), out)


def adaptive_max_pool1d_backward(
    grad_output: Tensor, input: Input, indices: Tensor, *, out: Tensor | None = None,
    check_indices: bool = True
) -> Tensor:
    """Gradient of 1-D adaptive max pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `adaptive_max_pool1d`, of shape (N, C, W) or (C, W)
            and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `adaptive_max_pool1d`, or its shape. The values are not
            read.
        indices (tensor): The indices that `adaptive_max_pool1d` returns: w of each maximum in its plane of
            `input`. They have `grad_output`'s shape and dtype int32 or int64.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.
        check_indices (bool, default True): True: raise for an index outside its plane; on a GPU, the function
            waits for that. False: a GPU drops such an index, and `index_errors` counts it; the CPU raises all
            the same.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `grad_output` and `indices` have
            different shapes; `input` and `out` have different shapes; `input` and `grad_output` differ in N
            or C; `grad_output` or `input` has a negative size; cells of `out` share memory; tensors are on
            different devices; `out` is not None and autograd follows the call.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.torch.functional.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> pooltide.torch.adaptive_max_pool1d_backward(torch.ones_like(values), x, indices).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """
    return gradient("adaptive_max_pool1d_backward", grad_output, input, indices, (), out, check_indices)


def adaptive_max_pool2d_backward(
    grad_output: Tensor, input: Input, indices: Tensor, *, out: Tensor | None = None,
    check_indices: bool = True
) -> Tensor:
    """Gradient of 2-D adaptive max pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `adaptive_max_pool2d`, of shape (N, C, H, W) or (C, H,
            W) and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `adaptive_max_pool2d`, or its shape. The values are not
            read.
        indices (tensor): The indices that `adaptive_max_pool2d` returns: h * W + w of each maximum in its
            plane of `input`. They have `grad_output`'s shape and dtype int32 or int64.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.
        check_indices (bool, default True): True: raise for an index outside its plane; on a GPU, the function
            waits for that. False: a GPU drops such an index, and `index_errors` counts it; the CPU raises all
            the same.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `grad_output` and `indices` have
            different shapes; `input` and `out` have different shapes; `input` and `grad_output` differ in N
            or C; `grad_output` or `input` has a negative size; cells of `out` share memory; tensors are on
            different devices; `out` is not None and autograd follows the call.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.torch.functional.adaptive_max_pool2d(x, (1, 2), return_indices=True)
        >>> pooltide.torch.adaptive_max_pool2d_backward(torch.ones_like(values), x, indices).tolist()
        [[[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]]
    """
    return gradient("adaptive_max_pool2d_backward", grad_output, input, indices, (), out, check_indices)


def adaptive_max_pool3d_backward(
    grad_output: Tensor, input: Input, indices: Tensor, *, out: Tensor | None = None,
    check_indices: bool = True
) -> Tensor:
    """Gradient of 3-D adaptive max pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `adaptive_max_pool3d`, of shape (N, C, D, H, W) or (C,
            D, H, W) and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `adaptive_max_pool3d`, or its shape. The values are not
            read.
        indices (tensor): The indices that `adaptive_max_pool3d` returns: (d * H + h) * W + w of each maximum
            in its plane of `input`. They have `grad_output`'s shape and dtype int32 or int64.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.
        check_indices (bool, default True): True: raise for an index outside its plane; on a GPU, the function
            waits for that. False: a GPU drops such an index, and `index_errors` counts it; the CPU raises all
            the same.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `grad_output` and `indices` have
            different shapes; `input` and `out` have different shapes; `input` and `grad_output` differ in N
            or C; `grad_output` or `input` has a negative size; cells of `out` share memory; tensors are on
            different devices; `out` is not None and autograd follows the call.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.torch.functional.adaptive_max_pool3d(x, 1, return_indices=True)
        >>> pooltide.torch.adaptive_max_pool3d_backward(torch.ones_like(values), x, indices).tolist()
        [[[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]]
    """
    return gradient("adaptive_max_pool3d_backward", grad_output, input, indices, (), out, check_indices)


def avg_pool1d_backward(
    grad_output: Tensor, input: Input, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, *, out: Tensor | None = None
) -> Tensor:
    """Gradient of 1-D average pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `avg_pool1d`, of shape (N, C, W) or (C, W) and dtype
            float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `avg_pool1d`, or its shape. The values are not read.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Padding of `avg_pool1d`, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `kernel_size`, `stride` or `padding` has the wrong
            number of ints, or an int that is too small; `padding` is more than half of `kernel_size`;
            `grad_output`, `input` or `out` has no cells on a spatial axis; `input` and `out` have different
            shapes; `input` and `grad_output` differ in N or C; `grad_output` does not have the plane that
            `avg_pool1d` makes of `input`; cells of `out` share memory; tensors are on different devices;
            `out` is not None and autograd follows the call.

    Example:
        >>> import torch, pooltide.torch
        >>> grad_output = torch.ones((1, 2))
        >>> pooltide.torch.avg_pool1d_backward(grad_output, (1, 4), kernel_size=2).tolist()
        [[0.5, 0.5, 0.5, 0.5]]
    """
    return gradient(
        "avg_pool1d_backward", grad_output, input, None,
        (kernel_size, stride, padding, ceil_mode, count_include_pad), out
    )


def avg_pool2d_backward(
    grad_output: Tensor, input: Input, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    out: Tensor | None = None
) -> Tensor:
    """Gradient of 2-D average pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `avg_pool2d`, of shape (N, C, H, W) or (C, H, W) and
            dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `avg_pool2d`, or its shape. The values are not read.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Padding of `avg_pool2d`, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        divisor_override (int, default None): Divisor of every window, not 0. None: its number of cells.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `kernel_size`, `stride` or `padding` has the wrong
            number of ints, or an int that is too small; `padding` is more than half of `kernel_size`;
            `grad_output`, `input` or `out` has no cells on a spatial axis; `input` and `out` have different
            shapes; `input` and `grad_output` differ in N or C; `grad_output` does not have the plane that
            `avg_pool2d` makes of `input`; cells of `out` share memory; `divisor_override` is 0; tensors are
            on different devices; `out` is not None and autograd follows the call.

    Example:
        >>> import torch, pooltide.torch
        >>> grad_output = torch.ones((1, 1, 2))
        >>> pooltide.torch.avg_pool2d_backward(grad_output, (1, 2, 4), kernel_size=2).tolist()
        [[[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]]
    """
    return gradient(
        "avg_pool2d_backward", grad_output, input, None,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), out
    )


def avg_pool3d_backward(
    grad_output: Tensor, input: Input, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    out: Tensor | None = None
) -> Tensor:
    """Gradient of 3-D average pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `avg_pool3d`, of shape (N, C, D, H, W) or (C, D, H, W)
            and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `avg_pool3d`, or its shape. The values are not read.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Padding of `avg_pool3d`, at most `kernel_size` / 2.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        count_include_pad (bool, default True): True: the divisor of a window also counts its padding.
        divisor_override (int, default None): Divisor of every window, not 0. None: its number of cells.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input` or `out` has a rank that is not listed above; `input`,
            `grad_output` and `out` have different ranks; `kernel_size`, `stride` or `padding` has the wrong
            number of ints, or an int that is too small; `padding` is more than half of `kernel_size`;
            `grad_output`, `input` or `out` has no cells on a spatial axis; `input` and `out` have different
            shapes; `input` and `grad_output` differ in N or C; `grad_output` does not have the plane that
            `avg_pool3d` makes of `input`; cells of `out` share memory; `divisor_override` is 0; tensors are
            on different devices; `out` is not None and autograd follows the call.

    Example:
        >>> import torch, pooltide.torch
        >>> grad_output = torch.ones((1, 1, 1, 1))
        >>> pooltide.torch.avg_pool3d_backward(grad_output, (1, 2, 2, 2), kernel_size=2).tolist()
        [[[[0.125, 0.125], [0.125, 0.125]], [[0.125, 0.125], [0.125, 0.125]]]]
    """
    return gradient(
        "avg_pool3d_backward", grad_output, input, None,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), out
    )


def max_pool1d_backward(
    grad_output: Tensor, input: Input, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, dilation: Ints = 1, ceil_mode: bool = False, *, out: Tensor | None = None,
    check_indices: bool = True
) -> Tensor:
    """Gradient of 1-D max pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `max_pool1d`, of shape (N, C, W) or (C, W) and dtype
            float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `max_pool1d`, or its shape. The values are not read.
        indices (tensor): The indices that `max_pool1d` returns: w of each maximum in its plane of `input`.
            They have `grad_output`'s shape and dtype int32 or int64.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Padding of `max_pool1d`, at most `kernel_size` / 2.
        dilation (int or (int,), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.
        check_indices (bool, default True): True: raise for an index outside its plane; on a GPU, the function
            waits for that. False: a GPU drops such an index, and `index_errors` counts it; the CPU raises all
            the same.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `kernel_size`, `stride`, `padding` or
            `dilation` has the wrong number of ints, or an int that is too small; `padding` is more than half
            of `kernel_size`; `grad_output`, `input` or `out` has no cells on a spatial axis; `grad_output`
            and `indices` have different shapes; `input` and `out` have different shapes; `input` and
            `grad_output` differ in N or C; `grad_output` or `input` has a negative size; `grad_output` does
            not have the plane that `max_pool1d` makes of `input`; cells of `out` share memory; tensors are on
            different devices; `out` is not None and autograd follows the call.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.torch.functional.max_pool1d(x, kernel_size=2, return_indices=True)
        >>> pooltide.torch.max_pool1d_backward(torch.ones_like(values), x, indices, kernel_size=2).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """
    return gradient(
        "max_pool1d_backward", grad_output, input, indices,
        (kernel_size, stride, padding, dilation, ceil_mode), out, check_indices
    )


def max_pool2d_backward(
    grad_output: Tensor, input: Input, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, dilation: Ints = 1, ceil_mode: bool = False, *, out: Tensor | None = None,
    check_indices: bool = True
) -> Tensor:
    """Gradient of 2-D max pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `max_pool2d`, of shape (N, C, H, W) or (C, H, W) and
            dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `max_pool2d`, or its shape. The values are not read.
        indices (tensor): The indices that `max_pool2d` returns: h * W + w of each maximum in its plane of
            `input`. They have `grad_output`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Padding of `max_pool2d`, at most `kernel_size` / 2.
        dilation (int or (int, int), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.
        check_indices (bool, default True): True: raise for an index outside its plane; on a GPU, the function
            waits for that. False: a GPU drops such an index, and `index_errors` counts it; the CPU raises all
            the same.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `kernel_size`, `stride`, `padding` or
            `dilation` has the wrong number of ints, or an int that is too small; `padding` is more than half
            of `kernel_size`; `grad_output`, `input` or `out` has no cells on a spatial axis; `grad_output`
            and `indices` have different shapes; `input` and `out` have different shapes; `input` and
            `grad_output` differ in N or C; `grad_output` does not have the plane that `max_pool2d` makes of
            `input`; cells of `out` share memory; tensors are on different devices; `out` is not None and
            autograd follows the call.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.torch.functional.max_pool2d(x, kernel_size=2, return_indices=True)
        >>> pooltide.torch.max_pool2d_backward(torch.ones_like(values), x, indices, kernel_size=2).tolist()
        [[[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]]
    """
    return gradient(
        "max_pool2d_backward", grad_output, input, indices,
        (kernel_size, stride, padding, dilation, ceil_mode), out, check_indices
    )


def max_pool3d_backward(
    grad_output: Tensor, input: Input, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, dilation: Ints = 1, ceil_mode: bool = False, *, out: Tensor | None = None,
    check_indices: bool = True
) -> Tensor:
    """Gradient of 3-D max pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `max_pool3d`, of shape (N, C, D, H, W) or (C, D, H, W)
            and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `max_pool3d`, or its shape. The values are not read.
        indices (tensor): The indices that `max_pool3d` returns: (d * H + h) * W + w of each maximum in its
            plane of `input`. They have `grad_output`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Padding of `max_pool3d`, at most `kernel_size` / 2.
        dilation (int or (int, int, int), default 1): Step from one cell of a window to the next, at least 1.
        ceil_mode (bool, default False): True: round the number of windows up; the last may be partial.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.
        check_indices (bool, default True): True: raise for an index outside its plane; on a GPU, the function
            waits for that. False: a GPU drops such an index, and `index_errors` counts it; the CPU raises all
            the same.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`,
            `grad_output`, `indices` and `out` have different ranks; `kernel_size`, `stride`, `padding` or
            `dilation` has the wrong number of ints, or an int that is too small; `padding` is more than half
            of `kernel_size`; `grad_output`, `input` or `out` has no cells on a spatial axis; `grad_output`
            and `indices` have different shapes; `input` and `out` have different shapes; `input` and
            `grad_output` differ in N or C; `grad_output` does not have the plane that `max_pool3d` makes of
            `input`; cells of `out` share memory; tensors are on different devices; `out` is not None and
            autograd follows the call.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.torch.functional.max_pool3d(x, kernel_size=2, return_indices=True)
        >>> pooltide.torch.max_pool3d_backward(torch.ones_like(values), x, indices, kernel_size=2).tolist()
        [[[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]]
    """
    return gradient(
        "max_pool3d_backward", grad_output, input, indices,
        (kernel_size, stride, padding, dilation, ceil_mode), out, check_indices
    )


def max_unpool1d_backward(
    grad_output: Tensor, input: Input, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, output_size: Sequence[int] | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Gradient of 1-D max unpooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `max_unpool1d`, of shape (N, C, W) or (C, W) and dtype
            float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `max_unpool1d`, or its shape. The values are not read.
        indices (tensor): The indices of `max_unpool1d`: w in its plane of `grad_output`. They have `input`'s
            shape and dtype int32 or int64.
        kernel_size (int or (int,)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int,), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int,), default 0): Padding of the max pool that `max_unpool1d` reverses.
        output_size (tuple of ints, default None): Plane of `grad_output`, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`: `grad_output` at the indices, in its dtype. `out` if it
            is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`
            has no cells on a spatial axis; `kernel_size`, `stride`, `padding` or `output_size` has the wrong
            number of ints, or an int that is too small; `output_size` differs from what None means by
            `stride` or more on an axis; `input` and `indices` have different shapes; `grad_output` does not
            have the plane that `output_size` says; `input` and `out` have different shapes; cells of `out`
            share memory; tensors are on different devices.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(4.0).reshape(1, 4)
        >>> values, indices = pooltide.torch.functional.max_pool1d(x, kernel_size=2, return_indices=True)
        >>> pooltide.torch.max_unpool1d_backward(x, values, indices, kernel_size=2).tolist()
        [[1.0, 3.0]]
    """
    return unpool_gradient(
        "max_unpool1d_backward", grad_output, input, indices, (kernel_size, stride, padding, output_size), out
    )


def max_unpool2d_backward(
    grad_output: Tensor, input: Input, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, output_size: Sequence[int] | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Gradient of 2-D max unpooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `max_unpool2d`, of shape (N, C, H, W) or (C, H, W) and
            dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `max_unpool2d`, or its shape. The values are not read.
        indices (tensor): The indices of `max_unpool2d`: h * W + w in its plane of `grad_output`. They have
            `input`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int), default 0): Padding of the max pool that `max_unpool2d` reverses.
        output_size (tuple of ints, default None): Plane of `grad_output`, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`: `grad_output` at the indices, in its dtype. `out` if it
            is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`
            has no cells on a spatial axis; `kernel_size`, `stride`, `padding` or `output_size` has the wrong
            number of ints, or an int that is too small; `output_size` differs from what None means by
            `stride` or more on an axis; `input` and `indices` have different shapes; `grad_output` does not
            have the plane that `output_size` says; `input` and `out` have different shapes; cells of `out`
            share memory; tensors are on different devices.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 4)
        >>> values, indices = pooltide.torch.functional.max_pool2d(x, kernel_size=2, return_indices=True)
        >>> pooltide.torch.max_unpool2d_backward(x, values, indices, kernel_size=2).tolist()
        [[[5.0, 7.0]]]
    """
    return unpool_gradient(
        "max_unpool2d_backward", grad_output, input, indices, (kernel_size, stride, padding, output_size), out
    )


def max_unpool3d_backward(
    grad_output: Tensor, input: Input, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, output_size: Sequence[int] | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Gradient of 3-D max unpooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `max_unpool3d`, of shape (N, C, D, H, W) or (C, D, H,
            W) and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `max_unpool3d`, or its shape. The values are not read.
        indices (tensor): The indices of `max_unpool3d`: (d * H + h) * W + w in its plane of `grad_output`.
            They have `input`'s shape and dtype int32 or int64.
        kernel_size (int or (int, int, int)): Size of a window, at least 1. One int holds for every axis.
        stride (int or (int, int, int), default None): Step between windows, at least 1. None: `kernel_size`.
        padding (int or (int, int, int), default 0): Padding of the max pool that `max_unpool3d` reverses.
        output_size (tuple of ints, default None): Plane of `grad_output`, or its whole shape. None: (n - 1) *
            stride - 2 * padding + kernel_size cells on an axis where `input` has n.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`: `grad_output` at the indices, in its dtype. `out` if it
            is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `grad_output` and `out` have
            different dtypes.
        ValueError: `grad_output`, `input`, `indices` or `out` has a rank that is not listed above; `input`
            has no cells on a spatial axis; `kernel_size`, `stride`, `padding` or `output_size` has the wrong
            number of ints, or an int that is too small; `output_size` differs from what None means by
            `stride` or more on an axis; `input` and `indices` have different shapes; `grad_output` does not
            have the plane that `output_size` says; `input` and `out` have different shapes; cells of `out`
            share memory; tensors are on different devices.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x = torch.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = pooltide.torch.functional.max_pool3d(x, kernel_size=2, return_indices=True)
        >>> pooltide.torch.max_unpool3d_backward(x, values, indices, kernel_size=2).tolist()
        [[[[7.0]]]]
    """
    return unpool_gradient(
        "max_unpool3d_backward", grad_output, input, indices, (kernel_size, stride, padding, output_size), out
    )


def ps_roi_align_backward(
    grad_output: Tensor, input: Input, boxes: Boxes, spatial_scale: float = 1.0, sampling_ratio: int = -1, *,
    out: Tensor | None = None
) -> Tensor:
    """Gradient of position-sensitive RoI align with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `ps_roi_align`, of its shape, (K, channels, rows,
            columns of bins), and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `ps_roi_align`, or its shape. The values are not read.
        boxes (tensor or list of tensors): The regions, in rows (K, 5): the number of an image, then x1, y1,
            x2, y2; or a list of tensors (L, 4), one for each image. They have the dtype of the values, or
            float32. Any position is allowed (docs/regions.md).
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        sampling_ratio (int, default -1): Samples of a bin on each axis, at most 32767. 0 or less: the bin's
            size in cells, rounded up.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `grad_output` and `out` have different dtypes.
        ValueError: `grad_output`, `input`, `boxes` or `out` has a rank that is not listed above;
            `grad_output` or `input` has no cells on a spatial axis; a plane has 2**31 cells or more; `boxes`
            has rows of another size, or a list of more arrays than images; `sampling_ratio` is too large; the
            channels of `input` are no multiple of the bins; `grad_output` does not have the shape of the
            result; `input` and `out` have different shapes; cells of `out` share memory; `spatial_scale` is
            not finite; tensors are on different devices.
        IndexError: The image of a region is no whole number from 0 to N - 1.

    Example:
        >>> import torch, pooltide.torch
        >>> boxes = torch.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.torch.ps_roi_align_backward(torch.ones((1, 1, 1, 2)), (1, 2, 2, 4), boxes).tolist()
        [[[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]
    """
    return region_gradient(
        "ps_roi_align_backward", grad_output, input, boxes, None, (spatial_scale, sampling_ratio), out
    )


def ps_roi_pool_backward(
    grad_output: Tensor, input: Input, boxes: Boxes, spatial_scale: float = 1.0, *, out: Tensor | None = None
) -> Tensor:
    """Gradient of position-sensitive RoI pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `ps_roi_pool`, of its shape, (K, channels, rows,
            columns of bins), and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `ps_roi_pool`, or its shape. The values are not read.
        boxes (tensor or list of tensors): The regions, in rows (K, 5): the number of an image, then x1, y1,
            x2, y2; or a list of tensors (L, 4), one for each image. They have the dtype of the values, or
            float32. Any position is allowed (docs/regions.md).
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `grad_output` and `out` have different dtypes.
        ValueError: `grad_output`, `input`, `boxes` or `out` has a rank that is not listed above;
            `grad_output` or `input` has no cells on a spatial axis; a plane has 2**31 cells or more; `boxes`
            has rows of another size, or a list of more arrays than images; the channels of `input` are no
            multiple of the bins; `grad_output` does not have the shape of the result; `input` and `out` have
            different shapes; cells of `out` share memory; `spatial_scale` is not finite; tensors are on
            different devices.
        IndexError: The image of a region is no whole number from 0 to N - 1.

    Example:
        >>> import torch, pooltide.torch
        >>> boxes = torch.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.torch.ps_roi_pool_backward(torch.ones((1, 1, 1, 2)), (1, 2, 2, 4), boxes).tolist()
        [[[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]
    """
    return region_gradient("ps_roi_pool_backward", grad_output, input, boxes, None, (spatial_scale,), out)


def roi_align_backward(
    grad_output: Tensor, input: Input, boxes: Boxes, spatial_scale: float = 1.0, sampling_ratio: int = -1,
    aligned: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Gradient of RoI align with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `roi_align`, of its shape, (K, channels, rows, columns
            of bins), and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `roi_align`, or its shape. The values are not read.
        boxes (tensor or list of tensors): The regions, in rows (K, 5): the number of an image, then x1, y1,
            x2, y2; or a list of tensors (L, 4), one for each image. They have the dtype of the values, or
            float32. Any position is allowed (docs/regions.md).
        spatial_scale (float, default 1.0): By which positions are multiplied: the size of `input` divided by
            that of the image in which boxes are measured. A finite number.
        sampling_ratio (int, default -1): Samples of a bin on each axis, at most 32767. 0 or less: the bin's
            size in cells, rounded up.
        aligned (bool, default False): True: positions are moved by -0.5, so that the centre of a cell is at a
            whole number. False: each region has at least 1 × 1 cells.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `grad_output` and `out` have different dtypes.
        ValueError: `grad_output`, `input`, `boxes` or `out` has a rank that is not listed above;
            `grad_output` or `input` has no cells on a spatial axis; a plane has 2**31 cells or more; `boxes`
            has rows of another size, or a list of more arrays than images; `sampling_ratio` is too large;
            `grad_output` does not have the shape of the result; `input` and `out` have different shapes;
            cells of `out` share memory; `spatial_scale` is not finite; tensors are on different devices.
        IndexError: The image of a region is no whole number from 0 to N - 1.

    Example:
        >>> import torch, pooltide.torch
        >>> boxes = torch.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> pooltide.torch.roi_align_backward(torch.ones((1, 1, 1, 2)), (1, 1, 2, 4), boxes).tolist()
        [[[[0.25, 0.5, 0.25, 0.0], [0.25, 0.5, 0.25, 0.0]]]]
    """
    return region_gradient(
        "roi_align_backward", grad_output, input, boxes, None, (spatial_scale, sampling_ratio, aligned), out
    )


def roi_pool_backward(
    grad_output: Tensor, input: Input, boxes: Boxes, indices: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """Gradient of RoI pooling with respect to its input.

    Args:
        grad_output (tensor): Gradient of the result of `roi_pool`, of its shape, (K, channels, rows, columns
            of bins), and dtype float32, float64, float16 or bfloat16.
        input (tensor or tuple of ints): Input of `roi_pool`, or its shape. The values are not read.
        boxes (tensor or list of tensors): The regions, in rows (K, 5): the number of an image, then x1, y1,
            x2, y2; or a list of tensors (L, 4), one for each image. They have the dtype of the values, or
            float32. Any position is allowed (docs/regions.md).
        indices (tensor): The indices that `roi_pool` returns: h * W + w of each maximum in its plane of
            `input`, or -1. They have `grad_output`'s shape and dtype int32 or int64.
        out (tensor, default None): Receives the result (its shape, dtype, any strides). None: a new tensor.

    Returns:
        tensor: The gradient with respect to `input`, of `input`'s shape and memory format (`grad_output`'s
            memory format if `input` is a shape) and `grad_output`'s dtype. `out` if it is not None.

    Raises:
        TypeError: An argument has a type or dtype that is not listed above; `boxes` have neither the dtype of
            the values nor float32; `grad_output` and `out` have different dtypes.
        ValueError: `grad_output`, `input`, `boxes`, `indices` or `out` has a rank that is not listed above;
            `grad_output` or `input` has no cells on a spatial axis; a plane has 2**31 cells or more; `boxes`
            has rows of another size, or a list of more arrays than images; `grad_output` or `indices` does
            not have the shape of the result; `input` and `out` have different shapes; cells of `out` share
            memory; tensors are on different devices.
        IndexError: The image of a region is no whole number from 0 to N - 1.
        IndexError: An index is outside its plane. What `out` holds then is unspecified; nothing outside `out`
            is touched.

    Example:
        >>> import torch, pooltide.torch
        >>> x, boxes = torch.arange(8.0).reshape(1, 1, 2, 4), torch.asarray([[0.0, 0.0, 0.0, 2.0, 1.0]])
        >>> values, indices = pooltide.torch.functional.roi_pool(x, boxes, (1, 2), return_indices=True)
        >>> pooltide.torch.roi_pool_backward(torch.ones_like(values), x, boxes, indices).tolist()
        [[[[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]]]]
    """
    return region_gradient("roi_pool_backward", grad_output, input, boxes, indices, (), out)
