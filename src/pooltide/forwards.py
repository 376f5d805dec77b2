"""The forwards on NumPy arrays: PyTorch's names, order and defaults, on arrays of any strides.

A result lies in memory as its input does: channels-last if the input is, else C-contiguous. `out` is
where values are written; with return_indices a pair, for values and int64 indices. A window that padding
and dilation leave without a cell has value -inf and PyTorch's index, which may lie outside the plane.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType, NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .backends import forward_cpu, forward_reference
from .forward_checks import Adaptive, Strided, checked_out, pooling_of
from .functions import ARRAYS, as_volume, memory_layout
from .plan import ENVIRONMENT, NoBackend
from .pooling import Pooling
from .threads import get_num_threads

Array = NDArray[Any]
Ints = int | Sequence[int]
Sizes = int | Sequence[int | None] | None
BACKENDS: dict[str, ModuleType] = {"cpu": forward_cpu, "reference": forward_reference}


def avg_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    out: Array | None = None,
) -> Array:
    """1-D average pooling."""
    asked = Strided(kernel_size, stride, padding, 1, ceil_mode, count_include_pad)
    return _values("avg_pool1d", input, asked, out)


def avg_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """2-D average pooling."""
    asked = Strided(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return _values("avg_pool2d", input, asked, out)


def avg_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """3-D average pooling."""
    asked = Strided(kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override)
    return _values("avg_pool3d", input, asked, out)


def adaptive_avg_pool1d(input: Array, output_size: Ints, *, out: Array | None = None) -> Array:
    """1-D average pooling to a given size."""
    return _values("adaptive_avg_pool1d", input, Adaptive(output_size), out)


def adaptive_avg_pool2d(input: Array, output_size: Sizes, *, out: Array | None = None) -> Array:
    """2-D average pooling to a given size; None keeps an axis as it is."""
    return _values("adaptive_avg_pool2d", input, Adaptive(output_size), out)


def adaptive_avg_pool3d(input: Array, output_size: Sizes, *, out: Array | None = None) -> Array:
    """3-D average pooling to a given size; None keeps an axis as it is."""
    return _values("adaptive_avg_pool3d", input, Adaptive(output_size), out)


def max_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """1-D max pooling; with return_indices also where each maximum lies, flat within its plane."""
    asked = Strided(kernel_size, stride, padding, dilation, ceil_mode)
    return _pool("max_pool1d", input, asked, return_indices, out)


def max_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """2-D max pooling; with return_indices also where each maximum lies, flat within its plane."""
    asked = Strided(kernel_size, stride, padding, dilation, ceil_mode)
    return _pool("max_pool2d", input, asked, return_indices, out)


def max_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    out: Any = None,
) -> Any:
    """3-D max pooling; with return_indices also where each maximum lies, flat within its plane."""
    asked = Strided(kernel_size, stride, padding, dilation, ceil_mode)
    return _pool("max_pool3d", input, asked, return_indices, out)


def adaptive_max_pool1d(
    input: Array, output_size: Ints, return_indices: bool = False, *, out: Any = None
) -> Any:
    """1-D max pooling to a given size; with return_indices also where each maximum lies in its plane."""
    return _pool("adaptive_max_pool1d", input, Adaptive(output_size), return_indices, out)


def adaptive_max_pool2d(
    input: Array, output_size: Sizes, return_indices: bool = False, *, out: Any = None
) -> Any:
    """2-D max pooling to a given size; with return_indices also where each maximum lies in its plane."""
    return _pool("adaptive_max_pool2d", input, Adaptive(output_size), return_indices, out)


def adaptive_max_pool3d(
    input: Array, output_size: Sizes, return_indices: bool = False, *, out: Any = None
) -> Any:
    """3-D max pooling to a given size; with return_indices also where each maximum lies in its plane."""
    return _pool("adaptive_max_pool3d", input, Adaptive(output_size), return_indices, out)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call, checked and planned: all but its arrays."""

    pooling: Pooling
    backend: ModuleType
    layout: str  # what the kernel works in
    shape: tuple[int, ...]  # of the result
    axes: int
    direct: Callable[..., Any] | None  # the kernel itself, where the arrays lie as it wants them


_KEPT: dict[tuple[Any, ...], _Ready] = {}
_EXACT = frozenset({int, bool, NoneType})


def _values(name: str, input: Array, asked: Strided | Adaptive, out: Array | None) -> Array:
    found = _pool(name, input, asked, False, out)
    assert isinstance(found, np.ndarray)
    return found


def _pool(name: str, input: Array, asked: Strided | Adaptive, return_indices: bool, out: Any) -> Any:
    key = _key(name, input, asked, return_indices, out)
    ready = None if key is None else _KEPT.get(key)
    if ready is None:
        ready = _prepare(name, input, asked, return_indices, out)
        if key is not None:
            if len(_KEPT) >= 1024:
                _KEPT.clear()
            _KEPT[key] = ready
    values, indices = out if return_indices and out is not None else (out, None)
    if out is None:
        values = _empty(ready.shape, ready.axes, input.dtype, ready.layout)
        indices = (
            _empty(ready.shape, ready.axes, np.dtype(np.int64), ready.layout) if return_indices else None
        )
    if ready.direct is None or ready.direct(input, values, indices, get_num_threads()) is not None:
        _run_on_copies(ready, input, values, indices)
    return (values, indices) if return_indices else values


def _key(
    name: str, input: Any, asked: Strided | Adaptive, return_indices: Any, out: Any
) -> tuple[Any, ...] | None:
    """All that a call's checks and plan depend on, or None where equal keys might stand for unequal calls."""
    if type(input) is not np.ndarray or type(return_indices) is not bool:
        return None
    outs: tuple[Any, ...] = ()
    for array in out if type(out) is tuple else (out,) if out is not None else ():
        if type(array) is not np.ndarray or not array.flags.writeable:
            return None
        outs += array.dtype, array.shape, array.strides
    kinds = tuple(map(type, asked))
    inner: tuple[Any, ...] = ()
    if not _EXACT.issuperset(kinds):
        for value in asked:
            if type(value) is tuple:
                inner += tuple(map(type, value))
            elif type(value) not in _EXACT:
                return None
    how = name, asked, kinds, inner, return_indices, os.environ.get(ENVIRONMENT)
    return how, input.dtype, input.shape, input.strides, outs, type(out)


def _prepare(name: str, input: Any, asked: Strided | Adaptive, return_indices: Any, out: Any) -> _Ready:
    pooling = pooling_of(name, ARRAYS, input, asked, return_indices)
    axes = int(name[-2])
    shape = tuple(input.shape[:-axes]) + pooling.output_plane[3 - axes :]
    arrays = [input]
    if out is not None:
        outs = {"out": out}
        if return_indices:
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(
                    f"{name}: out is {out!r:.60}; with return_indices it must be a pair of NumPy arrays."
                )
            outs = {"out[0]": out[0], "out[1]": out[1]}
        for at, (argument, array) in enumerate(outs.items()):
            checked_out(name, ARRAYS, argument, array, shape, np.dtype(np.int64) if at else input.dtype)
            arrays.append(array)
    backend = backend_for(pooling)
    layout, *others = (memory_layout(array, axes) for array in arrays)
    if layout == "strided":
        layout, others = "planes", ["copied"]
    direct = None
    if backend is forward_cpu and all(other == layout for other in others):
        direct = forward_cpu.prepare(pooling, layout).run
    return _Ready(pooling, backend, layout, shape, axes, direct)


def backend_for(pooling: Pooling) -> ModuleType:
    """The first backend that does not refuse; raises NoBackend with each one's reason."""
    only = os.environ.get(ENVIRONMENT) or None
    if only is not None and only not in BACKENDS:
        raise NoBackend(f"backend {only!r} is unknown; known are {', '.join(BACKENDS)}")
    reasons = []
    for name in (only,) if only else BACKENDS:
        if (reason := BACKENDS[name].refuse(pooling)) is None:
            return BACKENDS[name]
        reasons.append(f"{name}: {reason}")
    raise NoBackend("; ".join(reasons))


def _empty(shape: tuple[int, ...], axes: int, dtype: np.dtype[Any], layout: str) -> Array:
    """An array of `shape`, (N,) C and the spatial axes, lying in `layout`."""
    if layout == "planes":
        return np.empty(shape, dtype)
    lead = len(shape) - axes
    return np.moveaxis(
        np.empty(shape[: lead - 1] + shape[lead:] + shape[lead - 1 : lead], dtype), -1, lead - 1
    )


def _run_on_copies(ready: _Ready, input: Array, values: Array, indices: Array | None) -> None:
    """Through fresh arrays in the kernel's layout: whatever the given ones are, or share."""
    axes = ready.axes
    x = _empty(input.shape, axes, input.dtype, ready.layout)
    x[...] = input
    found = _empty(ready.shape, axes, values.dtype, ready.layout)
    places = None if indices is None else _empty(ready.shape, axes, indices.dtype, ready.layout)
    volumes = (
        as_volume(x, axes),
        as_volume(found, axes),
        None if places is None else as_volume(places, axes),
    )
    ready.backend.run(ready.pooling, ready.layout, *volumes)
    values[...] = found
    if indices is not None:
        indices[...] = places
