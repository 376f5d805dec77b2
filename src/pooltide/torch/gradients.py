"""The gradient functions' common implementation, `gradient`.

It takes a gradient's name and arguments and returns the result. It calls the kernel directly where it can,
because PyTorch's dispatcher costs more than a small pool. Autograd, vmap, tracing and tensor subclasses
need the dispatcher; for them it calls `torch.ops.pooltide`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from ..kernels.plan import NoBackend
from ..operators.binding import bind
from ..operators.catalog import operators
from ..operators.plain import plain, plain_shape
from .dispatch.custom_operators import ARRAYS, AXES
from .dispatch.second_derivatives import differentiable
from .shortcuts import add, find, pre_dispatch
from .tensor_calls import ResultLayout, compute, prepare_gradient
from .tensors import arrays_on, check_memory, is_channels_last, is_tensor, storage_address, unreadable

Ints = int | Sequence[int]
Input = torch.Tensor | Sequence[int]

_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_grad_enabled = torch.is_grad_enabled
_compiling = torch.compiler.is_compiling
_dynamo = torch.compiler.is_dynamo_compiling  # faster than `_compiling`; Dynamo cannot trace `find`
_is_tracing: Callable[[], bool] = torch._C._is_tracing  # by torch.jit.trace; Dynamo cannot trace this call
_set_tracing_state: Callable[[Any], None] = torch._C._set_tracing_state  # type: ignore[attr-defined]
_has_storage = torch._C._has_storage


class Arguments(NamedTuple):
    """The arguments of `gradient`."""

    function: str
    grad_output: torch.Tensor
    input: Input
    indices: torch.Tensor | None
    attributes: tuple[Any, ...]
    out: torch.Tensor | None
    check_indices: bool
    result_layout: ResultLayout
    fallback: bool


def gradient(
    function: str,
    grad_output: torch.Tensor,
    input: Input,
    indices: torch.Tensor | None,
    attributes: tuple[Any, ...],
    out: torch.Tensor | None = None,
    check_indices: bool = True,
    result_layout: ResultLayout = None,
    fallback: bool = False,
) -> torch.Tensor:
    """Computes the gradient `function`. `result_layout` counts only where `input` is a shape.

    `check_indices`: wait for a GPU and raise for an index outside its plane. The CPU always raises.
    `fallback`: PyTorch's kernel may compute what our kernels refuse; else this raises NoBackend.
    """
    if not (_dynamo() or _is_tracing()):
        result = find(function, result_layout, grad_output, input, indices, attributes, out)
        if result is not None:
            return result  # type: ignore[no-any-return]
    arguments = Arguments(
        function, grad_output, input, indices, attributes, out, check_indices, result_layout, fallback
    )
    if not _compiling():
        if _is_tracing():
            return _traced(arguments)
        check_memory(function, grad_output, indices, out)
        arguments = _plain(arguments)
        if may_skip_dispatcher(grad_output, indices) and (out is None or tensor_may_skip_dispatcher(out)):
            try:
                return _direct(arguments)
            except NoBackend:
                if not fallback:
                    raise
    return _dispatched(arguments)


def _plain(arguments: Arguments) -> Arguments:
    """Returns the arguments with input, a tensor or a tuple, and attributes as plain values (plain.py)."""
    arguments = arguments._replace(attributes=tuple(map(plain, arguments.attributes)))
    if is_tensor(arguments.input):
        if kind := unreadable(arguments.input):
            raise TypeError(f"{arguments.function}: input {kind}; it must be a strided tensor or a shape.")
        return arguments
    arguments = arguments._replace(input=plain_shape(arguments.input))
    if type(arguments.input) is not tuple:
        _check(arguments)  # raises
    return arguments


def _check(arguments: Arguments) -> None:
    """Raises for the first bad argument."""
    grad_output = arguments.grad_output
    device = grad_output.device if is_tensor(grad_output) else torch.device("cpu")
    bind(arrays_on(device), operators()[arguments.function], *arguments[1:6])


def _direct(arguments: Arguments) -> torch.Tensor:
    """Computes the gradient without the dispatcher; raises NoBackend."""
    function, grad_output, input, indices, attributes, out, check_indices, result_layout, _ = arguments
    layout = input.stride() if isinstance(input, torch.Tensor) else result_layout
    if out is not None and shares_memory(out, grad_output, indices):
        grad_output = grad_output.clone()
        indices = None if indices is None else indices.clone()
    call = prepare_gradient(function, grad_output, input, layout, indices, attributes, out)
    if out is not None:
        _mark_written(function, out)
    result = compute(call, grad_output, indices, out, check_indices)
    # A GPU's kernel does not check indices, so calls with indices on a GPU get no shortcut.
    if call.kernel is not None and (indices is None or grad_output.is_cpu):
        add(function, result_layout, grad_output, input, indices, attributes, out, call.kernel, call.template)
    return result


def tracing() -> bool:
    """Whether torch.jit.trace records the call. It records only what the dispatcher sees."""
    return not _compiling() and _is_tracing()


def may_skip_dispatcher(grad_output: Any, indices: Any) -> bool:
    """Whether no mode, transform, tracer, subclass or autograd must see the call. True for non-tensors."""
    if not nothing_follows():
        return False
    if is_tensor(indices) and (type(indices) is not torch.Tensor or _has_special_memory(indices)):
        return False
    return tensor_may_skip_dispatcher(grad_output)


def nothing_follows() -> bool:
    """Whether no mode, transform or tracer follows the calls of this thread; autograd may."""
    return not (
        _modes() or pre_dispatch() or _transforms() or _is_tracing() or forward_ad._current_level >= 0
    )


def tensor_may_skip_dispatcher(tensor: Any) -> bool:
    """Whether a kernel may use the tensor's memory directly, without autograd. True for non-tensors."""
    if not is_tensor(tensor):
        return True
    return has_plain_memory(tensor) and not (tensor.requires_grad and _grad_enabled())


def has_plain_memory(tensor: torch.Tensor) -> bool:
    """Whether a kernel may read the tensor's memory: it is no subclass, and its memory has its values."""
    kind = type(tensor)
    return (kind is torch.Tensor or kind is torch.nn.Parameter) and not _has_special_memory(tensor)


def _has_special_memory(tensor: torch.Tensor) -> bool:
    """Whether memory, shape and strides alone do not give the tensor's values."""
    # A batch of gradients (is_grads_batched) looks like one tensor without storage.
    if not _has_storage(tensor) or tensor.is_neg() or tensor._is_zerotensor():
        return True
    return unreadable(tensor) is not None


def shares_memory(out: Any, *tensors: torch.Tensor | None) -> bool:
    """Whether `out`'s storage overlaps that of a tensor; distinct storages may hold the same memory."""
    if not is_tensor(out):
        return False
    out.data_ptr()  # if it shares memory until one writes, it has memory of its own now
    begin, end = _span(out)
    spans = (_span(t) for t in tensors if is_tensor(t))
    return any(first < end and begin < last for first, last in spans)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    begin = storage_address(tensor)
    return begin, begin + tensor.untyped_storage().nbytes()


def _mark_written(function: str, out: torch.Tensor) -> None:
    """Tells autograd, which may have saved `out` for a backward pass, that its values change."""
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(
            f"{function}: out is an inference tensor; outside inference mode it must be a normal one."
        )
    increment_version(out)


def _dispatched(arguments: Arguments) -> torch.Tensor:
    """Computes the gradient by `torch.ops.pooltide`, which autograd, transforms and compilers see."""
    return _followed(arguments, _operator_arguments(arguments))


def _traced(arguments: Arguments) -> torch.Tensor:
    """As `_dispatched`, under torch.jit.trace. The tracer is paused while arguments are checked.

    Otherwise the sizes of tensors would be tensors, not integers.
    """
    state = torch._C._get_tracing_state()
    _set_tracing_state(None)
    try:
        check_memory(arguments.function, arguments.grad_output, arguments.indices, arguments.out)
        operands = _operator_arguments(_plain(arguments))
    finally:
        _set_tracing_state(state)
    return _followed(arguments, operands)


def _followed(arguments: Arguments, operands: Any) -> torch.Tensor:
    function = arguments.function
    return written(function, arguments.grad_output, arguments.out, differentiable(function, *operands))


def written(
    function: str, grad_output: torch.Tensor, out: torch.Tensor | None, result: torch.Tensor
) -> torch.Tensor:
    """Returns the result, copied to `out` if there is one; raises if autograd follows a call with `out`."""
    if out is None:
        return result
    for name, tensor in (("grad_output", grad_output), ("out", out)):
        if tensor.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{function}: {name} requires a gradient; with out= no argument may.")
    if result.requires_grad:
        raise ValueError(f"{function}: autograd follows the call; with out= it must not.")
    return out.copy_(result)


def _operator_arguments(arguments: Arguments) -> tuple[Any, ...]:
    """Returns the arguments of the operator in `torch.ops.pooltide`; raises for the first bad argument."""
    function, grad_output, input, indices, attributes, _, check_indices, result_layout, fallback = arguments
    axes, arrays = AXES[function], ARRAYS[function]
    if not _compiling():
        _check(arguments)
    shape = tuple(input.shape) if isinstance(input, torch.Tensor) else tuple(input)
    if shape[:-axes] != tuple(grad_output.shape[:-axes]):
        raise ValueError(f"{function}: grad_output and input differ in N or C; they must have the same.")
    if isinstance(input, torch.Tensor):
        result_layout = is_channels_last(input, axes)
    elif result_layout is None:
        result_layout = is_channels_last(grad_output, axes)
    rest = (*map(_ints, attributes[:arrays]), *attributes[arrays:])
    if indices is not None:
        rest = (indices, *rest)
    return grad_output, shape[-axes:], *rest, result_layout, check_indices, fallback


def _ints(value: Ints | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)
