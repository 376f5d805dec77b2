"""A good call of each of the 24 NumPy functions, in which tests put odd values."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import pooltide
from geometries import FUNCTIONS

FORWARDS = [name.removesuffix("_backward") for name in FUNCTIONS]
ERRORS = (TypeError, ValueError, IndexError, MemoryError, OverflowError)
KINDS = {
    "grad_output": "array", "indices": "indices", "out": "out", "kernel_size": "ints", "stride": "ints",
    "padding": "ints", "dilation": "ints", "ceil_mode": "flag", "count_include_pad": "flag", "return_indices": "flag",
    "divisor_override": "divisor", "output_size": "size",
}  # fmt: skip
PLANE, OUTPUTS = (5, 7, 11), (2, 3, 5)  # of kernel 2, stride 2


def good_call(name: str) -> dict[str, Any]:
    """A call that works, each argument in its place, in the order of the signature."""
    parameters = inspect.signature(getattr(pooltide, name)).parameters
    axes = int(name.removesuffix("_backward")[-2])
    rng = np.random.default_rng(7)
    shape, outputs = (2, 3, *PLANE[-axes:]), (2, 3, *OUTPUTS[-axes:])
    gradient = "grad_output" in parameters
    every: dict[str, Any] = {
        "grad_output": rng.standard_normal(outputs).astype(np.float32),
        "input": shape if gradient else rng.standard_normal(shape).astype(np.float32),
        "indices": rng.integers(0, np.prod(PLANE[-axes:]), outputs),
        "kernel_size": 2, "stride": 2, "padding": 0, "dilation": 1, "ceil_mode": False,
        "count_include_pad": True, "divisor_override": 3, "return_indices": False,
        "output_size": OUTPUTS[-axes:],
        "out": np.zeros(shape if gradient else outputs, np.float32),
    }  # fmt: skip
    return {argument: every[argument] for argument in parameters}


# Equal to one another, each a legal size.
SIZES = [np.int64(2), np.uint8(2), np.array(2), np.array([2]), [2], (np.int16(2),), np.array([2], ">i4")]
