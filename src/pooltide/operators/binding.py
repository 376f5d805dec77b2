"""From a function's arguments to a call: what the NumPy and the PyTorch functions share.

The two differ in what an array is, and in nothing else: `ArrayReader` says how to look at one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .call import Call, TensorMeta, Unusable, Value, article
from .dtypes import DType
from .pages import HOST, Operator, Parameter
from .plain import plain, plain_shape, shown
from .rules import check

_LARGEST = 2**62  # sums of a few sizes stay within 64 bits
MOST_FLOAT = (2**24 - 1) * 2**104  # the largest float32


@dataclass(frozen=True, slots=True)
class ArrayReader:
    """How an entrance looks at its arrays and its ints."""

    noun: str  # "a NumPy array"
    read: Callable[[Any, bool], TensorMeta | Unusable | str | None]  # None: no array; str: what is wrong
    integer: Callable[[Any], int | None]  # None: no int

    def floats(self, value: Any, written: bool = False) -> TensorMeta | Unusable:
        return self._meta(value, written, "float32, float64, float16 or bfloat16")

    def indices(self, value: Any) -> TensorMeta | Unusable:
        return self._meta(value, False, "int32 or int64")

    def places(self, value: Any) -> TensorMeta | Unusable:
        """An array that indices are written to."""
        return self._meta(value, True, "int64")

    def _meta(self, value: Any, written: bool, dtypes: str) -> TensorMeta | Unusable:
        meta = self.read(value, written)
        if isinstance(meta, (TensorMeta, Unusable)):
            return meta
        return Unusable(meta or _what(value), f"{self.noun} of {dtypes}")

    def ints(self, value: Any) -> tuple[int, ...] | None:
        """The ints of a plain tuple, or None."""
        if type(value) is not tuple:
            return None
        integers = tuple(map(self.integer, value))
        return None if None in integers else integers  # type: ignore[return-value]


def bind(
    arrays: ArrayReader,
    operator: Operator,
    grad_output: Any,
    input: Any,
    indices: Any,
    attributes: tuple[Any, ...],
    out: Any,
    boxes: Any = None,
) -> Call:
    """The call that these arguments make; raises the operator's first fault.

    `attributes` are in the order of the operator's page. A gradient takes `input` as an array or a shape; a
    pool writes `indices` and `out`, and allocates those that are None; an unpool reads `indices`.
    `boxes` is one array of the regions of interest.
    """
    forward = not operator.gradient
    grad = arrays.floats(input if forward else grad_output)
    dtype = grad.dtype if isinstance(grad, TensorMeta) else None
    unread = map(plain, attributes)
    values: dict[str, Value] = {}
    for parameter in operator.parameters:
        match parameter.role:
            case "grad_output":
                value: Value = grad
            case "input":
                shape = value = grad if forward else _shape(arrays, input, dtype)
            case "boxes":
                value = arrays.floats(boxes)
            case "indices" if operator.writes_indices:
                value = None if indices is None else arrays.places(indices)
            case "indices":
                value = arrays.indices(indices)
            case "out":
                fresh = None if forward else shape
                value = fresh if out is None else arrays.floats(out, written=True)
            case "output_size" if operator.windows == "adaptive":
                value = _attribute(arrays, parameter, _whole_sizes(shape, len(operator.axes), next(unread)))
            case "cube_math_type":
                value = 0
            case _:
                value = _attribute(arrays, parameter, next(unread))
        values[parameter.name] = value
    call = Call(operator, HOST, values)
    if fault := check(call):
        raise fault.error(f"{operator.function}: {fault.text}")
    return call


def _whole_sizes(input: Value, axes: int, value: Any) -> Any:
    """An output size with None, which keeps the size of an axis, replaced by that size."""
    if not isinstance(input, TensorMeta) or len(input.shape) < axes:
        return 0 if value is None else value  # the rules refuse the input
    lengths = input.shape[-axes:]
    if value is None:
        return lengths
    if type(value) is tuple and len(value) == axes:
        return tuple(n if o is None else o for n, o in zip(lengths, value, strict=True))
    return value


def _what(value: object) -> str:
    if value is None:
        return "is None"
    kind = type(value).__name__
    return f"is {article(kind)} {kind}"


def _shape(arrays: ArrayReader, input: Any, dtype: DType | None) -> TensorMeta | Unusable:
    must = "the forward's input, or its shape, a tuple of ints"
    input = plain_shape(input)
    meta = arrays.read(input, False)
    shape = arrays.ints(input) if meta is None else tuple(input.shape)
    if shape is None:
        return Unusable(f"is {shown(input)}", must)
    if dtype is None:  # grad_output is unusable; that is what the caller will read
        return Unusable("has no dtype", must)
    known = all(type(n) is int for n in shape)  # under tracing a size may be a symbol
    if known and prod(max(n, 1) for n in shape) * dtype.itemsize >= 2**63:
        return Unusable(f"has shape {shown(shape)}, over 2**63 bytes", "smaller", ValueError)
    if known and any(n <= -_LARGEST for n in shape):
        return Unusable(f"has shape {shown(shape)}", "of sizes that are not negative", ValueError)
    return TensorMeta(shape, dtype)


def _attribute(arrays: ArrayReader, parameter: Parameter, value: Any) -> Value:
    if parameter.type == "bool":
        if type(value) is bool:
            return value
        return Unusable(f"is {shown(value)}", "True or False")
    if parameter.type == "int_array":
        if value is None:
            return () if parameter.nullable else None
        values = arrays.ints(value if type(value) is tuple else (value,))
        if values is None:
            return Unusable(f"is {shown(value)}", "an int or a tuple of ints")
        if any(type(v) is int and not -_LARGEST < v < _LARGEST for v in values):
            return Unusable(f"is {shown(value)}", "smaller than 2**62", ValueError)
        return values
    if parameter.type == "float":
        return _finite(arrays, value)
    if parameter.role == "sampling_ratio":
        number = arrays.integer(value)
        return Unusable(f"is {shown(value)}", "an int") if number is None else number
    if value is None:
        return 0
    if (number := arrays.integer(value)) is None:
        return Unusable(f"is {shown(value)}", "an int, or None")
    if number == 0 or not -(2**63) <= number < 2**63:
        return Unusable(f"is {shown(value)}", "None or a 64-bit int other than 0", ValueError)
    return number


def _finite(arrays: ArrayReader, value: Any) -> Value:
    number = float(value) if issubclass(type(value), (float, np.floating)) else arrays.integer(value)
    if number is None:
        return Unusable(f"is {shown(value)}", "a number")
    if not -MOST_FLOAT <= number <= MOST_FLOAT:
        return Unusable(f"is {shown(value)}", "a finite number of float32", ValueError)
    return float(number)
