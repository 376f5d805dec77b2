"""The functions for memory: allocate, free, copy, fill. C out-parameters come first, the status last."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..operators.call import is_int
from ..operators.dtypes import ENUMS
from .contexts import live_stream, require_context
from .memory import HOST_MEMORY, MEMORY, Memory
from .sides import KINDS, Side, directions, find_side, is_device
from .state import (
    BAD_ALLOC,
    INTERNAL,
    INVALID,
    RT_INVALID,
    STATE,
    Refused,
    describe,
    entry_point,
    report,
    require_code,
    say,
)
from .stream import QUICK_BYTES, Job, Stream

_POLICIES = ENUMS["aclrtMemMallocPolicy"]
_FLAGS = sum(code for code in _POLICIES.values() if code >= 0x100)  # may be added to the first policies
_PLAIN_POLICIES = 3  # codes below this may have flags


@entry_point(lambda status: (None, status))
def aclrtMalloc(size: int, policy: int) -> tuple[int | None, int]:
    """Allocate device memory of `size` bytes; returns its address. The policy has no effect."""
    return _allocate(MEMORY, size, policy)


@entry_point(lambda status: (None, status))
def aclrtMallocAlign32(size: int, policy: int) -> tuple[int | None, int]:
    """The same as aclrtMalloc."""
    return _allocate(MEMORY, size, policy)


@entry_point(lambda status: (None, status))
def aclrtMallocCached(size: int, policy: int) -> tuple[int | None, int]:
    """The same as aclrtMalloc."""
    return _allocate(MEMORY, size, policy)


@entry_point(lambda status: (None, status))
def aclrtMallocHost(size: int) -> tuple[int | None, int]:
    """Allocate host memory of `size` bytes; returns its address."""
    return _allocate(HOST_MEMORY, size, 0)


def _allocate(memory: Memory, size: Any, policy: Any) -> tuple[int, int]:
    if not is_int(size) or size <= 0:
        raise Refused(RT_INVALID, f"size is {size!r:.40}; it must be an int greater than 0.")
    plain = int(policy) & ~_FLAGS if is_int(policy) and policy >= 0 else -1
    require_code("policy", plain if plain in range(_PLAIN_POLICIES) else policy, _POLICIES)
    require_context()
    try:
        return memory.allocate(int(size)).address, 0
    except (MemoryError, ValueError, OverflowError):
        text = f"size is {size}; it must be at most the free memory of this machine."
        raise Refused(BAD_ALLOC, text) from None


@entry_point(int)
def aclrtFree(devPtr: int | None) -> int:
    return free("aclrtFree", "devPtr", devPtr, MEMORY, "aclrtMalloc")


@entry_point(int)
def aclrtFreeHost(hostPtr: int | None) -> int:
    return free("aclrtFreeHost", "hostPtr", hostPtr, HOST_MEMORY, "aclrtMallocHost")


def free(title: str, name: str, address: Any, memory: Memory, maker: str) -> int:
    """Free a block. A job that still uses the block is a finding; the call waits for it."""
    if not is_int(address):
        raise Refused(RT_INVALID, f"{name} is {describe(address)}; it must be an address of {maker}.")
    if (block := memory.starts(int(address))) is not None:
        side = find_side(name, address, block.size, device=memory is MEMORY, writes=True)
        if side.forgotten_wait(title, writes=True):
            for stream in block.uses.streams():
                stream.wait()
    if fault := memory.free(int(address)):
        raise Refused(RT_INVALID, f"{name} {fault}")
    return 0


def _require_counts(name: str, most: Any, count: Any) -> None:
    for argument, value in ((name, most), ("count", count)):
        if not is_int(value) or value < 0:
            raise Refused(RT_INVALID, f"{argument} is {value!r:.40}; it must be an int of at least 0.")
    if count > most:
        raise Refused(RT_INVALID, f"count is {count}; it must be at most {name}, {most}.")


def _sides(dst: Any, destMax: Any, src: Any, count: Any, kind: Any) -> tuple[Side, Side] | None:
    """The target and the source; None when there is nothing to copy. Raises Refused."""
    require_code("kind", kind, KINDS)
    _require_counts("destMax", destMax, count)
    if count == 0:
        return None
    to_device, from_device = directions(kind, dst, src)
    target = find_side("dst", dst, int(count), device=to_device, writes=True)
    return target, find_side("src", src, int(count), device=from_device, writes=False)


@entry_point(int)
def aclrtMemcpy(dst: Any, destMax: int, src: Any, count: int, kind: int) -> int:
    """Copy `count` bytes. A device side is an address, a host side an array or an address."""
    require_context()
    if (found := _sides(dst, destMax, src, count, kind)) is None:
        return 0
    target, source = found
    target.forgotten_wait("aclrtMemcpy", writes=True)
    if not source.forgotten_wait("aclrtMemcpy", writes=False) and source.device:
        fault = MEMORY.never_written(source.address, int(count))
        if fault:
            report("aclrtMemcpy", f"src {fault}", RT_INVALID)
    _copy(target, source)
    return 0


def _copy(target: Side, source: Side) -> None:
    shared = np.may_share_memory(target.data, source.data)
    target.data[:] = source.data.copy() if shared else source.data
    _mark(target)


def _mark(target: Side) -> None:
    if target.device and target.block is not None:
        target.block.written.mark(target.cells)


@entry_point(int)
def aclrtMemcpyAsync(dst: Any, destMax: int, src: Any, count: int, kind: int, stream: Stream | None) -> int:
    """Queue a copy on a stream. The host side must live until the stream has done it."""
    title = "aclrtMemcpyAsync"
    with STATE.lock:
        queue = live_stream(stream)
        if (found := _sides(dst, destMax, src, count, kind)) is None:
            return 0
        target, source = found
        target.require_order(title, queue, writes=True)
        source.require_order(title, queue, writes=False)
        checks = STATE.checks

        def run() -> None:
            if _usable(title, checks, target, source):
                fault = source.device and MEMORY.never_written(source.address, int(count))
                if fault:
                    _report_late(title, checks, f"src {fault}")
                _copy(target, source)

        job = queue.require_submit(Job(title, run, quick=count <= QUICK_BYTES), RT_INVALID)
        target.add_use(title, queue, job, writes=True)
        source.add_use(title, queue, job, writes=False)
    return 0


def _usable(title: str, checks: str, *sides: Side) -> bool:
    """Whether the memory of all sides still exists when the job runs. If not, that is a finding."""
    for side in sides:
        if side.block is not None and not side.block.alive:
            text = f"{side.name} is {side.address:#x}, in a block that was freed before the stream reached it"
            _report_late(title, checks, f"{text}; it must live until the stream is done.")
            return False
    return True


def _report_late(title: str, checks: str, finding: str) -> None:
    """A finding of a job, by the level of its call."""
    if checks == "strict":
        raise Refused(INTERNAL, finding)
    if checks == "warn":
        say(f"{title}: {finding}")


def _filled(devPtr: Any, maxCount: Any, value: Any, count: Any) -> Side | None:
    """The memory to fill; None when it is empty. Raises Refused."""
    _require_counts("maxCount", maxCount, count)
    if not is_int(value) or value not in range(-(2**31), 2**31):
        raise Refused(INVALID, f"value is {value!r:.40}; it must be an int, whose low 8 bits count.")
    if count == 0:
        return None
    device = is_device(devPtr) is not False
    return find_side("devPtr", devPtr, int(count), device=device, writes=True)


@entry_point(int)
def aclrtMemset(devPtr: Any, maxCount: int, value: int, count: int) -> int:
    """Fill `count` bytes of device or host memory with the low byte of `value`."""
    require_context()
    if (target := _filled(devPtr, maxCount, value, count)) is not None:
        target.forgotten_wait("aclrtMemset", writes=True)
        target.data[:] = int(value) & 255
        _mark(target)
    return 0


@entry_point(int)
def aclrtMemsetAsync(devPtr: Any, maxCount: int, value: int, count: int, stream: Stream | None) -> int:
    """Queue a fill on a stream."""
    title = "aclrtMemsetAsync"
    with STATE.lock:
        queue = live_stream(stream)
        if (target := _filled(devPtr, maxCount, value, count)) is None:
            return 0
        target.require_order(title, queue, writes=True)
        checks, side = STATE.checks, target

        def run() -> None:
            if _usable(title, checks, side):
                side.data[:] = int(value) & 255
                _mark(side)

        job = queue.require_submit(Job(title, run, quick=count <= QUICK_BYTES), RT_INVALID)
        target.add_use(title, queue, job, writes=True)
    return 0


@entry_point(lambda status: (0, 0, status))
def aclrtGetMemInfo(attr: int) -> tuple[int, int, int]:
    """(free, total) bytes of this machine's memory, whatever the attribute."""
    require_code("attr", attr, ENUMS["aclrtMemAttr"])
    require_context()
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page, 0
