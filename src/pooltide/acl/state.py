"""What the runtime remembers: whether it runs, the product, the checks level, errors by thread.

A function of the interface never raises for what a C caller could get wrong: it records a sentence
for the calling thread and returns the status. `fail` does both.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast

from ..operators.call import article, is_int
from ..operators.dtypes import ENUMS, ERRORS, status_name
from ..operators.pages import ASCEND_PRODUCTS, DEFAULT_PRODUCT

INVALID = ERRORS["ACL_ERROR_INVALID_PARAM"]
UNINITIALIZED = ERRORS["ACL_ERROR_UNINITIALIZE"]
RT_INVALID = ERRORS["ACL_ERROR_RT_PARAM_INVALID"]
BAD_ALLOC = ERRORS["ACL_ERROR_BAD_ALLOC"]
INTERNAL = ERRORS["ACL_ERROR_INTERNAL_ERROR"]

F = TypeVar("F", bound=Callable[..., Any])
CHECKS = ("off", "warn", "strict")


@dataclass
class State:
    product: str = DEFAULT_PRODUCT
    checks: str = "warn"
    initialized: bool = False
    finalized: bool = False  # since the last aclInit: a second aclFinalize says so
    forked: bool = False  # this is a child, and the parent's runtime is not its own
    options: dict[int, int] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


STATE = State()
_thread = threading.local()


def fail(title: str, text: str, status: int) -> int:
    """Keep the reason for the calling thread, and return the status."""
    _thread.message = f"{title}: {text} [{status} {status_name(status)}]"
    return status


def keep_message(message: str) -> None:
    """A reason found elsewhere, on a stream's worker, becomes this thread's."""
    _thread.message = message


def take_message() -> str | None:
    message: str | None = getattr(_thread, "message", None)
    _thread.message = None
    return message


def not_running(title: str, status: int = UNINITIALIZED) -> int:
    """0 while the runtime runs; else the status, with the reason kept."""
    if STATE.initialized:
        return 0
    when = "after aclFinalize" if STATE.finalized else "before aclInit"
    when = "in a child process after fork()" if STATE.forked else when
    return fail(title, f"it was called {when}; call aclInit first.", status)


def say(line: str) -> None:
    """One readable line for the person who runs the program. It may not cost them the program."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"pooltide: {line}\n")  # in one piece: other threads write too
            sys.stderr.flush()


def guarded(failed: Callable[[int], Any], status: int = INTERNAL) -> Callable[[F], F]:
    """What a function must never let out, an exception, becomes `failed(status)` and a reason."""

    def wrap(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                    raise  # not ours: the call itself has too few or too many arguments
                text = f"{type(error).__name__}: {error}; an argument is beyond what can be handled."
                return failed(fail(function.__name__, text, status))

        return cast(F, call)

    return wrap


def _after_fork() -> None:
    """A child has no workers, and a lock that another thread held stays locked."""
    STATE.lock = threading.RLock()
    STATE.forked = STATE.forked or STATE.initialized
    STATE.initialized = False


os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class NoHandle:
    """A word that a C program handed in as a handle, and that is none."""

    value: int
    why: str  # "which no call gave out"


def an(value: Any) -> str:
    """A value as a message names it: its type, and an int's value."""
    if value is None:
        return "null"
    if isinstance(value, NoHandle):
        return f"{value.value:#x}, {value.why}"
    if is_int(value):
        return f"an int, {value}"
    name = type(value).__name__
    return f"{article(name)} {name}"


def set_product(product: str) -> None:
    """Check calls as the product of this id does; `get_product` tells which it is."""
    if product not in ASCEND_PRODUCTS:
        known = ", ".join(ASCEND_PRODUCTS)
        raise ValueError(f"set_product: product is {product!r}; it must be one of {known}.")
    STATE.product = product


def get_product() -> str:
    return STATE.product


def set_checks(level: str) -> None:
    """off, warn or strict: what happens when a computation meets bad data."""
    if level not in CHECKS:
        raise ValueError(f"set_checks: level is {level!r}; it must be one of {', '.join(CHECKS)}.")
    STATE.checks = level


def get_checks() -> str:
    return STATE.checks


def read_environment() -> str | None:
    """Take POOLTIDE_PRODUCT and POOLTIDE_CHECKS; the reason, when one has no meaning."""
    for name, setter in (("POOLTIDE_PRODUCT", set_product), ("POOLTIDE_CHECKS", set_checks)):
        if value := os.environ.get(name):
            try:
                setter(value)
            except ValueError as error:
                return f"the environment has {name}={value}. {error}"
    return None


ENVIRONMENT_FAULT = read_environment()
DETERMINISTIC = ENUMS["aclSysParamOpt"]["ACL_OPT_DETERMINISTIC"]
