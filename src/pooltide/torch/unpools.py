"""Max unpooling on tensors and its gradient, with PyTorch's names, argument order and defaults.

`move` copies elements to the cells that indices name, or back from them. Compiled code does that on the CPU.
On other devices, and where autograd or a transform must see the call, PyTorch's operators do it. They are
chosen so that the order of writes cannot change the result: a cell takes the value with the largest position.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F

from ..geometry import UNIT, Axis
from ..kernels import Arrays, IndexFault, cpu
from ..kernels.plan import execute, make_plan
from ..operators.binding import bind
from ..operators.catalog import operators
from ..operators.plain import plain, plain_shape
from ..operators.window_rules import unpooled_plane
from ..problem.problem import Problem
from .devices import num_threads
from .errors import as_pytorch
from .gradients import Input, Ints, may_skip_dispatcher
from .tensors import (
    TYPES,
    aligned,
    allocate,
    arrays_on,
    as_numpy,
    as_volume,
    check_memory,
    dense_strides,
    is_channels_last,
    is_tensor,
    memory_format,
)

Tensor = torch.Tensor
Plane = tuple[int, ...]


def move(function: str, source: Tensor, indices: Tensor, plane: Plane, gather: bool, check: bool) -> Tensor:
    """Returns `source` written to the cells of planes of size `plane`, or with `gather` read from them.

    `check`: raise IndexError for an index outside the plane, which waits for a GPU; else such an index writes
    nothing, or reads 0. The CPU always raises.
    """
    direct = not torch.compiler.is_compiling() and may_skip_dispatcher(source, indices)
    if direct and source.is_cpu:
        return _move_on_cpu(function, source, indices, plane, gather)
    flat, cells = indices.flatten(-len(plane)).long(), prod(plane)
    good = (flat >= 0) & (flat < cells)
    if check and direct and not source.is_meta and not bool(good.all()):
        first = int((~good).flatten().nonzero()[0])
        fault = IndexFault(int((~good).sum()), first, int(flat.flatten()[first]))
        raise IndexError(f"{function}: {fault.message('indices', indices.shape, plane)}")
    return _move_by_operators(source, torch.where(good, flat, cells), indices.shape, plane, gather)


def _move_on_cpu(function: str, source: Tensor, indices: Tensor, plane: Plane, gather: bool) -> Tensor:
    axes, channels_last = len(plane), is_channels_last(source, len(plane))
    lead, small = indices.shape[:-axes], indices.shape[-axes:]
    sizes = [UNIT] * (3 - axes) + [Axis(*pair) for pair in zip(plane, small, strict=True)]
    batch = (lead[0] if len(lead) == 2 else 1, lead[-1])
    kind, dtype = "unpool_gradient" if gather else "unpool", TYPES[source.dtype]
    d, h, w = sizes
    problem = Problem(kind, batch, (d, h, w), dtype, index_dtype=TYPES[indices.dtype])
    layout = "channels_last" if channels_last else "planes"
    form = memory_format(channels_last, axes)
    source, indices = (aligned(t.contiguous(memory_format=form)) for t in (source, indices))
    shape = (*lead, *(small if gather else plane))
    out = allocate(
        shape, dense_strides(shape, channels_last), prod(shape) * dtype.itemsize, source.dtype, source.device
    )
    role = "grad_output" if gather else "input"
    plan = make_plan(problem, (layout,) * 3)
    if plan.backend != "cpu":
        tensors = {role: source, "indices": indices, "out": out}
        arrays = {name: as_numpy(as_volume(tensor, axes)) for name, tensor in tensors.items()}
        fault = execute(plan, Arrays(**arrays))
    else:
        threads = num_threads()
        data = (source.data_ptr(), None) if gather else (None, source.data_ptr())
        found = cpu.runner(problem, layout)(*data, indices.data_ptr(), out.data_ptr(), threads)
        fault = None if found is None else IndexFault(*found)
    if fault:
        raise IndexError(f"{function}: {fault.message('indices', indices.shape, plane)}")
    return out


def _move_by_operators(source: Tensor, flat: Tensor, shape: Any, plane: Plane, gather: bool) -> Tensor:
    """As `move`, by PyTorch's operators. `flat` has prod(plane) in the place of bad indices."""
    values = source.flatten(-len(plane))
    if gather:
        return F.pad(values, (0, 1)).gather(-1, flat).reshape(shape)  # a bad index reads the 0 at the end
    order = torch.arange(values.shape[-1], device=values.device).expand(flat.shape)
    last = flat.new_full((*flat.shape[:-1], prod(plane) + 1), -1)
    last = last.scatter_reduce(-1, flat, order, "amax")[..., :-1]  # the position of each cell's last value
    found = values.gather(-1, last.clamp_min(0))
    return torch.where(last >= 0, found, found.new_zeros(())).reshape(*shape[: -len(plane)], *plane)


class _Unpool(torch.autograd.Function):
    """The differentiable unpool of values, indices, the plane and the function's name."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, indices: Tensor, plane: Plane, function: str) -> Tensor:
        return move(function, x, indices, plane, gather=False, check=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, indices, ctx.plane, ctx.function = inputs
        ctx.save_for_backward(indices)
        ctx.save_for_forward(indices)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (indices,) = ctx.saved_tensors
        return move(f"{ctx.function}_backward", grad, indices, ctx.plane, True, False), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        (indices,) = ctx.saved_tensors
        return move(ctx.function, tangent, indices, ctx.plane, False, False)


def _unpool(name: str, input: Tensor, indices: Tensor, attributes: tuple[Any, ...]) -> Tensor:
    if torch.compiler.is_compiling():
        theirs: Tensor = getattr(F, name)(input, indices, *attributes)
        return theirs
    try:
        plane = _checked(name, None, input, indices, attributes, None)
        return _Unpool.apply(input, indices, plane, name)  # type: ignore[no-untyped-call, no-any-return]
    except (TypeError, ValueError, IndexError) as error:
        raise as_pytorch(error) from None


def _checked(name: str, grad: Any, input: Any, indices: Any, attributes: tuple[Any, ...], out: Any) -> Plane:
    """Returns the unpooled plane; raises for the first bad argument."""
    first = input if grad is None else grad
    device = first.device if is_tensor(first) else torch.device("cpu")
    check_memory(name, first, indices, out)
    given = tuple(map(plain, attributes))
    return unpooled_plane(bind(arrays_on(device), operators()[name], grad, input, indices, given, out))


def _gradient(
    name: str, grad: Tensor, input: Input, indices: Tensor, attributes: tuple[Any, ...], out: Tensor | None
) -> Tensor:
    shape = input if is_tensor(input) else plain_shape(input)
    plane = _checked(name, grad, shape, indices, attributes, out)
    found = move(name, grad, indices, plane, gather=True, check=True)
    return found if out is None else out.copy_(found)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """As torch.nn.functional.max_unpool1d; of equal indices the last one counts, on every device."""
    return _unpool("max_unpool1d", input, indices, (kernel_size, stride, padding, output_size))


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """As torch.nn.functional.max_unpool2d; of equal indices the last one counts, on every device."""
    return _unpool("max_unpool2d", input, indices, (kernel_size, stride, padding, output_size))


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """As torch.nn.functional.max_unpool3d; of equal indices the last one counts, on every device."""
    return _unpool("max_unpool3d", input, indices, (kernel_size, stride, padding, output_size))


def max_unpool1d_backward(
    grad_output: Tensor,
    input: Input,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Gradient of 1-D max unpooling: `grad_output` at the indices."""
    attributes = (kernel_size, stride, padding, output_size)
    return _gradient("max_unpool1d_backward", grad_output, input, indices, attributes, out)


def max_unpool2d_backward(
    grad_output: Tensor,
    input: Input,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Gradient of 2-D max unpooling: `grad_output` at the indices."""
    attributes = (kernel_size, stride, padding, output_size)
    return _gradient("max_unpool2d_backward", grad_output, input, indices, attributes, out)


def max_unpool3d_backward(
    grad_output: Tensor,
    input: Input,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Gradient of 3-D max unpooling: `grad_output` at the indices."""
    attributes = (kernel_size, stride, padding, output_size)
    return _gradient("max_unpool3d_backward", grad_output, input, indices, attributes, out)
