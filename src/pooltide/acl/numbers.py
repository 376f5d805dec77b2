"""Sizes of data types, conversion of half-precision numbers, and the program's own log lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, RUNTIME, dtype_by_code
from .state import INVALID, Refused, entry_point, require_code, say

_SIZES: dict[int, int] = {ENUMS["aclDataType"][name]: size for name, size in RUNTIME["sizes"].items()}
_LEVELS = {code: name.removeprefix("ACL_") for name, code in ENUMS["aclLogLevel"].items()}


def aclDataTypeSize(dataType: int) -> int:
    """The bytes of one element; 0 for a type of less than a byte, and for an unknown code."""
    if not is_int(dataType):
        return 0
    dtype = dtype_by_code(int(dataType))
    return dtype.itemsize if dtype else _SIZES.get(int(dataType), 0)


def aclFloat16ToFloat(value: int) -> float:
    """The number whose 16 bits are `value`."""
    return float(np.uint16(int(value) & 0xFFFF).view(np.float16))


def aclFloatToFloat16(value: float) -> int:
    """The 16 bits of the nearest number of half precision; ties go to even."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).astype(np.float16).view(np.uint16))


@entry_point(lambda status: None, needs_init=False)
def aclAppLog(logLevel: int, func: str, file: str, line: int, fmt: str, *arguments: Any) -> None:
    """Print a line of the program's log on stderr."""
    require_code("logLevel", logLevel, ENUMS["aclLogLevel"])
    try:
        text = str(fmt) % arguments if arguments else str(fmt)
    except (TypeError, ValueError) as error:
        raise Refused(INVALID, f"fmt is {fmt!r:.60} ({error}); it must fit the arguments.") from None
    say(f"[{_LEVELS[int(logLevel)]}] {file}:{line} {func}: {text}")
