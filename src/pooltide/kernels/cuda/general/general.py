"""Plans the general kernels, general.cu, which take everything but dtypes as arguments.

A problem runs on its general kernel while its own kernel is being compiled (launch.py), with the same bits.
`sources` lists all 36 of them, so that they can be compiled before they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from ...reference import as_float
from ..average.quotients import MEAN
from ..kernel_tables import cdiv
from ..maximum_gradient.two_passes import redo
from ..source import Argument, Source
from ..task import ELEMENTS, THREADS, Launch, Task

FILE = "general.cu"
CHUNK = 4 * THREADS  # elements of a block
BAND_BYTES = 4096  # of sums that a warp keeps where indices are outside their windows
KINDS = {"average": 0, "maximum": 1, "average_gradient": 2, "maximum_gradient": 3}  # KIND of general.cu
QUOTIENTS = {"": 0, "chained": 0, "extent": 1, "valid": 2, "override": 3}
_POINTERS = {
    "average": (("const Element*", "x"), ("Element*", "out")),
    "maximum": (("const Element*", "x"), ("Element*", "out"), ("Index*", "places")),
    "average_gradient": (("const Element*", "grad"), ("Element*", "out")),
    "maximum_gradient": (
        *(("const Element*", "grad"), ("const Index*", "indices"), ("Element*", "out")),
        *(("u64*", "faults"), ("int*", "counts")),
    ),
}
_NUMBERS = (
    ("i64", "units"),
    ("double", "divisor"),
    *(("int", name) for name in ("inner", "parts", "chunk", "redo", "quotient")),
    *(("int", name) for name in ("most_d", "most_h", "most_w")),
    *(("Axis", name) for name in "dhw"),
)


def general(task: Task) -> tuple[Launch, ...] | str:
    """The launches of the general kernel, which takes no tables."""
    problem = task.problem
    if problem.quotient == "mean":
        return MEAN
    if prod(max(axis.reach, axis.length) for axis in problem.axes) >= 2**63:
        return "a divisor may exceed 64 bits"
    elements = prod(problem.input_plane if problem.gradient else problem.output_plane) * task.inner
    parts = cdiv(elements, CHUNK)
    grid = task.planes * parts
    if grid >= 2**31:
        return f"{grid} blocks are more than a grid numbers"
    divisor = float(as_float(problem.divisor, problem.dtype.accumulator)) if problem.divisor else 0.0
    most = problem.offset_tables.most if problem.offset_tables else (1, 1, 1)
    arguments: list[Argument] = [task.planes, divisor, task.inner, parts, CHUNK, 0]
    arguments += [QUOTIENTS[problem.quotient], *most]
    arguments += [(a.length, a.outputs, a.k, a.s, a.p, a.dilation) for a in problem.axes]
    block = min(cdiv(elements, 32) * 32, THREADS)
    source = _source(problem.kind, problem.dtype.name, problem.index_bytes)
    launch = Launch(source, grid, block, 0, (), tuple(arguments), counts=grid if parts > 1 else 0)
    if problem.kind != "maximum_gradient" or parts == 1:
        return (launch,)
    return launch, redo(task, launch)


def sources() -> Iterator[Source]:
    """Every general kernel."""
    index_bytes = {"average": (0,), "average_gradient": (0,), "maximum": (0, 1, 4, 8)}
    for kind, dtype in product(KINDS, ELEMENTS):
        for index in index_bytes.get(kind, (1, 4, 8)):
            yield _source(kind, dtype, index)


def _source(kind: str, dtype: str, index_bytes: int) -> Source:
    pointers = _POINTERS[kind] if index_bytes else _POINTERS[kind][:2]
    index = (("INDEX", index_bytes),) if index_bytes else ()
    sum_bytes = 8 if dtype == "FLOAT64" else 4
    defines = (
        *(("ELEMENT", ELEMENTS[dtype]), *index, ("KIND", KINDS[kind])),
        *(("THREADS", THREADS), ("BAND", BAND_BYTES // sum_bytes)),
    )
    return Source(FILE, "general", (*pointers, *_NUMBERS), defines)
