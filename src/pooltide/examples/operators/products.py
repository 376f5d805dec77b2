"""Matrix products and convolutions. Sums are float32, whatever cubeMathType allows."""

from __future__ import annotations

from typing import Any

import numpy as np


def matmul(self: Any, mat2: Any, out: Any) -> None:
    out[...] = np.matmul(self.astype(np.float32), mat2.astype(np.float32)).astype(out.dtype)


def matmul_shape(self: Any, mat2: Any) -> Any:
    left, right = self.shape, mat2.shape
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def inner_sizes_agree(self: Any, mat2: Any) -> str | None:
    rows = mat2.shape[-2] if len(mat2.shape) > 1 else mat2.shape[0]
    if self.shape[-1] != rows:
        return f"mat2 has shape {mat2.shape}; it must have {self.shape[-1]} rows, as self has columns."
    try:
        np.broadcast_shapes(self.shape[:-2], mat2.shape[:-2])
    except ValueError:
        return f"mat2 has shape {mat2.shape}; its batch must broadcast with self's, {self.shape}."
    return None


def cube_math_type(cubeMathType: int) -> str | None:
    return None if cubeMathType in range(4) else f"cubeMathType is {cubeMathType}; it must be 0, 1, 2 or 3."


def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    outputPadding: Any,
    groups: int,
    output: Any,
) -> None:
    axes = input.ndim - 2
    s, p, d, extra = (_each(values, axes) for values in (stride, padding, dilation, outputPadding))
    x, w = input.astype(np.float32), weight.astype(np.float32)
    if transposed:  # a convolution of x, spread by the stride, with w turned around
        x, w, p = _spread(x, s), _turned(w, groups), [d[i] * (w.shape[2 + i] - 1) - p[i] for i in range(axes)]
        s = (1,) * axes
    after = [n + e for n, e in zip(p, extra, strict=True)] if transposed else p
    x = _pad(x, p, after)
    result = np.concatenate(
        [_correlate(*pair, s, d) for pair in zip(np.split(x, groups, 1), np.split(w, groups), strict=True)], 1
    )
    if bias is not None:
        result = result + bias.astype(np.float32).reshape(-1, *(1,) * axes)
    output[...] = result.astype(output.dtype)


def _each(values: Any, axes: int) -> Any:
    return tuple(values) * axes if len(values) == 1 else tuple(values) or (0,) * axes


def _pad(x: Any, before: Any, after: Any) -> Any:
    """x with zeros around it; a negative number removes cells."""
    pairs = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pairs, strict=True))
    return np.pad(x[cut], [(max(a, 0), max(b, 0)) for a, b in pairs])


def _spread(x: Any, stride: Any) -> Any:
    sizes = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], stride, strict=True)]
    wide = np.zeros((*x.shape[:2], *sizes), x.dtype)
    wide[(slice(None), slice(None), *(slice(None, None, s) for s in stride))] = x
    return wide


def _turned(w: Any, groups: int) -> Any:
    """The weight of a transposed convolution, (I, O / groups, …), as (O, I / groups, …) of a convolution."""
    parts = [part.swapaxes(0, 1) for part in np.split(w, groups)]
    return np.flip(np.concatenate(parts), tuple(range(2, w.ndim)))


def _correlate(x: Any, w: Any, stride: Any, dilation: Any) -> Any:
    """The sums over all windows: (N, C, …) with (O, C, …) gives (N, O, …)."""
    axes = tuple(range(2, x.ndim))
    reach = [(n - 1) * d + 1 for n, d in zip(w.shape[2:], dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    steps = (*(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    windows = windows[(slice(None), slice(None), *steps)]
    count = len(axes)
    cells = tuple(range(2 + count, 2 + 2 * count))
    sums = np.tensordot(windows, w, ((1, *cells), (1, *axes)))
    return np.moveaxis(sums, -1, 1)


def convolution_shape(input: Any, weight: Any, transposed: bool, groups: int, **others: Any) -> Any:
    axes = len(input.shape) - 2
    arrays = (_each(others[name], axes) for name in ("stride", "padding", "dilation", "outputPadding"))
    sizes = zip(input.shape[2:], weight.shape[2:], *arrays, strict=True)
    if transposed:
        plane = tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in sizes)
        return (input.shape[0], weight.shape[1] * groups, *plane)
    plane = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in sizes)
    return (input.shape[0], weight.shape[0], *plane)


def convolution_fits(
    input: Any, weight: Any, bias: Any, transposed: bool, groups: int, **others: Any
) -> str | None:
    axes = len(input.shape) - 2
    for name in ("stride", "padding", "dilation"):
        if len(others[name]) not in (1, axes):
            return f"{name} has {len(others[name])} values; it must have 1 or {axes}."
    if (extra := len(others["outputPadding"])) not in (0, 1, axes):
        return f"outputPadding has {extra} values; it must have 0, 1 or {axes}."
    channels, outputs = weight.shape[:2] if transposed else (weight.shape[1] * groups, weight.shape[0])
    if groups < 1 or outputs % groups or input.shape[1] % groups:
        return f"groups is {groups}; it must divide the channels of input and of weight, and be at least 1."
    if input.shape[1] != channels:
        return f"input has {input.shape[1]} channels; it must have {channels}, as weight has."
    made = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and bias.shape != (made,):
        return f"bias has shape {bias.shape}; it must be ({made},)."
    shape = convolution_shape(input, weight, transposed, groups, **others)
    if min(*shape[2:], *weight.shape[2:]) < 1:
        return f"weight has shape {weight.shape}, which leaves no output of input's {input.shape}."
    return None
