"""The operator pages, read and checked: what each operator takes, on which product, by which rules.

A page is data. This module knows its shape and refuses one that names an unknown key, type, dtype,
format, product, status or parameter; whether a rule's name and arguments exist, `rules` decides.

A page describes a function of this library, an operator of CANN, or both. Where CANN's operator has the
parameters of the function, one list serves both; else the operator has its own lists, in the table `cann`.
A page of a user describes an operator that a Python function computes (user.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from ..dtypes import DTYPES, FORMATS, STATUS
from ..kinds import OfKind
from ..toml import PageError, exact_keys, read, read_page
from .family import written_out
from .references import PythonFunction

KINDS = {"average", "maximum", "average_gradient", "maximum_gradient", "unpool", "unpool_gradient"}
REGION_POOLS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
KINDS |= {f"{pool}{end}" for pool in REGION_POOLS for end in ("", "_gradient")}
# global: one window, the whole plane, of any number of axes. indexed: an index per element, and no windows.
# regions: bins of boxes, which are data.
WINDOWS = {"adaptive", "strided", "global", "indexed", "regions"}
_OPTIONAL = ("cube_math_type", "divisor_override")
_NOT_OPERATORS = {"functions.toml", "help.toml", "products.toml", "runtime.toml"}
_PRODUCTS = read_page("products", keys={"default", "functions", "chips", "names"})

PRODUCTS: dict[str, str] = _PRODUCTS["names"]
DEFAULT_PRODUCT: str = _PRODUCTS["default"]
HOST: str = _PRODUCTS["functions"]
CHIPS: dict[str, str] = _PRODUCTS["chips"]  # the product of chips whose names begin so
ASCEND_PRODUCTS: tuple[str, ...] = tuple(p for p in PRODUCTS if p != HOST)
if not {DEFAULT_PRODUCT, HOST} <= PRODUCTS.keys():
    raise PageError(f"products.toml: {DEFAULT_PRODUCT} or {HOST} is not among the names")

PARAMETER_KEYS = {
    "tensor": {"dtypes", "formats", "ranks"},
    "int_array": {"lengths", "least"},
    "bool": set(),
    "int64": set(),
    "int32": set(),
    "int8": set(),
    "float": set(),
    "string": set(),
}
_ROLES = {
    "grad_output", "input", "indices", "out", "output_size",
    "kernel", "stride", "padding", "dilation", "ceil_mode", "count_include_pad", "divisor_override",
    "cube_math_type", "auto_pad",
    "boxes", "box_images", "spatial_scale", "sampling_ratio", "aligned", "mode",
    "input_shape", "pooled_height", "pooled_width",
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
    least: int | None = 0  # None: any
    shape: str | PythonFunction = ""  # of an output of a user's page: that of a parameter, or computed

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor or a list of tensors."""
        return self.type.startswith("tensor")


@dataclass(frozen=True)
class Rule:
    name: str
    arguments: Mapping[str, Any]
    status: int
    row: int | None  # its place in the order of checks; rules of one row are checked together; None: no row
    decided: bool  # pooltide decided it, as no document that was found has it
    skip: tuple[str, ...]  # products on which the rule does not apply
    predicate: PythonFunction | None = None  # of a user's page, in place of a rule of this library
    item: int | None = None  # of the status in the document's error table; None: the table has none


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
class Operator(OfKind):
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
    notes: tuple[str, ...] = ()  # the document's own errors, and where the rules take more than it says
    finite_on: tuple[str, ...] = ()  # the products whose documents forbid NaN and -Inf in the input
    finite_from: str = ""  # the first edition whose documents do
    boxes_from: str = ""  # the first edition whose document wants boxes inside their images
    python: PythonFunction | None = None  # what computes the operator of a user's page
    page: str = ""  # the path of a user's page
    workspace: int = 0  # bytes that phase one asks for

    @property
    def yours(self) -> bool:
        """Whether a user's page describes it."""
        return bool(self.page)

    def writes(self, parameter: Parameter) -> bool:
        """Whether the operator writes the parameter, a tensor."""
        return parameter.role in ("output", "in_place") if self.yours else parameter.role in self.results

    @property
    def masked(self) -> bool:
        """Whether a mask (problem/masks.py) takes the place of indices: their dtypes are the group `mask`."""
        return any(p.role == "indices" and p.dtypes == "mask" for p in self.parameters)

    @property
    def documented(self) -> bool:
        """Whether CANN's documents have it; if not, only this library's functions do."""
        return bool(self.header)

    @property
    def results(self) -> tuple[str, ...]:
        """The roles of the tensors that the operator writes."""
        return ("out", "indices") if self.writes_indices else ("out",)

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
    for key in _OPTIONAL:
        if isinstance(page.get(key), str):  # the name of a page that has the same table
            page = {**page, key: read(f"{page[key]}.toml")[key]}
    exact_keys(where, page, keys, optional={*_OPTIONAL, "notes", "finite_input", "boxes_inside"})
    finite = page.get("finite_input", {})
    exact_keys(f"{where} finite_input", finite, {"edition", "products"} if finite else set())
    known_names(where, "finite_input", finite.get("products", ()), PRODUCTS)
    known_names(where, "kind", [page["kind"]], KINDS)
    known_names(where, "windows", [page["windows"]], WINDOWS)
    known_names(where, "axes", page["axes"], {"d", "h", "w"})
    known_names(where, "products", page["products"], PRODUCTS)
    groups = dtype_groups(where, page["dtypes"])
    parameters = _parameters(where, page["parameters"], groups)
    if not page["rules"]:
        raise PageError(f"{where}: rules is empty")
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
        tuple(load_rule(where, rule, {p.name for p in parameters}) for rule in page["rules"]),
        groups,
        _cube(where, page.get("cube_math_type"), groups),
        _divisor_ranges(where, page.get("divisor_override", {})),
        tuple(page.get("notes", ())),
        tuple(finite.get("products", ())),
        finite.get("edition", ""),
        page.get("boxes_inside", ""),
    )


def _parameters(where: str, listed: Any, groups: Mapping[str, Any]) -> tuple[Parameter, ...]:
    parameters = tuple(_parameter(where, p, groups) for p in listed)
    if len({p.name for p in parameters}) < len(listed) or len({p.role for p in parameters}) < len(listed):
        raise PageError(f"{where}: two parameters share a name or a role")
    return parameters


def _divisor_ranges(where: str, ranges: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    known_names(where, "divisor_override", ranges, PRODUCTS)
    for product, (low, high) in ranges.items():
        if not low <= high:
            raise PageError(f"{where}: divisor_override of {product} is [{low}, {high}], which is empty")
    return {product: (low, high) for product, (low, high) in ranges.items()}


def dtype_groups(where: str, tables: Mapping[str, Any]) -> dict[str, dict[str, tuple[str, ...]]]:
    groups = {name: by_product(f"{where} dtypes.{name}", table) for name, table in tables.items()}
    for name, group in groups.items():
        for dtypes in group.values():
            known_names(where, f"dtypes.{name}", dtypes, DTYPES)
    return groups


def known_names(where: str, key: str, values: Any, known: Any) -> None:
    for value in values:
        if not isinstance(value, (str, int)) or value not in known:
            names = ", ".join(sorted(map(str, known)))
            raise PageError(f"{where}: {key} names {value!r}; known are {names}")


def typed(where: str, table: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for key, kind in types.items():
        if key in table and type(table[key]) is not kind:
            raise PageError(f"{where}: {key} is {table[key]!r}; it must be of type {kind.__name__}")


def by_product(where: str, table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    exact_keys(where, table, required={"default"}, optional=PRODUCTS)
    return {product: tuple(values) for product, values in table.items()}


def _parameter(where: str, table: Mapping[str, Any], groups: Mapping[str, Any]) -> Parameter:
    where = f"{where} parameter {table.get('name', '?')}"
    known_names(where, "type", [table.get("type")], PARAMETER_KEYS)
    required = {"name", "role", "type"} | PARAMETER_KEYS[table["type"]]
    exact_keys(where, table, required, optional={"argument", "nullable"})
    known_names(where, "role", [table["role"]], _ROLES)
    typed(where, table, {"nullable": bool, "least": int})
    known_names(where, "formats", table.get("formats", ()), FORMATS)
    for key in ("ranks", "lengths"):
        known_names(where, key, table.get(key, ()), range(9))
    if table["type"] == "tensor":
        known_names(where, "dtypes", [table["dtypes"]], groups)
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    return Parameter(**{"argument": table["name"]} | fields)


def load_rule(where: str, table: Mapping[str, Any], parameters: set[str]) -> Rule:
    own = {"rule", "row", "item", "status", "skip", "decided"}
    if "rule" not in table:
        raise PageError(f"{where}: a rule has no name")
    where = f"{where} rule {table['rule']}"
    status = table.get("status", "ACLNN_ERR_PARAM_INVALID")
    known_names(where, "status", [status], STATUS)
    known_names(where, "skip", table.get("skip", ()), PRODUCTS)
    known_names(where, "of", table.get("of", ()), parameters)
    known_names(where, "spatial_only", table.get("spatial_only", ()), PRODUCTS)
    known_names(where, "format", [table[key] for key in table if key == "format"], FORMATS)
    typed(where, table, {"row": int, "item": int, "rank": int, "cells": int, "value": int, "decided": bool})
    return Rule(
        table["rule"],
        {k: tuple(v) if isinstance(v, list) else v for k, v in table.items() if k not in own},
        STATUS[status],
        table.get("row"),
        table.get("decided", False),
        tuple(table.get("skip", ())),
        item=table.get("item"),
    )


def _cube(
    where: str, table: Mapping[str, Any] | None, groups: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> CubeMathType | None:
    if table is None:
        return None
    where = f"{where} cube_math_type"
    exact_keys(where, table, required={"names", "global_only", "default"}, optional=PRODUCTS)
    known_names(where, "global_only", table["global_only"], PRODUCTS)
    actions: dict[str, dict[str, tuple[str, ...]]] = {}
    for product in table.keys() - {"names", "global_only"}:
        known_names(where, product, table[product], DTYPES)
        actions[product] = {dtype: tuple(row) for dtype, row in table[product].items()}
        for row in actions[product].values():
            known_names(where, product, row, {"keep", "refuse", "HFLOAT32", "FLOAT16"})
            if len(row) != len(table["names"]):
                raise PageError(f"{where}: {product} has {len(row)} actions for its types")
    for product, dtypes in groups["float"].items():
        known_names(where, f"dtypes on {product}", dtypes, actions.get(product, actions["default"]))
    return CubeMathType(tuple(table["names"]), tuple(table["global_only"]), actions)
