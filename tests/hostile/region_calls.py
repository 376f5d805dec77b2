"""The NumPy functions of pools over regions of interest, with arrays and boxes in guarded memory."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

import pooltide

from . import problems
from .calls import MEMORY, Call
from .numpy_calls import COMPARED, LAYOUTS, compare, filled, out_for, place, pool_call, spoil
from .problems import FLOATS, Regions


def draw(rng: Random) -> Call:
    MEMORY.begin()
    problem = problems.draw_regions(rng)
    call = _gradient(rng, problem) if rng.random() < 0.6 else _forward(rng, problem)
    call.good = problem.good
    if rng.random() < 0.4:
        for argument in rng.sample(list(call.given), min(len(call.given), rng.choice((1, 1, 1, 2)))):
            spoil(rng, call, problem, argument)
    if rng.random() < 3 * COMPARED:
        call.check = lambda result: compare(call, result)
    return call


def _boxes(rng: Random, problem: Regions) -> Any:
    """One array, or, now and then, a list of one for each image."""
    dtype = FLOATS[rng.choice((problem.dtype, "float32"))]
    boxes = problem.boxes
    if problem.good and rng.random() < 0.2:
        return [_placed(rng, boxes[boxes[:, 0] == image, 1:], dtype) for image in range(problem.input[0])]
    return _placed(rng, boxes, dtype)


def _placed(rng: Random, rows: Any, dtype: np.dtype[Any]) -> Any:
    array = place(rng, rows.shape, dtype, tuple(kind for kind in LAYOUTS if kind != "channels_last")).array(
        dtype
    )
    with np.errstate(over="ignore", invalid="ignore"):
        array[...] = rows.astype(dtype)
    return array


def _gradient(rng: Random, problem: Regions) -> Call:
    dtype = FLOATS[problem.dtype]
    given: dict[str, Any] = {"grad_output": filled(rng, problem.output, dtype)}
    given["input"] = problem.input if rng.random() < 0.8 else filled(rng, problem.input, dtype)
    boxes = _boxes(rng, problem)
    given["boxes"] = boxes
    if problem.pool == "roi_pool":
        kind = np.dtype(rng.choice(("i4", "i8")))
        indices = place(rng, problem.output, kind, LAYOUTS).array(kind)
        indices[...] = np.resize(np.arange(-1, problem.plane), problem.output)
        given["indices"] = indices
    else:
        given |= problem.attributes
    if isinstance(boxes, list):  # sorted by image
        given["grad_output"] = filled(rng, problem.output, dtype)
    call = Call(f"pooltide.{problem.pool}_backward", getattr(pooltide, f"{problem.pool}_backward"), given)
    if rng.random() < 0.4:
        given["out"] = out_for(rng, call, problem.input, dtype)
    return call


def _forward(rng: Random, problem: Regions) -> Call:
    dtype = FLOATS[problem.dtype]
    given: dict[str, Any] = {"input": filled(rng, problem.input, dtype), "boxes": _boxes(rng, problem)}
    given |= {"output_size": problem.bins} | problem.attributes
    return pool_call(rng, problem, given, np.int32 if problem.pool == "roi_pool" else None)
