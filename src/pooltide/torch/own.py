"""PyTorch's own gradients, for what our kernels refuse; whoever gets them is told so, once."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from .tensors import memory_format

ATEN = {
    "avg_pool2d_backward": "avg_pool2d_backward",
    "adaptive_avg_pool3d_backward": "_adaptive_avg_pool3d_backward",
    "adaptive_max_pool2d_backward": "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward": "adaptive_max_pool3d_backward",
}

_told: set[str] = set()


class Fallback(UserWarning):
    """A gradient was left to PyTorch."""


def tell(function: str, reason: str) -> None:
    text = f"{function}: pooltide leaves this gradient to PyTorch: {reason}"
    if text not in _told:
        _told.add(text)
        warnings.warn(text, Fallback, stacklevel=3)


def own_gradient(
    function: str,
    reason: str,
    grad_output: torch.Tensor,
    shape: tuple[int, ...],
    channels_last: bool,
    indices: torch.Tensor | None,
    attributes: tuple[Any, ...],
) -> torch.Tensor:
    """PyTorch's gradient, from the shape of an input that is no longer there."""
    tell(function, reason)
    axes = 2 if "2d" in function else 3
    x = torch.empty(
        shape,
        dtype=grad_output.dtype,
        device=grad_output.device,
        memory_format=memory_format(channels_last, axes),
    )
    given = attributes if indices is None else (indices,)
    result: torch.Tensor = getattr(torch.ops.aten, ATEN[function]).default(grad_output, x, *given)
    return result
