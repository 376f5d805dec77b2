"""Plans `average of staged windows`, average_staged.cu: threads add whole windows in shared memory."""

from __future__ import annotations

from ..kernel_tables import is_ragged
from ..task import Launch, Task
from ..windows.tile import Axes, TileKernel, staged
from .quotients import MEAN, division_of, divisor_parameters


def staged_average(task: Task) -> tuple[Launch, ...] | str:
    def kernel(_: Axes) -> TileKernel:
        divisors, values, options = division_of(task, is_ragged(task.problem))
        return TileKernel("average_staged", (), divisor_parameters(task), tuple(values), options, divisors)

    return MEAN if task.problem.quotient == "mean" else staged(task, kernel)
