"""The operator pages, read and checked: what each operator takes, on which product, by which rules.

A page is data. This module knows its shape and refuses one that names an unknown key, type, dtype,
format, product, status or parameter; whether a rule's name and arguments exist, `rules` decides.

A page describes a function of this library, an operator of CANN, or both. Where CANN's operator has the
parameters of the function, one list serves both; else the operator has its own lists, in the table `cann`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from ..dtypes import DTYPES, FORMATS, STATUS
from ..toml import PageError, exact_keys, read, read_page
from .family import written_out

KINDS = {"average", "maximum", "average_gradient", "maximum_gradient", "unpool", "unpool_gradient"}
# global: one window, the whole plane, of any number of axes. indexed: an index per element, and no windows.
WINDOWS = {"adaptive", "strided", "global", "indexed"}
_NOT_OPERATORS = {"functions.toml", "help.toml", "products.toml", "runtime.toml"}
_PRODUCTS = read_page("products", keys={"default", "functions", "names"})

PRODUCTS: dict[str, str] = _PRODUCTS["names"]
DEFAULT_PRODUCT: str = _PRODUCTS["default"]
HOST: str = _PRODUCTS["functions"]
ASCEND_PRODUCTS: tuple[str, ...] = tuple(p for p in PRODUCTS if p != HOST)
if not {DEFAULT_PRODUCT, HOST} <= PRODUCTS.keys():
    raise PageError(f"products.toml: {DEFAULT_PRODUCT} or {HOST} is not among the names")

_PARAMETER_KEYS = {
    "tensor": {"dtypes", "formats", "ranks"},
    "int_array": {"lengths", "least"},
    "bool": set(),
    "int64": set(),
    "int8": set(),
}
_ROLES = {
    "grad_output", "input", "indices", "out", "output_size",
    "kernel", "stride", "padding", "dilation", "ceil_mode", "count_include_pad", "divisor_override",
    "cube_math_type", "auto_pad",
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    name: str  # as the documents spell it
    argument: str  # as the NumPy and PyTorch functions do
    role: str
    type: str
    nullable: bool = False
    dtypes: str = ""
    formats: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    least: int = 0


@dataclass(frozen=True)
class Rule:
    name: str
    arguments: Mapping[str, Any]
    status: int
    row: int | None  # of the operator's error table; None: no row
    decided: bool  # pooltide decided it, as no document that was found has it
    skip: tuple[str, ...]  # products on which the rule does not apply


@dataclass(frozen=True)
class CubeMathType:
    names: tuple[str, ...]
    global_only: tuple[str, ...]
    actions: Mapping[str, Mapping[str, tuple[str, ...]]]

    def action(self, product: str, dtype: str, value: int) -> str:
        """keep, refuse, or the format that gradOutput is rounded to."""
        table = self.actions.get(product, self.actions["default"])
        return table[dtype][value]


@dataclass(frozen=True, eq=False)
class Operator:
    name: str  # as the documents spell it; the function's, of one that they don't have
    function: str  # empty, of an operator that is no function here
    short: str  # in the notation of cases
    header: str  # of the C interface; empty, of one that the documents don't have
    summary: str
    kind: str
    windows: str
    axes: tuple[str, ...]
    products: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...]
    dtype_groups: Mapping[str, Mapping[str, tuple[str, ...]]]
    cube: CubeMathType | None
    divisor_ranges: Mapping[str, tuple[int, int]]

    @property
    def gradient(self) -> bool:
        return self.kind.endswith("_gradient")

    @property
    def unpool(self) -> bool:
        """Whether it is an unpool or its gradient."""
        return self.kind.startswith("unpool")

    @property
    def masked(self) -> bool:
        """Whether a mask (problem/masks.py) takes the place of indices: their dtypes are the group `mask`."""
        return any(p.role == "indices" and p.dtypes == "mask" for p in self.parameters)

    @property
    def average(self) -> bool:
        return self.kind.startswith("average")

    @property
    def documented(self) -> bool:
        """Whether CANN's documents have it; if not, only this library's functions do."""
        return bool(self.header)

    @property
    def results(self) -> tuple[str, ...]:
        """The roles of the tensors that the operator writes."""
        return ("out", "indices") if self.kind == "maximum" else ("out",)

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters}

    @cached_property
    def _by_role(self) -> dict[str, Parameter]:
        return {p.role: p for p in reversed(self.parameters)}  # the first of equals counts

    def parameter(self, name: str) -> Parameter:
        return self._by_name[name]

    def by_role(self, role: str) -> Parameter | None:
        return self._by_role.get(role)

    def dtypes(self, parameter: Parameter, product: str) -> tuple[str, ...]:
        group = self.dtype_groups[parameter.dtypes]
        return group.get(product, group["default"])


def operator_files() -> list[str]:
    entries = files("pooltide").joinpath("operators", "pages").iterdir()
    names = (entry.name for entry in entries)
    return sorted(n for n in names if n.endswith(".toml") and n not in _NOT_OPERATORS)


def load_all(where: str, page: Mapping[str, Any]) -> list[Operator]:
    """The operators of a page: the one that its top describes, and the one of its table `cann`."""
    if "cann" not in page:
        return [load(where, page)]
    top = {key: value for key, value in page.items() if key != "cann"}
    shared = {key: top[key] for key in ("summary", "kind", "windows", "axes") if key in top}
    names = {"function": top.get("function", ""), "short": ""}
    operator = load(f"{where} cann", names | shared | page["cann"])
    if "function" not in top:
        exact_keys(where, top, shared)
        return [operator]
    return [load(where, top), operator]


def load(where: str, page: Mapping[str, Any]) -> Operator:
    keys = {"function", "short", "summary", "kind", "windows", "axes"}
    keys |= {"products", "dtypes", "parameters", "rules"}
    if "arguments" in page:
        page = written_out(where, page)
    else:
        keys |= {"operator", "header"}
    for key in ("cube_math_type", "divisor_override"):
        if isinstance(page.get(key), str):  # the name of a page that has the same table
            page = {**page, key: read(f"{page[key]}.toml")[key]}
    exact_keys(where, page, keys, optional={"cube_math_type", "divisor_override"})
    _known(where, "kind", [page["kind"]], KINDS)
    _known(where, "windows", [page["windows"]], WINDOWS)
    _known(where, "axes", page["axes"], {"d", "h", "w"})
    _known(where, "products", page["products"], PRODUCTS)
    groups = {name: _by_product(f"{where} dtypes.{name}", g) for name, g in page["dtypes"].items()}
    for name, group in groups.items():
        for dtypes in group.values():
            _known(where, f"dtypes.{name}", dtypes, DTYPES)
    parameters = tuple(_parameter(where, p, groups) for p in page["parameters"])
    names = {p.name for p in parameters}
    if len(names) < len(parameters) or len({p.role for p in parameters}) < len(parameters):
        raise PageError(f"{where}: two parameters share a name or a role")
    if not page["rules"]:
        raise PageError(f"{where}: rules is empty")
    ranges = page.get("divisor_override", {})
    _known(where, "divisor_override", ranges, PRODUCTS)
    for product, (low, high) in ranges.items():
        if not low <= high:
            raise PageError(f"{where}: divisor_override of {product} is [{low}, {high}], which is empty")
    return Operator(
        page.get("operator", page["function"]),
        page["function"],
        page["short"],
        page.get("header", ""),
        page["summary"],
        page["kind"],
        page["windows"],
        tuple(page["axes"]),
        tuple(page["products"]),
        parameters,
        tuple(_rule(where, rule, names) for rule in page["rules"]),
        groups,
        _cube(where, page.get("cube_math_type"), groups),
        {product: (low, high) for product, (low, high) in ranges.items()},
    )


def _known(where: str, key: str, values: Any, known: Any) -> None:
    for value in values:
        if value not in known:
            names = ", ".join(sorted(map(str, known)))
            raise PageError(f"{where}: {key} names {value!r}; known are {names}")


def _typed(where: str, table: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for key, kind in types.items():
        if key in table and type(table[key]) is not kind:
            raise PageError(f"{where}: {key} is {table[key]!r}; it must be of type {kind.__name__}")


def _by_product(where: str, table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    exact_keys(where, table, required={"default"}, optional=PRODUCTS)
    return {product: tuple(values) for product, values in table.items()}


def _parameter(where: str, table: Mapping[str, Any], groups: Mapping[str, Any]) -> Parameter:
    where = f"{where} parameter {table.get('name', '?')}"
    _known(where, "type", [table.get("type")], _PARAMETER_KEYS)
    required = {"name", "role", "type"} | _PARAMETER_KEYS[table["type"]]
    exact_keys(where, table, required, optional={"argument", "nullable"})
    _known(where, "role", [table["role"]], _ROLES)
    _typed(where, table, {"nullable": bool, "least": int})
    _known(where, "formats", table.get("formats", ()), FORMATS)
    for key in ("ranks", "lengths"):
        _known(where, key, table.get(key, ()), range(9))
    if table["type"] == "tensor":
        _known(where, "dtypes", [table["dtypes"]], groups)
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    return Parameter(**{"argument": table["name"]} | fields)


def _rule(where: str, table: Mapping[str, Any], parameters: set[str]) -> Rule:
    own = {"rule", "row", "status", "skip", "decided"}
    if "rule" not in table:
        raise PageError(f"{where}: a rule has no name")
    where = f"{where} rule {table['rule']}"
    status = table.get("status", "ACLNN_ERR_PARAM_INVALID")
    _known(where, "status", [status], STATUS)
    _known(where, "skip", table.get("skip", ()), PRODUCTS)
    _known(where, "of", table.get("of", ()), parameters)
    _known(where, "spatial_only", table.get("spatial_only", ()), PRODUCTS)
    _known(where, "format", [table[key] for key in table if key == "format"], FORMATS)
    _typed(where, table, {"row": int, "rank": int, "cells": int, "value": int, "decided": bool})
    return Rule(
        table["rule"],
        {k: tuple(v) if isinstance(v, list) else v for k, v in table.items() if k not in own},
        STATUS[status],
        table.get("row"),
        table.get("decided", False),
        tuple(table.get("skip", ())),
    )


def _cube(
    where: str, table: Mapping[str, Any] | None, groups: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> CubeMathType | None:
    if table is None:
        return None
    where = f"{where} cube_math_type"
    exact_keys(where, table, required={"names", "global_only", "default"}, optional=PRODUCTS)
    _known(where, "global_only", table["global_only"], PRODUCTS)
    actions: dict[str, dict[str, tuple[str, ...]]] = {}
    for product in table.keys() - {"names", "global_only"}:
        _known(where, product, table[product], DTYPES)
        actions[product] = {dtype: tuple(row) for dtype, row in table[product].items()}
        for row in actions[product].values():
            _known(where, product, row, {"keep", "refuse", "HFLOAT32", "FLOAT16"})
            if len(row) != len(table["names"]):
                raise PageError(f"{where}: {product} has {len(row)} actions for its types")
    for product, dtypes in groups["float"].items():
        _known(where, f"dtypes on {product}", dtypes, actions.get(product, actions["default"]))
    return CubeMathType(tuple(table["names"]), tuple(table["global_only"]), actions)
