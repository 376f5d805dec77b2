"""Reads a case file of msOpST: a list of cases with case_name, op, input_desc, output_desc and attr.

`op` is the name of an operator of CANN, with or without aclnn, or of our function; attributes and inputs have
the names of its parameters. Inputs without a name are in the order of the operator's parameters. A case with
several types is one case for each type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..operators.pages import Operator
from .cases import CasesError, Line
from .foreign import Foreign, Tensor, call_of, line_of, put, range_words, role_of, shape_of, text_of
from .supplied_values import SuppliedValues, Values, flat


def lines(path: Path, document: Any) -> Iterator[Line] | None:
    """The cases of a file; None: the file is not of msOpST."""
    if not isinstance(document, list) or not document:
        return None
    if not all(isinstance(case, dict) and "case_name" in case and "op" in case for case in document):
        return None
    return _cases(path.parent, document)


def _cases(folder: Path, cases: list[dict[str, Any]]) -> Iterator[Line]:
    number = 0
    for case in cases:
        try:
            count = _count(case)
        except CasesError:
            count = 1  # the error comes again while the case is read, as that of its line
        for which in range(count):
            number += 1
            name = str(case["case_name"]) + (f"_{which + 1:02d}" if count > 1 else "")
            yield line_of(number, name, partial(_foreign, case, which, folder))


def _inputs(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    inputs = case.get("input_desc")
    if not isinstance(inputs, list) or not inputs or not all(isinstance(one, dict) for one in inputs):
        raise CasesError("input_desc must be a list of objects, one for each input")
    return inputs


def _count(case: Mapping[str, Any]) -> int:
    """The number of types, which must be the same for every input."""
    counts = {len(one["type"]) if isinstance(one.get("type"), list) else 1 for one in _inputs(case)}
    if len(counts) != 1 or counts == {0}:
        raise CasesError("type must have the same number of values, at least one, for every input")
    return counts.pop()


def _foreign(case: Mapping[str, Any], which: int, folder: Path) -> Foreign:
    _count(case)
    foreign = call_of("op", text_of(case, "op"))
    operator = foreign.operator
    values: dict[str, Values] = {}
    unnamed = iter([p.role for p in operator.parameters if p.type == "tensor" and p.role != "out"])
    for one in _inputs(case):
        role = _role(operator, one, next(unnamed, None))
        put(foreign.tensors, role, _tensor(one, which))
        if "value" in one:
            values[role] = _values(one["value"], folder)
        elif role in ("grad_output", "input") and (role == "grad_output" or not operator.gradient):
            foreign.words = _drawn(one)
    source = "grad_output" if operator.gradient else "input"
    if source in values:
        foreign.supplied = SuppliedValues(values[source], values.get("indices"), values.get("input"))
    elif values and operator.by_role("indices"):  # they decide which cells get what is drawn
        role = next(iter(values))
        raise CasesError(f"{role} has a value and {source} has none; give both, or neither")
    outputs = case.get("output_desc")
    result = outputs[0] if isinstance(outputs, list) and outputs else None
    if isinstance(result, dict) and "shape" in result and source in foreign.tensors:
        put(foreign.tensors, "out", replace(foreign.tensors[source], shape=_shape(result)))
    attributes = case.get("attr") or []
    if not isinstance(attributes, list):
        raise CasesError("attr must be a list of objects with name, type and value")
    for attribute in attributes:
        _set_attribute(foreign, attribute)
    return foreign


def _role(operator: Operator, one: Mapping[str, Any], usual: str | None) -> str:
    if isinstance(one.get("name"), str):
        return role_of(operator, one["name"], "input")
    if usual is None:
        raise CasesError(f"there are more inputs without a name than {operator.function} has")
    return usual


def _tensor(one: Mapping[str, Any], which: int) -> Tensor:
    dtype, format = (_picked(one, key, which) for key in ("type", "format"))
    return Tensor(_shape(one), dtype, format)


def _shape(one: Mapping[str, Any]) -> tuple[int, ...]:
    shape = one.get("shape")
    if isinstance(shape, list) and len(shape) == 1 and isinstance(shape[0], list):
        shape = shape[0]
    if isinstance(shape, list) and any(isinstance(part, list) for part in shape):
        raise CasesError("shape has several shapes; give each its own case")
    return shape_of(shape)


def _picked(one: Mapping[str, Any], key: str, which: int) -> str:
    value = one.get(key)
    if isinstance(value, list) and value:
        value = value[min(which, len(value) - 1)]
    if not isinstance(value, str) or value in ("fuzz", "UNDEFINED", "RESERVED"):
        raise CasesError(f"{key} is {str(value)[:60]!r}; it must be the name of a {key}")
    return value


def _values(value: Any, folder: Path) -> Values:
    if isinstance(value, str) and value.endswith(".bin"):
        return str(folder / value)
    try:
        return flat(value) if isinstance(value, list) else flat([value])
    except ValueError as error:
        raise CasesError(f"value: {error}; or it must be the path of a .bin file") from None


def _drawn(one: Mapping[str, Any]) -> tuple[str, ...]:
    distribution, bounds = one.get("data_distribute", "uniform"), one.get("value_range")
    if isinstance(distribution, list) and len(distribution) == 1:
        distribution = distribution[0]
    if distribution not in ("uniform", "normal"):
        raise CasesError(f"data_distribute is {str(distribution)[:60]!r}; it must be uniform or normal")
    if isinstance(bounds, list) and len(bounds) == 1:
        bounds = bounds[0]
    return (distribution,) if bounds is None else range_words(distribution, bounds)


def _set_attribute(foreign: Foreign, attribute: Any) -> None:
    if not isinstance(attribute, dict) or "value" not in attribute:
        raise CasesError("attr must be a list of objects with name, type and value")
    role = role_of(foreign.operator, text_of(attribute, "name"), "attribute")
    put(foreign.attributes, role, attribute["value"])
