"""Reads a case file of ATK, its JSON form or the same as a table: cases with id, name and inputs.

`name` or `api` is the operator; each input has name, type (tensor, or attr and its like), dtype, shape and
range_values: from and to of a tensor's values, or the value of an attribute. A table has these fields as
columns, separated as in our own case files, and JSON in the cells of inputs. The columns of ATK's own CSV
files are not documented, so these are not read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .cases import CasesError, Line, not_utf8, parse_json, separator
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


def table(data: bytes) -> list[dict[str, Any]]:
    """The cases of a CSV file. CasesError: it is none, or has other columns."""
    try:
        text = data.decode("utf-8-sig")
        mark = separator(text.partition("\n")[0], {"inputs"}) or ","
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True))
    except UnicodeDecodeError as error:
        raise CasesError(not_utf8(error)) from None
    except csv.Error as error:
        raise CasesError(f"the file is no CSV: {error}") from None
    names, *others = rows or [[]]
    header = [name.strip() for name in names]
    if len(set(header)) < len(header) or "inputs" not in header or not {*_NAMES} & {*header}:
        raise CasesError(
            "no public document names the columns of ATK's CSV files; give ATK's JSON form of the cases "
            "(id, name, inputs), a CSV file of these three with the inputs as JSON, or pooltide's own case "
            "file without --from: CSV with the columns name,operator,input,kernel,stride,padding,dtype, as "
            "in a1,avg2d,2x3x11x13,3x3,2,1,f16"
        )
    cases = [row for row in others if any(row)]  # spreadsheets end a table by rows of empty cells
    if not cases:
        raise CasesError("the table has a header and no case")
    for number, row in enumerate(cases, 1):
        if len(row) != len(header):
            raise CasesError(
                f"row {number} has {len(row)} cells; it must have {len(header)}, as the header has"
            )
    return [
        {key: cell for key, cell in zip(header, row, strict=True) if cell}
        | {"inputs": row[header.index("inputs")]}
        for row in cases
    ]


def _cases(cases: list[dict[str, Any]]) -> Iterator[Line]:
    for number, case in enumerate(cases, 1):
        name = f"{case.get('name') or case.get('api') or 'case'}_{case.get('id', number)}"
        yield line_of(number, name, partial(_foreign, case))


def _foreign(case: Mapping[str, Any]) -> Foreign:
    foreign = call_of("name", *(case[key] for key in _NAMES if isinstance(case.get(key), str)))
    operator = foreign.operator
    inputs = case["inputs"]
    if isinstance(inputs, str):
        inputs = parse_json(inputs, "cell of inputs")
    if not isinstance(inputs, list) or not all(isinstance(one, dict) for one in inputs):
        raise CasesError("inputs must be a list of objects")
    for one in inputs:
        role = role_of(operator, text_of(one, "name"), "input")
        if one.get("type") == "tensor":
            tensor = Tensor(shape_of(one.get("shape")), text_of(one, "dtype"), one.get("format"))
            put(foreign.tensors, role, tensor)
            source = "grad_output" if operator.gradient else "input"
            if role == source and one.get("range_values") is not None:
                foreign.words = range_words("uniform", one["range_values"])
        elif role != "out":
            put(foreign.attributes, role, one.get("range_values"))
    return foreign
