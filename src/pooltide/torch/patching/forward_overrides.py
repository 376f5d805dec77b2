"""What runs in the place of aten's pools while `patch(forward=True)` is active.

`on_device` makes the override of an operator for a device key: our forward, below PyTorch's own autograd
nodes. Such a node saves the second result of a maximum for the gradient. Where nobody else sees that result,
the override returns offsets (uint8, one byte per maximum; see forward.py) in the place of int64 indices, and
the overrides of the gradients (gradient_overrides.py) read them. `on_autograd` makes the overrides that know
who sees it: `aten::max_pool*d` drops the indices, and for `aten::adaptive_max_pool*d` the override converts
them. Every call that our kernels do not take goes to PyTorch's kernel: under tracing and transforms, for
special, empty and integer tensors, for the mean of whole planes, and for bad arguments, so that PyTorch
raises its own errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import prod
from typing import Any

import torch

from ...kernels.calls import PreparedCall
from ...operators.catalog import operators
from ...problem.forwards import AdaptiveArguments, PoolArguments, StridedArguments
from ..dispatch.custom_operators import AXES
from ..errors import ShapeError
from ..pools import forward
from ..pools.pytorch_pools import POOLS
from ..tensor_calls import kernel_and_copies
from ..tensors import address, shortage
from . import compiled_kernels
from .gradient_overrides import follows_nothing, plain_keys

Tensor = torch.Tensor
depth = 0  # the number of active patches with forward=True

_MAXIMA = {name for name in POOLS if operators()[name].kind == "maximum"}
_ADAPTIVE = {name for name in POOLS if operators()[name].windows == "adaptive"}
_DEEP = {name for name in POOLS if AXES[name] > 1}
# Each aten operator that has kernels for devices, and its pool. PyTorch computes all pools by these.
ON_DEVICE = {
    **{name: name for name in _DEEP - _MAXIMA - _ADAPTIVE},
    **{f"_{name}": name for name in (_DEEP & _ADAPTIVE) - _MAXIMA},
    **{name: name for name in _DEEP & _MAXIMA & _ADAPTIVE},
    **{f"{name}_with_indices": name for name in (_DEEP & _MAXIMA) - _ADAPTIVE},
}
# The operators that are overridden at the autograd keys. The first call the operators with indices, and drop
# the indices.
DROP_INDICES = {name: name for name in _MAXIMA - _ADAPTIVE}
RETURN_INDICES = {name: name for name in _DEEP & _MAXIMA & _ADAPTIVE}
OPERATORS = DROP_INDICES | RETURN_INDICES
CHEAP_INDICES = 2**14  # as many maxima at most: 115 kB more than offsets
_DEFAULTS: list[Any] = [None, None, 0, 1, False]  # of kernel_size, which every call has, to ceil_mode
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


class _Wish(threading.local):
    """What the override at an autograd key wants of the next override at a device key, in this thread.

    Between the two, PyTorch saves the input, and hooks for saved tensors may compute other pools.
    """

    # 0, or the input whose pool is to return offsets: the address of its TensorImpl, or of its data where
    # PyTorch pools a view of it, as in 1-D.
    offsets = 0
    traced = False  # torch.jit.trace records the pool with its indices


_wish = _Wish()


def on_autograd(
    operator: str, aten_kernel: Callable[..., Any], device_kernel: Callable[..., Any] | None, device: str
) -> Callable[..., Any]:
    """Returns the override of aten's operator for an autograd key.

    `device_kernel`: aten's kernel for the device key, if the operator has one.
    """
    name, plain = OPERATORS[operator], plain_keys(device)

    def dropped(
        keys: Any, x: Tensor, *attributes: Any, key: bytes | None = None, offsets: bool = False
    ) -> Any:
        if depth and x is not None:
            if not _tracked(x):
                values = _on_device(name, x, attributes, "none", key)
                if values is not None:
                    return values
            elif forward.kernel_may_read(x):
                return _with_offsets(name, aten_kernel, keys, x, attributes)
        return aten_kernel(keys, x, *attributes)

    def returned(
        keys: Any, x: Tensor, *attributes: Any, key: bytes | None = None, offsets: bool = False
    ) -> Any:
        if x is not None and not _tracked(x):
            if device_kernel is not None and follows_nothing(keys, plain):
                result = _on_device(name, x, attributes, "indices", key) if depth else None
                return device_kernel(keys, x, *attributes) if result is None else result
        elif depth and x is not None and _indices_are_cheap(x, attributes):
            compiled_kernels.remember(key, name, None, ())
        elif depth and x is not None and not _wish.traced and forward.kernel_may_read(x):
            values, positions = _with_offsets(name, aten_kernel, keys, x, attributes)
            if positions.dtype == torch.uint8:  # also if a compiled kernel made them
                pool = forward.prepare_pool(name, x, _arguments(name, attributes), "offsets")
                assert pool is not None, "offsets were made"
                saved, positions = positions, positions.detach()  # which shares the version counter:
                positions.data = forward.indices_like(values, pool, saved)
            return values, positions  # autograd raises if a program changes them in place
        return aten_kernel(keys, x, *attributes)

    return dropped if operator in DROP_INDICES else returned


def on_tracer(_: str, aten_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the override for the key of torch.jit.trace.

    A traced gradient reads the indices that the trace has. Inside the operator, nothing else says that the
    tracer is active.
    """

    def override(keys: Any, *arguments: Any) -> Any:
        _wish.traced = True
        try:
            return aten_kernel(keys, *arguments)
        finally:
            _wish.traced = False

    return override


def _indices_are_cheap(x: Tensor, attributes: tuple[Any, ...]) -> bool:
    """Whether an adaptive maximum returns so few indices that PyTorch's node may keep them.

    To keep offsets in their place takes Python, and as long as PyTorch takes for a small pool.
    """
    sizes: list[int] = attributes[0]
    return prod(sizes) * x.numel() <= CHEAP_INDICES * prod(x.shape[-len(sizes) :])


def _tracked(x: Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()


def _with_offsets(
    name: str, aten_kernel: Callable[..., Any], keys: Any, x: Tensor, attributes: tuple[Any, ...]
) -> Any:
    """Returns what PyTorch's kernel returns. Its maxima are saved as offsets where there are any."""
    before = _wish.offsets
    wish = _wish.offsets = address(x) if AXES[name] == 1 else x._cdata
    compiled_before = compiled_kernels.want_offsets(wish)
    try:
        return aten_kernel(keys, x, *attributes)
    finally:
        _wish.offsets = before
        compiled_kernels.want_offsets(compiled_before)


def on_device(operator: str, aten_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the override for a device key."""
    name = ON_DEVICE[operator]
    usual = "indices" if name in _MAXIMA else "none"

    def override(
        keys: Any, x: Tensor, *attributes: Any, key: bytes | None = None, offsets: bool = False
    ) -> Any:
        if depth and x is not None:
            if _wish.offsets and _wish.offsets in (x._cdata, address(x)):
                offsets, _wish.offsets = True, 0
            result = None
            if offsets and usual == "indices":
                result = _on_device(name, x, attributes, "offsets", key)
            if result is None:
                result = _on_device(name, x, attributes, usual, key)
            if result is not None:
                return result
        return aten_kernel(keys, x, *attributes)

    return override


def _on_device(name: str, x: Tensor, attributes: tuple[Any, ...], positions: str, key: bytes | None) -> Any:
    """Returns the values, or a pair with `positions`; None if PyTorch must compute the pool.

    `key`: of the call, if a compiled kernel is to compute equal ones.
    """
    if not _has_sizes(name, attributes):
        return None
    if text := shortage(x):
        raise ShapeError(f"{name}: input {text}")
    arguments = _arguments(name, attributes)
    if x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type):
        # Autocast has cast the input before an autograd key is reached; nothing may cast it again.
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            pool = _prepared(name, x, arguments, positions)
    else:
        pool = _prepared(name, x, arguments, positions)
    if pool is None:
        return None
    if key is not None and not forward.is_made_contiguous(pool):
        size = prod(pool.shape)
        results = [(compiled_kernels.SAME, pool.shape, pool.strides, size * x.element_size())]
        if positions != "none":
            dtype, itemsize = (
                (compiled_kernels.UINT8, 1) if positions == "offsets" else (compiled_kernels.INT64, 8)
            )
            results.append((dtype, pool.shape, pool.strides, size * itemsize))
        if (runnable := kernel_and_copies(pool, x)) is not None:
            compiled_kernels.remember(key, name, runnable[0], results, runnable[1])
    if positions == "none":
        return forward.values_of(pool, x)
    return forward.maxima_of(pool, x)


def _has_sizes(name: str, attributes: tuple[Any, ...]) -> bool:
    """Whether an adaptive pool has one size for each axis; PyTorch refuses others, we would repeat one."""
    return name not in _ADAPTIVE or (bool(attributes) and len(attributes[0]) == AXES[name])


def _arguments(name: str, attributes: tuple[Any, ...]) -> PoolArguments:
    """Returns aten's attributes, from which the dispatcher drops trailing defaults, as our arguments."""
    plain = [tuple(value) if isinstance(value, list) else value for value in attributes]
    if name in _ADAPTIVE:
        return AdaptiveArguments(*plain)
    if name in _MAXIMA:
        kernel, stride, padding, dilation, ceil_mode = plain + _DEFAULTS[len(plain) :]
        return StridedArguments(kernel, stride or None, padding, dilation, ceil_mode)
    kernel, stride, padding, *rest = plain + _DEFAULTS[len(plain) : 3]
    return StridedArguments(kernel, stride or None, padding, 1, *(rest or (False,)))


def _prepared(name: str, x: Tensor, arguments: PoolArguments, positions: str) -> PreparedCall | None:
    """Returns the prepared pool; None if PyTorch must compute the pool, or raise for its arguments.

    PyTorch computes pools with a `unit_axis` as pools with one more axis, whose override then takes them.
    """
    if x.numel() == 0:
        return None
    try:
        pool = forward.prepare_pool(name, x, arguments, positions)
    except (TypeError, ValueError):
        return None
    if pool is None or pool.executable is None or forward.unit_axis(name, x) is not None:
        return None
    return pool
