"""Pools over regions of interest on tensors: torchvision's functions, with deterministic gradients.

The differentiable ones are also in `functional`. docs/regions.md has the arithmetic and the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..operators.plain import plain
from .errors import FAULTS, as_pytorch
from .gradients import Input, written
from .pools.regions import Boxes, checked, one_tensor
from .tensors import is_channels_last, is_tensor

Tensor = torch.Tensor
Size = int | tuple[int, int]
__all__ = ["ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool"]


def roi_align(
    input: Tensor,
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """RoI align: the mean of interpolated samples in each bin of regions of interest.

    As torchvision.ops.roi_align. `boxes` is a tensor (K, 5) of (image, x1, y1, x2, y2), or a list of a tensor
    (L, 4) for each image, in the dtype of `input` or float32. Only `input` gets a gradient.
    """
    return _pool("roi_align", input, boxes, output_size, spatial_scale, sampling_ratio, aligned)  # type: ignore[no-any-return]


def roi_pool(
    input: Tensor, boxes: Boxes, output_size: Size, spatial_scale: float = 1.0, return_indices: bool = False
) -> Any:
    """RoI pooling: the maximum of each bin of regions of interest; `return_indices`: also where it is."""
    both = _pool("roi_pool", input, boxes, output_size, spatial_scale)
    return both if return_indices else both[0]


def ps_roi_align(
    input: Tensor, boxes: Boxes, output_size: Size, spatial_scale: float = 1.0, sampling_ratio: int = -1
) -> Tensor:
    """Position-sensitive RoI align: each bin has input channels of its own."""
    return _pool("ps_roi_align", input, boxes, output_size, spatial_scale, sampling_ratio)  # type: ignore[no-any-return]


def ps_roi_pool(input: Tensor, boxes: Boxes, output_size: Size, spatial_scale: float = 1.0) -> Tensor:
    """Position-sensitive RoI pooling: the mean of each bin, which has input channels of its own."""
    return _pool("ps_roi_pool", input, boxes, output_size, spatial_scale)  # type: ignore[no-any-return]


def roi_align_backward(
    grad_output: Tensor,
    input: Input,
    boxes: Boxes,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The gradient of `roi_align` with respect to its input. `input`: that tensor, or its shape."""
    attributes = spatial_scale, sampling_ratio, aligned
    return _gradient("roi_align_backward", grad_output, input, boxes, (), attributes, out)


def roi_pool_backward(
    grad_output: Tensor, input: Input, boxes: Boxes, indices: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """The gradient of `roi_pool` with respect to its input. `indices`: of its maxima; -1 adds nothing."""
    return _gradient("roi_pool_backward", grad_output, input, boxes, (indices,), (), out)


def ps_roi_align_backward(
    grad_output: Tensor,
    input: Input,
    boxes: Boxes,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The gradient of `ps_roi_align` with respect to its input."""
    return _gradient(
        "ps_roi_align_backward", grad_output, input, boxes, (), (spatial_scale, sampling_ratio), out
    )


def ps_roi_pool_backward(
    grad_output: Tensor, input: Input, boxes: Boxes, spatial_scale: float = 1.0, *, out: Tensor | None = None
) -> Tensor:
    """The gradient of `ps_roi_pool` with respect to its input."""
    return _gradient("ps_roi_pool_backward", grad_output, input, boxes, (), (spatial_scale,), out)


def _pool(name: str, input: Any, boxes: Any, output_size: Any, *attributes: Any) -> Any:
    size = plain(output_size)
    size = (size, size) if type(size) is int else size
    images = input.shape[0] if is_tensor(input) and input.dim() else None

    def call() -> Any:
        rows = one_tensor(name, boxes, input, images)
        if not _fits(size, (input, rows), attributes):
            checked(name, None, input, rows, None, (size, *attributes))
        return getattr(torch.ops.pooltide, name)(input, rows, size, *attributes)

    return _with_pytorchs_errors(call)


def _gradient(
    name: str,
    grad: Any,
    input: Any,
    boxes: Any,
    indices: tuple[Any, ...],
    attributes: tuple[Any, ...],
    out: Tensor | None,
) -> Tensor:
    shape = tuple(input.shape) if is_tensor(input) else plain(input)
    last = is_channels_last(input if is_tensor(input) else grad, 2) if is_tensor(grad) else False

    def call() -> Any:
        images = shape[0] if type(shape) is tuple and shape and type(shape[0]) is int else None
        rows = one_tensor(name, boxes, grad, images)
        if out is not None or not _fits(shape, (grad, rows, *indices), attributes):
            checked(name, grad, shape, rows, indices[0] if indices else None, attributes, out)
        result = getattr(torch.ops.pooltide, name)(grad, shape, rows, *indices, *attributes, last)
        return written(name, grad, out, result)

    return _with_pytorchs_errors(call)  # type: ignore[no-any-return]


def _fits(sizes: Any, tensors: tuple[Any, ...], attributes: tuple[Any, ...]) -> bool:
    """Whether the types fit the operator's schema; if not, our rules say what is wrong."""
    integers = type(sizes) in (tuple, list, torch.Size) and all(
        isinstance(n, (int, torch.SymInt)) for n in sizes
    )
    numbers = all(type(a) in (int, float, bool) for a in attributes)
    return integers and numbers and all(map(is_tensor, tensors))


def _with_pytorchs_errors(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except FAULTS as fault:
        raise as_pytorch(fault) from None
