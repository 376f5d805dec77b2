"""Takes the function table of the runtime page, and the operator pages.

Returns every function of the C interface with its parameters. It must not touch the C code or handles.

A parameter's kind says how its word is converted from C to Python:

    i, u    a signed or unsigned integer          p   an address; null is None
    s       a string; null is None                h   a handle; null is None
    a       an array of int64_t; null is None     b   an array of bool; null is None
    e       an array of float; null is None       t   an array of handles; null is None
    n       the length of an array, which is not passed to Python
    v       the address of a scalar, whose type is another parameter; null is None
    f, d    a float or a double, of which the word has the bits of the double

The kind of an out-parameter is the kind of the value that Python stores there. An array that is an
out-parameter is a tuple in Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..acl.unsupported import PROTOTYPE
from ..operators.catalog import documented
from ..operators.dtypes import DTYPES, ENUMS, FORMATS, RUNTIME
from ..operators.pages import Operator
from ..operators.toml import PageError, exact_keys

HANDLES = (
    *("aclTensor", "aclIntArray", "aclBoolArray", "aclFloatArray", "aclScalar"),
    *("aclTensorList", "aclScalarList", "aclOpExecutor"),
)
VOID_HANDLES = ("aclrtStream", "aclrtContext", "aclrtEvent")  # typedefs of void *
C_ENUMS: dict[str, dict[str, int]] = ENUMS | {
    "aclDataType": {dtype.constant: dtype.code for dtype in DTYPES.values()} | ENUMS["aclDataType"],
    "aclFormat": {f"ACL_FORMAT_{name}": code for name, code in FORMATS.items()} | ENUMS["aclFormat"],
}
ARRAYS = {
    "const int64_t *": "a",
    "int64_t *": "a",
    "const bool *": "b",
    "const float *": "e",
} | dict.fromkeys(("const aclTensor *const *", "const aclScalar *const *"), "t")
_KINDS = (
    {"const char *": "s", "const aclrtExceptionInfo *": "h"}
    | dict.fromkeys(("void *", "const void *", "aclrtExceptionInfoCallback", "aclrtCallback"), "p")
    | {"aclrtMallocConfig *": "p"}
    | {"float": "f", "double": "d"}
    | ARRAYS
    | dict.fromkeys(VOID_HANDLES, "h")
    | dict.fromkeys(("size_t", "const size_t", "uint32_t", "uint64_t", "aclFloat16"), "u")
    | dict.fromkeys(("bool", "int8_t", "int32_t", "int64_t", *C_ENUMS), "i")
    | {f"{const}{handle} *": "h" for handle in HANDLES for const in ("", "const ")}
)
_WIDE = {"size_t", "uint64_t", "int64_t"}  # numbers of 8 bytes; all others have 4
_RETURNS = {
    "aclError": "i",
    "aclnnStatus": "i",
    "const char *": "s",
    "size_t": "u",
    "float": "f",
    "aclFloat16": "u",
    "uint32_t": "u",
    "void": "i",
    **{f"{handle} *": "h" for handle in HANDLES},
}


@dataclass(frozen=True)
class CParameter:
    type: str  # as C declares it
    name: str
    kind: str
    out: bool = False
    length: str = ""  # the name of the parameter with an array's length, or with a scalar's data type

    @property
    def narrow(self) -> bool:
        """Whether an out-parameter points to 4 bytes, not 8."""
        return self.kind in "iuf" and self.type.removesuffix("*").rstrip() not in _WIDE

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
    lasting: bool = False  # the text that it returns never changes
    native: bool = False  # c/native_functions.h has its code
    variadic: bool = False
    prototype: str = ""  # of a function that is only declared
    harmless: bool = False  # it is only declared, and succeeds

    @property
    def declaration(self) -> str:
        if self.prototype:
            return self.prototype
        arguments = ", ".join(p.declaration for p in self.parameters) or "void"
        arguments += ", ..." if self.variadic else ""
        return f"{self.returns}{'' if self.returns.endswith('*') else ' '}{self.name}({arguments})"

    @property
    def result(self) -> str:
        """The kind of the C return value; c is a text that never changes."""
        if self.prototype:
            return "i" if self.returns == "aclError" else "h" if self.returns.endswith("*") else "u"
        return "c" if self.lasting else _RETURNS[self.returns]

    @property
    def python_names(self) -> tuple[str, ...]:
        """The parameters of the Python function: no out-parameters, no lengths."""
        return tuple(p.name for p in self.parameters if not p.out and p.kind != "n")


def runtime_function(name: str, table: Mapping[str, Any]) -> CFunction:
    where = f"runtime.toml function {name}"
    exact_keys(where, table, required={"returns", "c"}, optional={"lasting", "native", "variadic"})
    if table["returns"] not in _RETURNS:
        raise PageError(f"{where}: returns {table['returns']!r}; known are {', '.join(_RETURNS)}")
    notes = [entry[2] for entry in table["c"] if len(entry) > 2]
    arrays = [note.removeprefix("array:") for note in notes if note.startswith("array:")]
    parameters = tuple(_parameter(where, entry, arrays) for entry in table["c"])
    if unknown := {p.length for p in parameters if p.length} - {p.name for p in parameters}:
        raise PageError(f"{where}: no parameter counts an array by the name {', '.join(sorted(unknown))}")
    flags = {key: table.get(key, False) for key in ("lasting", "native", "variadic")}
    return CFunction(name, table["returns"], parameters, "acl/acl.h", **flags)


def missing_functions() -> Iterator[CFunction]:
    """The functions that are only declared."""
    for group in RUNTIME["missing"]:
        exact_keys(
            "runtime.toml missing",
            group,
            required={"belongs_to", "opaque", "functions"},
            optional={"harmless"},
        )
        for prototype in group["functions"]:
            if (match := PROTOTYPE.match(prototype)) is None:
                raise PageError(f"runtime.toml missing: {prototype!r} is no prototype of a function")
            harmless = group.get("harmless", False)
            returns = match[1].strip()
            yield CFunction(match[2], returns, (), "acl/acl.h", prototype=prototype, harmless=harmless)


def _parameter(where: str, entry: list[str], arrays: Iterable[str]) -> CParameter:
    c_type, spelled, *rest = entry
    out = spelled.startswith("out:")
    name = spelled.removeprefix("out:")
    received = c_type.removesuffix("*").rstrip() if out else c_type
    if received.endswith("*") and " *" not in received:
        received = f"{received[:-1]} *"
    kind = _KINDS.get(received)
    how, _, length = rest[0].partition(":") if rest else ("", "", "")
    if how == "scalar" and kind == "p":
        kind = "v"
    if kind is None or how != {**dict.fromkeys("abet", "array"), "v": "scalar"}.get(kind, ""):
        raise PageError(f"{where}: parameter {entry} is not understood; types are {', '.join(_KINDS)}")
    return CParameter(c_type, name, "n" if name in arrays else kind, out, length)


_OPERATOR_TYPES = {
    "tensor": "const aclTensor *",
    "tensor_list": "const aclTensorList *",
    "scalar": "const aclScalar *",
    "scalar_list": "const aclScalarList *",
    "int_array": "const aclIntArray *",
    "float_array": "const aclFloatArray *",
    "bool_array": "const aclBoolArray *",
    "bool": "bool",
    "int64": "int64_t",
    "int32": "int32_t",
    "int8": "int8_t",
    "uint64": "uint64_t",
    "float": "float",
    "double": "double",
    "string": "const char *",
    "data_type": "aclDataType",
}


def operator_functions(operator: Operator) -> tuple[CFunction, CFunction]:
    """Phase one and phase two."""
    arguments = []
    for parameter in operator.parameters:
        c_type = _OPERATOR_TYPES[parameter.type]
        if parameter.is_tensor and operator.writes(parameter):
            c_type = c_type.removeprefix("const ")
        arguments.append(CParameter(c_type, parameter.name, _KINDS[c_type]))
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
        CFunction(f"{name}GetWorkspaceSize", "aclnnStatus", (*arguments, *results), header, operator.summary),
        CFunction(name, "aclnnStatus", run, header, operator.summary),
    )


@cache
def functions(users: tuple[Operator, ...] = ()) -> tuple[CFunction, ...]:
    """Every function of the C interface, the runtime's first, those of users' operators last."""
    runtime = (runtime_function(name, table) for name, table in RUNTIME["functions"].items())
    operators = (*documented().values(), *users)
    phases = (phase for operator in operators for phase in operator_functions(operator))
    return (*runtime, *missing_functions(), *phases)


def interface(table: Iterable[CFunction]) -> str:
    """A short text that differs where the declarations of two tables differ."""
    return hashlib.sha256("\n".join(function.declaration for function in table).encode()).hexdigest()[:16]
