"""The text of a new page, from CANN's declaration of phase one or from a list of parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..dtypes import DTYPES
from ..toml import PageError
from .user import HANDLES, ROLES, TYPES, file_name

_PROTOTYPE = re.compile(r"(?:aclnnStatus\s+)?(aclnn[A-Z]\w*?)(?:GetWorkspaceSize)?\s*\((.*)\)\s*;?", re.S)
_PARAMETER = re.compile(r"(.*?)(\**)\s*&?\s*(\w+)")
_C_TYPES = {
    "aclTensor": "tensor", "aclTensorList": "tensor_list",
    "aclScalar": "scalar", "aclScalarList": "scalar_list",
    "aclIntArray": "int_array", "aclFloatArray": "float_array", "aclBoolArray": "bool_array",
    "bool": "bool", "int8_t": "int8", "int32_t": "int32", "int": "int32", "int64_t": "int64",
    "uint64_t": "uint64", "size_t": "uint64", "float": "float", "double": "double", "char": "string",
    "aclDataType": "data_type",
}  # fmt: skip
_LAST = ("workspaceSize", "executor")


@dataclass(frozen=True)
class Field:
    """A parameter of a new page."""

    name: str
    type: str
    role: str  # empty for what is no tensor


def from_prototype(text: str) -> tuple[str, list[Field]]:
    """The operator's name and its parameters. An `aclTensor *` without const is an output."""
    if (found := _PROTOTYPE.fullmatch(text.strip())) is None:
        must = "it must be phase one in C, as the document has it, such as aclnnXGetWorkspaceSize(…)"
        raise PageError(f"the declaration is {text.strip()[:80]!r}; {must}")
    fields = []
    for word in found[2].split(","):
        parts = _PARAMETER.fullmatch(" ".join(word.split()))
        if parts is None:
            raise PageError(f"the parameter {word.strip()[:60]!r} is not understood; it must be TYPE NAME")
        const, base = "const" in parts[1].split(), parts[1].replace("const", "").strip()
        if parts[3] in _LAST:
            continue
        kind = _C_TYPES.get(base)
        if kind is None or (kind in HANDLES) != bool(parts[2]):
            known = ", ".join(_C_TYPES)
            raise PageError(
                f"the parameter {word.strip()[:60]!r} has a type that no page has; known are {known}"
            )
        role = "" if not kind.startswith("tensor") else "input" if const else "output"
        fields.append(Field(parts[3], kind, role))
    return found[1], fields


def from_words(words: tuple[str, ...]) -> list[Field]:
    """Parameters of words NAME:TYPE or NAME:ROLE."""
    fields = []
    for word in words:
        name, _, kind = word.partition(":")
        if kind in ROLES:
            fields.append(Field(name, "tensor", kind))
        elif kind in TYPES:
            fields.append(Field(name, kind, "input" if kind.startswith("tensor") else ""))
        else:
            known = ", ".join((*TYPES, *ROLES))
            raise PageError(f"the parameter is {word[:60]!r}; it must be NAME:TYPE, with a type of {known}")
    return fields


def page_text(operator: str, fields: list[Field], *, declared: bool = False) -> str:
    """The page. With `declared`, nothing computes the operator, and its tensors may have every dtype."""
    dtypes = list(DTYPES) if declared else ["FLOAT32", "FLOAT16", "BFLOAT16"]
    first = next((field.name for field in fields if field.role == "input" and field.type == "tensor"), "")
    lines = []
    for field in fields:
        words = [f'name = "{field.name}"', f'type = "{field.type}"']
        words += [f'role = "{field.role}"'] if field.role in ("output", "in_place") else []
        words += ['dtypes = "any"'] if field.role else []
        if declared and field.type in HANDLES and field.role in ("", "input"):
            words.append("nullable = true")
        if not declared and field.role == "output" and field.type == "tensor" and first:
            words.append(f'shape = "{first}"')
        lines.append(f"    {{ {', '.join(words)} }},\n")
    quoted = ", ".join(f'"{dtype}"' for dtype in dtypes)
    does = "declared = true" if declared else f'python = "{file_name(operator)}.py:{function_name(operator)}"'
    summary = f"{operator}, which is only declared." if declared else "What the operator computes."
    text = f'operator = "{operator}"\nsummary = "{summary}"\n{does}\ndtypes.any = [{quoted}]\n'
    return f"{text}parameters = [\n{''.join(lines)}]\n"


def function_name(operator: str) -> str:
    return file_name(operator).removeprefix("aclnn_")


def function_text(operator: str, fields: list[Field]) -> str:
    """The file of the function, which raises until somebody writes it."""
    names = ", ".join(field.name for field in fields)
    outputs = ", ".join(field.name for field in fields if field.role in ("output", "in_place"))
    return (
        f"import numpy as np\n\n\ndef {function_name(operator)}({names}):\n"
        f'    """Tensors are NumPy arrays. Write to {outputs}, or return what goes there."""\n'
        f'    raise NotImplementedError("{operator} is not written yet")\n'
    )
