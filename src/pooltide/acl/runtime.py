"""The runtime's functions, under their C names. C out-parameters come first, the status last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..call import contiguous_strides, is_int
from ..dtypes import ENUMS, ERRORS, FORMATS, STATUS, dtype_by_code, dtype_of, format_by_code
from .handles import OutOfBounds, aclIntArray, aclOpExecutor, aclTensor
from .memory import MEMORY, host_bytes
from .state import (
    BAD_ALLOC,
    CHECKS,
    DETERMINISTIC,
    ENVIRONMENT_FAULT,
    INVALID,
    RT_INVALID,
    STATE,
    fail,
    keep_message,
    not_running,
    say,
    set_checks,
    set_product,
    take_message,
)
from .stream import STREAMS, Stream

NULL = STATUS["ACLNN_ERR_PARAM_NULLPTR"]
BAD = STATUS["ACLNN_ERR_PARAM_INVALID"]
NOT_RUNNING = STATUS["ACLNN_ERR_RUNTIME_ERROR"]
_INT64 = range(-(2**63), 2**63)
_KINDS = ENUMS["aclrtMemcpyKind"]
_MAX_RANK = 64


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
        STATE.initialized, STATE.finalized = True, False
        STATE.options.clear()
    return 0


def _configure(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError, TypeError) as error:
        return f"configPath is {path!r}, which can't be read as JSON ({error}); it must be a JSON file."
    if not isinstance(config, dict):
        return f"configPath is {path!r}, which holds no JSON object; it must hold one."
    known = {"product": set_product, "checks": set_checks}
    try:
        for key, setter in known.items():
            if key in config:
                setter(config[key])
    except (ValueError, TypeError) as error:
        return f"configPath is {path!r}: {error}"
    if (ignored := sorted(config.keys() - known.keys())) and STATE.checks != CHECKS[0]:
        say(f"aclInit: {path} sets {', '.join(ignored)}, which mean nothing here and are ignored")
    return None


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


def aclrtSetDevice(deviceId: int) -> int:
    return _device("aclrtSetDevice", deviceId)


def aclrtResetDevice(deviceId: int) -> int:
    """Wait for everything that runs on the device."""
    if status := _device("aclrtResetDevice", deviceId):
        return status
    for stream in STREAMS.live():
        stream.synchronize()
    return 0


def _device(title: str, device: Any) -> int:
    if status := not_running(title):
        return status
    if not is_int(device) or device != 0:
        text = f"deviceId is {device!r:.40}; this machine stands in for one device, so it must be 0."
        return fail(title, text, RT_INVALID)
    return 0


def aclrtCreateStream() -> tuple[Stream | None, int]:
    if status := not_running("aclrtCreateStream"):
        return None, status
    return STREAMS.create(), 0


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
    return f"stream is {_a(stream)}; {must}"


def aclrtMalloc(size: int, policy: int) -> tuple[int | None, int]:
    """Device memory of `size` bytes: its address. The policy changes nothing here."""
    title = "aclrtMalloc"
    if status := not_running(title):
        return None, status
    if not is_int(size) or size <= 0:
        return None, fail(title, f"size is {size!r:.40}; it must be an int greater than 0.", RT_INVALID)
    if policy not in ENUMS["aclrtMemMallocPolicy"].values():
        known = ", ".join(f"{name} ({code})" for name, code in ENUMS["aclrtMemMallocPolicy"].items())
        return None, fail(title, f"policy is {policy!r:.40}; it must be one of {known}.", INVALID)
    try:
        return MEMORY.allocate(int(size)).address, 0
    except (MemoryError, ValueError, OverflowError):
        return None, fail(title, f"size is {size}; this machine has not so much memory.", BAD_ALLOC)


def aclrtFree(devPtr: int | None) -> int:
    title = "aclrtFree"
    if status := not_running(title):
        return status
    if not is_int(devPtr):
        text = f"devPtr is {_a(devPtr)}; it must be an address of aclrtMalloc."
        return fail(title, text, RT_INVALID)
    if reason := MEMORY.free(int(devPtr)):
        return fail(title, f"devPtr {reason}", RT_INVALID)
    return 0


def aclrtMemcpy(dst: Any, destMax: int, src: Any, count: int, kind: int) -> int:
    """Copy `count` bytes. A device side is an address, a host side an array or an address."""
    title = "aclrtMemcpy"
    if status := not_running(title):
        return status
    if kind not in _KINDS.values():
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
    target[:] = source.copy() if np.may_share_memory(target, source) else source
    return 0


def _side(side: Any, count: int, *, device: bool, write: bool) -> NDArray[Any] | str:
    if not (is_int(side) and side > 0) and (device or not isinstance(side, np.ndarray)):
        must = "a device address" if device else "a NumPy array or an address"
        return f"is {_a(side)}; it must be {must}."
    if not device:
        return host_bytes(side, count, write=write)
    address = int(side)
    data = MEMORY.range(address, count)
    return MEMORY.why_not(address, count) if data is None else data


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


def aclCreateTensor(
    viewDims: Sequence[int],
    dataType: int,
    strides: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int],
    tensorData: int | None,
) -> aclTensor | None:
    """Describe device memory as a tensor; None, with a message, when that makes no sense."""
    title = "aclCreateTensor"
    if not_running(title):
        return None
    shape, steps, storage = _ints(viewDims), _ints(strides), _ints(storageDims)
    dtype = dtype_by_code(dataType) if is_int(dataType) else None
    layout = format_by_code(format) if is_int(format) else None
    text = None
    if shape is None or len(shape) > _MAX_RANK:
        text = f"viewDims is {viewDims!r:.60}; it must be at most {_MAX_RANK} ints."
    elif strides is not None and (steps is None or len(steps) != len(shape)):
        text = f"strides is {strides!r:.60}; it must be null or {len(shape)} ints, one for each of viewDims."
    elif storageDims is not None and storage is None:
        text = f"storageDims is {storageDims!r:.60}; it must be ints."
    elif dtype is None:
        text = f"dataType is {dataType!r:.40}; it must be a code of aclDataType."
    elif layout is None:
        codes = ", ".join(f"{name} ({code})" for name, code in FORMATS.items())
        text = f"format is {format!r:.40}; it must be one of {codes}."
    elif not is_int(offset) or offset not in _INT64:
        text = f"offset is {offset!r:.40}; it must be an int that counts elements."
    elif tensorData is not None and (not is_int(tensorData) or tensorData < 0):
        text = f"tensorData is {_a(tensorData)}; it must be a device address or null."
    if text is not None:
        fail(title, text, BAD)
        return None
    assert shape is not None
    assert dtype is not None
    assert layout is not None
    dense = contiguous_strides(shape)
    return aclTensor(
        shape, dtype, steps or dense, int(offset), layout, storage or shape, _address(tensorData)
    )


def _address(value: int | None) -> int | None:
    return int(value) if value else None


def aclDestroyTensor(tensor: aclTensor | None) -> int:
    """Forget the description; device memory stays, unless tensor_from_numpy made it."""
    return _destroy("aclDestroyTensor", "tensor", tensor, aclTensor)


def aclCreateIntArray(value: Sequence[int]) -> aclIntArray | None:
    if not_running("aclCreateIntArray"):
        return None
    if (values := _ints(value)) is None:
        fail("aclCreateIntArray", f"value is {value!r:.60}; it must be 64-bit ints.", BAD)
        return None
    return aclIntArray(values)


def aclDestroyIntArray(array: aclIntArray | None) -> int:
    return _destroy("aclDestroyIntArray", "array", array, aclIntArray)


def aclSetAclOpExecutorRepeatable(executor: aclOpExecutor | None) -> int:
    """Let the executor serve any number of calls, until aclDestroyAclOpExecutor."""
    title = "aclSetAclOpExecutorRepeatable"
    if not_running(title):
        return NOT_RUNNING
    if executor is None:
        return fail(title, "executor is null; it must be an executor of a GetWorkspaceSize call.", NULL)
    if text := unusable(executor, aclOpExecutor):
        return fail(title, f"executor {text}.", BAD)
    if executor.used and not executor.repeatable:
        return fail(title, "executor has served its call; it must be made repeatable before that.", BAD)
    executor.repeatable = True
    return 0


def aclDestroyAclOpExecutor(executor: aclOpExecutor | None) -> int:
    return _destroy("aclDestroyAclOpExecutor", "executor", executor, aclOpExecutor)


def aclGetRecentErrMsg() -> str | None:
    """The reason of the calling thread's last failure; asking clears it."""
    return take_message()


def _destroy(title: str, name: str, handle: Any, kind: type[Any]) -> int:
    if not_running(title):
        return NOT_RUNNING
    if handle is None:
        return 0
    if text := unusable(handle, kind):
        return fail(title, f"{name} {text}.", BAD)
    handle.alive = False
    if isinstance(handle, aclTensor) and handle.owns_memory and handle.address is not None:
        MEMORY.free(handle.address)
    return 0


_MAKERS = {
    aclTensor: "aclCreateTensor",
    aclIntArray: "aclCreateIntArray",
    aclOpExecutor: "a GetWorkspaceSize call",
}


def unusable(handle: Any, kind: type[Any]) -> str | None:
    """What is wrong with a handle that should be a live `kind`, as the rest of a sentence."""
    must = f"it must be a live {kind.__name__} of {_MAKERS[kind]}"
    if not isinstance(handle, kind):
        return f"is {_a(handle)}; {must}"
    return None if handle.alive else f"was destroyed; {must}"


def _a(value: Any) -> str:
    if is_int(value):
        return f"an int, {value}"
    name = "null" if value is None else type(value).__name__
    return name if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _ints(values: Any) -> tuple[int, ...] | None:
    if not isinstance(values, (list, tuple, np.ndarray)):
        return None
    found = tuple(values)
    return tuple(map(int, found)) if all(is_int(v) and int(v) in _INT64 for v in found) else None


def tensor_from_numpy(array: NDArray[Any], format: int = FORMATS["ND"]) -> aclTensor:
    """Allocate device memory, copy the array there, describe it. aclDestroyTensor frees both."""
    if not_running("tensor_from_numpy"):
        raise RuntimeError(take_message())
    dtype = dtype_of(array.dtype)
    if dtype is None:
        raise TypeError(f"tensor_from_numpy: array has dtype {array.dtype}, which aclDataType lacks.")
    address = None
    if array.nbytes:
        block = MEMORY.allocate(array.nbytes)
        address = block.address
        block.data[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    tensor = aclCreateTensor(array.shape, dtype.code, None, 0, format, array.shape, address)
    if tensor is None:
        if address is not None:
            MEMORY.free(address)
        raise ValueError(take_message())
    tensor.owns_memory = address is not None
    return tensor


def tensor_to_numpy(tensor: aclTensor) -> NDArray[Any]:
    """A copy of what the tensor's view shows now. Synchronize the stream before."""
    if text := unusable(tensor, aclTensor):
        raise ValueError(f"tensor_to_numpy: tensor {text}.")
    try:
        return tensor.view().copy()
    except OutOfBounds as found:
        raise ValueError(f"tensor_to_numpy: tensor {found}; it must lie inside one block.") from None
