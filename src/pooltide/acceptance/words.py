"""The words of the notation: from a word such as `k3x2` to the field that it sets, and back.

`read_word` gives (field, value) for a word; `attribute_words` and `override_word` spell values as words.
notation.py explains every word.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from ..operators.catalog import documented, operators, regions
from ..operators.dtypes import DTYPES, FORMATS, DType
from ..operators.pages import PRODUCTS, Operator

Shape = tuple[int, ...]
DISTRIBUTIONS = ("normal", "uniform", "integers", "wide")
GIVEN = "given"  # in place of a distribution: the values are in files
NUMBERS = {  # role: (prefix, whether it takes an array, default)
    "kernel": ("k", True, ()),
    "stride": ("s", True, ()),
    "padding": ("p", True, (0,)),
    "dilation": ("d", True, (1,)),
    "divisor_override": ("div", False, 0),
    "cube_math_type": ("cube", False, 0),
    "boxes": ("boxes", False, 100),
    "sampling_ratio": ("ratio", False, -1),
}
# role: (word, its value)
FLAGS = {"ceil_mode": ("ceil", True), "count_include_pad": ("nopad", False), "aligned": ("aligned", True)}
BOXES_FILE = "boxes="
_CHOICES: dict[str, Container[str]] = {
    "format": FORMATS,
    "product": PRODUCTS,
    "distribution": (*DISTRIBUTIONS, GIVEN),
}
_PREFIXED = re.compile(r"([a-z]+?)((?:-?[0-9]+(?:x-?[0-9]+)*)?)")
_SHAPE = re.compile(r"-?[0-9]+(?:x-?[0-9]+)*")
_FLOAT = r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,3})?"
_RANGE = re.compile(rf"range({_FLOAT})x({_FLOAT})")
_SCALE = re.compile(rf"scale({_FLOAT})")


class NotationError(ValueError):
    """A case that can't be read; the text says which word and what it must be."""


def short_dtype(dtype: DType) -> str:
    """FLOAT32 → f32, BFLOAT16 → bf16, INT64 → i64."""
    return dtype.name.lower().replace("float", "f").replace("uint", "u").replace("int", "i")


BY_SHORT_DTYPE = {short_dtype(dtype): dtype for dtype in DTYPES.values()}


@cache
def short_names() -> dict[str, Operator]:
    """Every operator that has a short name, by that name; gradients first."""
    pools = [*operators().values(), *regions().values()]
    named = sorted((op for op in pools if op.short), key=lambda op: not op.gradient)
    return {operator.short: operator for operator in named}


@cache
def takes(operator: Operator, role: str) -> bool:
    """Whether the operator has a parameter in the role, or CANN's operator of the same function has one."""
    alike = (op for op in documented().values() if op.function == operator.function)
    return any(op.by_role(role) is not None for op in (operator, *alike))


def operator_of(name: str) -> Operator:
    if operator := short_names().get(name):
        return operator
    names = {short: short for short in short_names()}
    for operator in short_names().values():
        names |= {alias: operator.short for alias in (operator.function, operator.name) if alias not in names}
    hint = did_you_mean(name, names)
    raise NotationError(f"the operator is {name[:60]!r}{hint}; it must be {_or(short_names())}")


def did_you_mean(name: str, known: Mapping[str, str]) -> str:
    """A question that names what a user may have meant; "" if nothing is near. `known` gives the spelling
    to suggest for each name that a user may have had in mind."""
    lower = {spelling.lower(): suggestion for spelling, suggestion in known.items()}
    near = get_close_matches(name[:100].lower(), lower, 1, 0.75)
    return f" (did you mean {lower[near[0]]}?)" if near else ""


def read_shape(words: list[str], operator: Operator) -> Shape:
    """The shape of self: the first of the words after the operator."""
    if words and _SHAPE.fullmatch(words[0]):
        return _numbers(words[0], words[0])
    got = f"is {words[0][:60]!r}" if words else "is missing"
    raise NotationError(f"self's shape {got}; it must be sizes joined by x, as in {example(operator)}")


def read_word(operator: Operator, word: str) -> tuple[str, Any]:
    """The field that a word sets, and its value. The field of an override is PARAMETER.KIND."""
    if match := _RANGE.fullmatch(word):
        return "range", (float(match[1]), float(match[2]))
    if takes(operator, "boxes"):
        if match := _SCALE.fullmatch(word):
            return "spatial_scale", float(match[1])
        if word.startswith(BOXES_FILE):
            return "boxes", word.removeprefix(BOXES_FILE)
    if "." in word:
        return _read_override(operator, word)
    if word in BY_SHORT_DTYPE:
        dtype = BY_SHORT_DTYPE[word]
        is_index = dtype.numpy.kind in "iu" and operator.by_role("indices")
        return ("indices' dtype" if is_index else "dtype"), dtype
    for field, known in _CHOICES.items():
        if word in known:
            return field, word
    if word == "cl":
        return "layout", True
    anywhere = any(operator.by_role(role) for role in ("indices", "boxes"))
    if word in ("nan", "inf") or (word == "anywhere" and anywhere):
        return word, True
    for role, (flag, value) in FLAGS.items():
        if word == flag and takes(operator, role):
            return role, value
    if match := _PREFIXED.fullmatch(word):
        prefix, digits = match.groups()
        numbers = _numbers(digits, word) if digits else ()
        if prefix == "o" and numbers:
            return "output", numbers
        if prefix == "seed" and len(numbers) == 1 and numbers[0] >= 0:
            return "seed", numbers[0]
        for role, (short, array, _) in NUMBERS.items():
            if prefix == short and takes(operator, role) and (array or len(numbers) == 1):
                return role, numbers if array else numbers[0]
    raise NotationError(f"word {word[:60]!r} is unknown for {operator.short}; it must be {_known(operator)}")


def _read_override(operator: Operator, word: str) -> tuple[str, Any]:
    name, _, what = word.partition(".")
    known = [p for p in operator.parameters if p.type in ("tensor", "int_array")]
    parameter = next((p for p in known if name in (p.name, p.argument)), None)
    if parameter is None:
        names = _or(p.name for p in known)
        raise NotationError(f"word {word[:60]!r} names {name[:60]!r}; it must be {names}")
    if what == "null":
        return f"{parameter.name}.null", True
    takes = "null"
    if parameter.type == "tensor":
        if _SHAPE.fullmatch(what):
            return f"{parameter.name}.shape", _numbers(what, word)
        if what in BY_SHORT_DTYPE:
            return f"{parameter.name}.dtype", BY_SHORT_DTYPE[what]
        if what in FORMATS:
            return f"{parameter.name}.format", what
        if what == "cl":
            return f"{parameter.name}.cl", True
        if what[:1] == "s" and _SHAPE.fullmatch(what[1:]):
            return f"{parameter.name}.strides", _numbers(what[1:], word)
        if what[:3] == "off" and what[3:].isascii() and what[3:].isdigit():
            return f"{parameter.name}.offset", _numbers(what[3:], word)[0]
        takes = "a shape, a dtype, a format, cl, strides such as s6x2, an offset such as off5, or null"
    raise NotationError(f"word {word[:60]!r} sets {what[:60]!r}; after the dot it must be {takes}")


def _numbers(digits: str, word: str) -> Shape:
    numbers = digits.split("x")
    if len(numbers) > 8 or any(len(n) > 20 or not -(2**63) <= int(n) < 2**63 for n in numbers):
        raise NotationError(f"word {word[:60]!r} is too large; it must be at most 8 numbers of 64 bits")
    return tuple(map(int, numbers))


def attribute_words(role: str, value: Any) -> list[str]:
    """The word of an attribute; none for a default value, but the kernel is always spelled."""
    if role in FLAGS:
        word, on = FLAGS[role]
        return [word] if value == on else []
    if role == "spatial_scale":
        return [] if value == 1.0 else [f"scale{value!r}"]
    prefix, array, default = NUMBERS[role]
    if value == default and role not in ("kernel", "boxes"):
        return []
    return [f"{prefix}{joined(value) if array else value}"]


def override_word(kind: str, value: Any) -> str:
    if kind in ("null", "cl"):
        return kind
    if kind == "dtype":
        return short_dtype(value)
    spelled = joined(value) if kind in ("shape", "strides") else str(value)
    return {"strides": "s", "offset": "off"}.get(kind, "") + spelled


def _known(operator: Operator) -> str:
    """Examples of all words that the operator takes."""
    roles = {role for role in (*NUMBERS, *FLAGS, "indices") if takes(operator, role)}
    words = [
        f"{prefix}{'3' if array else '1'}" for role, (prefix, array, _) in NUMBERS.items() if role in roles
    ]
    words += [word for role, (word, _) in FLAGS.items() if role in roles]
    words += ["o" + "x".join("7" * len(operator.axes)), "f32", "f16", "bf16", "f64"]
    words += ["scale0.5", "boxes=FILE.npy"] if "boxes" in roles else []
    words += ["i32", "i64"] if "indices" in roles else []
    words += ["anywhere"] if roles & {"indices", "boxes"} else []
    words += ["cl", "seed7", *DISTRIBUTIONS, GIVEN, "range-1x1", "nan", "inf", "a format, a product"]
    return _or([*words, f"an override of one parameter, as in {operator.parameters[0].name}.null"])


def example(operator: Operator) -> str:
    sizes = joined((2, 3, 5, 7, 11)[: 2 + len(operator.axes)])
    plane = joined((2,) * len(operator.axes))
    boxes = ":boxes9" if operator.by_role("boxes") else ""
    return f"{operator.short}:{sizes}{boxes}:{'k3' if operator.by_role('kernel') else 'o' + plane}"


def joined(values: Shape) -> str:
    return "x".join(map(str, values))


def _or(values: Iterable[str]) -> str:
    *init, last = values
    return f"{', '.join(init)} or {last}" if init else last
