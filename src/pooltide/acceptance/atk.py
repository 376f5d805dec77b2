"""Reads a case file of ATK, its JSON form: cases with id, name and inputs.

`name` or `api` is the operator; each input has name, type (tensor, or attr and its like), dtype, shape and
range_values: from and to of a tensor's values, or the value of an attribute. The columns of ATK's CSV files
are not documented, so these are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .cases import CasesError, Line
from .foreign import Foreign, Tensor, call_of, line_of, put, range_words, role_of, shape_of, text_of

_NAMES = ("name", "api", "aclnn_name")  # fields that may name the operator


def lines(path: Path, document: Any) -> Iterator[Line] | None:
    """The cases of a file; None: the file is not of ATK."""
    cases = document.get("cases") if isinstance(document, dict) else document
    if not isinstance(cases, list) or not cases:
        return None
    if not all(isinstance(case, dict) and "inputs" in case for case in cases):
        return None
    return _cases(cases)


def _cases(cases: list[dict[str, Any]]) -> Iterator[Line]:
    for number, case in enumerate(cases, 1):
        name = f"{case.get('name') or case.get('api') or 'case'}_{case.get('id', number)}"
        yield line_of(number, name, partial(_foreign, case))


def _foreign(case: Mapping[str, Any]) -> Foreign:
    foreign = call_of("name", *(case[key] for key in _NAMES if isinstance(case.get(key), str)))
    operator = foreign.operator
    inputs = case["inputs"]
    if not isinstance(inputs, list) or not all(isinstance(one, dict) for one in inputs):
        raise CasesError("inputs must be a list of objects")
    for one in inputs:
        role = role_of(operator, text_of(one, "name"), "input")
        if one.get("type") == "tensor":
            tensor = Tensor(shape_of(one.get("shape")), text_of(one, "dtype"), one.get("format"))
            put(foreign.tensors, role, tensor)
            source = "grad_output" if operator.gradient else "input"
            if role == source and isinstance(one.get("range_values"), list):
                foreign.words = range_words("uniform", one["range_values"])
        elif role != "out":
            put(foreign.attributes, role, one.get("range_values"))
    return foreign
