"""Takes calls of the functions of CANN that pooltide only declares.

Each fails with 207000, and its message says which part of CANN the function belongs to. Those that a program
can do without, such as profiling, succeed and do nothing; the first call prints a line. It must not touch
anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..operators.dtypes import RUNTIME
from .error_reports import UNSUPPORTED, Refused, record_failure
from .findings import say
from .state import STATE


def _function(name: str, returns: str, group: str) -> Callable[..., Any]:
    def unsupported(*arguments: Any) -> Any:
        text = f"it belongs to {group}, which pooltide does not have; the program must do without it."
        status = record_failure(name, Refused(UNSUPPORTED, text))
        return status if returns == "aclError" else None if returns.endswith("*") or returns == "void" else 0

    unsupported.__name__ = unsupported.__qualname__ = name
    unsupported.__doc__ = f"Always fails: pooltide does not have {group}."
    return unsupported


class Placeholder:
    """What a function that does nothing returns in place of a pointer."""

    alive = True


_announced: set[str] = set()  # parts of CANN that were named on stderr


def _harmless(name: str, returns: str, group: str) -> Callable[..., Any]:
    def nothing(*arguments: Any) -> Any:
        if group not in _announced and STATE.checks != "off":
            _announced.add(group)
            say(f"{name}: it belongs to {group}, which pooltide does not have; these functions do nothing.")
        return Placeholder() if returns.endswith("*") else 0

    nothing.__name__ = nothing.__qualname__ = name
    nothing.__doc__ = f"Does nothing: pooltide does not have {group}."
    return nothing


def _functions() -> dict[str, Callable[..., Any]]:
    functions = {}
    for group in RUNTIME["missing"]:
        for prototype in group["functions"]:
            returns, name = PROTOTYPE.match(prototype).groups()  # type: ignore[union-attr]
            make = _harmless if group.get("harmless") else _function
            functions[name] = make(name, returns.strip(), group["belongs_to"])
    return functions


PROTOTYPE = re.compile(r"(.+?)(\w+)\(")  # the type that a function returns, and its name
FUNCTIONS = _functions()
