"""Reads the case files of other tools: `read_cases` finds out which tool wrote a file.

    msprobe   the dump.json of an API dump, and the tensors beside it       msprobe_dump.py
    msOpST    a list of cases with case_name, op, input_desc, attr          msopst.py
    ATK       cases with id, name and inputs                                atk.py

A reader makes a `Foreign` of each call, by the names of the operator's page; `line_of` makes a case of it.
So a new page needs no code here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

from ..operators.call import CHANNELS_LAST
from ..operators.catalog import documented, operators, regions
from ..operators.pages import HOST, Operator
from ..writing import why
from .case_names import NAMES, file_name, form, is_name
from .cases import CasesError, Line, notation, parse_json
from .notation import Case, parse
from .plain_files import opened
from .supplied_values import SuppliedValues
from .trial import Refused, problem_of
from .words import BY_SHORT_DTYPE, GIVEN, NotationError, did_you_mean, short_dtype

_LARGEST = 1 << 30  # bytes of a case file
_TABLES = (".csv", ".tsv")
_DTYPES = {
    **{dtype.name.lower(): short for short, dtype in BY_SHORT_DTYPE.items()},
    **{f"torch.{dtype.name.lower()}": short for short, dtype in BY_SHORT_DTYPE.items()},
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "fp32": "f32",
    "fp16": "f16",
    "fp64": "f64",
    "bf16": "bf16",
}
_FIELDS = {  # role of an attribute: its field in a file of cases
    "kernel": "kernel",
    "stride": "stride",
    "padding": "padding",
    "dilation": "dilation",
    "ceil_mode": "ceil_mode",
    "count_include_pad": "count_include_pad",
    "divisor_override": "divisor_override",
    "cube_math_type": "cube_math_type",
    "output_size": "output",
}


@dataclass(frozen=True, slots=True)
class Tensor:
    shape: tuple[int, ...]
    dtype: str  # as the tool spells it
    format: str | None = None


@dataclass(slots=True)
class Foreign:
    """A call in another tool's file. Tensors and attributes are by role."""

    operator: Operator
    tensors: dict[str, Tensor] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()  # of the data
    supplied: SuppliedValues | None = None


def read_cases(path: Path) -> Iterator[Line]:
    """The cases of another tool's file, or of all dumps of msprobe in a directory.

    CasesError: a file can't be read, or no known tool wrote it.
    """
    from .msprobe_dump import DUMP, dumps

    if not path.is_dir():
        return _unique(_cases_of(path))
    parts = dumps(path)
    if not parts:
        raise CasesError(f"{path} has no {DUMP}; it must be a dump of msprobe, with or without step0/rank0")
    return _unique(_numbered((start, _cases_of(part)) for start, part in parts))


def _numbered(parts: Iterable[tuple[str, Iterable[Line]]]) -> Iterator[Line]:
    """The lines of several files, numbered as if they were one; each part begins the names of its lines."""
    pairs = ((start, line) for start, lines in parts for line in lines)
    for number, (start, line) in enumerate(pairs, 1):
        name = f"{start}{line.name}"
        yield replace(line, number=number, name=name) if is_name(name) else _unnamed(number, name)


def _cases_of(path: Path) -> Iterator[Line]:
    from . import atk, msopst, msprobe_dump

    suffix = path.suffix.lower()
    try:
        with opened(path) as file:
            if os.fstat(file.fileno()).st_size > _LARGEST:
                raise CasesError(f"the file has more than {_LARGEST} bytes; it must have fewer")
            text = file.read()
        document = atk.table(text) if suffix in _TABLES else parse_json(text, "file")
    except OSError as error:
        raise CasesError(f"{path}: can't be read: {why(error)}") from None
    except CasesError as error:
        hint = "" if suffix in (".json", *_TABLES) else "; a case file of pooltide is given without --from"
        raise CasesError(f"{path}: {error}{hint}") from None
    readers: tuple[Callable[[Path, Any], Iterator[Line] | None], ...] = (
        msprobe_dump.lines,
        msopst.lines,
        atk.lines,
    )
    for reader in readers:
        if (lines := reader(path, document)) is not None:
            return lines
    raise CasesError(f"{path}: the file is no dump.json of msprobe and no case file of msOpST or ATK")


def _unique(lines: Iterator[Line]) -> Iterator[Line]:
    """The lines; one whose name an earlier line has is an error: the files of both would be the same."""
    seen: dict[str, int] = {}
    for line in lines:
        if (key := form(line.name)) in seen:
            text = f"name is {line.name!r}, which case {seen[key]} has; it must be unique"
            yield Line(line.number, line.name, None, text)
        else:
            seen[key] = line.number
            yield line


def operator_called(name: str) -> Operator | None:
    """The operator that a tool calls so: aclnnAvgPool2dBackward, AvgPool2dBackward, avg_pool2d_backward, with
    or without torch.nn.functional in front. None: there is none with a short name."""
    plain = name.removeprefix("torch.nn.functional.").removeprefix("aclnn")
    for operator in (*operators().values(), *documented().values()):
        if plain in (operator.function, operator.name.removeprefix("aclnn")):
            page = operators().get(operator.function)
            return page if page is not None and page.short else None
    return None


def call_of(key: str, *names: str) -> Foreign:
    """An empty call of the operator that one of the names means. CasesError: none does; `key` has them."""
    if operator := next((page for name in names if (page := operator_called(name))), None):
        return Foreign(operator)
    plain = {re.split(r"[.:]", name)[-1].removeprefix("aclnn") for name in names} - {""}
    if any({op.function, op.name.removeprefix("aclnn")} & plain for op in _all_regional()):
        raise CasesError(
            f"{key} is {names[0][:60]!r}; pools over regions are not read from other tools' files"
        )
    known = [op for op in (*operators().values(), *documented().values()) if operator_called(op.function)]
    name = ", ".join(names)
    hint = did_you_mean(name, {spelling: spelling for op in known for spelling in (op.name, op.function)})
    raise CasesError(f"{key} is {name[:60]!r}{hint}; it must be an operator that pooltide ops lists")


def _all_regional() -> Iterator[Operator]:
    return (op for op in (*regions().values(), *documented().values()) if op.regional)


def role_called(operator: Operator, name: str) -> str | None:
    """The role of the parameter that CANN's documents or the function call so."""
    for page in (operator, *(op for op in documented().values() if op.function == operator.function)):
        for parameter in page.parameters:
            if name in (parameter.name, parameter.argument):
                return parameter.role
    return None


def role_of(operator: Operator, name: str, what: str) -> str:
    """The role of the parameter that is called so. CasesError: none is; `what` says input or attribute."""
    if role := role_called(operator, name):
        return role
    raise CasesError(f"an {what} is called {name[:60]!r}; {operator.function} has no such {what}")


def line_of(number: int, name: str, make: Callable[[], Foreign]) -> Line:
    """The case of a call that `make` reads; a CasesError of it becomes the error of the line."""
    safe = file_name(name)
    if not is_name(safe):
        return _unnamed(number, name)
    try:
        foreign = make()
        case = parse(_notation(foreign))
        _check_tensors(foreign, case)
        return Line(number, safe, case, supplied=foreign.supplied)
    except (CasesError, NotationError) as error:
        return Line(number, safe, None, str(error))


def _unnamed(number: int, name: str) -> Line:
    """The line of a case whose name no file can have."""
    return Line(
        number, f"case-{number:06d}", None, f"the name has {len(file_name(name).encode())} bytes; {NAMES}"
    )


def _notation(foreign: Foreign) -> str:
    operator, tensors = foreign.operator, foreign.tensors
    if "input" not in tensors:
        raise CasesError(f"{operator.function}: the input has no shape; the case must have it")
    if not tensors["input"].shape:
        raise CasesError(f"{operator.function}: the input has shape (), of a scalar; a pool needs a plane")
    source = tensors.get("grad_output") or tensors["input"]
    fields: dict[str, Any] = {
        "operator": operator.short,
        "input": list(tensors["input"].shape),
        "dtype": _dtype(source.dtype),
        "format": source.format,
    }
    for role, value in foreign.attributes.items():
        if role not in _FIELDS:
            raise CasesError(f"{operator.function}: {role} is an attribute; it must be a tensor")
        fields[_FIELDS[role]] = _plain(role, value)
    if operator.windows == "adaptive" and "grad_output" in tensors:
        fields["output"] = list(tensors["grad_output"].shape[-len(operator.axes) :])
    if "indices" in tensors:
        fields["index_dtype"] = _dtype(tensors["indices"].dtype)
    data = [GIVEN] if foreign.supplied is not None else []
    return ":".join([notation(fields), *foreign.words, *data])


def _check_tensors(foreign: Foreign, case: Case) -> None:
    """Raise CasesError if a tensor of the file is not the one that the case has in its place.

    A case that the rules refuse is left to them: their reason is better.
    """
    try:
        problem_of(case)
    except Refused:
        return
    call = case.call(HOST)
    for role, tensor in foreign.tensors.items():
        parameter = foreign.operator.by_role(role)
        if parameter is None or (expected := call.role(role)) is None:
            continue
        where = f"{foreign.operator.function}: {parameter.name}"
        if tensor.format in CHANNELS_LAST:
            raise CasesError(f"{where} has format {tensor.format}; it must have channels first, as NCHW has")
        if tensor.shape != expected.shape:
            must = f"by the other arguments it must be {expected.shape}"
            raise CasesError(f"{where} has shape {tensor.shape}; {must}")
        if _dtype(tensor.dtype) != short_dtype(expected.dtype):
            must = f"by the other tensors it must be {expected.dtype}"
            raise CasesError(f"{where} has dtype {tensor.dtype}; {must}")


def _plain(role: str, value: Any) -> Any:
    """An attribute as a file of cases has it; an empty list, None and divisor 0 mean that it is absent."""
    if value is None or value == [] or (role == "divisor_override" and value == 0):
        return None
    return list(value) if isinstance(value, tuple) else value


def _dtype(name: str) -> str:
    if name.lower() not in _DTYPES:
        raise CasesError(
            f"the dtype is {name[:60]!r}; it must be float32, float16, bfloat16, float64 or an integer"
        )
    return _DTYPES[name.lower()]


def put(values: dict[str, Any], role: str, value: Any) -> None:
    """Add what a file says of a parameter. CasesError: the file says it twice."""
    if role in values:
        raise CasesError(f"{role} is there twice; it must be there once")
    values[role] = value


def shape_of(value: Any) -> tuple[int, ...]:
    """A shape. CasesError: the value is none."""
    if not isinstance(value, list) or any(type(n) is not int for n in value):
        raise CasesError(f"the shape is {str(value)[:60]}; it must be a list of whole numbers")
    return tuple(value)


def range_words(distribution: str, bounds: Any) -> tuple[str, ...]:
    """The words of values that are drawn from a range, as two numbers."""
    if (
        not isinstance(bounds, Sequence)
        or len(bounds) != 2
        or any(type(b) not in (int, float) for b in bounds)
    ):
        raise CasesError(f"the range of the values is {str(bounds)[:60]}; it must be two numbers")
    try:
        low, high = map(float, bounds)
    except OverflowError:
        low = high = inf
    if not (isfinite(low) and isfinite(high)):
        raise CasesError(f"the range of the values is {str(bounds)[:60]}; it must be finite")
    return distribution, f"range{low!r}x{high!r}"


def text_of(table: Mapping[str, Any], key: str) -> str:
    """A field that must be text. CasesError: it is not."""
    if not isinstance(value := table.get(key), str) or not value:
        raise CasesError(f"{key} is {str(value)[:60]}; it must be text")
    return value
