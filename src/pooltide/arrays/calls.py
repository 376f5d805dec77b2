"""Calls on NumPy arrays, gradients and forwards: bind the arguments, check them, plan, run.

What depends on metadata alone is done once, and kept in the cache of calls (kernels/calls.py). Arguments that
are not plain values (operators/plain.py) are replaced by plain ones first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Arrays, IndexFault
from ..kernels.calls import CALLS, Key, call_key
from ..kernels.cpu import tables_of
from ..kernels.plan import Plan, execute, make_plan, shortcut
from ..kernels.threads import get_num_threads
from ..operators.binding import bind
from ..operators.call import shares_cells
from ..operators.catalog import operators
from ..operators.memory import reserve, too_large
from ..operators.plain import plain, plain_array, plain_shape, shown
from ..problem.forwards import PoolArguments, forward_problem, plain_arguments
from ..problem.problem import lower
from .reader import ARRAYS
from .volumes import as_volume, memory_layout

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """What the checks and the plan of a call found, without its arrays."""

    plan: Plan
    axes: int
    shape: tuple[int, ...]  # of the result
    result_layout: str  # of a fresh result
    kernel: Callable[..., Any] | None  # None if an array must be copied first


def gradient(
    name: str,
    grad_output: Array,
    input: Array | Sequence[int],
    indices: Array | None,
    attributes: tuple[Any, ...],
    out: Array | None,
) -> Array:
    given: Any = grad_output, input, indices, attributes, out
    try:
        if (key := _gradient_key(name, *given)) is None:
            given = (
                plain_array(grad_output),
                plain_shape(input),
                plain_array(indices),
                tuple(map(plain, attributes)),
                plain_array(out),
            )
            key = _gradient_key(name, *given)
        call = CALLS.get(key) or _keep(key, prepare_gradient(name, *given))
        grad, _, at, _, written = given
        result = _run_gradient(name, call, grad, at, written)
    except MemoryError as error:
        raise too_large(name, error) from None
    return result if out is None else out


def forward(name: str, input: Array, arguments: PoolArguments, return_indices: Any, out: Any) -> Any:
    """Returns the values of a pool; with `return_indices` a pair of values and indices."""
    given: Any = input, arguments, return_indices, out
    try:
        if (key := _forward_key(name, *given)) is None:
            flag = plain(return_indices)
            out = plain(out) if flag is True else out  # a list of two becomes a tuple
            written = tuple(map(plain_array, out)) if type(out) is tuple else plain_array(out)
            given = plain_array(input), plain_arguments(arguments), flag, written
            key = _forward_key(name, *given)
        call = CALLS.get(key) or _keep(key, _prepare_forward(name, *given))
        x, _, indexed, written = given
        result = _run_forward(name, call, x, indexed, written)
    except MemoryError as error:
        raise too_large(name, error) from None
    return result if out is None else out


def average(name: str, input: Array, arguments: PoolArguments, out: Array | None) -> Array:
    result: Array = forward(name, input, arguments, False, out)
    return result


def _keep(key: Key | None, call: PreparedCall) -> PreparedCall:
    CALLS.add(key, call, tables_of(call.kernel))
    return call


def _gradient_key(
    name: str, grad_output: Any, input: Any, indices: Any, attributes: tuple[Any, ...], out: Any
) -> Key | None:
    # An array of one axis is a shape, by its values.
    shape = input.shape if type(input) is np.ndarray and input.ndim != 1 else input
    return call_key(name, _metadata(grad_output, indices, out), (shape, *attributes))


def _forward_key(
    name: str, input: Any, arguments: PoolArguments, return_indices: Any, out: Any
) -> Key | None:
    metadata = _metadata(input, *(out if type(out) is tuple else (out,)))
    return call_key(name, metadata, (*arguments, return_indices), type(out) is tuple)


def _metadata(*arrays: Any) -> tuple[Hashable, ...] | None:
    """Returns what the checks of a call look at in its arrays; None if one is neither an array nor None."""
    found: list[Hashable] = []
    for array in arrays:
        if type(array) is np.ndarray:
            found.append((array.dtype, array.shape, array.strides, array.flags.writeable))
        elif array is None:
            found.append(None)
        else:
            return None
    return tuple(found)


def prepare_gradient(
    name: str, grad_output: Any, input: Any, indices: Any, attributes: tuple[Any, ...], out: Any
) -> PreparedCall:
    operator = operators()[name]
    axes = len(operator.axes)
    call = bind(ARRAYS, operator, grad_output, input, indices, attributes, out)
    layouts = [memory_layout(array, axes) for array in (grad_output, indices) if array is not None]
    plan = make_plan(lower(call), (*layouts, "planes" if out is None else memory_layout(out, axes)))
    return PreparedCall(plan, axes, call.role("input").shape, "planes", shortcut(plan))


def _prepare_forward(
    name: str, input: Any, arguments: PoolArguments, return_indices: Any, out: Any
) -> PreparedCall:
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
    return PreparedCall(plan, axes, shape, result_layout, shortcut(plan))


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


def _run_gradient(
    name: str, call: PreparedCall, grad_output: Array, indices: Array | None, out: Array | None
) -> Array:
    result = np.empty(call.shape, grad_output.dtype) if out is None else out
    run = call.kernel
    if run is not None and run(grad_output, None, indices, result, get_num_threads()) is None:
        return result
    if any(a is not None and np.may_share_memory(result, a) for a in (grad_output, indices)):
        grad_output = grad_output.copy("K")  # in the same layout
        indices = None if indices is None else indices.copy("K")
    if fault := execute(call.plan, _volumes(call, grad_output, None, indices, result)):
        raise _index_error(name, call, fault, indices)
    return result


def _index_error(name: str, call: PreparedCall, fault: IndexFault, indices: Array | None) -> IndexError:
    assert indices is not None
    plane = call.plan.problem.input_plane[3 - call.axes :]
    return IndexError(f"{name}: {fault.message('indices', indices.shape, plane)}")


def unpool(name: str, input: Array, indices: Array, attributes: tuple[Any, ...], out: Array | None) -> Array:
    """Returns the result of an unpool: the input's values at their indices, and zeros."""
    given: Any = plain_array(input), plain_array(indices), plain_array(out)
    attributes = tuple(map(plain, attributes))
    try:
        key = call_key(name, _metadata(*given), attributes)
        call = CALLS.get(key) or _keep(key, _prepare_unpool(name, attributes, *given))
        x, at, written = given
        result = np.empty(call.shape, x.dtype) if written is None else written
        if any(np.may_share_memory(result, a) for a in (x, at)):
            x, at = x.copy("K"), at.copy("K")  # in the same layout
        if fault := execute(call.plan, _volumes(call, None, x, at, result)):
            raise _index_error(name, call, fault, at)
    except MemoryError as error:
        raise too_large(name, error) from None
    return result if out is None else out


def _prepare_unpool(
    name: str, attributes: tuple[Any, ...], input: Any, indices: Any, out: Any
) -> PreparedCall:
    operator = operators()[name]
    axes = len(operator.axes)
    problem = lower(bind(ARRAYS, operator, None, input, indices, attributes, out))
    shape = tuple(input.shape[:-axes]) + problem.input_plane[3 - axes :]
    if out is None:
        reserve(name, prod(shape) * input.itemsize)
    layouts = ["planes" if a is None else memory_layout(a, axes) for a in (input, indices, out)]
    return PreparedCall(make_plan(problem, tuple(layouts)), axes, shape, "planes", None)


def _run_forward(name: str, call: PreparedCall, input: Array, return_indices: bool, out: Any) -> Any:
    values, indices = out if return_indices and out is not None else (out, None)
    if out is None:
        values = _empty(call, input.dtype)
        indices = _empty(call, np.dtype(np.int64)) if return_indices else None
    if call.kernel is None or call.kernel(None, input, indices, values, get_num_threads()) is not None:
        if indices is not None and shares_cells(values, indices):
            raise ValueError(f"{name}: out[1] shares memory with out[0]; it must have its own.")
        execute(call.plan, _volumes(call, None, input, indices, values))
    return (values, indices) if return_indices else values


def _volumes(call: PreparedCall, *arrays: Array | None) -> Arrays:
    return Arrays(*(None if array is None else as_volume(array, call.axes) for array in arrays))


def _empty(call: PreparedCall, dtype: np.dtype[Any]) -> Array:
    """Returns an uninitialized result of shape (N,) C, spatial axes, in the call's result layout."""
    shape, lead = call.shape, len(call.shape) - call.axes
    if call.result_layout == "planes":
        return np.empty(shape, dtype)
    return np.moveaxis(
        np.empty(shape[: lead - 1] + shape[lead:] + shape[lead - 1 : lead], dtype), -1, lead - 1
    )
