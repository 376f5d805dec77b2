"""The gradients as PyTorch operators, `torch.ops.pooltide.*`: schemas, kernels, fakes, vmap rules.

Each operator takes grad_output, `plane` (the spatial sizes of the forward's input), the indices of a
maximum, the pool's attributes and three flags, and returns the gradient. N and C are those of grad_output,
so a shard makes the same call as the whole tensor, and no operator keeps the forward's input alive.
`channels_last`: the result has that memory format, else it is contiguous.
`check_indices`: wait for a GPU and raise if an index is outside its plane. The CPU always raises.
`fallback`: PyTorch's kernel may compute what our kernels refuse; without it the operator raises NoBackend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...kernels.plan import NoBackend
from ...operators.binding import bind
from ...operators.catalog import gradients, operators
from ..aten import aten_gradient
from ..tensor_calls import compute, prepare_gradient
from ..tensors import DEVICES, arrays_on, check_memory, dense_strides

Tensor = torch.Tensor
Split = tuple[Tensor | None, tuple[Any, ...], bool, bool, bool]

FUNCTIONS = tuple(gradients())
AXES = {name: len(operator.axes) for name, operator in operators().items()}  # of the pools, too
# How many of an operator's attributes are int arrays; these come first.
ARRAYS = {f: sum(p.type == "int_array" for p in operator.parameters) for f, operator in gradients().items()}
# The types of attributes, as pages and as schemas name them.
ATTRIBUTE_TYPES = {"int_array": "int[]", "bool": "bool", "int64": "int?"}


def register(library: torch.library.Library) -> None:
    """Defines the operators in `library`; `autograd.register` adds their derivatives."""
    for function in FUNCTIONS:
        library.define(
            f"{function}({schema(function)}) -> Tensor",
            tags=(torch.Tag.pt2_compliant_tag,),
        )  # type: ignore[no-untyped-call]
        for device in DEVICES:
            library.impl(function, _kernel(function), device.upper())  # type: ignore[no-untyped-call]
        name = f"pooltide::{function}"
        torch.library.register_fake(name, _fake(function), lib=library)
        torch.library.register_vmap(name, _vmap(function), lib=library)


def schema(function: str) -> str:
    """Returns the arguments of the operator in PyTorch's schema notation."""
    middle = [
        "Tensor indices" if p.role == "indices" else f"{ATTRIBUTE_TYPES[p.type]} {p.argument}"
        for p in operators()[function].parameters
        if p.role == "indices" or p.type in ATTRIBUTE_TYPES
    ]
    flags = "bool channels_last", "bool check_indices", "bool fallback"
    return ", ".join(["Tensor grad_output", "SymInt[] plane", *middle, *flags])


def split(function: str, rest: Sequence[Any]) -> Split:
    """Splits the arguments after `plane`: indices or None, attributes, and the three flags."""
    *middle, channels_last, check_indices, fallback = rest
    indices = middle.pop(0) if operators()[function].kind == "maximum_gradient" else None
    return indices, tuple(middle), channels_last, check_indices, fallback


def _kernel(function: str) -> Callable[..., Tensor]:
    def kernel(grad_output: Tensor, plane: Sequence[int], *rest: Any) -> Tensor:
        indices, attributes, channels_last, check_indices, fallback = split(function, rest)
        check_memory(function, grad_output, indices)
        hashable = tuple(tuple(a) if isinstance(a, list) else a for a in attributes)
        shape = (*grad_output.shape[: -len(plane)], *plane)
        try:
            call = prepare_gradient(function, grad_output, shape, channels_last, indices, hashable, None)
        except NoBackend as refusal:
            if not fallback:
                raise
            return aten_gradient(
                function, str(refusal), grad_output, shape, channels_last, indices, attributes
            )
        return compute(call, grad_output, indices, None, check_indices)

    return kernel


def _fake(function: str) -> Callable[..., Tensor]:
    def fake(grad_output: Tensor, plane: Sequence[int], *rest: Any) -> Tensor:
        indices, attributes, channels_last, *_ = split(function, rest)
        operator = operators()[function]
        shape = (*grad_output.shape[: -len(plane)], *plane)
        bind(arrays_on(grad_output.device), operator, grad_output, shape, indices, attributes, None)
        channels_last = channels_last and len(shape) == len(operator.axes) + 2
        return grad_output.new_empty_strided(shape, dense_strides(shape, channels_last))

    return fake


def _vmap(function: str) -> Callable[..., tuple[Tensor, int]]:
    """Merges the vmap axis B with the batch: (B, N, C, …) becomes (B·N, C, …); (B, C, …) is used as it is."""

    def rule(info: Any, in_dims: Sequence[Any], grad_output: Tensor, plane: Sequence[int], *rest: Any) -> Any:
        indices, attributes, channels_last, check_indices, fallback = split(function, rest)
        size = info.batch_size
        batched = grad_output.dim() - (in_dims[0] is not None) == len(plane) + 2
        grad_output = _move_to_front(grad_output, in_dims[0], size, batched)
        moved_indices = () if indices is None else (_move_to_front(indices, in_dims[2], size, batched),)
        op = getattr(torch.ops.pooltide, function).default
        result = op(
            grad_output,
            plane,
            *moved_indices,
            *attributes,
            channels_last and batched,
            check_indices,
            fallback,
        )
        return (result.unflatten(0, (size, -1)) if batched else result), 0

    return rule


def _move_to_front(tensor: Tensor, dim: int | None, size: int, fold: bool) -> Tensor:
    """Returns the tensor with its vmap axis first; with `fold` that axis is merged with the next one."""
    moved = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return moved.flatten(0, 1) if fold else moved
