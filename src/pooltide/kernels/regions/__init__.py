"""The backends of pools over regions of interest, and the faults of their data.

They are as other backends (kernels/__init__.py), but a kernel takes grad_output, input, boxes, indices, out
and the number of threads. Boxes are (K, 5), contiguous, in the dtype of sums: rows of image, x1, y1, x2, y2.

A kernel for the host reports bad data before it writes anything; one for a GPU counts it, and leaves it out:
a region of no image has zeros as its result, indices of -1, and adds nothing to a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...problem.regions import RegionProblem


class RegionFault(NamedTuple):
    """Regions of no image, or indices outside the plane."""

    number: int
    position: int  # of the first: a region; K or more: K + an index, flat over (K, C, PH, PW)
    value: int  # of the index

    def message(self, problem: RegionProblem, boxes: Any) -> str:
        """The sentence; `boxes` is the array of the call, or what says the image of a region."""
        at, images = self.position - problem.regions, problem.batch[0]
        if at < 0:
            more = f" ({self.number} such regions in all)" if self.number > 1 else ""
            known = f"a whole number, 0 to {images - 1}" if images else "none, as input has no images"
            return (
                f"boxes[{self.position}, 0], an image, is {float(boxes[self.position, 0]):g}; "
                f"it must be {known}{more}."
            )
        shape: Sequence[int] = problem.shape("grad_output")
        place = tuple(int(i) for i in np.unravel_index(at, tuple(shape)))
        more = f" ({self.number} such indices in all)" if self.number > 1 else ""
        h, w = problem.plane
        return (
            f"indices{list(place)} is {self.value}; it must be 0 to {h * w - 1}, inside the {h}×{w} plane, "
            f"or -1, which roi_pool gives an empty bin{more}."
        )
