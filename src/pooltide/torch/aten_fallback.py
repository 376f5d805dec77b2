"""PyTorch's gradient kernels (aten), used for calls that our kernels refuse.

`aten_gradient` takes the arguments of one of our gradients and returns PyTorch's result.
`aten_call` translates the arguments; `warn_once` issues a `Fallback` warning once for each reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ..operators.catalog import aten_name, gradients, operators
from .tensors import memory_format

ATEN = {function: name for function, operator in gradients().items() if (name := aten_name(operator))}

_warned: set[str] = set()


class Fallback(UserWarning):
    """PyTorch computed a gradient because our kernels refused the call."""


def warn_once(function: str, reason: str) -> None:
    text = f"{function}: pooltide leaves this gradient to PyTorch: {reason}"
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, Fallback, stacklevel=3)


def aten_gradient(
    function: str,
    reason: str,
    grad_output: torch.Tensor,
    shape: tuple[int, ...],
    channels_last: bool,
    indices: torch.Tensor | None,
    attributes: tuple[Any, ...],
) -> torch.Tensor:
    """Returns PyTorch's gradient. An uninitialized tensor of the input's shape takes the input's place."""
    warn_once(function, reason)
    axes = len(operators()[function].axes)
    x = torch.empty(
        shape,
        dtype=grad_output.dtype,
        device=grad_output.device,
        memory_format=memory_format(channels_last, axes),
    )
    name, arguments = aten_call(function, grad_output, x, indices, attributes)
    result: torch.Tensor = getattr(torch.ops.aten, name).default(*arguments)
    return result.squeeze(-2) if axes == 1 else result


def aten_call(
    function: str,
    grad_output: torch.Tensor,
    x: torch.Tensor,
    indices: torch.Tensor | None,
    attributes: Sequence[Any],
) -> tuple[str, tuple[Any, ...]]:
    """Returns the name and arguments of PyTorch's operator. A 1-D pool becomes a 2-D pool of height 1."""
    tensors = [grad_output, x, *([] if indices is None else [indices])]
    if len(operators()[function].axes) == 1:
        tensors = [tensor.unsqueeze(-2) for tensor in tensors]
        attributes = _of_planes(function, *attributes) if attributes else ()
        function = function.replace("1d", "2d")
    return ATEN[function], (*tensors[:2], *attributes, *tensors[2:])


def _of_planes(function: str, kernel: Any, stride: Any, padding: Any, *rest: Any) -> tuple[Any, ...]:
    planes = [1, *kernel], [1, *stride] if stride else [], [0, *padding]
    if function == "avg_pool1d_backward":
        return (*planes, *rest, None)
    dilation, ceil_mode = rest
    return (*planes, [1, *dilation], ceil_mode)
