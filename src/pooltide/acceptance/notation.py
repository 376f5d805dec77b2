"""One short notation for a case: one shell word that names an operator, its shapes and attributes.

    avg2d:32x64x112x112:k3:s2:p1:f32
    avg2d:1x16x4x4:k4x3:s1:ceil:nopad:div-3:cube1:bf16
    adaptive_max2d:32x256x56x56:o7x7:f32:i64:nan:seed7

The operator and the shape of self come first, then words in any order, each at most once:

    k3 k3x2        kernel                     f32 f16 bf16 f64   dtype
    s2 s2x1        stride (none: the kernel)  i32 i64            dtype of the indices
    p1 p1x0        padding (none: 0)          NCHW ND …          format (none: the page's first)
    d2 d2x1        dilation (none: 1)         cl                 channels-last in memory
    ceil           ceil mode
    nopad          padding is not counted     seed7              of the data (none: 0)
    div-3          divisor override           normal uniform integers wide      distribution
    cube1          cubeMathType               nan inf            some cells of gradOutput are NaN, ±Inf
    o7x7           the output's plane         anywhere           indices outside their windows too
    range0.1x1.0   uniform: from, to; normal: mean, deviation      given   values that are in files
    atlas-a2 …     the product, where it matters

The gradient of a pool has the pool's name, the pool itself adds _forward: avg2d_forward. A max pool writes
indices if the case has i64.

A pool over regions of interest has these words, too: roi_align:2x256x50x68:boxes512:o7x7:scale0.25:ratio2:f32

    boxes512       so many boxes, drawn (none: 100)      boxes=FILE.npy  boxes in a file, (K, 5)
    scale0.25      spatial scale (none: 1)               aligned         positions are half a cell less
    ratio2         sampling ratio (none: -1)             anywhere        boxes that no detector has, too

NAME.WHAT overrides one parameter: a view by its strides (gradOutput.s96x24x6x2) and offset (gradOutput.off5),
both in elements, or channels-last (gradInput.cl). A case can also be a wrong call: WHAT may be a shape, a
dtype, a format, or null: gradOutput.1x16x2x2, self.f16, indices.ND, stride.null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from ..display import html_table
from ..geometry import strided_outputs
from ..operators.binding import MOST_FLOAT
from ..operators.call import Call, TensorMeta, Value, channels_last_strides
from ..operators.catalog import documented
from ..operators.dtypes import DTYPES, DType
from ..operators.pages import DEFAULT_PRODUCT, HOST, Operator, Parameter
from ..operators.region_rules import pooled_channels
from .boxes import count_boxes
from .words import (
    BOXES_FILE,
    FLAGS,
    GIVEN,
    NUMBERS,
    NotationError,
    Shape,
    attribute_words,
    example,
    joined,
    operator_of,
    override_word,
    read_shape,
    read_word,
    short_dtype,
)


@dataclass(frozen=True, slots=True)
class Data:
    """How the values of the inputs are drawn."""

    distribution: str = "normal"
    range: tuple[float, float] | None = None  # from and to; of normal, the mean and the deviation
    seed: int = 0
    nan: bool = False
    inf: bool = False
    anywhere: bool = False
    boxes_file: str = ""  # in place of drawn boxes

    def words(self) -> list[str]:
        flags = [name for name in ("nan", "inf", "anywhere") if getattr(self, name)]
        drawn = [] if self.distribution == "normal" else [self.distribution]
        drawn += ["range{!r}x{!r}".format(*self.range)] if self.range else []
        return drawn + flags + ([f"seed{self.seed}"] if self.seed else [])


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    operator: Operator
    shape: Shape  # of self
    outputs: Shape | None  # the output's plane; None: computed by the formula of the forward
    attributes: tuple[tuple[str, Any], ...]  # (role, value), in the page's order
    dtype: DType
    index_dtype: DType | None
    format: str | None = None
    channels_last: bool = False
    overrides: tuple[
        tuple[str, str, Any], ...
    ] = ()  # parameter; shape dtype format cl strides offset null; value
    product: str | None = None
    data: Data = field(default_factory=Data)

    @property
    def plane(self) -> Shape:
        """The plane that is not self's: of gradOutput, or of a forward's result.

        Ones where the forward has no output: the rules then say why.
        """
        axes = len(self.operator.axes)
        if self.outputs is not None:
            return self.outputs
        attributes = dict(self.attributes)
        kernel, stride, padding = (attributes[role] for role in ("kernel", "stride", "padding"))
        values = (kernel, stride or kernel, padding, attributes.get("dilation", (1,)))
        arrays = [v * axes if len(v) == 1 else v for v in values]
        if any(len(v) != axes for v in arrays) or min(arrays[1]) < 1:
            return (1,) * axes
        sizes = list(zip(self.shape[-axes:], *arrays, strict=False))
        if self.operator.windows == "indexed":  # an unpool: the plane of the pool's input
            return tuple(max(1, (n - 1) * s - 2 * p + k) for n, k, s, p, _ in sizes)
        ceil = attributes["ceil_mode"]
        return tuple(max(1, strided_outputs(n, r * (k - 1) + 1, s, p, ceil)) for n, k, s, p, r in sizes)

    @property
    def checked_product(self) -> str:
        """The product of the case, else the default product of its operator."""
        return self.product or (DEFAULT_PRODUCT if self.operator.documented else HOST)

    def operator_on(self, product: str) -> Operator:
        """The operator on a product: CANN's operator of that function where the product has no other."""
        if product in self.operator.products:
            return self.operator
        alike = (op for op in documented().values() if op.function == self.operator.function)
        return next(alike, self.operator)

    def call(self, product: str | None = None) -> Call:
        """The case as a call on `product`, or on `checked_product`."""
        product = product or self.checked_product
        operator = self.operator_on(product)
        values: dict[str, Value] = {}
        for parameter in operator.parameters:
            if "null" in (override := self._override(parameter.role)):
                values[parameter.name] = None
            elif parameter.type == "tensor":
                values[parameter.name] = self._tensor(operator, parameter, override, product)
            elif parameter.role == "output_size":
                values[parameter.name] = self.outputs or ()
            elif parameter.role in _PARTS:
                values[parameter.name] = _PARTS[parameter.role](self)
            else:
                values[parameter.name] = self._attribute(parameter.role)
        return Call(operator, product, values)

    def _override(self, role: str) -> dict[str, Any]:
        parameter = self.operator.by_role(role)
        return {kind: v for name, kind, v in self.overrides if parameter and name == parameter.name}

    def _attribute(self, role: str) -> Any:
        """The value of an attribute; the default, of one that only CANN's operator has."""
        attributes = dict(self.attributes)
        if role in attributes:
            return attributes[role]
        return not FLAGS[role][1] if role in FLAGS else NUMBERS[role][2] if role in NUMBERS else 0

    def _tensor(
        self, operator: Operator, parameter: Parameter, override: dict[str, Any], product: str
    ) -> TensorMeta | None:
        dtype: DType | None = self.dtype
        if parameter.role == "indices":
            usual = None if parameter.nullable else _first_dtype(operator, parameter)
            dtype = self.index_dtype or usual
        if dtype is None:  # a forward whose indices nobody wants
            return None
        shape, dtype = override.get("shape", self._shape(parameter.role)), override.get("dtype", dtype)
        format = override.get("format", self.format or parameter.formats[0])
        strides = override.get("strides")
        last = self.channels_last and parameter.role != "boxes"
        if strides is None and (last or "cl" in override):
            strides = channels_last_strides(shape, len(self.operator.axes))
        return TensorMeta(shape, dtype, None if product == HOST else format, strides)

    def _shape(self, role: str) -> Shape:
        """The shape of a tensor: self's, or with the other plane."""
        if role == "boxes":
            return self.boxes, 5
        alike = {"input"} | ({"out"} if self.operator.gradient else set())
        alike |= {"indices"} if self.operator.windows == "indexed" else set()
        if role in alike:
            return self.shape
        if self.operator.windows != "regions":
            return self.shape[: -len(self.operator.axes)] + self.plane
        channels = self.shape[1] if len(self.shape) > 1 else 1
        bins = self.plane[0], self.plane[1]
        return self.boxes, pooled_channels(self.operator.kind, channels, bins), *bins

    @property
    def boxes(self) -> int:
        """How many boxes there are."""
        return int(dict(self.attributes).get("boxes", 0))

    @property
    def portable(self) -> Case:
        """The case without the name of a file of boxes, which another machine may not have."""
        if not self.data.boxes_file:
            return self
        return replace(self, data=replace(self.data, boxes_file="", distribution=GIVEN))

    def offset(self, role: str) -> int:
        """Where the view of a tensor begins in its memory, in elements."""
        return int(self._override(role).get("offset", 0))

    def __str__(self) -> str:
        words = [self.operator.short, joined(self.shape)]
        words += [] if self.outputs is None else [f"o{joined(self.outputs)}"]
        nulls = {name for name, kind, _ in self.overrides if kind == "null"}
        for role, value in self.attributes:
            parameter = self.operator.by_role(role)
            if role == "boxes" and self.data.boxes_file:
                words.append(f"{BOXES_FILE}{self.data.boxes_file}")
            elif parameter is None or role == "boxes" or parameter.name not in nulls:
                words += attribute_words(role, value)
        words += [short_dtype(dtype) for dtype in (self.dtype, self.index_dtype) if dtype]
        words += [self.format] if self.format else []
        words += ["cl"] if self.channels_last else []
        words += [f"{name}.{override_word(kind, value)}" for name, kind, value in self.overrides]
        words += self.data.words() + ([self.product] if self.product else [])
        return ":".join(words)

    def __repr__(self) -> str:
        return f"<case {self}>"

    def _repr_html_(self) -> str:
        shapes = [("case", self), ("operator", self.operator.function), ("shape of self", joined(self.shape))]
        other = "gradOutput" if self.operator.gradient else "the result"
        shapes.append((f"plane of {other}", joined(self.plane)))
        shown = [(role, joined(v) if isinstance(v, tuple) else v) for role, v in self.attributes if v != ()]
        types = [("dtype", self.dtype.name)]
        types += [("dtype of indices", self.index_dtype.name)] if self.index_dtype else []
        return html_table([*shapes, *((role.replace("_", " "), value) for role, value in shown), *types])


def parse(text: str) -> Case:
    """The case that the text describes. NotationError: it describes none."""
    name, *words = text.strip().split(":")
    try:
        operator = operator_of(name)
        shape = read_shape(words, operator)
        fields: dict[str, Any] = {}
        for word in words[1:]:
            key, value = read_word(operator, word)
            if key in fields:
                raise NotationError(f"word {word!r} sets {key} again; each may be set once")
            fields[key] = value
        return _case(operator, shape, fields)
    except NotationError as error:
        raise NotationError(f"case {text.strip()[:200]!r}: {error}") from None


def _case(operator: Operator, shape: Shape, fields: dict[str, Any]) -> Case:
    overrides = tuple(sorted((*key.split("."), value) for key, value in fields.items() if "." in key))
    kernel, index = operator.by_role("kernel"), operator.by_role("indices")
    if kernel and "kernel" not in fields and f"{kernel.name}.null" not in fields:
        raise NotationError(
            f"the kernel is missing; add a word such as k3 or k3x2, as in {example(operator)}"
        )
    usual = (
        DTYPES[operator.dtype_groups[index.dtypes]["default"][0]] if index and not index.nullable else None
    )
    if isinstance(fields.get("boxes"), str):
        fields["boxes_file"] = fields["boxes"]
        fields["boxes"] = count_boxes(fields["boxes_file"])
    case = Case(
        operator,
        shape,
        _outputs(operator, fields.get("output")),
        tuple(_attributes(operator, fields)),
        fields.get("dtype", DTYPES["FLOAT32"]),
        fields.get("indices' dtype", usual),
        fields.get("format"),
        fields.get("layout", False),
        overrides,
        fields.get("product"),
        Data(**{key: value for key, value in fields.items() if key in Data.__slots__}),
    )
    if case.data.range is not None:
        _check_range(case.data)
    for tensor in case.call().values.values() if overrides else ():
        if isinstance(tensor, TensorMeta) and len(tensor.strides or tensor.shape) != len(tensor.shape):
            words = f"strides {joined(tensor.strides or ())} are for a tensor of shape {joined(tensor.shape)}"
            raise NotationError(f"{words}; there must be one for each dimension")
    return case


# The parameters of CANN's operators that have a part of the output size, or the shape of self.
_PARTS: dict[str, Callable[[Case], Any]] = {
    "pooled_height": lambda case: case.plane[0],
    "pooled_width": lambda case: case.plane[1],
    "input_shape": lambda case: case.shape,
}


def _first_dtype(operator: Operator, parameter: Parameter) -> DType:
    return DTYPES[operator.dtype_groups[parameter.dtypes]["default"][0]]


def _check_range(data: Data) -> None:
    low, high = data.range or (0.0, 0.0)
    if data.distribution not in ("normal", "uniform"):
        raise NotationError(
            f"a range is for normal and uniform values; the distribution is {data.distribution}"
        )
    if not (isfinite(low) and isfinite(high)) or (high < (low if data.distribution == "uniform" else 0)):
        raise NotationError(
            f"the range is {low!r} to {high!r}; it must be finite numbers, the first not larger"
        )


def _attributes(operator: Operator, fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    own = [parameter.role for parameter in operator.parameters]
    own += [role for role in (*NUMBERS, *FLAGS, "spatial_scale") if role in fields and role not in own]
    for role in own:
        if role in NUMBERS:
            yield role, fields.get(role, NUMBERS[role][2])
        elif role in FLAGS:
            yield role, fields.get(role, not FLAGS[role][1])
        elif role == "spatial_scale":
            if not -MOST_FLOAT <= (scale := fields.get(role, 1.0)) <= MOST_FLOAT:
                raise NotationError(f"spatial_scale is {scale}; it must be a finite number of float32")
            yield role, scale


def _outputs(operator: Operator, sizes: Shape | None) -> Shape | None:
    axes = len(operator.axes)
    if sizes is None:
        if operator.windows in ("adaptive", "regions"):
            raise NotationError(f"the output's plane is missing; add a word such as o{'x'.join('7' * axes)}")
        return None
    if len(sizes) not in (1, axes):
        raise NotationError(f"word o{joined(sizes)} has {len(sizes)} sizes; it must have 1 or {axes}")
    return sizes * axes if len(sizes) == 1 else sizes
