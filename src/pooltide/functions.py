"""The NumPy functions: PyTorch's names, order and defaults, on arrays of any strides.

Each function binds its arguments to a call, checks it by the operator's rules, plans, and runs.
All that depends on metadata alone is done once per kind of call and kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .backends import IndexFault
from .call import Call, TensorMeta, Unusable, Value, is_int
from .catalog import operators
from .dtypes import dtype_of
from .pages import HOST, Operator, Parameter
from .plan import Plan, execute, layout_of, make_plan
from .problem import lower
from .rules import check

Array = NDArray[Any]
Ints = int | Sequence[int]


def avg_pool2d_backward(
    grad_output: Array,
    input: Array | Sequence[int],
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """Gradient of 2-D average pooling with respect to its input.

    `grad_output` is (N, C, Ho, Wo) or (C, Ho, Wo); `input` is the forward's input or its shape.
    The result has `input`'s shape and `grad_output`'s dtype, and is written to `out` if given.
    """
    attributes = {
        "kernel_size": kernel_size,
        "stride": stride,
        "padding": padding,
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
        "divisor_override": divisor_override,
    }
    return _gradient("avg_pool2d_backward", grad_output, input, None, attributes, out)


def adaptive_avg_pool3d_backward(
    grad_output: Array, input: Array | Sequence[int], *, out: Array | None = None
) -> Array:
    """Gradient of 3-D adaptive average pooling with respect to its input.

    `grad_output` is (N, C, Do, Ho, Wo) or unbatched; `input` is the forward's input or its shape.
    The result has `input`'s shape and `grad_output`'s dtype, and is written to `out` if given.
    """
    return _gradient("adaptive_avg_pool3d_backward", grad_output, input, None, {}, out)


def adaptive_max_pool2d_backward(
    grad_output: Array, input: Array | Sequence[int], indices: Array, *, out: Array | None = None
) -> Array:
    """Gradient of 2-D adaptive max pooling with respect to its input.

    `indices` (int32 or int64, `grad_output`'s shape) are flat within a plane: h·W + w.
    An index outside the plane raises IndexError.
    """
    return _gradient("adaptive_max_pool2d_backward", grad_output, input, indices, {}, out)


def adaptive_max_pool3d_backward(
    grad_output: Array, input: Array | Sequence[int], indices: Array, *, out: Array | None = None
) -> Array:
    """Gradient of 3-D adaptive max pooling with respect to its input.

    `indices` (int32 or int64, `grad_output`'s shape) are flat within a plane: (d·H + h)·W + w.
    An index outside the plane raises IndexError.
    """
    return _gradient("adaptive_max_pool3d_backward", grad_output, input, indices, {}, out)


def _gradient(
    name: str,
    grad_output: Array,
    input: Array | Sequence[int],
    indices: Array | None,
    attributes: Mapping[str, Any],
    out: Array | None,
) -> Array:
    operator = operators()[name]
    plan = _prepare(operator, grad_output, input, indices, attributes, out)
    shape = tuple(input.shape) if isinstance(input, np.ndarray) else tuple(input)
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
    return result


def _shares(out: Array, indices: Array | None) -> bool:
    return indices is not None and np.may_share_memory(out, indices)


def as_volume(array: Array, axes: int) -> Array:
    """The array as (N, C, D, H, W), with unit axes where it has none. Always a view."""
    lead = array.ndim - axes
    index = (None,) * (2 - lead) + (slice(None),) * lead + (None,) * (3 - axes)
    return array[index]


def index_message(argument: str, fault: IndexFault, shape: Sequence[int], plane: Sequence[int]) -> str:
    """The sentence for indices that lie outside the plane."""
    at = tuple(int(i) for i in np.unravel_index(fault.position, tuple(shape)))
    more = f" ({fault.count} such indices in all)" if fault.count > 1 else ""
    size = "×".join(map(str, plane))
    return (
        f"{argument}{list(at)} is {fault.value}; "
        f"it must be 0 to {prod(plane) - 1}, inside the {size} plane{more}."
    )


def _prepare(
    operator: Operator,
    grad_output: Any,
    input: Any,
    indices: Any,
    attributes: Mapping[str, Any],
    out: Any,
) -> Plan:
    values = bind(operator, grad_output, input, indices, attributes, out)
    call = Call(operator, HOST, values)
    if fault := check(call):
        raise fault.error(f"{operator.function}: {fault.text}")
    arrays = [grad_output, *([] if indices is None else [indices]), *([] if out is None else [out])]
    layouts = [_layout(array, len(operator.axes)) for array in arrays]
    return make_plan(lower(call), tuple(layouts) if out is not None else (*layouts, "planes"))


def _layout(array: Array, axes: int) -> str:
    volume = as_volume(array, axes)
    if not volume.flags.aligned or any(step % volume.itemsize for step in volume.strides):
        return "strided"
    return layout_of(volume.shape, [step // volume.itemsize for step in volume.strides])


def bind(
    operator: Operator, grad_output: Any, input: Any, indices: Any, attributes: Mapping[str, Any], out: Any
) -> dict[str, Value]:
    """A function's arguments as the values of a call; attributes go by their Python names."""
    grad = _array("a", grad_output)
    dtype = grad.dtype if isinstance(grad, TensorMeta) else None
    values: dict[str, Value] = {}
    for parameter in operator.parameters:
        match parameter.role:
            case "grad_output":
                value: Value = grad
            case "input":
                value = _shape(input, dtype)
            case "indices":
                value = _array("an", indices)
            case "grad_input":
                value = values[_name(operator, "input")] if out is None else _out(out)
            case "cube_math_type":
                value = 0
            case _:
                value = _attribute(parameter, attributes[parameter.argument])
        values[parameter.name] = value
    return values


_ARRAY = "a NumPy array of float32, float64, float16 or bfloat16"


def _name(operator: Operator, role: str) -> str:
    parameter = operator.by_role(role)
    assert parameter is not None
    return parameter.name


def _array(article: str, value: Any) -> Value:
    if not isinstance(value, np.ndarray):
        what = f"is {article} {type(value).__name__}" if value is not None else "is None"
        return Unusable(what.replace("a int", "an int"), _ARRAY if article == "a" else _INDEX)
    if (dtype := dtype_of(value.dtype)) is None:
        return Unusable(f"has dtype {value.dtype}", _ARRAY if article == "a" else _INDEX)
    if any(step % value.itemsize for step in value.strides):
        return TensorMeta(value.shape, dtype, strides=None)
    strides = tuple(step // value.itemsize for step in value.strides)
    return TensorMeta(value.shape, dtype, strides=strides)


_INDEX = "a NumPy array of int32 or int64"


def _out(out: Any) -> Value:
    value = _array("a", out)
    if isinstance(value, TensorMeta) and not out.flags.writeable:
        return Unusable("is read-only", "writable", ValueError)
    return value


def _shape(input: Any, dtype: Any) -> Value:
    must = "the forward's input, an array, or its shape, a tuple of ints"
    if isinstance(input, np.ndarray):
        shape: Any = input.shape
    elif isinstance(input, (tuple, list)) and all(map(is_int, input)):
        shape = tuple(map(int, input))
    else:
        return Unusable(f"is {input!r:.60}", must)
    if dtype is None:  # grad_output is unusable; that is what the caller will read
        return Unusable("has no dtype", must)
    if prod(max(n, 1) for n in shape) * dtype.itemsize >= 2**63:
        return Unusable(f"has shape {shape}, over 2**63 bytes", "smaller", ValueError)
    return TensorMeta(shape, dtype)


def _attribute(parameter: Parameter, value: Any) -> Value:
    if parameter.type == "bool":
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        return Unusable(f"is {value!r:.60}", "True or False")
    if parameter.type == "int_array":
        if value is None:
            return () if parameter.nullable else None
        values = value if isinstance(value, (tuple, list)) else (value,)
        if all(map(is_int, values)):
            return tuple(map(int, values))
        return Unusable(f"is {value!r:.60}", "an int or a tuple of ints")
    if value is None:
        return 0
    if not is_int(value):
        return Unusable(f"is {value!r:.60}", "an int, or None")
    if value == 0 or not -(2**63) <= value < 2**63:
        return Unusable(f"is {value}", "None or a 64-bit int other than 0", ValueError)
    return int(value)
