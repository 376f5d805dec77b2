"""A call: an operator, a product, and what was handed in, described without its data.

Every entrance binds its arguments to a `Call`; the rules and the lowering read nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from math import prod
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from .dtypes import DType
from .pages import HOST, Operator, Parameter

CHANNELS_LAST = ("NHWC", "NDHWC")  # formats


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """What is known of a tensor without looking at its data. Strides count elements."""

    shape: tuple[int, ...]
    dtype: DType
    format: str | None = None  # None: an array, which has no format
    strides: tuple[int, ...] | None = None  # None: contiguous


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def channels_last_strides(shape: tuple[int, ...], axes: int) -> tuple[int, ...]:
    """Strides of (N,) D H W C memory for a (N,) C D H W shape, in elements."""
    lead = len(shape) - axes
    if lead < 1:
        return (1,) * len(shape)
    order = [*range(lead - 1), *range(lead, len(shape)), lead - 1]
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class Unusable:
    """An argument that is not what its place takes: a dead handle, an int for a tensor."""

    what: str  # "is an int, 7"
    must: str  # "an aclTensor made by aclCreateTensor"
    error: type[Exception] = TypeError


# Of users' operators also: a list of tensors or of scalars, an array of floats or bools, a float, a text.
Value = TensorMeta | tuple[Any, ...] | bool | int | float | str | np.generic | Unusable | None


Sizes = tuple[int, ...]


def once(compute: Callable[[Any], Sizes]) -> Callable[[Any], Sizes]:
    """Computes sizes once for each call: several rules, and the lowering, need them."""

    @wraps(compute)
    def known(call: Call) -> Sizes:
        found = call.computed.get(compute)
        if found is None:
            found = call.computed[compute] = compute(call)
        return found

    return known


@dataclass(frozen=True, slots=True)
class Call:
    operator: Operator
    product: str
    values: Mapping[str, Value]  # by the documents' parameter names
    computed: dict[Callable[..., Any], Sizes] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @property
    def by_function(self) -> bool:
        return self.product == HOST

    @property
    def title(self) -> str:
        return self.operator.function if self.by_function else self.operator.name

    def spell(self, name: str) -> str:
        return self.operator.parameter(name).argument if self.by_function else name

    def tensor(self, name: str) -> TensorMeta:
        value = self.values[name]
        assert isinstance(value, TensorMeta), f"{name} is no tensor: the rules let it through"
        return value

    def tensors(self, of: Iterable[str]) -> list[tuple[str, Parameter, TensorMeta]]:
        """The tensors of these parameters with their spelling; those of a list one by one."""
        found = []
        for name in of:
            value, parameter = self.values[name], self.operator.parameter(name)
            if isinstance(value, tuple):
                found += [(f"{name}[{at}]", parameter, member) for at, member in enumerate(value)]
            else:
                found.append((self.spell(name), parameter, self.tensor(name)))
        return found

    def role(self, role: str) -> Any:
        """The value in a role, or None where the operator has no such parameter."""
        parameter = self.operator.by_role(role)
        return None if parameter is None else self.values[parameter.name]

    @property
    def source(self) -> TensorMeta:
        """The tensor that the operator computes from: a gradient's gradOutput, a forward's input."""
        found: TensorMeta = self.role("grad_output") or self.role("input")
        return found

    def axes(self, rank: int) -> int:
        """How many dimensions of a tensor of that rank are spatial."""
        return rank - 2 if self.operator.windows == "global" else len(self.operator.axes)

    def channels_last(self, name: str) -> bool:
        """Whether C is the last dimension of a tensor's shape, in a format that the operator takes."""
        format = self.tensor(name).format
        return format in CHANNELS_LAST and format in self.operator.parameter(name).formats

    def _axes(self, name: str) -> slice:
        """The spatial dimensions of a tensor's shape."""
        rank = len(self.tensor(name).shape)
        end = rank - 1 if self.channels_last(name) else rank
        return slice(max(end - self.axes(rank), 0), end)

    def without(self, role: str) -> Call:
        """The call with None in a role."""
        parameter = self.operator.by_role(role)
        assert parameter is not None
        return replace(self, values={**self.values, parameter.name: None})

    def spatial(self, name: str) -> tuple[int, ...]:
        return self.tensor(name).shape[self._axes(name)]

    def batch(self, name: str) -> tuple[int, int]:
        """(N, C); an unbatched tensor has N = 1."""
        shape, axes = self.tensor(name).shape, self._axes(name)
        *n, c = shape[: axes.start] + shape[axes.stop :]
        return (n[0] if n else 1), c

    def with_plane(self, name: str, plane: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a tensor, with another plane."""
        shape, axes = self.tensor(name).shape, self._axes(name)
        return shape[: axes.start] + plane + shape[axes.stop :]

    def pairs(self, role: str) -> tuple[int, ...]:
        """An int array of one or all axes, as one value for each axis."""
        value = self.role(role)
        return value * len(self.operator.axes) if len(value) == 1 else tuple(value)

    def _axes_or(self, role: str, default: int) -> tuple[int, ...]:
        """The first values of an int array, one for each axis; without it the default."""
        axes = len(self.operator.axes)
        return self.pairs(role)[:axes] if self.role(role) else (default,) * axes

    @property
    @once
    def kernel(self) -> tuple[int, ...]:
        return self.pairs("kernel")

    @property
    @once
    def reach(self) -> tuple[int, ...]:
        """Cells from a window's first to its last: the kernel, spread by the dilation."""
        return tuple(r * (k - 1) + 1 for k, r in zip(self.kernel, self.dilation, strict=True))

    @property
    @once
    def dilation(self) -> tuple[int, ...]:
        return self._axes_or("dilation", 1)

    @property
    @once
    def stride(self) -> tuple[int, ...]:
        return self.pairs("stride") if self.role("stride") else self.kernel

    @property
    @once
    def padding(self) -> tuple[int, ...]:
        """Cells of padding before the plane on each axis; an array of all sides has these first."""
        return self._axes_or("padding", 0)

    @property
    @once
    def padding_after(self) -> tuple[int, ...]:
        axes = len(self.operator.axes)
        return self.pairs("padding")[-axes:] if self.role("padding") else (0,) * axes


def overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool | None:
    """Whether two cells of a view share an element; None when that is too costly to decide."""
    if 0 in shape:
        return False
    steps = sorted((abs(step), size) for size, step in zip(shape, strides, strict=True) if size > 1)
    reach = 0
    for step, size in steps:
        if step <= reach:
            break
        reach += step * (size - 1)
    else:
        return False
    if any(step == 0 for step, _ in steps):
        return True
    cells = prod(size for _, size in steps)
    if cells > 1 << 22 or reach + sum(step * size for step, size in steps) >= 2**62:
        return None
    offsets = np.zeros(1, dtype=np.int64)
    for step, size in steps:
        offsets = (offsets[:, None] + np.arange(size) * step).ravel()
    return bool(np.unique(offsets).size < cells)


def shares_cells(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays share an element, or it is too costly to show that they do not."""
    try:
        return np.shares_memory(one, other, max_work=100_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def article(noun: str) -> str:
    return "an" if noun[:1] in "aeiou" else "a"


def is_int(value: object) -> TypeGuard[int]:
    kind = type(value)  # isinstance would ask the value itself
    return issubclass(kind, (int, np.integer)) and not issubclass(kind, (bool, np.timedelta64))
