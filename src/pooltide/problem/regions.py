"""The problem of a pool over regions of interest: what it computes, without data.

Region k is row k of `boxes`, (image, x1, y1, x2, y2). It is divided into PH × PW bins. Four pools, and the
gradient of each with respect to the input:

    roi_align       a bin has the mean of samples, each interpolated between four cells
    roi_align_max   a bin has the largest of these four cells times their weights, of all samples: ONNX's
                    maximum, which has no gradient here. A sample outside the plane counts 0; NaN is the
                    largest
    roi_pool        a bin has the largest of its cells
    ps_roi_align    as roi_align; bin (ph, pw) of channel c reads input channel (c·PH + ph)·PW + pw
    ps_roi_pool     the mean of the cells of a bin; channels as in ps_roi_align

A gradient's cell is the sum over regions, ascending, then bins, then samples. docs/regions.md is the
contract: the order of all sums, and the arithmetic of positions and weights. Boxes are data: nothing here
reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..operators.call import Call
from ..operators.dtypes import DTYPES, DType
from ..operators.kinds import OfKind
from ..operators.region_rules import bins_of, image_shape, pooled_channels

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RegionProblem(OfKind):
    kind: str  # roi_align | roi_pool | ps_roi_align | ps_roi_pool, each also with _gradient
    batch: Pair  # N, C of the input
    plane: Pair  # H, W of the input
    regions: int
    bins: Pair  # PH, PW
    dtype: DType
    spatial_scale: float = 1.0
    sampling_ratio: int = -1  # samples of a bin on each axis; 0 or less: its cells, rounded up
    aligned: bool = False  # positions are half a cell less
    index_dtype: DType | None = None  # of roi_pool; None: there are no indices

    @property
    def rounding(self) -> str:
        return "keep"  # no operator rounds what it reads

    @property
    def channels(self) -> int:
        """Channels of the pooled side."""
        return pooled_channels(self.kind, self.batch[1], self.bins)

    @property
    def sampled(self) -> bool:
        """Whether bins have samples; if not, cells."""
        return "align" in self.kind

    @property
    def maxima(self) -> bool:
        """Whether a bin has its largest cell."""
        return self.kind.startswith("roi_pool")

    @property
    def roles(self) -> tuple[str, ...]:
        """The arrays by their names in kernels.Arrays, those read, then the result; boxes come besides."""
        indices = ("indices",) if self.index_dtype else ()
        return ("grad_output" if self.gradient else "input", *indices, "out")

    @property
    def results(self) -> tuple[str, ...]:
        """The arrays that the problem writes."""
        return ("indices", "out") if self.index_dtype and not self.gradient else ("out",)

    def shape(self, role: str) -> tuple[int, ...]:
        cells = "out" if self.gradient else "input"
        if role == cells:
            return self.batch + self.plane
        return (self.regions, 5) if role == "boxes" else (self.regions, self.channels, *self.bins)

    def itemsize(self, role: str) -> int:
        if role == "boxes":
            return self.dtype.accumulator.itemsize
        return self.index_dtype.itemsize if role == "indices" and self.index_dtype else self.dtype.itemsize

    @property
    def empty(self) -> bool:
        """Whether nothing is read or nothing is written."""
        return 0 in (*self.batch, self.regions)

    @property
    def least_bytes(self) -> int:
        """What must move: each element of boxes, input, gradients and indices read or written once."""
        return sum(prod(self.shape(role)) * self.itemsize(role) for role in (*self.roles, "boxes"))

    @property
    def work(self) -> int:
        """About the time of a call, in bytes that memory moves."""
        samples = max(self.sampling_ratio, 2) ** 2 if self.sampled else 8
        return self.least_bytes + prod(self.shape("grad_output")) * samples * 4

    def __str__(self) -> str:
        n, c = self.batch
        (h, w), (ph, pw) = self.plane, self.bins
        ratio = f", sampling ratio {self.sampling_ratio}" if self.sampled else ""
        aligned = ", aligned" if self.aligned and not self.position_sensitive else ""
        index = f", by {self.index_dtype}" if self.index_dtype else ""
        return (
            f"{self.kind} {self.dtype} {n}×{c} planes {h}×{w}, {self.regions} regions of {ph}×{pw} bins, "
            f"scale {self.spatial_scale:g}{ratio}{aligned}{index}"
        )


def lower_regions(call: Call, indexed: bool = True) -> RegionProblem:
    """The problem of a call that passed its rules; `indexed` False: of maxima the values alone are wanted."""
    operator, boxes, places = call.operator, call.role("boxes"), call.role("indices")
    n, c, h, w = image_shape(call)
    index_dtype = None
    if operator.by_role("indices") is not None and indexed:
        index_dtype = places.dtype if places else DTYPES["INT32"]  # as torchvision
    return RegionProblem(
        f"{operator.kind}_max" if call.role("mode") == "max" else operator.kind,
        (n, c),
        (h, w),
        boxes.shape[0],
        bins_of(call),
        call.source.dtype,
        1.0 if call.role("spatial_scale") is None else call.role("spatial_scale"),
        max(call.role("sampling_ratio") or -1, -1),
        bool(call.role("aligned")) or operator.position_sensitive,
        index_dtype,
    )
