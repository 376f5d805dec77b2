"""What the planners of the gradients of averages share: rows in periods, tiles, tables, launches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....cache import cached
from ....geometry import Axis, tables
from ....problem.problem import Problem
from ..kernel_tables import Array, cdiv, division, divisors, rounded_twice, same_divisors, shares
from ..source import Argument, Source
from ..task import Launch, Task, Work, with_rows

UNROLLED_ROWS = 8  # the largest stride that is worth unrolling
SHORT_WALK = 8  # rows, from which on a thread's preparations pay
POINTERS = (
    *(("const Element*", "grad"), ("Element*", "out"), ("const int*", "tables"), ("const Sum*", "divisors")),
)


SIZES = tuple(("int", name) for name in ("D", "H", "W", "inner", "Do", "Ho", "Wo"))


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's part: `share` planes × `d` slices × `h` rows × `w` columns × `c` packs of channels.

    Rows and columns are counted in the unit of the kernel: cells, periods, or those of a thread.
    """

    share: int
    d: int
    h: int
    w: int
    c: int

    @property
    def size(self) -> int:
        return self.share * self.d * self.h * self.w * self.c


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a plane in periods (see average_walk.cu), and the windows of each period."""

    periods: int
    outputs: int  # rows of windows
    strided: bool
    stride: int
    kernel: int
    padding: int
    runs: Array  # (first row, end, first window, windows) of each period, if not strided

    @property
    def most(self) -> int:
        """The most windows that hold a row."""
        return cdiv(self.kernel, self.stride) if self.strided else int(self.runs[:, 3].max())

    @property
    def unrolled(self) -> bool:
        """Whether a stride is small enough to be worth unrolling."""
        return self.strided and self.stride <= UNROLLED_ROWS

    @property
    def fewest(self) -> int:
        """Periods, from which on a thread's preparations pay."""
        return cdiv(SHORT_WALK, self.stride)

    @property
    def first(self) -> int:
        """The window whose first row would begin the first period."""
        return self.padding // self.stride

    def windows(self, share: int) -> Array:
        """For every share of so many periods, how many rows of windows hold one of their rows."""
        begin, end = shares(self.periods, share)
        if self.strided:
            end = np.minimum(end + self.first, self.outputs)
            return np.asarray(np.maximum(end - np.maximum(begin + self.first - self.most + 1, 0), 0))
        first, last = self.runs[begin], self.runs[end - 1]
        return np.asarray(last[:, 2] + last[:, 3] - first[:, 2])


def rows_of(axis: Axis, ragged: bool = False) -> Rows:
    """The periods of an axis. `ragged`: other axes are, so this one is taken by tables, too."""
    none = np.zeros((0, 4), np.int64)
    steady = axis.length == axis.outputs or (not ragged and axis.length % axis.outputs == 0)
    if axis.adaptive and steady:
        size = axis.length // axis.outputs
        return Rows(axis.outputs, axis.outputs, True, size, size, 0, none)
    if not axis.adaptive:
        periods = (axis.length - 1 + axis.p) // axis.s - axis.p // axis.s + 1
        return Rows(periods, axis.outputs, True, axis.s, axis.k, axis.p, none)
    return runs_of(axis)


@cached(lambda rows: (rows.runs,))
def runs_of(axis: Axis) -> Rows:
    """Periods as runs of rows in the same windows."""
    table = tables(axis)
    change = (np.diff(table.first_window) != 0) | (np.diff(table.window_count) != 0)
    begin = np.append(0, np.flatnonzero(change) + 1)
    end = np.append(begin[1:], axis.length)
    runs = np.stack([begin, end, table.first_window[begin], table.window_count[begin]], axis=1)
    return Rows(len(runs), axis.outputs, False, 1, 1, 0, runs)


def folded(task: Task) -> Task:
    """The task with planes of as many rows as a kernel can number, if its planes are rows."""
    return with_rows(task, min(2**28 // (task.problem.axes[2].length * task.inner), 2**15))


def window_tables(problem: Problem, rows: Rows) -> list[Array]:
    """Runs of rows, and the windows of slices and columns."""
    of_d, of_w = tables(problem.axes[0]), tables(problem.axes[2])
    return [rows.runs.ravel(), of_d.first_window, of_d.window_count, of_w.first_window, of_w.window_count]


def average_launch(
    task: Task,
    entry: str,
    parameters: tuple[tuple[str, str], ...],
    options: tuple[tuple[str, int], ...],
    windows: list[Array],
    arguments: tuple[Argument, ...],
    *,
    grid: int,
    shared: int,
    work: Work,
    block: int = 0,
    registers: int = 40,
) -> tuple[Launch, ...] | str:
    """The launch of a kernel that divides by gradient_quotients.h, or why that would be inexact.

    `windows`: what the table `tables` has, if the kernel reads one. `block`: its threads, if not THREADS.
    """
    problem = task.problem
    if reason := rounded_twice(problem):
        return reason
    how = zip(("ONCE", "BY_D", "BY_H", "BY_W"), division(problem), strict=True)
    defines = sorted((*options, ("UNIFORM", int(same_divisors(problem))), *how))
    source = Source(f"{entry}.cu", entry, parameters, (*task.defines, *defines))
    values = np.concatenate(divisors(problem)).astype(problem.dtype.accumulator)
    given = [np.stack([values, 1 / values], axis=1)]
    if windows:
        given.insert(0, np.concatenate(windows).astype(np.int32))
    threads = block or dict(options)["THREADS"]
    return (Launch(source, grid, threads, shared, tuple(given), arguments, work=work, registers=registers),)
