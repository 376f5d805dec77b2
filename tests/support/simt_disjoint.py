"""The GPU kernel of maxima of disjoint windows, on the host: indices of all kinds, results that begin anywhere.

Called as simt_few.py is; it also prints what the problems reached.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import cycle, product

from cuda_problems import changed, strided
from geometries import maxima_gradient
from pooltide.geometry import UNIT, Axis
from pooltide.kernels.cuda.choice import candidate
from pooltide.kernels.cuda.maximum_gradient import scatter_disjoint
from pooltide.kernels.cuda.task import Launch, Task
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.offsets import offsets_of
from pooltide.problem.problem import Problem
from simt_few import ONE, check_bits, dealt

POOLS: list[tuple[tuple[int, int], tuple[Axis, Axis, Axis]]] = [
    ((2, 101), (strided(7, 2, 2, 1), strided(5, 3, 3, 1), strided(9, 2, 2, 0))),
    ((1, 12), (strided(41, 2, 2, 0), strided(3, 3, 3, 0), strided(4, 2, 2, 1))),
    ((1, 37), (UNIT, strided(13, 3, 3, 0), strided(11, 2, 2, 1))),
    ((2, 24), (Axis(4, 2), Axis(7, 1), Axis(15, 5))),
    ((1, 21), (strided(9, 2, 3, 1), Axis(5, 5), strided(6, 2, 3, 0))),
    ((2, 16), (UNIT, Axis(9, 3, 3, 3, 0), Axis(25, 4, 3, 6, 0, 2))),
]
SIZES = (80, 512, 6 << 10)  # elements of boxes


def problems(dtype: str) -> Iterator[tuple[Problem, str, tuple[Launch, ...], str]]:
    turn = cycle(("INT64", "UINT8", "INT32", "INT64", "UINT8"))
    for (batch, axes), size in product(POOLS, SIZES):
        index = next(turn)
        index = index if index != "UINT8" or offsets_of(axes) else "INT32"
        problem = maxima_gradient(batch, axes, DTYPES[dtype], DTYPES[index])
        limits = {"BOX_BYTES": size * problem.dtype.itemsize, "LEAST_CHUNK": 16}
        with changed(scatter_disjoint, **limits, BLOCKS=1):
            found = candidate(Task(problem, "channels_last", ONE, False), scatter_disjoint.scatter_disjoint)
        assert not isinstance(found, str), found
        for kind in ("own", "stray", "outside"):
            yield problem, "channels_last", found, kind


def reached(found: tuple[Launch, ...]) -> set[str]:
    defines = dict(found[0].source.defines)
    deep = "several slices" if defines["DEEP"] else "one slice"
    return {f"merged {defines['MERGED']}", f"indices of {defines['INDEX']} bytes", deep}


def main(dtypes: str, line: str = "") -> None:
    listed = list(dealt(problems, dtypes))
    ways = {"faults"} if check_bits(listed, line, anywhere=True) else set()
    for _, _, found, _ in listed:
        ways |= reached(found)
    print(f"{len(listed)} problems: {', '.join(sorted(ways))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
