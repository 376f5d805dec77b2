"""PyTorch's gradient kernels (aten), used for calls that our kernels refuse.

`aten_gradient` takes the arguments of one of our gradients and returns PyTorch's result.
`aten_call` translates the arguments; `warn_once` issues a `Fallback` warning and a log line (level INFO,
logger `pooltide.torch`) once for each reason, and counts the calls. `judge` raises PyTorch's error for a call
that we refuse.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..operators.catalog import aten_name, gradients, operators
from .releases import can_call_aten
from .tensors import is_tensor, memory_format

ATEN = {function: name for function, operator in gradients().items() if (name := aten_name(operator))}

# The out forms with their own kernels; _adaptive_avg_pool2d_backward.out calls the functional form.
OUT_FORMS = {
    function: f"{name.removeprefix('_')}.grad_input"
    for function, name in ATEN.items()
    if function != "adaptive_avg_pool2d_backward"
}
CPU_KERNELS: dict[str, Callable[..., Any]] = {}  # aten's own, by overload, which `patch` has overridden
_LARGE = 2**20  # elements
_warned: Counter[str] = Counter()
_lock = threading.Lock()


class Fallback(UserWarning):
    """PyTorch computed a gradient because our kernels refused the call."""


def warn_once(function: str, reason: str) -> None:
    text = f"{function}: pooltide leaves this gradient to PyTorch: {reason}"
    with _lock:
        _warned[text] += 1
        first = _warned[text] == 1
    if first:
        logging.getLogger("pooltide.torch").info(text)
        warnings.warn(text, Fallback, stacklevel=3)


def counted() -> dict[str, int]:
    """Returns the warnings, with the number of calls that each of them stands for."""
    with _lock:
        return dict(_warned)


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


def judge(function: str, *arguments: Any, grad_input: torch.Tensor | None = None) -> None:
    """Raises the error of aten's operator for these arguments; returns if there is none, or none to be had.

    With `grad_input` it asks the out form.

    The operator gets zeros on the CPU in the place of tensors: it computes where it finds no fault, and some
    kernels crash on expanded tensors. Large tensors are on meta, where a few texts differ.
    """
    if grad_input is not None and torch._debug_has_internal_overlap(grad_input) == 1:
        if len(operators()[function].axes) == 2:  # the 3-D kernels write outside such a tensor
            torch.zeros(1).expand(2).add_(1)  # raises what PyTorch's kernel does
        return
    tensors = [value for value in arguments if is_tensor(value)]
    if not _is_checked(function, tensors):
        return
    small = can_call_aten() and all(tensor.numel() <= _LARGE for tensor in tensors)

    def zeros(value: Any) -> Any:
        if not is_tensor(value):
            return value
        return torch.zeros(value.shape, dtype=value.dtype, device="cpu" if small else "meta")

    overload, out = ATEN[function], {}
    if grad_input is not None:
        overload, out = OUT_FORMS[function], {"grad_input": zeros(grad_input)}
    if small and (kernel := CPU_KERNELS.get(overload)):
        kernel(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *map(zeros, arguments), **out)
    else:
        name, _, form = overload.partition(".")
        getattr(getattr(torch.ops.aten, name), form or "default")(*map(zeros, arguments), **out)


def check_not_empty(function: str, grad_output: torch.Tensor) -> None:
    """Raises ValueError for an empty dimension other than N, which PyTorch refuses.

    PyTorch's adaptive pools take the first dimension for N, also of tensors without a batch.
    """
    operator = operators()[function]
    first = 1 if operator.windows == "adaptive" else grad_output.dim() - len(operator.axes) - 1
    if 0 in grad_output.shape[first:]:
        shape = tuple(grad_output.shape)
        text = f"grad_output has shape {shape}; every dimension but N must be greater than 0"
        raise ValueError(f"{function}: {text}.")


def _is_checked(function: str, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether PyTorch's kernel checks what is wrong with these shapes; else it would leave its memory."""
    grad_output, x, *indices = tensors
    operator = operators()[function]
    if x.numel() == 0 and grad_output.numel():
        return False
    if grad_output.dim() != x.dim():
        return True
    if operator.windows == "adaptive":  # N and C are not checked
        lead = x.dim() - len(operator.axes)
        return grad_output.shape[:lead] == x.shape[:lead]
    return all(t.dim() != x.dim() or t.shape[:1] == x.shape[:1] for t in (grad_output, *indices))
