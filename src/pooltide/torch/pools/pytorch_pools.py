"""Calls of PyTorch's own pool functions.

Input: a pool's name, tensor and `PoolArguments`. Output: what PyTorch's function returns.
`pool_special` and `pool_empty_or_integer` also leave the gradient to PyTorch.
PyTorch computes sparse, nested, mkldnn, quantized, integer and empty tensors, and every forward for which
`pools.prepare_pool` returns None. Errors have our messages where PyTorch's do not name the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...operators.catalog import operators
from ...operators.plain import kinds, shown
from ...problem.forwards import AdaptiveArguments, PoolArguments
from ..dispatch.custom_operators import ATTRIBUTE_TYPES, AXES
from ..errors import DtypeError, ShapeError
from ..gradients import tracing
from ..tensors import DEVICES, unreadable
from .forward import prepare_pool

Tensor = torch.Tensor
_FLAGS = ("ceil_mode", "count_include_pad")
_NN = torch._C._nn
# Not the functions of torch.nn.functional: a program may put our pools in their places.
POOLS: dict[str, Callable[..., Any]] = {
    "avg_pool1d": torch.avg_pool1d,
    "avg_pool2d": _NN.avg_pool2d,
    "avg_pool3d": _NN.avg_pool3d,
    "adaptive_avg_pool1d": torch.adaptive_avg_pool1d,
    "adaptive_avg_pool2d": _NN.adaptive_avg_pool2d,
    "adaptive_avg_pool3d": _NN.adaptive_avg_pool3d,
    "max_pool1d": torch.max_pool1d,
    "max_pool2d": torch.max_pool2d,
    "max_pool3d": torch.max_pool3d,
    "adaptive_max_pool1d": torch.adaptive_max_pool1d,
    "adaptive_max_pool2d": _NN.adaptive_max_pool2d,
    "adaptive_max_pool3d": _NN.adaptive_max_pool3d,
}
_WITH_INDICES: dict[str, Callable[..., Any]] = {
    "max_pool1d": torch.max_pool1d_with_indices,
    "max_pool2d": _NN.max_pool2d_with_indices,
    "max_pool3d": _NN.max_pool3d_with_indices,
}
_ARGUMENTS = {
    name: tuple(p.argument for p in operator.parameters if p.type in ATTRIBUTE_TYPES)
    for name, operator in operators().items()
}
# PyTorch computes these as a mean if every axis of the result has size 1.
MEANS = {
    name for name in POOLS if operators()[name].kind == "average" and operators()[name].windows == "adaptive"
}


def pool(
    name: str, x: Tensor, arguments: PoolArguments, return_indices: bool = False, out: Tensor | None = None
) -> Any:
    """Returns PyTorch's result; with `return_indices` a pair of values and int64 indices."""
    check_plain(name, arguments)
    return unchecked(name, x, arguments, return_indices, out)


def unchecked(
    name: str, x: Tensor, arguments: PoolArguments, return_indices: Any = False, out: Tensor | None = None
) -> Any:
    """As `pool`, for arguments of any kind: PyTorch raises for bad ones."""
    out_argument = {} if out is None else {"out": out}
    if isinstance(arguments, AdaptiveArguments):
        result = POOLS[name](x, _whole_size(name, arguments.output_size, x.shape), **out_argument)
        return result if name in MEANS or return_indices else result[0]
    function = _WITH_INDICES[name] if return_indices else POOLS[name]
    kernel, stride, *rest = map(_exact, attributes(name, arguments))
    return function(x, kernel, () if stride is None else stride, *rest, **out_argument)


def _exact(value: Any) -> Any:
    """Returns a subclass of tuple as a list: PyTorch 2.6 crashes at one whose methods raise."""
    subclass = type(value) not in (tuple, list) and issubclass(type(value), (tuple, list))
    return list(value) if subclass else value


def _whole_size(name: str, size: Any, shape: Sequence[int]) -> Any:
    """Returns the output size with the input's lengths in the places of None; one value is for every axis."""
    size = _exact(size)
    if AXES[name] == 1 or not isinstance(size, (tuple, list)):
        return size
    size = list(size) * (AXES[name] if len(size) == 1 else 1)
    if len(size) >= len(shape):
        raise ValueError(f"Input dimension should be at least {len(size) + 1}")  # PyTorch's words
    return [n if m is None else m for m, n in zip(size, shape[-len(size) :], strict=False)]


def is_mean(name: str, x: Tensor, arguments: PoolArguments) -> bool:
    """Whether PyTorch computes the pool as a mean of whole planes, without a pool's kernels."""
    if not isinstance(arguments, AdaptiveArguments) or name not in MEANS:
        return False
    size, plane = arguments.output_size, x.shape[-AXES[name] :]
    sizes = size if issubclass(type(size), (tuple, list)) else (size,) * len(plane)  # it may be an odd object
    whole = [n if m is None else m for m, n in zip(sizes, plane, strict=False)]
    return all(type(m) in (int, torch.SymInt) and m == 1 for m in whole)


def check_plain(name: str, arguments: PoolArguments) -> None:
    """Raises for an argument that is neither a plain value (operators/plain.py) nor a traced size."""
    if torch.compiler.is_compiling() or tracing() or kinds(arguments) is not None:
        return
    for argument, value in zip(arguments._fields, arguments, strict=True):
        values = value if type(value) is tuple else (value,)
        if kinds(tuple(v for v in values if type(v) is not torch.SymInt)) is None:
            must = "True or False" if argument in _FLAGS else "an int or a tuple of ints"
            text = f"{argument} is {shown(value)}; it must be {must}"
            raise DtypeError(f"{name}: {text}.")


def is_special(x: Any) -> bool:
    """Whether the tensor is sparse, nested, mkldnn or quantized: only PyTorch can read such a tensor."""
    return isinstance(x, Tensor) and (x.is_quantized or unreadable(x) is not None)


def pool_special(name: str, x: Tensor, arguments: PoolArguments, return_indices: bool = False) -> Any:
    """Pools a special tensor; raises DtypeError if PyTorch has no such pool."""
    try:
        return pool(name, x, arguments, return_indices)
    except DtypeError:
        raise
    except (RuntimeError, IndexError) as error:
        kind = unreadable(x) or f"has dtype {x.dtype}".replace("torch.", "")
        raise DtypeError(f"{name}: input {kind}; it must be a strided tensor of floats.") from error


def pool_empty_or_integer(name: str, x: Tensor, arguments: PoolArguments, return_indices: bool) -> Any:
    """Pools an integer or empty tensor.

    PyTorch's pools accept different empty shapes; where PyTorch raises, this raises with our message.
    """
    try:
        return pool(name, x, arguments, return_indices)
    except RuntimeError as error:
        if x.numel():
            raise
        if (
            "not implemented for" in str(error)  # PyTorch 2.6 raises a plain RuntimeError
            and x.dtype in (torch.float16, torch.bfloat16)
            and not return_indices
        ):
            # PyTorch's avg_pool3d has no kernel for this dtype, not even for an empty batch.
            return pool_empty_or_integer(name, x.float(), arguments, False).to(x.dtype)
        prepare_pool(name, x, arguments)  # raises a better message, except for C = 0
        shape = tuple(x.shape)
        must = "every dimension but N must be greater than 0"
        raise ShapeError(f"{name}: input has shape {shape}; {must}.") from error


def cast(name: str, x: Tensor, arguments: PoolArguments) -> Tensor:
    """Returns the tensor in the dtype to which autocast casts the input of a pool without indices.

    Autocast may use another dtype for the pool with indices, so the caller casts first.
    """
    if x.device.type not in DEVICES or not torch.is_autocast_enabled(x.device.type):
        return x
    batched = x.dim() == AXES[name] + 2
    none = x.new_empty((0, *x.shape[1:]) if batched else (0, *x.shape))
    return x.to(pool(name, none, arguments).dtype)


def argument_names(function: str) -> tuple[str, ...]:
    """Returns the names of what a pool, or its gradient, takes after the tensors, in their order."""
    return _ARGUMENTS[function]


def attributes(function: str, arguments: PoolArguments) -> tuple[Any, ...]:
    """Returns what a pool, or its gradient, takes after the tensors: the arguments that its page names."""
    return tuple(getattr(arguments, argument) for argument in _ARGUMENTS[function])
