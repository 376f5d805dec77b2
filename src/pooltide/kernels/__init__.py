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

from dataclasses import dataclass
from typing import Any


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
