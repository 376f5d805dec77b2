"""The golden result of a problem: the reference in float64, rounded once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Arrays
from ..kernels.plan import AnyProblem
from ..kernels.reference import run
from ..kernels.regions.reference import run as run_regions
from ..operators.dtypes import DTYPES
from ..problem.regions import RegionProblem
from ..problem.rounding import round_once, round_source

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Golden:
    values: Array  # in float64, not rounded
    rounded: Array  # to the dtype of the problem
    indices: Array | None  # that a maximum writes


def golden_result(
    problem: AnyProblem, source: Array, indices: Array | None, boxes: Array | None = None
) -> Golden:
    """`source` and `indices` have the problem's shapes; a maximum does not read `indices`.

    Positions and weights in regions are those of the contract, in the dtype of `boxes`; sums are in float64.
    """
    wide = replace(problem, dtype=DTYPES["FLOAT64"])
    values = np.empty(problem.shape("out"))
    if problem.writes_indices and problem.index_dtype is not None:
        indices = np.empty(problem.shape("indices"), problem.index_dtype.numpy)
    with np.errstate(invalid="ignore"):  # NumPy warns of a signaling NaN
        read = round_source(source, problem.rounding).astype(np.float64)
        grad_output, x = (read, None) if problem.gradient else (None, read)
        arrays = Arrays(grad_output, x, indices, values, boxes)
        if isinstance(wide, RegionProblem):
            run_regions(wide, "planes", arrays, np.empty(0, np.uint8))
        else:
            run(wide, "planes", arrays, np.empty(0, np.uint8))
        rounded = round_once(values, problem.dtype.numpy)
    return Golden(values, rounded, indices if problem.writes_indices else None)
