"""Takes the program's choice of device and context, per thread, and creates and ends the streams of contexts.

Returns the context of the calling thread, or refuses the call with 107002 when the thread has none. It must
not touch memory, nor the jobs of streams.

A context has its own default stream and its own options. A thread uses the context that it set last, else the
default context, which aclrtSetDevice makes for all threads of the process.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any, ClassVar

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, ERRORS
from .error_reports import RT_INVALID, Refused, entry_point, report
from .handles import destroyed_mark, require_live
from .state import STATE
from .stream_queue import Stream

BAD_DEVICE = ERRORS["ACL_ERROR_RT_INVALID_DEVICEID"]
NO_CONTEXT = ERRORS["ACL_ERROR_RT_CONTEXT_NULL"]
DEVICES = 1


class Streams:
    """All live streams."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: list[Stream] = []
        self._numbers = itertools.count(1)

    def create(self, name: str | None = None) -> Stream:
        """A new stream. Messages call it by its name: by default, its number in the order of creation."""
        with self._lock:
            stream = Stream(name or f"stream {next(self._numbers)}")
            self._live.append(stream)
        return stream

    def destroy(self, stream: Stream, *, force: bool = False) -> None:
        with self._lock:
            self._live = [other for other in self._live if other is not stream]
        stream.close(force=force)

    def live(self) -> list[Stream]:
        with self._lock:
            return list(self._live)

    def close_all(self) -> None:
        with self._lock:
            live, self._live = self._live, []
            self._numbers = itertools.count(1)
        for stream in live:
            stream.close()


STREAMS = Streams()


class aclrtContext:
    """A context. `explicit` is true when aclrtCreateContext made it."""

    must_be: ClassVar[str] = "a context of aclrtCreateContext"

    def __init__(self, *, explicit: bool) -> None:
        self.alive, self.explicit = True, explicit
        self.c_handle: int | None = None  # its handle in C programs
        self.options: dict[int, int] = {}
        self._lock = threading.Lock()
        self._default: Stream | None = None
        self._streams: set[Stream] = set()

    def __repr__(self) -> str:
        return f"<aclrtContext{destroyed_mark(self.alive)}>"

    def default_stream(self) -> Stream:
        with self._lock:
            if self._default is None or not self._default.alive:
                owner = "a context" if self.explicit else "the device"
                self._default = self._new_stream(f"the default stream of {owner}")
            return self._default

    def create_stream(self) -> Stream:
        with self._lock:
            return self._new_stream(None)

    def _new_stream(self, name: str | None) -> Stream:
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
        self.device_set = False  # true from aclrtSetDevice to aclrtResetDevice
        self.live: list[aclrtContext] = []
        self._thread = threading.local()

    def current(self) -> aclrtContext | None:
        """The context of the calling thread; None when there is none."""
        context: aclrtContext | None = getattr(self._thread, "context", None)
        if context is None or not context.alive:
            context = self.default
        return context if context is not None and (context.explicit or self.device_set) else None

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
    """In a child: the parent's workers do not run there, so a wait for its streams would never end."""
    for stream in STREAMS._live:
        stream.alive = False
    for context in CONTEXTS.live:
        context.alive = False
    STREAMS.__init__()  # type: ignore[misc]
    CONTEXTS.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)


def current_context(status: int = NO_CONTEXT) -> aclrtContext:
    """The context of the calling thread. Raises Refused with this status when there is none."""
    if (context := CONTEXTS.current()) is None:
        text = "this thread has no context; call aclrtSetDevice or aclrtSetCurrentContext first."
        raise Refused(status, text)
    return context


def _require_device(device: Any) -> None:
    if not is_int(device) or device != 0:
        text = f"deviceId is {device!r:.40}; this machine stands in for one device, so it must be 0."
        raise Refused(BAD_DEVICE, text)


def _live_context(context: Any) -> aclrtContext:
    return require_live("context", context, aclrtContext, RT_INVALID)


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
    current_context()
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
    current_context()
    failures = [stream.synchronize() for stream in STREAMS.live()]
    if failure := next(filter(None, failures), None):
        raise Refused(failure.status, failure.text)
    return 0


@entry_point(lambda status: (None, status))
def aclrtCreateContext(deviceId: int) -> tuple[aclrtContext | None, int]:
    """A new context, which the calling thread uses from now on."""
    _require_device(deviceId)
    with STATE.lock:  # aclFinalize in another thread closes only contexts that exist already
        return CONTEXTS.create(), 0


@entry_point(int)
def aclrtDestroyContext(context: aclrtContext | None) -> int:
    """Wait for the streams of the context, and destroy them and the context."""
    target = _live_context(context)
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
    """Let the calling thread use this context."""
    CONTEXTS.select(_live_context(context))
    return 0


@entry_point(lambda status: (None, status))
def aclrtGetCurrentContext() -> tuple[aclrtContext | None, int]:
    return current_context(), 0


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
