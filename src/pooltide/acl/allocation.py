"""Takes calls that allocate and free memory of the device or of the host, or register memory of the host.

Returns addresses and statuses. It must not touch the data.
"""

from __future__ import annotations

import os
from typing import Any

from ..operators.call import is_int
from ..operators.dtypes import ENUMS
from .addresses import is_guarded
from .contexts import CONTEXTS, current_context, report_after_reset
from .error_reports import (
    ACL_INVALID,
    BAD_ALLOC,
    RT_INVALID,
    Refused,
    describe,
    entry_point,
    report,
    require_code,
)
from .memory_blocks import HOST_MEMORY, MEMORY, Block, Memory, free, host_bytes
from .state import STATE, edition_from

_POLICIES = ENUMS["aclrtMemMallocPolicy"]
_FLAGS = sum(code for code in _POLICIES.values() if code >= 0x100)  # may be added to the first policies
_PLAIN_POLICIES = 3  # codes below this may have flags
_LAST_OF_8 = ENUMS["aclrtMemAttr"]["ACL_HBM_MEM_P2P_HUGE1G"]
_PAGE = 4096  # of host memory that is registered
_registered: dict[int, Block] = {}  # by the address of the host memory


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
def aclrtMallocWithCfg(size: int, policy: int, cfg: Any) -> tuple[int | None, int]:
    """The same as aclrtMalloc. The configuration has no effect."""
    return _allocate(MEMORY, size, policy)


@entry_point(lambda status: (None, status))
def aclrtMallocHostWithCfg(size: int, cfg: Any) -> tuple[int | None, int]:
    """The same as aclrtMallocHost. The configuration has no effect."""
    return _allocate(HOST_MEMORY, size, 0)


@entry_point(lambda status: (None, status))
def aclrtMallocHost(size: int) -> tuple[int | None, int]:
    """Allocate host memory of `size` bytes; returns its address."""
    return _allocate(HOST_MEMORY, size, 0)


def _allocate(memory: Memory, size: Any, policy: Any) -> tuple[int, int]:
    if not is_int(size) or size <= 0:
        raise Refused(RT_INVALID, f"size is {size!r:.40}; it must be an int greater than 0.")
    plain = int(policy) & ~_FLAGS if is_int(policy) and policy >= 0 else -1
    require_code("policy", plain if plain in range(_PLAIN_POLICIES) else policy, _POLICIES)
    device = current_context().device
    try:
        return memory.allocate(int(size), device).address, 0
    except (MemoryError, ValueError, OverflowError):
        text = f"size is {size}; it must be at most the free memory of this machine."
        raise Refused(BAD_ALLOC, text) from None


@entry_point(int)
def aclrtFree(devPtr: int | None) -> int:
    if CONTEXTS.current() is None:
        report_after_reset("aclrtFree")
    if is_int(devPtr) and (block := MEMORY.starts(int(devPtr))) is not None and block.registered:
        what = f"devPtr is {devPtr:#x}, an address of aclrtHostRegister"
        must = "it must be ended by aclrtHostUnregister, with the address of the host memory."
        raise Refused(RT_INVALID, f"{what}; {must}", block.origins)
    return free("aclrtFree", "devPtr", devPtr, MEMORY, "aclrtMalloc")


@entry_point(int)
def aclrtFreeHost(hostPtr: int | None) -> int:
    if is_int(hostPtr) and (block := HOST_MEMORY.starts(int(hostPtr))) is not None:
        for at in [at for at in _registered if block.contains(at, 1) and _registered_at(at)]:
            must = "call aclrtHostUnregister first."
            text = f"hostPtr is {hostPtr:#x}, and {at:#x} in its block is registered; {must}"
            report("aclrtFreeHost", text, RT_INVALID, origins=_registered[at].origins)
    return free("aclrtFreeHost", "hostPtr", hostPtr, HOST_MEMORY, "aclrtMallocHost")


@entry_point(lambda status: (None, status))
def aclrtHostRegister(ptr: int | None, size: int, type: int) -> tuple[int | None, int]:
    """A device address of host memory, for kernels, but not for copies. It begins at a page of memory.

    The host memory stays what it was: copies of memory that aclrtMallocHost did not give out wait.
    """
    if not is_int(ptr) or not 0 < ptr < 2**64:
        raise Refused(RT_INVALID, f"ptr is {describe(ptr)}; it must be an address of host memory.")
    if not is_int(size) or not 0 < size <= 2**64 - ptr:
        raise Refused(RT_INVALID, f"size is {size!r:.40}; it must be an int greater than 0.")
    require_code("type", type, ENUMS["aclrtHostRegisterType"])
    device = current_context().device
    at, count = int(ptr), int(size)
    if MEMORY.find(at) is not None or (is_guarded(at) and HOST_MEMORY.find(at) is None):
        raise Refused(RT_INVALID, f"ptr is {at:#x}, device memory; it must be host memory.")
    block = HOST_MEMORY.find(at)
    if block is None and at % _PAGE:
        raise Refused(RT_INVALID, f"ptr is {at:#x}; it must be a multiple of {_PAGE}.")
    if block is not None and not block.contains(at, count):
        raise Refused(RT_INVALID, f"ptr {HOST_MEMORY.fault(at, count)}", block.origins)
    if (known := _registered_at(at)) is not None:
        text = f"ptr is {at:#x}, which was registered; call aclrtHostUnregister first."
        raise Refused(RT_INVALID, text, known.origins)
    data = host_bytes(at, count) if block is None else block.bytes_at(at, count)
    _registered[at] = MEMORY.register(data, device)
    return _registered[at].address, 0


def _registered_at(address: int) -> Block | None:
    """The device memory of registered host memory that starts here; None if there is none."""
    block = _registered.get(address)
    return block if block is not None and MEMORY.starts(block.address) is block else None


@entry_point(int)
def aclrtHostUnregister(ptr: int | None) -> int:
    """End what aclrtHostRegister began."""
    block = _registered_at(int(ptr)) if is_int(ptr) else None
    if block is None:
        what = f"{ptr:#x}" if is_int(ptr) else describe(ptr)
        raise Refused(RT_INVALID, f"ptr is {what}; it must be an address that was registered.")
    free("aclrtHostUnregister", "ptr", block.address, MEMORY, "aclrtHostRegister")
    del _registered[int(ptr)]  # type: ignore[arg-type]
    return 0


@entry_point(lambda status: (0, 0, status))
def aclrtGetMemInfo(attr: int) -> tuple[int, int, int]:
    """(free, total) bytes of this machine's memory, whatever the attribute."""
    require_code("attr", attr, ENUMS["aclrtMemAttr"])
    if attr > _LAST_OF_8 and not edition_from("9.0"):
        must = f"in CANN {STATE.edition} it must be at most {_LAST_OF_8}."
        raise Refused(ACL_INVALID, f"attr is {attr}, which came with CANN 9.0; {must}")
    current_context()
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page, 0
