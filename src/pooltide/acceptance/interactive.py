"""Writes a case as a page on which a reader moves over cells and windows, and sees what belongs together.

The page is `interactive.html` with its {{MARKS}} replaced. It has the first plane of the case as JSON: the
windows of each axis, the values that are read, and the float64 result. A script draws the cells and the
windows, and says which windows hold a cell, their divisors, and the terms of each sum.
"""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape
from importlib.resources import files
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..geometry import Axis, spans
from ..operators.dtypes import DTYPES
from ..problem.problem import Problem
from ..problem.rounding import round_source
from .inputs import draw
from .notation import Case
from .oracle import golden_result
from .panels import Undrawable
from .show import check_drawable
from .trial import windows_of

_LONGEST_SIDE = 64
_MOST = 4096  # cells, or windows, of a plane: the page has an element for each of a slice


def interactive_page(case: Case, depth: int | None = None) -> str:
    """Returns the page of a case. `depth`: of a volume, the slice that it shows first (the middle one)."""
    problem = windows_of(case, "a page for the browser")
    check_drawable(problem, depth)
    _check_size(problem)
    one = replace(problem, batch=(1, 1))
    if one.kind == "maximum":
        one = replace(one, index_dtype=DTYPES["INT64"])
    source, indices = draw(one, case.data)
    golden = golden_result(one, source, indices)
    read = round_source(source, one.rounding).astype(np.float64)
    cells, windows = (golden.values, read) if problem.gradient else (read, golden.values)
    places = indices if problem.gradient else golden.indices
    data = {
        "kind": one.kind,
        "dtype": one.dtype.name.lower(),
        "quotient": one.quotient,
        "divisor": one.divisor,
        "names": case.operator.axes,
        "depth": problem.axes[0].length // 2 if depth is None else depth,
        "axes": [_axis(axis, one.quotient) for axis in one.axes],
        "cells": _numbers(cells),
        "windows": _numbers(windows),
        "rounded": _numbers(golden.rounded),
        "indices": None if places is None else places.ravel().tolist(),
    }
    text = files(__package__).joinpath("interactive.html").read_text("utf-8")
    title = escape(str(case))
    text = text.replace("{{TITLE}}", title).replace("{{HEADING}}", title.replace(":", ":<wbr>"))
    return text.replace("{{DATA}}", json.dumps(data))


def _check_size(problem: Problem) -> None:
    for name, plane in (("input", problem.input_plane), ("output", problem.output_plane)):
        sides = "×".join(map(str, plane[1:]))
        if max(plane[1:]) > _LONGEST_SIDE or prod(plane) > _MOST:
            raise Undrawable(
                f"the {name}'s plane is {sides}, {prod(plane)} cells in all; a page has at most"
                f" {_LONGEST_SIDE} cells a side and {_MOST} in all; .svg takes larger planes"
            )
    for name, axis in zip("dhw", problem.axes, strict=True):
        if axis.p > _LONGEST_SIDE or axis.reach > 3 * _LONGEST_SIDE:
            raise Undrawable(
                f"axis {name} has kernel {axis.k}, padding {axis.p}, dilation {axis.dilation}; a page has at"
                f" most {_LONGEST_SIDE} cells of padding and windows of {3 * _LONGEST_SIDE}"
            )


def _axis(axis: Axis, quotient: str) -> dict[str, Any]:
    """The windows of an axis: `steps` cells each, from `low`, padding included; `counted` is the divisor."""
    start, end, extent = spans(axis)
    strided = not axis.adaptive
    low = np.arange(axis.outputs) * axis.s - axis.p if strided else start
    return {
        "length": axis.length,
        "outputs": axis.outputs,
        "kernel": axis.k,
        "stride": axis.s,
        "padding": axis.p,
        "dilation": axis.dilation,
        "low": low.tolist(),
        "steps": [axis.k] * axis.outputs if strided else (end - start).tolist(),
        "counted": (extent if quotient == "extent" else end - start).tolist(),
    }


def _numbers(values: NDArray[Any]) -> list[float | str]:
    """The values as JSON has them; NaN and the infinities as words that JavaScript's Number reads."""
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [words.get(str(value), value) for value in values.astype(np.float64).ravel().tolist()]
