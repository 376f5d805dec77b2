"""The runtime's functions, under their C names. C out-parameters come first, the status last."""

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
    CHECKS,
    DETERMINISTIC,
    ENVIRONMENT_FAULT,
    INVALID,
    RT_INVALID,
    STATE,
    an,
    fail,
    guarded,
    keep_message,
    not_running,
    say,
    set_checks,
    set_product,
    take_message,
)
from .stream import STREAMS, Stream

_KINDS = ENUMS["aclrtMemcpyKind"]


@guarded(int)
def aclInit(configPath: str | None) -> int:
    """Start the runtime. `configPath` is None or a JSON file: {"product": …, "checks": …}."""
    with STATE.lock:
        if STATE.initialized:
            return fail(
                "aclInit", "it was called before; once is enough.", ERRORS["ACL_ERROR_REPEAT_INITIALIZE"]
            )
        if ENVIRONMENT_FAULT:
            return fail("aclInit", ENVIRONMENT_FAULT, INVALID)
        if configPath is not None and (fault := _configure(configPath)):
            return fail("aclInit", fault, INVALID)
        STATE.initialized, STATE.finalized, STATE.forked = True, False, False
        STATE.options.clear()
    return 0


def _configure(path: str) -> str | None:
    if not isinstance(path, str):
        return f"configPath is {an(path)}; it must be null or the path of a JSON file."
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        return f"configPath is {path!r}, which can't be read as JSON ({error}); it must be a JSON file."
    if not isinstance(config, dict):
        return f"configPath is {path!r}, which holds no JSON object; it must hold one."
    known = {"product": set_product, "checks": set_checks}
    before = STATE.product, STATE.checks
    try:
        for key, setter in known.items():
            if key in config:
                setter(config[key])
    except (ValueError, TypeError) as error:
        STATE.product, STATE.checks = before
        return f"configPath is {path!r}: {error}"
    if (ignored := sorted(config.keys() - known.keys())) and STATE.checks != CHECKS[0]:
        say(f"aclInit: {path} sets {', '.join(ignored)}, which mean nothing here and are ignored")
    return None


@guarded(int)
def aclFinalize() -> int:
    """Finish all streams and give all device memory back."""
    with STATE.lock:
        if STATE.finalized:
            return fail("aclFinalize", "it was called before.", ERRORS["ACL_ERROR_REPEAT_FINALIZE"])
        if status := not_running("aclFinalize"):
            return status
        STATE.initialized, STATE.finalized = False, True
    STREAMS.close_all()
    MEMORY.clear()
    return 0


@guarded(int)
def aclrtSetDevice(deviceId: int) -> int:
    return _device("aclrtSetDevice", deviceId)


@guarded(int)
def aclrtResetDevice(deviceId: int) -> int:
    """Wait for everything that runs on the device."""
    if status := _device("aclrtResetDevice", deviceId):
        return status
    for stream in STREAMS.live():
        stream.wait()
    return 0


def _device(title: str, device: Any) -> int:
    if status := not_running(title):
        return status
    if not is_int(device) or device != 0:
        text = f"deviceId is {device!r:.40}; this machine stands in for one device, so it must be 0."
        return fail(title, text, RT_INVALID)
    return 0


@guarded(lambda status: (None, status))
def aclrtCreateStream() -> tuple[Stream | None, int]:
    with STATE.lock:
        if status := not_running("aclrtCreateStream"):
            return None, status
        return STREAMS.create(), 0


@guarded(int)
def aclrtDestroyStream(stream: Stream | None) -> int:
    """Finish what is queued, then end the stream."""
    title = "aclrtDestroyStream"
    if status := not_running(title):
        return status
    if stream is None:
        return fail(title, "stream is null; it must be a stream of aclrtCreateStream.", RT_INVALID)
    if found := dead_stream(stream):
        return fail(title, found, RT_INVALID)
    STREAMS.destroy(stream)
    return 0


@guarded(int)
def aclrtSynchronizeStream(stream: Stream | None) -> int:
    """Wait for the stream; non-zero when something in it failed. None is the default stream."""
    title = "aclrtSynchronizeStream"
    if status := not_running(title):
        return status
    if found := dead_stream(stream):
        return fail(title, found, RT_INVALID)
    failure = (stream or STREAMS.default()).synchronize()
    if failure is None:
        return 0
    keep_message(failure.message)
    return failure.status


def dead_stream(stream: Any) -> str | None:
    """What is wrong with a stream handle; None is well, the default stream."""
    must = "it must be a stream of aclrtCreateStream."
    if stream is None or (isinstance(stream, Stream) and stream.alive):
        return None
    if isinstance(stream, Stream):
        return f"stream was destroyed; {must}"
    return f"stream is {an(stream)}; {must}"


@guarded(lambda status: (None, status))
def aclrtMalloc(size: int, policy: int) -> tuple[int | None, int]:
    """Device memory of `size` bytes: its address. The policy changes nothing here."""
    title = "aclrtMalloc"
    if status := not_running(title):
        return None, status
    if not is_int(size) or size <= 0:
        return None, fail(title, f"size is {size!r:.40}; it must be an int greater than 0.", RT_INVALID)
    if not is_int(policy) or policy not in ENUMS["aclrtMemMallocPolicy"].values():
        known = ", ".join(f"{name} ({code})" for name, code in ENUMS["aclrtMemMallocPolicy"].items())
        return None, fail(title, f"policy is {policy!r:.40}; it must be one of {known}.", INVALID)
    try:
        return MEMORY.allocate(int(size)).address, 0
    except (MemoryError, ValueError, OverflowError):
        return None, fail(title, f"size is {size}; this machine has not so much memory.", BAD_ALLOC)


@guarded(int)
def aclrtFree(devPtr: int | None) -> int:
    title = "aclrtFree"
    if status := not_running(title):
        return status
    if not is_int(devPtr):
        text = f"devPtr is {an(devPtr)}; it must be an address of aclrtMalloc."
        return fail(title, text, RT_INVALID)
    if reason := MEMORY.free(int(devPtr)):
        return fail(title, f"devPtr {reason}", RT_INVALID)
    return 0


@guarded(int)
def aclrtMemcpy(dst: Any, destMax: int, src: Any, count: int, kind: int) -> int:
    """Copy `count` bytes. A device side is an address, a host side an array or an address."""
    title = "aclrtMemcpy"
    if status := not_running(title):
        return status
    if not is_int(kind) or kind not in _KINDS.values():
        known = ", ".join(f"{name} ({code})" for name, code in _KINDS.items())
        return fail(title, f"kind is {kind!r:.40}; it must be one of {known}.", INVALID)
    for name, value in (("destMax", destMax), ("count", count)):
        if not is_int(value) or value < 0:
            return fail(title, f"{name} is {value!r:.40}; it must be an int of at least 0.", RT_INVALID)
    if count > destMax:
        return fail(title, f"count is {count}; it must be at most destMax, {destMax}.", RT_INVALID)
    if count == 0:
        return 0
    to_device = kind in (_KINDS["ACL_MEMCPY_HOST_TO_DEVICE"], _KINDS["ACL_MEMCPY_DEVICE_TO_DEVICE"])
    from_device = kind in (_KINDS["ACL_MEMCPY_DEVICE_TO_HOST"], _KINDS["ACL_MEMCPY_DEVICE_TO_DEVICE"])
    target = _side(dst, int(count), device=to_device, write=True)
    if isinstance(target, str):
        return fail(title, f"dst {target}", RT_INVALID)
    source = _side(src, int(count), device=from_device, write=False)
    if isinstance(source, str):
        return fail(title, f"src {source}", RT_INVALID)
    if from_device and (text := MEMORY.never_written(int(src), int(count))):
        if STATE.checks == "strict":
            return fail(title, f"src {text}", RT_INVALID)
        if STATE.checks == "warn":
            say(f"{title}: src {text}")
    target[:] = source.copy() if np.may_share_memory(target, source) else source
    if to_device:
        MEMORY.mark(int(dst), int(count))
    return 0


def _side(side: Any, count: int, *, device: bool, write: bool) -> NDArray[Any] | str:
    if not (is_int(side) and side > 0) and (device or not isinstance(side, np.ndarray)):
        must = "a device address" if device else "a NumPy array or an address"
        return f"is {an(side)}; it must be {must}."
    if not device:
        return host_bytes(side, count, write=write)
    address = int(side)
    data = MEMORY.range(address, count)
    return MEMORY.why_not(address, count) if data is None else data


@guarded(int)
def aclrtCtxSetSysParamOpt(opt: int, value: int) -> int:
    """Store an option. Results are deterministic at every value of ACL_OPT_DETERMINISTIC."""
    title = "aclrtCtxSetSysParamOpt"
    if status := not_running(title) or _option(title, opt):
        return status
    if not is_int(value) or value not in range(4):
        text = f"value is {value!r:.40}; it must be 0 or 1 (or 2, position-independent; 3, batch-consistent)."
        return fail(title, text, INVALID)
    STATE.options[int(opt)] = int(value)
    return 0


@guarded(lambda status: (0, status))
def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int, int]:
    title = "aclrtCtxGetSysParamOpt"
    if status := not_running(title) or _option(title, opt):
        return 0, status
    return STATE.options.get(int(opt), 0), 0


def _option(title: str, opt: Any) -> int:
    if is_int(opt) and opt == DETERMINISTIC:
        return 0
    text = f"opt is {opt!r:.40}; it must be ACL_OPT_DETERMINISTIC ({DETERMINISTIC})."
    return fail(title, text, INVALID)


def aclGetRecentErrMsg() -> str | None:
    """The reason of the calling thread's last failure; asking clears it."""
    return take_message()
