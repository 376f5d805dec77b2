"""Calls on NumPy arrays of pools over regions of interest: bind, check, plan, run.

Boxes are data. What depends on metadata alone is done once, and kept in the cache of calls
(kernels/calls.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..kernels import Arrays
from ..kernels.calls import CALLS, call_key, keep
from ..kernels.plan import Executable, plan
from ..kernels.regions import RegionFault
from ..kernels.threads import get_num_threads
from ..operators.binding import bind
from ..operators.call import shares_cells
from ..operators.catalog import regions
from ..operators.dtypes import DTYPES
from ..operators.memory import reserve, too_large
from ..operators.plain import plain, plain_array, plain_shape, shown
from ..problem.regions import RegionProblem, lower_regions
from .array_calls import metadata, results
from .reader import ARRAYS
from .volumes import memory_layout

_FLOATS = [DTYPES[name].numpy for name in ("FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16")]

Array = NDArray[Any]
Boxes = Array | Sequence[Array]


@dataclass(frozen=True, slots=True)
class _Call:
    problem: RegionProblem
    executable: Executable
    channels_last: bool  # whether a new result is


def region_pool(
    name: str,
    input: Array,
    boxes: Boxes,
    attributes: tuple[Any, ...],
    out: Any,
    return_indices: Any = False,
) -> Any:
    """Returns the values of a pool over regions; with `return_indices` a pair of values and indices."""
    x, indexed = plain_array(input), plain(return_indices)
    if type(indexed) is not bool:
        raise TypeError(f"{name}: return_indices is {shown(indexed)}; it must be True or False.")
    try:
        rows = _one_array(name, boxes, x)
        values, places = results(name, indexed, plain(out) if indexed else plain_array(out))
        call = _prepared(name, None, x, rows, places, attributes, values, indexed)
        problem = call.problem
        if values is None:
            values = _empty(call, problem.dtype.numpy)
            places = _empty(call, problem.index_dtype.numpy) if problem.index_dtype else None
        elif places is not None and shares_cells(values, places):
            raise ValueError(f"{name}: out[1] shares memory with out[0]; it must have its own.")
        _run(name, call, Arrays(None, x, places, values, rows))
    except MemoryError as error:
        raise too_large(name, error) from None
    return out if out is not None else (values, places) if indexed else values


def region_average(
    name: str, input: Array, boxes: Boxes, attributes: tuple[Any, ...], out: Array | None
) -> Array:
    result: Array = region_pool(name, input, boxes, attributes, out)
    return result


def region_gradient(
    name: str,
    grad_output: Array,
    input: Array | Sequence[int],
    boxes: Boxes,
    indices: Array | None,
    attributes: tuple[Any, ...],
    out: Array | None,
) -> Array:
    grad, shape, at, written = map(plain_array, (grad_output, plain_shape(input), indices, out))
    try:
        rows = _one_array(name, boxes, grad, images=_shape(shape))
        call = _prepared(name, grad, shape, rows, at, attributes, written)
        if written is None:
            written = np.empty(call.problem.shape("out"), grad.dtype)
        _run(name, call, Arrays(grad, None, at, written, rows))
    except MemoryError as error:
        raise too_large(name, error) from None
    return written if out is None else out


def _shape(array: Any) -> Any:
    """The shape of an array; any other value itself."""
    return array.shape if type(array) is np.ndarray else array


def _one_array(name: str, boxes: Any, like: Any, images: Any = None) -> Any:
    """Boxes as one array, (K, 5); a list has one array of boxes, (L, 4), for each image."""
    kind = type(boxes)  # isinstance would ask an odd object itself
    if not issubclass(kind, (tuple, list)):
        return plain_array(boxes)
    batch = _shape(like) if images is None else images
    items = tuple.__iter__(boxes) if issubclass(kind, tuple) else list.__iter__(boxes)
    parts: list[Array] = []
    for at, part in enumerate(map(plain_array, items)):
        if type(part) is not np.ndarray or part.ndim != 2 or part.shape[1] != 4:
            what = f"has shape {part.shape}" if type(part) is np.ndarray else f"is {shown(part)}"
            error = ValueError if type(part) is np.ndarray else TypeError
            raise error(f"{name}: boxes[{at}] {what}; it must be an array of shape (L, 4).")
        parts.append(part)
        if part.dtype != parts[0].dtype or part.dtype not in _FLOATS:
            must = f"{parts[0].dtype}, as boxes[0] has" if at else "float32, float64, float16 or bfloat16"
            raise TypeError(f"{name}: boxes[{at}] has dtype {part.dtype}; it must be {must}.")
    if type(batch) is tuple and batch and type(batch[0]) is int and len(parts) > batch[0]:
        must = f"at most {batch[0]}, one for each image"
        raise ValueError(f"{name}: boxes has {len(parts)} arrays; it must have {must}.")
    dtype = parts[0].dtype if parts else np.dtype(np.float32)
    if dtype.itemsize == 2:  # a half type would round the number of an image
        dtype = np.dtype(np.float32)
    rows, end = np.empty((sum(map(len, parts)), 5), dtype), 0
    for at, part in enumerate(parts):
        begin, end = end, end + len(part)
        rows[begin:end, 0], rows[begin:end, 1:] = at, part
    return rows


def _prepared(
    name: str,
    grad_output: Any,
    input: Any,
    boxes: Any,
    indices: Any,
    attributes: tuple[Any, ...],
    out: Any,
    indexed: bool = True,
) -> _Call:
    """The arrays are those that the call reads and writes; None for each that it has not, or allocates."""
    attributes = tuple(float(a) if issubclass(type(a), np.floating) else plain(a) for a in attributes)
    forward = grad_output is None
    shape = () if forward else _shape(input)
    facts = metadata(input if forward else grad_output, boxes, indices, out)
    key = call_key(name, facts, (shape, *attributes), indexed)
    if (call := CALLS.get(key)) is not None:
        return call  # type: ignore[no-any-return]
    operator = regions()[name]
    bound = bind(ARRAYS, operator, grad_output, input, indices, attributes, out, boxes)
    problem = lower_regions(bound, indexed)
    source = input if forward else grad_output
    fresh = "planes"
    if forward:
        fresh = "channels_last" if memory_layout(source, 2) == "channels_last" else "planes"
        if out is None:
            reserve(name, prod(problem.shape("out")) * source.itemsize)
    arrays = {"grad_output": grad_output, "input": input, "indices": indices, "out": out}
    layouts = (fresh if (a := arrays[role]) is None else memory_layout(a, 2) for role in problem.roles)
    executable = plan(problem, tuple(layouts))
    return keep(key, _Call(problem, executable, fresh == "channels_last"))


def _run(name: str, call: _Call, arrays: Arrays) -> None:
    problem, executable = call.problem, call.executable
    boxes = np.ascontiguousarray(arrays.boxes, problem.dtype.accumulator)
    a, fault = arrays, cast(Any, NotImplemented)
    if executable.kernel is not None:
        fault = executable.kernel(a.grad_output, a.input, boxes, a.indices, a.out, get_num_threads())
    if fault is NotImplemented:
        roles = ("grad_output", "input", "indices")
        read = [None if role in problem.results else getattr(a, role) for role in roles]
        if any(x is not None and np.may_share_memory(a.out, x) for x in (*read, boxes)):
            read = [None if x is None else x.copy("K") for x in read]
            boxes = boxes.copy()
        grad, x, at = read
        places = a.indices if "indices" in problem.results else at
        fault = executable.run(Arrays(grad, x, places, a.out, boxes))
    if fault is not None:
        raise IndexError(f"{name}: {RegionFault(*fault).message(problem, boxes)}")


def _empty(call: _Call, dtype: np.dtype[Any]) -> Array:
    k, c, ph, pw = call.problem.shape("out")
    if not call.channels_last:
        return np.empty((k, c, ph, pw), dtype)
    return np.moveaxis(np.empty((k, ph, pw, c), dtype), -1, 1)
