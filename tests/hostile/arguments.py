"""Odd values for every kind of parameter: what a caller may hand in by accident or in bad faith.

`odd_values(kind, good)` yields (label, value) pairs. `good` is an argument of a call that works; arrays are
made from it, so that many odd values are still legal and must give the result of their plain equivalent,
which `plain` returns. The kinds: array, indices, out, shape, ints, size, flag, divisor, count.
Values are made anew for each call of the generator, since some of them (iterators) can be read once only.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import os
import tempfile
import types
from array import array
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

Odd = Iterator[tuple[str, Any]]
# Sizes of arrays are so large that no machine has the memory, or small: others would fill it.
HUGE_SIZES = (2**45, 2**61, 2**62, 2**63 - 1, 2**63, 2**64, 2**64 + 3, 10**5000)
HUGE_INTS = (2**31, 2**32 + 3, 2**61, 2**62, 2**63 - 1, 2**63, 2**64, 2**64 + 3, 10**5000)


def odd_values(kind: str, good: Any) -> Odd:
    """Every odd value for a parameter of this kind, `good` being a value that works."""
    yield from _anything()
    yield from _objects()
    yield from _MORE[kind](good)


def plain(kind: str, value: Any) -> Any:
    """What an accepted odd value must mean: the same arguments as builtin ints and bare C-order arrays."""
    if value is None:
        return None
    if kind in ("array", "indices", "out"):
        return np.array(np.asarray(value), order="C", subok=False)
    if (
        kind == "shape"
        and isinstance(value, np.ndarray)
        and not (value.ndim == 1 and value.dtype.kind in "iu")
    ):
        return tuple(int(n) for n in np.shape(value))
    if kind == "flag":
        return bool(value)
    if isinstance(value, (tuple, list)):
        items = tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)
        return tuple(None if n is None else _integer(n) for n in items)
    return tuple(value.tolist()) if isinstance(value, np.ndarray) and value.ndim else _integer(value)


def _integer(value: Any) -> int:
    """The int itself, whatever a subclass makes of its methods."""
    return int.__index__(value) if isinstance(value, int) else int(value)


def _fails(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("an odd object fails on purpose")


def _made(name: str, base: type = object, **methods: Any) -> type:
    return type(name, (base,), methods)


def _anything() -> Odd:
    """Builtin values and NumPy scalars of every type."""
    yield from {
        "None": None, "str": "3", "empty str": "", "long str": "x" * 10_000, "bytes": b"3", "bytearray": bytearray(b"\2\2"),
        "float": 3.0, "half": 2.5, "NaN": float("nan"), "infinity": float("inf"), "complex": 3 + 0j, "True": True, "False": False,
        "Ellipsis": ..., "NotImplemented": NotImplemented, "a type": int, "a function": len, "a lambda": lambda: 3, "a module": np,
        "slice": slice(2), "range": range(2, 4), "dict": {2: 2}, "empty dict": {}, "set": {2, 3}, "frozenset": frozenset({2}),
        "Fraction": fractions.Fraction(3), "Decimal": decimal.Decimal(3), "date": datetime.date(2020, 2, 2), "memoryview": memoryview(b"\2\2"),
        "array.array": array("q", [2, 2]), "namespace": types.SimpleNamespace(shape=(2, 3), dtype=np.dtype("f4")), "exception": ValueError("x"),
        "np.float32": np.float32(3), "np.float64": np.float64("nan"), "np.bool_": np.True_, "np.str_": np.str_("3"), "np.bytes_": np.bytes_(b"3"),
        "np.void": np.void(b"33"), "np.datetime64": np.datetime64("2020-02-02"), "np.timedelta64": np.timedelta64(3, "D"), "NaT": np.timedelta64("NaT", "D"),
        "np.complex64": np.complex64(3), "dtype": np.dtype("f4"),
    }.items()  # fmt: skip
    yield "generator", (n for n in (2, 2))
    yield "iterator", iter([2, 2])
    yield "map", map(int, "22")
    yield "nested", [[2], [2]]
    yield "list in a tuple", ([2], [2])
    yield "ragged", [2, [2, 2]]
    loop: list[Any] = []
    loop.append(loop)
    yield "list of itself", loop
    deep: list[Any] = [2]
    for _ in range(20_000):
        deep = [deep]
    yield "deep list", deep
    yield "long list", [2] * 100_000
    yield "mixed tuple", (2, "2")
    yield "tuple with None", (None, None)
    yield "tuple of floats", (2.0, 2.0)
    yield "tuple of bools", (True, True)
    yield "tuple of NaN", (float("nan"),)
    yield "tuple of huge", (10**5000, 2)
    for name, dtype in {"object": object, "structured": [("a", "f4"), ("b", "i8")], "datetime": "M8[s]", "timedelta": "m8[s]",
                        "string": "U3", "void": "V4", "complex": "c8", "bool": "?", "uint8": "u1", "longdouble": "g"}.items():  # fmt: skip
        yield f"{name} array", np.zeros((2, 3, 7, 11), dtype)
        yield f"{name} vector", np.zeros(2, dtype)
    yield "0-d float array", np.array(3.0)
    yield "empty array", np.zeros(0)
    yield "matrix", np.matrix([[2, 2], [2, 2]])
    yield "array of bytes", np.array([b"2"])
    yield "recarray", np.rec.array([(1, 2)], dtype=[("a", "i8"), ("b", "i8")])


def _objects() -> Odd:
    """Objects whose special methods raise or give nonsense."""
    for method in ("__index__", "__int__", "__array__", "__len__", "__iter__", "__repr__", "__str__", "__bool__", "__eq__",
                   "__hash__", "__getattr__", "__getattribute__", "__getitem__", "__array_interface__", "__float__"):  # fmt: skip
        yield f"{method} raises", _made("Odd", **{method: _fails})()
    for method, result in {"__index__": 3, "__array__": np.zeros((2, 3), "f4"), "__len__": 2, "__iter__": iter((2, 2)), "__repr__": "Odd()",
                           "__eq__": True, "__hash__": 0, "__bool__": True}.items():  # fmt: skip
        yield f"{method} works", _made("Odd", **{method: lambda self, *a, _r=result, **k: _r})()
    for method, nonsense in {"__index__": "three", "__array__": "none", "__len__": -3, "__iter__": 7, "__repr__": 3, "__eq__": np.ones(2),
                             "__hash__": "x", "__bool__": 2}.items():  # fmt: skip
        yield f"{method} gives nonsense", _made("Odd", **{method: lambda self, *a, _r=nonsense, **k: _r})()
    yield "long repr", _made("Odd", __repr__=lambda self: "x" * 10**6)()
    yield "a class that raises", _made("Odd", __class__=property(_fails))()
    yield "a false array", _made("Odd", __class__=np.ndarray)()
    yield "a false int", _made("Odd", __class__=int)()
    yield "a false tuple", _made("Odd", __class__=tuple)()
    yield "mock", mock.Mock()
    yield "mock array", mock.Mock(spec=np.ndarray)
    yield "mock tuple", mock.MagicMock(spec=tuple)
    yield "no name", type("", (), {})()
    for method in ("__eq__", "__hash__", "__repr__", "__index__", "__int__", "__lt__", "__bool__"):
        odd = _made(
            "OddInt", int, **{method: _fails, **({"__hash__": int.__hash__} if method == "__eq__" else {})}
        )
        yield f"int whose {method} raises", odd(2)
        yield f"tuple of ints whose {method} raises", (odd(2),)
    yield "int equal to all", _made("OddInt", int, __eq__=lambda *_: True, __hash__=lambda _: 3)(2)
    yield "int equal to none", _made("OddInt", int, __eq__=lambda *_: False, __hash__=int.__hash__)(2)
    yield "int that converts to another", _made("OddInt", int, __int__=lambda _: 7, __index__=lambda _: 7)(2)
    yield "IntEnum", enum.IntEnum("Size", {"two": 2}).two  # type: ignore[attr-defined]
    for method in ("__eq__", "__hash__", "__repr__", "__iter__", "__len__", "__getitem__"):
        odd = _made(
            "OddTuple",
            tuple,
            **{method: _fails, **({"__hash__": tuple.__hash__} if method == "__eq__" else {})},
        )
        yield f"tuple whose {method} raises", odd((2, 2))
    yield "tuple equal to all", _made("OddTuple", tuple, __eq__=lambda *_: True, __hash__=lambda _: 3)((2, 2))
    yield "tuple with a false length", _made("OddTuple", tuple, __len__=lambda _: 1)((2, 2))
    yield "list whose __iter__ raises", _made("OddList", list, __iter__=_fails)([2, 2])
    yield "str whose __repr__ raises", _made("OddStr", str, __repr__=_fails)("2")


def _integers(good: Any, huge: tuple[int, ...] = HUGE_INTS) -> Odd:
    """Integers and sequences of them; most are legal somewhere."""
    for n in (0, 1, 2, 3, -1, -7, -(2**63), -(10**5000), *huge):
        text = str(n) if abs(n) < 2**70 else f"{'-' if n < 0 else ''}10**5000"
        yield f"int {text}", n
        yield f"tuple of {text}", (n,)
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        yield f"{dtype.__name__}", dtype(2)
        yield f"{dtype.__name__} vector", np.full(2, 2, dtype)
        yield f"{dtype.__name__} 0-d array", np.array(2, dtype)
    yield "big-endian vector", np.array([2, 2], ">i8")
    yield "vector of one", np.array([2])
    yield "vector of three", np.array([2, 2, 2])
    yield "empty int vector", np.array([], int)
    yield "int matrix", np.array([[2, 2]])
    yield "negative vector", np.array([-2, -2])
    yield "uint64 vector beyond int64", np.array([2**64 - 1] * 2, np.uint64)
    yield "reversed vector", np.array([2, 3])[::-1]
    yield "broadcast vector", np.broadcast_to(np.int64(2), (2,))
    yield "read-only vector", _locked(np.array([2, 2]))
    yield "masked vector", np.ma.masked_array([2, 2], [True, False])
    yield "int object vector", np.array([2, 2], object)
    yield "vector of a subclass", np.array([2, 2]).view(_made("Mine", np.ndarray))
    yield "list", [2, 2]
    yield "list of NumPy ints", [np.int64(2), np.uint8(2)]
    yield "tuple of 0-d arrays", (np.array(2), np.array(2))
    yield "tuple of vectors", (np.array([2, 2]), np.array([2, 2]))
    yield "tuple with np.timedelta64", (np.timedelta64(2, "D"), 2)
    yield "empty tuple", ()
    yield "empty list", []
    yield "good in an array", np.array(good) if good is not None else np.array(2)


def _locked(array: Any) -> Any:
    array.setflags(write=False)
    return array


def _shapes(good: Any) -> Odd:
    yield from _integers(good, HUGE_SIZES)
    sizes = tuple(np.shape(good) if isinstance(good, np.ndarray) else good)
    yield "list of the sizes", list(sizes)
    yield "vector of the sizes", np.array(sizes)
    yield "int32 vector of the sizes", np.array(sizes, np.int32)
    yield "tuple of NumPy ints", tuple(map(np.int16, sizes))
    for n in (-1, -(2**63), -(10**5000), *HUGE_SIZES):
        text = str(n) if abs(n) < 2**70 else f"{'-' if n < 0 else ''}10**5000"
        yield f"last is {text}", (*sizes[:-1], n)
        yield f"first is {text}", (n, *sizes[1:])
    yield "last is a float", (*sizes[:-1], float(sizes[-1]))
    yield "last is True", (*sizes[:-1], True)
    yield "last is None", (*sizes[:-1], None)
    yield "a rank more", (1, 1, *sizes)
    yield "a rank less", sizes[1:]
    yield "of bytes", np.zeros(sizes, np.int8)
    yield "of structures", np.zeros(sizes, [("a", "f4")])
    yield "broadcast of the shape", np.broadcast_to(np.float32(0), sizes)
    yield "masked of the shape", np.ma.zeros(sizes)


def _sizes(good: Any) -> Odd:
    yield from _integers(good, HUGE_SIZES)
    yield "tuple of None and int", (None, 2)
    yield "object vector with None", np.array([None, 2])


def _arrays(good: Any) -> Odd:
    """The good array's values in every kind of memory, and some that no array may have."""
    yield "big-endian", good.astype(good.dtype.newbyteorder(">") if good.dtype.kind != "V" else ">f4")
    for dtype in (
        np.float16,
        np.float32,
        np.float64,
        np.longdouble,
        np.complex64,
        np.int8,
        np.int32,
        np.int64,
        np.uint64,
        np.bool_,
    ):
        yield f"as {np.dtype(dtype)}", good.astype(dtype)
    yield "as objects", good.astype(object)
    yield "masked", np.ma.masked_array(good, np.zeros(good.shape, bool))
    yield "of a subclass", good.view(_made("Mine", np.ndarray))
    for name in ("shape", "dtype", "strides", "flags", "ndim", "itemsize"):
        yield (
            f"of a subclass whose {name} raises",
            good.view(_made("Mine", np.ndarray, **{name: property(_fails)})),
        )
    yield (
        "of a subclass whose shape lies",
        good.view(_made("Mine", np.ndarray, shape=property(lambda _: (1, 2)))),
    )
    yield "of a subclass that refuses ufuncs", good.view(_made("Mine", np.ndarray, __array_ufunc__=None))
    yield "of a subclass whose __getitem__ raises", good.view(_made("Mine", np.ndarray, __getitem__=_fails))
    yield (
        "of a subclass whose __array_function__ raises",
        good.view(_made("Mine", np.ndarray, __array_function__=_fails)),
    )
    yield "read-only", _locked(good.copy())
    yield "Fortran order", np.asfortranarray(good)
    yield "negative strides", good[..., ::-1].copy()[..., ::-1]
    wide = np.zeros((*good.shape[:-1], 2 * good.shape[-1]), good.dtype)
    wide[..., ::2] = good
    yield "every second cell", wide[..., ::2]
    yield "channels last", np.moveaxis(np.ascontiguousarray(np.moveaxis(good, 0, -1)), -1, 0)
    raw = np.zeros(good.nbytes + 1, np.uint8)[1:].view(good.dtype).reshape(good.shape)
    raw[...] = good
    yield "misaligned", raw
    record = np.zeros(good.shape, [("a", np.int8), ("x", good.dtype)])
    record["x"] = good
    yield "a field of a record", record["x"]
    with tempfile.TemporaryDirectory() as folder:
        mapped = np.memmap(os.path.join(folder, "x"), good.dtype, "w+", shape=good.shape)
        mapped[...] = good
        yield "memmap", mapped
    yield "broadcast", np.broadcast_to(good[:1], good.shape)
    yield "a cell broadcast", np.broadcast_to(good.ravel()[0], good.shape)
    yield "zero strides, writable", np.lib.stride_tricks.as_strided(good.copy(), strides=(0,) * good.ndim)
    yield (
        "overlapping rows",
        np.lib.stride_tricks.as_strided(
            np.zeros(good.size, good.dtype), good.shape, (good.itemsize,) * good.ndim
        ),
    )
    yield "a rank less", good[0]
    yield "a rank more", good[None]
    yield "0-d", good.ravel()[0].reshape(())
    yield "no cells", good[..., :0]
    yield "no batch", good[:0]
    yield "transposed", good.T
    yield "as a list", good.tolist()
    yield "of rank 40", good.ravel()[:1].reshape((1,) * 32)


def _indices(good: Any) -> Odd:
    yield from _arrays(good)
    for n in (-1, -(2**63), 2**31, 2**32, 2**63 - 1):
        bad = good.astype(np.int64)
        bad.flat[-1] = n
        yield f"last is {n}", bad


def _flags(good: Any) -> Odd:
    yield "1", 1
    yield "0", 0
    yield "0-d bool array", np.array(True)
    yield "np.False_", np.False_


def _divisors(good: Any) -> Odd:
    yield from _integers(good)


def _boxes(good: Any) -> Odd:
    yield from _arrays(good)
    rows = good[:, 1:]
    yield "list of one array", [rows]
    yield "tuple of arrays", (rows, rows[:0])
    yield "list of rows of 5", [good, good]
    yield "list of flat rows", [rows[0]]
    yield "list of lists", rows.tolist()
    yield "list with None", [None, rows]
    yield "list with two dtypes", [rows, rows.astype(np.float64)]
    yield "list that holds itself", _endless()
    yield "a million arrays", [rows[:0]] * 1_000_000
    for value in (np.nan, np.inf, -np.inf, 1e38, -1.0, 0.5):
        yield f"all {value}", np.full_like(good, value)


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _scales(good: Any) -> Odd:
    yield from _integers(good)
    for value in (np.nan, np.inf, 1e308, 1e-320, -0.0, np.float16(0.5), np.float64(2), np.longdouble(1)):
        yield f"{type(value).__name__} {value}", value
    yield "complex", 1j
    yield "array of one", np.array([0.5])
    yield "0-d array", np.array(0.5)
    yield "fraction", fractions.Fraction(1, 3)


_MORE: dict[str, Callable[[Any], Odd]] = {
    "array": _arrays, "indices": _indices, "out": _arrays, "shape": _shapes, "ints": _integers, "size": _sizes,
    "flag": _flags, "divisor": _divisors, "count": _integers, "boxes": _boxes, "scale": _scales,
}  # fmt: skip
