"""Backends compute problems. Each is a module with the same few names.

    LAYOUTS                                    the memory layouts that its kernels read and write in place
    refuse(problem, layout) -> str | None      why it can't compute this problem
    prepare(problem, layout, device) -> Prepared | None
    scratch(problem) -> int                    bytes of scratch that `run` takes
    run(problem, layout, arrays, scratch) -> IndexFault | None

`run` gets arrays of the problem's shapes in `layout`, one of LAYOUTS, checked by others: 5-D (N, C, D, H, W);
of pools over regions of interest 4-D. It writes every cell
of the result. A gradient of maxima drops a contribution whose index is outside the plane, and reports the
first such index. `prepare` returns None if the backend has no kernel that takes addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from types import NotImplementedType
from typing import Any, NamedTuple, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of one call. A problem reads and writes only some of them; the others are None."""

    grad_output: Any = None  # read by gradients
    input: Any = None  # read by forwards
    indices: Any = None  # read by gradients of maxima, written by maxima
    out: Any = None  # the result
    boxes: Any = None  # read by pools over regions of interest: (K, 5), contiguous, in the dtype of sums


class IndexFault(NamedTuple):
    """Some indices were outside the plane, and their contributions were dropped."""

    number: int
    position: int  # of the first, flat over (N, C, Do, Ho, Wo)
    value: int

    def message(self, argument: str, shape: Sequence[int], plane: Sequence[int]) -> str:
        """The sentence; `shape` is that of the indices, `plane` that of the cells they may name."""
        at = tuple(int(i) for i in np.unravel_index(self.position, tuple(shape)))
        more = f" ({self.number} such indices in all)" if self.number > 1 else ""
        cells = f"row of {plane[0]}" if len(plane) == 1 else f"{'×'.join(map(str, plane))} plane"
        if prod(plane) == 0:
            return (
                f"{argument}{list(at)} is {self.value}; the {cells} has no cell that it could name, "
                f"so {argument} must be empty{more}."
            )
        return (
            f"{argument}{list(at)} is {self.value}; "
            f"it must be 0 to {prod(plane) - 1}, inside the {cells}{more}."
        )


# Takes grad_output, input, indices, out (None for those that the problem does not have) and the number of
# threads. Returns None for success, an IndexFault's values for an index outside its plane, and NotImplemented
# for memory that it can't take: a misaligned address, or arrays that overlap. Then it has written nothing.
Kernel = Callable[..., tuple[int, int, int] | NotImplementedType | None]


class Prepared(Protocol):
    """A problem with its tables on a device. A GPU's `run` counts bad indices, and returns None."""

    @property
    def nbytes(self) -> int: ...

    @property
    def run(self) -> Kernel:
        """Takes addresses on the device; for the host also arrays, of any rank, in the layout."""
