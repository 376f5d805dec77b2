"""Takes calls that create, destroy, query or wait for a stream, and the stream argument of every other call.

Returns live streams of the thread's context, and the status of the first job that failed. It must not touch
memory or tensors.
"""

from __future__ import annotations

from typing import Any

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, ERRORS
from .contexts import NO_CONTEXT, STREAMS, current_context, report_after_reset
from .error_reports import (
    ACL_INVALID,
    ACLNN_INVALID,
    BAD_ALLOC,
    RT_INVALID,
    RUNTIME_ERROR,
    Refused,
    entry_point,
    require_running,
    set_message,
)
from .handles import require_live
from .state import STATE
from .stream_queue import Failure, Stream

OTHER_CONTEXT = ERRORS["ACL_ERROR_RT_STREAM_CONTEXT"]
TIMEOUT = ERRORS["ACL_ERROR_RT_STREAM_SYNC_TIMEOUT"]
_MAX_TIMEOUT = 2**31 - 1


def live_stream(stream: Any, *, aclnn: bool = False) -> Stream:
    """The stream of a handle; None is the default stream of the thread's context. Raises Refused.

    `aclnn` is true for calls whose statuses are aclnnStatus.
    """
    context = current_context(RUNTIME_ERROR if aclnn else NO_CONTEXT)
    if stream is None:
        return context.default_stream()
    live = require_live("stream", stream, Stream, ACLNN_INVALID if aclnn else RT_INVALID)
    if live.released:
        text = f"stream is {live}, which aclrtResetDevice has released; it must be a new stream."
        raise Refused(RUNTIME_ERROR if aclnn else RT_INVALID, text)
    if not context.holds(live):
        text = f"stream is {stream}, of another context; it must be a stream of this thread's context."
        raise Refused(RUNTIME_ERROR if aclnn else OTHER_CONTEXT, text)
    return live


@entry_point(lambda status: (None, status), needs_init=False)
def aclrtCreateStream() -> tuple[Stream | None, int]:
    with STATE.lock:  # aclFinalize in another thread closes only streams that exist already
        require_running("aclrtCreateStream")
        return _new_stream(), 0


@entry_point(lambda status: (None, status), needs_init=False)
def aclrtCreateStreamWithConfig(priority: int, flag: int) -> tuple[Stream | None, int]:
    """A stream. Priority and flags have no effect."""
    with STATE.lock:
        require_running("aclrtCreateStreamWithConfig")
        for name, value in (("priority", priority), ("flag", flag)):
            if not is_int(value) or value not in range(2**32):
                raise Refused(ACL_INVALID, f"{name} is {value!r:.40}; it must be an int of 32 bits.")
        return _new_stream(), 0


def _new_stream() -> Stream:
    context = current_context()
    try:
        return context.create_stream()
    except (OSError, RuntimeError) as error:  # no timer, no thread
        text = (
            f"the system has no room for another stream ({error}); destroy streams that are not used first."
        )
        raise Refused(BAD_ALLOC, text) from None


@entry_point(int)
def aclrtDestroyStream(stream: Stream | None) -> int:
    """Finish the queued jobs, then end the stream."""
    return _destroy_stream(stream, force=False)


@entry_point(int)
def aclrtDestroyStreamForce(stream: Stream | None) -> int:
    """End the stream, and drop the queued jobs that have not begun."""
    return _destroy_stream(stream, force=True)


def _destroy_stream(stream: Any, *, force: bool) -> int:
    live = require_live("stream", stream, Stream, RT_INVALID)
    if live.released:
        report_after_reset("aclrtDestroyStreamForce" if force else "aclrtDestroyStream")
    live.refuse_endless_wait()
    STREAMS.destroy(live, force=force)
    return 0


@entry_point(int)
def aclrtSynchronizeStream(stream: Stream | None) -> int:
    """Wait for the stream; the status of the first job that failed. None is the default stream."""
    return _status(live_stream(stream).synchronize())


def _status(failure: Failure | None) -> int:
    """The status of a job that failed; its message becomes the thread's message."""
    if failure is None:
        return 0
    set_message(failure.message, failure.status, failure.finding)
    return failure.status


@entry_point(int)
def aclrtSynchronizeStreamWithTimeout(stream: Stream | None, timeout: int) -> int:
    """The same as aclrtSynchronizeStream, for at most `timeout` milliseconds; -1 means without a limit."""
    if not is_int(timeout) or not -1 <= timeout <= _MAX_TIMEOUT:
        text = f"timeout is {timeout!r:.40}; it must be -1 (no limit) or milliseconds, 0 to {_MAX_TIMEOUT}."
        raise Refused(ACL_INVALID, text)
    target = live_stream(stream)
    if timeout >= 0 and not target.wait(timeout / 1000):
        text = f"the jobs of {target} took longer than timeout, {timeout} ms; it must be longer, or -1."
        raise Refused(TIMEOUT, text)
    return _status(target.synchronize())


@entry_point(lambda status: (0, status))
def aclrtStreamQuery(stream: Stream | None) -> tuple[int, int]:
    done = live_stream(stream).finished()
    return ENUMS["aclrtStreamStatus"][f"ACL_STREAM_STATUS_{'COMPLETE' if done else 'NOT_READY'}"], 0


@entry_point(int)
def aclrtSetStreamFailureMode(stream: Stream | None, mode: int) -> int:
    """Accepted without effect: after a failed job, a stream goes on with the next."""
    live_stream(stream)
    if not is_int(mode) or mode not in (0, 1):
        raise Refused(ACL_INVALID, f"mode is {mode!r:.40}; it must be 0 or 1.")
    return 0
