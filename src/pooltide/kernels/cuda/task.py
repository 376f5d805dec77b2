"""What the planners of GPU kernels take and return. Pure: no device is touched.

A planner is a function that takes a `Task` and returns its launches, or the reason why its kernel can't
compute the problem correctly. Whether it would be fast is the question of cost.py.

Kernels are specialised on dtypes, on kernels, strides and the number of windows that hold a cell, and on how
a tile is written. Sizes of tensors are arguments, so other batches and planes share a few kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...geometry import UNIT, Axis
from ...problem.problem import Problem
from .kernel_tables import Array, largest_divisor
from .runtime.driver import DeviceFacts
from .source import Argument, Source, packed

# Instructions of single threads, by what they are for (cost.py); or arrays of them, for many tiles.
Work = tuple[tuple[str, Any], ...]
ELEMENTS = {"FLOAT32": 0, "FLOAT64": 1, "FLOAT16": 2, "BFLOAT16": 3}  # ELEMENT of device.h
MAX_THREADS, MAX_BLOCKS = 1024, 2**31 - 1  # of a block, and of a grid
STATIC_BYTES = 16  # of shared memory that some kernels declare for themselves
RESERVED = 1 << 10  # bytes of shared memory that the driver takes for each block
RESIDENT_BLOCKS = 32  # of a multiprocessor, at most
SECTOR = 32  # bytes that memory moves at once
VECTOR_BYTES = 16  # that a thread loads or stores at once, at most
THREADS, FEW_THREADS = 256, 128  # of a block, and of one whose threads need many registers


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
    work: Work = ()
    registers: int = 40  # of a thread, estimated
    repair: Callable[[], Launch] | None = None  # plans the second pass of maxima (two_passes.h)


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


def with_rows(task: Task, most: int) -> Task:
    """The task with planes of at most `most` rows, if its planes are rows; else the task itself.

    Threads then walk down many rows: to find the place of a thread may take longer than to compute a row.
    """
    problem = task.problem
    if problem.axes[:2] != (UNIT, UNIT) or (rows := largest_divisor(task.planes, most)) == 1:
        return task
    axes = UNIT, Axis(rows, rows, 1, 1), problem.axes[2]
    return replace(task, problem=replace(problem, batch=(task.planes // rows, task.inner), axes=axes))


def unfit(launches: tuple[Launch, ...], facts: DeviceFacts) -> str | None:
    """Why a device can't launch what was planned; None if it can. Tiles must fit, and numbers, too."""
    for launch in launches:
        most = dict(launch.source.defines).get("THREADS", MAX_THREADS)  # what the kernel is compiled for
        if not 0 < launch.block <= int(most) <= MAX_THREADS:
            return f"a block has {launch.block} threads, of at most {most}"
        if launch.shared + STATIC_BYTES > facts.shared_per_block:
            return f"a block needs {launch.shared} bytes of shared memory, of {facts.shared_per_block}"
        if not 0 < launch.grid <= MAX_BLOCKS:
            return f"{launch.grid} blocks are more than a grid numbers"
        try:
            packed(launch.source, launch.arguments)
        except ValueError as reason:
            return str(reason)
    return None


Planner = Callable[[Task], "tuple[Launch, ...] | str"]
