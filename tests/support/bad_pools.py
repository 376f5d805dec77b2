"""Bad calls of the forwards: which argument is wrong, and what the error says."""

from __future__ import annotations

from typing import Any

import numpy as np

X = np.random.default_rng(3).standard_normal((2, 3, 7, 11)).astype(np.float32)

# function, arguments, keywords, error, what its sentence says
BAD: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "a list": ("avg_pool2d", ([1.0], 3), {}, TypeError, "input is a list; it must be a NumPy array of float32"),
    "None": ("avg_pool2d", (None, 3), {}, TypeError, "input is None; it must be a NumPy array"),
    "ints": ("max_pool2d", (X.astype(int), 3), {}, TypeError, "input has dtype int64; it must be float32, float64"),
    "complex": ("avg_pool2d", (X.astype(complex), 3), {}, TypeError, "input has dtype complex128"),
    "byte order": ("avg_pool2d", (X.astype(">f4"), 3), {}, TypeError, "input has dtype >f4"),
    "masked": ("avg_pool2d", (np.ma.masked_array(X, X > 1), 3), {}, TypeError, "input is a masked array"),
    "rank": ("avg_pool2d", (X[0, 0], 3), {}, ValueError, "input has rank 2, shape (7, 11); it must have rank 3 or 4."),
    "rank 1d": ("max_pool1d", (X, 3), {}, ValueError, "it must have rank 2 or 3."),
    "rank 3d": ("adaptive_avg_pool3d", (X[0], 3), {}, ValueError, "it must have rank 4 or 5."),
    "no cells": ("max_pool2d", (X[..., :0], 3), {}, ValueError, "every spatial dimension must be greater than 0."),
    "adaptive, no cells": ("adaptive_max_pool2d", (X[..., :0], 3), {}, ValueError, "every spatial dimension must"),
    "kernel": ("avg_pool2d", (X, 0), {}, ValueError, "kernel_size has values (0); each must be at least 1."),
    "float kernel": ("avg_pool2d", (X, 3.0), {}, TypeError, "kernel_size is 3.0; it must be an int or a tuple of ints."),
    "bool kernel": ("avg_pool2d", (X, True), {}, TypeError, "kernel_size is True; it must be an int"),
    "no kernel": ("avg_pool2d", (X, None), {}, TypeError, "kernel_size is None; it must be an int"),
    "three": ("avg_pool2d", (X, (3, 3, 3)), {}, ValueError, "kernel_size has 3 values; it must have 1 or 2."),
    "two in 1d": ("max_pool1d", (X[0], (3, 3)), {}, ValueError, "kernel_size has 2 values; it must have 1."),
    "none at all": ("avg_pool2d", (X, ()), {}, ValueError, "kernel_size has 0 values"),
    "wide kernel": ("avg_pool2d", (X, 2**70), {}, ValueError, "it must be smaller than 2**62."),
    "stride": ("max_pool2d", (X, 3, 0), {}, ValueError, "stride has values (0); each must be at least 1."),
    "stride text": ("max_pool2d", (X, 3, "2"), {}, TypeError, "stride is '2'; it must be an int"),
    "padding": ("max_pool2d", (X, 3, 2, 2), {}, ValueError, "padding is 2 on axis H; it must be at most 1, half of"),
    "negative padding": ("max_pool2d", (X, 3, 2, -1), {}, ValueError, "padding has values (-1); each must be at least 0."),
    "dilation": ("max_pool2d", (X, 3), {"dilation": 0}, ValueError, "dilation has values (0); each must be at least 1."),
    "too short": ("avg_pool2d", (X, 8), {}, ValueError, "input has length 7 on axis H; with padding 0 a window of 8"),
    "too short, padded": ("avg_pool3d", (X, (2, 8, 3), 1, 1), {}, ValueError, "input has length 7 on axis H; it must be at least 8, as"),
    "too short, dilated": ("max_pool2d", (X, 3), {"dilation": 4}, ValueError, "a window of 9 cells must fit"),
    "ceil": ("avg_pool2d", (X, 3, 2, 1, 1), {}, TypeError, "ceil_mode is 1; it must be True or False."),
    "count": ("avg_pool2d", (X, 3), {"count_include_pad": 0}, TypeError, "count_include_pad is 0; it must be True or"),
    "divisor": ("avg_pool3d", (X, 3), {"divisor_override": 0}, ValueError, "divisor_override is 0; it must be None or"),
    "float divisor": ("avg_pool2d", (X, 3), {"divisor_override": 2.0}, TypeError, "divisor_override is 2.0; it must be"),
    "wide divisor": ("avg_pool2d", (X, 3), {"divisor_override": 2**63}, ValueError, "a 64-bit int other than 0."),
    "size": ("adaptive_avg_pool2d", (X, -1), {}, ValueError, "output_size has values (-1); each must be at least 0."),
    "float size": ("adaptive_avg_pool2d", (X, (3.0, 2)), {}, TypeError, "output_size is (3.0, 2); it must be an int"),
    "sizes": ("adaptive_max_pool2d", (X, (3, 2, 1)), {}, ValueError, "output_size has 3 values; it must have 1 or 2"),
    "too large": ("adaptive_avg_pool2d", (X, 2**31), {}, ValueError, "the result would have over 2**63 bytes"),
    "flag": ("adaptive_max_pool2d", (X, 3, 1), {}, TypeError, "return_indices is 1; it must be True or False."),
    "out list": ("avg_pool2d", (X, 3), {"out": [0]}, TypeError, "out is a list; it must be a NumPy array of float32, float64, float16 or bfloat16."),
    "out shape": ("avg_pool2d", (X, 3), {"out": np.zeros((2, 3, 3, 2), np.float32)}, ValueError,
                  "out has shape (2, 3, 3, 2); it must be (2, 3, 2, 3)."),
    "out dtype": ("avg_pool2d", (X, 3), {"out": np.zeros((2, 3, 2, 3))}, TypeError,
                  "out has dtype float64; it must be float32, as input has."),
    "read-only": ("avg_pool2d", (X, 3), {"out": np.broadcast_to(np.float32(0), (2, 3, 2, 3))}, ValueError,
                  "out is read-only; it must be writable."),
    "overlapping": ("avg_pool2d", (X, 3), {"out": np.lib.stride_tricks.as_strided(np.zeros(99, np.float32), (2, 3, 2, 3), (72, 24, 8, 4))},
                    ValueError, "which lets cells share memory; each cell must have its own element."),
    "no pair": ("max_pool2d", (X, 3), {"out": np.zeros((2, 3, 2, 3), np.float32), "return_indices": True}, TypeError,
                "with return_indices it must be a pair of NumPy arrays."),
    "indices' dtype": ("max_pool2d", (X, 3), {"out": (np.zeros((2, 3, 2, 3), np.float32), np.zeros((2, 3, 2, 3), np.int32)), "return_indices": True},
                       TypeError, "out[1] has dtype int32; it must be int64."),
}  # fmt: skip
