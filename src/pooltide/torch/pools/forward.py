"""Forward pools on our kernels, and gradients of maxima from one-byte offsets.

`prepare_pool` checks a call and returns a `PreparedCall`, or None if PyTorch must compute the forward: under
tracing, transforms and autocast, for other dtypes, for the mean of whole planes, whose bits depend on
PyTorch's code, and where the device has no kernel. `values_of` and `maxima_of` run it and return tensors.
An offset says where in its window a maximum is. It fits in one byte if a window has at most 256 cells;
`offsets_from` and `indices_from` convert, and `gradient_from` computes the gradient from offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np
import torch

from ...cache import cached
from ...kernels.calls import CALLS, Key, PreparedCall, call_key, keep
from ...kernels.cpu import STORES
from ...kernels.plan import Executable, NoBackend, plan
from ...operators.memory import reserve
from ...problem.forwards import AdaptiveArguments, PoolArguments, StridedArguments, forward_problem
from ...problem.offsets import Offsets, offsets_of
from ...problem.problem import Problem, gradient_of, with_offsets
from ..dispatch.custom_operators import AXES
from ..errors import FAULTS, as_pytorch, with_text_of
from ..gpu import gpu_number
from ..gradients import has_plain_memory, nothing_follows
from ..openmp import num_threads
from ..tensor_calls import compute, kernel_format, layout_in_memory, prepared_call
from ..tensors import (
    DEVICES,
    TYPES,
    address,
    allocate,
    arrays_on,
    dense_strides,
    is_channels_last,
    metadata,
)

Tensor = torch.Tensor
_FLOATS = frozenset(dtype for dtype, known in TYPES.items() if known.name in STORES)
# For a channels_last_3d input PyTorch's results of these pools are contiguous; callers may rely on that.
_CONTIGUOUS = frozenset({"avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d"})


_BY_PYTORCH = "PyTorch"  # in the cache: PyTorch computes the forward


def prepare_pool(
    name: str, x: Tensor, arguments: PoolArguments, positions: str = "none"
) -> PreparedCall | None:
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
        return known if isinstance(known, PreparedCall) else None
    try:
        call = _prepare(name, x, arguments, positions, casting)
    except FAULTS as error:
        raise as_pytorch(error) from None
    if call is None:
        CALLS.add(key, _BY_PYTORCH)
        return None
    return keep(key, call)


def kernel_may_read(x: Tensor) -> bool:
    """Whether our kernels can read the tensor and nothing traces or transforms the call."""
    # Not by may_skip_dispatcher: autograd may follow x, as the caller records the node.
    return (
        x.layout == torch.strided and x.device.type in DEVICES and nothing_follows() and has_plain_memory(x)
    )


def _prepare(
    name: str, x: Tensor, arguments: PoolArguments, positions: str, casting: bool
) -> PreparedCall | None:
    axes = AXES[name]
    problem = forward_problem(name, arrays_on(x.device), x, arguments, positions != "none")
    if _exceeds_int32(arguments) or (
        positions != "none" and may_have_empty_windows(arguments, x.shape[-axes:])
    ):
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
        CALLS.add(_problem_key(name, x, arguments), problem)  # the gradient asks for it
    channels_last = is_channels_last(x, axes)
    executable = None
    if not casting and problem.quotient != "mean":
        executable = _executable(x, problem, axes, "channels_last" if channels_last else "planes")
    if executable is None and positions != "offsets":
        return None
    one = prod(problem.output_plane) == 1  # then both layouts are the same in memory
    strides = dense_strides(shape, channels_last and not (name in _CONTIGUOUS and one))
    kernel = None if executable is None else executable.kernel
    return PreparedCall(name, axes, problem, executable, kernel, shape, channels_last, strides)


def _executable(x: Tensor, problem: Problem, axes: int, layout: str) -> Executable | None:
    """Returns what computes a forward whose results have this layout; None if PyTorch must."""
    written, gpu = [layout] * (len(problem.roles) - 1), gpu_number(x.device)
    try:
        executable = plan(problem, (layout_in_memory(x, axes), *written), gpu)
        return None if executable.prepared is None else executable
    except NoBackend:
        if gpu is None:  # the environment names a backend that there is not
            raise
        return None


def is_made_contiguous(call: PreparedCall) -> bool:
    """Whether values and indices are made contiguous after the kernel; offsets are not."""
    return call.channels_last and call.function in _CONTIGUOUS


def _reserve(name: str, nbytes: int) -> None:
    """Raises, with PyTorch's text too, where a result of so many bytes has no room."""
    try:
        reserve(name, nbytes)
    except MemoryError as error:
        raise with_text_of(as_pytorch(error), lambda: torch.empty(nbytes, dtype=torch.uint8)) from None


def may_have_empty_windows(arguments: PoolArguments, lengths: Sequence[int]) -> bool:
    """Whether dilation is larger than an axis, so that a window of several cells may have none inside.

    PyTorch's index for such a window is outside the plane, or in another window.
    """
    if not isinstance(arguments, StridedArguments):
        return False
    sizes, steps = (_of_axes(values, len(lengths)) for values in (arguments.kernel_size, arguments.dilation))
    rows = zip(sizes, steps, lengths, strict=True)
    return any(size > 1 and step > length for size, step, length in rows)


def _exceeds_int32(arguments: PoolArguments) -> bool:
    """Whether a stride or dilation needs more than 32 bits, for which PyTorch raises except in 1-D maxima.

    A larger kernel or padding would need such an axis.
    """
    if not isinstance(arguments, StridedArguments):
        return False
    values = (arguments.stride or 0, arguments.dilation)
    return any(max(_of_axes(value, 1)) >= 2**31 for value in values)


def _of_axes(values: int | Iterable[int], axes: int) -> tuple[int, ...]:
    """One value for each axis; a single value stands for all of them."""
    row = tuple(values) if isinstance(values, Iterable) else (values,)
    return row * axes if len(row) == 1 else row


def unit_axis(name: str, x: Tensor) -> int | None:
    """Returns where to insert an axis of length 1 that makes the tensor channels_last; None if nowhere.

    PyTorch pools (N, C, W) as (N, C, 1, W), and in max_pool3d (C, D, H, W) as (1, C, D, H, W). If PyTorch
    takes that tensor for channels_last, so is its result.
    """
    axes = AXES[name]
    if axes == 2 or torch.compiler.is_compiling() or x.layout != torch.strided:
        return None
    if axes == 1:
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


def values_of(pool: PreparedCall, x: Tensor) -> Tensor:
    return _run(pool, x, None)[0]


def maxima_of(pool: PreparedCall, x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the values and, as prepared, their offsets or int64 indices."""
    values, positions = _run(pool, x, torch.uint8 if pool.problem.offsets else torch.int64)
    assert positions is not None
    return values, positions


def maxima_with_offsets_and_indices(pool: PreparedCall, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the values, their offsets, and int64 indices with the strides of the values."""
    values, offsets = maxima_of(pool, x)
    return values, offsets, indices_like(values, pool, offsets)


def indices_like(values: Tensor, pool: PreparedCall, offsets: Tensor) -> Tensor:
    """Returns the int64 indices of maxima, with the strides of their values."""
    indices = indices_from(pool.problem, pool.axes, offsets)
    if indices.stride() != values.stride():
        laid = allocate(pool.shape, values.stride(), indices.dtype, indices.device)
        indices = laid.copy_(indices)
    return indices


def _run(pool: PreparedCall, x: Tensor, index_dtype: torch.dtype | None) -> tuple[Tensor, Tensor | None]:
    kernel = pool.kernel
    if kernel is None:
        assert pool.executable is not None
        assert pool.executable.prepared is not None
        x, kernel = x.contiguous(memory_format=kernel_format(pool)), pool.executable.prepared.run
    values = allocate(pool.shape, pool.strides, x.dtype, x.device)
    positions = None if index_dtype is None else allocate(pool.shape, pool.strides, index_dtype, x.device)
    written = None if positions is None else positions.data_ptr(), values.data_ptr(), num_threads()
    if kernel(None, address(x), *written) is NotImplemented:  # it is misaligned
        x = x.clone()
        kernel(None, address(x), *written)
    if is_made_contiguous(pool):
        values = values.contiguous()
        if positions is not None and index_dtype == torch.int64:
            positions = positions.contiguous()
    return values, positions


def _problem_key(name: str, x: Tensor, arguments: PoolArguments) -> Key | None:
    return call_key(name, metadata(x), arguments, "problem")


def offsets_problem(name: str, x: Tensor, arguments: PoolArguments) -> Problem:
    """Returns the problem of a maximum whose offsets were saved; `x` is the pool's input."""
    key = _problem_key(name, x, arguments)
    problem: Problem | None = CALLS.get(key)
    if problem is None:
        problem = with_offsets(forward_problem(name, arrays_on(x.device), x, arguments, True))
        if problem is None:
            raise ValueError(f"{name}: indices has dtype uint8; it must be torch.int64.")
        CALLS.add(key, problem, None)
    return problem


def offsets_from(problem: Problem, axes: int, indices: Tensor) -> Tensor:
    """Converts indices, flat in their planes, to offsets in their windows."""
    written, corner, _ = _tables(problem, axes, indices.device)
    _, height, width = problem.input_plane
    _, h, w = written.most
    i, j, k = problem.dilation
    far = indices - corner
    d_steps = far // (height * width) // i
    h_steps = far % (height * width) // width // j
    return ((d_steps * h + h_steps) * w + far % width // k).to(torch.uint8)


def indices_from(problem: Problem, axes: int, offsets: Tensor) -> Tensor:
    """Converts offsets to int64 indices."""
    # The tables that a tracer sees must be its own.
    tables = _tables if nothing_follows() else _new_tables
    _, corner, jump = tables(problem, axes, offsets.device)
    return jump[offsets.long()].add_(corner)


def _new_tables(problem: Problem, axes: int, device: torch.device) -> tuple[Offsets, Tensor, Tensor]:
    """Returns how offsets count cells, each window's first index, and each offset's distance from it."""
    written = offsets_of(problem.axes)
    assert written is not None
    corner = written.indices(np.zeros(problem.output_plane, np.uint8), problem.input_plane)
    plane = torch.tensor(corner, device=device).reshape(problem.output_plane[3 - axes :])
    return written, plane, torch.tensor(written.jump, device=device)


_tables = cached(lambda tables: tables)(_new_tables)


def gradient_from(
    problem: Problem,
    function: str,
    grad_output: Tensor,
    offsets: Tensor,
    shape: tuple[int, ...],
    arguments: PoolArguments,
    channels_last: bool,
) -> tuple[PreparedCall, Tensor]:
    """Returns the gradient of maxima from their offsets, and how it was prepared.

    `problem` is that of the forward. Raises NoBackend if no kernel reads offsets.
    """
    tensors, attributes = metadata(grad_output, offsets), (shape, *arguments)
    key = call_key(function, tensors, attributes, "offsets", channels_last)
    call = CALLS.get(key) or keep(
        key,
        prepared_call(
            function,
            AXES[function],
            gradient_of(problem, TYPES[grad_output.dtype]),
            grad_output,
            [grad_output, offsets],
            shape,
            channels_last,
        ),
    )
    return call, compute(call, grad_output, offsets, None, check_indices=False, error=_offset_error)


def _offset_error(call: PreparedCall, fault: tuple[int, int, int], shape: tuple[int, ...]) -> Exception:
    """The fault has an index that the offset would mean, which says nothing to users."""
    count, position, _ = fault
    at = tuple(int(i) for i in np.unravel_index(position, shape))
    more = f" ({count} such offsets in all)" if count > 1 else ""
    return IndexError(
        f"{call.function}: indices{list(at)} is an offset of no cell of its window{more}; it must be as the "
        "forward saved it. A hook for saved tensors must not change them."
    )
