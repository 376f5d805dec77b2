"""How the NumPy entrance reads its arguments: what an array is, and which arrays it can't use."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..operators.binding import ArrayReader
from ..operators.call import TensorMeta, Unusable, overlaps
from ..operators.dtypes import dtype_of
from ..operators.plain import masked_array


def _read(value: Any, written: bool) -> TensorMeta | Unusable | str | None:
    if not issubclass(type(value), np.ndarray):
        return None
    if (dtype := dtype_of(value.dtype)) is None:
        return f"has dtype {value.dtype}"
    if isinstance(value, masked_array()):
        return Unusable("is a masked array", "a plain one: fill it first")
    if written and not value.flags.writeable:
        return Unusable("is read-only", "writable", ValueError)
    if any(step % value.itemsize for step in value.strides):
        if written and overlaps((*value.shape, value.itemsize), (*value.strides, 1)) is not False:
            return Unusable(f"has strides of {value.strides} bytes", "free of overlap", ValueError)
        return TensorMeta(value.shape, dtype, strides=None)
    strides = tuple(step // value.itemsize for step in value.strides)
    return TensorMeta(value.shape, dtype, strides=strides)


ARRAYS = ArrayReader("a NumPy array", _read, lambda value: value if type(value) is int else None)
