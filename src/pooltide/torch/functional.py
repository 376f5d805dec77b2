"""Differentiable pools: the functions of torch.nn.functional with our gradients.

They take and return what PyTorch's functions do, and save less memory for the backward pass.
An average saves only the input's shape. A maximum saves its position: one byte per window if windows have
at most 256 cells, else an index in the smallest integer type.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import torch

from ..operators.plain import plain, shown
from ..problem.forwards import AdaptiveArguments, PoolArguments, StridedArguments, plain_arguments
from . import pools, pytorch_pools
from .errors import DtypeError, ShapeError
from .gradients import Ints, tracing
from .nodes import Average, Maximum, apply_node
from .operators import ARRAYS
from .tensors import is_tensor, shortage
from .unpools import max_unpool1d, max_unpool2d, max_unpool3d

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "average_of",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]

Tensor = torch.Tensor
Size = int | None | Sequence[int | None]
Maxima = Tensor | tuple[Tensor, Tensor]


def avg_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """As torch.nn.functional.avg_pool1d; the gradient needs only the input's shape."""
    pool = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad)
    return _average("avg_pool1d", input, pool)


def avg_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """As torch.nn.functional.avg_pool2d; the gradient needs only the input's shape."""
    pool = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return _average("avg_pool2d", input, pool)


def avg_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """As torch.nn.functional.avg_pool3d; the gradient needs only the input's shape."""
    pool = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return _average("avg_pool3d", input, pool)


def adaptive_avg_pool1d(input: Tensor, output_size: Ints) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool1d; the gradient needs only the input's shape."""
    return _average("adaptive_avg_pool1d", input, AdaptiveArguments(output_size))


def adaptive_avg_pool2d(input: Tensor, output_size: Size) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool2d; the gradient needs only the input's shape."""
    return _average("adaptive_avg_pool2d", input, AdaptiveArguments(output_size))


def adaptive_avg_pool3d(input: Tensor, output_size: Size) -> Tensor:
    """As torch.nn.functional.adaptive_avg_pool3d; the gradient needs only the input's shape."""
    return _average("adaptive_avg_pool3d", input, AdaptiveArguments(output_size))


def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Maxima:
    """As torch.nn.functional.max_pool1d; saves one byte per window if that suffices."""
    pool = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return _maximum("max_pool1d", input, pool, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Maxima:
    """As torch.nn.functional.max_pool2d; saves one byte per window if that suffices."""
    pool = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return _maximum("max_pool2d", input, pool, return_indices)


def max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Maxima:
    """As torch.nn.functional.max_pool3d; saves one byte per window if that suffices."""
    pool = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return _maximum("max_pool3d", input, pool, return_indices)


def adaptive_max_pool1d(input: Tensor, output_size: Ints, return_indices: bool = False) -> Maxima:
    """As torch.nn.functional.adaptive_max_pool1d; saves one byte per window if that suffices."""
    return _maximum("adaptive_max_pool1d", input, AdaptiveArguments(output_size), return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima:
    """As torch.nn.functional.adaptive_max_pool2d; saves one byte per window if that suffices."""
    return _maximum("adaptive_max_pool2d", input, AdaptiveArguments(output_size), return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Size, return_indices: bool = False) -> Maxima:
    """As torch.nn.functional.adaptive_max_pool3d; saves one byte per window if that suffices."""
    return _maximum("adaptive_max_pool3d", input, AdaptiveArguments(output_size), return_indices)


def average_of(function: str, input: Tensor, *attributes: Any) -> Tensor:
    """Returns the average of which `function` is the gradient; attributes in the gradient's order."""
    if ARRAYS[function]:
        kernel, stride, padding, *rest = attributes
        arguments: PoolArguments = StridedArguments(kernel, stride, padding, 1, *rest)
    else:
        arguments = AdaptiveArguments(*attributes)
    return _average(function.removesuffix("_backward"), input, arguments)


def _average(name: str, input: Tensor, arguments: PoolArguments) -> Tensor:
    if tracing():  # the trace can't hold our kernels
        return pytorch_pools.pool(name, input, arguments)  # type: ignore[no-any-return]
    arguments = _plain_arguments(arguments)
    _check(name, input)
    if pytorch_pools.is_special(input):
        return pytorch_pools.pool_special(name, input, arguments)  # type: ignore[no-any-return]
    if _is_empty_or_integer(input):
        theirs: Tensor = pytorch_pools.pool_empty_or_integer(name, input, arguments, False)
        return theirs
    pool = pools.prepare_pool(name, input, arguments)
    if (at := pools.unit_axis(name, input)) is not None:
        wide = _average(*pools.with_unit_axis(name, input, arguments, at))
        return wide.squeeze(at)
    if pool is not None and not _needs_gradient(input):
        return pools.values_of(pool, input)
    untransformed = pool is not None or (
        not torch.compiler.is_compiling() and pools.kernel_may_read(input)  # for example the mean of planes
    )
    result: Tensor = apply_node(Average, untransformed, input, name, arguments, pool)[0]
    return result


def _maximum(name: str, input: Tensor, arguments: PoolArguments, return_indices: bool) -> Maxima:
    if tracing():
        return pytorch_pools.pool(name, input, arguments, return_indices)  # type: ignore[no-any-return]
    arguments = _plain_arguments(arguments)
    return_indices = _check(name, input, return_indices)
    if pytorch_pools.is_special(input):
        return pytorch_pools.pool_special(name, input, arguments, return_indices)  # type: ignore[no-any-return]
    if _is_empty_or_integer(input):
        theirs: Maxima = pytorch_pools.pool_empty_or_integer(name, input, arguments, return_indices)
        return theirs
    untracked = not _needs_gradient(input)
    wanted = "indices" if return_indices else "none"
    ready = pools.prepare_pool(name, input, arguments, wanted) if untracked else None
    if ready is not None and name == "max_pool1d" and wanted == "none" and input.is_cpu:
        return pools.values_of(ready, input)  # PyTorch's result is contiguous too
    pool = None if ready is not None else pools.prepare_pool(name, input, arguments, "offsets")
    if (at := pools.unit_axis(name, input)) is not None:
        wide = _maximum(*pools.with_unit_axis(name, input, arguments, at), return_indices)
        return (wide[0].squeeze(at), wide[1].squeeze(at)) if isinstance(wide, tuple) else wide.squeeze(at)
    if ready is not None:
        return pools.maxima_of(ready, input) if return_indices else pools.values_of(ready, input)
    if untracked and pool is not None:
        return pytorch_pools.pool(name, input, arguments, return_indices)  # type: ignore[no-any-return]
    result, _, _, *indices = apply_node(
        Maximum, pool is not None, input, name, arguments, pool, return_indices
    )
    return (result, indices[0]) if return_indices else result


def _plain_arguments(arguments: PoolArguments) -> PoolArguments:
    """Returns the arguments as plain values, e.g. NumPy integers as ints; unchanged under a tracer."""
    return arguments if torch.compiler.is_compiling() else plain_arguments(arguments)


def _check(name: str, input: Any, return_indices: Any = False) -> bool:
    """Returns `return_indices` as a bool; raises for an input that is not a tensor or lacks storage."""
    if torch.compiler.is_compiling():
        return bool(return_indices)
    if not is_tensor(input):
        raise DtypeError(f"{name}: input is {shown(input)}; it must be a tensor.")
    if text := shortage(input):
        raise ShapeError(f"{name}: input {text}")
    flag = plain(return_indices)
    if type(flag) not in (bool, int, NoneType):  # PyTorch takes 0, 1 and None, too
        raise DtypeError(f"{name}: return_indices is {shown(return_indices)}; it must be True or False.")
    return bool(flag)


def _is_empty_or_integer(input: Tensor) -> bool:
    """Whether PyTorch computes the forward and the gradient."""
    return not input.is_floating_point() or (not torch.compiler.is_compiling() and input.numel() == 0)


def _needs_gradient(input: Tensor) -> bool:
    return input.requires_grad and torch.is_grad_enabled()
