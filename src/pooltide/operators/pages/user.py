"""The pages of users: an operator of CANN that a Python function computes.

    operator = "aclnnRelu"
    summary = "The larger of x and 0, for every element."
    python = "relu.py:relu"
    dtypes.float = ["FLOAT32", "FLOAT16", "BFLOAT16"]
    parameters = [
        { name = "self", type = "tensor", dtypes = "float" },
        { name = "out", type = "tensor", dtypes = "float", role = "output", shape = "self" },
    ]

What such a page does not say is the usual: every product, every format, ranks 0 to 8, a header named after
the operator. Rules that follow from the list of parameters come first and last: a page lists only its own.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..dtypes import FORMATS
from ..toml import PageError, exact_keys
from . import (
    ASCEND_PRODUCTS,
    Operator,
    Parameter,
    Rule,
    by_product,
    dtype_groups,
    known_names,
    load_rule,
    typed,
)
from .references import PythonFunction, reference

# Types, and the keys that a parameter of the type may have.
TYPES: dict[str, set[str]] = {
    "tensor": {"dtypes", "formats", "ranks", "role", "shape"},
    "tensor_list": {"dtypes", "formats", "ranks", "role"},
    "scalar": set(),
    "scalar_list": set(),
    "int_array": {"lengths", "least"},
    "float_array": {"lengths"},
    "bool_array": {"lengths"},
    "bool": set(),
    "int8": set(),
    "int32": set(),
    "int64": set(),
    "uint64": set(),
    "float": set(),
    "double": set(),
    "string": set(),
    "data_type": set(),
}
HANDLES = {
    "tensor",
    "tensor_list",
    "scalar",
    "scalar_list",
    "int_array",
    "float_array",
    "bool_array",
    "string",
}
ROLES = ("input", "output", "in_place")
_MAX_PARAMETERS = 24
_RANKS = tuple(range(9))
_NAME = re.compile(r"aclnn[A-Z][A-Za-z0-9]*")
_HEADER = re.compile(r"aclnnop/[a-z0-9_]+\.h")
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words of C and C++, and the last parameters of the two phases, which no parameter may be named.
_RESERVED = frozenset(
    """auto bool break case char class const continue default delete do double else enum extern false float
    for goto if inline int long namespace new operator private public register restrict return short signed
    sizeof static struct switch template this throw true try typedef union unsigned void volatile while
    workspaceSize executor workspace stream""".split()  # noqa: SIM905
)


def load_folder(folder: Path) -> list[Operator]:
    """The operators of all pages of a folder, `*.toml`, by their names."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix == ".toml")
    except OSError as error:
        raise PageError(f"the folder of operators {folder} can't be read: {error.strerror}") from None
    if not files:
        raise PageError(f"the folder of operators {folder} has no page, a file *.toml")
    return [load_file(file) for file in files]


def load_file(file: Path) -> Operator:
    try:
        page = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise PageError(f"{file} can't be read: {error.strerror}") from None
    except ValueError as error:  # bytes that are not UTF-8, or text that is no TOML
        raise PageError(f"{file} is no page in TOML: {error}") from None
    return load_user(file, page)


def load_user(file: Path, page: Mapping[str, Any]) -> Operator:
    where = str(file)
    optional = {"header", "products", "dtypes", "rules", "workspace", "python", "declared"}
    exact_keys(where, page, required={"operator", "summary", "parameters"}, optional=optional)
    typed(where, page, dict.fromkeys(("operator", "summary", "header"), str))
    typed(
        where, page, {"workspace": int, "parameters": list, "rules": list, "products": list, "dtypes": dict}
    )
    typed(where, page, {"declared": bool})
    name = page["operator"]
    if not _NAME.fullmatch(name):
        raise PageError(f"{where}: operator is {name!r}; it must be a name of CANN, such as aclnnRelu")
    header = page.get("header", f"aclnnop/{file_name(name)}.h")
    if not _HEADER.fullmatch(header):
        raise PageError(f"{where}: header is {header!r}; it must be such as aclnnop/aclnn_relu.h")
    if not 0 <= page.get("workspace", 0) < 2**40:
        raise PageError(
            f"{where}: workspace is {page['workspace']}; it must be a number of bytes below 2**40"
        )
    if ("python" in page) == page.get("declared", False):
        must = "it must have one of them, python = FILE.py:FUNCTION or declared = true"
        raise PageError(
            f"{where}: the page has {'both' if 'python' in page else 'neither'} python and declared; {must}"
        )
    known_names(where, "products", page.get("products", ()), ASCEND_PRODUCTS)
    tables = {
        key: {"default": value} if isinstance(value, list) else value
        for key, value in page.get("dtypes", {}).items()
    }
    for key, table in tables.items():
        typed(f"{where} dtypes", tables, {key: dict})
        typed(f"{where} dtypes.{key}", table, dict.fromkeys(table, list))
    groups = dtype_groups(where, tables)
    parameters = _parameters(where, file.parent, page["parameters"], groups)
    names = tuple(p.name for p in parameters)
    python = reference(f"{where}: python", file.parent, page["python"], names) if "python" in page else None
    rules = _rules(where, file.parent, page.get("rules", []), parameters)
    products = tuple(page.get("products", ASCEND_PRODUCTS))
    return Operator(
        name=name, function="", short="", header=header, summary=page["summary"], kind="python", windows="",
        axes=(), products=products, parameters=parameters, rules=rules, dtype_groups=groups, cube=None,
        divisor_ranges={}, python=python, page=where,
        workspace=page.get("workspace", 0),
    )  # fmt: skip


def file_name(operator: str) -> str:
    """The name of CANN's files for an operator: aclnn_max_pool2d of aclnnMaxPool2d."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator).lower()


def _parameters(
    where: str, folder: Path, tables: Sequence[Any], groups: dict[str, dict[str, tuple[str, ...]]]
) -> tuple[Parameter, ...]:
    for table in tables:
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            raise PageError(f"{where}: a parameter is {table!r:.60}; it must be a table with a name")
        if not _C_NAME.fullmatch(table["name"]) or table["name"] in _RESERVED:
            raise PageError(f"{where}: a parameter is named {table['name']!r}, which C can't have")
    names = [table["name"] for table in tables]
    if len(set(names)) < len(names):
        raise PageError(f"{where}: two parameters share a name")
    if not 0 < len(names) <= _MAX_PARAMETERS:
        raise PageError(f"{where}: there are {len(names)} parameters; there must be 1 to {_MAX_PARAMETERS}")
    types = {table["name"]: table.get("type") for table in tables}
    found = tuple(_parameter(where, folder, table, types, groups) for table in tables)
    if not any(p.role in ("output", "in_place") for p in found):
        raise PageError(f"{where}: no parameter has the role output or in_place; one must")
    return found


def _parameter(
    where: str, folder: Path, table: Mapping[str, Any], types: dict[str, Any], groups: dict[str, Any]
) -> Parameter:
    name, names = table["name"], list(types)
    tensors = [other for other, kind in types.items() if kind == "tensor"]
    where = f"{where} parameter {name}"
    known_names(where, "type", [table.get("type")], TYPES)
    kind = table["type"]
    optional = TYPES[kind] | ({"nullable"} if kind in HANDLES else set())
    exact_keys(where, table, {"name", "type"} | ({"dtypes"} & TYPES[kind]), optional)
    typed(where, table, {"nullable": bool, "least": int, "formats": list, "ranks": list, "lengths": list})
    known_names(where, "role", [table.get("role", "input")], ROLES)
    known_names(where, "formats", table.get("formats", ()), FORMATS)
    known_names(where, "ranks", table.get("ranks", ()), _RANKS)
    for length in table.get("lengths", ()):
        if type(length) is not int or length < 0:
            raise PageError(f"{where}: lengths has {length!r}; it must have numbers from 0 on")
    dtypes = table.get("dtypes", "")
    if isinstance(dtypes, list):  # a group of its own
        groups[name] = by_product(f"{where} dtypes", {"default": dtypes})
        dtype_groups(where, {name: groups[name]})
        dtypes = name
    elif "dtypes" in table:
        known_names(where, "dtypes", [dtypes], groups)
    shape: str | PythonFunction = table.get("shape", "")
    if shape:
        if table.get("role") != "output":
            raise PageError(f"{where}: shape is {shape!r}, but only an output has one")
        if shape in names:
            known_names(where, "shape", [shape], [n for n in tensors if n != name])
        else:
            shape = reference(f"{where}: shape", folder, shape, [n for n in names if n != name])
    formats, ranks, lengths = (
        tuple(table.get(key, usual))
        for key, usual in (("formats", FORMATS), ("ranks", _RANKS), ("lengths", ()))
    )
    role, nullable = table.get("role", "input"), table.get("nullable", False)
    least = table.get("least")
    return Parameter(name, name, role, kind, nullable, dtypes, formats, ranks, lengths, least, shape)


def _rules(
    where: str, folder: Path, tables: Sequence[Any], parameters: tuple[Parameter, ...]
) -> tuple[Rule, ...]:
    names = {p.name for p in parameters}
    own = []
    for table in tables:
        if not isinstance(table, dict) or not isinstance(table.get("rule"), str):
            raise PageError(f"{where}: a rule is {table!r:.60}; it must be a table with the key rule")
        typed(f"{where} rule {table['rule']}", table, {"of": list})
        rule = load_rule(where, table, names)
        if ":" in rule.name:
            predicate = reference(f"{where}: rule", folder, rule.name, [p.name for p in parameters])
            exact_keys(f"{where} rule {rule.name}", rule.arguments, ())
            rule = Rule(predicate.name, {}, rule.status, rule.row, rule.decided, rule.skip, predicate)
        own.append(rule)
    listed = {rule.name for rule in own}
    first = [load_rule(where, table, names) for table in _implied(parameters) if table["rule"] not in listed]
    shaped = [p.name for p in parameters if p.shape]
    written = [p.name for p in parameters if p.is_tensor and p.role != "input"]
    last = [{"rule": "output_shape", "of": shaped}] if shaped else []
    last += [{"rule": "writable_once", "of": written}]
    rest = [load_rule(where, table, names) for table in last if table["rule"] not in listed]
    return (*first, *own, *rest)


def _implied(parameters: tuple[Parameter, ...]) -> Iterator[dict[str, Any]]:
    """The rules that follow from the list of parameters, in the order of CANN's checks."""
    required = [p.name for p in parameters if p.type in HANDLES and not p.nullable]
    yield {"rule": "not_null", "of": required, "status": "ACLNN_ERR_PARAM_NULLPTR"}
    yield {"rule": "product_supported"}
    tensors = [p.name for p in parameters if p.is_tensor]
    for rule in ("dtype_supported", "format_supported", "rank_supported", "natural_dimensions"):
        yield {"rule": rule, "of": tensors}
    if arrays := [p.name for p in parameters if p.lengths]:
        yield {"rule": "array_lengths", "of": arrays}
    if bounded := [p.name for p in parameters if p.least is not None]:
        yield {"rule": "array_values", "of": bounded}
