"""Takes calls that create events, record them on a stream, wait for them and ask for their state.

Returns events, states and times, and orders the jobs of one stream after those of another. It must not touch
memory or tensors.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, ERRORS, RUNTIME
from .contexts import current_context
from .error_reports import ACL_INVALID, RT_INVALID, Refused, entry_point, report
from .handles import destroyed_mark, require_live
from .races import Clock, extend, wait_for
from .state import STATE
from .stream_queue import Job, Stream
from .streams import live_stream

_FLAGS: dict[str, int] = RUNTIME["flags"]["event"]
_SYNC, _TIMED = _FLAGS["ACL_EVENT_SYNC"], _FLAGS["ACL_EVENT_TIME_LINE"]
NO_TIME = ERRORS["ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID"]
REVERSED = ERRORS["ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL"]


class Record:
    """One call of aclrtRecordEvent: done when the stream reaches it."""

    def __init__(self, stream: Stream) -> None:
        self.clock: Clock = {}
        extend(self.clock, stream.clock)
        self.stream = stream
        self.time: int | None = None  # when the stream reached it

    def reach(self) -> None:
        self.time = time.perf_counter_ns()

    def wait(self) -> None:
        self.stream.wait(job=self.clock[self.stream])

    def is_done(self) -> bool:
        """Whether the stream has reached it. If so, the host counts as having waited for it."""
        done = self.time is not None
        if done:
            wait_for(self.clock)
        return done


class aclrtEvent:
    must_be: ClassVar[str] = "an event of aclrtCreateEvent"

    def __init__(self, flag: int, *, resettable: bool) -> None:
        self.alive = True
        self.can_sync, self.timed, self.resettable = bool(flag & _SYNC), bool(flag & _TIMED), resettable
        self.record: Record | None = None
        self.unrecorded = "was never recorded"  # what a message says without a record
        self.waits: set[object] = set()  # calls of aclrtStreamWaitEvent that streams have not reached yet
        self.reported = False  # the finding that it was never recorded was printed

    def __repr__(self) -> str:
        return f"<aclrtEvent{destroyed_mark(self.alive)}>"


@entry_point(lambda status: (None, status))
def aclrtCreateEvent() -> tuple[aclrtEvent | None, int]:
    """An event for waits and time stamps."""
    current_context()
    return aclrtEvent(_SYNC | _TIMED, resettable=True), 0


@entry_point(lambda status: (None, status))
def aclrtCreateEventWithFlag(flag: int) -> tuple[aclrtEvent | None, int]:
    """An event for what the flags say: ACL_EVENT_SYNC for waits, ACL_EVENT_TIME_LINE for time stamps."""
    current_context()
    return aclrtEvent(_event_flags(flag), resettable=True), 0


@entry_point(lambda status: (None, status))
def aclrtCreateEventExWithFlag(flag: int) -> tuple[aclrtEvent | None, int]:
    """The same as aclrtCreateEventWithFlag, for an event that is never reset."""
    current_context()
    return aclrtEvent(_event_flags(flag), resettable=False), 0


def _event_flags(flag: Any) -> int:
    known = " | ".join(f"{name} ({code})" for name, code in _FLAGS.items())
    if not is_int(flag) or flag <= 0 or int(flag) & ~sum(_FLAGS.values()):
        raise Refused(ACL_INVALID, f"flag is {flag!r:.40}; it must be of {known}.")
    return int(flag)


def _live_event(event: Any, name: str = "event") -> aclrtEvent:
    return require_live(name, event, aclrtEvent, RT_INVALID)


def _recorded(title: str, event: Any) -> tuple[aclrtEvent, Record | None]:
    """The event and its record. Reports, once, an event that was never recorded."""
    live = _live_event(event)
    if live.record is None and not live.reported:
        report(title, f"event {live.unrecorded}; call aclrtRecordEvent first.", RT_INVALID)
        live.reported = True
    return live, live.record


@entry_point(int)
def aclrtDestroyEvent(event: aclrtEvent | None) -> int:
    _live_event(event).alive = False
    return 0


@entry_point(int)
def aclrtRecordEvent(event: aclrtEvent | None, stream: Stream | None) -> int:
    """Let the event stand for all work that is queued on the stream now."""
    live, target = _live_event(event), live_stream(stream)
    with STATE.lock:
        record = Record(target)
        job = target.require_submit(Job("aclrtRecordEvent", record.reach, record.reach), RT_INVALID)
        record.clock[target] = job
        live.record = record
    return 0


@entry_point(int)
def aclrtStreamWaitEvent(stream: Stream | None, event: aclrtEvent | None) -> int:
    """Let the next jobs of the stream wait for the event."""
    target = live_stream(stream)
    live, record = _recorded("aclrtStreamWaitEvent", event)
    if not live.can_sync:
        raise Refused(RT_INVALID, "event has no flag ACL_EVENT_SYNC; it must have it for this call.")
    if record is None:
        return 0
    token = object()

    def wait() -> None:
        record.wait()
        live.waits.discard(token)

    with STATE.lock:
        live.waits.add(token)
        target.require_submit(
            Job("aclrtStreamWaitEvent", wait, lambda: live.waits.discard(token)), RT_INVALID
        )
        extend(target.clock, record.clock)
    return 0


@entry_point(int)
def aclrtResetEvent(event: aclrtEvent | None, stream: Stream | None) -> int:
    """Forget the event's record, when the stream reaches this call."""
    live, target = _live_event(event), live_stream(stream)
    if not live.can_sync or not live.resettable:
        how, must = "by aclrtCreateEventExWithFlag", "be one of aclrtCreateEvent or aclrtCreateEventWithFlag"
        if live.resettable:
            how, must = "without ACL_EVENT_SYNC", "be one of aclrtCreateEvent, or have ACL_EVENT_SYNC"
        raise Refused(RT_INVALID, f"event was created {how}; it must {must}.")
    record = live.record

    def reset() -> None:
        if live.record is record:
            live.record, live.unrecorded = None, "was reset by aclrtResetEvent"

    target.require_submit(Job("aclrtResetEvent", reset), RT_INVALID)
    return 0


@entry_point(int)
def aclrtSynchronizeEvent(event: aclrtEvent | None) -> int:
    """Wait for the event."""
    current_context()
    _, record = _recorded("aclrtSynchronizeEvent", event)
    if record is not None:
        record.wait()
        record.is_done()
    return 0


def _state(title: str, event: Any) -> str:
    _, record = _recorded(title, event)
    return "COMPLETE" if record is not None and record.is_done() else "NOT_READY"


@entry_point(lambda status: (0, status))
def aclrtQueryEventStatus(event: aclrtEvent | None) -> tuple[int, int]:
    name = f"ACL_EVENT_RECORDED_STATUS_{_state('aclrtQueryEventStatus', event)}"
    return ENUMS["aclrtEventRecordedStatus"][name], 0


@entry_point(lambda status: (0, status))
def aclrtQueryEvent(event: aclrtEvent | None) -> tuple[int, int]:
    """The same as aclrtQueryEventStatus, with the older codes."""
    return ENUMS["aclrtEventStatus"][f"ACL_EVENT_STATUS_{_state('aclrtQueryEvent', event)}"], 0


@entry_point(lambda status: (0, status))
def aclrtQueryEventWaitStatus(event: aclrtEvent | None) -> tuple[int, int]:
    """Whether all streams that wait for the event have reached it."""
    live = _live_event(event)
    if not live.waits and live.record is not None:
        live.record.is_done()  # if so, the host has waited for it
    name = f"ACL_EVENT_WAIT_STATUS_{'NOT_READY' if live.waits else 'COMPLETE'}"
    return ENUMS["aclrtEventWaitStatus"][name], 0


@entry_point(lambda status: (0.0, status))
def aclrtEventElapsedTime(startEvent: aclrtEvent | None, endEvent: aclrtEvent | None) -> tuple[float, int]:
    """The milliseconds between two events, by the machine's clock."""
    times = []
    for name, event in (("startEvent", startEvent), ("endEvent", endEvent)):
        live = _live_event(event, name)
        if not live.timed:
            text = f"{name} has no flag ACL_EVENT_TIME_LINE; it must have it for a time stamp."
            raise Refused(NO_TIME, text)
        if live.record is None:
            raise Refused(NO_TIME, f"{name} {live.unrecorded}; call aclrtRecordEvent first.")
        if live.record.time is None:
            text = f"{name} is not reached yet; call aclrtSynchronizeEvent or aclrtSynchronizeStream first."
            raise Refused(NO_TIME, text)
        times.append(live.record.time)
    elapsed = (times[1] - times[0]) / 1e6
    if elapsed < 0:
        text = f"startEvent is {-elapsed:.3f} ms after endEvent; it must be recorded first."
        raise Refused(REVERSED, text)
    return elapsed, 0


@entry_point(int)
def aclrtSetOpWaitTimeout(timeout: int) -> int:
    """Accepted without effect: a stream waits for an event as long as it takes."""
    if not is_int(timeout) or timeout not in range(2**32):
        raise Refused(ACL_INVALID, f"timeout is {timeout!r:.40}; it must be seconds, an int of 32 bits.")
    return 0
