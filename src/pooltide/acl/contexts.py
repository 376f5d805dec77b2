"""Takes the program's choice of context, per thread, and creates and ends the streams of contexts.

Returns the context of the calling thread, or refuses the call with 107002 when the thread has none. It must
not touch memory, nor the jobs of streams.

A context belongs to a device, and has its own default stream and its own options. A thread uses the context
that it chose last: by aclrtSetDevice, which makes one default context per device for all threads of the
process, or by aclrtCreateContext or aclrtSetCurrentContext. A thread that chose none is reported, and gets
the default context of the device that the process set first.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any, ClassVar

from ..operators.dtypes import ERRORS
from .error_reports import RT_INVALID, Refused, report
from .handles import destroyed_mark, require_live
from .stream_queue import Stream

NO_CONTEXT = ERRORS["ACL_ERROR_RT_CONTEXT_NULL"]


class Streams:
    """All live streams."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: list[Stream] = []
        self._numbers = itertools.count(1)

    def create(self, name: str | None = None, device: int = 0) -> Stream:
        """A new stream. Messages call it by its name: by default, its number in the order of creation."""
        with self._lock:
            stream = Stream(name or f"stream {next(self._numbers)}", device)
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

    def __init__(self, device: int, *, explicit: bool) -> None:
        self.alive, self.device, self.explicit = True, device, explicit
        self.released = False  # by aclrtResetDevice
        self.peers: set[int] = set()  # the devices whose memory aclrtDeviceEnablePeerAccess lets it use
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
                owner = (
                    "a context" if self.explicit else f"device {self.device}" if self.device else "the device"
                )
                self._default = self._new_stream(f"the default stream of {owner}")
            return self._default

    def create_stream(self) -> Stream:
        with self._lock:
            return self._new_stream(None)

    def _new_stream(self, name: str | None) -> Stream:
        stream = STREAMS.create(name, self.device)
        self._streams = {other for other in self._streams if other.alive} | {stream}
        return stream

    def streams(self) -> set[Stream]:
        with self._lock:
            return {stream for stream in self._streams if stream.alive}

    def created_streams(self) -> set[Stream]:
        """The live streams of aclrtCreateStream."""
        return self.streams() - {self._default}

    def holds(self, stream: Stream) -> bool:
        return stream in self._streams

    def close(self) -> None:
        self.alive = False
        for stream in self.streams():
            STREAMS.destroy(stream)

    def release(self) -> None:
        """End the context and its streams; those of aclrtCreateStream stay for aclrtDestroyStream."""
        self.alive, self.released = False, True
        for stream in self.streams():
            stream.released = True
        if self._default is not None:
            STREAMS.destroy(self._default)


class _Thread(threading.local):
    context: aclrtContext | None = None  # that the thread has chosen


class Contexts:
    """All live contexts, and the default context of each device."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.live: list[aclrtContext] = []
        self._defaults: dict[int, aclrtContext] = {}  # in the order in which the program set the devices
        self._uses: dict[int, int] = {}  # calls of aclrtSetDevice that no aclrtResetDevice has ended
        self._thread = _Thread()

    def current(self) -> aclrtContext | None:
        """The context of the calling thread; None when there is none."""
        context = self._thread.context
        if context is None or not context.alive:
            context = next(iter(list(self._defaults.values())), None)
        return context

    def has_chosen(self) -> bool:
        """Whether the calling thread has chosen a context."""
        return self._thread.context is not None

    def select(self, context: aclrtContext | None) -> None:
        self._thread.context = context

    def set_device(self, device: int = 0) -> None:
        with self.lock:
            if device not in self._defaults:
                self._defaults[device] = aclrtContext(device, explicit=False)
                self.live.append(self._defaults[device])
            self._uses[device] = self._uses.get(device, 0) + 1
            context = self._defaults[device]
        self.select(context)

    def reset_device(self, device: int, *, force: bool) -> bool:
        """End one use of the device, or all; the last ends its default context. False: it had no use."""
        with self.lock:
            if (uses := self._uses.get(device, 0)) == 0:
                return False
            self._uses[device] = 0 if force else uses - 1
            if self._uses[device]:
                return True
            context = self._defaults.pop(device)
            self.live = [other for other in self.live if other is not context]
        context.release()
        return True

    def streams(self, device: int) -> list[Stream]:
        """The live streams of all contexts of the device."""
        with self.lock:
            contexts = [context for context in self.live if context.device == device]
        return [stream for context in contexts for stream in context.streams()]

    def create(self, device: int) -> aclrtContext:
        context = aclrtContext(device, explicit=True)
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
            live, self.live, self._defaults, self._uses = self.live, [], {}, {}
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
    if not CONTEXTS.has_chosen():
        text = "this thread called neither aclrtSetDevice nor aclrtSetCurrentContext; each must, at first."
        effect = f" It uses the default context of device {context.device}."
        report("aclrtSetDevice", text, status, effect=effect)
        CONTEXTS.select(context)
    return context


def report_after_reset(title: str) -> None:
    """Reports a release of what aclrtResetDevice has released already."""
    report(title, "it was called after aclrtResetDevice; it must be called before.", NO_CONTEXT)


def live_context(context: Any) -> aclrtContext:
    if isinstance(context, aclrtContext) and context.released:
        text = f"context is of device {context.device}, which was reset; call aclrtSetDevice first."
        raise Refused(RT_INVALID, text)
    return require_live("context", context, aclrtContext, RT_INVALID)
