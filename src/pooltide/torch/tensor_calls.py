"""Calls on tensors: everything that depends on metadata only is done once, and kept.

`prepare_gradient` takes the arguments of a gradient, checks them and returns a `PreparedCall`; an equal
call later gets the same one from the cache of calls (kernels/calls.py). `prepared_call` plans a problem that
was checked before. `compute` runs a call on tensors with the same metadata and returns the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..kernels import Arrays, Kernel, cpu
from ..kernels.calls import CALLS, PreparedCall, call_key, keep
from ..kernels.plan import layout_of, plan
from ..operators.binding import bind
from ..operators.call import TensorMeta
from ..operators.catalog import operators
from ..problem.problem import Problem, lower
from .gpu import gpu_number
from .openmp import num_threads
from .tensors import (
    address,
    aligned,
    allocate,
    arrays_on,
    as_numpy,
    as_volume,
    dense_strides,
    is_channels_last,
    is_tensor,
    memory_format,
    metadata,
)

Tensor = torch.Tensor
Shape = tuple[int, ...]
# The layout of the result: that of an input with these strides, channels_last (True) or contiguous (False),
# or that of grad_output (None).
ResultLayout = Shape | bool | None

_empty_like = torch.empty_like
_deterministic = torch.are_deterministic_algorithms_enabled
_is_capturing = torch.cuda.is_current_stream_capturing


def prepare_gradient(
    function: str,
    grad_output: Tensor,
    input: Tensor | Sequence[int],
    result_layout: ResultLayout,
    indices: Tensor | None,
    attributes: tuple[Any, ...],
    out: Tensor | None = None,
) -> PreparedCall:
    """Returns the prepared call of a gradient; raises for the first bad argument, or NoBackend."""
    shape = tuple(input.shape) if is_tensor(input) else input
    key = call_key(function, metadata(grad_output, indices, out), (shape, *attributes), result_layout)
    return CALLS.get(key) or keep(
        key, _checked(function, grad_output, input, result_layout, indices, attributes, out)
    )


def _checked(
    function: str,
    grad_output: Any,
    input: Any,
    result_layout: ResultLayout,
    indices: Any,
    attributes: tuple[Any, ...],
    out: Any,
) -> PreparedCall:
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
    sources = [call.role(role) for role in ("grad_output", "indices") if call.role(role) is not None]
    written = None if out is None else call.role("out")
    return prepared_call(function, axes, lower(call), grad_output, sources, shape, channels_last, written)


def prepared_call(
    function: str,
    axes: int,
    problem: Problem,
    like: Tensor,
    sources: Sequence[TensorMeta | Tensor],
    shape: Shape,
    channels_last: bool,
    out: TensorMeta | None = None,
    strides: Shape | None = None,
) -> PreparedCall:
    """Returns the call of a checked problem that reads `sources`; raises NoBackend with the reason.

    The result has `shape`, and the dtype and device of `like`. If `out` is None it is a new tensor, with
    `strides`, or dense with the layout that `channels_last` says.
    """
    if strides is None:
        strides = dense_strides(shape, channels_last and out is None)
    template = None
    if out is None:
        template = torch.empty_strided(shape, strides, dtype=like.dtype, device=like.device)
        template.untyped_storage().resize_(0)  # only its metadata count
        written = "channels_last" if channels_last else "planes"
    else:
        written = layout_in_memory(out, axes)
    executable = kernel = None
    if not like.is_meta:
        layouts = (*(layout_in_memory(tensor, axes) for tensor in sources), written)
        executable = plan(problem, layouts, gpu_number(like.device))
        kernel = executable.kernel
    return PreparedCall(
        function, axes, problem, executable, kernel, shape, channels_last, strides, template=template
    )


def layout_in_memory(tensor: TensorMeta | torch.Tensor, axes: int) -> str:
    """Returns the layout of a batched or unbatched tensor: planes, channels_last or strided."""
    strides = tensor.stride() if isinstance(tensor, Tensor) else tensor.strides
    assert strides is not None
    layout = layout_of(tensor.shape, strides, axes)
    # PyTorch has no channels_last for 1-D pools.
    return "strided" if axes == 1 and layout == "channels_last" else layout


def compute(
    call: PreparedCall,
    source: Tensor,
    indices: Tensor | None,
    out: Tensor | None = None,
    check_indices: bool = True,
    error: Callable[..., Exception] = PreparedCall.index_error,
) -> Tensor:
    """Runs a gradient or an unpool and returns the result; raises `error` for an index outside its plane.

    `source`: grad_output, or the input of an unpool. On a GPU this raises only with `check_indices`, and
    waits for the GPU to do so.
    """
    result = _new(call, source) if out is None else out
    fault: Any = NotImplemented
    if call.kernel is not None:
        fault = _run(call, call.kernel, source, indices, result, check_indices)
    if fault is NotImplemented:  # a tensor must be copied: it has another layout, or is misaligned
        fault = _run_on_copies(call, source, indices, result, check_indices)
    if fault is not None:
        assert indices is not None
        raise error(call, fault, indices.shape)
    return result


def _run(
    call: PreparedCall,
    kernel: Kernel,
    source: Tensor,
    indices: Tensor | None,
    result: Tensor,
    check_indices: bool,
) -> Any:
    """Runs the kernel on tensors in its layout, and returns what it returns."""
    where = None if indices is None else address(indices)
    if not call.problem.gradient:
        return kernel(None, address(source), where, result.data_ptr(), num_threads())
    if indices is not None and check_indices and _waits(call):
        return _run_checked(call, source, indices, result)
    return kernel(address(source), None, where, result.data_ptr(), num_threads())


def _waits(call: PreparedCall) -> bool:
    """Whether the device must finish before its faults are known. A CUDA graph does not wait."""
    return call.executable is not None and call.executable.device is not None and not _is_capturing()


def _run_checked(call: PreparedCall, source: Tensor, indices: Tensor, result: Tensor) -> Any:
    """Runs the kernel on a GPU, waits, and returns the fault."""
    assert call.executable is not None
    prepared: Any = call.executable.prepared
    dropped = prepared.run_checked(address(source), address(indices), result.data_ptr())
    if dropped is NotImplemented:
        return dropped
    count, position = dropped
    return (count, position, int(indices.flatten()[position])) if count else None


def _run_on_copies(
    call: PreparedCall, source: Tensor, indices: Tensor | None, result: Tensor, check_indices: bool
) -> Any:
    """Copies the tensors that the kernel can't take, and runs it."""
    executable = call.executable
    if executable is None:  # the tensors have no memory
        return None
    if (prepared := executable.prepared) is None:
        if executable.device is not None:  # there is nothing to compute
            result.zero_()
            return None
        tensors = (source, result) if indices is None else (source, indices, result)
        volumes = (as_numpy(as_volume(tensor, call.axes)) for tensor in tensors)
        return executable.run(Arrays(**dict(zip(call.problem.roles, volumes, strict=True))))
    copied = executable.copied
    if call.problem.roles[0] in copied:
        source = _dense(call, source)
    if indices is not None:
        indices = aligned(_dense(call, indices) if "indices" in copied else indices)
    written = _new(call, source) if "out" in copied else aligned(result)
    fault = _run(call, prepared.run, aligned(source), indices, written, check_indices)
    assert fault is not NotImplemented, "the tensors are aligned and disjoint"
    if fault is None and written is not result:
        result.copy_(written)
    return fault


def _dense(call: PreparedCall, tensor: Tensor) -> Tensor:
    """Returns a copy in the kernel's layout. Only batches can be channels_last in PyTorch."""
    form = kernel_format(call)
    if tensor.dim() == call.axes + 1:
        return tensor.unsqueeze(0).contiguous(memory_format=form).squeeze(0)
    return tensor.contiguous(memory_format=form)


def kernel_and_copies(
    call: PreparedCall, *sources: Tensor | None
) -> tuple[Kernel, list[tuple[int, Shape, Shape, int]]] | None:
    """Returns the kernel, and number, shape, strides and bytes of the sources that are copied for it.

    Returns None if no kernel takes addresses, or the result is copied.
    """
    executable = call.executable
    if executable is None or executable.prepared is None or "out" in executable.copied:
        return None
    copies = []
    for number, (role, source) in enumerate(zip(call.problem.roles, sources, strict=False)):
        if role in executable.copied and source is not None:
            shape = tuple(source.shape)
            batch = shape if len(shape) == call.axes + 2 else (1, *shape)
            strides = dense_strides(batch, kernel_format(call) is not torch.contiguous_format)
            copies.append((number, shape, strides[-len(shape) :], source.nbytes))
    return executable.prepared.run, copies


def kernel_format(call: PreparedCall) -> torch.memory_format:
    """Returns the format of the tensors that the kernel takes."""
    assert call.executable is not None
    return memory_format(call.executable.layout == "channels_last", call.axes)


def _new(call: PreparedCall, source: Tensor) -> Tensor:
    if call.template is None or _deterministic():
        return allocate(call.shape, call.strides, source.dtype, source.device)
    result = _empty_like(call.template)
    if result.is_cpu:
        cpu.use_huge_pages(result.data_ptr(), result.nbytes)
    return result
