"""The canonical problem: what is left of a checked call when its spelling is gone.

Every gradient here is planes × three axes. Ranks below five get unit axes in front, so that a 2-D
operator is the 3-D one with depth 1. Two kinds:

    average   grad_input[cell] = sum over the windows that hold the cell, (d, h, w) ascending, of
              grad_output[window] / divisor[window]
    indexed   grad_input[indices[q]] += grad_output[q], q ascending, within one plane; UINT8 indices
              are offsets in q's window (offsets.py), known only to those who made them

and one way per average operator to take the quotient:

    chained   ((g / lenD) / lenH) / lenW                        adaptive average
    extent    g / (product of the windows' extents)             strided, padding counted
    valid     g / (product of the clipped lengths)              strided, padding not counted
    override  g / divisor                                       divisor_override
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from .call import Call
from .dtypes import DTYPES, DType
from .geometry import UNIT, Axis
from .offsets import Offsets, offsets_of
from .rules import pools_globally


@dataclass(frozen=True, slots=True)
class Problem:
    kind: str  # average | indexed
    batch: tuple[int, int]  # N, C
    axes: tuple[Axis, Axis, Axis]  # d, h, w
    dtype: DType
    quotient: str = ""  # of an average: chained | extent | valid | override
    divisor: int = 0  # of an override
    index_dtype: DType | None = None  # of an indexed problem
    rounding: str = "keep"  # gradOutput first: keep | HFLOAT32 | FLOAT16
    dilation: tuple[int, int, int] = (1, 1, 1)  # of offsets: a window's cells lie so far apart

    @property
    def planes(self) -> int:
        return prod(self.batch)

    @property
    def output_plane(self) -> tuple[int, int, int]:
        """The spatial shape of grad_output."""
        d, h, w = self.axes
        return d.outputs, h.outputs, w.outputs

    @property
    def input_plane(self) -> tuple[int, int, int]:
        """The spatial shape of grad_input."""
        d, h, w = self.axes
        return d.length, h.length, w.length

    @property
    def offsets(self) -> Offsets | None:
        """How UINT8 indices are read; None where indices are flat in their plane."""
        if self.index_dtype is None or self.index_dtype.name != "UINT8":
            return None
        d, h, w = (cells_apart(axis, step) for axis, step in zip(self.axes, self.dilation, strict=True))
        found = offsets_of((d, h, w), self.dilation)
        assert found is not None, "a window has more cells than a byte counts"
        return found

    @property
    def cells(self) -> int:
        """Elements of grad_input."""
        return self.planes * prod(self.input_plane)

    @property
    def least_bytes(self) -> int:
        """What must move: grad_output and indices read once, grad_input written once."""
        read = self.dtype.itemsize + (self.index_dtype.itemsize if self.index_dtype else 0)
        return self.planes * prod(self.output_plane) * read + self.cells * self.dtype.itemsize

    def __str__(self) -> str:
        axes = " ".join(f"{n}:{axis}" for n, axis in zip("dhw", self.axes, strict=True) if axis != UNIT)
        how = f"{self.quotient}{f' {self.divisor}' if self.quotient == 'override' else ''}"
        if self.index_dtype:
            how = f"by {self.index_dtype}"
        rounded = "" if self.rounding == "keep" else f", gradOutput rounded to {self.rounding}"
        n, c = self.batch
        return f"{self.kind} {self.dtype} {n}×{c} planes, {axes or '1→1'}, {how}{rounded}"


def lower(call: Call) -> Problem:
    """The problem of a call that passed its rules."""
    grad, x = call.role("grad_output"), call.role("input")
    spatial = len(call.operator.axes)
    name = call.operator.by_role("input")
    assert name is not None
    batch = call.batch(name.name)
    lengths, outputs = x.shape[-spatial:], grad.shape[-spatial:]
    if call.operator.windows == "adaptive":
        axes = [Axis(*sizes) for sizes in zip(lengths, outputs, strict=True)]
    else:
        windows = zip(lengths, outputs, call.reach, call.stride, call.padding, strict=True)
        # No window sees more than the padded axis; a dilated one may reach beyond 64 bits.
        axes = [Axis(n, o, min(k, n + 2 * p), s, p) for n, o, k, s, p in windows]
    d, h, w = [UNIT] * (3 - spatial) + axes
    if call.operator.kind == "indexed":
        index_dtype = DTYPES[call.role("indices").dtype.name]
        return Problem("indexed", batch, (d, h, w), grad.dtype, index_dtype=index_dtype)
    quotient, divisor = _quotient(call)
    return Problem("average", batch, (d, h, w), grad.dtype, quotient, divisor, rounding=_rounding(call))


def cells_apart(axis: Axis, step: int) -> Axis:
    """An axis whose k is a window's reach, with k the number of its cells, `step` apart."""
    return axis if axis.adaptive else replace(axis, k=(axis.k - 1) // step + 1)


def _quotient(call: Call) -> tuple[str, int]:
    if call.operator.windows == "adaptive":
        return "chained", 0
    if divisor := call.role("divisor_override"):
        return "override", divisor
    return ("extent" if call.role("count_include_pad") else "valid"), 0


def _rounding(call: Call) -> str:
    cube = call.operator.cube
    if cube is None or (call.product in cube.global_only and not pools_globally(call)):
        return "keep"
    dtype = call.role("grad_output").dtype.name
    return cube.action(call.product, dtype, call.role("cube_math_type"))
