"""From a forward's arguments to a pooling, or a sentence: *function: argument has X; it must be Y*."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from .binding import Arrays
from .call import TensorMeta, Unusable, overlaps
from .functions import too_large
from .geometry import UNIT, Axis, strided_outputs
from .plain import plain, shown
from .pooling import Pooling


class Strided(NamedTuple):
    """Windows as an average or max pool is asked for; an average has no dilation but a divisor."""

    kernel_size: Any
    stride: Any
    padding: Any
    dilation: Any
    ceil_mode: Any
    count_include_pad: Any = True
    divisor_override: Any = None


class Adaptive(NamedTuple):
    output_size: Any


Asked = Strided | Adaptive


def settled(asked: Asked) -> Asked:
    """The same with plain values (plain.py) where they have a meaning."""
    return type(asked)(*map(plain, asked))


def pooling_of(name: str, arrays: Arrays, x: Any, asked: Asked, return_indices: Any = False) -> Pooling:
    """The pooling that a call of the function `name` asks for; raises what is wrong first."""
    axes = int(name[-2])
    asked, return_indices = settled(asked), plain(return_indices)
    meta = _usable(name, "input", arrays.floats(x))
    if meta.dtype.name not in ("FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16"):
        found = meta.dtype.numpy
        raise TypeError(f"{name}: input has dtype {found}; it must be float32, float64, float16 or bfloat16.")
    shape = meta.shape
    if len(shape) not in (axes + 1, axes + 2):
        raise ValueError(
            f"{name}: input has rank {len(shape)}, shape {shape}; it must have rank {axes + 1} or {axes + 2}."
        )
    lengths = shape[-axes:]
    if 0 in lengths:
        raise ValueError(f"{name}: input has shape {shape}; every spatial dimension must be greater than 0.")
    _flag(name, "return_indices", return_indices)
    if isinstance(asked, Adaptive):
        found_axes, dilation = _adaptive(name, lengths, asked)
    else:
        found_axes, dilation = _strided(name, lengths, asked)
    pad = 3 - axes
    d, h, w = [UNIT] * pad + found_axes
    steps = (1,) * pad + dilation
    batch = (shape[0] if len(shape) == axes + 2 else 1, shape[-axes - 1])
    sizes = *batch, *(axis.outputs for axis in found_axes)
    if prod(max(n, 1) for n in sizes) * 8 >= 2**63:  # NumPy counts so: an empty array may be too large
        raise ValueError(f"{name}: the result would have over 2**63 bytes; it must be smaller.")
    quotient, divisor = ("", 0) if "max" in name else _quotient(name, asked)
    if quotient == "chained" and all(axis.outputs == 1 for axis in found_axes):
        quotient = "mean"
    return Pooling(
        "largest" if "max" in name else "average",
        batch,
        (d, h, w),
        meta.dtype,
        quotient,
        divisor,
        (steps[0], steps[1], steps[2]),
        bool(return_indices),
    )


def checked_out(
    name: str, arrays: Arrays, argument: str, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    """Raises unless `out` is an array that a result of this shape and dtype can be written to."""
    found = arrays.read(out, True)
    if not isinstance(found, (TensorMeta, Unusable)):
        found = Unusable(found or f"is {shown(out)}", f"a NumPy array of {dtype}")
    meta = _usable(name, argument, found)
    if meta.dtype.numpy != dtype:
        raise TypeError(f"{name}: {argument} has dtype {meta.dtype.numpy}; it must be {dtype}.")
    if meta.shape != shape:
        raise ValueError(f"{name}: {argument} has shape {meta.shape}; it must be {shape}.")
    if meta.strides is not None and overlaps(meta.shape, meta.strides) is not False:
        raise ValueError(
            f"{name}: {argument} has strides {meta.strides}, which lets cells share memory; "
            "it must be free of overlap."
        )


def reserve(name: str, nbytes: int) -> None:
    """Raises MemoryError where a result of so many bytes has no room, before tables as long are made."""
    try:
        np.empty(nbytes, np.uint8)
    except MemoryError as error:
        raise too_large(name, error) from None


def _usable(name: str, argument: str, value: TensorMeta | Unusable) -> TensorMeta:
    if isinstance(value, Unusable):
        raise value.error(f"{name}: {argument} {value.what}; it must be {value.must}.")
    return value


def _flag(name: str, argument: str, value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{name}: {argument} is {shown(value)}; it must be True or False.")
    return value


def _ints(name: str, argument: str, value: Any, axes: int, least: int) -> tuple[int, ...]:
    """One int for each axis."""
    ints = value if type(value) is tuple else (value,)
    if not all(type(n) is int for n in ints):
        raise TypeError(f"{name}: {argument} is {shown(value)}; it must be an int or a tuple of ints.")
    if len(ints) not in (1, axes):
        count = "1 value" if axes == 1 else f"1 or {axes} values"
        raise ValueError(f"{name}: {argument} has {len(ints)} values; it must have {count}.")
    if min(ints) < least or max(ints) >= 2**62:
        bounds = f"at least {least}" if min(ints) < least else "smaller than 2**62"
        raise ValueError(f"{name}: {argument} is {shown(value)}; it must be {bounds}.")
    return ints * axes if len(ints) == 1 else ints


def _adaptive(name: str, lengths: tuple[int, ...], asked: Adaptive) -> tuple[list[Axis], tuple[int, ...]]:
    value = asked.output_size
    if type(value) is tuple and len(value) == len(lengths):  # None keeps an axis as it is
        value = tuple(n if o is None else o for n, o in zip(lengths, value, strict=True))
    outputs = _ints(name, "output_size", lengths if value is None else value, len(lengths), 0)
    return [Axis(*sizes) for sizes in zip(lengths, outputs, strict=True)], (1,) * len(lengths)


def _strided(name: str, lengths: tuple[int, ...], asked: Strided) -> tuple[list[Axis], tuple[int, ...]]:
    axes = len(lengths)
    kernel = _ints(name, "kernel_size", asked.kernel_size, axes, 1)
    given = asked.stride
    if given is None or (type(given) is tuple and not given):
        given = kernel
    stride = _ints(name, "stride", given, axes, 1)
    padding = _ints(name, "padding", asked.padding, axes, 0)
    dilation = _ints(name, "dilation", asked.dilation, axes, 1)
    ceil = _flag(name, "ceil_mode", asked.ceil_mode)
    found = []
    for letter, n, k, s, p, step in zip(
        "DHW"[-axes:], lengths, kernel, stride, padding, dilation, strict=True
    ):
        if 2 * p > k:
            must = f"at most {k // 2}, half of kernel_size {k}"
            raise ValueError(f"{name}: padding is {p} on axis {letter}; it must be {must}.")
        if name == "avg_pool3d" and n < k:  # as PyTorch has it, of this pool alone
            must = f"at least {k}, as kernel_size is, whatever the padding"
            raise ValueError(f"{name}: input has length {n} on axis {letter}; it must be {must}.")
        reach = step * (k - 1) + 1
        outputs = strided_outputs(n, reach, s, p, ceil)
        if outputs < 1:
            raise ValueError(
                f"{name}: input has length {n} on axis {letter}; with padding {p} a window of {reach} "
                f"cells must fit, so it must be at least {reach - 2 * p}."
            )
        found.append(Axis(n, outputs, k, s, p))
    return found, dilation


def _quotient(name: str, asked: Asked) -> tuple[str, int]:
    if isinstance(asked, Adaptive):
        return "chained", 0
    counted = _flag(name, "count_include_pad", asked.count_include_pad)
    divisor = asked.divisor_override
    if divisor is None:
        return ("extent" if counted else "valid"), 0
    if type(divisor) is not int:
        raise TypeError(f"{name}: divisor_override is {shown(divisor)}; it must be an int, or None.")
    if divisor == 0 or not -(2**63) <= divisor < 2**63:
        raise ValueError(
            f"{name}: divisor_override is {shown(divisor)}; it must be None or a 64-bit int other than 0."
        )
    return "override", divisor
