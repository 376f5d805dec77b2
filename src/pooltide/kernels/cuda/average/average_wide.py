"""Plans `average of wide windows`, average_wide.cu: a warp reads the rows of 32 windows."""

from __future__ import annotations

from math import prod

from ..kernel_tables import cdiv, divider, is_ragged, power_below
from ..source import Argument, Source
from ..task import FEW_THREADS as THREADS
from ..task import Launch, Task
from ..windows.columns import TENSORS, span_table, windows_of
from .quotients import MEAN, division_of, divisor_parameters


def wide_average(task: Task) -> tuple[Launch, ...] | str:
    """A warp reads the rows of 32 windows together."""
    problem, outputs = task.problem, task.problem.output_plane
    d, h, w = (windows_of(axis) for axis in problem.axes)
    if problem.quotient == "mean":
        return MEAN
    if task.inner > 1:
        return "channels are innermost, and neighbouring threads read neighbouring channels"
    total = task.planes * prod(outputs)
    if total >= 2**31:
        return f"{total} windows are more than a divider takes"
    lanes = max(min(power_below(2 * w.most - 1), 32), 16 if is_ragged(problem) else 8)
    warp_bytes = 32 * (8 + 4) + 32 * (lanes + 1) * task.sum_bytes
    parameters = (
        *TENSORS,
        ("const int*", "tables"),
        *(("i64", name) for name in ("total", "plane_elements")),
        *(("int", name) for name in ("H", "W", "Do", "Ho", "Wo", "warp_bytes")),
        *(("int", name) for name in ("most_d", "most_h", "most_w")),
        *(("Divider", f"by_{name}") for name in ("wo", "ho", "do")),
        *divisor_parameters(task),
    )
    divisors, numbers, options = division_of(task, is_ragged(problem))
    arguments: tuple[Argument, ...] = (
        *(total, prod(problem.input_plane), h.length, w.length, *outputs, warp_bytes),
        *(d.most, h.most, w.most),
        *(divider(n) for n in reversed(outputs)),
        *numbers,
    )
    defines = (*task.defines, *options, ("LANES", lanes), ("THREADS", THREADS))
    source = Source("average_wide.cu", "average_wide", parameters, defines)
    shared = THREADS // 32 * warp_bytes
    grid = cdiv(total, THREADS)
    return (Launch(source, grid, THREADS, shared, (span_table((d, h, w), *divisors),), arguments),)
