"""Takes functions of the program: those that a stream calls, and the one that learns of a failed job.

Calls them in the thread that asked for them, or where the job failed. It must not touch memory.

A thread subscribes to a stream by its id (pthread_self, threading.get_ident). aclrtLaunchCallback queues a
job; when the stream reaches the job, the function goes to the subscribed thread, which calls it in
aclrtProcessReport. A function of a C program is an address.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, ERRORS
from .call_sites import capture, describe_site
from .contexts import current_context
from .error_reports import (
    ACL_INVALID,
    RT_INVALID,
    Refused,
    describe,
    entry_point,
    require_code,
    set_quiet_message,
)
from .findings import say
from .races import Clock, wait_for
from .state import STATE
from .stream_queue import FAILED_JOBS, Failure, Job, Stream
from .streams import live_stream

_BLOCKS = ENUMS["aclrtCallbackBlockType"]["ACL_CALLBACK_BLOCK"]
_SUBSCRIBED = ERRORS["ACL_ERROR_RT_STREAM_SUBSCRIBE"]
_NO_SUBSCRIPTION = ERRORS["ACL_ERROR_RT_THREAD_SUBSCRIBE"]
_NO_THREAD = ERRORS["ACL_ERROR_RT_STREAM_NO_CB_REG"]
_LATE = ERRORS["ACL_ERROR_RT_REPORT_TIMEOUT"]
_EMPTY = 0xFFFFFFFF  # what the accessors return without an exception
_SLICE = 0.05  # seconds after which a waiting thread looks again
_PATIENCE = 5.0  # seconds after which a line says that a stream waits for a callback
_C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True)
class _Call:
    function: Callable[[Any], object]
    argument: Any
    unfinished: Any  # a lock that is held until the function has returned
    before: Clock  # the jobs that are done when the function runs
    stream: Stream
    blocks: bool  # the stream waits until the function has returned


class _Subscriptions:
    def __init__(self) -> None:
        self.threads: dict[Stream, int] = {}
        # By thread. A queue stays when the thread has no stream: the thread may be waiting for it.
        self.calls: dict[int, queue.SimpleQueue[_Call]] = {}


class aclrtExceptionInfo:
    """What is known of a failed job, while the program's callback runs."""

    must_be: ClassVar[str] = "the argument of a callback of aclrtSetExceptionInfoCallback"

    def __init__(self, failure: Failure, stream: int, device: int) -> None:
        self.alive = True
        self.task, self.error = next(_TASKS), failure.status
        self.stream, self.device, self.thread = stream, device, threading.get_native_id()


_TASKS = itertools.count(1)
_subscriptions = _Subscriptions()
_on_failure: list[Callable[[Any], object]] = []
_to_c: list[Callable[[Any], int]] = []  # makes a handle of an object, for C programs


def pass_handles(make_handle: Callable[[Any], int]) -> None:
    """Pass handles that this function makes to the callbacks of a C program."""
    _to_c[:] = [make_handle]


def _function(name: str, value: Any) -> Callable[[Any], object]:
    """The program's function: a callable of Python, or the address of one of C. Raises Refused."""
    if callable(value):
        return value  # type: ignore[no-any-return]
    if not _to_c or not is_int(value) or not 0 < value < 2**64:
        raise Refused(RT_INVALID, f"{name} is {describe(value)}; it must be a function.")
    return _C_FUNCTION(int(value))


def _call(title: str, function: Callable[[Any], object], argument: Any) -> None:
    """Call the program's function. What it raises is printed: no caller can handle it."""
    try:
        function(argument)
    except Exception as error:
        say(f"{title}: the callback raised {type(error).__name__}: {error}")


@entry_point(int)
def aclrtSubscribeReport(threadId: int, stream: Stream | None) -> int:
    """Let a thread call the functions that are launched on the stream."""
    target = live_stream(stream)
    if not is_int(threadId) or not 0 < threadId < 2**64:
        must = "it must be the id of a thread, as pthread_self returns it."
        raise Refused(ACL_INVALID, f"threadId is {threadId!r:.40}; {must}")
    if target in _subscriptions.threads:
        text = f"stream is {target}, which has a thread; call aclrtUnSubscribeReport first."
        raise Refused(_SUBSCRIBED, text)
    _subscriptions.calls.setdefault(int(threadId), queue.SimpleQueue())
    _subscriptions.threads[target] = int(threadId)
    return 0


@entry_point(int)
def aclrtUnSubscribeReport(threadId: int, stream: Stream | None) -> int:
    """End what aclrtSubscribeReport began, when the queued jobs of the stream are done."""
    target = live_stream(stream)
    if not is_int(threadId) or _subscriptions.threads.get(target) != threadId:
        must = "it must be the thread that aclrtSubscribeReport named for this stream."
        raise Refused(_NO_SUBSCRIPTION, f"threadId is {threadId!r:.40}; {must}")
    target.wait()
    del _subscriptions.threads[target]
    return 0


@entry_point(int)
def aclrtLaunchCallback(fn: Any, userData: Any, blockType: int, stream: Stream | None) -> int:
    """Queue a call of the program's function. ACL_CALLBACK_BLOCK: the stream waits until it has returned."""
    target, function = live_stream(stream), _function("fn", fn)
    require_code("blockType", blockType, ENUMS["aclrtCallbackBlockType"])
    if (thread := _subscriptions.threads.get(target)) is None:
        text = f"stream is {target}, which has no thread for callbacks; call aclrtSubscribeReport first."
        raise Refused(_NO_THREAD, text)
    call = _Call(function, userData, threading.Lock(), dict(target.clock), target, blockType == _BLOCKS)
    call.unfinished.acquire()
    calls = _subscriptions.calls[thread]

    def launch() -> None:
        call.before[target] = done = target.last_finished
        if call.blocks:
            target.caller = thread, done + 1
        calls.put(call)
        told = time.monotonic() + _PATIENCE
        while call.blocks and target.alive and not call.unfinished.acquire(timeout=_SLICE):
            if time.monotonic() > told and STATE.checks != "off":
                told = float("inf")
                must = f"thread {thread}, which aclrtSubscribeReport named, must call aclrtProcessReport."
                at = describe_site(capture())
                say(f"{target} waits for a callback: {must}{at and f' It was launched at {at}.'}")
        target.caller = None

    target.require_submit(Job("aclrtLaunchCallback", launch, quick=False), RT_INVALID)
    return 0


@entry_point(int)
def aclrtProcessReport(timeout: int) -> int:
    """Call the next function that was launched for this thread; waits for it, -1 or milliseconds."""
    if not is_int(timeout) or (timeout != -1 and not 0 < timeout < 2**31):
        raise Refused(ACL_INVALID, f"timeout is {timeout!r:.40}; it must be -1 (no limit) or milliseconds.")
    if (calls := _subscriptions.calls.get(threading.get_ident())) is None:
        text = "this thread has no stream yet; aclrtSubscribeReport must be called with its id first."
        return set_quiet_message("aclrtProcessReport", text, _NO_SUBSCRIPTION)
    try:
        call = calls.get(timeout=None if timeout == -1 else timeout / 1000)
    except queue.Empty:
        text = f"no callback came within timeout, {timeout} ms; the call must be made again."
        return set_quiet_message("aclrtProcessReport", text, _LATE)
    wait_for(call.before)
    try:
        _call("aclrtLaunchCallback", call.function, call.argument)
    finally:
        if call.blocks:
            call.stream.caller = None  # before the job ends, which does the same
        call.unfinished.release()
    return 0


@entry_point(int)
def aclrtSetExceptionInfoCallback(callback: Any) -> int:
    """Let the program's function learn of each job that fails; null ends that. The job's thread calls it."""
    _on_failure[:] = [] if callback is None else [_function("callback", callback)]
    return 0


def _job_failed(stream: Stream, failure: Failure) -> None:
    for function in _on_failure:
        info = aclrtExceptionInfo(failure, stream.id, stream.device)
        _call("aclrtSetExceptionInfoCallback", function, _to_c[0](info) if _to_c else info)
        info.alive = False


FAILED_JOBS.append(_job_failed)


def _fact(info: Any, name: str) -> int:
    known = isinstance(info, aclrtExceptionInfo) and info.alive
    return int(getattr(info, name)) & _EMPTY if known else _EMPTY


def aclrtGetTaskIdFromExceptionInfo(info: Any) -> int:
    """The number of the failed job, counted in the process; 0xFFFFFFFF without an exception."""
    return _fact(info, "task")


def aclrtGetStreamIdFromExceptionInfo(info: Any) -> int:
    """The id of the stream, as aclrtStreamGetId returns it; 0xFFFFFFFF without an exception."""
    return _fact(info, "stream")


def aclrtGetThreadIdFromExceptionInfo(info: Any) -> int:
    """The system's id of the thread that ran the job; 0xFFFFFFFF without an exception."""
    return _fact(info, "thread")


def aclrtGetDeviceIdFromExceptionInfo(info: Any) -> int:
    """The device; 0xFFFFFFFF without an exception."""
    return _fact(info, "device")


def aclrtGetErrorCodeFromExceptionInfo(info: Any) -> int:
    """The status of the job; 0xFFFFFFFF without an exception."""
    return _fact(info, "error")


@entry_point(lambda status: (0, status))
def aclrtStreamGetId(stream: Stream | None) -> tuple[int, int]:
    """The number of the stream in the process."""
    current_context()
    return live_stream(stream).id, 0


def forget_callbacks() -> None:
    """End all subscriptions, and the callback of failed jobs."""
    _subscriptions.__init__()  # type: ignore[misc]
    _on_failure.clear()


os.register_at_fork(after_in_child=forget_callbacks)
