"""Takes the settings of the program and of the environment: product, edition, checks level, devices, options.

Hands out `STATE`, which also says whether the runtime is initialized. It must not touch memory or streams.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from ..operators.pages import ASCEND_PRODUCTS, CHIPS, DEFAULT_PRODUCT

CHECKS = ("off", "warn", "strict")
# Of CANN. docs/c.md has the table of what differs between them.
EDITIONS = ("6.3", "7.0", "8.0", "8.1", "8.2", "8.3", "8.5", "9.0", "9.1", "9.2")
_MAX_DEVICES = 64


@dataclass
class State:
    product: str = DEFAULT_PRODUCT
    chip: str = ""  # the name of a chip of the product, if the program or the environment chose one
    checks: str = "warn"
    edition: str = EDITIONS[-1]
    devices: int = 1
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
    """Check calls by the rules of this product, or of this chip's. Raises ValueError for an unknown one."""
    family = _family(product)
    if family is None:
        known = ", ".join(ASCEND_PRODUCTS)
        must = f"it must be one of {known}, or a chip such as Ascend910B1."
        raise ValueError(f"set_product: product is {product!r}; {must}")
    STATE.product, STATE.chip = family, "" if family == product else product


def _family(product: str) -> str | None:
    if product in ASCEND_PRODUCTS:
        return product
    known = (
        family for start, family in CHIPS.items() if isinstance(product, str) and product.startswith(start)
    )
    return next(known, None)


def get_product() -> str:
    return STATE.product


def set_checks(level: str) -> None:
    """Set what happens when a computation meets bad data: off, warn or strict."""
    if level not in CHECKS:
        raise ValueError(f"set_checks: level is {level!r}; it must be one of {', '.join(CHECKS)}.")
    STATE.checks = level


def get_checks() -> str:
    return STATE.checks


def set_edition(edition: str) -> None:
    """Behave as this edition of CANN where editions differ. Raises ValueError for an unknown one."""
    if edition not in EDITIONS:
        raise ValueError(f"set_edition: edition is {edition!r}; it must be one of {', '.join(EDITIONS)}.")
    STATE.edition = edition


def get_edition() -> str:
    return STATE.edition


def edition_from(first: str) -> bool:
    """Whether the edition is this one or newer."""
    return EDITIONS.index(STATE.edition) >= EDITIONS.index(first)


def _set_devices(count: str) -> None:
    if not count.isdecimal() or not 1 <= int(count) <= _MAX_DEVICES:
        raise ValueError(f"It must be a number from 1 to {_MAX_DEVICES}.")
    STATE.devices = int(count)


def read_environment() -> str | None:
    """Apply the variables of the environment; returns the fault of the first bad value, or None."""
    setters = {
        "POOLTIDE_PRODUCT": set_product,
        "POOLTIDE_CHECKS": set_checks,
        "POOLTIDE_EDITION": set_edition,
        "POOLTIDE_DEVICES": _set_devices,
    }
    for name, setter in setters.items():
        if value := os.environ.get(name):
            try:
                setter(value)
            except ValueError as error:
                return f"the environment has {name}={value}. {error}"
    return None


ENVIRONMENT_FAULT = read_environment()
