"""The GPU kernel of maxima with few windows, on the host: indices of all kinds, results that begin anywhere.

    python tests/support/simt_few.py DTYPE [LINE]

prints how many problems had the expected bits, and by which launches. LINE is added to device.h, to break the
kernel. tests/cuda/test_simt_maxima.py starts this program with AddressSanitizer loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from random import Random
from typing import Any

import numpy as np

import simt
from cuda_problems import (
    H200,
    expected,
    own_indices,
    own_offsets,
    random_gradient,
    spoil,
    strided,
)  # fmt: skip
from enumeration import bits, difference
from geometries import flat, maxima_gradient
from pooltide.geometry import UNIT, Axis, tables
from pooltide.kernels.cuda.choice import candidates
from pooltide.kernels.cuda.cost import exploring
from pooltide.kernels.cuda.source import headers
from pooltide.kernels.cuda.task import Launch
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.offsets import offsets_of
from pooltide.problem.problem import Problem

NAME = "scatter of few windows"
ONE = replace(H200, multiprocessors=1)  # its blocks are so large that planes share them
POOLS: list[tuple[tuple[int, int], tuple[Axis, Axis, Axis]]] = [
    ((3, 5), (UNIT, Axis(31, 2), Axis(37, 3))),
    ((2, 3), (UNIT, strided(50, 15, 13, 3), strided(53, 15, 13, 2))),
    ((2, 290), (Axis(3, 1), Axis(7, 1), Axis(13, 1))),
    ((1, 300), (UNIT, Axis(12, 1), Axis(13, 1))),
]


def indices_of(problem: Problem, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Of each window a cell of its own; the one nearest to the plane's middle, so that many windows name the same
    cells; of few cells of its plane; of any; or some outside of the plane."""
    shape, cells = problem.batch + problem.output_plane, int(np.prod(problem.input_plane))
    if problem.offsets:
        anything = rng.integers(0, 256, shape).astype(np.uint8)
        return own_offsets(problem, rng) if kind in ("own", "crowded", "repeated") else anything
    found = own_indices(problem, rng)
    if kind == "crowded":
        spans = [tables(axis) for axis in problem.axes]
        d, h, w = (
            np.clip(axis.length // 2, t.start, t.end - 1) for axis, t in zip(problem.axes, spans, strict=True)
        )
        _, rows, columns = problem.input_plane
        found[...] = (d[:, None, None] * rows + h[:, None]) * columns + w
    if kind == "repeated":
        found[...] = rng.integers(0, 2, shape) * (cells - 1)
    elif kind == "stray":
        found[...] = rng.integers(0, cells, shape)
    elif kind == "outside":
        spoil(found, cells, rng, "outside")
    return found


def problems(dtype: str) -> Iterator[tuple[Problem, str, tuple[Launch, ...], str]]:
    for (batch, axes), index, layout, facts in product(
        POOLS, ("INT32", "INT64", "UINT8"), ("planes", "channels_last"), (H200, ONE)
    ):
        if index == "UINT8" and not offsets_of(axes):
            continue
        problem = maxima_gradient(batch, axes, DTYPES[dtype], DTYPES[index])
        for number, kind in enumerate(("own", "repeated", "stray", "outside")):
            with exploring(Random(number), inf):
                found = dict(candidates(problem, layout, facts))[NAME]
            yield problem, layout, found, kind


Trial = tuple[Problem, str, tuple[Launch, ...], str]


def dealt(problems: Callable[[str], Iterator[Trial]], dtypes: str) -> Iterator[Trial]:
    """Deals the problems out to the dtypes, whose names have commas between them: each problem runs in one dtype.

    The problems of an empty name are left out.
    """
    names = dtypes.split(",")
    for turn, dtype in enumerate(names):
        number = -1
        for trial in problems(dtype) if dtype else ():
            number += trial[3] == "own"  # the first of a problem
            if number % len(names) == turn:
                yield trial


def _computed(
    found: tuple[Launch, ...], given: list[Any], size: int, seed: int, skipped: int, texts: Any
) -> tuple[Any, Any]:
    """The result and the faults. The result begins `skipped` elements, or fewer, after a multiple of 16 bytes."""
    dtype = given[0].dtype
    vector = 16 // dtype.itemsize
    room = np.full(size + 2 * vector, np.nan, dtype)
    first = -room.__array_interface__["data"][0] // dtype.itemsize % vector + skipped % vector
    out = room[first : first + size]
    faults = np.array([0, 2**63 - 1], np.uint64)
    counts = np.full(max(found[0].counts, 1), -1, np.int32)
    for launch in found:
        simt.run(
            launch.source, launch.grid, launch.block, launch.shared, launch.arguments,
            [*given, out, faults, counts, *launch.tables], seed=seed, texts=texts,
        )  # fmt: skip
    return out, faults.tolist()


def way(found: tuple[Launch, ...], problem: Problem, layout: str) -> set[str]:
    inner = problem.batch[1] if layout == "channels_last" else 1
    many = np.prod(problem.output_plane) * inner > found[0].block
    if len(found) == 2:
        return {"two launches"}
    return {"one launch", "more windows than threads"} if many else {"one launch"}


def check_bits(
    listed: Sequence[tuple[Problem, str, tuple[Launch, ...], str]], line: str, anywhere: bool
) -> bool:
    """Whether an index was outside its plane. Compares bits and faults of all problems, and stops at the first.

    `line` is added to device.h. `anywhere`: results begin anywhere in a vector of 16 bytes.
    """
    texts = headers() | {"device.h": f"{headers()['device.h']}\n{line}\n"} if line else None
    simt.build((launch.source for _, _, found, _ in listed for launch in found), texts)
    faulty = False
    for number, (problem, layout, found, kind) in enumerate(listed):
        rng = np.random.default_rng(number)
        indices = indices_of(problem, kind, rng)
        with np.errstate(all="ignore"):
            grad = random_gradient(problem, rng)
        want, fault = expected(problem, grad, indices)
        given = [flat(grad, layout), flat(indices, layout)]
        out, faults = _computed(found, given, want.size, number, number if anywhere else 0, texts)
        label, right = f"{problem} {layout} {kind}", flat(want, layout)
        assert (bits(out) == bits(right)).all(), f"{label}: {difference(out, right)}"
        assert faults == ([fault.number, fault.position] if fault else [0, 2**63 - 1]), f"{label}: {faults}"
        faulty |= fault is not None
    return faulty


def main(dtypes: str, line: str = "") -> None:
    listed = list(dealt(problems, dtypes))
    ways = {"faults"} if check_bits(listed, line, anywhere=True) else set()
    for problem, layout, found, _ in listed:
        ways |= way(found, problem, layout)
    print(f"{len(listed)} problems: {', '.join(sorted(ways))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
