"""Plans `staged maximum`, maximum_staged.cu: threads compare whole windows in shared memory."""

from __future__ import annotations

from ..task import Launch, Task
from ..windows.tile import Axes, TileKernel, staged
from .places import index_parameter, places_of

SEARCHED_ROWS = 3  # of windows, from which on the place of a maximum is searched after its value


def staged_maximum(task: Task) -> tuple[Launch, ...] | str:
    def kernel(axes: Axes) -> TileKernel:
        options = (("SEARCHED", int(axes[0].most * axes[1].most >= SEARCHED_ROWS)),)
        values = places_of(task.problem.offsets, axes)[3:5]
        numbers = (("int", "place_d"), ("int", "place_h"))
        return TileKernel("maximum_staged", index_parameter(task), numbers, values, options, ())

    return staged(task, kernel)
