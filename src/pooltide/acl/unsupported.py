"""Takes calls of the functions of CANN that pooltide only declares.

Each fails with 207000, and its message says which part of CANN the function belongs to. It must not touch
anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..operators.dtypes import ERRORS, RUNTIME
from .error_reports import Refused, record_failure

UNSUPPORTED = ERRORS["ACL_ERROR_RT_FEATURE_NOT_SUPPORT"]


def _function(name: str, returns: str, group: str) -> Callable[..., Any]:
    def unsupported(*arguments: Any) -> Any:
        text = f"it belongs to {group}, which pooltide does not have; the program must do without it."
        status = record_failure(name, Refused(UNSUPPORTED, text))
        return status if returns == "aclError" else None if returns.endswith("*") or returns == "void" else 0

    unsupported.__name__ = unsupported.__qualname__ = name
    unsupported.__doc__ = f"Always fails: pooltide does not have {group}."
    return unsupported


def _functions() -> dict[str, Callable[..., Any]]:
    functions = {}
    for group in RUNTIME["missing"]:
        for prototype in group["functions"]:
            returns, name = PROTOTYPE.match(prototype).groups()  # type: ignore[union-attr]
            functions[name] = _function(name, returns.strip(), group["belongs_to"])
    return functions


PROTOTYPE = re.compile(r"(.+?)(\w+)\(")  # the type that a function returns, and its name
FUNCTIONS = _functions()
