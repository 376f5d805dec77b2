"""Backends compute problems. Each is a module with the same few names.

    LAYOUTS                                  the memory layouts its kernels read and write in place
    refuse(problem) -> str | None            why it can't do this problem
    scratch(problem) -> int                  bytes of scratch that `run` takes
    run(problem, layout, grad_output, indices, out, scratch) -> IndexFault | None

`run` gets 5-D arrays (N, C, D, H, W) that lie in `layout`, one of LAYOUTS, checked by others. It
writes every cell of `out`, drops a contribution whose index lies outside the plane, and reports the
first such index.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexFault:
    """Indices outside the plane were met, and what they carried was dropped."""

    count: int
    position: int  # of the first, flat over (N, C, Do, Ho, Wo)
    value: int
