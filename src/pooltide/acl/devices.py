"""Takes calls that choose a device or a context for the calling thread, or ask for facts about devices.

Returns device numbers, contexts and statuses. It must not touch memory.

The environment variable POOLTIDE_DEVICES says how many devices there are; each has its own memory. A device
is set as often as aclrtSetDevice was called for it, and released when aclrtResetDevice was called as often.
"""

from __future__ import annotations

from typing import Any

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, ERRORS
from .contexts import CONTEXTS, NO_CONTEXT, aclrtContext, current_context, live_context
from .error_reports import ACL_INVALID, RT_INVALID, Refused, entry_point, report, require_code
from .state import STATE

BAD_DEVICE = ERRORS["ACL_ERROR_RT_INVALID_DEVICEID"]
_STATUSES = ENUMS["aclrtDeviceStatus"]
_FEATURES = ENUMS["aclrtDevFeatureType"]


def require_device(device: Any, name: str = "deviceId") -> int:
    """The number of a device. Raises Refused."""
    if not is_int(device) or not 0 <= device < STATE.devices:
        count = "one device, so it must be 0" if STATE.devices == 1 else f"{STATE.devices} devices, from 0 on"
        more = "POOLTIDE_DEVICES sets the number of devices."
        raise Refused(BAD_DEVICE, f"{name} is {device!r:.40}; this machine stands in for {count}. {more}")
    return int(device)


@entry_point(int)
def aclrtSetDevice(deviceId: int) -> int:
    """Use the device in the calling thread, with its default context, which is made if there is none."""
    CONTEXTS.set_device(require_device(deviceId))
    return 0


@entry_point(int)
def aclrtResetDevice(deviceId: int) -> int:
    """Wait for all jobs of the device. After as many calls as of aclrtSetDevice, the device is released."""
    return _reset(deviceId, force=False)


@entry_point(int)
def aclrtResetDeviceForce(deviceId: int) -> int:
    """Wait for all jobs of the device, and release it, however often it was set."""
    return _reset(deviceId, force=True)


def _reset(deviceId: Any, *, force: bool) -> int:
    device = require_device(deviceId)
    for stream in CONTEXTS.streams(device):
        stream.wait()
    if not CONTEXTS.reset_device(device, force=force):
        text = f"deviceId is {device}, a device that is not set, or was reset; call aclrtSetDevice first."
        raise Refused(NO_CONTEXT, text)
    return 0


@entry_point(lambda status: (0, status))
def aclrtGetDevice() -> tuple[int, int]:
    """The number of the calling thread's device."""
    return current_context().device, 0


@entry_point(lambda status: (0, status))
def aclrtGetDeviceCount() -> tuple[int, int]:
    return STATE.devices, 0


@entry_point(lambda status: (0, status))
def aclrtGetRunMode() -> tuple[int, int]:
    """ACL_HOST: programs run on the host."""
    return ENUMS["aclrtRunMode"]["ACL_HOST"], 0


@entry_point(lambda status: (0, status))
def aclrtQueryDeviceStatus(deviceId: int) -> tuple[int, int]:
    """ACL_RT_DEVICE_STATUS_NORMAL: a device is never busy or broken."""
    require_device(deviceId)
    return _STATUSES["ACL_RT_DEVICE_STATUS_NORMAL"], 0


@entry_point(lambda status: (0, status))
def aclrtGetDeviceCapability(deviceId: int, devFeatureType: int) -> tuple[int, int]:
    """0: a device has none of the features."""
    require_device(deviceId)
    require_code("devFeatureType", devFeatureType, _FEATURES)
    return 0, 0


@entry_point(int)
def aclrtSynchronizeDevice() -> int:
    """Wait for all streams of the thread's device; the status of the first job that failed."""
    failures = [stream.synchronize() for stream in CONTEXTS.streams(current_context().device)]
    if failure := next(filter(None, failures), None):
        raise Refused(failure.status, failure.text)
    return 0


@entry_point(lambda status: (None, status))
def aclrtCreateContext(deviceId: int) -> tuple[aclrtContext | None, int]:
    """A new context, which the calling thread uses from now on."""
    device = require_device(deviceId)
    with STATE.lock:  # aclFinalize in another thread closes only contexts that exist already
        return CONTEXTS.create(device), 0


@entry_point(int)
def aclrtDestroyContext(context: aclrtContext | None) -> int:
    """Wait for the streams of the context, and destroy them and the context."""
    target = live_context(context)
    if not target.explicit:
        text = "context is the default context of aclrtSetDevice; it must be one of aclrtCreateContext."
        raise Refused(RT_INVALID, text)
    if busy := sorted(str(stream) for stream in target.streams() if stream.in_flight):
        text = (
            f"context has jobs on {', '.join(busy)} that the program has not waited for; "
            "call aclrtSynchronizeStream first."
        )
        report("aclrtDestroyContext", text, RT_INVALID)
    CONTEXTS.destroy(target)
    return 0


@entry_point(int)
def aclrtSetCurrentContext(context: aclrtContext | None) -> int:
    """Let the calling thread use this context, and its device."""
    CONTEXTS.select(live_context(context))
    return 0


@entry_point(lambda status: (None, status))
def aclrtGetCurrentContext() -> tuple[aclrtContext | None, int]:
    return current_context(), 0


@entry_point(lambda status: (0, status))
def aclrtDeviceCanAccessPeer(deviceId: int, peerDeviceId: int) -> tuple[int, int]:
    """1 for two different devices: each can use the memory of the other."""
    device, peer = require_device(deviceId), require_device(peerDeviceId, "peerDeviceId")
    return int(device != peer), 0


@entry_point(int)
def aclrtDeviceEnablePeerAccess(peerDeviceId: int, flags: int) -> int:
    """Let copies of the thread's context use the memory of another device."""
    context, peer = current_context(), require_device(peerDeviceId, "peerDeviceId")
    if peer == context.device:
        must = "it must be another device; with one device, the program must do without this call."
        raise Refused(BAD_DEVICE, f"peerDeviceId is {peer}, the device of this thread; {must}")
    if not is_int(flags) or flags != 0:
        raise Refused(ACL_INVALID, f"flags is {flags!r:.40}; it must be 0.")
    context.peers.add(peer)
    return 0


@entry_point(int)
def aclrtDeviceDisablePeerAccess(peerDeviceId: int) -> int:
    """End what aclrtDeviceEnablePeerAccess began."""
    current_context().peers.discard(require_device(peerDeviceId, "peerDeviceId"))
    return 0
