"""Forward pools on NumPy arrays of any strides, with PyTorch's names, argument order and defaults.

A result is channels-last if its input is, else C-contiguous. With `out` the function writes the values there
and returns `out`; with return_indices `out` is a pair, for values and int64 indices. A window without cells
(dilation can step over the plane) has value -inf and PyTorch's index, which may be outside the plane.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..geometry import is_long
from ..kernels import Arrays
from ..kernels.plan import ENVIRONMENT, Plan, execute, make_plan, shortcut
from ..kernels.threads import get_num_threads
from ..operators.call import shares_cells
from ..operators.catalog import operators
from ..operators.memory import reserve, too_large
from ..operators.plain import kinds, plain, plain_array, shown
from ..problem.forwards import (
    AdaptiveArguments,
    PoolArguments,
    StridedArguments,
    forward_problem,
    plain_arguments,
)
from .reader import ARRAYS
from .volumes import as_volume, memory_layout

Array = NDArray[Any]
Ints = int | Sequence[int]
Sizes = int | Sequence[int | None] | None


def avg_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    out: Array | None = None,
) -> Array:
    """1-D average pooling."""
    arguments = StridedArguments(kernel_size, stride, padding, 1, ceil_mode, count_include_pad)
    return _values("avg_pool1d", input, arguments, out)


def avg_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """2-D average pooling."""
    arguments = StridedArguments(
        kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override
    )
    return _values("avg_pool2d", input, arguments, out)


def avg_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """3-D average pooling."""
    arguments = StridedArguments(
        kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override
    )
    return _values("avg_pool3d", input, arguments, out)


def adaptive_avg_pool1d(input: Array, output_size: Ints, *, out: Array | None = None) -> Array:
    """1-D average pooling to a given size."""
    return _values("adaptive_avg_pool1d", input, AdaptiveArguments(output_size), out)


def adaptive_avg_pool2d(input: Array, output_size: Sizes, *, out: Array | None = None) -> Array:
    """2-D average pooling to a given size; None keeps an axis as it is."""
    return _values("adaptive_avg_pool2d", input, AdaptiveArguments(output_size), out)


def adaptive_avg_pool3d(input: Array, output_size: Sizes, *, out: Array | None = None) -> Array:
    """3-D average pooling to a given size; None keeps an axis as it is."""
    return _values("adaptive_avg_pool3d", input, AdaptiveArguments(output_size), out)


def max_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """1-D max pooling; with return_indices also the index of each maximum, flat in its plane."""
    arguments = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return _pool("max_pool1d", input, arguments, return_indices, out)


def max_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """2-D max pooling; with return_indices also the index of each maximum, flat in its plane."""
    arguments = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return _pool("max_pool2d", input, arguments, return_indices, out)


def max_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """3-D max pooling; with return_indices also the index of each maximum, flat in its plane."""
    arguments = StridedArguments(kernel_size, stride, padding, dilation, ceil_mode)
    return _pool("max_pool3d", input, arguments, return_indices, out)


def adaptive_max_pool1d(
    input: Array, output_size: Ints, return_indices: bool = False, *, out: Any = None
) -> Any:
    """1-D max pooling to a given size; with return_indices also the index of each maximum in its plane."""
    return _pool("adaptive_max_pool1d", input, AdaptiveArguments(output_size), return_indices, out)


def adaptive_max_pool2d(
    input: Array, output_size: Sizes, return_indices: bool = False, *, out: Any = None
) -> Any:
    """2-D max pooling to a given size; with return_indices also the index of each maximum in its plane."""
    return _pool("adaptive_max_pool2d", input, AdaptiveArguments(output_size), return_indices, out)


def adaptive_max_pool3d(
    input: Array, output_size: Sizes, return_indices: bool = False, *, out: Any = None
) -> Any:
    """3-D max pooling to a given size; with return_indices also the index of each maximum in its plane."""
    return _pool("adaptive_max_pool3d", input, AdaptiveArguments(output_size), return_indices, out)


@dataclass(frozen=True, slots=True)
class _CheckedCall:
    """What the checks and the plan of a call found, without its arrays."""

    plan: Plan
    axes: int
    shape: tuple[int, ...]  # of the result
    result_layout: str  # of a fresh result
    kernel: Callable[..., Any] | None  # None if an array must be copied first


_CHECKED: dict[tuple[Any, ...], _CheckedCall] = {}


def _values(name: str, input: Array, arguments: PoolArguments, out: Array | None) -> Array:
    found = _pool(name, input, arguments, False, out)
    assert isinstance(found, np.ndarray)
    return found


def _pool(name: str, input: Array, arguments: PoolArguments, return_indices: bool, out: Any) -> Any:
    try:
        key = _key(name, input, arguments, return_indices, out)
        if key is None:
            return _by_plain_arguments(name, input, arguments, return_indices, out)
        call = _CHECKED.get(key)
        if call is None:
            call = _prepare(name, input, arguments, return_indices, out)
            if len(_CHECKED) >= 1024:
                _CHECKED.clear()
            if not is_long(call.plan.problem.axes):  # such a kernel holds long tables
                _CHECKED[key] = call
        return _run(name, call, input, return_indices, out)
    except MemoryError as error:
        raise too_large(name, error) from None


def _by_plain_arguments(
    name: str, input: Any, arguments: PoolArguments, return_indices: Any, out: Any
) -> Any:
    """Repeats the call with plain values (operators/plain.py); raises for a value without a plain form."""
    input, arguments, return_indices = plain_array(input), plain_arguments(arguments), plain(return_indices)
    pair = plain(out) if return_indices is True else out  # a list of two becomes a tuple
    written = tuple(map(plain_array, pair)) if type(pair) is tuple else plain_array(pair)
    given = input, arguments, return_indices, written
    if _key(name, *given) is not None:
        result = _pool(name, *given)
    else:
        result = _run(name, _prepare(name, *given), input, return_indices, written)
    return result if out is None else pair


def _run(name: str, call: _CheckedCall, input: Array, return_indices: bool, out: Any) -> Any:
    values, indices = out if return_indices and out is not None else (out, None)
    if out is None:
        values = _empty(call, input.dtype)
        indices = _empty(call, np.dtype(np.int64)) if return_indices else None
    if call.kernel is None or call.kernel(None, input, indices, values, get_num_threads()) is not None:
        if indices is not None and shares_cells(values, indices):
            raise ValueError(f"{name}: out[1] shares memory with out[0]; it must have its own.")
        volumes = (None if a is None else as_volume(a, call.axes) for a in (input, indices, values))
        execute(call.plan, Arrays(None, *volumes))
    return (values, indices) if return_indices else values


def _key(
    name: str, input: Any, arguments: PoolArguments, return_indices: Any, out: Any
) -> tuple[Any, ...] | None:
    """Returns the cache key of a call; None if an argument is not a plain value (operators/plain.py)."""
    if (
        type(input) is not np.ndarray
        or type(return_indices) is not bool
        or (types := kinds(arguments)) is None
    ):
        return None
    outs: tuple[Any, ...] = ()
    for array in out if type(out) is tuple else (out,) if out is not None else ():
        if type(array) is not np.ndarray or not array.flags.writeable:
            return None
        outs += array.dtype, array.shape, array.strides
    how = name, arguments, types, return_indices, os.environ.get(ENVIRONMENT)
    return how, input.dtype, input.shape, input.strides, outs, type(out)


def _prepare(name: str, input: Any, arguments: PoolArguments, return_indices: Any, out: Any) -> _CheckedCall:
    values, indices = _results(name, return_indices, out)
    problem = forward_problem(name, ARRAYS, input, arguments, return_indices, values, indices)
    axes = len(operators()[name].axes)
    shape = tuple(input.shape[:-axes]) + problem.output_plane[3 - axes :]
    if out is None:
        reserve(name, prod(shape) * input.itemsize)
    layout = memory_layout(input, axes)
    result_layout = "planes" if layout == "strided" else layout
    found = [result_layout if a is None else memory_layout(a, axes) for a in (indices, values)]
    plan = make_plan(problem, (layout, *found[0 if problem.index_bytes else 1 :]))
    return _CheckedCall(plan, axes, shape, result_layout, shortcut(plan))


def _results(name: str, return_indices: Any, out: Any) -> tuple[Any, Any]:
    """Returns the arrays that receive values and indices; None for each that the function allocates."""
    if out is None or return_indices is not True:
        return out, None
    if type(out) is not tuple or len(out) != 2:
        raise TypeError(
            f"{name}: out is {shown(out)}; with return_indices it must be a pair of NumPy arrays."
        )
    for at, array in enumerate(out):
        if array is None:
            raise TypeError(f"{name}: out[{at}] is None; it must be a NumPy array.")
    return out


def _empty(call: _CheckedCall, dtype: np.dtype[Any]) -> Array:
    """Returns an uninitialized result of shape (N,) C, spatial axes, in the call's result layout."""
    shape, lead = call.shape, len(call.shape) - call.axes
    if call.result_layout == "planes":
        return np.empty(shape, dtype)
    return np.moveaxis(
        np.empty(shape[: lead - 1] + shape[lead:] + shape[lead - 1 : lead], dtype), -1, lead - 1
    )
