"""Forward pools on our kernels, and gradients of maxima from one-byte offsets.

`prepare_pool` checks a call and returns a `PreparedPool`, or None if PyTorch must compute the forward: under
tracing, transforms and autocast, for other dtypes, for the mean of whole planes, whose bits depend on
PyTorch's code, and where the device has no kernel. `values_of` and `maxima_of` run it and return tensors.
An offset says where in its window a maximum is. It fits in one byte if a window has at most 256 cells;
`offsets_from` and `indices_from` convert, and `gradient_from` computes the gradient from offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from ..cache import cached
from ..kernels.calls import CALLS, call_key
from ..kernels.cpu import STORES, tables_of
from ..operators.memory import reserve
from ..problem.forwards import AdaptiveArguments, PoolArguments, StridedArguments, forward_problem
from ..problem.offsets import Offsets, offsets_of
from ..problem.problem import Problem, gradient_of, with_offsets
from .devices import choose_forward, num_threads
from .errors import FAULTS, as_pytorch, with_text_of
from .gradients import has_plain_memory, nothing_follows
from .operators import AXES
from .prepared import PreparedGradient, compute, layout_in_memory, prepare_problem
from .tensors import (
    DEVICES,
    TYPES,
    address,
    aligned,
    allocate,
    arrays_on,
    dense_strides,
    is_channels_last,
    memory_format,
    metadata,
)

Tensor = torch.Tensor
_FLOATS = frozenset(dtype for dtype, known in TYPES.items() if known.name in STORES)
# For a channels_last_3d input PyTorch's results of these pools are contiguous; callers may rely on that.
_CONTIGUOUS = frozenset({"avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d"})


@dataclass(frozen=True, slots=True)
class PreparedPool:
    """A checked pool, for tensors of one shape, layout, dtype and device.

    If `kernel` is None, PyTorch computes the forward.
    """

    problem: Problem
    axes: int
    shape: tuple[int, ...]  # of the result
    strides: tuple[int, ...]
    copied: torch.memory_format | None  # the format into which the input is copied first
    kernel: Callable[..., Any] | None
    contiguous: bool  # values and indices are made contiguous after the kernel; offsets are not


_BY_PYTORCH = "PyTorch"  # in the cache: PyTorch computes the forward


def prepare_pool(
    name: str, x: Tensor, arguments: PoolArguments, positions: str = "none"
) -> PreparedPool | None:
    """Returns the prepared pool from the cache or a new one; None if PyTorch must compute the forward.

    `positions` says what a maximum returns with its values: "none", "indices" or "offsets".
    Raises for bad arguments.
    """
    if (
        torch.compiler.is_compiling()
        or not isinstance(x, Tensor)
        or x.dtype not in _FLOATS
        or not kernel_may_read(x)
    ):
        return None
    casting = torch.is_autocast_enabled(x.device.type)
    key = call_key(name, metadata(x), arguments, positions, casting)
    if (known := CALLS.get(key)) is not None:
        return known if isinstance(known, PreparedPool) else None
    try:
        found = _prepare(name, x, arguments, positions, casting)
    except FAULTS as error:
        raise as_pytorch(error) from None
    CALLS.add(key, found or _BY_PYTORCH, tables_of(found.kernel) if found else None)
    return found


def kernel_may_read(x: Tensor) -> bool:
    """Whether our kernels can read the tensor and nothing traces or transforms the call."""
    # Not by may_skip_dispatcher: autograd may follow x, as the caller records the node.
    return (
        x.layout == torch.strided and x.device.type in DEVICES and nothing_follows() and has_plain_memory(x)
    )


def _prepare(
    name: str, x: Tensor, arguments: PoolArguments, positions: str, casting: bool
) -> PreparedPool | None:
    axes = AXES[name]
    problem = forward_problem(name, arrays_on(x.device), x, arguments, positions != "none")
    if positions != "none" and may_have_empty_windows(arguments, x.shape[-axes:]):
        return None
    shape = (*x.shape[:-axes], *problem.output_plane[3 - axes :])
    if 0 in shape:
        return None
    if x.is_cpu:
        _reserve(name, prod(shape) * x.element_size())
    if positions == "offsets":
        small = with_offsets(problem)
        if small is None:
            return None
        problem = small
    channels_last = is_channels_last(x, axes)
    kernel = None
    if not casting and problem.quotient != "mean":
        kernel = choose_forward(x.device, problem, "channels_last" if channels_last else "planes")
    if kernel is None and positions != "offsets":
        return None
    form = memory_format(channels_last, axes)
    copied = None if x.is_contiguous(memory_format=form) else form
    contiguous = channels_last and name in _CONTIGUOUS
    one = prod(problem.output_plane) == 1  # then both layouts are the same in memory
    strides = dense_strides(shape, channels_last and not (contiguous and one))
    return PreparedPool(problem, axes, shape, strides, copied, kernel, contiguous)


def _reserve(name: str, nbytes: int) -> None:
    """Raises, with PyTorch's text too, where a result of so many bytes has no room."""
    try:
        reserve(name, nbytes)
    except MemoryError as error:
        raise with_text_of(as_pytorch(error), lambda: torch.empty(nbytes, dtype=torch.uint8)) from None


def may_have_empty_windows(arguments: PoolArguments, lengths: Sequence[int]) -> bool:
    """Whether dilation is larger than an axis, so that a window may have no cell.

    PyTorch's index for such a window is outside the plane, or in another window.
    """
    steps = arguments.dilation if isinstance(arguments, StridedArguments) else 1
    if isinstance(steps, int):
        return steps > 1 and any(steps > length for length in lengths)
    return any(step > length for step, length in zip(steps, lengths, strict=False))


def unit_axis(name: str, x: Tensor) -> int | None:
    """Returns where to insert an axis of length 1 that makes the tensor channels_last; None if nowhere.

    PyTorch pools (N, C, W) as (N, C, 1, W), and in max_pool3d (C, D, H, W) as (1, C, D, H, W). If PyTorch
    takes that tensor for channels_last, so is its result.
    """
    if torch.compiler.is_compiling() or x.layout != torch.strided:
        return None
    if AXES[name] == 1:
        near = x.dim() == 3 and x.stride(1) <= x.stride(2)
        return -2 if near and kernel_may_read(x) and is_channels_last(x.unsqueeze(-2), 2) else None
    near = name == "max_pool3d" and x.dim() == 4 and x.stride(0) <= x.stride(3) and not x.is_contiguous()
    return 0 if near and kernel_may_read(x) and x.movedim(0, -1).is_contiguous() else None


def with_unit_axis(
    name: str, x: Tensor, arguments: PoolArguments, at: int
) -> tuple[str, Tensor, PoolArguments]:
    """Returns the equal pool of the tensor with its `unit_axis`: name, tensor, arguments."""
    if at == 0:
        return name, x.movedim(0, -1).unsqueeze(0).movedim(-1, 1), arguments  # strides of channels_last_3d
    width = [value[-1] if isinstance(value, (tuple, list)) and value else value for value in arguments]
    if isinstance(arguments, AdaptiveArguments):
        wide: PoolArguments = AdaptiveArguments((1, width[0]))
    else:
        kernel, stride, padding, dilation, *rest = width
        wide = StridedArguments(
            (1, kernel), (1, stride) if stride else None, (0, padding), (1, dilation), *rest
        )
    return name.replace("1d", "2d"), x.unsqueeze(-2), wide


def values_of(pool: PreparedPool, x: Tensor) -> Tensor:
    return _run(pool, x, None)[0]


def maxima_of(pool: PreparedPool, x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the values and, as prepared, their offsets or int64 indices."""
    values, positions = _run(pool, x, torch.uint8 if pool.problem.offsets else torch.int64)
    assert positions is not None
    return values, positions


def maxima_with_offsets_and_indices(pool: PreparedPool, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the values, their offsets, and int64 indices with the strides of the values."""
    values, offsets = maxima_of(pool, x)
    indices = indices_from(pool, offsets)
    if indices.stride() != values.stride():
        nbytes = values.numel() * indices.element_size()
        laid = allocate(pool.shape, values.stride(), nbytes, indices.dtype, indices.device)
        indices = laid.copy_(indices)
    return values, offsets, indices


def _run(pool: PreparedPool, x: Tensor, index_dtype: torch.dtype | None) -> tuple[Tensor, Tensor | None]:
    assert pool.kernel is not None
    if pool.copied is not None:
        x = x.contiguous(memory_format=pool.copied)
    x = aligned(x)
    values = _empty(pool, x, x.dtype)
    found = None if index_dtype is None else _empty(pool, x, index_dtype)
    found_at = None if found is None else found.data_ptr()
    pool.kernel(None, address(x), found_at, values.data_ptr(), num_threads())
    if pool.contiguous:
        values = values.contiguous()
        found = found.contiguous() if index_dtype == torch.int64 and found is not None else found
    return values, found


def _empty(pool: PreparedPool, x: Tensor, dtype: torch.dtype) -> Tensor:
    return allocate(pool.shape, pool.strides, prod(pool.shape) * dtype.itemsize, dtype, x.device)


def offsets_from(pool: PreparedPool, indices: Tensor) -> Tensor:
    """Converts indices, flat in their planes, to offsets in their windows."""
    written, corner, _ = _tables(pool.problem, pool.axes, indices.device)
    _, height, width = pool.problem.input_plane
    _, h, w = written.most
    i, j, k = pool.problem.dilation
    far = indices - corner
    d_steps = far // (height * width) // i
    h_steps = far % (height * width) // width // j
    return ((d_steps * h + h_steps) * w + far % width // k).to(torch.uint8)


def indices_from(pool: PreparedPool, offsets: Tensor) -> Tensor:
    """Converts offsets to int64 indices."""
    _, corner, jump = _tables(pool.problem, pool.axes, offsets.device)
    return jump[offsets.long()].add_(corner)


@cached(lambda tables: tables)
def _tables(problem: Problem, axes: int, device: torch.device) -> tuple[Offsets, Tensor, Tensor]:
    """Returns how offsets count cells, each window's first index, and each offset's distance from it."""
    written = offsets_of(problem.axes)
    assert written is not None
    corner = written.indices(np.zeros(problem.output_plane, np.uint8), problem.input_plane)
    plane = torch.tensor(corner, device=device).reshape(problem.output_plane[3 - axes :])
    return written, plane, torch.tensor(written.jump, device=device)


def gradient_from(
    pool: PreparedPool,
    function: str,
    grad_output: Tensor,
    offsets: Tensor,
    shape: tuple[int, ...],
    arguments: PoolArguments,
    channels_last: bool,
) -> Tensor:
    """Returns the gradient of maxima from their offsets; raises NoBackend if no kernel reads offsets."""
    tensors, attributes = metadata(grad_output, offsets), (shape, *arguments)
    key = call_key(function, tensors, attributes, "offsets", channels_last)
    prepared: PreparedGradient | None = CALLS.get(key)
    if prepared is None:
        problem = gradient_of(pool.problem, TYPES[grad_output.dtype])
        given = (layout_in_memory(tensor, pool.axes) for tensor in (grad_output, offsets))
        layouts = (*given, "channels_last" if channels_last else "planes")
        prepared = prepare_problem(function, problem, layouts, shape, channels_last, grad_output)
        CALLS.add(key, prepared, prepared.tables)
    return compute(prepared, grad_output, offsets, None, check_indices=False)
