"""The functions of the runtime, under their C names. C out-parameters come first, the status last."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, ERRORS
from .memory import MEMORY, host_bytes
from .state import (
    BAD_ALLOC,
    ENVIRONMENT_FAULT,
    INVALID,
    RT_INVALID,
    STATE,
    Refused,
    describe,
    entry_point,
    require_running,
    say,
    set_checks,
    set_message,
    set_product,
    take_message,
)
from .stream import STREAMS, Stream

_KINDS = ENUMS["aclrtMemcpyKind"]
_POLICIES = ENUMS["aclrtMemMallocPolicy"]


@entry_point(int, needs_init=False)
def aclInit(configPath: str | None) -> int:
    """Start the runtime. `configPath` is None or a JSON file: {"product": …, "checks": …}."""
    with STATE.lock:
        if STATE.initialized:
            text = "it was called before; call aclFinalize first."
            raise Refused(ERRORS["ACL_ERROR_REPEAT_INITIALIZE"], text)
        if ENVIRONMENT_FAULT:
            raise Refused(INVALID, ENVIRONMENT_FAULT)
        if configPath is not None:
            _configure(configPath)
        STATE.initialized, STATE.finalized, STATE.forked = True, False, False
        STATE.options.clear()
    return 0


def _configure(path: str) -> None:
    """Apply the settings of a JSON file. Raises Refused, and changes no setting, for a bad file."""
    if not isinstance(path, str):
        text = f"configPath is {describe(path)}; it must be null or the path of a JSON file."
        raise Refused(INVALID, text)
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        text = f"configPath is {path!r}, which can't be read as JSON ({error}); it must be a JSON file."
        raise Refused(INVALID, text) from None
    if not isinstance(config, dict):
        text = f"configPath is {path!r}, which holds no JSON object; it must hold one."
        raise Refused(INVALID, text)
    setters = {"product": set_product, "checks": set_checks}
    before = STATE.product, STATE.checks
    try:
        for key, setter in setters.items():
            if key in config:
                setter(config[key])
    except (ValueError, TypeError) as error:
        STATE.product, STATE.checks = before
        raise Refused(INVALID, f"configPath is {path!r}: {error}") from None
    if (ignored := sorted(config.keys() - setters.keys())) and STATE.checks != "off":
        say(f"aclInit: {path} sets {', '.join(ignored)}, which pooltide does not know and ignores")


@entry_point(int, needs_init=False)
def aclFinalize() -> int:
    """Finish all streams and free all device memory."""
    with STATE.lock:
        if STATE.finalized:
            text = "it was called before; call aclInit first."
            raise Refused(ERRORS["ACL_ERROR_REPEAT_FINALIZE"], text)
        require_running()
        STATE.initialized, STATE.finalized = False, True
    STREAMS.close_all()
    MEMORY.clear()
    return 0


@entry_point(int)
def aclrtSetDevice(deviceId: int) -> int:
    return _require_device(deviceId)


@entry_point(int)
def aclrtResetDevice(deviceId: int) -> int:
    """Wait for all jobs of all streams."""
    _require_device(deviceId)
    for stream in STREAMS.live():
        stream.wait()
    return 0


def _require_device(device: Any) -> int:
    if not is_int(device) or device != 0:
        text = f"deviceId is {device!r:.40}; this machine stands in for one device, so it must be 0."
        raise Refused(RT_INVALID, text)
    return 0


@entry_point(lambda status: (None, status), needs_init=False)
def aclrtCreateStream() -> tuple[Stream | None, int]:
    with STATE.lock:  # another thread may call aclFinalize, which closes the streams that exist then
        require_running()
        return STREAMS.create(), 0


@entry_point(int)
def aclrtDestroyStream(stream: Stream | None) -> int:
    """Finish the queued jobs, then end the stream."""
    if stream is None:
        raise Refused(RT_INVALID, "stream is null; it must be a stream of aclrtCreateStream.")
    STREAMS.destroy(live_stream(stream, RT_INVALID))
    return 0


@entry_point(int)
def aclrtSynchronizeStream(stream: Stream | None) -> int:
    """Wait for the stream; the status of the first job that failed. None is the default stream."""
    failure = live_stream(stream, RT_INVALID).synchronize()
    if failure is None:
        return 0
    set_message(failure.message)
    return failure.status


def live_stream(stream: Any, status: int) -> Stream:
    """The stream of a handle; None is the default stream. Raises Refused with this status."""
    if stream is None:
        return STREAMS.default()
    if isinstance(stream, Stream) and stream.alive:
        return stream
    what = "was destroyed" if isinstance(stream, Stream) else f"is {describe(stream)}"
    raise Refused(status, f"stream {what}; it must be a stream of aclrtCreateStream.")


@entry_point(lambda status: (None, status))
def aclrtMalloc(size: int, policy: int) -> tuple[int | None, int]:
    """Allocate device memory of `size` bytes; returns its address. The policy has no effect."""
    if not is_int(size) or size <= 0:
        raise Refused(RT_INVALID, f"size is {size!r:.40}; it must be an int greater than 0.")
    _require_code("policy", policy, _POLICIES)
    try:
        return MEMORY.allocate(int(size)).address, 0
    except (MemoryError, ValueError, OverflowError):
        text = f"size is {size}; it must be at most the free memory of this machine."
        raise Refused(BAD_ALLOC, text) from None


@entry_point(int)
def aclrtFree(devPtr: int | None) -> int:
    if not is_int(devPtr):
        raise Refused(RT_INVALID, f"devPtr is {describe(devPtr)}; it must be an address of aclrtMalloc.")
    if fault := MEMORY.free(int(devPtr)):
        raise Refused(RT_INVALID, f"devPtr {fault}")
    return 0


@entry_point(int)
def aclrtMemcpy(dst: Any, destMax: int, src: Any, count: int, kind: int) -> int:
    """Copy `count` bytes. A device side is an address, a host side an array or an address."""
    _require_code("kind", kind, _KINDS)
    for name, value in (("destMax", destMax), ("count", count)):
        if not is_int(value) or value < 0:
            raise Refused(RT_INVALID, f"{name} is {value!r:.40}; it must be an int of at least 0.")
    if count > destMax:
        raise Refused(RT_INVALID, f"count is {count}; it must be at most destMax, {destMax}.")
    if count == 0:
        return 0
    to_device = kind in (_KINDS["ACL_MEMCPY_HOST_TO_DEVICE"], _KINDS["ACL_MEMCPY_DEVICE_TO_DEVICE"])
    from_device = kind in (_KINDS["ACL_MEMCPY_DEVICE_TO_HOST"], _KINDS["ACL_MEMCPY_DEVICE_TO_DEVICE"])
    target = _side("dst", dst, int(count), device=to_device)
    source = _side("src", src, int(count), device=from_device)
    if from_device and (fault := MEMORY.never_written(int(src), int(count))):
        if STATE.checks == "strict":
            raise Refused(RT_INVALID, f"src {fault}")
        if STATE.checks == "warn":
            say(f"aclrtMemcpy: src {fault}")
    target[:] = source.copy() if np.may_share_memory(target, source) else source
    if to_device:
        MEMORY.mark(int(dst), int(count))
    return 0


def _side(name: str, side: Any, count: int, *, device: bool) -> NDArray[Any]:
    """The bytes of one side of a copy. `device` is true when that side must be device memory."""
    is_array = isinstance(side, np.ndarray) and not device
    if not is_array and not (is_int(side) and side > 0):
        must = "a device address" if device else "a NumPy array or an address"
        raise Refused(RT_INVALID, f"{name} is {describe(side)}; it must be {must}.")
    if device:
        address = int(side)
        data = MEMORY.range(address, count)
        found = MEMORY.fault(address, count) if data is None else data
    else:
        found = host_bytes(side, count, write=name == "dst")
    if isinstance(found, str):
        raise Refused(RT_INVALID, f"{name} {found}")
    return found


@entry_point(int)
def aclrtCtxSetSysParamOpt(opt: int, value: int) -> int:
    """Store an option. Results are deterministic at every value of ACL_OPT_DETERMINISTIC."""
    _require_code("opt", opt, ENUMS["aclSysParamOpt"])
    if not is_int(value) or value not in range(4):
        must = "it must be 0, 1, 2 (position-independent) or 3 (batch-consistent)."
        raise Refused(INVALID, f"value is {value!r:.40}; {must}")
    STATE.options[int(opt)] = int(value)
    return 0


@entry_point(lambda status: (0, status))
def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int, int]:
    _require_code("opt", opt, ENUMS["aclSysParamOpt"])
    return STATE.options.get(int(opt), 0), 0


def _require_code(name: str, value: Any, codes: dict[str, int]) -> None:
    if not is_int(value) or value not in codes.values():
        known = ", ".join(f"{constant} ({code})" for constant, code in codes.items())
        raise Refused(INVALID, f"{name} is {value!r:.40}; it must be one of {known}.")


def aclGetRecentErrMsg() -> str | None:
    """The message of the calling thread's last failure, which is cleared; None when there is none."""
    return take_message()
