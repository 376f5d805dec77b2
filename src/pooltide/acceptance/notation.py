"""One short notation for a problem: one shell word that names an operator, its shapes and attributes.

    avg2d:32x64x112x112:k3:s2:p1:f32
    avg2d:1x16x4x4:k4x3:s1:ceil:nopad:div-3:cube1:bf16
    adaptive_max2d:32x256x56x56:o7x7:f32:i64:nan:seed7

The operator and self's shape come first, then words in any order, each at most once:

    k3 k3x2        kernel                     f32 f16 bf16 f64   dtype
    s2 s2x1        stride (none: the kernel)  i32 i64            dtype of the indices
    p1 p1x0        padding (none: 0)          NCHW ND …          format (none: the page's first)
    d2 d2x1        dilation (none: 1)         cl                 channels-last in memory
    ceil           ceil mode
    nopad          padding is not counted     seed7              of the data (none: 0)
    div-3          divisor override           normal uniform integers wide      distribution
    cube1          cubeMathType               nan inf            a few cells of gradOutput are that
    o7x7           the output's plane         anywhere           indices outside their windows too
    atlas-a2 …     the product, where it matters

A wrong call is a case too: NAME.WHAT sets one parameter apart by its shape, dtype, format, cl or null:
gradOutput.1x16x2x2, self.f16, indices.ND, gradInput.cl, stride.null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..geometry import strided_outputs
from ..operators.call import Call, TensorMeta, Value, channels_last_strides
from ..operators.catalog import gradients
from ..operators.dtypes import DTYPES, FORMATS, DType
from ..operators.pages import DEFAULT_PRODUCT, HOST, PRODUCTS, Operator, Parameter

Shape = tuple[int, ...]
DISTRIBUTIONS = ("normal", "uniform", "integers", "wide")

_NUMBERS = {  # role: (prefix, an array?, default)
    "kernel": ("k", True, ()),
    "stride": ("s", True, ()),
    "padding": ("p", True, (0,)),
    "dilation": ("d", True, (1,)),
    "divisor_override": ("div", False, 0),
    "cube_math_type": ("cube", False, 0),
}
_FLAGS = {"ceil_mode": ("ceil", True), "count_include_pad": ("nopad", False)}  # role: (word, its value)
_PREFIXED = re.compile(r"([a-z]+?)((?:-?[0-9]+(?:x-?[0-9]+)*)?)")
_SHAPE = re.compile(r"-?[0-9]+(?:x-?[0-9]+)*")


class NotationError(ValueError):
    """A case that can't be read; the text says which word and what it must be."""


def short_dtype(dtype: DType) -> str:
    """FLOAT32 → f32, BFLOAT16 → bf16, INT64 → i64."""
    return dtype.name.lower().replace("float", "f").replace("uint", "u").replace("int", "i")


_DTYPES = {short_dtype(dtype): dtype for dtype in DTYPES.values()}


@dataclass(frozen=True, slots=True)
class Data:
    """What the case says of its inputs' values."""

    distribution: str = "normal"
    seed: int = 0
    nan: bool = False
    inf: bool = False
    anywhere: bool = False

    def words(self) -> list[str]:
        flags = [name for name in ("nan", "inf", "anywhere") if getattr(self, name)]
        drawn = [] if self.distribution == "normal" else [self.distribution]
        return drawn + flags + ([f"seed{self.seed}"] if self.seed else [])


@dataclass(frozen=True, slots=True)
class Case:
    operator: Operator
    shape: Shape  # self's
    outputs: Shape | None  # the output's plane; None: what the forward gives
    attributes: tuple[tuple[str, Any], ...]  # (role, value), in the page's order
    dtype: DType
    index_dtype: DType | None
    format: str | None = None
    channels_last: bool = False
    apart: tuple[tuple[str, str, Any], ...] = ()  # (parameter, shape|dtype|format|cl|null, value)
    product: str | None = None
    data: Data = field(default_factory=Data)

    @property
    def plane(self) -> Shape:
        """gradOutput's spatial shape. Where the forward makes none, the rules shall say why: ones."""
        axes = len(self.operator.axes)
        if self.outputs is not None:
            return self.outputs
        given = dict(self.attributes)
        kernel, stride, padding = (given[role] for role in ("kernel", "stride", "padding"))
        values = (kernel, stride or kernel, padding, given.get("dilation", (1,)))
        arrays = [v * axes if len(v) == 1 else v for v in values]
        if any(len(v) != axes for v in arrays) or min(arrays[1]) < 1:
            return (1,) * axes
        sizes = zip(self.shape[-axes:], *arrays, strict=False)
        made = (strided_outputs(n, r * (k - 1) + 1, s, p, given["ceil_mode"]) for n, k, s, p, r in sizes)
        return tuple(max(1, outputs) for outputs in made)

    @property
    def asked(self) -> str:
        """The product to ask where nobody says: the case's own, else the operator's first choice."""
        return self.product or (DEFAULT_PRODUCT if self.operator.documented else HOST)

    def call(self, product: str | None = None) -> Call:
        """The case as a call on `product`, or on the one it asks."""
        product = product or self.asked
        given = dict(self.attributes)
        values: dict[str, Value] = {}
        for parameter in self.operator.parameters:
            if parameter.type == "tensor":
                values[parameter.name] = self._tensor(parameter, product)
            else:
                null = (parameter.name, "null", True) in self.apart
                values[parameter.name] = None if null else given[parameter.role]
        return Call(self.operator, product, values)

    def _tensor(self, parameter: Parameter, product: str) -> TensorMeta | None:
        apart = {kind: value for name, kind, value in self.apart if name == parameter.name}
        if "null" in apart:
            return None
        inner = parameter.role in ("input", "out")
        shape = self.shape if inner else self.shape[: -len(self.operator.axes)] + self.plane
        dtype = self.index_dtype if parameter.role == "indices" else self.dtype
        shape, dtype = apart.get("shape", shape), apart.get("dtype", dtype)
        assert dtype is not None
        layout = apart.get("format", self.format or parameter.formats[0])
        last = self.channels_last or "cl" in apart
        strides = channels_last_strides(shape, len(self.operator.axes)) if last else None
        return TensorMeta(shape, dtype, None if product == HOST else layout, strides)

    def __str__(self) -> str:
        words = [self.operator.short, _joined(self.shape)]
        words += [] if self.outputs is None else [f"o{_joined(self.outputs)}"]
        nulls = {name for name, kind, _ in self.apart if kind == "null"}
        for role, value in self.attributes:
            parameter = self.operator.by_role(role)
            if parameter and parameter.name not in nulls:
                words += _attribute_words(role, value)
        words += [short_dtype(dtype) for dtype in (self.dtype, self.index_dtype) if dtype]
        words += [self.format] if self.format else []
        words += ["cl"] if self.channels_last else []
        words += [f"{name}.{_apart_word(kind, value)}" for name, kind, value in self.apart]
        words += self.data.words() + ([self.product] if self.product else [])
        return ":".join(words)


def parse(text: str) -> Case:
    try:
        return _parse(text.strip())
    except NotationError as error:
        raise NotationError(f"case {text.strip()[:200]!r}: {error}") from None


def _parse(text: str) -> Case:
    name, *words = text.split(":")
    operator = short_names().get(name)
    if operator is None:
        raise NotationError(f"the operator is {name[:60]!r}; it must be {_or(short_names())}")
    if not words or not _SHAPE.fullmatch(words[0]):
        got = f"is {words[0][:60]!r}" if words else "is missing"
        raise NotationError(f"self's shape {got}; it must be sizes joined by x, as in {_example(operator)}")
    shape = _numbers(words[0], words[0])
    found: dict[str, Any] = {}
    for word in words[1:]:
        key, value = _word(operator, word)
        if key in found:
            raise NotationError(f"word {word!r} says {key} again; each may be said once")
        found[key] = value
    return _case(operator, shape, found)


def _case(operator: Operator, shape: Shape, found: dict[str, Any]) -> Case:
    apart = tuple(sorted((*key.split("."), value) for key, value in found.items() if "." in key))
    nulls = {name for name, kind, _ in apart if kind == "null"}
    attributes = []
    for parameter in operator.parameters:
        role = parameter.role
        if role in _NUMBERS:
            attributes.append((role, found.get(role, _NUMBERS[role][2])))
        elif role in _FLAGS:
            attributes.append((role, found.get(role, not _FLAGS[role][1])))
    kernel = operator.by_role("kernel")
    if kernel and "kernel" not in found and kernel.name not in nulls:
        raise NotationError(
            f"the kernel is missing; add a word such as k3 or k3x2, as in {_example(operator)}"
        )
    axes = len(operator.axes)
    outputs = found.get("output")
    if outputs is None and operator.windows == "adaptive":
        raise NotationError(f"the output's plane is missing; add a word such as o{'x'.join('7' * axes)}")
    if outputs is not None and len(outputs) not in (1, axes):
        raise NotationError(f"word o{_joined(outputs)} has {len(outputs)} sizes; it must have 1 or {axes}")
    index = operator.by_role("indices")
    first = DTYPES[operator.dtype_groups[index.dtypes]["default"][0]] if index else None
    data = Data(**{k: v for k, v in found.items() if k in Data.__slots__})
    return Case(
        operator,
        shape,
        outputs * axes if outputs is not None and len(outputs) == 1 else outputs,
        tuple(attributes),
        found.get("dtype", DTYPES["FLOAT32"]),
        found.get("indices' dtype", first),
        found.get("format"),
        found.get("layout", False),
        apart,
        found.get("product"),
        data,
    )


def _word(operator: Operator, word: str) -> tuple[str, Any]:
    """What a word sets, and to what."""
    if "." in word:
        return _apart(operator, word)
    if word in _DTYPES:
        integer = _DTYPES[word].numpy.kind in "iu"
        return ("indices' dtype" if integer and operator.by_role("indices") else "dtype"), _DTYPES[word]
    if word in FORMATS:
        return "format", word
    if word in PRODUCTS:
        return "product", word
    if word in DISTRIBUTIONS:
        return "distribution", word
    if word == "cl":
        return "layout", True
    if word in ("nan", "inf") or (word == "anywhere" and operator.by_role("indices")):
        return word, True
    for role, (flag, value) in _FLAGS.items():
        if word == flag and operator.by_role(role):
            return role, value
    if match := _PREFIXED.fullmatch(word):
        prefix, digits = match.groups()
        numbers = _numbers(digits, word) if digits else ()
        if prefix == "o" and numbers:
            return "output", numbers
        if prefix == "seed" and len(numbers) == 1 and numbers[0] >= 0:
            return "seed", numbers[0]
        for role, (short, array, _) in _NUMBERS.items():
            if prefix == short and operator.by_role(role) and (array or len(numbers) == 1):
                return role, numbers if array else numbers[0]
    raise NotationError(f"word {word[:60]!r} is unknown for {operator.short}; it must be {_words(operator)}")


def _apart(operator: Operator, word: str) -> tuple[str, Any]:
    name, _, what = word.partition(".")
    parameter = next((p for p in operator.parameters if name in (p.name, p.argument)), None)
    if parameter is None or parameter.type not in ("tensor", "int_array"):
        known = [p.name for p in operator.parameters if p.type in ("tensor", "int_array")]
        raise NotationError(f"word {word[:60]!r} names {name[:60]!r}; it must be {_or(known)}")
    if what == "null":
        return f"{parameter.name}.null", True
    if parameter.type == "tensor":
        if _SHAPE.fullmatch(what):
            return f"{parameter.name}.shape", _numbers(what, word)
        if what in _DTYPES:
            return f"{parameter.name}.dtype", _DTYPES[what]
        if what in FORMATS:
            return f"{parameter.name}.format", what
        if what == "cl":
            return f"{parameter.name}.cl", True
    takes = "a shape, a dtype, a format, cl or null" if parameter.type == "tensor" else "null"
    raise NotationError(f"word {word[:60]!r} sets {what[:60]!r}; after the dot it must be {takes}")


def _numbers(digits: str, word: str) -> Shape:
    numbers = digits.split("x")
    if len(numbers) > 8 or any(len(n) > 20 or not -(2**63) <= int(n) < 2**63 for n in numbers):
        raise NotationError(f"word {word[:60]!r} is too large; it must be at most 8 numbers of 64 bits")
    return tuple(map(int, numbers))


def _attribute_words(role: str, value: Any) -> list[str]:
    if role in _FLAGS:
        word, on = _FLAGS[role]
        return [word] if value == on else []
    prefix, array, default = _NUMBERS[role]
    if value == default and role != "kernel":
        return []
    return [f"{prefix}{_joined(value) if array else value}"]


def _apart_word(kind: str, value: Any) -> str:
    if kind in ("null", "cl"):
        return kind
    if kind == "dtype":
        return short_dtype(value)
    return _joined(value) if kind == "shape" else str(value)


def _words(operator: Operator) -> str:
    roles = {p.role for p in operator.parameters}
    words = [
        f"{prefix}{'3' if array else '1'}" for role, (prefix, array, _) in _NUMBERS.items() if role in roles
    ]
    words += [word for role, (word, _) in _FLAGS.items() if role in roles]
    words += ["o" + "x".join("7" * len(operator.axes)), "f32", "f16", "bf16", "f64"]
    words += ["i32", "i64", "anywhere"] if "indices" in roles else []
    words += ["cl", "seed7", *DISTRIBUTIONS, "nan", "inf", "a format, a product"]
    return _or([*words, f"a parameter apart, as in {operator.parameters[0].name}.null"])


def _example(operator: Operator) -> str:
    sizes = _joined((2, 3, 5, 7, 11)[: 2 + len(operator.axes)])
    plane = _joined((2,) * len(operator.axes))
    return f"{operator.short}:{sizes}:{'k3' if operator.windows == 'strided' else 'o' + plane}"


@cache
def short_names() -> dict[str, Operator]:
    return {operator.short: operator for operator in gradients().values()}


def _joined(values: Shape) -> str:
    return "x".join(map(str, values))


def _or(values: Any) -> str:
    *init, last = map(str, values)
    return f"{', '.join(init)} or {last}" if init else last
