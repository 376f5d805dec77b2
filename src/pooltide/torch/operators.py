"""The gradients as PyTorch operators, `torch.ops.pooltide.*`: schemas, kernels, fakes, vmap rules.

Of the forward's input an operator takes the spatial sizes, `plane`: N and C are grad_output's, so that a
shard of a gradient makes the same call as the whole, and nothing keeps the input alive.
`channels_last` says how the result lies. `within` marks a call from a backward pass: indices are those
that the forward found, so nothing waits for a GPU to tell of wrong ones, and a problem that no kernel
of ours takes is left to PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..kernels.plan import NoBackend
from ..operators.binding import bind
from ..operators.catalog import gradients, operators
from .own import own_gradient
from .recipes import compute, recipe_for
from .tensors import DEVICES, arrays_on, check_memory, dense_strides

Tensor = torch.Tensor
Split = tuple[Tensor | None, tuple[Any, ...], bool, bool]

FUNCTIONS = tuple(gradients())
AXES = {function: len(operator.axes) for function, operator in gradients().items()}
# How many int arrays an operator has; they are the first of its attributes.
ARRAYS = {f: sum(p.type == "int_array" for p in operator.parameters) for f, operator in gradients().items()}
_TYPES = {"int_array": "int[]", "bool": "bool", "int64": "int?"}


def register(library: torch.library.Library) -> None:
    """Define the operators in `library`, all but their autograd formulas."""
    for function in FUNCTIONS:
        library.define(
            f"{function}({_schema(function)}, bool channels_last, bool within) -> Tensor",
            tags=(torch.Tag.pt2_compliant_tag,),
        )  # type: ignore[no-untyped-call]
        for device in DEVICES:
            library.impl(function, _kernel(function), device.upper())  # type: ignore[no-untyped-call]
        name = f"pooltide::{function}"
        torch.library.register_fake(name, _fake(function), lib=library)
        torch.library.register_vmap(name, _vmap(function), lib=library)


def _schema(function: str) -> str:
    middle = [
        "Tensor indices" if p.role == "indices" else f"{_TYPES[p.type]} {p.argument}"
        for p in operators()[function].parameters
        if p.role == "indices" or p.type in _TYPES
    ]
    return ", ".join(["Tensor grad_output", "SymInt[] plane", *middle])


def split(function: str, rest: Sequence[Any]) -> Split:
    """What follows `plane` in the schema: indices, attributes, channels_last, within."""
    *middle, channels_last, within = rest
    if operators()[function].kind == "maximum_gradient":
        return middle[0], tuple(middle[1:]), channels_last, within
    return None, tuple(middle), channels_last, within


def _kernel(function: str) -> Callable[..., Tensor]:
    def kernel(grad_output: Tensor, plane: Sequence[int], *rest: Any) -> Tensor:
        indices, attributes, last, within = split(function, rest)
        check_memory(function, grad_output, indices)
        hashable = tuple(tuple(a) if isinstance(a, list) else a for a in attributes)
        shape = (*grad_output.shape[: -len(plane)], *plane)
        try:
            recipe = recipe_for(function, grad_output, shape, last, indices, hashable, None)
        except NoBackend as refusal:
            if not within:
                raise
            return own_gradient(function, str(refusal), grad_output, shape, last, indices, attributes)
        return compute(recipe, grad_output, indices, None, within)

    return kernel


def _fake(function: str) -> Callable[..., Tensor]:
    def fake(grad_output: Tensor, plane: Sequence[int], *rest: Any) -> Tensor:
        indices, attributes, last, _ = split(function, rest)
        operator = operators()[function]
        shape = (*grad_output.shape[: -len(plane)], *plane)
        bind(arrays_on(grad_output.device), operator, grad_output, shape, indices, attributes, None)
        last = last and len(shape) == len(operator.axes) + 2
        return grad_output.new_empty_strided(shape, dense_strides(shape, last))

    return fake


def _vmap(function: str) -> Callable[..., tuple[Tensor, int]]:
    """Samples join the batch: (B, N, C, …) becomes (B·N, C, …), and (B, C, …) is a batch already."""

    def rule(info: Any, in_dims: Sequence[Any], grad_output: Tensor, plane: Sequence[int], *rest: Any) -> Any:
        indices, attributes, last, within = split(function, rest)
        size = info.batch_size
        batched = grad_output.dim() - (in_dims[0] is not None) == len(plane) + 2
        grad_output = _front(grad_output, in_dims[0], size, batched)
        given = () if indices is None else (_front(indices, in_dims[2], size, batched),)
        op = getattr(torch.ops.pooltide, function).default
        result = op(grad_output, plane, *given, *attributes, last and batched, within)
        return (result.unflatten(0, (size, -1)) if batched else result), 0

    return rule


def _front(tensor: Tensor, dim: int | None, size: int, fold: bool) -> Tensor:
    moved = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return moved.flatten(0, 1) if fold else moved
