"""What the NumPy functions do: bind arguments to a call, check it by the operator's rules, plan, run.

All that depends on metadata alone is done once per kind of call and kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .backends import IndexFault
from .binding import Arrays, bind
from .call import Call, TensorMeta, Unusable, overlaps
from .catalog import operators
from .dtypes import dtype_of
from .pages import Operator
from .plain import kinds, plain, plain_array, plain_shape
from .plan import ENVIRONMENT, Plan, execute, layout_of, make_plan, shortcut
from .problem import lower
from .threads import get_num_threads

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
    fault = execute(
        plan,
        as_volume(grad_output, axes),
        None if indices is None else as_volume(indices, axes),
        as_volume(result, axes),
    )
    if fault is not None:
        text = index_message("indices", fault, grad_output.shape, shape[-axes:])
        raise IndexError(f"{name}: {text}")
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


def too_large(name: str, error: MemoryError) -> MemoryError:
    """The sentence for a call that finds no memory; an error that is such a sentence already stays."""
    if str(error).startswith(f"{name}: "):
        return error
    return MemoryError(f"{name}: the call has no room ({error or 'out of memory'}); it must be smaller.")


def _shares(out: Array, indices: Array | None) -> bool:
    return indices is not None and np.may_share_memory(out, indices)


def as_volume(array: Array, axes: int) -> Array:
    """The array as (N, C, D, H, W), with unit axes where it has none. Always a view."""
    lead = array.ndim - axes
    index = (None,) * (2 - lead) + (slice(None),) * lead + (None,) * (3 - axes)
    view: Array = np.asarray(array)[index]
    return view


def index_message(argument: str, fault: IndexFault, shape: Sequence[int], plane: Sequence[int]) -> str:
    """The sentence for indices that lie outside the plane."""
    at = tuple(int(i) for i in np.unravel_index(fault.position, tuple(shape)))
    more = f" ({fault.count} such indices in all)" if fault.count > 1 else ""
    size = "×".join(map(str, plane))
    if prod(plane) == 0:
        return (
            f"{argument}{list(at)} is {fault.value}; the {size} plane has no cell that it could name, "
            f"so {argument} must be empty{more}."
        )
    return (
        f"{argument}{list(at)} is {fault.value}; "
        f"it must be 0 to {prod(plane) - 1}, inside the {size} plane{more}."
    )


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


def memory_layout(array: Array, axes: int) -> str:
    volume = as_volume(array, axes)
    if not volume.flags.aligned or any(step % volume.itemsize for step in volume.strides):
        return "strided"
    return layout_of(volume.shape, [step // volume.itemsize for step in volume.strides])


def _read(value: Any, written: bool) -> TensorMeta | Unusable | str | None:
    if not issubclass(type(value), np.ndarray):
        return None
    if (dtype := dtype_of(value.dtype)) is None:
        return f"has dtype {value.dtype}"
    # No import in a call: another thread that forks meanwhile leaves its child an import without an end.
    if isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        return Unusable("is a masked array", "a plain one: fill it first")
    if written and not value.flags.writeable:
        return Unusable("is read-only", "writable", ValueError)
    if any(step % value.itemsize for step in value.strides):
        if written and overlaps((*value.shape, value.itemsize), (*value.strides, 1)) is not False:
            return Unusable(f"has strides of {value.strides} bytes", "free of overlap", ValueError)
        return TensorMeta(value.shape, dtype, strides=None)
    strides = tuple(step // value.itemsize for step in value.strides)
    return TensorMeta(value.shape, dtype, strides=strides)


ARRAYS = Arrays("a NumPy array", _read, lambda value: value if type(value) is int else None)
