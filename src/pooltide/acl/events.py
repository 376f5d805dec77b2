"""Events: the functions that create them, record them, wait for them and ask for their state."""

from __future__ import annotations

import time
from typing import Any

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, ERRORS, RUNTIME
from .contexts import live_stream, require_context
from .order import Clock, extend, wait_for
from .state import INVALID, RT_INVALID, STATE, Refused, describe, entry_point, report
from .stream import Job, Stream

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

    def is_known(self) -> bool:
        """Whether the event is done. The host then knows it, as if it had waited."""
        done = self.time is not None
        if done:
            wait_for(self.clock)
        return done


class aclrtEvent:
    def __init__(self, flag: int, *, resettable: bool) -> None:
        self.alive = True
        self.can_sync, self.timed, self.resettable = bool(flag & _SYNC), bool(flag & _TIMED), resettable
        self.record: Record | None = None
        self.waits: set[object] = set()  # calls of aclrtStreamWaitEvent that streams have not reached yet
        self.said = False  # a finding about its missing record was printed

    def __repr__(self) -> str:
        return f"<aclrtEvent{'' if self.alive else ', destroyed'}>"


@entry_point(lambda status: (None, status))
def aclrtCreateEvent() -> tuple[aclrtEvent | None, int]:
    """An event for waits and time stamps."""
    require_context()
    return aclrtEvent(_SYNC | _TIMED, resettable=True), 0


@entry_point(lambda status: (None, status))
def aclrtCreateEventWithFlag(flag: int) -> tuple[aclrtEvent | None, int]:
    """An event for what the flags say: ACL_EVENT_SYNC for waits, ACL_EVENT_TIME_LINE for time stamps."""
    require_context()
    return aclrtEvent(_event_flags(flag), resettable=True), 0


@entry_point(lambda status: (None, status))
def aclrtCreateEventExWithFlag(flag: int) -> tuple[aclrtEvent | None, int]:
    """The same as aclrtCreateEventWithFlag, for an event that is never reset."""
    require_context()
    return aclrtEvent(_event_flags(flag), resettable=False), 0


def _event_flags(flag: Any) -> int:
    known = " | ".join(f"{name} ({code})" for name, code in _FLAGS.items())
    if not is_int(flag) or flag <= 0 or int(flag) & ~sum(_FLAGS.values()):
        raise Refused(INVALID, f"flag is {flag!r:.40}; it must be of {known}.")
    return int(flag)


def _live_event(event: Any, name: str = "event") -> aclrtEvent:
    if not isinstance(event, aclrtEvent) or not event.alive:
        what = "was destroyed" if isinstance(event, aclrtEvent) else f"is {describe(event)}"
        raise Refused(RT_INVALID, f"{name} {what}; it must be an event of aclrtCreateEvent.")
    return event


def _recorded(title: str, event: Any) -> tuple[aclrtEvent, Record | None]:
    """The event and its record. An event that was never recorded is a finding, once."""
    found = _live_event(event)
    if found.record is None and not found.said:
        report(title, "event was never recorded; call aclrtRecordEvent first.", RT_INVALID)
        found.said = True
    return found, found.record


@entry_point(int)
def aclrtDestroyEvent(event: aclrtEvent | None) -> int:
    _live_event(event).alive = False
    return 0


@entry_point(int)
def aclrtRecordEvent(event: aclrtEvent | None, stream: Stream | None) -> int:
    """Let the event stand for all work that is queued on the stream now."""
    found, target = _live_event(event), live_stream(stream)
    with STATE.lock:
        record = Record(target)
        job = target.require_submit(Job("aclrtRecordEvent", record.reach, record.reach), RT_INVALID)
        record.clock[target] = job
        found.record = record
    return 0


@entry_point(int)
def aclrtStreamWaitEvent(stream: Stream | None, event: aclrtEvent | None) -> int:
    """Let the next jobs of the stream wait for the event."""
    target = live_stream(stream)
    found, record = _recorded("aclrtStreamWaitEvent", event)
    if not found.can_sync:
        raise Refused(RT_INVALID, "event has no flag ACL_EVENT_SYNC; it must have it for this call.")
    if record is None:
        return 0
    token = object()

    def wait() -> None:
        record.wait()
        found.waits.discard(token)

    with STATE.lock:
        found.waits.add(token)
        target.require_submit(
            Job("aclrtStreamWaitEvent", wait, lambda: found.waits.discard(token)), RT_INVALID
        )
        extend(target.clock, record.clock)
    return 0


@entry_point(int)
def aclrtResetEvent(event: aclrtEvent | None, stream: Stream | None) -> int:
    """Forget the event's record, when the stream reaches this call."""
    found, target = _live_event(event), live_stream(stream)
    if not found.can_sync or not found.resettable:
        made = "without ACL_EVENT_SYNC" if found.resettable else "by aclrtCreateEventExWithFlag"
        text = f"event was created {made}; it must be one of aclrtCreateEvent or have ACL_EVENT_SYNC."
        raise Refused(RT_INVALID, text)
    record = found.record

    def reset() -> None:
        if found.record is record:
            found.record = None

    target.require_submit(Job("aclrtResetEvent", reset), RT_INVALID)
    return 0


@entry_point(int)
def aclrtSynchronizeEvent(event: aclrtEvent | None) -> int:
    """Wait for the event."""
    require_context()
    _, record = _recorded("aclrtSynchronizeEvent", event)
    if record is not None:
        record.wait()
        record.is_known()
    return 0


@entry_point(lambda status: (0, status))
def aclrtQueryEventStatus(event: aclrtEvent | None) -> tuple[int, int]:
    _, record = _recorded("aclrtQueryEventStatus", event)
    done = record is not None and record.is_known()
    name = f"ACL_EVENT_RECORDED_STATUS_{'COMPLETE' if done else 'NOT_READY'}"
    return ENUMS["aclrtEventRecordedStatus"][name], 0


@entry_point(lambda status: (0, status))
def aclrtQueryEvent(event: aclrtEvent | None) -> tuple[int, int]:
    """The same as aclrtQueryEventStatus, with the older codes."""
    _, record = _recorded("aclrtQueryEvent", event)
    done = record is not None and record.is_known()
    return ENUMS["aclrtEventStatus"][f"ACL_EVENT_STATUS_{'COMPLETE' if done else 'NOT_READY'}"], 0


@entry_point(lambda status: (0, status))
def aclrtQueryEventWaitStatus(event: aclrtEvent | None) -> tuple[int, int]:
    """Whether all streams that wait for the event have reached it."""
    found = _live_event(event)
    name = f"ACL_EVENT_WAIT_STATUS_{'NOT_READY' if found.waits else 'COMPLETE'}"
    return ENUMS["aclrtEventWaitStatus"][name], 0


@entry_point(lambda status: (0.0, status))
def aclrtEventElapsedTime(startEvent: aclrtEvent | None, endEvent: aclrtEvent | None) -> tuple[float, int]:
    """The milliseconds between two events, by the machine's clock."""
    times = []
    for name, event in (("startEvent", startEvent), ("endEvent", endEvent)):
        found = _live_event(event, name)
        if not found.timed:
            text = f"{name} has no flag ACL_EVENT_TIME_LINE; it must have it for a time stamp."
            raise Refused(NO_TIME, text)
        if found.record is None:
            raise Refused(NO_TIME, f"{name} was never recorded; call aclrtRecordEvent first.")
        if found.record.time is None:
            text = f"{name} is not reached yet; call aclrtSynchronizeEvent or aclrtSynchronizeStream first."
            raise Refused(NO_TIME, text)
        times.append(found.record.time)
    elapsed = (times[1] - times[0]) / 1e6
    if elapsed < 0:
        text = f"startEvent is {-elapsed:.3f} ms after endEvent; it must be recorded first."
        raise Refused(REVERSED, text)
    return elapsed, 0


@entry_point(int)
def aclrtSetOpWaitTimeout(timeout: int) -> int:
    """Accepted without effect: a stream waits for an event as long as it takes."""
    if not is_int(timeout) or timeout not in range(2**32):
        raise Refused(INVALID, f"timeout is {timeout!r:.40}; it must be seconds, an int of 32 bits.")
    return 0
