"""Values of cases that are in files of others, or in the case file itself, in place of drawn values.

`SuppliedValues` names them and is cheap to send to a worker process; `load` reads them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.volumes import as_volume
from ..kernels import IndexFault
from ..operators.call import TensorMeta
from ..operators.catalog import operators
from ..operators.dtypes import DTYPES
from ..operators.pages import HOST
from .notation import Case
from .oracle import golden_result
from .tensorfile import TensorFileError, open_tensor
from .trial import Refused, problem_of, windows_of

Array = NDArray[Any]
Values = str | tuple[float, ...]  # the path of a file, or the values themselves


@dataclass(frozen=True, slots=True)
class SuppliedValues:
    """`source`: grad_output, or the input of a forward. Without `indices`, those of the maxima of
    `forward_input` are used."""

    source: Values
    indices: Values | None = None
    forward_input: Values | None = None


def load(case: Case, supplied: SuppliedValues) -> tuple[Array, Array | None]:
    """The source and the indices of a case, as `inputs.draw` returns them.

    TensorFileError: a file can't be read, or has another dtype or shape than the case. Refused: an index is
    outside its plane.
    """
    call, axes = case.call(case.product or HOST), len(case.operator.axes)
    role = "grad_output" if case.operator.gradient else "input"
    source = as_volume(_read(supplied.source, call.role(role)), axes)
    if case.index_dtype is None or case.operator.kind == "maximum":
        return source, None
    if supplied.indices is not None:
        indices = as_volume(_read(supplied.indices, call.role("indices")), axes)
        plane = windows_of(case, "a file with values").input_plane[3 - axes :]
        outside = np.flatnonzero((indices < 0) | (indices >= prod(plane)))
        if outside.size:
            fault = IndexFault(outside.size, int(outside[0]), int(indices.flat[outside[0]]))
            raise Refused(fault.message("indices", call.role("indices").shape, plane))
        return source, indices
    if supplied.forward_input is None:
        raise Refused("the case has no indices; give them, or the input of the forward")
    return source, _maxima(case, supplied.forward_input)


def _read(values: Values, tensor: TensorMeta) -> Array:
    if isinstance(values, str):
        file = open_tensor(Path(values), tensor.dtype, tensor.shape)
        if file.fortran:
            raise TensorFileError(f"{values}: the file is in Fortran order; it must be in C order")
        return file.part(0, file.count).reshape(tensor.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(values, dtype=np.float64).astype(tensor.dtype.numpy)
    if array.size != np.prod(tensor.shape, dtype=np.int64):
        raise TensorFileError(f"the case has {array.size} values; shape {tensor.shape} needs another number")
    return array.reshape(tensor.shape)


def _maxima(case: Case, values: Values) -> Array:
    """The indices of the maxima of a pool whose gradient the case is."""
    forward = operators()[case.operator.function.removesuffix("_backward")]
    attributes = tuple((role, value) for role, value in case.attributes if forward.by_role(role))
    pool = replace(case, operator=forward, attributes=attributes, index_dtype=DTYPES["INT64"], overrides=())
    x = as_volume(_read(values, TensorMeta(case.shape, case.dtype)), len(forward.axes))
    indices = golden_result(problem_of(pool), x, None).indices
    assert indices is not None
    assert case.index_dtype is not None
    return indices.astype(case.index_dtype.numpy)


def flat(values: Sequence[Any]) -> tuple[float, ...]:
    """The numbers of a nested list, in order. ValueError: it has something else."""
    numbers = np.array(values, dtype=object).ravel().tolist()
    if any(type(value) not in (int, float) for value in numbers):
        raise ValueError("the values must be numbers, in lists of one length")
    try:
        return tuple(map(float, numbers))
    except OverflowError:
        raise ValueError("the values must be finite") from None
