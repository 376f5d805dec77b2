"""The pools as autograd functions: the forward, the tensors saved for the backward pass, the gradient.

`apply_node` takes `Average` or `Maximum` and the arguments of its forward, and returns its outputs.
Under create_graph, PyTorch's gradients depend on the input with derivative 0: differentiating them again
gives zeros. Our nodes do not save the input, so each node has one more output, the token: a tensor without
elements, which depends on the input. The backward pass subtracts the token's sum, 0, from the gradient.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import torch

from ...kernels.calls import PreparedCall
from ...kernels.plan import NoBackend
from ...operators.catalog import operators
from ...problem.forwards import PoolArguments
from ..aten import aten_call, check_not_empty, judge
from ..dispatch.custom_operators import AXES
from ..dispatch.sharding import placed_as, sharding_of
from ..errors import FAULTS, DtypeError, ShapeError, as_pytorch, with_text_of
from ..gradients import gradient, may_skip_dispatcher, nothing_follows, tracing
from ..tensors import is_channels_last, shortage
from . import forward, pytorch_pools

Tensor = torch.Tensor


class Average(torch.autograd.Function):
    """Outputs: the values and the token."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor, name: str, arguments: PoolArguments, pool: PreparedCall | None
    ) -> tuple[Tensor, Tensor]:
        values = (
            pytorch_pools.pool(name, input, arguments) if pool is None else forward.values_of(pool, input)
        )
        return values, input.new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, ctx.pool_name, ctx.arguments, pool = inputs
        values, token = output
        _save_metadata(ctx, input, values, pool)
        ctx.save_for_backward(token)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None, *_: Any) -> Any:
        if grad_output is None:
            grad_input = _zeros(ctx)
        else:
            _check_gradient(ctx, grad_output)
            grad_input = _gradient(ctx, grad_output, None)
        return _tie_to_input(ctx, grad_input), None, None, None


class Maximum(torch.autograd.Function):
    """Outputs: the values, their saved positions, the token and, with return_indices, int64 indices.

    The saved positions are offsets in the windows if the node has a prepared pool, else indices.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor,
        name: str,
        arguments: PoolArguments,
        pool: PreparedCall | None,
        return_indices: bool,
    ) -> tuple[Tensor, ...]:
        token = input.new_empty(0)
        if pool is not None and pool.executable is not None:
            if not return_indices:
                return *forward.maxima_of(pool, input), token
            values, offsets, indices = forward.maxima_with_offsets_and_indices(pool, input)
            return values, offsets, token, indices
        if not return_indices:
            input = pytorch_pools.cast(name, input, arguments)
        indexed = forward.prepare_pool(name, input, arguments, "indices")
        values_and_indices = (
            pytorch_pools.pool(name, input, arguments, True)
            if indexed is None
            else forward.maxima_of(indexed, input)
        )
        values, indices = values_and_indices
        if pool is None:
            positions = _in_smallest_dtype(indices, arguments, input.shape[-AXES[name] :])
        else:
            positions = forward.offsets_from(pool.problem, pool.axes, indices)
        return (values, positions, token, indices) if return_indices else (values, positions, token)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, ctx.pool_name, ctx.arguments, ctx.pool, _ = inputs
        values, positions, token, *indices = output
        _save_metadata(ctx, input, values, ctx.pool)
        ctx.saved = positions.shape, positions.dtype, positions.device
        ctx.mark_non_differentiable(positions, *indices)
        ctx.save_for_backward(positions, *_versions(indices), token)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None, *_: Any) -> Any:
        if grad_output is None:
            grad_input = _zeros(ctx)
        else:
            positions = ctx.saved_tensors[0]
            _check_gradient(ctx, grad_output)
            if tracing():
                raise RuntimeError(
                    f"{ctx.pool_name}: torch.jit.trace cannot record this gradient, which depends on saved "
                    "positions; it can under patch(), without forward=True."
                )
            _check(
                f"{ctx.pool_name}_backward: the tensor kept for the gradient",
                positions,
                ctx.saved,
                "was kept",
            )
            grad_input = _maximum_gradient(ctx, grad_output, positions)
        return _tie_to_input(ctx, grad_input), None, None, None, None


def apply_node(node: type[torch.autograd.Function], untransformed: bool, *arguments: Any) -> Any:
    """Returns the node's outputs. `untransformed`: no transform is active.

    Function.apply then only binds default arguments, which takes longer than a small pool. Skip it.
    """
    if untransformed:
        return super(torch.autograd.Function, node).apply(*arguments)  # type: ignore[misc]
    _, name, pool_arguments, *_ = arguments
    pytorch_pools.check_plain(name, pool_arguments)  # torch.func looks at every argument
    return node.apply(*arguments)  # type: ignore[no-untyped-call]


def smallest_index_dtype(cells: int) -> torch.dtype:
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if cells - 1 <= torch.iinfo(dtype).max:
            return dtype
    return torch.int64


def _in_smallest_dtype(indices: Tensor, arguments: PoolArguments, lengths: tuple[int, ...]) -> Tensor:
    """Returns indices in the smallest dtype; an index outside the plane becomes the plane's cell count."""
    cells = prod(lengths)
    if forward.may_have_empty_windows(arguments, lengths):
        return indices.clamp(max=cells).to(smallest_index_dtype(cells + 1))
    return indices.to(smallest_index_dtype(cells))


def _versions(indices: list[Tensor]) -> list[Tensor]:
    """Returns tensors without elements that have the version counters of `indices`; none under a tracer.

    Autograd raises for a saved tensor that was changed in place. PyTorch saves the indices that it returns,
    and so raises if a program changes these. Our gradient does not read them, and does not keep them.
    """
    if torch.compiler.is_compiling() or not nothing_follows():
        return []
    counters = [returned.detach() for returned in indices]
    for counter in counters:
        counter.data = counter.new_empty(0)  # replaces the memory, not the counter
    return counters


def _save_metadata(ctx: Any, input: Tensor, values: Tensor, pool: PreparedCall | None) -> None:
    ctx.axes = AXES[ctx.pool_name]
    ctx.shape = input.shape
    if pool is None:
        ctx.sharding, ctx.channels_last = sharding_of(input), is_channels_last(input, ctx.axes)
    else:  # a prepared pool takes normal tensors only
        ctx.sharding, ctx.channels_last = None, pool.channels_last
    ctx.result = values.shape, values.dtype, values.device
    ctx.set_materialize_grads(False)


def _check_gradient(ctx: Any, grad_output: Tensor) -> None:
    _check(f"{_function(ctx)}: grad_output", grad_output, ctx.result, "the result has")
    if torch.compiler.is_compiling() or grad_output.numel():
        return
    try:
        check_not_empty(_function(ctx), grad_output)
    except ValueError as error:
        raise with_text_of(as_pytorch(error), lambda: _judge(ctx, grad_output)) from None


def _judge(ctx: Any, grad_output: Tensor) -> None:
    """Raises PyTorch's error for the gradient of an adaptive pool whose result is empty."""
    x = grad_output.new_zeros(()).expand(ctx.shape)
    indexed = operators()[_function(ctx)].kind == "maximum_gradient"
    indices = torch.zeros_like(grad_output, dtype=torch.int64) if indexed else None
    _, arguments = aten_call(_function(ctx), grad_output, x, indices, ())
    judge(_function(ctx).replace("1d", "2d"), *arguments)


def _check(what: str, tensor: Any, expected: tuple[Any, ...], whose: str) -> None:
    """Raises for unexpected metadata: a hook or a direct call may pass any tensor, and kernels trust it."""
    if torch.compiler.is_compiling():
        return
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        actual = f"layout {tensor.layout}" if isinstance(tensor, Tensor) else f"type {type(tensor).__name__}"
        raise DtypeError(f"{what} has {actual}; it must be a strided tensor.")
    shape, dtype, device = expected
    if tensor.shape != shape:
        raise ShapeError(f"{what} has shape {tuple(tensor.shape)}; it must be {tuple(shape)}, as {whose}.")
    if tensor.dtype != dtype:
        raise DtypeError(f"{what} has dtype {tensor.dtype}; it must be {dtype}, as {whose}.")
    if tensor.device != device:
        raise ShapeError(f"{what} is on {tensor.device}; it must be on {device}, as {whose}.")
    if text := shortage(tensor):
        raise ShapeError(f"{what} {text}")


def _maximum_gradient(ctx: Any, grad_output: Tensor, positions: Tensor) -> Tensor:
    """Returns the gradient of maxima from their saved positions."""
    if ctx.pool is not None and may_skip_dispatcher(grad_output, positions):
        try:
            return _gradient_from_offsets(ctx, grad_output, positions)
        except NoBackend:
            pass  # some backends cannot read offsets
    if ctx.pool is not None:
        return _gradient(ctx, grad_output, forward.indices_from(ctx.pool.problem, ctx.axes, positions))
    lengths = ctx.shape[-ctx.axes :]
    if forward.may_have_empty_windows(ctx.arguments, lengths):  # drop the gradient of an empty window
        outside = positions == prod(lengths)
        grad_output, positions = grad_output.masked_fill(outside, 0), positions.masked_fill(outside, 0)
    if positions.dtype not in (torch.int32, torch.int64):
        positions = positions.to(torch.int32)
    return _gradient(ctx, grad_output, positions)


def _gradient_from_offsets(ctx: Any, grad_output: Tensor, positions: Tensor) -> Tensor:
    try:
        return forward.gradient_from(
            ctx.pool.problem,
            _function(ctx),
            grad_output,
            positions,
            tuple(ctx.shape),
            ctx.arguments,
            ctx.channels_last,
        )[1]
    except (IndexError, MemoryError) as error:
        raise as_pytorch(error) from None


def _gradient(ctx: Any, grad_output: Tensor, indices: Tensor | None) -> Tensor:
    attributes = pytorch_pools.attributes(_function(ctx), ctx.arguments)
    shape = tuple(ctx.shape)
    grad_output = placed_as(ctx.sharding, grad_output, ctx.axes)
    try:
        return gradient(
            _function(ctx),
            grad_output,
            shape,
            indices,
            attributes,
            check_indices=False,
            result_layout=ctx.channels_last,
            fallback=True,
        )
    except FAULTS as error:
        raise as_pytorch(error) from None


def _function(ctx: Any) -> str:
    return sys.intern(f"{ctx.pool_name}_backward")  # shortcuts compare names by address


def _zeros(ctx: Any) -> Tensor:
    """Returns the gradient if only the token received one: zeros, like PyTorch's second derivative."""
    _, dtype, device = ctx.result
    return torch.zeros(tuple(ctx.shape), dtype=dtype, device=device)


def _tie_to_input(ctx: Any, grad_input: Tensor) -> Tensor:
    """Returns the gradient, made to depend on the input if autograd records it (create_graph)."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return grad_input
    if torch._C._are_functorch_transforms_active():  # torch.func returns zeros for an independent input
        return grad_input
    tied: Tensor = grad_input - ctx.saved_tensors[-1].sum()  # x - (+0) has the bits of x
    return tied
