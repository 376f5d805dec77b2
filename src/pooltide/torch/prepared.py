"""Prepared gradients: everything about a call that depends on metadata only.

`prepare_gradient` takes the arguments of a gradient, checks them and returns a `PreparedGradient`; an equal
call later gets the same one from the cache of calls (kernels/calls.py).
`compute` runs it on tensors with the same metadata and returns the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..kernels import IndexFault, cpu
from ..kernels.calls import CALLS, call_key
from ..kernels.plan import layout_of
from ..operators.binding import bind
from ..operators.call import TensorMeta
from ..operators.catalog import operators
from ..problem.problem import Problem, lower
from . import devices
from .tensors import (
    address,
    aligned,
    allocate,
    arrays_on,
    dense_strides,
    is_channels_last,
    is_tensor,
    memory_format,
    metadata,
)

Shape = tuple[int, ...]
# The layout of the result: that of an input with these strides, channels_last (True) or contiguous (False),
# or that of grad_output (None).
ResultLayout = Shape | bool | None


@dataclass(frozen=True, slots=True)
class PreparedGradient:
    function: str
    axes: int
    problem: Problem
    run: devices.Run
    shape: Shape  # of the result
    strides: Shape
    nbytes: int
    dtype: torch.dtype
    device: torch.device
    format: torch.memory_format  # of the tensors that the kernel takes
    copied: frozenset[str]  # which of grad_output, indices, out have another layout than the kernel takes
    kernel: devices.Kernel | None  # only for a call that copies nothing
    shortcut: Callable[[], devices.Kernel | None] | None  # only for such a call; see ChosenKernel
    template: torch.Tensor | None  # torch.empty_like(template) makes a new result; the cheapest way to do so
    tables: Any  # what owns the memory of the kernel, with its nbytes


_empty_like = torch.empty_like
_deterministic = torch.are_deterministic_algorithms_enabled


def prepare_gradient(
    function: str,
    grad_output: torch.Tensor,
    input: torch.Tensor | Sequence[int],
    result_layout: ResultLayout,
    indices: torch.Tensor | None,
    attributes: tuple[Any, ...],
    out: torch.Tensor | None = None,
) -> PreparedGradient:
    """Returns the prepared gradient of a call; raises for the first bad argument, or NoBackend."""
    shape = tuple(input.shape) if is_tensor(input) else input
    key = call_key(function, metadata(grad_output, indices, out), (shape, *attributes), result_layout)
    found: PreparedGradient | None = CALLS.get(key)
    if found is None:
        found = _prepare(function, grad_output, input, result_layout, indices, attributes, out)
        CALLS.add(key, found, found.tables)
    return found


def _prepare(
    function: str,
    grad_output: Any,
    input: Any,
    result_layout: ResultLayout,
    indices: Any,
    attributes: tuple[Any, ...],
    out: Any,
) -> PreparedGradient:
    operator = operators()[function]
    axes = len(operator.axes)
    device = grad_output.device if is_tensor(grad_output) else torch.device("cpu")
    call = bind(arrays_on(device), operator, grad_output, input, indices, attributes, out)
    shape: Shape = call.role("input").shape
    if result_layout is None:
        result_layout = is_channels_last(grad_output, axes)
    elif not isinstance(result_layout, bool):
        result_layout = is_channels_last(torch.empty_strided(shape, result_layout, device="meta"), axes)
    channels_last = result_layout and len(shape) == axes + 2
    problem = lower(call)
    result = (
        call.role("out")
        if out is not None
        else TensorMeta(shape, problem.dtype, strides=dense_strides(shape, channels_last))
    )
    given = [call.role(role) for role in ("grad_output", "indices") if call.role(role) is not None]
    layouts = tuple(layout_in_memory(meta, axes) for meta in [*given, result])
    return prepare_problem(function, problem, layouts, shape, channels_last, grad_output, out is None)


def prepare_problem(
    function: str,
    problem: Problem,
    layouts: tuple[str, ...],
    shape: Shape,
    channels_last: bool,
    grad_output: torch.Tensor,
    fresh: bool = True,
) -> PreparedGradient:
    """Returns the prepared gradient of a problem whose tensors have these layouts.

    The result has `shape`, and the dtype and device of `grad_output`.
    `fresh`: the result is allocated; else the caller passes `out`.
    """
    axes, dtype, device = len(operators()[function].axes), grad_output.dtype, grad_output.device
    chosen = devices.choose(device, problem, layouts)
    copied = frozenset(chosen.copied)
    strides = dense_strides(shape, channels_last and fresh)
    nbytes = problem.cells * problem.dtype.itemsize
    form = memory_format(chosen.layout == "channels_last", axes)
    simple = not copied
    template = torch.empty_strided(shape, strides, dtype=dtype, device=device) if simple and fresh else None
    if template is not None:
        template.untyped_storage().resize_(0)  # only its metadata count
    return PreparedGradient(
        function, axes, problem, chosen.run, shape, strides, nbytes, dtype, device, form, copied,
        chosen.kernel if simple else None, chosen.shortcut if simple else None,
        template, chosen.tables,
    )  # fmt: skip


def layout_in_memory(tensor: TensorMeta | torch.Tensor, axes: int) -> str:
    """Returns the layout of a batched or unbatched tensor: planes, channels_last or strided."""
    shape, strides = (
        tuple(tensor.shape),
        tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.strides,
    )
    assert strides is not None
    lead = 2 - (len(shape) - axes)
    flat = (1,) * lead, shape[: 2 - lead], (1,) * (3 - axes), shape[-axes:]
    steps = (0,) * lead, strides[: 2 - lead], (0,) * (3 - axes), strides[-axes:]
    found = layout_of(sum(flat, ()), sum(steps, ()))
    return (
        "strided" if axes == 1 and found == "channels_last" else found
    )  # PyTorch has no channels_last for 1-D pools


def compute(
    prepared: PreparedGradient,
    grad_output: torch.Tensor,
    indices: torch.Tensor | None,
    out: torch.Tensor | None = None,
    check_indices: bool = True,
) -> torch.Tensor:
    """Runs a prepared gradient and returns the result; raises IndexError for an index outside its plane.

    On a GPU it raises only with `check_indices`, and waits for the GPU to do so.
    """
    if kernel := prepared.kernel:
        result = _result(prepared) if out is None else out
        where = None if indices is None else address(indices)
        bad = kernel(address(grad_output), None, where, result.data_ptr(), devices.num_threads())
        if bad is None:
            return result
        if bad is not NotImplemented:  # NotImplemented: an address is misaligned
            raise IndexError(message(prepared, IndexFault(*bad), grad_output.shape))
    result = _result(prepared) if out is None else out
    written = aligned(result)
    if copied := prepared.copied:
        if "grad_output" in copied:
            grad_output = _dense(prepared, grad_output)
        if indices is not None and "indices" in copied:
            indices = _dense(prepared, indices)
        if "out" in copied:
            written = _result(prepared)
    grad_output, indices = aligned(grad_output), None if indices is None else aligned(indices)
    if fault := prepared.run(prepared.axes, grad_output, indices, written, check_indices):
        raise IndexError(message(prepared, fault, grad_output.shape))
    if written is not result:
        result.copy_(written)
    return result


def _dense(prepared: PreparedGradient, tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy in the kernel's layout. Only batches can be channels_last in PyTorch."""
    if tensor.dim() == prepared.axes + 1:
        return tensor.unsqueeze(0).contiguous(memory_format=prepared.format).squeeze(0)
    return tensor.contiguous(memory_format=prepared.format)


def _result(prepared: PreparedGradient) -> torch.Tensor:
    if prepared.template is None or _deterministic():
        return allocate(prepared.shape, prepared.strides, prepared.nbytes, prepared.dtype, prepared.device)
    result = _empty_like(prepared.template)
    if result.is_cpu:
        cpu.use_huge_pages(result.data_ptr(), prepared.nbytes)
    return result


def message(prepared: PreparedGradient, fault: IndexFault, shape: Shape) -> str:
    text = fault.message("indices", shape, prepared.shape[-prepared.axes :])
    return f"{prepared.function}: {text}"
