"""The GPU kernels of forwards, in order. Pure: no device is touched.

Each entry is a function that returns its launches, or the reason against it. The last one of a kind refuses
nothing. The tensors of a launch are x, out and, of maxima with indices or offsets, those. A result without
elements needs no launch.
"""

from __future__ import annotations

from .average_plan import column_average, mean_average, wide_average
from .maximum_plan import direct_maximum, reduced_maximum, rolling_maximum, sectioned_maximum
from .plan import Planner

FORWARD_KERNELS: dict[str, tuple[tuple[str, Planner], ...]] = {
    "maximum": (
        ("maximum of shared windows", reduced_maximum),
        ("rolling maximum", rolling_maximum),
        ("sectioned maximum", sectioned_maximum),
        ("direct maximum", direct_maximum),
    ),
    "average": (
        ("mean of planes", mean_average),
        ("average of wide windows", wide_average),
        ("average of columns", column_average),
    ),
}
