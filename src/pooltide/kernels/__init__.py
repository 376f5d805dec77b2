"""Backends compute problems. Each is a module with the same few names.

    LAYOUTS                                    the memory layouts that its kernels read and write in place
    refuse(problem) -> str | None              why it can't compute this problem
    scratch(problem) -> int                    bytes of scratch that `run` takes
    run(problem, layout, arrays, scratch) -> IndexFault | None

`run` gets 5-D arrays (N, C, D, H, W) in `layout`, one of LAYOUTS, checked by others. It writes every cell
of the result. A gradient of maxima drops a contribution whose index is outside the plane, and reports the
first such index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of one call. A problem reads and writes only some of them; the others are None."""

    grad_output: Any = None  # read by gradients
    input: Any = None  # read by forwards
    indices: Any = None  # read by gradients of maxima, written by maxima
    out: Any = None  # the result


@dataclass(frozen=True, slots=True)
class IndexFault:
    """Some indices were outside the plane, and their contributions were dropped."""

    count: int
    position: int  # of the first, flat over (N, C, Do, Ho, Wo)
    value: int

    def message(self, argument: str, shape: Sequence[int], plane: Sequence[int]) -> str:
        """The sentence; `shape` is that of the indices, `plane` that of the cells they may name."""
        at = tuple(int(i) for i in np.unravel_index(self.position, tuple(shape)))
        more = f" ({self.count} such indices in all)" if self.count > 1 else ""
        size = "×".join(map(str, plane))
        if prod(plane) == 0:
            return (
                f"{argument}{list(at)} is {self.value}; the {size} plane has no cell that it could name, "
                f"so {argument} must be empty{more}."
            )
        return (
            f"{argument}{list(at)} is {self.value}; "
            f"it must be 0 to {prod(plane) - 1}, inside the {size} plane{more}."
        )
