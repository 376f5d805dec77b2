"""What the planners of GPU kernels take and return. Pure: no device is touched.

A planner is a function that takes a `Task` and returns its launches, or the reason why its kernel is not the
right one. Kernels are specialised on dtypes, on kernels, strides and the number of windows that hold a cell,
and on how a tile is written. Sizes of tensors are arguments, so other batches and planes share a few kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...problem.problem import Problem
from .driver import DeviceFacts
from .source import Argument, Source
from .tables import Array

ELEMENTS = {"FLOAT32": 0, "FLOAT64": 1, "FLOAT16": 2, "BFLOAT16": 3}  # ELEMENT of device.h


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel. A kernel's first parameters are the tensors, then come the tables."""

    source: Source
    grid: int
    block: int
    shared: int  # bytes
    tables: tuple[Array, ...]
    arguments: tuple[Argument, ...]
    counts: int = 0  # int32 numbers that the first of two launches leaves for the second


@dataclass(frozen=True, slots=True)
class Task:
    """A problem in a layout on a device: what the kernels choose by."""

    problem: Problem
    layout: str
    facts: DeviceFacts
    aligned: bool = True  # tensors begin at multiples of 16 bytes

    @property
    def inner(self) -> int:
        """Channels, if they are innermost, else 1."""
        return self.problem.batch[1] if self.layout == "channels_last" else 1

    @property
    def planes(self) -> int:
        """Planes, or images if channels are innermost."""
        return self.problem.planes // self.inner

    @property
    def sum_bytes(self) -> int:
        return self.problem.dtype.accumulator.itemsize

    @property
    def defines(self) -> tuple[tuple[str, int], ...]:
        element = ("ELEMENT", ELEMENTS[self.problem.dtype.name])
        return (element, ("INDEX", self.problem.index_bytes)) if self.problem.index_bytes else (element,)


Planner = Callable[[Task], "tuple[Launch, ...] | str"]
