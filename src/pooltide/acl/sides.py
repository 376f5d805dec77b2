"""The two sides of a copy, and the memory of a fill: their bytes, and the queued jobs that use them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.call import is_int
from ..operators.dtypes import ENUMS
from .addresses import is_guarded
from .memory import HOST_MEMORY, MEMORY, Block
from .order import HOST, Use, Uses, host_cells
from .state import RT_INVALID, Refused, describe, report
from .stream import Stream
from .written import Cells

Bytes = NDArray[np.uint8]
KINDS = ENUMS["aclrtMemcpyKind"]
_DEFAULT = KINDS["ACL_MEMCPY_DEFAULT"]
# Whether the target, and whether the source, is device memory.
_DIRECTIONS = {
    KINDS["ACL_MEMCPY_HOST_TO_HOST"]: (False, False),
    KINDS["ACL_MEMCPY_HOST_TO_DEVICE"]: (True, False),
    KINDS["ACL_MEMCPY_DEVICE_TO_HOST"]: (False, True),
    KINDS["ACL_MEMCPY_DEVICE_TO_DEVICE"]: (True, True),
    KINDS["ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE"]: (True, False),
    KINDS["ACL_MEMCPY_INNER_DEVICE_TO_DEVICE"]: (True, True),
    KINDS["ACL_MEMCPY_INTER_DEVICE_TO_DEVICE"]: (True, True),
}
_NAMES = {code: name for name, code in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Side:
    name: str  # of the argument
    address: int
    data: Bytes
    block: Block | None  # None: host memory that aclrtMallocHost did not give out
    device: bool
    uses: Uses
    base: int  # the address from which the cells count
    cells: Cells

    def forgotten_wait(self, title: str, *, writes: bool) -> bool:
        """Whether a queued job races with the host's access to this side, which is a finding."""
        use = self.uses.race(self.base, self.cells, writes=writes)
        if use is None:
            return False
        text = (
            f"{self.name} is {self.address:#x}, memory that {use.race()}, and the program has not waited "
            "for that; call aclrtSynchronizeStream first."
        )
        report(title, text, RT_INVALID)
        return True

    def require_order(self, title: str, stream: Stream, *, writes: bool) -> None:
        """Reports a job of another stream that races with the next job of this stream."""
        use = self.uses.race(self.base, self.cells, writes=writes, stream=stream)
        if use is not None:
            report(title, race_between_streams(f"{self.name} is {self.address:#x}", use, stream), RT_INVALID)

    def add_use(self, title: str, stream: Stream, job: int, *, writes: bool) -> None:
        self.uses.add(Use(stream, job, title, self.name, writes, self.base, self.cells))


def race_between_streams(what: str, use: Use, stream: Stream) -> str:
    return (
        f"{what}, memory that {use.race()}, and {stream} does not wait for that; "
        "call aclrtRecordEvent there and aclrtStreamWaitEvent here first."
    )


def directions(kind: int, dst: Any, src: Any) -> tuple[bool, bool]:
    """Whether the target, and the source, must be device memory. Raises Refused if `kind` is wrong."""
    given = is_device(dst), is_device(src)
    if kind == _DEFAULT:
        return bool(given[0]), bool(given[1])
    wanted = _DIRECTIONS[int(kind)]
    right = tuple(w if g is None else g for g, w in zip(given, wanted, strict=True))
    if right == wanted:
        return wanted
    name, value, on_device = ("dst", dst, right[0]) if right[0] != wanted[0] else ("src", src, right[1])
    where, other = ("device memory", "host") if on_device else ("host memory", "device")
    if not on_device and is_int(value):
        where = "in no block that aclrtMalloc gave out"
    what = f"{value:#x}" if is_int(value) else describe(value)
    fitting = _NAMES[next(code for code, pair in _DIRECTIONS.items() if pair == right)]
    must = f"kind must be {fitting}, or {name} must be {other} memory."
    raise Refused(RT_INVALID, f"{name} is {what}, {where}, and kind is {_NAMES[int(kind)]}; {must}")


def is_device(side: Any) -> bool | None:
    """Whether a side is device memory; None when that can't be known."""
    if isinstance(side, np.ndarray):
        return False
    if not is_int(side) or not 0 < side < 2**64:
        return None
    if MEMORY.find(int(side)) is not None:
        return True
    return None if is_guarded(int(side)) or MEMORY.was_freed(int(side)) else False


def find_side(name: str, side: Any, count: int, *, device: bool, writes: bool) -> Side:
    """The bytes of one side. `device` is true when it must be device memory. Raises Refused."""
    is_array = isinstance(side, np.ndarray) and not device
    if not is_array and not (is_int(side) and side > 0):
        must = "a device address" if device else "a NumPy array or an address"
        raise Refused(RT_INVALID, f"{name} is {describe(side)}; it must be {must}.")
    if is_array:
        return _array_side(name, side, count, writes=writes)
    address = int(side)
    memory = MEMORY if device else HOST_MEMORY
    block = memory.find(address)
    if block is not None and block.contains(address, count):
        cells, data = block.cells(address, count), block.bytes_at(address, count)
        return Side(name, address, data, block, device, block.uses, block.address, cells)
    if device or block is not None:
        raise Refused(RT_INVALID, f"{name} {memory.fault(address, count)}")
    return _address_side(name, address, count)


def _array_side(name: str, array: Any, count: int, *, writes: bool) -> Side:
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
    address = int(data.__array_interface__["data"][0])
    return Side(name, address, data, None, False, HOST, 0, host_cells(address, count))


def _address_side(name: str, address: int, count: int) -> Side:
    if address + count > 2**64:
        must = "it must be an address of this machine."
        raise Refused(RT_INVALID, f"{name} is {address:#x}, and the call needs {count} bytes; {must}")
    if is_guarded(address):
        must = "be host memory in this direction of copy"
        raise Refused(RT_INVALID, f"{name} {MEMORY.fault(address, count, must)}")
    memory = memoryview((ctypes.c_uint8 * count).from_address(address))  # np.ctypeslib would be imported here
    data: Bytes = np.frombuffer(memory, np.uint8)
    return Side(name, address, data, None, False, HOST, 0, host_cells(address, count))
