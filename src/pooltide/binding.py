"""From a function's arguments to a call: what the NumPy and the PyTorch functions share.

The two differ in what an array is, and in nothing else: `Arrays` says how to look at one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from .call import Call, TensorMeta, Unusable, Value, article
from .dtypes import DType
from .pages import HOST, Operator, Parameter
from .rules import check


@dataclass(frozen=True, slots=True)
class Arrays:
    """How an entrance looks at its arrays and its ints."""

    noun: str  # "a NumPy array"
    read: Callable[[Any, bool], TensorMeta | Unusable | str | None]  # None: no array; str: what is wrong
    integer: Callable[[Any], int | None]  # None: no int

    def floats(self, value: Any, written: bool = False) -> TensorMeta | Unusable:
        return self._meta(value, written, "float32, float64, float16 or bfloat16")

    def indices(self, value: Any) -> TensorMeta | Unusable:
        return self._meta(value, False, "int32 or int64")

    def _meta(self, value: Any, written: bool, dtypes: str) -> TensorMeta | Unusable:
        found = self.read(value, written)
        if isinstance(found, (TensorMeta, Unusable)):
            return found
        return Unusable(found or _what(value), f"{self.noun} of {dtypes}")

    def ints(self, value: Any) -> tuple[int, ...] | None:
        if not isinstance(value, (tuple, list)):
            return None
        found = tuple(map(self.integer, value))
        return None if None in found else found  # type: ignore[return-value]


def bind(
    arrays: Arrays,
    operator: Operator,
    grad_output: Any,
    input: Any,
    indices: Any,
    attributes: tuple[Any, ...],
    out: Any,
) -> Call:
    """The call that these arguments make; raises the operator's first fault.

    `attributes` are in the order of the operator's page.
    """
    grad = arrays.floats(grad_output)
    dtype = grad.dtype if isinstance(grad, TensorMeta) else None
    given = iter(attributes)
    values: dict[str, Value] = {}
    for parameter in operator.parameters:
        match parameter.role:
            case "grad_output":
                value: Value = grad
            case "input":
                shape = value = _shape(arrays, input, dtype)
            case "indices":
                value = arrays.indices(indices)
            case "grad_input":
                value = shape if out is None else arrays.floats(out, written=True)
            case "cube_math_type":
                value = 0
            case _:
                value = _attribute(arrays, parameter, next(given))
        values[parameter.name] = value
    call = Call(operator, HOST, values)
    if fault := check(call):
        raise fault.error(f"{operator.function}: {fault.text}")
    return call


def kinds(values: tuple[Any, ...]) -> tuple[type, ...]:
    """The types of values, tuples looked into, for a key: 2.0 equals 2, and True 1, but mean other calls."""
    found = tuple(map(type, values))
    if tuple in found:
        found += tuple(map(type, chain.from_iterable(v for v in values if type(v) is tuple)))
    return found


def _what(value: object) -> str:
    if value is None:
        return "is None"
    kind = type(value).__name__
    return f"is {article(kind)} {kind}"


def _shape(arrays: Arrays, input: Any, dtype: DType | None) -> TensorMeta | Unusable:
    must = "the forward's input, or its shape, a tuple of ints"
    meta = arrays.read(input, False)
    shape = arrays.ints(input) if meta is None else tuple(input.shape)
    if shape is None:
        return Unusable(f"is {input!r:.60}", must)
    if dtype is None:  # grad_output is unusable; that is what the caller will read
        return Unusable("has no dtype", must)
    known = all(type(n) is int for n in shape)  # under tracing a size may be a symbol
    if known and prod(max(n, 1) for n in shape) * dtype.itemsize >= 2**63:
        return Unusable(f"has shape {shape}, over 2**63 bytes", "smaller", ValueError)
    return TensorMeta(shape, dtype)


def _attribute(arrays: Arrays, parameter: Parameter, value: Any) -> Value:
    if parameter.type == "bool":
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        return Unusable(f"is {value!r:.60}", "True or False")
    if parameter.type == "int_array":
        if value is None:
            return () if parameter.nullable else None
        values = arrays.ints(value if isinstance(value, (tuple, list)) else (value,))
        if values is None:
            return Unusable(f"is {value!r:.60}", "an int or a tuple of ints")
        if any(type(v) is int and not -(2**62) < v < 2**62 for v in values):
            return Unusable(f"is {value!r:.60}", "smaller than 2**62", ValueError)
        return values
    if value is None:
        return 0
    if (found := arrays.integer(value)) is None:
        return Unusable(f"is {value!r:.60}", "an int, or None")
    if found == 0 or not -(2**63) <= found < 2**63:
        return Unusable(f"is {value}", "None or a 64-bit int other than 0", ValueError)
    return found
