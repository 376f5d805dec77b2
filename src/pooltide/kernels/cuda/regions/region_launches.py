"""Plans the launches of pools over regions of interest. Pure: no device is touched.

A forward is one launch. A gradient is two: `region_prepare` finds the cells that each region reaches, then a
block of `region_gather`, or of `region_scatter` for roi_pool, computes a tile of cells from the regions that
reach it. The launches read the same numbers, `_NUMBERS`, and different arrays, `ARRAYS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from ....problem.regions import RegionProblem
from ..kernel_tables import cdiv, divider
from ..source import Argument, Source
from ..task import ELEMENTS, MAX_BLOCKS, Launch

POOLS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")  # POOL of regions.h
CHANNELS = 4  # of a thread
TILE = (4, 8)  # rows and columns of a block of region_gather
SIDES = (8, 16, 32)  # of a tile of region_scatter
# Of a list in shared memory; rows with more samples are computed without lists. With 32, 14 bins of 2 samples
# took up to three times as long; where boxes say how many samples there are, half of it is faster.
MOST_WEIGHTS = 64
LIST_BYTES = 40 << 10  # of a block, about
SCATTER_WARPS = 1 << 13  # with fewer, tiles are smaller
SLAB = 32  # channels that a block of region_prepare transposes
WARPS = 8  # of a block of region_scatter, each for a channel

# The arrays of each kernel. reaches: five int32 for each region. moved: grad_output with channels innermost.
ARRAYS = {
    "region_forward": (
        *(("const Sum*", "boxes"), ("const Element*", "x"), ("Index*", "indices"), ("Element*", "out")),
        ("u64*", "faults"),
    ),
    "region_prepare": (
        *(("const Sum*", "boxes"), ("const Element*", "grad"), ("const Index*", "indices")),
        *(("int*", "reaches"), ("Element*", "moved"), ("u64*", "faults")),
    ),
    "region_gather": (
        *(("const Sum*", "boxes"), ("const Element*", "grad"), ("const int*", "reaches")),
        ("Element*", "out"),
    ),
    "region_scatter": (
        *(("const Sum*", "boxes"), ("const Element*", "grad"), ("const Index*", "indices")),
        *(("const int*", "reaches"), ("Element*", "out")),
    ),
}  # fmt: skip
_NUMBERS = (
    *("K", "N", "H", "W", "PH", "PW", "channels", "ratio", "inner", "stride", "groups"),
    *("tiles_y", "tiles_x", "side", "lanes", "at_once", "most", "moves", "indexed"),
)


def refuse(problem: RegionProblem) -> str | None:
    """Returns why the kernels cannot compute a problem; None if they can."""
    if problem.kind.removesuffix("_gradient") not in POOLS or problem.dtype.name not in ELEMENTS:
        return f"it has no kernel for {problem.kind} of {problem.dtype}"
    if max(*problem.plane, *problem.bins) >= 1 << 24:
        return "an axis has 2**24 cells or bins or more"
    if problem.channels * prod(problem.bins) >= 2**31 or problem.regions >= 2**31 - 2**20:
        return "a region has 2**31 elements or more, or there are as many regions"
    if max(launch.grid for launch in launches(problem, "planes")) > MAX_BLOCKS:
        return f"more than {MAX_BLOCKS} blocks are needed"
    return None


def launches(problem: RegionProblem, layout: str, direct: bool = False) -> tuple[Launch, ...]:
    """The launches. `direct`: region_gather reads grad_output itself, whose channels are innermost."""
    pool, inner = problem.kind.removesuffix("_gradient"), int(layout == "channels_last")
    (n, _), (h, w), (ph, pw), channels = problem.batch, problem.plane, problem.bins, problem.channels
    sum_bytes = problem.dtype.accumulator.itemsize
    stride = channels if direct else cdiv(channels, CHANNELS) * CHANNELS
    groups, lanes, at_once, most, tile = cdiv(channels, CHANNELS), 0, 0, 0, TILE
    sensitive = prod(problem.bins) if problem.position_sensitive else 1
    if problem.gradient and pool == "roi_pool":
        groups = cdiv(channels, WARPS)
        fit = [side for side in SIDES if n * channels * cdiv(h, side) * cdiv(w, side) >= SCATTER_WARPS]
        tile = (max(fit, default=SIDES[0]),) * 2
        block, shared = 32 * WARPS, WARPS * prod(tile) * sum_bytes
    elif problem.gradient:
        lanes = min(max(1 << (groups - 1).bit_length(), 4), 32)
        groups = cdiv(channels, lanes * CHANNELS)
        block = min(max(16 * lanes, 128), 512)
        ratio, along = problem.sampling_ratio, 1 if sensitive > 1 else max(ph, pw)
        most = min(2 * ratio * along, MOST_WEIGHTS) if ratio > 0 else min(16 * along, MOST_WEIGHTS // 2)
        list_bytes = sum(tile) * (most * 2 * sum_bytes + 4) + 3 * sum_bytes
        at_once = max(min(LIST_BYTES // list_bytes, 32), 1)
        shared = prod(tile) * (lanes + 1) * CHANNELS * sum_bytes + at_once * list_bytes + 4 * (block + 32)
    tiles = cdiv(h, tile[0]), cdiv(w, tile[1])
    numbers: list[Argument] = [problem.spatial_scale, 0.5 if problem.aligned else 0.0]
    numbers += [problem.regions, n, h, w, ph, pw, channels, problem.sampling_ratio, inner, stride, groups]
    numbers += [*tiles, tile[0], lanes, at_once, most]
    numbers += [int(not direct), int(problem.index_dtype is not None), divider(w)]
    index_bytes = problem.index_dtype.itemsize if problem.index_dtype else 8
    source = {entry: _source(entry, pool, problem.dtype.name, index_bytes) for entry in ARRAYS}
    if not problem.gradient:
        grid = min(cdiv(problem.regions * ph * pw * groups, 256), MAX_BLOCKS)
        return (Launch(source["region_forward"], grid, 256, 0, (), tuple(numbers)),)
    slabs = 1 if direct or pool == "roi_pool" else cdiv(stride, SLAB)
    prepare = Launch(source["region_prepare"], problem.regions * slabs, 256, 0, (), tuple(numbers))
    grid = prod(tiles) * groups * sensitive * n
    last = source["region_scatter" if pool == "roi_pool" else "region_gather"]
    return prepare, Launch(last, grid, block, shared, (), tuple(numbers))


def sources() -> Iterator[Source]:
    """Every program, so that they can be compiled before they are needed."""
    for entry, pool, dtype in product(ARRAYS, POOLS, ELEMENTS):
        if (entry == "region_scatter") > (pool == "roi_pool") or (entry == "region_gather") > (
            pool != "roi_pool"
        ):
            continue
        for index_bytes in (4, 8) if pool == "roi_pool" else (8,):
            yield _source(entry, pool, dtype, index_bytes)


def _source(entry: str, pool: str, dtype: str, index_bytes: int) -> Source:
    defines = (
        *(("ELEMENT", ELEMENTS[dtype]), ("INDEX", index_bytes), ("POOL", POOLS.index(pool))),
        *(("CHANNELS", CHANNELS), ("TILE_H", TILE[0]), ("TILE_W", TILE[1])),
    )
    real = "double" if dtype == "FLOAT64" else "float"
    numbers = ((real, "scale"), (real, "offset"), *(("int", name) for name in _NUMBERS), ("Divider", "by_W"))
    return Source(f"{entry}.cu", entry, (*ARRAYS[entry], *numbers), defines)
