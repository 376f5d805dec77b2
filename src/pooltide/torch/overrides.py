"""What runs in the place of aten's backward operators while `patch` is active.

`on_device` makes the override for a device key (CPU, CUDA), `on_autograd` the one for an autograd key, which
runs first. The latter calls our kernel directly if nothing traces or transforms the call. Under tracing it
puts `torch.ops.pooltide.*` into the graph, which no compiler replaces (Inductor's gradient of avg_pool2d is
wrong for overhanging windows in ceil mode). Any other call it passes to PyTorch's autograd kernel, which then
calls the device override. While no patch is active, both pass every call to the kernels that they replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common.wrappers import _maybe_resize_out
from torch.autograd import forward_ad

from ..kernels.plan import NoBackend
from ..operators.catalog import operators
from . import devices
from .aten_fallback import ATEN, check_not_empty, judge, warn_once
from .autograd import differentiable
from .errors import FAULTS, DtypeError, as_pytorch, with_text_of
from .gradients import may_skip_dispatcher, shares_memory, tensor_may_skip_dispatcher
from .operators import ARRAYS, AXES
from .prepared import compute, prepare_gradient
from .releases import can_call_aten
from .sharding import placed_as, sharding_of
from .shortcuts import add, find
from .tensors import TYPES, check_memory, is_channels_last, memory_format

Tensor = torch.Tensor
depth = 0  # the number of active patches

_INDEXED = {function for function in ATEN if operators()[function].kind == "maximum_gradient"}
# aten's results of these are contiguous for every input
_FORMATLESS = {"adaptive_avg_pool3d_backward", "adaptive_max_pool3d_backward", "avg_pool3d_backward"}
_FLOATS = {dtype for dtype in TYPES if dtype.is_floating_point}

_grad_enabled = torch.is_grad_enabled

# Replaces the result layout in the key of shortcuts made here. Direct calls must not find these shortcuts,
# because direct calls may have to check indices.
_PATCHED = "patched"


def on_device(function: str, aten_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the override for a device key, for the functional and the out form."""

    def override(
        keys: Any, grad_output: Tensor, x: Tensor, *rest: Any, grad_input: Tensor | None = None
    ) -> Tensor:
        given = {} if grad_input is None else {"grad_input": grad_input}
        if depth:
            _check(function, grad_output, x, rest)
        result_layout = False if function in _FORMATLESS else x.stride()
        reason = refusal_of(grad_output)
        if depth and reason is None:
            try:
                return computed(function, grad_output, x, result_layout, rest, grad_input)
            except NoBackend as refusal:
                reason = str(refusal)
        if depth:
            warn_once(function, reason or "")
        return aten_kernel(keys, grad_output, x, *rest, **given)  # type: ignore[no-any-return]

    return override


def on_autograd(
    function: str, aten_kernel: Callable[..., Any], device_kernel: Callable[..., Any], device: str
) -> Callable[..., Any]:
    """Returns the override for an autograd key, for the functional form.

    `device_kernel`: aten's kernel for the device key.
    """
    indexed, plain = function in _INDEXED, plain_keys(device)

    def override(keys: Any, grad_output: Tensor, x: Tensor, *rest: Any) -> Tensor:
        if not depth:
            direct = not _grad_enabled() and follows_nothing(keys, plain)
            return (device_kernel if direct else aten_kernel)(keys, grad_output, x, *rest)  # type: ignore[no-any-return]
        indices, attributes = (rest[-1], rest[:-1]) if indexed else (None, rest)
        result = find(function, _PATCHED, grad_output, x, indices, attributes, None)
        if result is not None:
            return result  # type: ignore[no-any-return]
        _check(function, grad_output, x, rest)
        if grad_output.is_cpu or devices.missing(grad_output.device) is None:
            if may_skip_dispatcher(grad_output, indices) and tensor_may_skip_dispatcher(x):
                try:
                    return computed(function, grad_output, x, x.stride(), rest, None)
                except (NoBackend, TypeError):
                    if not can_call_aten() and grad_output.dtype in _FLOATS:
                        raise
                    # the device override reports the reason
            elif _in_graph(grad_output) and grad_output.dtype in _FLOATS:
                return _by_operator(function, grad_output, x, indices, attributes)
        return aten_kernel(keys, grad_output, x, *rest)  # type: ignore[no-any-return]

    return override


def plain_keys(device: str) -> frozenset[int]:
    """Returns the keys of a call on normal tensors of a device, if no mode or transform follows it."""
    key, keys = torch._C.DispatchKey, torch._C.DispatchKeySet
    both = keys(getattr(key, device)) | keys(getattr(key, f"Autograd{device}"))
    return frozenset({both.raw_repr(), (both | keys(key.ADInplaceOrView)).raw_repr()})


def follows_nothing(keys: Any, plain: frozenset[int]) -> bool:
    """Whether an autograd kernel with these keys only calls the kernel of the device, if it records nothing.

    After `remove`, an override then calls that kernel itself: one call through Python costs less than two.
    """
    return forward_ad._current_level < 0 and keys.raw_repr() in plain


def _by_operator(
    function: str, grad_output: Tensor, x: Tensor, indices: Tensor | None, attributes: tuple[Any, ...]
) -> Tensor:
    """Returns the gradient by `torch.ops.pooltide.*`, with a derivative of our own."""
    axes = AXES[function]
    grad_output = placed_as(sharding_of(x), grad_output, axes)
    given = attributes if indices is None else (indices, *attributes)
    arguments = grad_output, x.shape[-axes:], *given, is_channels_last(x, axes), False, True
    try:
        found = differentiable(function, *arguments)
    except FAULTS as fault:
        raise as_pytorch(fault) from None
    if forward_ad._current_level >= 0:
        if indices is None:
            x = forward_ad.unpack_dual(x).primal  # type: ignore[no-untyped-call]
        return _ForwardDependOnInput.apply(found, x)  # type: ignore[no-untyped-call, no-any-return]
    if _grad_enabled() and x.requires_grad:
        return _DependOnInput.apply(found, x)  # type: ignore[no-untyped-call, no-any-return]
    return found


def _check(function: str, grad_output: Any, x: Any, rest: tuple[Any, ...]) -> None:
    """Raises for tensors that would crash any kernel, and for None, which the dispatcher accepts."""
    for name, tensor in (("grad_output", grad_output), ("self", x)):
        if tensor is None:
            raise DtypeError(f"{function}: {name} is None; it must be a tensor.")
    try:
        check_memory(function, grad_output, rest[-1] if function in _INDEXED else None)
    except ValueError as error:
        raise as_pytorch(error) from None


class _DependOnInput(torch.autograd.Function):
    """Makes a gradient depend on the forward's input with derivative zero, like PyTorch's gradient."""

    @staticmethod
    def forward(ctx: Any, found: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return found.view_as(found)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, torch.zeros_like(ctx.saved_tensors[0])


class _ForwardDependOnInput(_DependOnInput):
    """Adds the derivative in forward mode, which torch.compile refuses to trace.

    If only the input has a tangent, that of PyTorch's gradient is zeros for a maximum, and missing for an
    average. A view would need a tangent that is a view, so the result is a copy.
    """

    @staticmethod
    def forward(ctx: Any, found: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return found.clone()

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, of_input: Tensor | None) -> Tensor | None:
        if tangent is not None:
            return tangent.clone()
        return None if of_input is None else torch.zeros_like(of_input)


def refusal_of(grad_output: Tensor) -> str | None:
    """Returns why our kernels cannot take this dtype or device; None if they can."""
    if grad_output.dtype not in _FLOATS:
        return f"it has no kernel for {grad_output.dtype}"
    return None if grad_output.is_cpu else devices.missing(grad_output.device)


def _in_graph(grad_output: Tensor) -> bool:
    """True if the override must call our operator: a dispatch mode or a tensor subclass must see the call.

    Also true if this release cannot call aten's autograd kernel, which would give the second derivative.
    False under torch.func.
    """
    if torch._C._are_functorch_transforms_active():
        return False
    return torch._C._len_torch_dispatch_stack() > 0 or type(grad_output) is not Tensor or not can_call_aten()


def computed(
    function: str,
    grad_output: Tensor,
    x: Tensor,
    result_layout: Any,
    rest: tuple[Any, ...],
    out: Tensor | None,
) -> Tensor:
    """Runs our kernel with the arguments of aten's operator and returns the gradient; raises NoBackend."""
    indices, given = (rest[-1], rest[:-1]) if function in _INDEXED else (None, rest)
    arrays = ARRAYS[function]
    attributes = (*map(tuple, given[:arrays]), *given[arrays:])
    if out is not None:
        axes = AXES[function]
        channels_last = function not in _FORMATLESS and is_channels_last(x, axes)
        _maybe_resize_out(out, x.shape, memory_format(channels_last, axes))
        if shares_memory(out, grad_output, indices):
            grad_output, indices = grad_output.clone(), None if indices is None else indices.clone()
    try:
        check_memory(function, None, None, out)
        check_not_empty(function, grad_output)
        prepared = prepare_gradient(function, grad_output, x, result_layout, indices, attributes, out)
        result = compute(prepared, grad_output, indices, out, check_indices=False)
    except (IndexError, MemoryError) as fault:
        raise as_pytorch(fault) from None
    except (TypeError, ValueError) as fault:
        raise with_text_of(
            as_pytorch(fault), lambda: judge(function, grad_output, x, *rest, grad_input=out)
        ) from None
    simple = out is None and result_layout is not False
    if simple and prepared.shortcut and (kernel := prepared.shortcut()):
        add(function, _PATCHED, grad_output, x, indices, given, None, kernel, prepared.template)
    return result
