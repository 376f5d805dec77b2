"""The boxes of a case, and what its other inputs need of them."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Arrays
from ..kernels.plan import AnyProblem, plan
from ..operators.dtypes import DType
from ..problem.regions import RegionProblem
from ..problem.rounding import round_once
from .boxes import draw_boxes, read_boxes
from .notation import Data

Array = NDArray[Any]
_PER_SAMPLE, _PER_TERM = 2e-5, 2e-9  # seconds of the float64 reference
_ADAPTIVE = 4  # samples of a bin along an axis, of boxes as detectors have them
_STREAM = 1  # boxes have random numbers of their own, so that a pool and its gradient have the same


def boxes_of(problem: AnyProblem, data: Data, dtype: DType | None = None) -> Array | None:
    """The boxes of a case, rounded to `dtype` (the problem's), as kernels read them; None: it has none."""
    if not isinstance(problem, RegionProblem):
        return None
    if data.boxes_file:
        boxes = read_boxes(data.boxes_file)
    else:
        random = np.random.Generator(np.random.PCG64([data.seed, _STREAM]))
        scale, images = problem.spatial_scale, problem.batch[0]
        boxes = draw_boxes(random, problem.regions, images, problem.plane, scale, anywhere=data.anywhere)
    rounded = round_once(boxes, (dtype or problem.dtype).numpy)
    return np.ascontiguousarray(rounded, problem.dtype.accumulator)


def region_indices(random: np.random.Generator, problem: RegionProblem, data: Data) -> Array:
    """The indices of the maxima of drawn values."""
    assert problem.index_dtype is not None
    forward = replace(problem, kind="roi_pool")
    values = random.standard_normal(forward.shape("input")).astype(problem.dtype.numpy)
    indices = np.empty(forward.shape("indices"), problem.index_dtype.numpy)
    out = np.empty(forward.shape("out"), problem.dtype.numpy)
    executable = plan(forward, ("planes",) * len(forward.roles))
    executable.run(Arrays(input=values, boxes=boxes_of(forward, data), indices=indices, out=out))
    return indices


def region_seconds(problem: RegionProblem) -> float:
    """A rough estimate of the time of the float64 reference."""
    ratio = problem.sampling_ratio if problem.sampling_ratio > 0 else _ADAPTIVE
    samples = problem.regions * prod(problem.bins) * ratio**2
    return samples * (_PER_SAMPLE + problem.channels * 4 * _PER_TERM)
