"""Devices and contexts. A context has its own default stream and its own options.

A thread uses the context that it set last, else the default context, which aclrtSetDevice makes for all
threads of the process. Without either, a call that needs the device fails with 107002.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, ERRORS
from .state import BAD, RT_INVALID, RUNTIME_ERROR, STATE, Refused, describe, entry_point, report
from .stream import STREAMS, Stream

BAD_DEVICE = ERRORS["ACL_ERROR_RT_INVALID_DEVICEID"]
NO_CONTEXT = ERRORS["ACL_ERROR_RT_CONTEXT_NULL"]
OTHER_CONTEXT = ERRORS["ACL_ERROR_RT_STREAM_CONTEXT"]
DEVICES = 1


class aclrtContext:
    """A context. `explicit` is true when aclrtCreateContext made it."""

    def __init__(self, *, explicit: bool) -> None:
        self.alive, self.explicit = True, explicit
        self.c_handle: int | None = None  # the word that C programs know it by
        self.options: dict[int, int] = {}
        self._lock = threading.Lock()
        self._default: Stream | None = None
        self._streams: set[Stream] = set()

    def __repr__(self) -> str:
        return f"<aclrtContext{'' if self.alive else ', destroyed'}>"

    def default_stream(self) -> Stream:
        with self._lock:
            if self._default is None or not self._default.alive:
                of = "a context" if self.explicit else "the device"
                self._default = self._new(f"the default stream of {of}")
            return self._default

    def create_stream(self) -> Stream:
        with self._lock:
            return self._new(None)

    def _new(self, name: str | None) -> Stream:
        stream = STREAMS.create(name)
        self._streams = {other for other in self._streams if other.alive} | {stream}
        return stream

    def streams(self) -> set[Stream]:
        with self._lock:
            return {stream for stream in self._streams if stream.alive}

    def holds(self, stream: Stream) -> bool:
        return stream in self._streams

    def close(self) -> None:
        self.alive = False
        for stream in self.streams():
            STREAMS.destroy(stream)


class Contexts:
    """All live contexts, and the default context."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.default: aclrtContext | None = None
        self.device_set = False  # by aclrtSetDevice; aclrtResetDevice ends it
        self.live: list[aclrtContext] = []
        self._thread = threading.local()

    def current(self) -> aclrtContext | None:
        """The context of the calling thread; None when there is none."""
        own: aclrtContext | None = getattr(self._thread, "context", None)
        if own is None or not own.alive:
            own = self.default
        return own if own is not None and (own.explicit or self.device_set) else None

    def select(self, context: aclrtContext | None) -> None:
        self._thread.context = context

    def set_device(self) -> None:
        with self.lock:
            if self.default is None:
                self.default = aclrtContext(explicit=False)
                self.live.append(self.default)
            self.device_set = True
        self.select(self.default)

    def create(self) -> aclrtContext:
        context = aclrtContext(explicit=True)
        with self.lock:
            self.live.append(context)
        self.select(context)
        return context

    def destroy(self, context: aclrtContext) -> None:
        with self.lock:
            self.live = [other for other in self.live if other is not context]
        context.close()

    def close_all(self) -> None:
        with self.lock:
            live, self.live, self.default = self.live, [], None
            self.device_set = False
        for context in live:
            context.close()


CONTEXTS = Contexts()


def _after_fork() -> None:
    """In a child: the parent's streams do not run there, so its contexts are of no use."""
    for context in CONTEXTS.live:
        context.alive = False
    CONTEXTS.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)


def require_context(status: int = NO_CONTEXT) -> aclrtContext:
    """The context of the calling thread. Raises Refused with this status when there is none."""
    if (context := CONTEXTS.current()) is None:
        text = "this thread has no context; call aclrtSetDevice or aclrtSetCurrentContext first."
        raise Refused(status, text)
    return context


def live_stream(stream: Any, *, aclnn: bool = False) -> Stream:
    """The stream of a handle; None is the default stream of the thread's context. Raises Refused.

    `aclnn` is true for calls whose statuses are aclnnStatus.
    """
    context = require_context(RUNTIME_ERROR if aclnn else NO_CONTEXT)
    if stream is None:
        return context.default_stream()
    require_stream(stream, BAD if aclnn else RT_INVALID)
    if not context.holds(stream):
        text = f"stream is {stream}, of another context; it must be a stream of this thread's context."
        raise Refused(RUNTIME_ERROR if aclnn else OTHER_CONTEXT, text)
    found: Stream = stream
    return found


def require_stream(stream: Any, status: int = RT_INVALID) -> None:
    """Raises Refused unless the argument is a live stream."""
    if not isinstance(stream, Stream) or not stream.alive:
        what = "was destroyed" if isinstance(stream, Stream) else f"is {describe(stream)}"
        raise Refused(status, f"stream {what}; it must be a stream of aclrtCreateStream.")


def _require_device(device: Any) -> None:
    if not is_int(device) or device != 0:
        text = f"deviceId is {device!r:.40}; this machine stands in for one device, so it must be 0."
        raise Refused(BAD_DEVICE, text)


def _require_context_handle(context: Any) -> aclrtContext:
    if not isinstance(context, aclrtContext) or not context.alive:
        what = "was destroyed" if isinstance(context, aclrtContext) else f"is {describe(context)}"
        raise Refused(RT_INVALID, f"context {what}; it must be a context of aclrtCreateContext.")
    return context


@entry_point(int)
def aclrtSetDevice(deviceId: int) -> int:
    """Use the device in the calling thread, with the default context, which is made if there is none."""
    _require_device(deviceId)
    CONTEXTS.set_device()
    return 0


@entry_point(int)
def aclrtResetDevice(deviceId: int) -> int:
    """Wait for all jobs of all streams. Threads without a context of their own must set the device again."""
    _require_device(deviceId)
    for stream in STREAMS.live():
        stream.wait()
    CONTEXTS.device_set = False
    return 0


@entry_point(lambda status: (0, status))
def aclrtGetDevice() -> tuple[int, int]:
    """The number of the calling thread's device."""
    require_context()
    return 0, 0


@entry_point(lambda status: (0, status))
def aclrtGetDeviceCount() -> tuple[int, int]:
    return DEVICES, 0


@entry_point(lambda status: (0, status))
def aclrtGetRunMode() -> tuple[int, int]:
    """ACL_HOST: programs run on the host."""
    return ENUMS["aclrtRunMode"]["ACL_HOST"], 0


@entry_point(int)
def aclrtSynchronizeDevice() -> int:
    """Wait for all streams; the status of the first job that failed."""
    require_context()
    failures = [stream.synchronize() for stream in STREAMS.live()]
    if failure := next(filter(None, failures), None):
        raise Refused(failure.status, failure.text)
    return 0


@entry_point(lambda status: (None, status))
def aclrtCreateContext(deviceId: int) -> tuple[aclrtContext | None, int]:
    """A new context, which the calling thread uses from now on."""
    _require_device(deviceId)
    with STATE.lock:  # another thread may call aclFinalize, which closes the contexts that exist then
        return CONTEXTS.create(), 0


@entry_point(int)
def aclrtDestroyContext(context: aclrtContext | None) -> int:
    """Wait for the streams of the context, and destroy them and the context."""
    found = _require_context_handle(context)
    if not found.explicit:
        text = "context is the default context of aclrtSetDevice; it must be one of aclrtCreateContext."
        raise Refused(RT_INVALID, text)
    if busy := sorted(str(stream) for stream in found.streams() if stream.in_flight):
        text = (
            f"context has jobs on {', '.join(busy)} that the program has not waited for; "
            "call aclrtSynchronizeStream first."
        )
        report("aclrtDestroyContext", text, RT_INVALID)
    CONTEXTS.destroy(found)
    return 0


@entry_point(int)
def aclrtSetCurrentContext(context: aclrtContext | None) -> int:
    """Let the calling thread use this context."""
    CONTEXTS.select(_require_context_handle(context))
    return 0


@entry_point(lambda status: (None, status))
def aclrtGetCurrentContext() -> tuple[aclrtContext | None, int]:
    return require_context(), 0


@entry_point(lambda status: (0, status))
def aclrtDeviceCanAccessPeer(deviceId: int, peerDeviceId: int) -> tuple[int, int]:
    """0: there is one device."""
    _require_device(deviceId)
    _require_device(peerDeviceId)
    return 0, 0


@entry_point(int)
def aclrtDeviceEnablePeerAccess(peerDeviceId: int, flags: int) -> int:
    """Always fails: there is one device."""
    must = "there is one device, which has no peer, so the program must do without this call."
    text = f"peerDeviceId is {peerDeviceId!r:.40}; {must}"
    raise Refused(BAD_DEVICE, text)
