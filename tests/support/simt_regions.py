"""Runs the GPU kernels of pools over regions on the host, and compares their bits with the reference's.

    python simt_regions.py POOL DTYPES FIRST_SEED SEEDS

Boxes are drawn: usual ones, empty, inverted, on the border, outside, huge, NaN, of a wrong image.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import simt
from pooltide.kernels import Arrays
from pooltide.kernels.cuda.regions.region_launches import POOLS, launches, sources
from pooltide.kernels.cuda.task import ELEMENTS
from pooltide.kernels.regions import reference
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.regions import RegionProblem

_NONE = 2**63 - 1


def drawn(rng: np.random.Generator, pool: str, dtype: str, gradient: bool) -> RegionProblem:
    bins = (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    channels = int(rng.choice([1, 3, 4, 9, 37] if not pool.startswith("ps_") else [1, 2, 5]))
    channels *= bins[0] * bins[1] if pool.startswith("ps_") else 1
    plane = (int(rng.integers(1, 12)), int(rng.integers(1, 20)))
    if pool == "roi_pool" and rng.integers(2):
        plane = (35, 41)
    indexed = pool == "roi_pool" and (gradient or rng.integers(3) > 0)
    return RegionProblem(
        pool + ("_gradient" if gradient else ""), (int(rng.integers(1, 4)), channels), plane, int(rng.integers(1, 20)),
        bins, DTYPES[dtype], float(rng.choice([1.0, 0.5, 0.3])), int(rng.choice([-1, 1, 2, 3, 9])),
        bool(rng.integers(2)) or pool == "ps_roi_align", DTYPES[rng.choice(["INT32", "INT64"])] if indexed else None,
    )  # fmt: skip


def drawn_boxes(rng: np.random.Generator, problem: RegionProblem) -> Any:
    size = np.array(problem.plane[::-1] * 2) / problem.spatial_scale
    boxes = rng.uniform(-0.3, 1.3, (problem.regions, 4)) * size
    boxes[:, 2:] = boxes[:, :2] + rng.uniform(0, 1, (problem.regions, 2)) ** 2 * size[:2]
    boxes[rng.random(problem.regions) < 0.3] = np.round(boxes[0])
    for k in np.flatnonzero(rng.random(problem.regions) < 0.4):
        odd = rng.choice([np.nan, np.inf, -np.inf, 1e30, -1e30, 1e9, -1e9, 4e4, -7e4, 0.0, 1e-30, -1.0])
        boxes[k, rng.integers(4)] = odd
        if rng.integers(3) == 0:
            boxes[k, :] = [-1e9, -3e7, 1e9, 2e9]
    image = rng.integers(0, problem.batch[0], problem.regions).astype(float)
    wrong = rng.random(problem.regions) < 0.1
    image[wrong] = rng.choice([-1.0, 0.5, np.nan, problem.batch[0], 1e30, np.inf], int(wrong.sum()))
    return np.concatenate([image[:, None], boxes], 1).astype(problem.dtype.accumulator)


def expected(problem: RegionProblem, arrays: Arrays) -> int:
    """Writes the reference's results without regions of no image and bad indices; returns how many there are."""
    image = arrays.boxes[:, 0]
    good = (image >= 0) & (image < problem.batch[0]) & (image == np.floor(image))
    faults = int((~good).sum())
    boxes, indices = arrays.boxes.copy(), arrays.indices
    boxes[~good, 0] = 0
    if problem.gradient and indices is not None:
        bad = (indices < -1) | (indices >= problem.plane[0] * problem.plane[1])
        faults += int(bad.sum())
        indices = np.where(bad | ~good[:, None, None, None], -1, indices)
    grad = arrays.grad_output
    if problem.gradient:
        kept = [np.flatnonzero(good)] * 2
        boxes, grad = boxes[kept[0]], grad[kept[0]]
        indices = None if indices is None else indices[kept[0]]
    fault = reference.run(
        problem, "planes", Arrays(grad, arrays.input, indices, arrays.out, boxes), np.empty(0)
    )
    assert fault is None, fault
    if not problem.gradient:
        arrays.out[~good] = 0
        if arrays.indices is not None:
            arrays.indices[~good] = -1
    return faults


def computed(problem: RegionProblem, arrays: Arrays, inner: bool, direct: bool, label: str) -> int:
    """Writes the kernels' results, of arrays in their layout; returns the faults counted."""
    named: dict[str, Any] = {"boxes": arrays.boxes, "faults": np.array([0, _NONE], np.uint64), "moved": None}
    named |= {"x": arrays.input, "grad": arrays.grad_output, "indices": arrays.indices, "out": arrays.out}
    named["reaches"] = np.full((problem.regions, 5), -7, np.int32)
    found = launches(problem, "channels_last" if inner else "planes", direct)
    names = (name for _, name in found[0].source.parameters[found[0].source.pointers :])
    stride = dict(zip(names, found[0].arguments, strict=True))["stride"]
    if problem.gradient and not direct and problem.index_dtype is None:
        k, _, ph, pw = problem.shape("grad_output")
        named["moved"] = np.full((k, ph, pw, stride), np.nan, arrays.grad_output.dtype)
    nothing = np.empty(0, np.uint8)
    for launch in found:
        names = [name for _, name in launch.source.parameters[: launch.source.pointers]]
        given = [nothing if named[name] is None else named[name] for name in names]
        simt.run(
            launch.source, launch.grid, launch.block, launch.shared, launch.arguments, given, label=label
        )
        if named["moved"] is not None:
            named["grad"] = named["moved"]
    return int(named["faults"][0])


def check(problem: RegionProblem, rng: np.random.Generator, label: str) -> None:
    dtype = problem.dtype.numpy
    sources_ = {}
    for role in problem.roles:
        shape = problem.shape(role)
        if role == "indices":
            cells = problem.plane[0] * problem.plane[1]
            sources_[role] = rng.integers(-2, cells + 1, shape).astype(problem.index_dtype.numpy)  # type: ignore[union-attr]
            if problem.gradient and rng.integers(2):
                sources_[role] = np.clip(sources_[role] // 7, -1, cells - 1)
        else:
            values = rng.standard_normal(shape)
            if rng.integers(4) == 0:
                values.flat[rng.integers(values.size)] = rng.choice([np.inf, np.nan, -np.inf, 0])
            sources_[role] = values.astype(dtype)
    inner = bool(rng.integers(2))
    direct = inner and problem.gradient and problem.channels % 4 == 0 and problem.index_dtype is None

    def laid(array: Any) -> Any:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if inner else array.copy()

    boxes = drawn_boxes(rng, problem)
    wanted = Arrays(**{role: array.copy() for role, array in sources_.items()}, boxes=boxes)
    ours = Arrays(**{role: laid(array) for role, array in sources_.items()}, boxes=boxes)
    ours.out[...] = np.nan
    faults = expected(problem, wanted)
    assert computed(problem, ours, inner, direct, label) == faults, f"{label}: other faults than {faults}"
    for role in problem.results:
        got, must = getattr(ours, role), laid(getattr(wanted, role))
        same = (got == must) & (np.signbit(got.astype(float)) == np.signbit(must.astype(float)))
        same |= np.isnan(got.astype(float)) & np.isnan(must.astype(float))
        if not same.all():
            at = tuple(int(i[0]) for i in np.nonzero(~same))
            raise SystemExit(
                f"{label}: {role}{at} is {got[at]!r}, not {must[at]!r}; {(~same).sum()} differ; {boxes}"
            )


def main(pool: str, dtypes: str, first: int, seeds: int) -> None:
    found = [s for s in sources() if ("POOL", POOLS.index(pool)) in s.defines]
    kinds = {ELEMENTS[dtype] for dtype in dtypes.split(",")}
    simt.build(s for s in found if dict(s.defines)["ELEMENT"] in kinds)
    for seed in range(first, first + seeds):
        for dtype in dtypes.split(","):
            for gradient in (False, True):
                rng = np.random.default_rng([seed, ELEMENTS[dtype], gradient])
                problem = drawn(rng, pool, dtype, gradient)
                check(problem, rng, f"{pool} {dtype} seed {seed}: {problem}")
    print("done")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
