"""The rules of pools over regions of interest: boxes, and what they make of an image.

An operator of CANN spells two arguments of our functions in other ways: the output size as two numbers, the
shape of the images as an array. `pooled_plane` and `image_shape` read either.
"""

from __future__ import annotations

from math import isfinite

from .call import Call
from .refusals import Fault, Names, either, names_of, shape_text, spelled, spelled_role


def pooled_plane(call: Call) -> tuple[int, int]:
    """The rows and the columns of bins of a region."""
    if call.operator.by_role("output_size"):
        height, width = call.pairs("output_size")
        return height, width
    return call.role("pooled_height"), call.role("pooled_width")


def image_shape(call: Call) -> tuple[int, ...]:
    """N, C, H, W of the images, of which a gradient may have no tensor."""
    if shape := call.role("input_shape"):
        return tuple(shape)
    shape = call.role("input").shape
    return tuple(shape)


def pooled_shape(call: Call) -> tuple[int, ...]:
    """The shape of what the regions are pooled to; a position-sensitive pool has a channel for each bin."""
    plane, channels = pooled_plane(call), image_shape(call)[1]
    if call.operator.kind.startswith("ps_"):
        channels //= plane[0] * plane[1]
    return call.role("boxes").shape[0], channels, *plane


def image_sizes(call: Call) -> Fault | None:
    """C may be 0."""
    n, c, h, w = shape = image_shape(call)
    if min(n, h, w) > 0 and c >= 0:
        return None
    name = spelled_role(call, "input_shape" if call.role("input_shape") else "input")
    return Fault(f"{name} is {shape_text(shape)}; N, H and W must be greater than 0, and C at least 0.")


def columns(call: Call, of: Names, number: int) -> Fault | None:
    for spelling, _, tensor in call.tensors(of):
        if tensor.shape[1] != number:
            text = f"{spelling} has shape {shape_text(tensor.shape)}; it must have {number} columns."
            return Fault(text)
    return None


def same_rows(call: Call, of: Names) -> Fault | None:
    tensors = call.tensors(of)
    for spelling, _, tensor in tensors[1:]:
        first, must = tensors[0][0], tensors[0][2].shape[0]
        if (got := tensor.shape[0]) != must:
            return Fault(f"{spelling} has {got} rows; it must have {must}, as {first} has.")
    return None


def at_least(call: Call, of: Names, value: int) -> Fault | None:
    for name in of:
        if (got := call.values[name]) < value:  # type: ignore[operator]
            return Fault(f"{call.spell(name)} is {got}; it must be at least {value}.")
    return None


def positive_number(call: Call, of: Names) -> Fault | None:
    for name in of:
        got = call.values[name]
        if not 0 < got or not isfinite(got):  # type: ignore[operator, arg-type]
            return Fault(f"{call.spell(name)} is {got}; it must be a finite number greater than 0.")
    return None


def one_of(call: Call, of: Names, words: Names) -> Fault | None:
    for name in of:
        if (got := call.values[name]) not in words:
            return Fault(f"{call.spell(name)} is {got!r:.60}; it must be {either(words)}.")
    return None


def pooled_result(call: Call, of: Names) -> Fault | None:
    """The tensors on the side of the regions."""
    must = pooled_shape(call)
    for name in of:
        if (got := call.tensor(name).shape) != must:
            return Fault(f"{call.spell(name)} has shape {shape_text(got)}; it must be {shape_text(must)}.")
    return None


def image_result(call: Call, of: Names) -> Fault | None:
    """The tensors on the side of the images."""
    must = image_shape(call)
    for name in of:
        if (got := call.tensor(name).shape) != must:
            as_given = spelled_role(call, "input_shape" if call.role("input_shape") else "input")
            text = f"{call.spell(name)} has shape {shape_text(got)}"
            return Fault(f"{text}; it must be {shape_text(must)}, as {as_given} says.")
    return None


def channels_of_bins(call: Call) -> Fault | None:
    """Of a position-sensitive pool: each bin has its own channels."""
    plane, channels = pooled_plane(call), image_shape(call)[1]
    if plane[0] * plane[1] and channels % (plane[0] * plane[1]) == 0:
        return None
    (name,) = names_of(call, "input") or names_of(call, "input_shape")
    must = f"a multiple of {plane[0] * plane[1]}, the bins of a region, {spelled(plane)}"
    return Fault(f"{call.spell(name)} has {channels} channels; they must be {must}.")
