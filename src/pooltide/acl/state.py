"""Takes the settings of the program and of the environment: product, checks level, options.

Hands out `STATE`, which also says whether the runtime is initialized. It must not touch memory or streams.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from ..operators.pages import ASCEND_PRODUCTS, DEFAULT_PRODUCT

CHECKS = ("off", "warn", "strict")


@dataclass
class State:
    product: str = DEFAULT_PRODUCT
    checks: str = "warn"
    initialized: bool = False
    implicit: bool = False  # a call before aclInit started the runtime
    finalized: bool = False  # aclFinalize was called after the last aclInit
    forked: bool = False  # this process is a child of a process whose runtime was initialized
    options: dict[int, int] = field(default_factory=dict)  # of the process; a context has its own
    lock: threading.RLock = field(default_factory=threading.RLock)


STATE = State()


def _after_fork() -> None:
    """In a child: another thread of the parent may have held the lock, so make a new one."""
    STATE.lock = threading.RLock()
    STATE.forked = STATE.forked or STATE.initialized
    STATE.initialized = False


os.register_at_fork(after_in_child=_after_fork)


def set_product(product: str) -> None:
    """Check calls by the rules of this product. Raises ValueError for an unknown id."""
    if product not in ASCEND_PRODUCTS:
        known = ", ".join(ASCEND_PRODUCTS)
        raise ValueError(f"set_product: product is {product!r}; it must be one of {known}.")
    STATE.product = product


def get_product() -> str:
    return STATE.product


def set_checks(level: str) -> None:
    """Set what happens when a computation meets bad data: off, warn or strict."""
    if level not in CHECKS:
        raise ValueError(f"set_checks: level is {level!r}; it must be one of {', '.join(CHECKS)}.")
    STATE.checks = level


def get_checks() -> str:
    return STATE.checks


def read_environment() -> str | None:
    """Apply POOLTIDE_PRODUCT and POOLTIDE_CHECKS; returns the fault of the first bad value, or None."""
    for name, setter in (("POOLTIDE_PRODUCT", set_product), ("POOLTIDE_CHECKS", set_checks)):
        if value := os.environ.get(name):
            try:
                setter(value)
            except ValueError as error:
                return f"the environment has {name}={value}. {error}"
    return None


ENVIRONMENT_FAULT = read_environment()
