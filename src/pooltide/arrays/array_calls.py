"""Calls on NumPy arrays, gradients and forwards: bind the arguments, check them, plan, run.

What depends on metadata alone is done once, and kept in the cache of calls (kernels/calls.py). Arguments that
are not plain values (operators/plain.py) are replaced by plain ones first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Arrays, IndexFault
from ..kernels.calls import CALLS, Key, PreparedCall, call_key, keep
from ..kernels.plan import plan
from ..kernels.threads import get_num_threads
from ..operators.binding import bind
from ..operators.call import shares_cells
from ..operators.catalog import operators
from ..operators.memory import reserve, too_large
from ..operators.plain import plain, plain_array, plain_shape, shown
from ..problem.forwards import PoolArguments, forward_problem, plain_arguments
from ..problem.problem import Problem, lower
from .reader import ARRAYS
from .volumes import as_volume, memory_layout

Array = NDArray[Any]


def gradient(
    name: str,
    grad_output: Array,
    input: Array | Sequence[int],
    indices: Array | None,
    attributes: tuple[Any, ...],
    out: Array | None,
) -> Array:
    arguments: Any = grad_output, input, indices, attributes, out
    try:
        if (key := _gradient_key(name, *arguments)) is None:
            arguments = (
                plain_array(grad_output),
                plain_shape(input),
                plain_array(indices),
                tuple(map(plain, attributes)),
                plain_array(out),
            )
            key = _gradient_key(name, *arguments)
        call = CALLS.get(key) or keep(key, prepare_gradient(name, *arguments))
        grad, _, at, _, written = arguments
        result = _run(call, grad, None, at, written)
    except MemoryError as error:
        raise too_large(name, error) from None
    return result if out is None else out


def unpool(name: str, input: Array, indices: Array, attributes: tuple[Any, ...], out: Array | None) -> Array:
    """Returns the result of an unpool: the input's values at their indices, and zeros."""
    arrays: Any = plain_array(input), plain_array(indices), plain_array(out)
    attributes = tuple(map(plain, attributes))
    try:
        key = call_key(name, metadata(*arrays), attributes)
        call = CALLS.get(key) or keep(key, _prepare_unpool(name, attributes, *arrays))
        x, at, written = arrays
        result = _run(call, None, x, at, written)
    except MemoryError as error:
        raise too_large(name, error) from None
    return result if out is None else out


def forward(name: str, input: Array, pool: PoolArguments, return_indices: Any, out: Any) -> Any:
    """Returns the values of a pool; with `return_indices` a pair of values and indices."""
    arguments: Any = input, pool, return_indices, out
    try:
        if (key := _forward_key(name, *arguments)) is None:
            flag = plain(return_indices)
            out = plain(out) if flag is True else out  # a list of two becomes a tuple
            written = tuple(map(plain_array, out)) if type(out) is tuple else plain_array(out)
            arguments = plain_array(input), plain_arguments(pool), flag, written
            key = _forward_key(name, *arguments)
        call = CALLS.get(key) or keep(key, _prepare_forward(name, *arguments))
        x, _, indexed, written = arguments
        result = _run_forward(call, x, indexed, written)
    except MemoryError as error:
        raise too_large(name, error) from None
    return result if out is None else out


def average(name: str, input: Array, arguments: PoolArguments, out: Array | None) -> Array:
    result: Array = forward(name, input, arguments, False, out)
    return result


def _gradient_key(
    name: str, grad_output: Any, input: Any, indices: Any, attributes: tuple[Any, ...], out: Any
) -> Key | None:
    # An array of one axis is a shape, by its values.
    shape = input.shape if type(input) is np.ndarray and input.ndim != 1 else input
    return call_key(name, metadata(grad_output, indices, out), (shape, *attributes))


def _forward_key(
    name: str, input: Any, arguments: PoolArguments, return_indices: Any, out: Any
) -> Key | None:
    facts = metadata(input, *(out if type(out) is tuple else (out,)))
    return call_key(name, facts, (*arguments, return_indices), type(out) is tuple)


def metadata(*arrays: Any) -> tuple[Hashable, ...] | None:
    """Returns what the checks of a call look at in its arrays; None if one is neither an array nor None."""
    facts: list[Hashable] = []
    for array in arrays:
        if type(array) is np.ndarray:
            facts.append((array.dtype, array.shape, array.strides, array.flags.writeable))
        elif array is None:
            facts.append(None)
        else:
            return None
    return tuple(facts)


def prepare_gradient(
    name: str, grad_output: Any, input: Any, indices: Any, attributes: tuple[Any, ...], out: Any
) -> PreparedCall:
    operator = operators()[name]
    call = bind(ARRAYS, operator, grad_output, input, indices, attributes, out)
    arrays = [array for array in (grad_output, indices) if array is not None]
    return _prepared(name, lower(call), [*arrays, out], call.role("input").shape)


def _prepare_unpool(
    name: str, attributes: tuple[Any, ...], input: Any, indices: Any, out: Any
) -> PreparedCall:
    problem = lower(bind(ARRAYS, operators()[name], None, input, indices, attributes, out))
    shape = _result_shape(name, input, problem.input_plane)
    if out is None:
        reserve(name, prod(shape) * input.itemsize)
    return _prepared(name, problem, [input, indices, out], shape)


def _prepare_forward(
    name: str, input: Any, arguments: PoolArguments, return_indices: Any, out: Any
) -> PreparedCall:
    values, indices = results(name, return_indices, out)
    problem = forward_problem(name, ARRAYS, input, arguments, return_indices, values, indices)
    shape = _result_shape(name, input, problem.output_plane)
    if out is None:
        reserve(name, prod(shape) * input.itemsize)
    channels_last = memory_layout(input, len(operators()[name].axes)) == "channels_last"
    written = [indices, values] if problem.index_bytes else [values]
    return _prepared(name, problem, [input, *written], shape, channels_last)


def _result_shape(name: str, input: Array, plane: tuple[int, int, int]) -> tuple[int, ...]:
    axes = len(operators()[name].axes)
    return tuple(input.shape[:-axes]) + plane[3 - axes :]


def _prepared(
    name: str,
    problem: Problem,
    arrays: Sequence[Array | None],
    shape: tuple[int, ...],
    channels_last: bool = False,
) -> PreparedCall:
    """`arrays`: those of the problem, in the order of `roles`; None for each that the function allocates.

    `channels_last`: these are.
    """
    axes, fresh = len(operators()[name].axes), "channels_last" if channels_last else "planes"
    layouts = tuple(fresh if array is None else memory_layout(array, axes) for array in arrays)
    executable = plan(problem, layouts)
    return PreparedCall(name, axes, problem, executable, executable.kernel, shape, channels_last)


def results(name: str, return_indices: Any, out: Any) -> tuple[Any, Any]:
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


def _run(call: PreparedCall, grad_output: Any, input: Any, indices: Array | None, out: Array | None) -> Array:
    """Returns the result of a gradient or an unpool; an array that the problem does not have is None."""
    if out is None:
        out = np.empty(call.shape, (input if grad_output is None else grad_output).dtype)
    fault: Any = NotImplemented
    if call.kernel is not None:
        fault = call.kernel(grad_output, input, indices, out, get_num_threads())
        if fault is None:
            return out
    if fault is NotImplemented:
        arrays = [grad_output, input, indices]
        if any(array is not None and np.may_share_memory(out, array) for array in arrays):
            arrays = [None if array is None else array.copy("K") for array in arrays]  # in the same layout
        fault = _run_on_volumes(call, *arrays, out)
    if fault is not None:
        assert indices is not None
        raise call.index_error(fault, indices.shape)
    return out


def _run_on_volumes(call: PreparedCall, *arrays: Array | None) -> IndexFault | None:
    assert call.executable is not None
    volumes = (None if array is None else as_volume(array, call.axes) for array in arrays)
    return call.executable.run(Arrays(*volumes))


def _run_forward(call: PreparedCall, input: Array, return_indices: bool, out: Any) -> Any:
    values, indices = out if return_indices and out is not None else (out, None)
    if out is None:
        values = _empty(call, input.dtype)
        indices = _empty(call, np.dtype(np.int64)) if return_indices else None
    if call.kernel is None or call.kernel(None, input, indices, values, get_num_threads()) is not None:
        if indices is not None and shares_cells(values, indices):
            raise ValueError(f"{call.function}: out[1] shares memory with out[0]; it must have its own.")
        _run_on_volumes(call, None, input, indices, values)
    return (values, indices) if return_indices else values


def _empty(call: PreparedCall, dtype: np.dtype[Any]) -> Array:
    """Returns an uninitialized result of shape (N,) C, spatial axes."""
    shape, lead = call.shape, len(call.shape) - call.axes
    if not call.channels_last:
        return np.empty(shape, dtype)
    return np.moveaxis(
        np.empty(shape[: lead - 1] + shape[lead:] + shape[lead - 1 : lead], dtype), -1, lead - 1
    )
