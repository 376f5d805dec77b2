"""The golden result of a problem: computed in float64 and rounded once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Arrays
from ..kernels.reference import oracle, run
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
    if problem.kind in ("average_gradient", "maximum_gradient"):
        return Golden(*oracle(problem, source, indices), None)
    wide = replace(problem, dtype=DTYPES["FLOAT64"])
    values = np.empty(problem.batch + result_plane(problem))
    places = indices
    if problem.kind == "maximum" and problem.index_dtype is not None:
        places = np.empty(problem.batch + problem.output_plane, problem.index_dtype.numpy)
    read = round_source(source, problem.rounding).astype(np.float64)
    buffers = Arrays(read, None, places, values) if problem.gradient else Arrays(None, read, places, values)
    run(wide, "planes", buffers, np.empty(0, np.uint8))
    written = places if problem.kind == "maximum" else None
    return Golden(values, round_once(values, problem.dtype.numpy), written)
