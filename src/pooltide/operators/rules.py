"""The rules: each is one name, one function, one sentence.

A rule looks at a call and returns None, or a `Fault`: *argument has X; it must be Y*.
`check` walks an operator's rules from top to bottom; the first fault is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..geometry import Axis, strided_outputs
from .call import Call, TensorMeta, Unusable, overlaps
from .dtypes import STATUS, status_name
from .pages import HOST, PRODUCTS, Rule

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call is refused. `error` is what a Python function raises for it."""

    text: str
    error: type[Exception] = ValueError
    status: int = STATUS["ACLNN_ERR_PARAM_INVALID"]
    rule: str = ""
    row: int | None = None

    def message(self, title: str) -> str:
        return f"{title}: {self.text} [{self.status} {status_name(self.status)}]"


def check(call: Call) -> Fault | None:
    for rule in call.operator.rules:
        if call.product in rule.skip:
            continue
        arguments = rule.arguments
        if "of" in arguments and rule.name != "not_null":  # optional arguments that are not given pass
            arguments = {**arguments, "of": tuple(n for n in arguments["of"] if call.values[n] is not None)}
        fault = RULES[rule.name](call, **arguments)
        if fault is None and rule.name == "not_null":
            fault = _usable(call)
        if fault is not None:
            return fault if fault.rule else replace(fault, status=rule.status, rule=rule.name, row=rule.row)
    return None


def _usable(call: Call) -> Fault | None:
    for name, value in call.values.items():
        if isinstance(value, Unusable):
            text = f"{call.spell(name)} {value.what}; it must be {value.must}."
            return Fault(text, value.error, rule="usable")
    return None


def not_null(call: Call, of: Names) -> Fault | None:
    for name in of:
        if call.values[name] is None:
            if call.by_function:
                return Fault(f"{call.spell(name)} is None; it must be an int or a tuple of ints.", TypeError)
            what = "a tensor" if call.operator.parameter(name).type == "tensor" else "an int array"
            return Fault(f"{call.spell(name)} is null; it must be {what}.", TypeError)
    return None


def product_supported(call: Call) -> Fault | None:
    if call.product in call.operator.products:
        return None
    return Fault(
        f"the operator is not supported on {PRODUCTS[call.product]}; it is supported on {_products(call)}."
    )


def dtype_supported(call: Call, of: Names) -> Fault | None:
    for name in of:
        dtype = call.tensor(name).dtype.name
        known = call.operator.dtypes(call.operator.parameter(name), call.product)
        if dtype not in known:
            must = f"{_on(call)}it must be {_or(_dtype(call, k) for k in known)}."
            return Fault(f"{call.spell(name)} has dtype {_dtype(call, dtype)}; {must}", TypeError)
    return None


def format_supported(call: Call, of: Names) -> Fault | None:
    for name in of:
        known = call.operator.parameter(name).formats
        if (got := call.tensor(name).format) is not None and got not in known:
            return Fault(f"{call.spell(name)} has format {got}; it must be {_or(known)}.")
    return None


def same_dtype(call: Call, of: Names) -> Fault | None:
    if call.by_function and call.operator.gradient:  # there `input` is a shape, without a dtype of its own
        of = tuple(n for n in of if call.operator.parameter(n).role != "input")
    return _same(call, of, "dtype", lambda t: _dtype(call, t.dtype.name), TypeError)


def same_format(call: Call, of: Names) -> Fault | None:
    return _same(call, of, "format", lambda t: t.format or "none")


def same_rank(call: Call, of: Names) -> Fault | None:
    return _same(call, of, "rank", lambda t: len(t.shape))


def same_shape(call: Call, of: Names) -> Fault | None:
    return _same(call, of, "shape", lambda t: t.shape)


def _same(
    call: Call,
    of: Names,
    what: str,
    read: Callable[[TensorMeta], Any],
    error: type[Exception] = ValueError,
) -> Fault | None:
    for name in of[1:]:
        first, must = of[0], read(call.tensor(of[0]))
        if (got := read(call.tensor(name))) != must:
            as_first = f"it must be {_spelled(must)}, as {call.spell(first)} has"
            return Fault(f"{call.spell(name)} has {what} {_spelled(got)}; {as_first}.", error)
    return None


def rank_supported(call: Call, of: Names) -> Fault | None:
    for name in of:
        shape = call.tensor(name).shape
        known = call.operator.parameter(name).ranks
        if len(shape) not in known:
            return Fault(
                f"{call.spell(name)} has rank {len(shape)}, shape {_shape(shape)}; "
                f"it must have rank {_or(known)}."
            )
    return None


def rank_format(call: Call, of: Names, rank: int, format: str) -> Fault | None:
    for name in of:
        tensor = call.tensor(name)
        if len(tensor.shape) == rank and tensor.format not in (None, format):
            text = f"{call.spell(name)} has rank {rank} and format {tensor.format}"
            return Fault(f"{text}; with rank {rank} it must be {format}.")
    return None


def positive_dimensions(call: Call, of: Names, spatial_only: Names = ()) -> Fault | None:
    free = -len(call.operator.axes) if call.product in spatial_only else 0
    for name in of:
        shape = call.tensor(name).shape
        if any(n <= 0 for n in shape[free:]) or any(n < 0 for n in shape):
            which = "every spatial dimension" if free else "every dimension"
            return Fault(f"{call.spell(name)} has shape {_shape(shape)}; {which} must be greater than 0.")
    return None


def natural_dimensions(call: Call, of: Names) -> Fault | None:
    for name in of:
        shape = call.tensor(name).shape
        if any(n < 0 for n in shape):
            return Fault(f"{call.spell(name)} has shape {_shape(shape)}; every dimension must be at least 0.")
    return None


def same_batch(call: Call, of: Names) -> Fault | None:
    first, other = of
    must, got = call.batch(first), call.batch(other)
    if must == got:
        return None
    return Fault(
        f"{call.spell(other)} has N, C = {got[0]}, {got[1]}; "
        f"they must be {must[0]}, {must[1]}, as {call.spell(first)} has."
    )


def array_lengths(call: Call, of: Names) -> Fault | None:
    for name in of:
        value = _array(call, name)
        known = call.operator.parameter(name).lengths
        if len(value) not in known:
            return Fault(f"{call.spell(name)} has {len(value)} values; it must have {_or(known)}.")
    return None


def array_values(call: Call, of: Names) -> Fault | None:
    for name in of:
        value = _array(call, name)
        least = call.operator.parameter(name).least
        if any(v < least for v in value):
            got = _shape(value)
            return Fault(f"{call.spell(name)} has values {got}; each must be at least {least}.")
    return None


def padding_half_kernel(call: Call) -> Fault | None:
    for axis, k, p in zip(call.operator.axes, call.kernel, call.padding, strict=True):
        if 2 * p > k:
            return Fault(
                f"{_role(call, 'padding')} is {p} on axis {axis.upper()}; it must be at most {k // 2}, "
                f"half of {_role(call, 'kernel')} {k}."
            )
    return None


def forward_shape(call: Call) -> Fault | None:
    grad, x = _names(call, "grad_output", "input")
    ceil = bool(call.role("ceil_mode"))
    geometry = zip(call.spatial(x), call.reach, call.stride, call.padding, strict=True)
    must = tuple(strided_outputs(length, k, s, p, ceil) for length, k, s, p in geometry)
    if any(n < 1 for n in must):
        return Fault(
            f"{_role(call, 'kernel')} is {_kernel(call)} with padding {_shape(call.padding)}; "
            f"no window fits into {call.spell(x)}'s plane {_shape(call.spatial(x))}, and one must."
        )
    if (got := call.spatial(grad)) != must:
        return Fault(
            f"{call.spell(grad)} has plane {_shape(got)}; the forward of {call.spell(x)} "
            f"{_shape(call.tensor(x).shape)} with kernel {_kernel(call)}, stride "
            f"{_shape(call.stride)}, padding {_shape(call.padding)}, {'ceil' if ceil else 'floor'} mode "
            f"gives {_shape(must)}, so it must be that."
        )
    return None


def window_fits(call: Call) -> Fault | None:
    """Of a forward: at least one window fits each padded axis."""
    ceil, (x,) = bool(call.role("ceil_mode")), _names(call, "input")
    geometry = zip(call.operator.axes, call.spatial(x), call.reach, call.stride, call.padding, strict=True)
    for axis, length, reach, s, p in geometry:
        if strided_outputs(length, reach, s, p, ceil) < 1:
            return Fault(
                f"{call.spell(x)} has length {length} on axis {axis.upper()}; with padding {p} a window of "
                f"{reach} cells must fit, so it must be at least {reach - 2 * p}."
            )
    return None


def kernel_within_input(call: Call) -> Fault | None:
    """PyTorch asks this of its 3-D average alone."""
    (x,) = _names(call, "input")
    for axis, length, k in zip(call.operator.axes, call.spatial(x), call.kernel, strict=True):
        if length < k:
            return Fault(
                f"{call.spell(x)} has length {length} on axis {axis.upper()}; it must be at least {k}, as "
                f"{_role(call, 'kernel')} is, whatever the padding."
            )
    return None


def result_fits_memory(call: Call) -> Fault | None:
    if prod(max(n, 1) for n in forward_result(call)) * 8 < 2**63:
        return None
    return Fault("the result would have over 2**63 bytes; it must be smaller.")


def result_shape(call: Call, of: Names) -> Fault | None:
    must = forward_result(call)
    for name in of:
        if (got := call.tensor(name).shape) != must:
            return Fault(f"{call.spell(name)} has shape {_shape(got)}; it must be {_shape(must)}.")
    return None


def forward_result(call: Call) -> tuple[int, ...]:
    """The shape of a forward's result."""
    (x,) = _names(call, "input")
    lengths = call.spatial(x)
    if call.operator.windows == "adaptive":
        outputs = call.pairs("output_size")
    else:
        ceil = bool(call.role("ceil_mode"))
        geometry = zip(lengths, call.reach, call.stride, call.padding, strict=True)
        outputs = tuple(strided_outputs(n, k, s, p, ceil) for n, k, s, p in geometry)
    return call.tensor(x).shape[: -len(lengths)] + outputs


def _kernel(call: Call) -> str:
    dilated = call.operator.by_role("dilation") is not None and max(call.pairs("dilation")) > 1
    return _shape(call.kernel) + (f", dilation {_shape(call.pairs('dilation'))}" if dilated else "")


def cube_math_type(call: Call) -> Fault | None:
    value, cube = call.role("cube_math_type"), call.operator.cube
    assert cube is not None
    name = _role(call, "cube_math_type")
    if not 0 <= value < len(cube.names):
        return Fault(f"{name} is {value}; it must be 0 to {len(cube.names) - 1}.")
    if call.product in cube.global_only and not pools_globally(call):
        return None
    dtype = call.tensor(_names(call, "grad_output")[0]).dtype.name
    if cube.action(call.product, dtype, value) != "refuse":
        return None
    works = [v for v in range(len(cube.names)) if cube.action(call.product, dtype, v) != "refuse"]
    return Fault(
        f"{name} is {value} ({cube.names[value]}), which is not supported for {dtype} on "
        f"{PRODUCTS[call.product]}; it must be {_or(works)}."
    )


def pools_globally(call: Call) -> bool:
    """The output is 1×1 and its one window holds the whole plane."""
    grad, x = _names(call, "grad_output", "input")
    windows = zip(call.spatial(x), call.spatial(grad), call.kernel, call.stride, call.padding, strict=True)
    return all(Axis(*sizes).whole for sizes in windows)


def divisor_range(call: Call) -> Fault | None:
    limits = call.operator.divisor_ranges.get(call.product)
    value = call.role("divisor_override")
    if limits is None or limits[0] <= value <= limits[1]:
        return None
    return Fault(
        f"{_role(call, 'divisor_override')} is {value}; on {PRODUCTS[call.product]} it must be "
        f"{limits[0]} to {limits[1]} (0: none)."
    )


def plane_at_most(call: Call, cells: int) -> Fault | None:
    (x,) = _names(call, "input")
    plane = prod(call.spatial(x))
    if plane <= cells:
        return None
    axes = "·".join(call.operator.axes).upper()
    return Fault(f"{call.spell(x)} has {axes} = {plane}; it must be at most {cells}.")


def multiple_or_plane_at_most(call: Call, cells: int) -> Fault | None:
    x, grad = _names(call, "input", "grad_output")
    inner, outer = call.spatial(x), call.spatial(grad)
    if all(o == 0 or i % o == 0 for i, o in zip(inner, outer, strict=True)):
        return None
    if prod(inner) <= cells:
        return None
    return Fault(
        f"{call.spell(x)} has plane {_shape(inner)}, no multiple of {call.spell(grad)}'s "
        f"{_shape(outer)}; then H·W = {prod(inner)} must be at most {cells}."
    )


def writable_once(call: Call, of: Names) -> Fault | None:
    for name in of:
        tensor = call.tensor(name)
        if tensor.strides is None:
            continue
        found = overlaps(tensor.shape, tensor.strides)
        if found is False:
            continue
        why = "lets cells share memory" if found else "is too intricate to show that no cells share memory"
        return Fault(
            f"{call.spell(name)} has shape {_shape(tensor.shape)} and strides "
            f"{_shape(tensor.strides)}, which {why}; each cell must have its own element."
        )
    return None


RULES: dict[str, Callable[..., Fault | None]] = {
    rule.__name__: rule
    for rule in (
        not_null, product_supported, dtype_supported, format_supported, same_dtype, same_format,
        rank_supported, same_rank, rank_format, positive_dimensions, natural_dimensions, same_shape,
        same_batch, array_lengths, array_values, padding_half_kernel, forward_shape, cube_math_type,
        divisor_range, plane_at_most, multiple_or_plane_at_most, writable_once,
        window_fits, kernel_within_input, result_fits_memory, result_shape,
    )
}  # fmt: skip


def known(rule: Rule) -> bool:
    """Whether a page's rule has code behind it that takes the arguments it names."""
    import inspect

    if rule.name not in RULES:
        return False
    try:
        inspect.signature(RULES[rule.name]).bind(None, **rule.arguments)
    except TypeError:
        return False
    return True


def _array(call: Call, name: str) -> tuple[int, ...]:
    value = call.values[name]
    return value if isinstance(value, tuple) else ()  # null where nullable: empty


def _names(call: Call, *roles: str) -> Names:
    found = (call.operator.by_role(role) for role in roles)
    return tuple(parameter.name for parameter in found if parameter)


def _role(call: Call, role: str) -> str:
    return call.spell(_names(call, role)[0])


def _spelled(value: Any) -> str:
    return _shape(value) if isinstance(value, tuple) else str(value)


def _shape(shape: Iterable[int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def _or(values: Iterable[Any]) -> str:
    *init, last = map(str, values)
    return f"{', '.join(init)} or {last}" if init else last


def _dtype(call: Call, name: str) -> str:
    return name.lower() if call.by_function else name


def _on(call: Call) -> str:
    return "" if call.by_function else f"on {PRODUCTS[call.product]} "


def _products(call: Call) -> str:
    return _or(PRODUCTS[p] for p in call.operator.products if p != HOST or not call.operator.documented)
