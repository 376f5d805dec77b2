"""The rules of pools over regions of interest."""

from __future__ import annotations

from math import inf, prod

from .call import Call
from .plain import shown
from .refusals import Fault, Names, either, names_of, shape_text, spelled_role

Pair = tuple[int, int]
MOST_SAMPLES = 32767  # of a bin on each axis: the samples of a bin fit 32 bits


def boxes_shape(call: Call, columns: int = 5) -> Fault | None:
    """Boxes have the number of their image first, or have 4 columns, where another tensor has it."""
    (name,) = names_of(call, "boxes")
    if (shape := call.tensor(name).shape)[-1] == columns:
        return None
    row = "(image, x1, y1, x2, y2)" if columns == 5 else "(x1, y1, x2, y2)"
    must = f"(K, {columns}), a row of {row} for each region"
    return Fault(f"{call.spell(name)} has shape {shape_text(shape)}; it must be {must}.")


def boxes_dtype(call: Call) -> Fault | None:
    """Boxes have the dtype of the arrays, or float32, as half types are coarse for positions."""
    (name,) = names_of(call, "boxes")
    got, must = call.tensor(name).dtype.name, call.source.dtype.name
    if got in (must, "FLOAT32"):
        return None
    known = "float32" if must == "FLOAT32" else f"{must.lower()} or float32"
    source = "grad_output" if call.operator.gradient else "input"
    why = f"as {spelled_role(call, source)} has {must.lower()}"
    return Fault(f"{call.spell(name)} has dtype {got.lower()}; it must be {known}, {why}.", TypeError)


def sampling_range(call: Call) -> Fault | None:
    value = call.role("sampling_ratio")
    if value is None or value <= MOST_SAMPLES:
        return None
    text = f"{spelled_role(call, 'sampling_ratio')} is {shown(value)}"
    return Fault(f"{text}; it must be at most {MOST_SAMPLES}.")


def bins_divide_channels(call: Call) -> Fault | None:
    """Position-sensitive pools have one input channel for each bin of each output channel."""
    (x,) = names_of(call, "input")
    channels, (ph, pw) = call.batch(x)[1], bins_of(call)
    if not call.operator.position_sensitive or channels % (ph * pw) == 0:
        return None
    return Fault(f"{call.spell(x)} has {channels} channels; they must be a multiple of {ph}·{pw} bins.")


def pooled_shape(call: Call, of: Names) -> Fault | None:
    """The arrays of the pooled side have one row for each region, and its channels and bins."""
    bins, regions = bins_of(call), call.role("boxes").shape[0]
    must = (regions, pooled_channels(call.operator.kind, image_shape(call)[1], bins), *bins)
    if prod(max(n, 1) for n in must) * 8 >= 2**63:
        return Fault("the result would have over 2**63 bytes; it must be smaller.")
    for name in of:
        if call.values[name] is not None and (got := call.tensor(name).shape) != must:
            return Fault(f"{call.spell(name)} has shape {shape_text(got)}; it must be {shape_text(must)}.")
    return None


def bins_of(call: Call) -> Pair:
    """PH, PW: the output size of a forward; a gradient has them in its grad_output, CANN in two numbers."""
    if call.operator.by_role("pooled_height"):
        return call.role("pooled_height"), call.role("pooled_width")
    if grad := call.role("grad_output"):
        return grad.shape[-2], grad.shape[-1]
    ph, pw = call.pairs("output_size")
    return ph, pw


def pooled_channels(kind: str, channels: int, bins: Pair) -> int:
    return channels // max(prod(bins), 1) if kind.startswith("ps_") else channels


def image_shape(call: Call) -> tuple[int, ...]:
    """N, C, H, W of the images; a gradient of CANN has them as an array."""
    if call.operator.by_role("input_shape"):
        return tuple(call.role("input_shape"))
    shape: tuple[int, ...] = call.role("input").shape
    return shape


def image_sizes(call: Call) -> Fault | None:
    """C may be 0."""
    n, c, h, w = shape = image_shape(call)
    name = spelled_role(call, "input_shape" if call.operator.by_role("input_shape") else "input")
    if min(n, h, w) < 1 or c < 0:
        return Fault(f"{name} is {shape_text(shape)}; N, H and W must be greater than 0, and C at least 0.")
    if h * w >= 2**31 or prod(shape) * 8 >= 2**63:
        return Fault(f"{name} is {shape_text(shape)}; H·W must be below 2**31, and all below 2**63 bytes.")
    return None


def image_result(call: Call, of: Names) -> Fault | None:
    """The tensors on the side of the images."""
    must = image_shape(call)
    for name in of:
        if (got := call.tensor(name).shape) != must:
            text = f"{call.spell(name)} has shape {shape_text(got)}; it must be {shape_text(must)}"
            return Fault(f"{text}, as {spelled_role(call, 'input_shape')} says.")
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
        if not (0 < got < inf):  # type: ignore[operator]
            return Fault(f"{call.spell(name)} is {got}; it must be a finite number greater than 0.")
    return None


def one_of(call: Call, of: Names, words: Names) -> Fault | None:
    for name in of:
        if (got := call.values[name]) not in words:
            return Fault(f"{call.spell(name)} is {got!r:.60}; it must be {either(words)}.")
    return None
