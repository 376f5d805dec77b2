"""The GPU kernel of maxima that writes named cells, on the host: indices of all kinds, results that begin anywhere.

    python tests/simt_named.py DTYPE [LINE]

prints how many problems had the expected bits, and what they reached. LINE is added to device.h, to break the
kernel. tests/test_simt_maxima.py starts this program with AddressSanitizer loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import cycle, product

from cuda_problems import H200, any_cost, changed, strided
from simt_few import check_bits

from geometries import maxima_gradient
from pooltide.geometry import UNIT, Axis
from pooltide.kernels.cuda import named_plan
from pooltide.kernels.cuda.task import Launch, Task
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.offsets import offsets_of
from pooltide.problem.problem import Problem

POOLS: list[tuple[tuple[int, int], tuple[Axis, Axis, Axis]]] = [
    ((2, 21), (strided(7, 3, 2, 1), strided(5, 3, 2, 1), strided(9, 3, 2, 0))),
    ((1, 3), (strided(41, 2, 2, 0), strided(3, 3, 3, 0), strided(4, 2, 2, 1))),
    ((1, 37), (UNIT, strided(13, 3, 3, 0), strided(11, 2, 2, 1))),
    ((2, 3), (Axis(4, 3), Axis(7, 2), Axis(16, 5))),
    ((1, 24), (strided(9, 5, 2, 2), strided(5, 3, 1, 1), strided(6, 2, 3, 0))),
    ((2, 2), (strided(3, 2, 2, 0), Axis(9, 9, 3, 1, 1), Axis(25, 11, 3, 2, 2, 2))),
]
SIZES = (80, 512, 6 << 10)  # elements of boxes


def problems(dtype: str) -> Iterator[tuple[Problem, str, tuple[Launch, ...], str]]:
    turn = cycle(("INT64", "UINT8", "INT32", "INT64", "UINT8"))
    for (batch, axes), layout, size in product(POOLS, ("planes", "channels_last"), SIZES):
        index = next(turn)
        index = index if index != "UINT8" or offsets_of(axes) else "INT32"
        problem = maxima_gradient(batch, axes, DTYPES[dtype], DTYPES[index])
        limits = {"BOX_BYTES": size * problem.dtype.itemsize, "LEAST_CHUNK": 16}
        with any_cost(), changed(named_plan, **limits, BLOCKS=1):
            found = named_plan.scatter_named(Task(problem, layout, H200, aligned=False))
        assert not isinstance(found, str), found
        for kind in ("own", "stray", "outside") if size == 512 else ("own",):
            yield problem, layout, found, kind


def reached(found: tuple[Launch, ...]) -> set[str]:
    defines = dict(found[0].source.defines)
    return {f"merged {defines['MERGED']}", "disjoint" if defines["HELD"] == 1 else "compared"}


def main(dtype: str, line: str = "") -> None:
    listed = list(problems(dtype))
    ways = {"faults"} if check_bits(listed, line, anywhere=True) else set()
    for _, _, found, _ in listed:
        ways |= reached(found)
    print(f"{len(listed)} problems: {', '.join(sorted(ways))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
