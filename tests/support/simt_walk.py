"""The GPU kernel of maxima in channels-last volumes, on the host: indices of all kinds.

Called as simt_few.py is; it also prints what the problems reached.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from math import inf, prod
from random import Random

import numpy as np

import simt
from cuda_problems import H200, changed, strided
from geometries import flat, maxima_gradient
from pooltide.geometry import Axis
from pooltide.kernels.cuda.choice import candidate
from pooltide.kernels.cuda.cost import exploring
from pooltide.kernels.cuda.maximum_gradient import scatter_walk
from pooltide.kernels.cuda.maximum_gradient.scatter_channels import scatter_channels
from pooltide.kernels.cuda.task import Launch, Task
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem
from simt_few import ONE, check_bits, dealt, indices_of

POOLS: list[tuple[tuple[int, int], tuple[Axis, Axis, Axis]]] = [
    ((1, 37), (strided(11, 3, 1, 1), strided(5, 3, 1, 1), strided(7, 2, 1, 1))),
    ((1, 64), (strided(9, 2, 3, 0), strided(4, 3, 2, 1), strided(5, 3, 2, 1))),
    ((1, 20), (Axis(7, 5), Axis(3, 2), Axis(5, 3))),
    ((2, 16), (strided(8, 1, 3, 0), strided(5, 3, 1, 1), strided(3, 2, 1, 0))),
    ((1, 24), (strided(7, 3, 1, 1), strided(6, 3, 1, 1), strided(1, 1, 1, 0))),
    ((1, 16), (strided(6, 3, 1, 1), strided(9, 5, 1, 2), strided(17, 5, 1, 2))),
]
TILES = (4, 64)  # cells of a slice that a warp keeps; 64: one warp computes an image, in one launch
LANES = (32, 16, 8)


def problems(dtype: str) -> Iterator[tuple[Problem, str, tuple[Launch, ...], str]]:
    for n, ((batch, axes), cells, index) in enumerate(product(POOLS, TILES, ("INT32", "INT64", "UINT8"))):
        if index == "UINT8" and any(axis.adaptive for axis in axes):
            continue
        problem = maxima_gradient(batch, axes, DTYPES[dtype], DTYPES[index])
        task = Task(problem, "channels_last", ONE, aligned=batch[1] % 4 == 0)
        size = 3 * cells * 32 * task.sum_bytes
        lanes = LANES[(n + n // 3) % 3]  # each with every index
        with changed(scatter_walk, WALK_BYTES=size, LANES=(lanes,)), exploring(Random(n), inf):
            found = candidate(task, scatter_walk.walk_channels)
        assert not isinstance(found, str), found
        for kind in ("own", "crowded", "repeated", "stray", "outside"):
            yield problem, "channels_last", found, kind


def reached(found: tuple[Launch, ...]) -> set[str]:
    tiles, ring = found[0].tables[0], found[0].arguments[-4]
    options = dict(found[0].source.defines)
    assert isinstance(ring, int)
    ways = {"a launch" if len(found) == 1 else "two launches", f"{32 // options['LANES']} groups"}
    ways |= {"walks"} if (tiles[:, 3] > ring).any() else set()
    ways |= {"whole rows" if options["LINEAR"] else "parts of rows"}
    ways |= {"rows of one cell"} if options["ONES"] else set()
    ways |= {f"{options['AHEAD']} ahead"}
    return ways


def check_counts(listed: list[tuple[Problem, str, tuple[Launch, ...], str]]) -> None:
    """If indices name cells of their windows, the first launch adds every gradient; walks, and boxes instead."""
    chosen = [(problem, layout, found) for problem, layout, found, kind in listed if kind == "own"]
    chosen += [
        (problem, layout, scatter_channels(Task(problem, layout, H200, aligned=False)))
        for problem, layout, _ in chosen
        if problem.index_bytes == 8
    ]
    simt.build(found[0].source for _, _, found in chosen)
    for problem, layout, found in chosen:
        rng = np.random.default_rng(1)
        grad = flat(
            rng.standard_normal(problem.batch + problem.output_plane).astype(problem.dtype.numpy), layout
        )
        out = np.zeros(prod(problem.batch + problem.input_plane), problem.dtype.numpy)
        counts = np.zeros(found[0].counts, np.int32)
        if len(counts):
            given = [grad, flat(indices_of(problem, "own", rng), layout), out, np.zeros(2, np.uint64), counts]
            first = found[0]
            arrays = [*given, *first.tables]
            simt.run(first.source, first.grid, first.block, first.shared, first.arguments, arrays)
            assert counts.sum() == grad.size, f"{problem}: {counts.sum()} of {grad.size} gradients were added"


def main(dtypes: str, line: str = "") -> None:
    listed = list(dealt(problems, dtypes))
    ways = {"faults"} if check_bits(listed, line, anywhere=False) else set()
    check_counts(listed)
    for _, _, found, _ in listed:
        ways |= reached(found)
    print(f"{len(listed)} problems: {', '.join(sorted(ways))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
