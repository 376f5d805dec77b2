"""The notation of a call of a user's operator, for `pooltide check`: aclnnRelu:self.2x3:out.2x3:out.f16

NAME.WHAT describes a parameter: the shape, dtype or format of a tensor; a number, true or false; an array as
1x2; a text; null. A tensor without a shape is null, and has the first dtype of its page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..operators.call import Call, TensorMeta, Value, contiguous_strides
from ..operators.catalog import folders, user_operators
from ..operators.dtypes import DTYPES, FORMATS
from ..operators.pages import ASCEND_PRODUCTS, DEFAULT_PRODUCT, Operator, Parameter
from .words import BY_SHORT_DTYPE, NotationError

_SHAPE = re.compile(r"\d+(x\d+)*")
_ELEMENTS: dict[str, Callable[[str], Any]] = {
    "int_array": int,
    "float_array": float,
    "bool_array": lambda word: bool(int(word)),
}
_BOOLS = {"true": True, "false": False, "": False}


@dataclass(frozen=True, slots=True)
class UserCase:
    operator: Operator
    text: str
    values: tuple[tuple[str, Value], ...]
    product: str | None

    def __str__(self) -> str:
        return self.text

    @property
    def checked_product(self) -> str:
        return self.product or DEFAULT_PRODUCT

    def call(self, product: str | None = None) -> Call:
        return Call(self.operator, product or self.checked_product, dict(self.values))


def parse_user_case(text: str) -> UserCase | None:
    """The case; None when it begins with no operator of a user. Raises NotationError and PageError."""
    name, *words = text.strip().split(":")
    if not name.startswith("aclnn") or (operator := user_operators(folders()).get(name)) is None:
        return None
    product, words_of = None, dict[str, list[str]]()
    for word in words:
        if word in ASCEND_PRODUCTS:
            product = word
            continue
        target, _, what = word.partition(".")
        if target not in {p.name for p in operator.parameters} or not what:
            names = ", ".join(p.name for p in operator.parameters)
            raise NotationError(
                f"word {word[:60]!r} is unknown for {name}; it must be NAME.WHAT, with {names}"
            )
        words_of.setdefault(target, []).append(what)
    values = tuple((p.name, _value(operator, p, words_of.get(p.name, []))) for p in operator.parameters)
    return UserCase(operator, text.strip(), values, product)


def _value(operator: Operator, parameter: Parameter, words: list[str]) -> Value:
    if "null" in words or (not words and parameter.nullable):
        return None
    if parameter.type == "tensor":
        return _tensor(operator, parameter, words)
    word = words[-1] if words else ""
    try:
        value: Value = _number(parameter, word)
        return value
    except ValueError:
        if parameter.type in ("tensor_list", "scalar_list"):
            must = "it must be called from a program: no word describes a list"
        else:
            must = f"it must be of type {parameter.type.replace('_', ' ')}"
        raise NotationError(f"{parameter.name} is {word[:60]!r}; {must}") from None


def _number(parameter: Parameter, word: str) -> Any:
    match parameter.type:
        case "bool":
            if word not in _BOOLS:
                raise ValueError
            return _BOOLS[word]
        case "int_array" | "float_array" | "bool_array":
            return tuple(map(_ELEMENTS[parameter.type], word.split("x"))) if word else ()
        case "float" | "double":
            return float(word or 0)
        case "scalar":
            return np.float32(word or 0)
        case "string":
            return word
        case "data_type" if (dtype := BY_SHORT_DTYPE.get(word) or DTYPES.get(word)) is not None:
            return dtype.code
        case "tensor_list" | "scalar_list":
            raise ValueError
    return int(word or 0)


def _tensor(operator: Operator, parameter: Parameter, words: list[str]) -> TensorMeta | None:
    shape, dtype, format = None, DTYPES[operator.dtype_groups[parameter.dtypes]["default"][0]], "ND"
    for word in words:
        if _SHAPE.fullmatch(word):
            shape = tuple(map(int, word.split("x")))
        elif word in BY_SHORT_DTYPE:
            dtype = BY_SHORT_DTYPE[word]
        elif word in DTYPES:
            dtype = DTYPES[word]
        elif word in FORMATS:
            format = word
        else:
            must = "it must be a shape such as 2x3, a dtype such as f32 or INT64, a format, or null"
            raise NotationError(f"{parameter.name}.{word[:60]} is not understood; {must}")
    return None if shape is None else TensorMeta(shape, dtype, format, contiguous_strides(shape))
