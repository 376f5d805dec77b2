"""The functions of CANN that pooltide only declares: each fails with 207000 and says what it belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..operators.dtypes import ERRORS, RUNTIME
from .state import Refused, record

UNSUPPORTED = ERRORS["ACL_ERROR_RT_FEATURE_NOT_SUPPORT"]


def _function(name: str, returns: str, group: str) -> Callable[..., Any]:
    def missing(*arguments: Any) -> Any:
        text = f"it belongs to {group}, which pooltide does not have; the program must do without it."
        status = record(name, Refused(UNSUPPORTED, text))
        return status if returns == "aclError" else None if returns.endswith("*") or returns == "void" else 0

    missing.__name__ = missing.__qualname__ = name
    missing.__doc__ = f"Always fails: pooltide does not have {group}."
    return missing


def _functions() -> dict[str, Callable[..., Any]]:
    found = {}
    for group in RUNTIME["missing"]:
        for prototype in group["functions"]:
            returns, name = PROTOTYPE.match(prototype).groups()  # type: ignore[union-attr]
            found[name] = _function(name, returns.strip(), group["belongs_to"])
    return found


PROTOTYPE = re.compile(r"(.+?)(\w+)\(")  # the type that a function returns, and its name
FUNCTIONS = _functions()
