"""Copies elements of tensors to the cells that indices name, or back from them.

`move` takes the pooled or the unpooled tensor, the indices and the plane, and returns the other tensor.
Compiled code does that on the CPU, PyTorch's operators on other devices. They are chosen so that the order of
writes cannot change the result: a cell takes the value with the largest position.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F

from ...geometry import UNIT, Axis
from ...kernels import IndexFault
from ...kernels.calls import CALLS, PreparedCall, call_key, keep
from ...problem.problem import Problem
from ..errors import joined, with_text_of
from ..gpu import count_index_errors
from ..tensor_calls import compute, prepared_call
from ..tensors import TYPES, dense_strides, is_channels_last, metadata

Tensor = torch.Tensor
Plane = tuple[int, ...]


def move(function: str, source: Tensor, indices: Tensor, plane: Plane, gather: bool, check: bool) -> Tensor:
    """Returns `source` written to the cells of planes of size `plane`, or with `gather` read from them.

    Nothing may follow the call, neither autograd nor a transform.
    `check`: raise IndexError for an index outside the plane, which waits for a GPU; else such an index writes
    nothing, or reads 0, and `index_errors` counts it. The CPU always raises.
    """
    if source.is_cpu:
        return _move_on_cpu(function, source, indices, plane, gather)
    flat, good = flat_indices(indices, plane)
    if not check or torch.cuda.is_current_stream_capturing():
        count_index_errors(~good)
    elif not bool(good.all()):
        first = int((~good).flatten().nonzero()[0])
        fault = IndexFault(int((~good).sum()), first, int(flat.flatten()[first]))
        text = fault.message("indices", indices.shape, plane)
        raise _with_their_text(IndexError(f"{function}: {text}"), fault.value, plane)
    return move_by_operators(source, torch.where(good, flat, prod(plane)), indices.shape, plane, gather)


def flat_indices(indices: Tensor, plane: Plane) -> tuple[Tensor, Tensor]:
    """Returns the indices with one axis for the plane, and which of them are inside it."""
    flat = indices.reshape(*indices.shape[: -len(plane)], -1).long()
    return flat, (flat >= 0) & (flat < prod(plane))


def _with_their_text(error: IndexError, index: int, plane: Plane) -> Exception:
    """Returns the error with PyTorch's text after ours, which takes a 1-D plane for one of width 1."""
    size = "x".join(map(str, plane if len(plane) > 1 else (*plane, 1)))
    return joined(error, f"Found an invalid max index: {index} (output volumes are of size {size})")


def _move_on_cpu(function: str, source: Tensor, indices: Tensor, plane: Plane, gather: bool) -> Tensor:
    key = call_key(function, metadata(source, indices), plane, gather)
    call = CALLS.get(key) or keep(key, _prepare(function, source, indices, plane, gather))
    return source.new_empty(call.shape) if 0 in call.shape else compute(call, source, indices, error=_error)


def _error(call: PreparedCall, fault: tuple[int, int, int], shape: tuple[int, ...]) -> Exception:
    plane = call.problem.input_plane[3 - call.axes :]
    return _with_their_text(call.index_error(fault, shape), fault[2], plane)


def _prepare(function: str, source: Tensor, indices: Tensor, plane: Plane, gather: bool) -> PreparedCall:
    axes, dtype = len(plane), TYPES[source.dtype]
    # PyTorch's 3-D unpool has a contiguous result.
    channels_last = (gather or axes == 2) and is_channels_last(source, axes)
    lead, small = indices.shape[:-axes], indices.shape[-axes:]
    d, h, w = [UNIT] * (3 - axes) + [Axis(*pair) for pair in zip(plane, small, strict=True)]
    batch = (lead[0] if len(lead) == 2 else 1, lead[-1])
    kind = "unpool_gradient" if gather else "unpool"
    problem = Problem(kind, batch, (d, h, w), dtype, index_dtype=TYPES[indices.dtype])
    shape = (*lead, *(small if gather else plane))
    if prod(shape) * dtype.itemsize >= 2**63:
        error = ValueError(f"{function}: the result has shape {shape}; it must have fewer than 2**63 bytes.")
        raise with_text_of(error, lambda: source.new_empty(0).resize_(shape))
    strides = None
    if axes == 1 and not gather and is_channels_last(source.unsqueeze(-1), 2):  # it has one channel
        strides = dense_strides((*shape, 1), True)[:-1]  # PyTorch's 1-D unpool is a 2-D one of width 1
    return prepared_call(
        function, axes, problem, source, [source, indices], shape, channels_last, strides=strides
    )


def move_by_operators(source: Tensor, flat: Tensor, shape: Any, plane: Plane, gather: bool) -> Tensor:
    """As `move`, by PyTorch's operators. `flat` has prod(plane) in the place of bad indices.

    With `gather` autograd and transforms can follow; else the gradient would reach the last value only.
    """
    values = source.reshape(*source.shape[: -len(plane)], -1)
    if gather:
        return F.pad(values, (0, 1)).gather(-1, flat).reshape(shape)  # a bad index reads the 0 at the end
    order = torch.arange(values.shape[-1], device=values.device).expand(flat.shape)
    last = flat.new_full((*flat.shape[:-1], prod(plane) + 1), -1)
    last = last.scatter_reduce(-1, flat, order, "amax")[..., :-1]  # the position of each cell's last value
    moved = values.gather(-1, last.clamp_min(0))
    return torch.where(last >= 0, moved, moved.new_zeros(())).reshape(*shape[: -len(plane)], *plane)
