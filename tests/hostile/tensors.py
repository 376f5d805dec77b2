"""Tensors in guarded memory, and tensors that no gradient expects."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch

from .calls import MEMORY, Call, change_shape
from .memory import Place, content
from .problems import FLOATS, Problem

LAYOUTS = ("planes", "planes", "channels_last", "positive")
TYPES = {name: getattr(torch, name) for name in (*FLOATS, "int32", "int64")}
OTHER_DTYPES = [
    torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex64, torch.float16, torch.float32,
    torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.uint16, torch.complex32,
]  # fmt: skip


def place(
    rng: Random, shape: tuple[int, ...], dtype: torch.dtype, layouts: tuple[str, ...] = LAYOUTS
) -> Place:
    return MEMORY.place(rng, shape, dtype.itemsize, rng.choice(layouts))


def filled(rng: Random, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    where = place(rng, shape, TYPES[dtype], (*LAYOUTS, "broadcast"))
    array_type = FLOATS[dtype]
    where.array(array_type)[...] = content(rng, shape, array_type)
    return where.tensor(TYPES[dtype])


def indices_for(rng: Random, problem: Problem, dtype: str) -> torch.Tensor:
    where = place(rng, problem.output, TYPES[dtype])
    where.array(dtype)[...] = content(rng, problem.output, np.dtype(dtype)) % problem.plane
    return where.tensor(TYPES[dtype])


def written(
    rng: Random, call: Call, shape: tuple[int, ...], dtype: torch.dtype, layouts: tuple[str, ...] = LAYOUTS
) -> Any:
    """A tensor that the call may write."""
    where = place(rng, shape, dtype, layouts)
    call.written.append(where)
    return where.tensor(dtype)


class Mine(torch.Tensor):
    """A subclass with no rules of its own."""


def _freed(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


# What else may come in the place of a tensor.
STRANGE: dict[str, Callable[[torch.Tensor], Any]] = {
    "meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "sparse csr": lambda t: torch.eye(3).to_sparse_csr(),
    "mkldnn": lambda t: t.float().contiguous().to_mkldnn(),
    "quantized": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 3, torch.qint8),
    "nested": lambda t: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]),
    "requires grad": lambda t: t.clone().float().requires_grad_(),
    "not a leaf": lambda t: t.clone().float().requires_grad_() * 2,
    "negated view": lambda t: torch._neg_view(t.clone()),
    "conjugated view": lambda t: torch.ones(2, 3, 4, dtype=torch.complex64).conj(),
    "zero tensor": lambda t: torch._efficientzerotensor(tuple(t.shape), dtype=t.dtype),
    "subclass": lambda t: t.clone().as_subclass(Mine),
    "parameter": lambda t: torch.nn.Parameter(t.clone().float()),
    "without memory": _freed,
    "NumPy array": lambda t: np.zeros(tuple(t.shape), np.float32),
    "expanded": lambda t: t.new_zeros(()).expand(t.shape),
    "of rank 0": lambda t: t.new_zeros(()),
    "of rank 20": lambda t: t.new_zeros((1,) * 20),
    "without cells": lambda t: t.new_zeros((*t.shape[:-1], 0)),
    "without a batch": lambda t: t.new_zeros((0, *t.shape[1:])),
    "transposed": lambda t: t.mT if t.dim() > 1 else t,
    "permuted": lambda t: t.permute(*reversed(range(t.dim()))),
    "huge and expanded": lambda t: t.new_zeros(()).expand(2**50, *t.shape[1:]),
}


def spoil_tensor(rng: Random, call: Call, argument: str, tensor: torch.Tensor, output: str) -> None:
    """Another tensor in the place of this one; `output` names the argument that the call writes."""
    shape, dtype = list(tensor.shape), tensor.dtype
    match rng.randrange(6):
        case 0 | 1:
            change_shape(rng, shape)
        case 2:
            dtype = rng.choice(OTHER_DTYPES)
        case 3 if not dtype.is_floating_point and tensor.numel():
            at = tuple(rng.randrange(n) for n in shape)
            tensor[at] = rng.choice((-1, 2**31 - 1, 999999, -(2**31)))
            if dtype == torch.int64 and rng.random() < 0.5:
                tensor[at] = rng.choice((2**31, 2**32, 2**63 - 1, -(2**63)))
            call.good = False
            return
        case 3 | 4:
            label = rng.choice(list(STRANGE))
            if argument == output:  # PyTorch resizes a result of the wrong shape, also within a slot
                tensor = tensor.clone()
            call.make_odd(argument, STRANGE[label](tensor), f"<{label}>")
            return
    layouts = ("broadcast",) if rng.random() < 0.2 else LAYOUTS
    if argument != output:
        call.make_odd(argument, place(rng, tuple(shape), dtype, layouts).tensor(dtype))
    elif output == "grad_input" and tuple(shape) != tuple(tensor.shape):
        call.make_odd(argument, torch.empty(shape, dtype=dtype))
    else:
        call.make_odd(argument, written(rng, call, tuple(shape), dtype, layouts))
