"""The rules of pools over regions of interest."""

from __future__ import annotations

from math import prod

from .call import Call
from .refusals import Fault, Names, names_of, shape_text, spelled_role

Pair = tuple[int, int]
MOST_SAMPLES = 32767  # of a bin on each axis: the samples of a bin fit 32 bits


def boxes_shape(call: Call) -> Fault | None:
    (name,) = names_of(call, "boxes")
    if (shape := call.tensor(name).shape)[-1] == 5:
        return None
    must = "(K, 5), a row of (image, x1, y1, x2, y2) for each region"
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
    return Fault(f"{spelled_role(call, 'sampling_ratio')} is {value}; it must be at most {MOST_SAMPLES}.")


def bins_divide_channels(call: Call) -> Fault | None:
    """Position-sensitive pools have one input channel for each bin of each output channel."""
    (x,) = names_of(call, "input")
    channels, (ph, pw) = call.batch(x)[1], bins_of(call)
    if not call.operator.position_sensitive or channels % (ph * pw) == 0:
        return None
    return Fault(f"{call.spell(x)} has {channels} channels; they must be a multiple of {ph}·{pw} bins.")


def pooled_shape(call: Call, of: Names) -> Fault | None:
    """The arrays of the pooled side have one row for each region, and its channels and bins."""
    (x,) = names_of(call, "input")
    bins, regions = bins_of(call), call.role("boxes").shape[0]
    must = (regions, pooled_channels(call.operator.kind, call.batch(x)[1], bins), *bins)
    if 2**63 <= prod(max(n, 1) for n in must) * 8:
        return Fault("the result would have over 2**63 bytes; it must be smaller.")
    for name in of:
        if call.values[name] is not None and (got := call.tensor(name).shape) != must:
            return Fault(f"{call.spell(name)} has shape {shape_text(got)}; it must be {shape_text(must)}.")
    return None


def bins_of(call: Call) -> Pair:
    """PH, PW: the output size of a forward; a gradient has them in its grad_output."""
    if grad := call.role("grad_output"):
        return grad.shape[-2], grad.shape[-1]
    ph, pw = call.pairs("output_size")
    return ph, pw


def pooled_channels(kind: str, channels: int, bins: Pair) -> int:
    return channels // max(prod(bins), 1) if kind.startswith("ps_") else channels
