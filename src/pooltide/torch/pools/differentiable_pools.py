"""The pools of `functional`: who computes a call.

`average` and `maximum` take a pool's name, tensor and `PoolArguments`, and return what the pool returns.
Our autograd nodes compute eager calls, calls under torch.compile, and those under torch.func's grad and vmap.
PyTorch's own pool, with its own gradient, computes every other call: in forward mode, under functionalize,
torch.export, torch.jit.trace and dispatch modes, for tensor subclasses other than DTensor, for integer, empty
and special tensors, and for the mean of whole planes. An object or a mode with `__torch_function__` gets the
call first.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function_unary

from ...operators.plain import plain, shown
from ...problem.forwards import AdaptiveArguments, PoolArguments, StridedArguments, plain_arguments
from ..dispatch.custom_operators import ARRAYS
from ..dispatch.sharding import sharding_of
from ..errors import DtypeError, ShapeError, as_pytorch, with_text_of
from ..gradients import tracing
from ..shortcuts import pre_dispatch
from ..tensors import is_tensor, shortage
from . import forward, pytorch_pools
from .pool_nodes import Average, Maximum, apply_node

Tensor = torch.Tensor
_compiling = torch.compiler.is_compiling
_transforms = torch._C._are_functorch_transforms_active
_interpreters = getattr(torch._C._functorch, "get_interpreter_stack", lambda: None)
_FUNCTIONALIZE = torch._C._functorch.TransformType.Functionalize
_HUGE = 2**31


def average(name: str, input: Tensor, arguments: PoolArguments, out: Tensor | None = None) -> Tensor:
    """Returns the average; with `out`, PyTorch computes it."""
    if has_torch_function_unary(input):
        return _handled(name, input, arguments, {} if out is None else {"out": out})  # type: ignore[no-any-return]
    if out is not None:
        return pytorch_pools.pool(name, input, arguments, out=out)  # type: ignore[no-any-return]
    if _compiling():
        if _exporting() or not _has_node(input) or pytorch_pools.is_mean(name, input, arguments):
            return pytorch_pools.pool(name, input, arguments)  # type: ignore[no-any-return]
        return apply_node(Average, False, input, name, arguments, None)[0]  # type: ignore[no-any-return]
    try:
        return _average(name, _read(input), arguments)
    except (ShapeError, DtypeError) as error:
        raise _with_pytorchs_text(error, name, input, arguments) from error.__cause__
    except (ValueError, TypeError) as error:  # PyTorch's own
        raise as_pytorch(error) from error.__cause__


def maximum(
    name: str, input: Tensor, arguments: PoolArguments, return_indices: bool
) -> Tensor | tuple[Tensor, Tensor]:
    """Returns the maximum, with `return_indices` a pair with its indices."""
    if has_torch_function_unary(input):
        return _handled(name, input, arguments, {"return_indices": return_indices})  # type: ignore[no-any-return]
    if _compiling():
        if _exporting() or not _has_node(input):
            return pytorch_pools.pool(name, input, arguments, bool(return_indices))  # type: ignore[no-any-return]
        outputs = apply_node(Maximum, False, input, name, arguments, None, bool(return_indices))
        return (outputs[0], outputs[3]) if return_indices else outputs[0]
    try:
        return _maximum(name, _read(input), arguments, return_indices)  # type: ignore[no-any-return]
    except (ShapeError, DtypeError) as error:
        raise _with_pytorchs_text(error, name, input, arguments, return_indices) from error.__cause__
    except (ValueError, TypeError) as error:  # PyTorch's own
        raise as_pytorch(error) from error.__cause__


def _read(input: Tensor) -> Tensor:
    """Returns the tensor with its values in memory, if it is lazily negated."""
    return input.resolve_neg() if type(input) is Tensor and input.is_neg() else input


def average_of(function: str, input: Tensor, *attributes: Any) -> Tensor:
    """Returns the average of which `function` is the gradient; attributes in the gradient's order."""
    if ARRAYS[function]:
        kernel, stride, padding, *rest = attributes
        arguments: PoolArguments = StridedArguments(kernel, stride, padding, 1, *rest)
    else:
        arguments = AdaptiveArguments(*attributes)
    return average(function.removesuffix("_backward"), input, arguments)


def _average(name: str, input: Tensor, arguments: PoolArguments) -> Tensor:
    if tracing():  # the trace can't hold our kernels
        return pytorch_pools.pool(name, input, arguments)  # type: ignore[no-any-return]
    arguments = plain_arguments(arguments)
    _check(name, input)
    if pytorch_pools.is_special(input):
        return pytorch_pools.pool_special(name, input, arguments)  # type: ignore[no-any-return]
    if not input.is_floating_point() or input.numel() == 0:
        return pytorch_pools.pool_empty_or_integer(name, input, arguments, False)  # type: ignore[no-any-return]
    pool = forward.prepare_pool(name, input, arguments)
    if pool is None and (_is_pytorchs(input) or pytorch_pools.is_mean(name, input, arguments)):
        return pytorch_pools.pool(name, input, arguments)  # type: ignore[no-any-return]
    if (at := forward.unit_axis(name, input)) is not None:
        return average(*forward.with_unit_axis(name, input, arguments, at)).squeeze(at)
    if pool is not None and not _needs_gradient(input):
        return forward.values_of(pool, input)
    untransformed = pool is not None or forward.kernel_may_read(input)  # for example under autocast
    return apply_node(Average, untransformed, input, name, arguments, pool)[0]  # type: ignore[no-any-return]


def _maximum(name: str, input: Tensor, arguments: PoolArguments, return_indices: Any) -> Any:
    if tracing():
        return pytorch_pools.pool(name, input, arguments, return_indices)
    arguments = plain_arguments(arguments)
    return_indices = _check(name, input, return_indices)
    if pytorch_pools.is_special(input):
        return pytorch_pools.pool_special(name, input, arguments, return_indices)
    if not input.is_floating_point() or input.numel() == 0:
        return pytorch_pools.pool_empty_or_integer(name, input, arguments, return_indices)
    untracked = not _needs_gradient(input)
    positions = "indices" if return_indices else "none"
    ready = forward.prepare_pool(name, input, arguments, positions) if untracked else None
    if ready is not None and name == "max_pool1d" and positions == "none" and input.is_cpu:
        return forward.values_of(ready, input)  # PyTorch's result is contiguous too
    pool = None if ready is not None else forward.prepare_pool(name, input, arguments, "offsets")
    if ready is None and pool is None and _is_pytorchs(input):
        return pytorch_pools.pool(name, input, arguments, return_indices)
    if (at := forward.unit_axis(name, input)) is not None:
        wide = maximum(*forward.with_unit_axis(name, input, arguments, at), return_indices)
        return (wide[0].squeeze(at), wide[1].squeeze(at)) if isinstance(wide, tuple) else wide.squeeze(at)
    if ready is not None:
        return forward.maxima_of(ready, input) if return_indices else forward.values_of(ready, input)
    if untracked and pool is not None:
        return pytorch_pools.pool(name, input, arguments, return_indices)
    result, _, _, *indices = apply_node(
        Maximum, pool is not None, input, name, arguments, pool, return_indices
    )
    return (result, indices[0]) if return_indices else result


def _handled(name: str, input: Any, arguments: PoolArguments, more: dict[str, Any]) -> Any:
    """Returns what `__torch_function__` of the input or of an active mode makes of the call."""
    from .. import functional

    names = pytorch_pools.argument_names(name)
    named = dict(zip(names, pytorch_pools.attributes(name, arguments), strict=True))
    return handle_torch_function(getattr(functional, name), (input,), input, **named, **more)


def _exporting() -> bool:
    """Whether torch.export traces the call. Its strict mode drops the gradient of autograd functions."""
    return getattr(torch.compiler, "_is_exporting_flag", False)  # a compiler takes is_exporting() for True


def _has_node(input: Tensor) -> bool:
    """Whether a compiled graph holds our node for this tensor."""
    return input.is_floating_point() and not pytorch_pools.is_special(input)


def _is_pytorchs(input: Tensor) -> bool:
    """Whether a transform, a mode, or the kind of tensor leaves the call to PyTorch's own pool."""
    if pre_dispatch() and not _exporting() and _needs_gradient(input):
        return False  # PyTorch's trace would keep the indices of the traced input for the gradient
    if not _transforms():  # PyTorch has no sharding rules for most of its gradients, we have
        return not forward.kernel_may_read(input) and sharding_of(input) is None
    if forward_ad._current_level >= 0:
        return True
    return any(interpreter.key() == _FUNCTIONALIZE for interpreter in _interpreters() or ())


def _check(name: str, input: Any, return_indices: Any = False) -> bool:
    """Returns `return_indices` as a bool; raises for an input that is not a tensor or lacks storage."""
    if not is_tensor(input):
        raise DtypeError(f"{name}: input is {shown(input)}; it must be a tensor.")
    if text := shortage(input):
        raise ShapeError(f"{name}: input {text}")
    flag = plain(return_indices)
    if type(flag) not in (bool, int, NoneType):  # PyTorch takes 0, 1 and None, too
        raise DtypeError(f"{name}: return_indices is {shown(return_indices)}; it must be True or False.")
    return bool(flag)


def _needs_gradient(input: Tensor) -> bool:
    return input.requires_grad and torch.is_grad_enabled()


def _sizes(arguments: PoolArguments) -> Iterator[int]:
    """Yields every int of the arguments; those of an odd object are not looked at."""
    for value in plain_arguments(arguments):
        for size in value if type(value) is tuple else (value,):
            if type(size) is int:
                yield size


def _with_pytorchs_text(
    error: Exception, name: str, input: Any, arguments: PoolArguments, return_indices: Any = False
) -> Exception:
    """Returns the error with the text of PyTorch's error for the same call, if PyTorch may see the call."""
    if is_tensor(input) and shortage(input):  # PyTorch would read outside the storage
        return error
    if any(abs(size) > _HUGE for size in _sizes(arguments)):
        return error  # some of PyTorch's kernels count to such a number
    return with_text_of(error, lambda: pytorch_pools.unchecked(name, input, arguments, return_indices))
