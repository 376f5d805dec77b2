"""Takes the exception `Refused` that a call or a job raises, and the findings of the checks.

Gives a program statuses, a message per thread and lines on stderr: a public function, which the decorator
`entry_point` makes, never raises for a mistake that a C caller could make. It must not touch memory, streams
or tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

from ..operators.call import article, is_int
from ..operators.dtypes import ERRORS, STATUS, status_name
from .findings import FINDINGS, Finding, Origins
from .state import ENVIRONMENT_FAULT, STATE

ACL_INVALID = ERRORS["ACL_ERROR_INVALID_PARAM"]
RT_INVALID = ERRORS["ACL_ERROR_RT_PARAM_INVALID"]
BAD_ALLOC = ERRORS["ACL_ERROR_BAD_ALLOC"]
INTERNAL = ERRORS["ACL_ERROR_INTERNAL_ERROR"]
UNINITIALIZED = ERRORS["ACL_ERROR_UNINITIALIZE"]
UNSUPPORTED = ERRORS["ACL_ERROR_RT_FEATURE_NOT_SUPPORT"]
ACLNN_INVALID = STATUS["ACLNN_ERR_PARAM_INVALID"]
RUNTIME_ERROR = STATUS["ACLNN_ERR_RUNTIME_ERROR"]
ACLNN_NULL = STATUS["ACLNN_ERR_PARAM_NULLPTR"]

# The statuses of a call before aclInit, of a call that raises an unforeseen exception, and without memory.
ACL_STATUSES = UNINITIALIZED, INTERNAL, BAD_ALLOC
ACLNN_STATUSES = RUNTIME_ERROR, STATUS["ACLNN_ERR_INNER"], RUNTIME_ERROR

F = TypeVar("F", bound=Callable[..., Any])
_thread = threading.local()


class Refused(Exception):
    """A call or a job that fails; `text` says why and what would work.

    `origins`: where the program made what the text names. `certain`: the checks found it, at strict.
    """

    def __init__(self, status: int, text: str, origins: Origins = (), *, certain: bool = False) -> None:
        super().__init__(status, text)
        self.status, self.text, self.origins, self.certain = status, text, origins, certain

    def record(self, title: str) -> Finding:
        message = format_message(title, self.text, self.status)
        return FINDINGS.record(message, certain=self.certain, origins=self.origins)


def format_message(title: str, text: str, status: int) -> str:
    return f"{title}: {text} [{status} {status_name(status)}]"


def set_message(message: str, status: int, finding: Finding | None = None) -> None:
    """Store the message and the status of a failure for the calling thread."""
    _thread.message, _thread.status = message, status
    _thread.finding = finding or FINDINGS.record(message, certain=False)


def set_quiet_message(title: str, text: str, status: int) -> int:
    """Store the message of an answer that is no mistake, though a status has it; returns the status."""
    _thread.message, _thread.status = format_message(title, text, status), status
    _thread.finding = None
    return status


def record_failure(title: str, refused: Refused) -> int:
    """Store the message and the status for the calling thread; returns the status."""
    set_message(format_message(title, refused.text, refused.status), refused.status, refused.record(title))
    return refused.status


def last_status(*, clear: bool) -> int:
    """The status of the calling thread's last failure; 0 when there is none."""
    status: int = getattr(_thread, "status", 0)
    if clear:
        _thread.status = 0
    return status


def show_failure(origins: Origins) -> None:
    """Print the calling thread's last failure, with more origins."""
    finding: Finding | None = getattr(_thread, "finding", None)
    if finding is not None:
        if not finding.shown:
            finding.origins += origins
        FINDINGS.show(finding)


def recent_message() -> str | None:
    message: str | None = getattr(_thread, "message", None)
    return message


def take_message() -> str | None:
    """The calling thread's message, which is cleared; None when there is none."""
    message = recent_message()
    _thread.message = None
    if message is not None and (finding := getattr(_thread, "finding", None)) is not None:
        finding.noticed += 1
    return message


def require_running(title: str, status: int = UNINITIALIZED) -> None:
    """Raises Refused after aclFinalize and in a forked child. Before aclInit, starts the runtime.

    Programs for CANN 6.3 and 7 begin with aclrtSetDevice and never call aclInit.
    """
    if STATE.initialized:
        return
    with STATE.lock:
        if STATE.finalized or STATE.forked:
            when = "in a child process after fork()" if STATE.forked else "after aclFinalize"
            raise Refused(status, f"it was called {when}; call aclInit first.")
        if ENVIRONMENT_FAULT:
            raise Refused(status, ENVIRONMENT_FAULT)
        if not STATE.initialized:
            STATE.initialized = STATE.implicit = True
            if STATE.checks != "off":
                text = "it was called before aclInit, so the runtime starts now; call aclInit first."
                FINDINGS.show(FINDINGS.record(f"{title}: {text}", certain=True))


def report(
    title: str,
    finding: str,
    status: int,
    checks: str | None = None,
    effect: str = "",
    origins: Origins = (),
) -> None:
    """Reports a finding: raises Refused with this status at the level strict, prints a line at warn.

    A job passes the level of its call as `checks`. The line also says what the finding changes, `effect`, and
    where the program made what the finding names, `origins`.
    """
    level = STATE.checks if checks is None else checks
    if level == "strict":
        raise Refused(status, finding, origins, certain=True)
    if level == "warn":
        FINDINGS.show(FINDINGS.record(f"{title}: {finding}", certain=True, origins=origins), effect)


def require_code(name: str, value: Any, codes: Mapping[str, int]) -> None:
    """Raises Refused unless the value is one of an enumeration."""
    if not is_int(value) or value not in codes.values():
        known = ", ".join(f"{constant} ({code})" for constant, code in codes.items())
        raise Refused(ACL_INVALID, f"{name} is {value!r:.40}; it must be one of {known}.")


def entry_point(
    failed: Callable[[int], Any], statuses: tuple[int, int, int] = ACL_STATUSES, *, needs_init: bool = True
) -> Callable[[F], F]:
    """Makes a public function, which returns `failed(status)` where the code inside raises.

    `needs_init` is true when the call needs a runtime that is started.
    """

    def wrap(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                if needs_init:
                    require_running(function.__name__, statuses[0])
                return function(*args, **kwargs)
            except Refused as error:
                return failed(record_failure(function.__name__, error))
            except MemoryError:
                text = "the machine has too little memory for this call; it must be smaller."
                return failed(record_failure(function.__name__, Refused(statuses[2], text)))
            except Exception as error:
                if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                    raise  # the caller passed too few or too many arguments
                text = f"an argument is beyond what can be handled ({type(error).__name__}: {error})"
                refused = Refused(statuses[1], f"{text}; it must be a value of its C type.")
                return failed(record_failure(function.__name__, refused))

        return cast(F, call)

    return wrap


@dataclass(frozen=True)
class InvalidHandle:
    """A word that a C program passed as a handle, and that is not one."""

    value: int
    why: str  # "which no call gave out"


def describe(value: Any) -> str:
    """A value as a message names it: its type, and an int's value."""
    if value is None:
        return "null"
    if isinstance(value, InvalidHandle):
        return f"{value.value:#x}, {value.why}"
    if is_int(value):
        return f"an int, {value}"
    name = type(value).__name__
    return f"{article(name)} {name}"
