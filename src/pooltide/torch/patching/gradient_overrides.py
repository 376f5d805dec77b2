"""What runs in the place of aten's backward operators while `patch` is active.

`on_device` makes the override for a device key (CPU, CUDA), `on_autograd` the one for an autograd key, which
runs first. The latter calls our kernel directly if nothing traces or transforms the call. Under tracing it
puts `torch.ops.pooltide.*` into the graph, which no compiler replaces (Inductor's gradient of avg_pool2d is
wrong for overhanging windows in ceil mode). Any other call it passes to PyTorch's autograd kernel, which then
calls the device override. While no patch is active, both pass every call to the kernels that they replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch._prims_common.wrappers import _maybe_resize_out
from torch.autograd import forward_ad

from ...kernels.calls import PreparedCall
from ...kernels.plan import NoBackend
from ...operators.catalog import operators
from ...problem.forwards import AdaptiveArguments, PoolArguments, StridedArguments
from ...problem.problem import Problem
from .. import gpu
from ..aten import ATEN, check_not_empty, judge, warn_once
from ..dispatch.custom_operators import ARRAYS, AXES
from ..dispatch.second_derivatives import differentiable
from ..dispatch.sharding import placed_as, sharding_of
from ..errors import FAULTS, DtypeError, ShapeError, as_pytorch, with_text_of
from ..gradients import may_skip_dispatcher, shares_memory, tensor_may_skip_dispatcher
from ..pools import forward
from ..releases import can_call_aten
from ..shortcuts import add, find
from ..tensor_calls import compute, kernel_and_copies, prepare_gradient
from ..tensors import TYPES, check_memory, is_channels_last, memory_format
from . import compiled_kernels

Tensor = torch.Tensor
depth = 0  # the number of active patches
# Whether patch(forward=True) was called: uint8 indices are offsets (forward.py), after `remove`, too.
reads_offsets = False

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
    indexed = function in _INDEXED

    def override(
        keys: Any, grad_output: Tensor, x: Tensor, *rest: Any, grad_input: Tensor | None = None
    ) -> Tensor:
        out_argument = {} if grad_input is None else {"grad_input": grad_input}
        if depth:
            _check(function, grad_output, x, rest)
        if _has_offsets(indexed, rest):
            rest = _with_indices(function, grad_output, x, rest)
        result_layout = False if function in _FORMATLESS else x.stride()
        reason = refusal_of(grad_output)
        if depth and reason is None:
            try:
                return computed(function, grad_output, x, result_layout, rest, grad_input)
            except NoBackend as refusal:
                reason = str(refusal)
        if depth:
            warn_once(function, reason or "")
        return aten_kernel(keys, grad_output, x, *rest, **out_argument)  # type: ignore[no-any-return]

    return override


def on_autograd(
    function: str, aten_kernel: Callable[..., Any], device_kernel: Callable[..., Any], device: str
) -> Callable[..., Any]:
    """Returns the override for an autograd key, for the functional form.

    `device_kernel`: aten's kernel for the device key.
    """
    indexed, plain = function in _INDEXED, plain_keys(device)

    def override(
        keys: Any, grad_output: Tensor, x: Tensor, *rest: Any, key: bytes | None = None, offsets: bool = False
    ) -> Tensor:
        if _has_offsets(indexed, rest):
            result = _from_offsets(function, grad_output, x, rest, key)
            if result is not None:
                return result
            rest = _with_indices(function, grad_output, x, rest)
        if not depth:
            direct = not _grad_enabled() and follows_nothing(keys, plain)
            return (device_kernel if direct else aten_kernel)(keys, grad_output, x, *rest)  # type: ignore[no-any-return]
        indices, attributes = (rest[-1], rest[:-1]) if indexed else (None, rest)
        result = find(function, _PATCHED, grad_output, x, indices, attributes, None)
        if result is not None:
            return result  # type: ignore[no-any-return]
        _check(function, grad_output, x, rest)
        if grad_output.is_cpu or gpu.missing(grad_output.device) is None:
            if may_skip_dispatcher(grad_output, indices) and tensor_may_skip_dispatcher(x):
                try:
                    return computed(function, grad_output, x, x.stride(), rest, None, key)
                except (NoBackend, TypeError):
                    if not can_call_aten() and grad_output.dtype in _FLOATS:
                        raise
                    # the device override reports the reason
            elif _in_graph(grad_output) and grad_output.dtype in _FLOATS:
                return _by_operator(function, grad_output, x, indices, attributes)
        return aten_kernel(keys, grad_output, x, *rest)  # type: ignore[no-any-return]

    return override


def _has_offsets(indexed: bool, rest: tuple[Any, ...]) -> bool:
    """Whether the last argument is the offsets that patch(forward=True) saved in the place of indices."""
    return indexed and reads_offsets and rest[-1] is not None and rest[-1].dtype is torch.uint8


def _from_offsets(
    function: str, grad_output: Tensor, x: Tensor, rest: tuple[Any, ...], key: bytes | None
) -> Tensor | None:
    """Returns the gradient of maxima from their offsets; None if it must be computed from indices."""
    *attributes, offsets = rest
    known: Tensor | None = find(function, _PATCHED, grad_output, x, offsets, tuple(attributes), None)
    if known is not None:
        return known
    _check(function, grad_output, x, rest)
    if not (may_skip_dispatcher(grad_output, offsets) and tensor_may_skip_dispatcher(x)):
        return None
    name, arguments = _pool_of(function, grad_output, attributes)
    channels_last = is_channels_last(x, AXES[function])
    try:
        problem = forward.offsets_problem(name, x, arguments)
        check_offsets(function, grad_output, offsets, problem)
        call, result = forward.gradient_from(
            problem, function, grad_output, offsets, tuple(x.shape), arguments, channels_last
        )
    except NoBackend:
        return None
    except FAULTS as fault:
        raise as_pytorch(fault) from None
    _remember(call, key, function, grad_output, x, offsets, tuple(attributes))
    return result


def _remember(call: PreparedCall, key: bytes | None, function: str, *arguments: Any) -> None:
    """Lets compiled code compute equal calls, from now on."""
    if key is not None:
        grad_output, _, indices, *_ = arguments
        result = compiled_kernels.SAME, call.shape, call.strides, call.template.nbytes
        if (runnable := kernel_and_copies(call, grad_output, indices)) is not None:
            compiled_kernels.remember(key, function, runnable[0], [result], runnable[1])
    elif call.kernel is not None:
        add(function, _PATCHED, *arguments, None, call.kernel, call.template)


def check_offsets(function: str, grad_output: Tensor, offsets: Tensor, problem: Problem) -> None:
    """Raises for tensors that do not fit the problem: a hook may have replaced a saved tensor."""
    plane = problem.output_plane[3 - AXES[function] :]
    if tuple(offsets.shape[-len(plane) :]) != plane or offsets.shape != grad_output.shape:
        shapes = f"{tuple(offsets.shape)} and grad_output {tuple(grad_output.shape)}"
        raise ShapeError(f"{function}: indices has shape {shapes}; both must end with {plane}.")
    if TYPES.get(grad_output.dtype) != problem.dtype:
        must = problem.dtype.name.lower()
        raise DtypeError(f"{function}: grad_output has dtype {grad_output.dtype}; it must be {must}.")


def _with_indices(function: str, grad_output: Tensor, x: Tensor, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the arguments with int64 indices in the place of offsets."""
    *attributes, offsets = rest
    name, arguments = _pool_of(function, grad_output, attributes)
    problem = forward.offsets_problem(name, x, arguments)
    return *attributes, forward.indices_from(problem, AXES[function], offsets)


def _pool_of(function: str, grad_output: Tensor, attributes: Sequence[Any]) -> tuple[str, PoolArguments]:
    """Returns the pool of a gradient, and its arguments."""
    name = function.removesuffix("_backward")
    if not attributes:
        return name, AdaptiveArguments(tuple(grad_output.shape[-AXES[function] :]))
    kernel, stride, padding, dilation, ceil_mode = (
        tuple(value) if isinstance(value, list) else value for value in attributes
    )
    return name, StridedArguments(kernel, stride or None, padding, dilation, ceil_mode)


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
    if indices is not None and torch._guards.TracingContext.try_get() and prod(x.shape[-axes:]) < 1 << 31:
        indices = indices.to(torch.int32)  # the compiler computes them for this call: half of the bytes
    operands = attributes if indices is None else (indices, *attributes)
    arguments = grad_output, x.shape[-axes:], *operands, is_channels_last(x, axes), False, True
    try:
        gradient = differentiable(function, *arguments)
    except FAULTS as fault:
        raise as_pytorch(fault) from None
    if forward_ad._current_level >= 0:
        if indices is None:
            x = forward_ad.unpack_dual(x).primal  # type: ignore[no-untyped-call]
        return _ForwardDependOnInput.apply(gradient, x)  # type: ignore[no-untyped-call, no-any-return]
    if _grad_enabled() and x.requires_grad:
        return _DependOnInput.apply(gradient, x)  # type: ignore[no-untyped-call, no-any-return]
    return gradient


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
    def forward(ctx: Any, gradient: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, torch.zeros_like(ctx.saved_tensors[0])


class _ForwardDependOnInput(_DependOnInput):
    """Adds the derivative in forward mode, which torch.compile refuses to trace.

    If only the input has a tangent, that of PyTorch's gradient is zeros for a maximum, and missing for an
    average. A view would need a tangent that is a view, so the result is a copy.
    """

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return gradient.clone()

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, of_input: Tensor | None) -> Tensor | None:
        if tangent is not None:
            return tangent.clone()
        return None if of_input is None else torch.zeros_like(of_input)


def refusal_of(grad_output: Tensor) -> str | None:
    """Returns why our kernels cannot take this dtype or device; None if they can."""
    if grad_output.dtype not in _FLOATS:
        return f"it has no kernel for {grad_output.dtype}"
    return None if grad_output.is_cpu else gpu.missing(grad_output.device)


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
    key: bytes | None = None,
) -> Tensor:
    """Runs our kernel with the arguments of aten's operator and returns the gradient; raises NoBackend."""
    indices, aten_attributes = (rest[-1], rest[:-1]) if function in _INDEXED else (None, rest)
    arrays = ARRAYS[function]
    attributes = (*map(tuple, aten_attributes[:arrays]), *aten_attributes[arrays:])
    if out is not None:
        axes = AXES[function]
        channels_last = function not in _FORMATLESS and is_channels_last(x, axes)
        _maybe_resize_out(out, x.shape, memory_format(channels_last, axes))
        if shares_memory(out, grad_output, indices):
            grad_output, indices = grad_output.clone(), None if indices is None else indices.clone()
    try:
        check_memory(function, None, None, out)
        check_not_empty(function, grad_output)
        call = prepare_gradient(function, grad_output, x, result_layout, indices, attributes, out)
        result = compute(call, grad_output, indices, out, check_indices=False)
    except (IndexError, MemoryError) as fault:
        raise as_pytorch(fault) from None
    except (TypeError, ValueError) as fault:
        raise with_text_of(
            as_pytorch(fault), lambda: judge(function, grad_output, x, *rest, grad_input=out)
        ) from None
    if out is None and result_layout is not False:
        _remember(call, key, function, grad_output, x, indices, aten_attributes)
    return result
