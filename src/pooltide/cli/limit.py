"""The shortest time that a problem can take: its bytes must move, and its additions keep their order.

    limit = max(bytes / bandwidth, additions / half of the additions per second of the device)

The bandwidth is that of a copy in the same run. Half of the additions, because a kernel also loads, divides,
converts and stores with the same issue slots. On the CPU, bytes alone set the limit. The gradient of a
maximum adds little, and a maximum has no fixed order, so bytes alone set their limits too.
"""

from __future__ import annotations

from math import prod

from ..geometry import tables
from ..problem.problem import Problem

LANES = 128  # float32 additions per cycle and multiprocessor of recent NVIDIA GPUs


def least_seconds(problem: Problem, bytes_per_second: float, additions_per_second: float | None) -> float:
    moving = problem.least_bytes / bytes_per_second
    if additions_per_second is None:
        return moving
    return max(moving, additions(problem) / (additions_per_second / 2))


def additions(problem: Problem) -> int:
    """Additions whose order is fixed: of the cells of each window, or of the windows that hold each cell."""
    if not problem.average:
        return 0
    counts = [tables(axis).window_count for axis in problem.axes]
    terms = prod(int(count.sum()) for count in counts)
    held = prod(int((count > 0).sum()) for count in counts)  # cells that a window holds
    return problem.planes * (terms - (held if problem.gradient else prod(problem.output_plane)))
