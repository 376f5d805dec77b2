"""The golden result of a problem: the reference in float64, rounded once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Arrays
from ..kernels.reference import run
from ..operators.dtypes import DTYPES
from ..problem.problem import Problem
from ..problem.rounding import round_once, round_source
from .inputs import result_plane

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Golden:
    values: Array  # in float64, not rounded
    rounded: Array  # to the dtype of the problem
    indices: Array | None  # that a maximum writes


def golden_result(problem: Problem, source: Array, indices: Array | None) -> Golden:
    """`source` and `indices` are (N, C, D, H, W); a maximum does not read `indices`."""
    wide = replace(problem, dtype=DTYPES["FLOAT64"])
    values = np.empty(problem.batch + result_plane(problem))
    writes_indices = problem.kind == "maximum"
    if writes_indices and problem.index_dtype is not None:
        indices = np.empty(problem.batch + problem.output_plane, problem.index_dtype.numpy)
    with np.errstate(invalid="ignore"):  # NumPy warns of a signaling NaN
        read = round_source(source, problem.rounding).astype(np.float64)
        grad_output, x = (read, None) if problem.gradient else (None, read)
        run(wide, "planes", Arrays(grad_output, x, indices, values), np.empty(0, np.uint8))
        rounded = round_once(values, problem.dtype.numpy)
    return Golden(values, rounded, indices if writes_indices else None)
