"""Calls of the documented interface as data: a good one per operator, and changes to it.

Phase one reads no tensor data, so these tensors have no memory, and sizes may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pooltide import acl, aclnn
from pooltide.operators.catalog import operator_named
from pooltide.operators.dtypes import DTYPES, FORMATS


@dataclass(frozen=True)
class T:
    shape: tuple[int, ...]
    dtype: str = "FLOAT32"
    format: str = "ND"
    strides: tuple[int, ...] | None = None

    def make(self) -> Any:
        code, layout = DTYPES[self.dtype].code, FORMATS[self.format]
        return acl.aclCreateTensor(self.shape, code, self.strides, 0, layout, self.shape, None)


def _tensors(format: str, dtype: str = "FLOAT32", **shapes: tuple[int, ...]) -> dict[str, T]:
    return {name: T(shape, dtype, format) for name, shape in shapes.items()}


# A status message says where, what, and what would work: function: X; it must be Y. [status NAME]
FORM = re.compile(r"\w+: .+; .*(must|first|is supported on).*\. \[\d+ ACL\w+\]", re.S)


def said() -> str:
    """The message of the last failure, whose form is checked."""
    message = acl.aclGetRecentErrMsg()
    assert message is not None
    assert FORM.fullmatch(message), message
    assert acl.aclGetRecentErrMsg() is None, "the first call clears the message"
    return message


AVG3 = "aclnnAdaptiveAvgPool3dBackward"
AVG2 = "aclnnAvgPool2dBackward"
MAX2 = "aclnnAdaptiveMaxPool2dBackward"
MAX3 = "aclnnAdaptiveMaxPool3dBackward"

GOOD: dict[str, dict[str, Any]] = {
    AVG3: _tensors("NCDHW", gradOutput=(2, 3, 3, 5, 2), self=(2, 3, 7, 11, 13), out=(2, 3, 7, 11, 13)),
    AVG2: {
        **_tensors("NCHW", gradOutput=(2, 3, 4, 6), self=(2, 3, 7, 11), gradInput=(2, 3, 7, 11)),
        "kernelSize": [3],
        "stride": [2],
        "padding": [1],
        "ceilMode": False,
        "countIncludePad": True,
        "divisorOverride": 0,
        "cubeMathType": 0,
    },
    MAX2: {
        **_tensors("ND", gradOutput=(2, 3, 2, 5), self=(2, 3, 7, 11), gradInput=(2, 3, 7, 11)),
        "indices": T((2, 3, 2, 5), "INT64"),
    },
    MAX3: {
        **_tensors("ND", gradOutput=(2, 3, 2, 5, 3), self=(2, 3, 5, 7, 11), gradInput=(2, 3, 5, 7, 11)),
        "indices": T((2, 3, 2, 5, 3), "INT32"),
    },
}


def good_for(operator: str, product: str) -> dict[str, Any]:
    """The good call, changed where a product needs it: float32 wants cubeMathType 1 on two."""
    if operator == AVG2 and product in ("atlas-inference", "atlas-training"):
        return GOOD[operator] | {"cubeMathType": 1}
    return GOOD[operator]


def with_all(operator: str, *names: str, **fields: Any) -> dict[str, T]:
    """Several tensors of the good call, changed alike."""
    return {name: replace(GOOD[operator][name], **fields) for name in names}


@contextmanager
def product(name: str) -> Iterator[None]:
    before = acl.get_product()
    acl.set_product(name)
    try:
        yield
    finally:
        acl.set_product(before)


def arguments(operator: str, values: dict[str, Any]) -> list[Any]:
    def made(value: Any) -> Any:
        if isinstance(value, T):
            return value.make()
        return acl.aclCreateIntArray(value) if isinstance(value, list) else value

    return [made(values[p.name]) for p in operator_named(operator).parameters]


def phase_one(operator: str, values: dict[str, Any]) -> tuple[int, Any, int, str | None]:
    """(workspaceSize, executor, status, message)"""
    made = arguments(operator, values)
    acl.aclGetRecentErrMsg()
    size, executor, status = getattr(aclnn, f"{operator}GetWorkspaceSize")(*made)
    return size, executor, status, acl.aclGetRecentErrMsg()
