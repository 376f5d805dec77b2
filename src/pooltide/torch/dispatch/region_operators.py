"""Pools over regions as PyTorch operators, `torch.ops.pooltide.*`: schemas, kernels, fakes, vmap, autograd.

    roi_align(input, boxes, output_size, …)                               roi_pool also returns its indices
    roi_align_backward(grad_output, input_shape, boxes, …, channels_last)

Only the input has a gradient, and that gradient has none, as torchvision's. Boxes are one tensor, (K, 5).
`differentiable` calls an operator; under `torch.func` and forward mode, which need an autograd function, it
calls `Region` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from ...operators.catalog import regions
from ..errors import FAULTS, as_pytorch
from ..pools.regions import checked, gradient, pool
from ..tensors import DEVICES, dense_strides, is_channels_last

Tensor = torch.Tensor
_TYPES = {"float": "float", "int64": "int", "bool": "bool"}


def register(library: torch.library.Library) -> None:
    """Defines the operators in `library`."""
    for name, operator in regions().items():
        library.define(schema(name), tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
        for device in DEVICES:
            library.impl(name, _kernel(name), device.upper())  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"pooltide::{name}", _fake(name), lib=library)
        torch.library.register_vmap(f"pooltide::{name}", _vmap(name), lib=library)
        backward = _no_second if operator.gradient else _backward(name)
        torch.library.register_autograd(f"pooltide::{name}", backward, setup_context=_save(name), lib=library)


def schema(name: str) -> str:
    """Returns the operator's schema, from its page."""
    operator = regions()[name]
    attributes = [f"{_TYPES[p.type]} {p.argument}" for p in operator.parameters if p.type in _TYPES]
    if not operator.gradient:
        result = "(Tensor, Tensor)" if operator.writes_indices else "Tensor"
        arguments = ["Tensor input", "Tensor boxes", "SymInt[] output_size", *attributes]
        return f"{name}({', '.join(arguments)}) -> {result}"
    indices = [] if operator.by_role("indices") is None else ["Tensor indices"]
    arguments = ["Tensor grad_output", "SymInt[] input_shape", "Tensor boxes", *indices, *attributes]
    return f"{name}({', '.join([*arguments, 'bool channels_last'])}) -> Tensor"


def _split(name: str, rest: Sequence[Any]) -> tuple[Tensor | None, tuple[Any, ...], bool]:
    """The arguments of a gradient after `boxes`: indices or None, attributes, the memory format."""
    *middle, channels_last = rest
    indices = middle.pop(0) if regions()[name].by_role("indices") is not None else None
    return indices, tuple(middle), channels_last


def _kernel(name: str) -> Callable[..., Any]:
    def forward(x: Tensor, boxes: Tensor, size: Sequence[int], *attributes: Any) -> Any:
        try:
            values, places = pool(name, x, boxes, (tuple(size), *attributes), True)
        except FAULTS as fault:
            raise as_pytorch(fault) from None
        return values if places is None else (values, places)

    def backward(grad: Tensor, shape: Sequence[int], boxes: Tensor, *rest: Any) -> Tensor:
        indices, attributes, channels_last = _split(name, rest)
        try:
            return gradient(name, grad, tuple(shape), boxes, indices, attributes, channels_last)
        except FAULTS as fault:
            raise as_pytorch(fault) from None

    return backward if regions()[name].gradient else forward


def _fake(name: str) -> Callable[..., Any]:
    def forward(x: Tensor, boxes: Tensor, size: Sequence[int], *attributes: Any) -> Any:
        problem = checked(name, None, x, boxes, None, (tuple(size), *attributes))
        shape = problem.shape("out")
        strides = dense_strides(shape, is_channels_last(x, 2))
        values = x.new_empty_strided(shape, strides)
        return (
            (values, x.new_empty_strided(shape, strides, dtype=torch.int32))
            if problem.index_dtype
            else values
        )

    def backward(grad: Tensor, shape: Sequence[int], boxes: Tensor, *rest: Any) -> Tensor:
        indices, attributes, channels_last = _split(name, rest)
        checked(name, grad, tuple(shape), boxes, indices, attributes)
        return grad.new_empty_strided(tuple(shape), dense_strides(tuple(shape), channels_last))

    return backward if regions()[name].gradient else forward


def _vmap(name: str) -> Callable[..., Any]:
    """Joins the calls to one: along channels if they share the boxes, else along images."""
    operator = getattr(torch.ops.pooltide, name).default
    is_gradient = regions()[name].gradient
    at = 2 if is_gradient else 1  # of boxes

    def rule(info: Any, dims: Sequence[Any], *arguments: Any) -> Any:
        n, given, one, apart = info.batch_size, list(arguments), list(arguments), dims[at] is not None
        for i, argument in enumerate(arguments):
            if isinstance(argument, Tensor) and dims[i] is not None:
                given[i] = argument.movedim(dims[i], 0)
                one[i] = given[i][0]
        _check(name, *one)
        shape = tuple(one[1] if is_gradient else one[0].shape)
        for i, argument in enumerate(one):
            if i == at or not isinstance(argument, Tensor):
                continue
            if is_gradient and dims[i] is None:
                given[i] = argument.expand(n, *argument.shape)
            if given[i].dim() == 5:  # else all calls pool the same input
                given[i] = given[i].flatten(0, 1) if apart else given[i].movedim(0, 1).flatten(1, 2)
        if apart:
            same = not is_gradient and dims[0] is None
            given[at] = given[at].flatten(0, 1) if same else _apart(given[at], shape[0])
        if is_gradient:
            given[1] = [n * shape[0], *shape[1:]] if apart else [shape[0], n * shape[1], *shape[2:]]
        dim = 0 if apart else 1
        results = operator(*given)
        if isinstance(results, tuple):
            return tuple(r.unflatten(dim, (n, r.shape[dim] // n)) for r in results), (dim,) * len(results)
        return results.unflatten(dim, (n, results.shape[dim] // n)), dim

    return rule


def _check(name: str, *arguments: Any) -> None:
    """Raises for the first bad argument."""
    try:
        if regions()[name].gradient:
            grad, shape, boxes, *rest = arguments
            indices, attributes, _ = _split(name, rest)
            checked(name, grad, tuple(shape), boxes, indices, attributes)
        else:
            x, boxes, size, *more = arguments
            checked(name, None, x, boxes, None, (tuple(size), *more))
    except FAULTS as fault:
        raise as_pytorch(fault) from None


def _apart(boxes: Tensor, images: int) -> Tensor:
    """Joins the boxes of several calls for a call with the images of all; a bad image stays bad."""
    wide = boxes if boxes.dtype == torch.float64 else boxes.float()  # half types have too few digits
    image = wide[..., :1]
    good = (image >= 0) & (image < images) & (image == image.floor())
    first = images * torch.arange(len(wide), device=wide.device).view(-1, 1, 1)
    return torch.cat([torch.where(good, image + first, -1), wide[..., 1:]], -1).flatten(0, 1)


def _save(name: str) -> Callable[..., None]:
    def save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        if regions()[name].gradient:
            return
        x, boxes, _, *ctx.attributes = inputs
        indices = []
        if isinstance(output, tuple):
            indices, ctx.attributes = [output[1]], []
            ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.arguments, ctx.shape, ctx.channels_last = len(inputs), x.shape, is_channels_last(x, 2)
        ctx.save_for_backward(boxes, *indices)

    return save


def _backward(name: str) -> Callable[..., Any]:
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
        nothing = [None] * (ctx.arguments - 1)
        if grad is None:
            return None, *nothing
        boxes, *indices = ctx.saved_tensors
        more = (ctx.shape, boxes, *indices, *ctx.attributes, ctx.channels_last)
        return differentiable(f"{name}_backward", grad, *more), *nothing

    return backward


def differentiable(name: str, *arguments: Any) -> Any:
    """Calls the operator `name` so that autograd and all active transforms can follow."""
    is_forward_mode = forward_ad._current_level >= 0
    if torch.compiler.is_compiling():
        if is_forward_mode:  # the operator alone would have zeros as its tangent
            raise RuntimeError(f"{name}: torch.compile can't trace forward mode here; call it in eager mode.")
    elif is_forward_mode or torch._C._are_functorch_transforms_active():
        call = _Call(name, tuple(None if isinstance(value, Tensor) else value for value in arguments))
        return Region.apply(call, *(value for value in arguments if isinstance(value, Tensor)))  # type: ignore[no-untyped-call]
    return getattr(torch.ops.pooltide, name).default(*arguments)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call without its tensors: one object, because vmap in forward mode takes no lists as arguments."""

    name: str
    others: tuple[Any, ...]  # the arguments; None for a tensor

    def arguments(self, *tensors: Tensor) -> list[Any]:
        rest = iter(tensors)
        return [next(rest) if value is None else value for value in self.others]

    def __call__(self, *tensors: Tensor) -> Any:
        return getattr(torch.ops.pooltide, self.name).default(*self.arguments(*tensors))


class Region(torch.autograd.Function):
    """Makes a call in a form that torch.func and forward mode can follow."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> Any:
        return call(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.call, *tensors = inputs
        ctx.tensors = len(tensors)
        _save(ctx.call.name)(ctx, ctx.call.arguments(*tensors), output)
        indices = [output[1]] if isinstance(output, tuple) else []
        ctx.save_for_forward(*tensors[1:], *indices)
        ctx.set_materialize_grads(True)  # torch.func takes no None as a tangent

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        follow = _no_second if regions()[ctx.call.name].gradient else _backward(ctx.call.name)
        return None, follow(ctx, grad)[0], *[None] * (ctx.tensors - 1)

    @staticmethod
    def jvp(ctx: Any, _: Any, tangent: Tensor, *__: Any) -> Any:
        """Returns the same call with the tangent; of maxima, the tangents of their cells."""
        boxes, *indices = ctx.saved_tensors
        if regions()[ctx.call.name].writes_indices:
            return _cells(tangent, boxes, *indices), None
        return differentiable(ctx.call.name, *ctx.call.arguments(tangent, boxes, *indices))


def _cells(x: Tensor, boxes: Tensor, indices: Tensor) -> Tensor:
    """Returns the cells of `x` that the indices of roi_pool name; 0 for a bin without cells."""
    n, c, h, w = x.shape
    planes = x.reshape(n, c, h * w)  # PyTorch's older vmap has no flatten
    rows = planes.index_select(0, boxes[:, 0].clamp(0, max(n - 1, 0)).long())
    cells = rows.gather(2, indices.flatten(2).clamp(min=0).long()).view(indices.shape)
    return cells.masked_fill(indices < 0, 0)


def _no_second(ctx: Any, grad: Tensor) -> Any:
    raise RuntimeError("pools over regions of interest have no second derivative, as in torchvision.")
