"""A gradient on NumPy arrays: bind the arguments to a call, check it by the operator's rules, plan, run.

What depends on metadata alone is done once per kind of call and cached.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Arrays
from ..kernels.plan import ENVIRONMENT, Plan, execute, make_plan, shortcut
from ..kernels.threads import get_num_threads
from ..operators.binding import bind
from ..operators.call import Call
from ..operators.catalog import operators
from ..operators.memory import too_large
from ..operators.pages import Operator
from ..operators.plain import kinds, plain, plain_array, plain_shape
from ..problem.problem import lower
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
    try:
        key = _key(name, grad_output, input, indices, attributes, out)
        if key is None:
            return _by_plain_arguments(name, grad_output, input, indices, attributes, out)
        if (known := _SHORTCUTS.get(key)) is not None:
            run, shape, dtype = known
            result = np.empty(shape, dtype) if out is None else out
            if run(grad_output, None, indices, result, get_num_threads()) is None:
                return result
        return _planned(key, name, grad_output, input, indices, attributes, out)
    except MemoryError as error:
        raise too_large(name, error) from None


def _by_plain_arguments(
    name: str, grad_output: Any, input: Any, indices: Any, attributes: tuple[Any, ...], out: Any
) -> Array:
    """The same call in plain values (plain.py); where some still are not, the checks find the sentence."""
    given = grad_output, input, indices, attributes, written = (
        plain_array(grad_output),
        plain_shape(input),
        plain_array(indices),
        tuple(map(plain, attributes)),
        plain_array(out),
    )
    known = _key(name, *given) is not None
    result = gradient(name, *given) if known else _planned(None, name, *given)
    return result if written is out else out


def _planned(
    key: tuple[Any, ...] | None,
    name: str,
    grad_output: Array,
    input: Array | Sequence[int],
    indices: Array | None,
    attributes: tuple[Any, ...],
    out: Array | None,
) -> Array:
    """Check, plan and compute a call; keep its kernel under `key`, if there is one."""
    operator = operators()[name]
    plan = _prepare(operator, grad_output, input, indices, attributes, out)
    shape = tuple(input.shape if isinstance(input, np.ndarray) else input)
    result = np.empty(shape, grad_output.dtype) if out is None else out
    if out is not None and (np.may_share_memory(out, grad_output) or _shares(out, indices)):
        grad_output = grad_output.copy()
        indices = None if indices is None else indices.copy()
        plan = _prepare(operator, grad_output, input, indices, attributes, out)
    axes = len(operator.axes)
    volumes = (None if a is None else as_volume(a, axes) for a in (grad_output, None, indices, result))
    fault = execute(plan, Arrays(*volumes))
    if fault is not None:
        raise IndexError(f"{name}: {fault.message('indices', grad_output.shape, shape[-axes:])}")
    if key is not None and (kernel := shortcut(plan)) is not None:
        if len(_SHORTCUTS) >= 1024:
            _SHORTCUTS.clear()
        _SHORTCUTS[key] = kernel, shape, grad_output.dtype
    return result


_INT = frozenset({int})
_SHORTCUTS: dict[tuple[Any, ...], tuple[Callable[..., Any], tuple[int, ...], np.dtype[Any]]] = {}


def _key(
    name: str, grad_output: Any, input: Any, indices: Any, attributes: tuple[Any, ...], out: Any
) -> tuple[Any, ...] | None:
    """All that a call's checks and plan depend on, or None where some argument is not plain (plain.py).

    Arrays count by dtype, shape and strides. Attributes count by type as well: True is not 1.
    """
    types = kinds(attributes)
    if types is None or type(grad_output) is not np.ndarray:
        return None
    key: tuple[Any, ...] = (name, grad_output.dtype, grad_output.shape, grad_output.strides, attributes)
    if type(input) is np.ndarray and input.ndim != 1:  # of one axis it is a shape, by its values
        key += (input.shape,)
    elif type(input) is tuple and _INT.issuperset(map(type, input)):
        key += (input, None)
    else:
        return None
    for array in (indices, out):
        if type(array) is np.ndarray:
            key += array.dtype, array.shape, array.strides
        elif array is None:
            key += (None,)
        else:
            return None
    return (key, types, os.environ.get(ENVIRONMENT))


def _shares(out: Array, indices: Array | None) -> bool:
    return indices is not None and np.may_share_memory(out, indices)


def _prepare(
    operator: Operator,
    grad_output: Any,
    input: Any,
    indices: Any,
    attributes: tuple[Any, ...],
    out: Any,
) -> Plan:
    call = checked_call(operator, grad_output, input, indices, attributes, out)
    arrays = [grad_output, *([] if indices is None else [indices]), *([] if out is None else [out])]
    layouts = [memory_layout(array, len(operator.axes)) for array in arrays]
    return make_plan(lower(call), tuple(layouts) if out is not None else (*layouts, "planes"))


def checked_call(
    operator: Operator,
    grad_output: Any,
    input: Any,
    indices: Any,
    attributes: tuple[Any, ...],
    out: Any = None,
) -> Call:
    """The checked call of a function's arguments; `attributes` in the order of the page."""
    return bind(ARRAYS, operator, grad_output, input, indices, attributes, out)
