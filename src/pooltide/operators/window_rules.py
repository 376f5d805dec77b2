"""The rules of windows: what a pool's sizes make of a plane, and what its attributes may be."""

from __future__ import annotations

from math import prod

from ..geometry import Axis, strided_outputs
from .call import Call, once
from .pages import PRODUCTS
from .refusals import Fault, Names, either, names_of, shape_text, spelled_role


def padding_half_kernel(call: Call) -> Fault | None:
    pads = map(max, call.padding, call.padding_after)
    for axis, k, p in zip(call.operator.axes, call.kernel, pads, strict=True):
        if 2 * p > k:
            return Fault(
                f"{spelled_role(call, 'padding')} is {p} on axis {axis.upper()}; it must be at most "
                f"{k // 2}, half of {spelled_role(call, 'kernel')} {k}."
            )
    return None


def forward_shape(call: Call) -> Fault | None:
    grad, x = names_of(call, "grad_output", "input")
    ceil, must = bool(call.role("ceil_mode")), forward_plane(call)
    if any(n < 1 for n in must):
        return Fault(
            f"{spelled_role(call, 'kernel')} is {_kernel(call)} with padding {shape_text(call.padding)}; "
            f"no window fits into {call.spell(x)}'s plane {shape_text(call.spatial(x))}, and one must."
        )
    if (got := call.spatial(grad)) != must:
        return Fault(
            f"{call.spell(grad)} has plane {shape_text(got)}; the forward of {call.spell(x)} "
            f"{shape_text(call.tensor(x).shape)} with kernel {_kernel(call)}, stride "
            f"{shape_text(call.stride)}, padding {shape_text(call.padding)}, "
            f"{'ceil' if ceil else 'floor'} mode gives {shape_text(must)}, so it must be that."
        )
    return None


def window_fits(call: Call) -> Fault | None:
    """Of a forward: at least one window fits each padded axis."""
    (x,) = names_of(call, "input")
    pads = zip(call.padding, call.padding_after, strict=True)
    axes = zip(call.operator.axes, call.spatial(x), call.reach, pads, forward_plane(call), strict=True)
    for axis, length, reach, (before, after), outputs in axes:
        if outputs < 1:
            padding = before if before == after else f"{before} and {after}"
            return Fault(
                f"{call.spell(x)} has length {length} on axis {axis.upper()}; with padding {padding} a "
                f"window of {reach} cells must fit, so it must be at least {reach - before - after}."
            )
    return None


def kernel_within_input(call: Call) -> Fault | None:
    """PyTorch asks this of its 3-D average alone."""
    (x,) = names_of(call, "input")
    for axis, length, k in zip(call.operator.axes, call.spatial(x), call.kernel, strict=True):
        if length < k:
            return Fault(
                f"{call.spell(x)} has length {length} on axis {axis.upper()}; it must be at least {k}, as "
                f"{spelled_role(call, 'kernel')} is, whatever the padding."
            )
    return None


def result_fits_memory(call: Call) -> Fault | None:
    if prod(max(n, 1) for n in forward_result(call)) * 8 < 2**63:
        return None
    return Fault("the result would have over 2**63 bytes; it must be smaller.")


def result_shape(call: Call, of: Names) -> Fault | None:
    return _shape_is(call, of, forward_result(call))


def _shape_is(call: Call, of: Names, must: tuple[int, ...]) -> Fault | None:
    for name in of:
        if (got := call.tensor(name).shape) != must:
            return Fault(f"{call.spell(name)} has shape {shape_text(got)}; it must be {shape_text(must)}.")
    return None


def mask_shape(call: Call, of: Names) -> Fault | None:
    """A row for each cell of the kernel, of 32 bytes for every 16 windows begun, and 32 bytes more."""
    (x,) = names_of(call, "input")
    row = (-(-prod(forward_plane(call)) // 16) + 1) * 32
    return _shape_is(call, of, call.with_plane(x, (prod(call.kernel), row)))


def forward_result(call: Call) -> tuple[int, ...]:
    """The shape of a forward's result."""
    (x,) = names_of(call, "input")
    return call.with_plane(x, forward_plane(call))


def unpooled_plane(call: Call) -> tuple[int, ...]:
    """The plane of an unpool's result: its output size, or the plane of which a pool makes the input's."""
    axes = len(call.operator.axes)
    if sizes := call.role("output_size"):
        return tuple(sizes[-axes:])
    lengths = call.spatial(names_of(call, "input")[0])
    sizes = zip(lengths, call.kernel, call.stride, call.padding, strict=True)
    return tuple((n - 1) * s - 2 * p + k for n, k, s, p in sizes)


def unpooled_shape(call: Call, of: Names) -> Fault | None:
    """The tensor on the unpooled side has the input's N and C, and the plane of the output size."""
    (x,) = names_of(call, "input")
    return _shape_is(call, of, call.with_plane(x, unpooled_plane(call)))


def unpooled_size(call: Call) -> Fault | None:
    """PyTorch's rule: the output size differs from the usual one by less than the stride on each axis."""
    usual, name = unpooled_plane(call.without("output_size")), spelled_role(call, "output_size")
    for axis, n, middle, s in zip(call.operator.axes, unpooled_plane(call), usual, call.stride, strict=True):
        low, high = max(middle - s + 1, 1), middle + s - 1
        if not low <= n <= high:
            must = f"{low} to {high}" if high > 0 else "at least 1, which the padding does not allow"
            return Fault(f"{name} is {n} on axis {axis.upper()}; it must be {must}.")
    return None


def plane_at_least_input(call: Call) -> Fault | None:
    (x,) = names_of(call, "input")
    cells, windows = prod(unpooled_plane(call)), prod(call.spatial(x))
    if cells >= windows:
        return None
    name = spelled_role(call, "output_size")
    return Fault(
        f"{name} is {shape_text(unpooled_plane(call))}, a plane of {cells} cells; it must have at least the "
        f"{windows} of {call.spell(x)}."
    )


@once
def forward_plane(call: Call) -> tuple[int, ...]:
    """How many windows the forward makes on each axis; 0 or less where none fits."""
    lengths = call.spatial(names_of(call, "input")[0])
    if call.operator.windows == "global":
        return (1,) * len(lengths)
    if call.operator.windows == "adaptive":
        return call.pairs("output_size")
    ceil = bool(call.role("ceil_mode"))
    sizes = zip(lengths, call.reach, call.stride, call.padding, call.padding_after, strict=True)
    return tuple(strided_outputs(n, k, s, p, ceil, after) for n, k, s, p, after in sizes)


def _kernel(call: Call) -> str:
    dilated = call.operator.by_role("dilation") is not None and max(call.pairs("dilation")) > 1
    return shape_text(call.kernel) + (f", dilation {shape_text(call.pairs('dilation'))}" if dilated else "")


def cube_math_type(call: Call) -> Fault | None:
    value, cube = call.role("cube_math_type"), call.operator.cube
    assert cube is not None
    name = spelled_role(call, "cube_math_type")
    if not 0 <= value < len(cube.names):
        return Fault(f"{name} is {value}; it must be 0 to {len(cube.names) - 1}.")
    if call.product in cube.global_only and not pools_globally(call):
        return None
    dtype = call.source.dtype.name
    if cube.action(call.product, dtype, value) != "refuse":
        return None
    works = [v for v in range(len(cube.names)) if cube.action(call.product, dtype, v) != "refuse"]
    return Fault(
        f"{name} is {value} ({cube.names[value]}), which is not supported for {dtype} on "
        f"{PRODUCTS[call.product]}; it must be {either(works)}."
    )


def pools_globally(call: Call) -> bool:
    """The output is 1×1 and its one window holds the whole plane."""
    (x,) = names_of(call, "input")
    windows = zip(call.spatial(x), forward_plane(call), call.kernel, call.stride, call.padding, strict=True)
    return all(Axis(*sizes).whole for sizes in windows)


def divisor_range(call: Call) -> Fault | None:
    limits = call.operator.divisor_ranges.get(call.product)
    value = call.role("divisor_override")
    if limits is None or limits[0] <= value <= limits[1]:
        return None
    return Fault(
        f"{spelled_role(call, 'divisor_override')} is {value}; on {PRODUCTS[call.product]} it must be "
        f"{limits[0]} to {limits[1]} (0: none)."
    )


def plane_at_most(call: Call, cells: int) -> Fault | None:
    (x,) = names_of(call, "input")
    plane = prod(call.spatial(x))
    if plane <= cells:
        return None
    axes = "·".join(call.operator.axes).upper()
    return Fault(f"{call.spell(x)} has {axes} = {plane}; it must be at most {cells}.")


def multiple_or_plane_at_most(call: Call, cells: int) -> Fault | None:
    x, grad = names_of(call, "input", "grad_output")
    inner, outer = call.spatial(x), call.spatial(grad)
    if all(o == 0 or i % o == 0 for i, o in zip(inner, outer, strict=True)):
        return None
    if prod(inner) <= cells:
        return None
    return Fault(
        f"{call.spell(x)} has plane {shape_text(inner)}, no multiple of {call.spell(grad)}'s "
        f"{shape_text(outer)}; then H·W = {prod(inner)} must be at most {cells}."
    )
