"""A fault: why a call is refused, and the words that the sentences of the rules share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .call import Call
from .dtypes import STATUS, status_name

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call is refused. `error` is what a Python function raises for it."""

    text: str
    error: type[Exception] = ValueError
    status: int = STATUS["ACLNN_ERR_PARAM_INVALID"]
    rule: str = ""
    row: int | None = None
    item: int | None = None  # of the status in the document's error table

    def message(self, title: str) -> str:
        return f"{title}: {self.text} [{self.status} {status_name(self.status)}]"


def names_of(call: Call, *roles: str) -> Names:
    found = (call.operator.by_role(role) for role in roles)
    return tuple(parameter.name for parameter in found if parameter)


def spelled_role(call: Call, role: str) -> str:
    return call.spell(names_of(call, role)[0])


def spelled(value: Any) -> str:
    return shape_text(value) if isinstance(value, tuple) else str(value)


def shape_text(shape: Iterable[int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def either(values: Iterable[Any]) -> str:
    *init, last = map(str, values)
    return f"{', '.join(init)} or {last}" if init else last


def dtype_text(call: Call, name: str) -> str:
    return name.lower() if call.by_function else name
