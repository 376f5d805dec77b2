"""The data types, formats, enumerations and status codes of the runtime page, as Python values.

A `DType` is known by its name in messages (`FLOAT32`); the documents' code and the NumPy type are
its two other spellings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from .toml import read_page

_NUMPY = {"BFLOAT16": np.dtype(ml_dtypes.bfloat16), "BOOL": np.dtype(np.bool_)}


@dataclass(frozen=True, slots=True)
class DType:
    name: str
    constant: str
    code: int
    numpy: np.dtype[Any]

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def accumulator(self) -> np.dtype[Any]:
        """What sums are kept in: float64 for FLOAT64, float32 for all else."""
        return np.dtype(np.float64 if self.name == "FLOAT64" else np.float32)

    def __str__(self) -> str:
        return self.name


_TABLES = {"dtypes", "formats", "enums", "flags", "errors", "status", "options", "sizes", "soc_names"}
RUNTIME = read_page("runtime", keys={"version", "functions", "missing", *_TABLES})

DTYPES: dict[str, DType] = {
    name: DType(name, constant, code, _NUMPY.get(name) or np.dtype(name.lower()))
    for name, (constant, code, _) in RUNTIME["dtypes"].items()
}
FORMATS: dict[str, int] = RUNTIME["formats"]
ENUMS: dict[str, dict[str, int]] = RUNTIME["enums"]
ERRORS: dict[str, int] = RUNTIME["errors"]
STATUS: dict[str, int] = RUNTIME["status"]

assert all(DTYPES[name].itemsize == size for name, (_, _, size) in RUNTIME["dtypes"].items())

_BY_CODE = {dtype.code: dtype for dtype in DTYPES.values()}
_FORMAT_BY_CODE = {code: name for name, code in FORMATS.items()}
_STATUS_NAMES = {code: name for name, code in (ERRORS | STATUS).items() if code}


def dtype_by_code(code: int) -> DType | None:
    return _BY_CODE.get(code)


def format_by_code(code: int) -> str | None:
    return _FORMAT_BY_CODE.get(code)


@cache
def dtype_of(numpy_dtype: np.dtype[Any]) -> DType | None:
    """The DType of a NumPy type in native byte order, or None."""
    for dtype in DTYPES.values():
        if dtype.numpy == numpy_dtype:
            return dtype
    return None


def status_name(code: int) -> str:
    return _STATUS_NAMES.get(code, "ACL_SUCCESS")
