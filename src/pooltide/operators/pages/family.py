"""Pages of operators that the documents don't have, written out.

Such a page says its kind, windows, axes and argument names; `functions.toml` knows the rest, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..toml import PageError, exact_keys, read_page

_PREFIXES = ("", "forward_", "unpool_", "region_")
_TABLES = {f"{prefix}{table}" for prefix in _PREFIXES for table in ("arguments", "rules")}
_SHARED = read_page("functions", keys={"dtypes"} | _TABLES)


def written_out(where: str, page: Mapping[str, Any]) -> dict[str, Any]:
    """The page with parameters, dtypes and rules in place of its `arguments`."""
    rest = {key: value for key, value in page.items() if key != "arguments"}
    exact_keys(where, rest, required={"function", "short", "summary", "kind", "windows", "axes", "products"})
    names = page["arguments"]
    described = _SHARED["arguments"] | _SHARED[_of(page, "arguments")]
    if unknown := [name for name in names if name not in described]:
        known = ", ".join(described)
        raise PageError(f"{where}: arguments names {unknown[0]!r}; known are {known}")
    return rest | {
        "dtypes": _SHARED["dtypes"],
        "parameters": [_parameter(name, page) for name in names],
        "rules": [_rule(rule, names) for rule in _SHARED[_of(page, "rules")] if _covers(rule, page)],
    }


def _of(page: Mapping[str, Any], table: str) -> str:
    """The name of the table for the page's kind."""
    if page["windows"] == "indexed":
        return f"unpool_{table}"
    if page["windows"] == "regions":
        return f"region_{table}"
    return table if page["kind"].endswith("_gradient") else f"forward_{table}"


def _parameter(name: str, page: Mapping[str, Any]) -> dict[str, Any]:
    axes, table = len(page["axes"]), {"name": name, "argument": name}
    table |= _SHARED[_of(page, "arguments")].get(name) or _SHARED["arguments"][name]
    match table["type"]:
        case "tensor":
            return {"formats": ["ND"], "ranks": [axes + 1, axes + 2]} | table
        case "int_array":
            if table.pop("batched", False):  # of the axes, or of N and C, too
                return table | {"lengths": [0, axes, axes + 2]}
            return table | {"lengths": sorted({1, axes} | ({0} if table.get("nullable") else set()))}
    return table


def _covers(rule: Mapping[str, Any], page: Mapping[str, Any]) -> bool:
    only = rule.get("only")
    return only is None or not {page["kind"], page["windows"], page["function"]}.isdisjoint(only)


def _rule(rule: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    table = {key: value for key, value in rule.items() if key != "only"}
    return table | {"of": [name for name in rule["of"] if name in names]} if "of" in rule else table
