"""Calls of PyTorch's own pool functions.

Input: a pool's name, tensor and `PoolArguments`. Output: what PyTorch's function returns.
`pool_special` and `pool_empty_or_integer` also leave the gradient to PyTorch.
PyTorch computes sparse, nested, mkldnn, quantized, integer and empty tensors, and every forward for which
`pools.prepare_pool` returns None. Errors have our messages where PyTorch's do not name the argument.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..operators.catalog import gradients, operators
from ..operators.plain import kinds, shown
from ..problem.forwards import PoolArguments
from .errors import DtypeError, ShapeError
from .gradients import tracing
from .operators import ATTRIBUTE_TYPES, AXES
from .pools import prepare_pool
from .tensors import DEVICES, unreadable

Tensor = torch.Tensor
_FLAGS = ("ceil_mode", "count_include_pad")
# Looked up at import: a program may later put our pools in the place of PyTorch's.
POOLS = {name: getattr(F, name) for name in operators() if f"{name}_backward" in gradients()}
_ARGUMENTS = {
    name: tuple(p.argument for p in operator.parameters if p.type in ATTRIBUTE_TYPES)
    for name, operator in operators().items()
}
# PyTorch computes these as a mean if every axis of the result has size 1.
MEANS = {
    name for name in POOLS if operators()[name].kind == "average" and operators()[name].windows == "adaptive"
}


def pool(name: str, x: Tensor, arguments: PoolArguments, return_indices: bool = False) -> Any:
    """Returns PyTorch's result; with `return_indices` a pair of values and int64 indices."""
    check_plain(name, arguments)
    more = {"return_indices": True} if return_indices else {}
    return POOLS[name](x, *attributes(name, arguments), **more)


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
