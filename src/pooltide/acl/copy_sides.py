"""Takes the arguments of a call that copies or fills memory: addresses, NumPy arrays, sizes, a direction.

Returns the target and the source as ranges of blocks with their bytes, or refuses the call. It must not copy,
nor submit jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.call import is_int
from ..operators.dtypes import ENUMS
from .addresses import is_guarded
from .error_reports import ACL_INVALID, RT_INVALID, Refused, describe, report, require_code
from .memory_blocks import HOST_MEMORY, MEMORY, OTHER_HOST_MEMORY, Range, host_bytes
from .races import Use
from .state import EDITIONS, STATE, edition_from
from .stream_queue import Stream
from .written_bytes import Cells

Bytes = NDArray[np.uint8]
_KINDS = ENUMS["aclrtMemcpyKind"]
_DEFAULT = _KINDS["ACL_MEMCPY_DEFAULT"]
HOST_TO_HOST = _KINDS["ACL_MEMCPY_HOST_TO_HOST"]
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
KIND_NAMES = {code: name for name, code in _KINDS.items()}

_ROW_KINDS = (_KINDS["ACL_MEMCPY_HOST_TO_DEVICE"], _KINDS["ACL_MEMCPY_DEVICE_TO_HOST"], _DEFAULT)
_MAX_ROWS = 5 << 20  # of a copy of rows, as CANN's pages say


@dataclass(frozen=True, slots=True)
class Side:
    """The source or the target of a copy, or the target of a fill."""

    range: Range
    data: Bytes
    device: bool

    @property
    def pageable(self) -> bool:
        """Whether this side is host memory that the system may move, so that no device can copy it later."""
        return self.range.block is OTHER_HOST_MEMORY

    def report_race(self, title: str, stream: Stream) -> None:
        """Reports a job of another stream that conflicts with the next job of this stream."""
        if (use := self.range.race(stream)) is not None:
            where = f"{self.range.name} is {self.range.address:#x}"
            origins = (use.origin, *self.range.block.origins)
            report(title, race_between_streams(where, use, stream), RT_INVALID, origins=origins)

    def never_written(self) -> str | None:
        """The fault when this side is device memory with bytes that were never written, or None."""
        fault = self.range.block.never_written(self.range.cells) if self.device else None
        return f"{self.range.name} {fault}" if fault else None

    def mark_written(self) -> None:
        if self.device:
            self.range.block.written.mark(self.range.cells)

    def rows(self, pitch: int, width: int, height: int) -> Side:
        """The part of this side that is `height` rows of `width` bytes, `pitch` bytes apart."""
        old = self.range.cells
        cells = Cells(old.low, old.low, old.high, (height, width), (pitch, 1), 1)
        data = np.lib.stride_tricks.as_strided(self.data, (height, width), (pitch, 1))
        return Side(replace(self.range, cells=cells), data, self.device)


def race_between_streams(where: str, use: Use, stream: Stream) -> str:
    return (
        f"{where}, memory that {use.describe()}, and {stream} does not wait for that; "
        "call aclrtRecordEvent there and aclrtStreamWaitEvent here first."
    )


def _on_device(kind: int, dst: Any, src: Any) -> tuple[bool, bool]:
    """Whether the target, and the source, must be device memory. Raises Refused if `kind` is wrong."""
    known = is_device(dst), is_device(src)
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
    fitting = KIND_NAMES[next(code for code, pair in _DIRECTIONS.items() if pair == actual)]
    must = f"kind must be {fitting}, or {name} must be {other} memory."
    raise Refused(RT_INVALID, f"{name} is {what}, {where}, and kind is {KIND_NAMES[int(kind)]}; {must}")


def is_device(side: Any) -> bool | None:
    """Whether a side is device memory; None when that can't be known."""
    if isinstance(side, np.ndarray):
        return False
    if not is_int(side) or not 0 < side < 2**64:
        return None
    if MEMORY.find(int(side)) is not None:
        return True
    if HOST_MEMORY.find(int(side)) is not None:
        return False
    return None if is_guarded(int(side)) or MEMORY.freed_block(int(side)) else False


def _side(name: str, side: Any, count: int, *, device: bool, writes: bool) -> Side:
    """The bytes of one side. `device` is true when it must be device memory. Raises Refused."""
    is_array = isinstance(side, np.ndarray) and not device
    if not is_array and not (is_int(side) and side > 0):
        must = "a device address" if device else "a NumPy array or an address"
        raise Refused(RT_INVALID, f"{name} is {describe(side)}; it must be {must}.")
    memory = MEMORY if device else HOST_MEMORY
    block = None if is_array else memory.find(int(side))
    if block is not None and block.registered:
        must = "a copy must use the address of the host memory."
        raise Refused(RT_INVALID, f"{name} is {side:#x}, an address of aclrtHostRegister; {must}")
    if block is not None and block.contains(int(side), count):
        data = block.bytes_at(int(side), count)
        return Side(Range(name, block, block.cells(int(side), count), writes), data, device)
    if device or block is not None:
        raise Refused(RT_INVALID, f"{name} {memory.fault(int(side), count)}", memory.origins(int(side)))
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
    return host_bytes(address, count)


def _require_counts(name: str, max_count: Any, count: Any) -> None:
    for argument, value in ((name, max_count), ("count", count)):
        if not is_int(value) or value < 0:
            raise Refused(RT_INVALID, f"{argument} is {value!r:.40}; it must be an int of at least 0.")
    if count > max_count:
        raise Refused(RT_INVALID, f"count is {count}; it must be at most {name}, {max_count}.")


def require_kind(kind: Any) -> None:
    require_code("kind", kind, _KINDS)
    first = "8.2" if kind > _DEFAULT else "8.0" if kind == _DEFAULT else EDITIONS[0]
    if not edition_from(first):
        what = f"kind is {kind}, {KIND_NAMES[int(kind)]}, which came with CANN {first}"
        raise Refused(ACL_INVALID, f"{what}; in CANN {STATE.edition} it must be another.")


def copy_sides(dst: Any, destMax: Any, src: Any, count: Any, kind: Any) -> tuple[Side, Side] | None:
    """The target and the source; None when there is nothing to copy. Raises Refused."""
    require_kind(kind)
    _require_counts("destMax", destMax, count)
    if count == 0:
        return None
    to_device, from_device = _on_device(kind, dst, src)
    target = _side("dst", dst, int(count), device=to_device, writes=True)
    return target, _side("src", src, int(count), device=from_device, writes=False)


def copy_rows(
    dst: Any, dpitch: Any, src: Any, spitch: Any, width: Any, height: Any, kind: Any
) -> tuple[Side, Side] | None:
    """The target and the source of a copy of rows; None when there is nothing to copy. Raises Refused."""
    require_kind(kind)
    if kind not in _ROW_KINDS:
        known = ", ".join(KIND_NAMES[code] for code in _ROW_KINDS)
        raise Refused(RT_INVALID, f"kind is {KIND_NAMES[int(kind)]}; it must be one of {known}.")
    numbers = {"dpitch": dpitch, "spitch": spitch, "width": width, "height": height}
    for name, value in numbers.items():
        if not is_int(value) or not 0 <= value < 2**63:
            raise Refused(RT_INVALID, f"{name} is {value!r:.40}; it must be an int of at least 0.")
    for name in ("dpitch", "spitch"):
        if numbers[name] < width:
            raise Refused(RT_INVALID, f"{name} is {numbers[name]}; it must be at least width, {width}.")
    if height > _MAX_ROWS:
        raise Refused(RT_INVALID, f"height is {height}; it must be at most {_MAX_ROWS}.")
    if width == 0 or height == 0:
        return None
    to_device, from_device = _on_device(kind, dst, src)
    spans = [int(pitch) * (int(height) - 1) + int(width) for pitch in (dpitch, spitch)]
    target = _side("dst", dst, spans[0], device=to_device, writes=True)
    source = _side("src", src, spans[1], device=from_device, writes=False)
    sizes = int(width), int(height)
    return target.rows(int(dpitch), *sizes), source.rows(int(spitch), *sizes)


def filled(devPtr: Any, maxCount: Any, value: Any, count: Any) -> Side | None:
    """The memory to fill; None when it is empty. Raises Refused."""
    _require_counts("maxCount", maxCount, count)
    if not is_int(value) or value not in range(-(2**31), 2**31):
        raise Refused(ACL_INVALID, f"value is {value!r:.40}; it must be an int, whose low 8 bits count.")
    if count == 0:
        return None
    return _side("devPtr", devPtr, int(count), device=is_device(devPtr) is not False, writes=True)
