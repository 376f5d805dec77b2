"""The roofline of a problem: the least time that its bytes and its additions allow.

    limit = max(bytes / bandwidth, additions / half of the additions per second of the device)

The bandwidth is that of a copy in the same run. Half of the additions, because a kernel also loads, divides,
converts and stores with the same issue slots. On the CPU, bytes alone set the limit. The gradient of a
maximum adds little, and a maximum has no fixed order; so bytes alone set their limits too. How much a pool
over regions of interest computes, its boxes say, which are data: region_pools.py.
"""

from __future__ import annotations

from math import prod

from ...geometry import tables
from ...kernels.plan import AnyProblem
from ...problem.regions import RegionProblem


def limit_seconds(problem: AnyProblem, bytes_per_second: float, additions_per_second: float | None) -> float:
    """The least time; without `additions_per_second`, that of the bytes."""
    memory_seconds = problem.least_bytes / bytes_per_second
    if additions_per_second is None:
        return memory_seconds
    return max(memory_seconds, additions(problem) / (additions_per_second / 2))


def additions(problem: AnyProblem) -> int:
    """Additions whose order is fixed: of the cells of each window, or of the windows that hold each cell."""
    if isinstance(problem, RegionProblem) or not problem.average:
        return 0
    counts = [tables(axis).window_count for axis in problem.axes]
    terms = prod(int(count.sum()) for count in counts)
    held_cells = prod(int((count > 0).sum()) for count in counts)  # that at least one window holds
    return problem.planes * (terms - (held_cells if problem.gradient else prod(problem.output_plane)))
