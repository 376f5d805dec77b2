"""Takes the checked call of an operator that a user's page describes.

Returns its `Work`: a call of the page's Python function with NumPy arrays. It must not check arguments, which
phase one has done.

The function gets read-only views of its inputs. Its outputs are new arrays between two guards, and go to
device memory when the function has returned: so a function that fails leaves device memory unchanged. Before
it is called, they hold a pattern: so a function that writes beside its arrays, or not everywhere, is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.call import Call, Value
from ..operators.pages import Operator, Parameter
from ..operators.plain import shown
from ..operators.rules import check
from ..operators.user_code import UserCodeError, run_user_code
from .error_reports import INTERNAL, Refused, report
from .execution import Array, input_array, output_array, write_result
from .executors import Run, Tensors
from .findings import say
from .memory_blocks import Range
from .tensor_descriptors import aclTensor

_GUARD = 4096  # bytes before and after an output
# The bytes of outputs before the function is called. As float32, bfloat16 or float16 they are NaN with bits
# that no computation yields; as an integer or a float64 they are an unlikely number, and no bool has them.
_PATTERN = np.array([0xFF937FA77FA5FF9B], np.uint64)
_announced: set[tuple[str, ...]] = set()  # what was said on stderr of an operator, once


@dataclass(frozen=True, slots=True)
class FunctionWork:
    call: Call
    scratch: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    quick: bool = False  # the stream's own thread runs it, as nobody knows how long it takes

    def __str__(self) -> str:
        return str(self.call.operator.python or "declared")

    def prepare(self, tensors: Tensors, ranges: tuple[Range, ...]) -> Run:
        run = _compute if self.call.operator.python else _mark
        return partial(run, self, tensors)


def function_work(
    operator: Operator, product: str, values: tuple[Value, ...], tensors: Tensors
) -> FunctionWork | tuple[int, str]:
    """The work, or the status and the message of a broken rule."""
    names = (parameter.name for parameter in operator.parameters)
    call = Call(operator, product, dict(zip(names, values, strict=True)))
    if fault := check(call):
        return fault.status, fault.message(operator.name)
    parameters = {key: operator.parameter(key.partition("[")[0]) for key in tensors}
    reads = tuple(key for key, p in parameters.items() if p.role == "input")
    writes = tuple(key for key, p in parameters.items() if p.role != "input")
    return FunctionWork(call, operator.workspace, reads, writes)


def _mark(work: FunctionWork, tensors: Tensors, workspace: int | None, checks: str) -> None:
    """The job of an operator that is only declared: computes nothing, and counts its outputs as written."""
    operator = work.call.operator
    if checks != "off":
        _say_once(operator, "it is only declared, so nothing is computed; its outputs count as written.")
    report_fault = partial(report, operator.name, status=INTERNAL, checks=checks)
    for key in work.reads:
        input_array(tensors[key], key, (), report_fault)
    for key in work.writes:
        write_result(tensors[key], output_array(tensors[key], key, report_fault))


def _say_once(operator: Operator, text: str) -> None:
    if (operator.name, text) not in _announced:
        _announced.add((operator.name, text))
        say(f"{operator.name}: {text}")


def _compute(work: FunctionWork, tensors: Tensors, workspace: int | None, checks: str) -> None:
    operator = work.call.operator
    assert operator.python is not None
    report_fault = partial(report, operator.name, status=INTERNAL, checks=checks)
    targets = {key: output_array(tensors[key], key, report_fault) for key in work.writes}
    buffers = {key: _Buffer(target) for key, target in targets.items()}
    arrays: dict[str, Array] = {key: buffer.array for key, buffer in buffers.items()}
    for key in (*work.reads, *work.writes):
        parameter = operator.parameter(key.partition("[")[0])
        if parameter.role == "output":
            continue
        array, _ = input_array(tensors[key], key, (), report_fault)
        if parameter.role == "input":
            arrays[key] = _read_only(tensors[key], array)
        else:
            arrays[key][...] = array
    try:
        result = run_user_code(operator.python, _arguments(work.call, arrays))
    except UserCodeError as error:
        text = f"{error}; the outputs are unchanged."
        raise Refused(INTERNAL, text, certain=True) from None
    for key, buffer in buffers.items():
        if not buffer.intact:
            text = f"{operator.python} wrote outside the array {key}; it must write inside."
            raise Refused(INTERNAL, f"{text} The outputs are unchanged.", certain=True)
    _take(operator, work.writes, arrays, result, checks)
    missing = {key: mask for key, buffer in buffers.items() if (mask := buffer.missing()) is not None}
    for key, mask in missing.items():
        must = f"it must write into it, as in `{key}[...] = …`, or return its values"
        if result is None and mask.all():
            text = f"{operator.python} returned None and wrote nothing to {key}; {must}."
            raise Refused(INTERNAL, f"{text} The outputs are unchanged.", certain=True)
        first = tuple(map(int, np.unravel_index(int(mask.argmax()), mask.shape)))
        count = f"{np.count_nonzero(mask)} of {mask.size} elements of {key} unwritten, the first at {first}"
        effect = " These keep their old values."
        report_fault(f"{operator.python} left {count}; it must write all of them.", effect=effect)
    for key, target in targets.items():
        np.copyto(target, arrays[key], where=~missing[key] if key in missing else True)
        write_result(tensors[key], target)


def _arguments(call: Call, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The arguments of the function, by name."""
    return {p.name: _argument(p, call.values[p.name], arrays) for p in call.operator.parameters}


def _argument(parameter: Parameter, value: Any, arrays: Mapping[str, Array]) -> Any:
    if value is None or not parameter.is_tensor:
        return value
    if parameter.type == "tensor_list":
        return [arrays[f"{parameter.name}[{at}]"] for at in range(len(value))]
    return arrays[parameter.name]


def _read_only(tensor: aclTensor, array: Array) -> Array:
    """A view that can't be made writable; of the cells outside of a block, which are a copy, the copy."""
    located = tensor.cells()
    if located is None or array.base is None:
        array.flags.writeable = False
        return array
    block, cells = located
    raw = np.frombuffer(block.data.data.toreadonly(), np.uint8)
    if len(raw) < block.size:  # another thread freed the block
        return array
    return np.ndarray(cells.shape, array.dtype, raw, cells.start, cells.steps)


class _Buffer:
    """A new array for an output, contiguous, with guards before and after it."""

    def __init__(self, target: Array) -> None:
        size, unit = target.nbytes, min(target.itemsize, 8)
        words = np.empty((size + 2 * _GUARD + 7) // 8, np.uint64)
        words[:] = _PATTERN
        self._rows = words.view(f"u{unit}").reshape(-1, 8 // unit)
        self._pattern = _PATTERN.view(f"u{unit}")
        self._size, self._unit = size, unit
        body = words.view(np.uint8)[_GUARD : _GUARD + size]
        self.array: Array = body.view(target.dtype).reshape(target.shape)

    @property
    def intact(self) -> bool:
        """Whether nothing was written outside of the array."""
        before = self._rows[: _GUARD // 8]
        after = (self._rows[(_GUARD + self._size) // 8 :] == self._pattern).reshape(-1)
        return bool((before == self._pattern).all() and after[self._size % 8 // self._unit :].all())

    def missing(self) -> NDArray[np.bool_] | None:
        """Which elements nothing was written to; None if there are none.

        Those of 1 and 2 bytes, except floats and bools, only 8 bytes at a time: one may be like the pattern.
        """
        size = self._size
        same = self._rows[_GUARD // 8 : (_GUARD + size + 7) // 8] == self._pattern
        if self._unit < 4 and self.array.dtype.kind in "iu":
            same[:] = same.all(axis=1, keepdims=True)
            same[size // 8 :] = False
        mask = same.reshape(-1)[: size // self._unit].reshape(self.array.shape)
        return mask if mask.any() else None


def _take(
    operator: Operator, keys: tuple[str, ...], arrays: Mapping[str, Array], result: Any, checks: str
) -> None:
    """Write what the function returned, if anything, to the outputs, in their order."""
    if result is None:
        return
    values = result if isinstance(result, (tuple, list)) else (result,)
    if len(values) != len(keys):
        must = f"it must return None, or {len(keys)}: {', '.join(keys)}."
        text = f"{operator.python} returned {len(values)} values; {must} The outputs are unchanged."
        raise Refused(INTERNAL, text, certain=True)
    for key, value in zip(keys, values, strict=True):
        target = arrays[key]
        if value is target:
            continue
        try:
            array = np.asarray(value)
            good = array.shape == target.shape and np.can_cast(array.dtype, target.dtype, "same_kind")
        except (TypeError, ValueError):
            array, good = None, False
        if not good or array is None:
            what = shown(value) if array is None else f"shape {array.shape} and dtype {array.dtype}"
            must = f"it must have shape {target.shape} and dtype {target.dtype}."
            text = f"{operator.python} returned {what} for {key}; {must} The outputs are unchanged."
            raise Refused(INTERNAL, text, certain=True)
        if array.dtype == np.float64 != target.dtype and checks != "off":
            what = f"{operator.python} returned float64 for {key}, which is rounded to {target.dtype}"
            _say_once(operator, f"{what}; it may return {target.dtype}.")
        target[...] = array
        if target.dtype.kind in "iu" and not np.array_equal(target, array):
            must = f"it must return values of {target.dtype}. The outputs are unchanged."
            text = f"{operator.python} returned {array.dtype} for {key}, with values beyond {target.dtype}"
            raise Refused(INTERNAL, f"{text}; {must}", certain=True)
