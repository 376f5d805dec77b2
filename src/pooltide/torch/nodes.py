"""The pools as autograd nodes: forward, what is kept, gradient.

PyTorch's gradients depend on the input, with derivative 0: under create_graph, who differentiates one
again gets zeros. Ours do not keep the input, so each node has one more output, the token, a tensor of no
elements. The node keeps the token, and a gradient less the token's sum, 0, depends on the input.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import torch
from torch.autograd import forward_ad

from ..kernels.plan import NoBackend
from ..problem.forwards import PoolArguments
from . import pools, pytorch_pools
from .errors import DtypeError, ShapeError, as_pytorch
from .gradients import gradient, may_skip_dispatcher
from .tensors import is_channels_last, shortage

Tensor = torch.Tensor


class Average(torch.autograd.Function):
    """Values, and the token."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor, name: str, arguments: PoolArguments, pool: pools.PreparedPool | None
    ) -> tuple[Tensor, Tensor]:
        values = (
            pytorch_pools.pool_by_pytorch(name, input, arguments)
            if pool is None
            else pools.values_of(pool, input)
        )
        return values, input.new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, ctx.name, ctx.arguments, _ = inputs
        values, token = output
        _save_metadata(ctx, input, values)
        ctx.save_for_backward(token)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None, *_: Any) -> Any:
        if grad_output is None:
            found = _zeros(ctx)
        else:
            _check_gradient(ctx, grad_output)
            found = _gradient(ctx, grad_output, None)
        return _tie_to_input(ctx, found), None, None, None


class Maximum(torch.autograd.Function):
    """Values, what is kept of their places, and the token; then int64 indices if asked for."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor,
        name: str,
        arguments: PoolArguments,
        pool: pools.PreparedPool | None,
        return_indices: bool,
    ) -> tuple[Tensor, ...]:
        token = input.new_empty(0)
        if pool is not None and pool.kernel is not None and not return_indices:
            return *pools.maxima_of(pool, input), token
        if not return_indices:
            input = pytorch_pools.cast(name, input, arguments)
        plain = pools.prepare_pool(name, input, arguments, "indices")
        found = (
            pytorch_pools.pool_by_pytorch(name, input, arguments, True)
            if plain is None
            else pools.maxima_of(plain, input)
        )
        values, indices = found
        if pool is None:
            kept = _small(indices, arguments, input.shape[-int(name[-2]) :])
        else:
            kept = pools.offsets_from(pool, indices)
        return (values, kept, token, indices) if return_indices else (values, kept, token)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, ctx.name, ctx.arguments, ctx.pool, _ = inputs
        values, kept, token, *indices = output
        _save_metadata(ctx, input, values)
        ctx.kept = kept.shape, kept.dtype, kept.device
        ctx.mark_non_differentiable(kept, *indices)
        ctx.save_for_backward(kept, token)
        ctx.save_for_forward(kept)
        ctx.outputs = len(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None, *_: Any) -> Any:
        if grad_output is None:
            found = _zeros(ctx)
        else:
            kept = ctx.saved_tensors[0]
            _check_gradient(ctx, grad_output)
            _check(f"{ctx.name}_backward: the tensor kept for the gradient", kept, ctx.kept, "was kept")
            found = _scattered(ctx, grad_output, kept)
        return _tie_to_input(ctx, found), None, None, None, None


class ForwardAverage(Average):
    """With a derivative in forward mode, which torch.compile refuses to trace."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Any:
        """An average is linear: its derivative is the same average of the tangent."""
        return pytorch_pools.pool_by_pytorch(ctx.name, tangent, ctx.arguments), tangent.new_empty(0)


class ForwardMaximum(Maximum):
    """The same of maxima."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Any:
        """The tangent of each maximum, from where it lies. Forward mode keeps indices, never offsets."""
        (kept,) = ctx.saved_tensors
        axes = int(ctx.name[-2])
        rows = tangent.reshape(*tangent.shape[:-axes], -1)
        flat_indices = kept.reshape(*kept.shape[:-axes], -1).long()
        found = rows.gather(-1, flat_indices).reshape(kept.shape)
        return found, None, tangent.new_empty(0), *[None] * (ctx.outputs - 3)


def apply_node(node: type[torch.autograd.Function], plain: bool, *arguments: Any) -> Any:
    """The node's outputs. `plain` says that nothing transforms the call.

    Function.apply then only binds defaults, which takes longer than a small pool; so it is left out.
    """
    if plain:
        return super(torch.autograd.Function, node).apply(*arguments)  # type: ignore[misc]
    forward = {Average: ForwardAverage, Maximum: ForwardMaximum}[node] if _transformed() else node
    return forward.apply(*arguments)  # type: ignore[no-untyped-call]


def _transformed() -> bool:
    """Whether forward mode, or a transform of torch.func that may be it, is active outside a compiler."""
    if torch.compiler.is_compiling():
        return False
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def smallest_index_dtype(cells: int) -> torch.dtype:
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if cells - 1 <= torch.iinfo(dtype).max:
            return dtype
    return torch.int64


def _small(indices: Tensor, arguments: PoolArguments, lengths: tuple[int, ...]) -> Tensor:
    """Indices in the smallest dtype; one outside the plane becomes the number of the plane's cells."""
    cells = prod(lengths)
    if pools.may_miss_the_plane(arguments, lengths):
        return indices.clamp(max=cells).to(smallest_index_dtype(cells + 1))
    return indices.to(smallest_index_dtype(cells))


def _save_metadata(ctx: Any, input: Tensor, values: Tensor) -> None:
    axes = int(ctx.name[-2])
    ctx.shape = input.shape
    ctx.channels_last = is_channels_last(input, axes)
    ctx.result = values.shape, values.dtype, values.device
    ctx.set_materialize_grads(False)


def _is_mean(ctx: Any) -> bool:
    """Whether PyTorch computes this pool as a mean, whose gradient does not depend on the input."""
    return "adaptive_avg" in ctx.name and all(n == 1 for n in ctx.result[0][-int(ctx.name[-2]) :])


def _check_gradient(ctx: Any, grad_output: Tensor) -> None:
    what = f"{ctx.name}_backward: grad_output"
    _check(what, grad_output, ctx.result, "the result has")
    if torch.compiler.is_compiling() or grad_output.numel() or _is_mean(ctx):
        return
    if 0 in grad_output.shape[-int(ctx.name[-2]) - 1 :]:  # as PyTorch has it, of maxima too
        shape = tuple(grad_output.shape)
        raise ShapeError(f"{what} has shape {shape}; every dimension but N must be greater than 0.")


def _check(what: str, tensor: Any, expected: tuple[Any, ...], whose: str) -> None:
    """A kernel reads memory as metadata says, and a hook or a direct call may hand over any tensor."""
    if torch.compiler.is_compiling():
        return
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        found = f"layout {tensor.layout}" if isinstance(tensor, Tensor) else f"type {type(tensor).__name__}"
        raise DtypeError(f"{what} has {found}; it must be a strided tensor.")
    shape, dtype, device = expected
    if tensor.shape != shape:
        raise ShapeError(f"{what} has shape {tuple(tensor.shape)}; it must be {tuple(shape)}, as {whose}.")
    if tensor.dtype != dtype:
        raise DtypeError(f"{what} has dtype {tensor.dtype}; it must be {dtype}, as {whose}.")
    if tensor.device != device:
        raise ShapeError(f"{what} is on {tensor.device}; it must be on {device}, as {whose}.")
    if text := shortage(tensor):
        raise ShapeError(f"{what} {text}")


def _scattered(ctx: Any, grad_output: Tensor, kept: Tensor) -> Tensor:
    """The gradient of maxima from what is kept of their places."""
    if ctx.pool is not None and may_skip_dispatcher(grad_output, kept):
        try:
            return _by_offsets(ctx, grad_output, kept)
        except NoBackend:
            pass  # some backends read no offsets
    if ctx.pool is not None:
        return _gradient(ctx, grad_output, pools.indices_from(ctx.pool, kept))
    lengths = ctx.shape[-int(ctx.name[-2]) :]
    if pools.may_miss_the_plane(ctx.arguments, lengths):  # no cell has the gradient of an index outside
        outside = kept == prod(lengths)
        grad_output, kept = grad_output.masked_fill(outside, 0), kept.masked_fill(outside, 0)
    if kept.dtype not in (torch.int32, torch.int64):
        kept = kept.to(torch.int32)
    return _gradient(ctx, grad_output, kept)


def _by_offsets(ctx: Any, grad_output: Tensor, kept: Tensor) -> Tensor:
    try:
        return pools.gradient_from(
            ctx.pool, _function(ctx), grad_output, kept, tuple(ctx.shape), ctx.channels_last
        )
    except IndexError as error:
        raise as_pytorch(error) from None


def _gradient(ctx: Any, grad_output: Tensor, indices: Tensor | None) -> Tensor:
    attributes = pytorch_pools.attributes(ctx.name, ctx.arguments)
    shape = tuple(ctx.shape)
    try:
        return gradient(
            _function(ctx),
            grad_output,
            shape,
            indices,
            attributes,
            ctx.channels_last,
            check_indices=False,
            fallback=True,
        )
    except (TypeError, ValueError, IndexError) as error:
        raise as_pytorch(error) from None


def _function(ctx: Any) -> str:
    return sys.intern(f"{ctx.name}_backward")  # shortcuts know it by address


def _zeros(ctx: Any) -> Tensor:
    """The gradient where only the token has one: the second derivative that PyTorch has as zeros."""
    _, dtype, device = ctx.result
    return torch.zeros(tuple(ctx.shape), dtype=dtype, device=device)


def _tie_to_input(ctx: Any, found: Tensor) -> Tensor:
    """The gradient so that it depends on the input where a graph of it is asked for."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling() or _is_mean(ctx):
        return found
    if torch._C._are_functorch_transforms_active():  # who has zeros for what does not depend
        return found
    tied: Tensor = found - ctx.saved_tensors[-1].sum()  # x - (+0) has the bits of x
    return tied
