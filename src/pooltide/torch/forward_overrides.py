"""What runs in the place of aten's pools while `patch(forward=True)` is active.

`on_autograd` makes the override of an operator for an autograd key, `on_device` the one for a device key, for
inference mode, which skips autograd keys. An override computes the pool as `functional` does, with our
forward, our gradient and one byte saved per maximum. It passes every call that our kernels do not take to
PyTorch's kernel: under tracing and transforms, for special, empty and integer tensors, for the mean of whole
planes, and for bad arguments, so that PyTorch raises its own errors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from ..operators.catalog import operators
from ..problem.forwards import AdaptiveArguments, PoolArguments, StridedArguments
from . import pools
from .errors import ShapeError
from .nodes import Average, Maximum, apply_node
from .operators import AXES
from .overrides import follows_nothing, plain_keys
from .pytorch_pools import POOLS, argument_names
from .tensors import shortage

Tensor = torch.Tensor
depth = 0  # the number of active patches with forward=True

_MAXIMA = {name for name in POOLS if operators()[name].kind == "maximum"}
_ADAPTIVE = {name for name in POOLS if operators()[name].windows == "adaptive"}
# Each aten operator, its pool, and whether it returns indices. aten's adaptive maxima always do.
OPERATORS = {
    **{name: (name, name in _MAXIMA & _ADAPTIVE) for name in POOLS},
    **{f"{name}_with_indices": (name, True) for name in _MAXIMA - _ADAPTIVE},
}
# The same of the operators that have kernels for devices. PyTorch computes the other pools by these.
_DEEP = {name for name in POOLS if AXES[name] > 1}
ON_DEVICE = {
    **{name: (name, False) for name in _DEEP - _MAXIMA - _ADAPTIVE},
    **{f"_{name}": (name, False) for name in (_DEEP & _ADAPTIVE) - _MAXIMA},
    **{
        operator: (name, True) for operator, (name, indexed) in OPERATORS.items() if indexed and name in _DEEP
    },
}
_DEFAULTS = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def on_autograd(
    operator: str, aten_kernel: Callable[..., Any], device_kernel: Callable[..., Any] | None, device: str
) -> Callable[..., Any]:
    """Returns the override of aten's operator for an autograd key.

    `device_kernel`: aten's kernel for the device key, if the operator has one.
    """
    plain = plain_keys(device)

    def passed(keys: Any, x: Tensor, *attributes: Any) -> Any:
        """What PyTorch returns, with as little Python as possible."""
        tracked = x is None or (x.requires_grad and torch.is_grad_enabled())
        if device_kernel is not None and not tracked and follows_nothing(keys, plain):
            return device_kernel(keys, x, *attributes)
        return aten_kernel(keys, x, *attributes)

    return _override(*OPERATORS[operator], passed, lambda: True)


def on_device(operator: str, aten_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the override for a device key; it acts in inference mode only."""
    return _override(*ON_DEVICE[operator], aten_kernel, torch.is_inference_mode_enabled)


def _override(
    name: str, indexed: bool, aten_kernel: Callable[..., Any], active: Callable[[], bool]
) -> Callable[..., Any]:
    pooled = _maxima if name in _MAXIMA else _averages

    def override(keys: Any, x: Tensor, *attributes: Any) -> Any:
        if depth and x is not None and active() and _has_sizes(name, attributes):
            if text := shortage(x):
                raise ShapeError(f"{name}: input {text}")
            with _without_autocast(x):
                found = pooled(name, x, _arguments(name, attributes), indexed)
            if found is not None:
                return found
        return aten_kernel(keys, x, *attributes)

    return override


def _has_sizes(name: str, attributes: tuple[Any, ...]) -> bool:
    """Whether an adaptive pool has one size for each axis; PyTorch refuses others, we would repeat one."""
    return name not in _ADAPTIVE or (bool(attributes) and len(attributes[0]) == AXES[name])


def _without_autocast(x: Tensor) -> Any:
    """Autocast has cast the input before an autograd key is reached; nothing may cast the input again."""
    if x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type):
        return torch._C._ExcludeDispatchKeyGuard(_AUTOCAST)
    return nullcontext()


def _arguments(name: str, attributes: tuple[Any, ...]) -> PoolArguments:
    """Returns aten's attributes, from which the dispatcher drops trailing defaults, as our arguments."""
    plain = [tuple(value) if isinstance(value, list) else value for value in attributes]
    if name in _ADAPTIVE:
        return AdaptiveArguments(*plain)
    given = _DEFAULTS | dict(zip(argument_names(name), plain, strict=False))
    return StridedArguments(**given)._replace(stride=given["stride"] or None)


def _averages(name: str, x: Tensor, arguments: PoolArguments, _: bool) -> Tensor | None:
    """Returns the averages, or None if PyTorch must compute them."""
    pool = _prepared(name, x, arguments, "none")
    if pool is None:
        return None
    if not (x.requires_grad and torch.is_grad_enabled()):
        return pools.values_of(pool, x)
    values: Tensor = apply_node(Average, True, x, name, arguments, pool)[0]
    return values


def _maxima(name: str, x: Tensor, arguments: PoolArguments, indexed: bool) -> Any:
    """Returns the maxima, with `indexed` a pair with their indices; or None if PyTorch must compute them."""
    if not (x.requires_grad and torch.is_grad_enabled()):
        pool = _prepared(name, x, arguments, "indices" if indexed else "none")
        if pool is None:
            return None
        return pools.maxima_of(pool, x) if indexed else pools.values_of(pool, x)
    pool = _prepared(name, x, arguments, "offsets")
    # Without offsets (windows of more than 256 cells) the node saves indices in the smallest integer type.
    if pool is None and _prepared(name, x, arguments, "indices") is None:
        return None
    values, _, _, *indices = apply_node(Maximum, True, x, name, arguments, pool, indexed)
    return (values, indices[0]) if indexed else values


def _prepared(name: str, x: Tensor, arguments: PoolArguments, positions: str) -> pools.PreparedPool | None:
    """Returns the prepared pool; None if PyTorch must compute the pool, or raise for its arguments.

    PyTorch computes pools with a `unit_axis` as pools with one more axis, whose override then takes them.
    """
    if x.numel() == 0:
        return None
    try:
        pool = pools.prepare_pool(name, x, arguments, positions)
    except (TypeError, ValueError):
        return None
    if pool is None or pool.kernel is None or pools.unit_axis(name, x) is not None:
        return None
    return pool
