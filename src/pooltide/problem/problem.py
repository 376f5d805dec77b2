"""The problem: what a call computes, without the names and the argument forms of its operator.

Every pool and every gradient is planes × three axes. Ranks below five get unit axes in front, so that a 2-D
operator is the 3-D one with depth 1. Six kinds, with q a window:

    average            out[q] = (sum of its cells, (d, h, w) ascending, from +0) / divisor[q]
    maximum            out[q] = its largest cell, the first of equals; a NaN is larger than all else, and the
                       last NaN wins; indices[q] = that cell, flat within the plane: (d·H + h)·W + w. A
                       window without cells, which dilation can step over, has -inf, and the index, as in
                       PyTorch, of its first cell after the padding, which may be outside the plane
    average_gradient   out[cell] = sum over the windows q that hold the cell, (d, h, w) ascending, of
                       grad_output[q] / divisor[q]
    maximum_gradient   out[indices[q]] += grad_output[q], q ascending, within one plane
    unpool             out[indices[q]] = input[q], q ascending, within one plane; the other cells are 0
    unpool_gradient    out[q] = grad_output[indices[q]]

and one way per average to divide:

    chained    ((x / lenD) / lenH) / lenW                        adaptive average
    extent     x / (product of the windows' extents)             strided, padding counted
    valid      x / (product of the clipped lengths)              strided, padding not counted
    override   x / divisor                                       divisor_override
    mean       of a forward whose one window is the plane: 16 sums, cell i in the (i mod 16)th, added in
               pairs 8, 4, 2, 1 apart, divided by the number of cells (PyTorch's bits depend on the machine)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ..geometry import UNIT, Axis
from ..operators.call import Call
from ..operators.dtypes import DTYPES, DType
from ..operators.kinds import OfKind
from ..operators.window_rules import forward_plane, pools_globally, unpooled_plane
from .offsets import Offsets, offsets_of

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Problem(OfKind):
    kind: str  # average | maximum | average_gradient | maximum_gradient | unpool | unpool_gradient
    batch: tuple[int, int]  # N, C
    axes: tuple[Axis, Axis, Axis]  # d, h, w
    dtype: DType
    quotient: str = ""  # of an average: chained | extent | valid | override | mean
    divisor: int = 0  # of an override
    index_dtype: DType | None = None  # of indices, flat in the plane; None: there are none
    offsets: bool = False  # one-byte offsets in the window in place of indices
    rounding: str = "keep"  # of grad_output or input, before all else: keep | HFLOAT32 | FLOAT16

    @property
    def planes(self) -> int:
        return prod(self.batch)

    @property
    def output_plane(self) -> Triple:
        """The windows of a plane: the spatial shape of a pool's result, and of its grad_output."""
        d, h, w = self.axes
        return d.outputs, h.outputs, w.outputs

    @property
    def input_plane(self) -> Triple:
        """The cells of a plane: the spatial shape of a pool's input, and of its gradient.

        An unpool goes the other way: its input has the windows, its result the cells.
        """
        d, h, w = self.axes
        return d.length, h.length, w.length

    @property
    def dilation(self) -> Triple:
        d, h, w = self.axes
        return d.dilation, h.dilation, w.dilation

    @property
    def offset_tables(self) -> Offsets | None:
        """How offsets are read; None where indices are flat in their plane."""
        found = offsets_of(self.axes) if self.offsets else None
        assert found is not None or not self.offsets, "a window has more cells than a byte counts"
        return found

    @property
    def index_bytes(self) -> int:
        return 1 if self.offsets else self.index_dtype.itemsize if self.index_dtype else 0

    @property
    def cells(self) -> int:
        """Elements of the input."""
        return self.planes * prod(self.input_plane)

    @property
    def empty(self) -> bool:
        """Whether nothing is read or nothing is written."""
        return self.cells == 0 or prod(self.output_plane) == 0

    @property
    def least_bytes(self) -> int:
        """What must move: each element of input, gradients and indices read or written once."""
        windows = self.planes * prod(self.output_plane)
        return windows * (self.dtype.itemsize + self.index_bytes) + self.cells * self.dtype.itemsize

    @property
    def work(self) -> int:
        """The bytes that must move, or the cells of all windows if these are more."""
        longest = [axis.k or axis.length // max(axis.outputs, 1) + 2 for axis in self.axes]
        return max(self.least_bytes, self.planes * prod(self.output_plane) * prod(longest))

    @property
    def roles(self) -> tuple[str, ...]:
        """The arrays by their names in kernels.Arrays: those read, then the result."""
        indices = ("indices",) if self.index_bytes else ()
        return ("grad_output" if self.gradient else "input", *indices, "out")

    @property
    def results(self) -> tuple[str, ...]:
        """The arrays that the problem writes."""
        return ("indices", "out") if self.kind == "maximum" and self.index_bytes else ("out",)

    def shape(self, role: str) -> tuple[int, ...]:
        """The shape of an array: N, C and three spatial axes."""
        cells = "out" if self.gradient else "input"  # the array with a plane of cells
        if self.unpool:
            cells = "grad_output" if self.gradient else "out"
        return self.batch + (self.input_plane if role == cells else self.output_plane)

    def itemsize(self, role: str) -> int:
        return self.index_bytes if role == "indices" else self.dtype.itemsize

    def __str__(self) -> str:
        axes = " ".join(f"{n}:{axis}" for n, axis in zip("dhw", self.axes, strict=True) if axis != UNIT)
        how = f"{self.quotient}{f' {self.divisor}' if self.quotient == 'override' else ''}"
        if not self.average:
            how = "by offsets" if self.offsets else f"by {self.index_dtype}" if self.index_dtype else "values"
        source = "gradOutput" if self.gradient else "self"
        rounded = "" if self.rounding == "keep" else f", {source} rounded to {self.rounding}"
        n, c = self.batch
        return f"{self.kind} {self.dtype} {n}×{c} planes, {axes or '1→1'}, {how}{rounded}"


def lower(call: Call, indexed: bool = True) -> Problem:
    """The problem of a call that passed its rules; `indexed` False: of maxima the values alone are wanted."""
    operator, dtype = call.operator, call.source.dtype
    x, places = operator.by_role("input"), call.role("indices")
    assert x is not None
    batch, axes = call.batch(x.name), _axes(call, x.name)
    if not operator.average:
        indexed = indexed and operator.by_role("indices") is not None
        known = DTYPES["INT32"] if operator.masked else places.dtype if places else DTYPES["INT64"]
        index_dtype = known if indexed else None
        return Problem(operator.kind, batch, axes, dtype, index_dtype=index_dtype)
    quotient, divisor = _quotient(call)
    if operator.kind == "average" and quotient == "chained" and all(axis.outputs == 1 for axis in axes):
        quotient = "mean"
    return Problem(operator.kind, batch, axes, dtype, quotient, divisor, rounding=_rounding(call))


def _axes(call: Call, x: str) -> tuple[Axis, Axis, Axis]:
    lengths, grad = call.spatial(x), call.operator.by_role("grad_output")
    if call.operator.windows == "indexed":
        axes = [Axis(*sizes) for sizes in zip(unpooled_plane(call), lengths, strict=True)]
    elif call.operator.windows == "global":
        axes = [Axis(length, 1) for length in three_axes(lengths)]
    elif call.operator.windows == "adaptive":
        outputs = call.spatial(grad.name) if grad else call.pairs("output_size")
        axes = [Axis(*sizes) for sizes in zip(lengths, outputs, strict=True)]
    else:
        outputs = forward_plane(call)
        windows = zip(lengths, outputs, call.kernel, call.stride, call.padding, call.dilation, strict=True)
        axes = [strided_axis(*window) for window in windows]
    d, h, w = [UNIT] * (3 - len(axes)) + axes
    return d, h, w


def three_axes(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The axes before the last two merged into one, where there are more than three."""
    return lengths if len(lengths) <= 3 else (prod(lengths[:-2]), *lengths[-2:])


def strided_axis(length: int, outputs: int, k: int, s: int, p: int, dilation: int = 1) -> Axis:
    """An axis of windows. Kernel, dilation and the stride of a single window may exceed 64 bits.

    So these are clipped to the padded axis, which changes no window.
    """
    most = length + 2 * p
    dilation = min(dilation, max(most, 1))
    stride = s if outputs > 1 else min(s, max(most, 1))
    return Axis(length, outputs, min(k, (most - 1) // dilation + 1 if most else 1), stride, p, dilation)


def with_offsets(problem: Problem) -> Problem | None:
    """The same maxima with one-byte offsets, or None where a window has too many cells for them."""
    return replace(problem, index_dtype=None, offsets=True) if offsets_of(problem.axes) else None


def gradient_of(problem: Problem, dtype: DType | None = None) -> Problem:
    """The gradient of maxima, in their dtype or another; it reads the offsets or indices that they wrote."""
    return replace(problem, kind="maximum_gradient", dtype=dtype or problem.dtype)


def _quotient(call: Call) -> tuple[str, int]:
    if call.operator.windows != "strided":
        return "chained", 0
    if divisor := call.role("divisor_override"):
        return "override", divisor
    return ("extent" if call.role("count_include_pad") else "valid"), 0


def _rounding(call: Call) -> str:
    cube = call.operator.cube
    if cube is None or (call.product in cube.global_only and not pools_globally(call)):
        return "keep"
    return cube.action(call.product, call.source.dtype.name, call.role("cube_math_type"))
