"""Takes calls that copy and fill memory: an address of the device, or an address or array of the host.

Copies or fills the bytes, at once or as a job of a stream, and returns a status. It must not touch tensors,
nor allocate memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.call import is_int
from ..operators.dtypes import ENUMS
from .addresses import is_guarded
from .contexts import current_context
from .error_reports import (
    ACL_INVALID,
    INTERNAL,
    RT_INVALID,
    Refused,
    describe,
    entry_point,
    report,
    require_code,
)
from .memory_blocks import HOST_MEMORY, MEMORY, OTHER_HOST_MEMORY, Range
from .races import Use
from .state import STATE
from .stream_queue import QUICK_BYTES, Job, Stream
from .streams import live_stream

Bytes = NDArray[np.uint8]
_KINDS = ENUMS["aclrtMemcpyKind"]
_DEFAULT = _KINDS["ACL_MEMCPY_DEFAULT"]
# Whether the target, and whether the source, is device memory.
_DIRECTIONS = {
    _KINDS["ACL_MEMCPY_HOST_TO_HOST"]: (False, False),
    _KINDS["ACL_MEMCPY_HOST_TO_DEVICE"]: (True, False),
    _KINDS["ACL_MEMCPY_DEVICE_TO_HOST"]: (False, True),
    _KINDS["ACL_MEMCPY_DEVICE_TO_DEVICE"]: (True, True),
    _KINDS["ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE"]: (True, False),
    _KINDS["ACL_MEMCPY_INNER_DEVICE_TO_DEVICE"]: (True, True),
    _KINDS["ACL_MEMCPY_INTER_DEVICE_TO_DEVICE"]: (True, True),
}
_NAMES = {code: name for name, code in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Side:
    """The source or the target of a copy, or the target of a fill."""

    range: Range
    data: Bytes
    device: bool

    def report_race(self, title: str, stream: Stream) -> None:
        """Reports a job of another stream that conflicts with the next job of this stream."""
        if (use := self.range.race(stream)) is not None:
            where = f"{self.range.name} is {self.range.address:#x}"
            report(title, race_between_streams(where, use, stream), RT_INVALID)

    def never_written(self) -> str | None:
        """The fault when this side is device memory with bytes that were never written, or None."""
        fault = self.range.block.never_written(self.range.cells) if self.device else None
        return f"{self.range.name} {fault}" if fault else None

    def mark_written(self) -> None:
        if self.device:
            self.range.block.written.mark(self.range.cells)


def race_between_streams(where: str, use: Use, stream: Stream) -> str:
    return (
        f"{where}, memory that {use.describe()}, and {stream} does not wait for that; "
        "call aclrtRecordEvent there and aclrtStreamWaitEvent here first."
    )


def _on_device(kind: int, dst: Any, src: Any) -> tuple[bool, bool]:
    """Whether the target, and the source, must be device memory. Raises Refused if `kind` is wrong."""
    known = _is_device(dst), _is_device(src)
    if kind == _DEFAULT:
        return bool(known[0]), bool(known[1])
    expected = _DIRECTIONS[int(kind)]
    actual = tuple(e if k is None else k for k, e in zip(known, expected, strict=True))
    if actual == expected:
        return expected
    name, value, device = ("dst", dst, actual[0]) if actual[0] != expected[0] else ("src", src, actual[1])
    where, other = ("device memory", "host") if device else ("host memory", "device")
    if not device and is_int(value):
        where = "in no block that aclrtMalloc gave out"
    what = f"{value:#x}" if is_int(value) else describe(value)
    fitting = _NAMES[next(code for code, pair in _DIRECTIONS.items() if pair == actual)]
    must = f"kind must be {fitting}, or {name} must be {other} memory."
    raise Refused(RT_INVALID, f"{name} is {what}, {where}, and kind is {_NAMES[int(kind)]}; {must}")


def _is_device(side: Any) -> bool | None:
    """Whether a side is device memory; None when that can't be known."""
    if isinstance(side, np.ndarray):
        return False
    if not is_int(side) or not 0 < side < 2**64:
        return None
    if MEMORY.find(int(side)) is not None:
        return True
    return None if is_guarded(int(side)) or MEMORY.freed_block(int(side)) else False


def _side(name: str, side: Any, count: int, *, device: bool, writes: bool) -> Side:
    """The bytes of one side. `device` is true when it must be device memory. Raises Refused."""
    is_array = isinstance(side, np.ndarray) and not device
    if not is_array and not (is_int(side) and side > 0):
        must = "a device address" if device else "a NumPy array or an address"
        raise Refused(RT_INVALID, f"{name} is {describe(side)}; it must be {must}.")
    memory = MEMORY if device else HOST_MEMORY
    block = None if is_array else memory.find(int(side))
    if block is not None and block.contains(int(side), count):
        data = block.bytes_at(int(side), count)
        return Side(Range(name, block, block.cells(int(side), count), writes), data, device)
    if device or block is not None:
        raise Refused(RT_INVALID, f"{name} {memory.fault(int(side), count)}")
    data = _array_bytes(name, side, count, writes=writes) if is_array else _bytes_at(name, int(side), count)
    address = int(data.__array_interface__["data"][0])
    cells = OTHER_HOST_MEMORY.cells(address, count)
    return Side(Range(name, OTHER_HOST_MEMORY, cells, writes), data, False)


def _array_bytes(name: str, array: Any, count: int, *, writes: bool) -> Bytes:
    if array.dtype.hasobject:
        raise Refused(RT_INVALID, f"{name} is an array of Python objects; it must hold plain data.")
    array = np.asarray(array)
    if not array.flags.c_contiguous:
        text = f"{name} is an array with strides {array.strides}; it must be C-contiguous."
        raise Refused(RT_INVALID, text)
    if count > array.nbytes:
        must = f"the call needs {count} bytes, and it must hold them."
        raise Refused(RT_INVALID, f"{name} is an array of {array.nbytes} bytes; {must}")
    if writes and not array.flags.writeable:
        raise Refused(RT_INVALID, f"{name} is a read-only array; it must be writable.")
    data: Bytes = array.reshape(-1).view(np.uint8)[:count]
    return data


def _bytes_at(name: str, address: int, count: int) -> Bytes:
    if address + count > 2**64:
        must = "it must be an address of this machine."
        raise Refused(RT_INVALID, f"{name} is {address:#x}, and the call needs {count} bytes; {must}")
    if is_guarded(address):
        must = "be host memory in this direction of copy"
        raise Refused(RT_INVALID, f"{name} {MEMORY.fault(address, count, must)}")
    memory = memoryview((ctypes.c_uint8 * count).from_address(address))  # np.ctypeslib would be imported here
    return np.frombuffer(memory, np.uint8)


def _require_counts(name: str, max_count: Any, count: Any) -> None:
    for argument, value in ((name, max_count), ("count", count)):
        if not is_int(value) or value < 0:
            raise Refused(RT_INVALID, f"{argument} is {value!r:.40}; it must be an int of at least 0.")
    if count > max_count:
        raise Refused(RT_INVALID, f"count is {count}; it must be at most {name}, {max_count}.")


def _sides(dst: Any, destMax: Any, src: Any, count: Any, kind: Any) -> tuple[Side, Side] | None:
    """The target and the source; None when there is nothing to copy. Raises Refused."""
    require_code("kind", kind, _KINDS)
    _require_counts("destMax", destMax, count)
    if count == 0:
        return None
    to_device, from_device = _on_device(kind, dst, src)
    target = _side("dst", dst, int(count), device=to_device, writes=True)
    return target, _side("src", src, int(count), device=from_device, writes=False)


@entry_point(int)
def aclrtMemcpy(dst: Any, destMax: int, src: Any, count: int, kind: int) -> int:
    """Copy `count` bytes. A device side is an address, a host side an array or an address."""
    current_context()
    if (sides := _sides(dst, destMax, src, count, kind)) is None:
        return 0
    target, source = sides
    target.range.report_missing_wait("aclrtMemcpy")
    if not source.range.report_missing_wait("aclrtMemcpy") and (fault := source.never_written()):
        report("aclrtMemcpy", fault, RT_INVALID)
    _copy(target, source)
    return 0


def _copy(target: Side, source: Side) -> None:
    shared = np.may_share_memory(target.data, source.data)
    target.data[:] = source.data.copy() if shared else source.data
    target.mark_written()


def _fill(target: Side, value: int) -> None:
    target.data[:] = int(value) & 255
    target.mark_written()


@entry_point(int)
def aclrtMemcpyAsync(dst: Any, destMax: int, src: Any, count: int, kind: int, stream: Stream | None) -> int:
    """Queue a copy on a stream. The host side must live until the stream has done it."""
    title = "aclrtMemcpyAsync"
    with STATE.lock:
        queue = live_stream(stream)
        if (sides := _sides(dst, destMax, src, count, kind)) is None:
            return 0
        target, source = sides
        checks = STATE.checks

        def run() -> None:
            if fault := source.never_written():
                report(title, fault, INTERNAL, checks)
            _copy(target, source)

        _submit(title, queue, run, target, source)
    return 0


def _submit(title: str, stream: Stream, run: Callable[[], None], *sides: Side) -> None:
    """Submit the job `run`, which uses the memory of these sides, if that memory still exists then."""
    for side in sides:
        side.report_race(title, stream)
    checks = STATE.checks

    def run_if_alive() -> None:
        for side in sides:
            if not side.range.block.alive:
                what = f"{side.range.name} is {side.range.address:#x}, in a block that was freed"
                must = "it must live until the stream is done."
                report(title, f"{what} before the stream reached it; {must}", INTERNAL, checks)
                return
        run()

    quick = sides[0].data.nbytes <= QUICK_BYTES
    job = stream.require_submit(Job(title, run_if_alive, quick=quick), RT_INVALID)
    for side in sides:
        side.range.add_use(title, stream, job)


def _filled(devPtr: Any, maxCount: Any, value: Any, count: Any) -> Side | None:
    """The memory to fill; None when it is empty. Raises Refused."""
    _require_counts("maxCount", maxCount, count)
    if not is_int(value) or value not in range(-(2**31), 2**31):
        raise Refused(ACL_INVALID, f"value is {value!r:.40}; it must be an int, whose low 8 bits count.")
    if count == 0:
        return None
    return _side("devPtr", devPtr, int(count), device=_is_device(devPtr) is not False, writes=True)


@entry_point(int)
def aclrtMemset(devPtr: Any, maxCount: int, value: int, count: int) -> int:
    """Fill `count` bytes of device or host memory with the low byte of `value`."""
    current_context()
    if (target := _filled(devPtr, maxCount, value, count)) is not None:
        target.range.report_missing_wait("aclrtMemset")
        _fill(target, value)
    return 0


@entry_point(int)
def aclrtMemsetAsync(devPtr: Any, maxCount: int, value: int, count: int, stream: Stream | None) -> int:
    """Queue a fill on a stream."""
    with STATE.lock:
        queue = live_stream(stream)
        if (target := _filled(devPtr, maxCount, value, count)) is not None:
            _submit("aclrtMemsetAsync", queue, partial(_fill, target, value), target)
    return 0
