"""Pools over regions of interest on tensors: what the functions of `functional` and `backward` call.

docs/regions.md has the arithmetic and the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..operators.catalog import regions
from ..operators.plain import plain
from .dispatch.region_operators import differentiable
from .errors import FAULTS, as_pytorch
from .gradients import Input, written
from .pools.regions import Boxes, checked, one_tensor
from .tensors import is_channels_last, is_tensor

Tensor = torch.Tensor


def region_average(name: str, input: Tensor, boxes: Boxes, arguments: tuple[Any, ...]) -> Tensor:
    """Returns the result of a pool; `arguments` are the output size and the attributes."""
    return _pooled(name, input, boxes, *arguments)  # type: ignore[no-any-return]


def region_pool(
    name: str, input: Tensor, boxes: Boxes, arguments: tuple[Any, ...], return_indices: bool
) -> Tensor | tuple[Tensor, Tensor]:
    """As region_average, for the pool that also has indices."""
    both = _pooled(name, input, boxes, *arguments)
    return both if return_indices else both[0]  # type: ignore[no-any-return]


def _pooled(name: str, input: Tensor, boxes: Boxes, output_size: Any, *attributes: Any) -> Any:
    size = plain(output_size)
    size = (size, size) if type(size) is int else size
    images = input.shape[0] if is_tensor(input) and input.dim() else None

    def call() -> Any:
        rows = one_tensor(name, boxes, input, images)
        if not _fits(size, (input, rows), attributes):
            checked(name, None, input, rows, None, (size, *attributes))
        return differentiable(name, input, rows, size, *attributes)

    return _with_pytorchs_errors(call)


def region_gradient(
    name: str,
    grad_output: Tensor,
    input: Input,
    boxes: Boxes,
    indices: Tensor | None,
    attributes: tuple[Any, ...],
    out: Tensor | None,
) -> Tensor:
    """Returns the gradient with respect to `input`, a tensor or its shape."""
    shape = tuple(input.shape) if is_tensor(input) else plain(input)
    like = input if is_tensor(input) else grad_output
    last = is_tensor(like) and is_channels_last(like, 2)
    more = () if regions()[name].by_role("indices") is None else (indices,)

    def call() -> Any:
        images = shape[0] if type(shape) is tuple and shape and type(shape[0]) is int else None
        rows = one_tensor(name, boxes, grad_output, images)
        if out is not None or not _fits(shape, (grad_output, rows, *more), attributes):
            checked(name, grad_output, shape, rows, indices, attributes, out)
        result = differentiable(name, grad_output, shape, rows, *more, *attributes, last)
        return written(name, grad_output, out, result)

    return _with_pytorchs_errors(call)  # type: ignore[no-any-return]


def _fits(sizes: Any, tensors: Sequence[Any], attributes: Sequence[Any]) -> bool:
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
