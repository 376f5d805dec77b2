"""Arguments as plain Python values: the checks and the caches meet nothing else.

A size may be a NumPy integer, and several sizes a tuple, a list or a one-dimensional integer array.
An odd object may fail in any of its methods, so only its type decides here what it is.
"""

from __future__ import annotations

import reprlib
import sys
from types import NoneType
from typing import Any

import numpy as np

_SIMPLE = frozenset({int, bool, float, NoneType})


def kinds(values: tuple[Any, ...]) -> tuple[type, ...] | None:
    """The types of plain values and of what tuples among them hold, or None where one value is not plain.

    Plain are ints, bools, floats, None and tuples of them, by exact type. A key of plain values needs their
    types too: True equals 1, but means another call.
    """
    outer = tuple(map(type, values))
    if _SIMPLE.issuperset(outer):
        return outer
    inner: tuple[type, ...] = ()
    for value in values:
        if type(value) is tuple:
            inner += tuple(map(type, value))
        elif type(value) not in _SIMPLE:
            return None
    return outer + inner if _SIMPLE.issuperset(inner) else None


def plain(value: Any) -> Any:
    """The int, bool, float, None or tuple of them that `value` means; any other value, for checks to refuse.

    The result of a tuple or list is a tuple, whatever it holds.
    """
    kind = type(value)
    if kind in _SIMPLE or (kind is tuple and _SIMPLE.issuperset(map(type, value))):
        return value
    if issubclass(kind, (tuple, list)):
        items = tuple.__iter__(value) if issubclass(kind, tuple) else list.__iter__(value)
        return tuple(map(_scalar, items))
    array = plain_array(value)
    if type(array) is np.ndarray and array.ndim == 1 and array.dtype.kind in "iu":
        return tuple(array.tolist())
    return _scalar(value)


def plain_shape(value: Any) -> Any:
    """A shape as a tuple of ints, an array as `plain_array` returns it, any other value itself.

    A one-dimensional integer array is a shape: no pool has an input of rank 1.
    """
    shape = plain(value)
    return shape if type(shape) is tuple else plain_array(value)


def plain_array(value: Any) -> Any:
    """An array of a subclass as a bare one over the same memory; any other value itself.

    A masked array stays one: without its mask it would mean something else.
    """
    kind = type(value)
    if kind is np.ndarray or not issubclass(kind, np.ndarray) or issubclass(kind, masked_array()):
        return value
    return np.asarray(value)


def masked_array() -> type | tuple[()]:
    """NumPy's masked array, or () where numpy.ma is not imported, so that no array can be one.

    A call must not import a module: a child that another thread forks meanwhile would wait for the import.
    """
    masked: type | tuple[()] = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())
    return masked


def _scalar(value: Any) -> Any:
    kind = type(value)
    if issubclass(kind, int):
        return value if kind is bool else int.__index__(value)
    if issubclass(kind, np.bool_):
        return bool(value)
    if issubclass(kind, np.integer) and not issubclass(kind, np.timedelta64):
        return int(value)
    array = plain_array(value)
    if type(array) is np.ndarray and array.ndim == 0 and array.dtype.kind in "iu":
        return array.item()
    return value


class _Shown(reprlib.Repr):
    """repr, but of large and nested values only the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.maxtuple = self.maxlist = self.maxdict = 8
        self.maxstring = self.maxother = 60

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= 256 else f"an int of {x.bit_length()} bits"


def shown(value: Any) -> str:
    """A value in a message: one line of at most 60 characters, whatever the value is; never raises."""
    try:
        text = _Shown().repr(value)
    except Exception:  # a method of the value failed, or Python refuses to print it
        text = f"an object of type {type(value).__name__}"
    return f"{' '.join(text.split()):.60}"
