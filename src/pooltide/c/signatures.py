"""The C functions, from the runtime page's function table and the operator pages.

A parameter's kind says how its word is converted from C to Python:

    i, u    a signed or unsigned integer          p   an address; null is None
    s       a string; null is None                h   a handle; null is None
    a       an array of int64_t; null is None     n   the length of an array, which is not passed to Python

The kind of an out-parameter is the kind of the value that Python stores there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..operators.catalog import documented
from ..operators.dtypes import DTYPES, ENUMS, FORMATS, RUNTIME
from ..operators.pages import Operator
from ..operators.toml import PageError, exact_keys

HANDLES = ("aclTensor", "aclIntArray", "aclOpExecutor")
C_ENUMS: dict[str, dict[str, int]] = {
    "aclDataType": {dtype.constant: dtype.code for dtype in DTYPES.values()},
    "aclFormat": {f"ACL_FORMAT_{name}": code for name, code in FORMATS.items()},
    **ENUMS,
}
_KINDS = (
    {"const char *": "s", "const int64_t *": "a", "void *": "p", "const void *": "p", "aclrtStream": "h"}
    | dict.fromkeys(("size_t", "uint64_t"), "u")
    | dict.fromkeys(("bool", "int8_t", "int32_t", "int64_t", *C_ENUMS), "i")
    | {f"{const}{handle} *": "h" for handle in HANDLES for const in ("", "const ")}
)
_RETURNS = {"aclError": "i", "aclnnStatus": "i", "const char *": "s"} | {f"{h} *": "h" for h in HANDLES}


@dataclass(frozen=True)
class CParameter:
    type: str  # as C declares it
    name: str
    kind: str
    out: bool = False
    length: str = ""  # the name of the parameter with an array's length

    @property
    def declaration(self) -> str:
        return f"{self.type}{'' if self.type.endswith('*') else ' '}{self.name}"


@dataclass(frozen=True)
class CFunction:
    name: str
    returns: str
    parameters: tuple[CParameter, ...]
    header: str
    summary: str = ""

    @property
    def declaration(self) -> str:
        arguments = ", ".join(p.declaration for p in self.parameters) or "void"
        return f"{self.returns}{'' if self.returns.endswith('*') else ' '}{self.name}({arguments})"

    @property
    def result(self) -> str:
        """The kind of the C return value."""
        return _RETURNS[self.returns]

    @property
    def python_names(self) -> tuple[str, ...]:
        """The parameters of the Python function: no out-parameters, no lengths."""
        return tuple(p.name for p in self.parameters if not p.out and p.kind != "n")


def runtime_function(name: str, table: Mapping[str, Any]) -> CFunction:
    where = f"runtime.toml function {name}"
    exact_keys(where, table, required={"returns", "c"})
    if table["returns"] not in _RETURNS:
        raise PageError(f"{where}: returns {table['returns']!r}; known are {', '.join(_RETURNS)}")
    arrays = [entry[2].removeprefix("array:") for entry in table["c"] if len(entry) > 2]
    parameters = tuple(_parameter(where, entry, arrays) for entry in table["c"])
    if unknown := set(arrays) - {p.name for p in parameters}:
        raise PageError(f"{where}: no parameter counts an array by the name {', '.join(sorted(unknown))}")
    return CFunction(name, table["returns"], parameters, "acl/acl.h")


def _parameter(where: str, entry: list[str], arrays: Iterable[str]) -> CParameter:
    c_type, spelled, *rest = entry
    out = spelled.startswith("out:")
    name = spelled.removeprefix("out:")
    received = c_type.removesuffix("*").rstrip() if out else c_type
    if received.endswith("*") and " *" not in received:
        received = f"{received[:-1]} *"
    kind = _KINDS.get(received)
    if kind is None or (kind == "a") != bool(rest) or (rest and not rest[0].startswith("array:")):
        raise PageError(f"{where}: parameter {entry} is not understood; types are {', '.join(_KINDS)}")
    return CParameter(
        c_type, name, "n" if name in arrays else kind, out, rest[0].removeprefix("array:") if rest else ""
    )


_OPERATOR_TYPES = {
    "tensor": "const aclTensor *",
    "int_array": "const aclIntArray *",
    "bool": "bool",
    "int64": "int64_t",
    "int8": "int8_t",
}


def operator_functions(operator: Operator) -> tuple[CFunction, CFunction]:
    """Phase one and phase two."""
    given = []
    for parameter in operator.parameters:
        c_type = "aclTensor *" if parameter.role in operator.results else _OPERATOR_TYPES[parameter.type]
        given.append(CParameter(c_type, parameter.name, _KINDS[c_type]))
    results = (
        CParameter("uint64_t *", "workspaceSize", "u", out=True),
        CParameter("aclOpExecutor **", "executor", "h", out=True),
    )
    run = (
        CParameter("void *", "workspace", "p"),
        CParameter("uint64_t", "workspaceSize", "u"),
        CParameter("aclOpExecutor *", "executor", "h"),
        CParameter("aclrtStream", "stream", "h"),
    )
    name, header = operator.name, operator.header
    return (
        CFunction(f"{name}GetWorkspaceSize", "aclnnStatus", (*given, *results), header, operator.summary),
        CFunction(name, "aclnnStatus", run, header, operator.summary),
    )


@cache
def functions() -> tuple[CFunction, ...]:
    """Every function of the C interface, the runtime's first."""
    runtime = (runtime_function(name, table) for name, table in RUNTIME["functions"].items())
    phases = (phase for operator in documented().values() for phase in operator_functions(operator))
    return (*runtime, *phases)
