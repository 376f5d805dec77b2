"""A call: an operator, a product, and what was handed in, described without its data.

Every entrance binds its arguments to a `Call`; the rules and the lowering read nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from .dtypes import DType
from .pages import HOST, Operator


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


Value = TensorMeta | tuple[int, ...] | bool | int | Unusable | None


@dataclass(frozen=True, slots=True)
class Call:
    operator: Operator
    product: str
    values: Mapping[str, Value]  # by the documents' parameter names

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

    def role(self, role: str) -> Any:
        """The value in a role, or None where the operator has no such parameter."""
        parameter = self.operator.by_role(role)
        return None if parameter is None else self.values[parameter.name]

    def spatial(self, name: str) -> tuple[int, ...]:
        return self.tensor(name).shape[-len(self.operator.axes) :]

    def batch(self, name: str) -> tuple[int, int]:
        """(N, C); an unbatched tensor has N = 1."""
        *n, c = self.tensor(name).shape[: -len(self.operator.axes)]
        return (n[0] if n else 1), c

    def pairs(self, role: str) -> tuple[int, ...]:
        """An int array of one or all axes, as one value for each axis."""
        value = self.role(role)
        return value * len(self.operator.axes) if len(value) == 1 else tuple(value)

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.pairs("kernel")

    @property
    def reach(self) -> tuple[int, ...]:
        """Cells from a window's first to its last: the kernel, spread by the dilation."""
        return tuple(r * (k - 1) + 1 for k, r in zip(self.kernel, self.dilation, strict=True))

    @property
    def dilation(self) -> tuple[int, ...]:
        has = self.operator.by_role("dilation") is not None
        return self.pairs("dilation") if has else (1,) * len(self.operator.axes)

    @property
    def stride(self) -> tuple[int, ...]:
        return self.pairs("stride") if self.role("stride") else self.kernel

    @property
    def padding(self) -> tuple[int, ...]:
        return self.pairs("padding")


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
