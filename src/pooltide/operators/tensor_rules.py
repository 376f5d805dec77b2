"""The rules of single tensors and arrays, and of what tensors must have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .call import Call, TensorMeta, article, is_int, overlaps
from .dtypes import STATUS
from .pages import HOST, PRODUCTS
from .plain import shown
from .refusals import Fault, Names, dtype_text, either, shape_text, spelled
from .user_code import UserCodeError, run_user_code

INNER = STATUS["ACLNN_ERR_INNER"]


def not_null(call: Call, of: Names) -> Fault | None:
    for name in of:
        if call.values[name] is None:
            if call.by_function:
                must = (
                    "an array"
                    if call.operator.parameter(name).type == "tensor"
                    else "an int or a tuple of ints"
                )
                return Fault(f"{call.spell(name)} is None; it must be {must}.", TypeError)
            what = call.operator.parameter(name).type.replace("_", " ")
            return Fault(f"{call.spell(name)} is null; it must be {article(what)} {what}.", TypeError)
    return None


def product_supported(call: Call) -> Fault | None:
    if call.product in call.operator.products:
        return None
    return Fault(
        f"the operator is not supported on {PRODUCTS[call.product]}; it is supported on {_products(call)}."
    )


def dtype_supported(call: Call, of: Names) -> Fault | None:
    for spelling, parameter, tensor in call.tensors(of):
        dtype = tensor.dtype.name
        known = call.operator.dtypes(parameter, call.product)
        if dtype not in known:
            must = f"{_on(call)}it must be {either(dtype_text(call, k) for k in known)}."
            return Fault(f"{spelling} has dtype {dtype_text(call, dtype)}; {must}", TypeError)
    return None


def format_supported(call: Call, of: Names) -> Fault | None:
    for spelling, parameter, tensor in call.tensors(of):
        if (got := tensor.format) is not None and got not in parameter.formats:
            return Fault(f"{spelling} has format {got}; it must be {either(parameter.formats)}.")
    return None


def same_dtype(call: Call, of: Names) -> Fault | None:
    if call.by_function and call.operator.gradient:  # there `input` is a shape; grad_output has its dtype
        grad = next(p.name for p in call.operator.parameters if p.role == "grad_output")
        of = tuple(dict.fromkeys(grad if call.operator.parameter(n).role == "input" else n for n in of))
    return _same(call, of, "dtype", lambda t: dtype_text(call, t.dtype.name), TypeError)


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
    tensors = call.tensors(of)
    for spelling, _, tensor in tensors[1:]:
        first, must = tensors[0][0], read(tensors[0][2])
        if (got := read(tensor)) != must:
            as_first = f"it must be {spelled(must)}, as {first} has"
            return Fault(f"{spelling} has {what} {spelled(got)}; {as_first}.", error)
    return None


def rank_supported(call: Call, of: Names) -> Fault | None:
    for spelling, parameter, tensor in call.tensors(of):
        shape, known = tensor.shape, parameter.ranks
        if len(shape) not in known:
            return Fault(
                f"{spelling} has rank {len(shape)}, shape {shape_text(shape)}; "
                f"it must have rank {either(known)}."
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
    if call.product in spatial_only:
        return positive_plane(call, of)
    for name in of:
        shape = call.tensor(name).shape
        if any(n <= 0 for n in shape):
            text = (
                f"{call.spell(name)} has shape {shape_text(shape)}; every dimension must be greater than 0."
            )
            return Fault(text)
    return None


def positive_plane(call: Call, of: Names) -> Fault | None:
    """N and C may be 0."""
    for name in of:
        shape = call.tensor(name).shape
        if any(n <= 0 for n in call.spatial(name)) or any(n < 0 for n in shape):
            must = "every spatial dimension must be greater than 0"
            return Fault(f"{call.spell(name)} has shape {shape_text(shape)}; {must}.")
    return None


def natural_dimensions(call: Call, of: Names) -> Fault | None:
    for spelling, _, tensor in call.tensors(of):
        if any(n < 0 for n in tensor.shape):
            return Fault(
                f"{spelling} has shape {shape_text(tensor.shape)}; every dimension must be at least 0."
            )
    return None


def output_shape(call: Call, of: Names) -> Fault | None:
    """The shape that the page of a user gives an output: that of a parameter, or what a function computes."""
    for spelling, parameter, tensor in call.tensors(of):
        shape = parameter.shape
        if isinstance(shape, str):
            if call.values[shape] is None:
                continue
            must, why = call.tensor(shape).shape, f"as {shape} has"
        else:
            try:
                result = run_user_code(shape, dict(call.values))
            except UserCodeError as error:
                return Fault(f"the shape of {spelling} is not known: {error}.", status=INNER)
            if (computed := _shape(result)) is None:
                text = f"{shape} returned {shown(result)} for the shape of {spelling}"
                return Fault(f"{text}; it must return a tuple of ints.", status=INNER)
            must, why = computed, f"as {shape} says"
        if tensor.shape != must:
            text = f"{spelling} has shape {shape_text(tensor.shape)}; it must be {shape_text(must)}, {why}."
            return Fault(text)
    return None


def _shape(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, (tuple, list)) or not all(is_int(n) for n in value):
        return None
    return tuple(map(int, value))


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
            return Fault(f"{call.spell(name)} has {len(value)} values; it must have {either(known)}.")
    return None


def array_values(call: Call, of: Names) -> Fault | None:
    for name in of:
        value = _array(call, name)
        least = call.operator.parameter(name).least or 0
        if any(v < least for v in value):
            got = shape_text(value)
            return Fault(f"{call.spell(name)} has values {got}; each must be at least {least}.")
    return None


def only_value(call: Call, of: Names, value: int) -> Fault | None:
    """Of an attribute that may have one value only; an empty array has it."""
    for name in of:
        got = call.values[name]
        if isinstance(got, tuple) and any(v != value for v in got):
            text = f"{call.spell(name)} has values {shape_text(got)}; {_on(call)}each must be {value}."
            return Fault(text)
        if isinstance(got, int) and got != value:
            return Fault(f"{call.spell(name)} is {got}; {_on(call)}it must be {value}.")
    return None


def writable_once(call: Call, of: Names) -> Fault | None:
    for spelling, _, tensor in call.tensors(of):
        if tensor.strides is None:
            continue
        shared = overlaps(tensor.shape, tensor.strides)
        if shared is False:
            continue
        why = "lets cells share memory" if shared else "is too intricate to show that no cells share memory"
        return Fault(
            f"{spelling} has shape {shape_text(tensor.shape)} and strides "
            f"{shape_text(tensor.strides)}, which {why}; each cell must have its own element."
        )
    return None


def _array(call: Call, name: str) -> tuple[int, ...]:
    value = call.values[name]
    return value if isinstance(value, tuple) else ()  # null where nullable: empty


def _on(call: Call) -> str:
    return "" if call.by_function else f"on {PRODUCTS[call.product]} "


def _products(call: Call) -> str:
    return either(PRODUCTS[p] for p in call.operator.products if p != HOST or not call.operator.documented)
