"""A prepared: all that metadata decides about one kind of call, worked out once and kept.

A tiny call costs as much as finding its prepared, so the key is what the caller has at hand: shapes,
strides and dtypes as PyTorch gives them, attributes as they came.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..geometry import is_long
from ..kernels import IndexFault
from ..kernels.plan import ENVIRONMENT, layout_of
from ..operators.binding import bind
from ..operators.call import TensorMeta
from ..operators.catalog import operators
from ..operators.plain import kinds
from ..problem.problem import Problem, lower
from . import devices
from .tensors import (
    aligned,
    allocate,
    arrays_on,
    dense_strides,
    is_channels_last,
    is_tensor,
    memory_format,
)

Shape = tuple[int, ...]
# How the result is to lie: as an input of these strides, channels_last or not, or (None) as grad_output.
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
    format: torch.memory_format  # what the kernel works in
    copied: frozenset[str]  # of grad_output, indices, out: those that lie otherwise
    kernel: devices.Kernel | None  # of a small call that needs no more than this
    shortcut: Callable[[], devices.Kernel | None] | None  # of a small call, as devices.ChosenKernel has it
    template: torch.Tensor | None  # of a result that torch.empty_like, the cheapest way, makes right


_gradients: dict[Any, PreparedGradient] = {}
_MOST = 4096
_SMALL = 64 << 10  # bytes of a result that one thread writes and one cache holds
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
    typed: bool = False,
) -> PreparedGradient:
    """The prepared of a call; raises the operator's first fault, or NoBackend.

    `typed` attributes come from the dispatcher, which has seen to it that an int is no bool.
    """
    types = () if typed else kinds(attributes)
    sizes = kinds(input) if type(input) is tuple else ()
    try:
        key: Any = (
            function, input.shape if is_tensor(input) else input, result_layout,
            grad_output.shape, grad_output.stride(), grad_output.dtype,
            grad_output.is_cpu or _device_key(grad_output), attributes,
            types, sizes, os.environ.get(ENVIRONMENT),
        )  # fmt: skip
        if indices is not None:
            key = (
                key,
                indices.shape,
                indices.stride(),
                indices.dtype,
                indices.is_cpu or _device_key(indices),
            )
        if out is not None:
            key = (key, out.shape, out.stride(), out.dtype, out.is_cpu or _device_key(out))
        if types is None or sizes is None:
            key = None  # what is not plain may fail to hash
        elif (known := _gradients.get(key)) is not None:
            return known
    except Exception:  # a list, a tensor without strides, or an object that fails in any way: checked below
        key = None
    found = _prepare(function, grad_output, input, result_layout, indices, attributes, out)
    if key is not None and not is_long(found.problem.axes):  # the kernel has tables as long
        if len(_gradients) >= _MOST:
            _gradients.clear()
        _gradients[key] = found
    return found


def _device_key(tensor: torch.Tensor) -> int | torch.device:
    """The device, in a form that is quick to hash where it is a GPU; none is equal to True."""
    return -2 - tensor.get_device() if tensor.is_cuda else tensor.device


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
    return prepare_problem(
        function, axes, problem, layouts, shape, channels_last, grad_output.dtype, device, out is None
    )


def prepare_problem(
    function: str,
    axes: int,
    problem: Problem,
    layouts: tuple[str, ...],
    shape: Shape,
    channels_last: bool,
    dtype: torch.dtype,
    device: torch.device,
    fresh: bool = True,
) -> PreparedGradient:
    """The prepared of a problem whose tensors lie so; its result, of `shape`, is `fresh` or given."""
    chosen = devices.choose(device, problem, layouts)
    copied = frozenset(chosen.copied)
    strides = dense_strides(shape, channels_last and fresh)
    nbytes = problem.cells * problem.dtype.itemsize
    form = memory_format(chosen.layout == "channels_last", axes)
    template = torch.empty(1, dtype=dtype, device=device).expand(shape)
    small = fresh and not copied and not is_long(problem.axes) and (nbytes <= _SMALL or device.type == "cuda")
    small = small and _empty_like(template).stride() == strides
    return PreparedGradient(
        function, axes, problem, chosen.run, shape, strides, nbytes, dtype, device, form, copied,
        chosen.kernel if small else None, chosen.shortcut if small else None,
        template if small else None,
    )  # fmt: skip


def layout_in_memory(tensor: TensorMeta | torch.Tensor, axes: int) -> str:
    """How a tensor, batched or not, lies: planes, channels_last or strided."""
    shape, strides = (
        tuple(tensor.shape),
        tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.strides,
    )
    assert strides is not None
    lead = 2 - (len(shape) - axes)
    flat = (1,) * lead, shape[: 2 - lead], (1,) * (3 - axes), shape[-axes:]
    steps = (0,) * lead, strides[: 2 - lead], (0,) * (3 - axes), strides[-axes:]
    found = layout_of(sum(flat, ()), sum(steps, ()))
    return "strided" if axes == 1 and found == "channels_last" else found  # PyTorch has no such rows


def compute(
    prepared: PreparedGradient,
    grad_output: torch.Tensor,
    indices: torch.Tensor | None,
    out: torch.Tensor | None = None,
    check_indices: bool = True,
) -> torch.Tensor:
    """Run a prepared on the tensors it was made for; raises IndexError for an index outside its plane."""
    if kernel := prepared.kernel:
        result = _empty_like(prepared.template)  # type: ignore[arg-type]
        where = None if indices is None else indices.data_ptr()
        bad = kernel(grad_output.data_ptr(), None, where, result.data_ptr(), 1)
        if bad is None:
            return result
        if bad is not NotImplemented:  # that means a misaligned address
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
    """A copy in the layout that the kernel works in; PyTorch has a channels-last one only of batches."""
    if tensor.dim() == prepared.axes + 1:
        return tensor.unsqueeze(0).contiguous(memory_format=prepared.format).squeeze(0)
    return tensor.contiguous(memory_format=prepared.format)


def _result(prepared: PreparedGradient) -> torch.Tensor:
    if prepared.template is not None and not _deterministic():
        return _empty_like(prepared.template)
    return allocate(prepared.shape, prepared.strides, prepared.nbytes, prepared.dtype, prepared.device)


def message(prepared: PreparedGradient, fault: IndexFault, shape: Shape) -> str:
    text = fault.message("indices", shape, prepared.shape[-prepared.axes :])
    return f"{prepared.function}: {text}"
