"""Plans the launches of pools over regions of interest. Pure: no device is touched.

A forward is one launch. A gradient is two: `region_prepare` finds the cells that each region reaches, then each
warp of `region_gradient` computes a tile of cells from the regions that reach it. A third launch, for roi_pool,
computes all again if an index names a cell outside its bin, which `region_gradient` does not expect.
The launches read the same numbers, `_NUMBERS`, and different arrays, `ARRAYS`.
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
CHANNELS = 4  # of a thread of region_forward
WARPS = 4  # of a block of region_gradient
BLOCKS = 5  # of these on a multiprocessor, for which registers must suffice
TILES = ((2, 4), (4, 4), (4, 8), (8, 8), (8, 16))  # rows and columns of cells of a warp; powers of two
BUSY_WARPS = 1 << 12  # with fewer, tiles are smaller
REPAIR_BLOCKS = 1 << 10  # of a launch that does nothing if indices are good
_PITCH, _PLACES, _CHUNK_BYTES = 33, 64, 8 * 36  # of region_gradient.cu

# The arrays of each kernel. reaches: five int32 for each region, and one more.
ARRAYS = {
    "region_forward": (
        *(("const Sum*", "boxes"), ("const Element*", "x"), ("Index*", "indices"), ("Element*", "out")),
        ("u64*", "faults"),
    ),
    "region_prepare": (
        *(("const Sum*", "boxes"), ("const Index*", "indices")),
        *(("int*", "reaches"), ("u64*", "faults")),
    ),
    "region_gradient": (
        *(("const Sum*", "boxes"), ("const Element*", "grad"), ("const Index*", "indices")),
        *(("int*", "reaches"), ("Element*", "out"), ("u64*", "faults")),
    ),
}  # fmt: skip
_NUMBERS = (
    *("K", "N", "H", "W", "PH", "PW", "channels", "ratio", "inner", "indexed", "lanes", "sets", "groups"),
    *("tiles_y", "tiles_x", "tile_h", "tile_w", "warp_bytes", "blocks", "repair"),
)


def refuse(problem: RegionProblem) -> str | None:
    """Returns why the kernels cannot compute a problem; None if they can."""
    if problem.kind.removesuffix("_gradient") not in POOLS or problem.dtype.name not in ELEMENTS:
        return f"it has no kernel for {problem.kind} of {problem.dtype}"
    if max(*problem.plane, *problem.bins) >= 1 << 24:
        return "an axis has 2**24 cells or bins or more"
    if problem.channels * prod(problem.bins) >= 2**31 or problem.regions >= 2**31 - 2**20:
        return "a region has 2**31 elements or more, or there are as many regions"
    if problem.maxima and prod(problem.plane) >= 2**31:
        return "a plane has 2**31 cells or more"
    if max(launch.grid for launch in launches(problem, "planes")) > MAX_BLOCKS:
        return f"more than {MAX_BLOCKS} blocks are needed"
    return None


def launches(problem: RegionProblem, layout: str) -> tuple[Launch, ...]:
    pool, inner = problem.kind.removesuffix("_gradient"), int(layout == "channels_last")
    (n, _), (h, w), bins, channels = problem.batch, problem.plane, prod(problem.bins), problem.channels
    source = {
        entry: _source(entry, pool, problem.dtype.name, problem.index_dtype and problem.index_dtype.itemsize)
        for entry in ARRAYS
    }

    def launch(entry: str, grid: int, block: int, shared: int, *more: int) -> Launch:
        numbers: list[Argument] = [problem.spatial_scale, 0.5 if problem.aligned else 0.0]
        numbers += [problem.regions, n, h, w, *problem.bins, channels, problem.sampling_ratio, inner]
        numbers += [int(problem.index_dtype is not None), *more, divider(w)]
        return Launch(source[entry], grid, block, shared, (), tuple(numbers))

    if not problem.gradient:
        groups = cdiv(channels, CHANNELS)
        grid = min(cdiv(problem.regions * bins * groups, 256), MAX_BLOCKS)
        return (launch("region_forward", grid, 256, 0, 0, 0, groups, *(0,) * 7),)
    lanes = min(1 << (channels - 1).bit_length(), 32) if problem.position_sensitive else 32
    sets = cdiv(channels, lanes) * (cdiv(bins, 32 // lanes) if problem.position_sensitive else 1)
    groups = cdiv(sets, WARPS)
    tiles = [(cdiv(h, rows), cdiv(w, columns), rows, columns) for rows, columns in TILES]
    tile = max((t for t in tiles if n * sets * t[0] * t[1] >= BUSY_WARPS), default=tiles[0], key=_cells)
    sum_bytes, border = problem.dtype.accumulator.itemsize, 2 if problem.sampled else 0
    numbers = (tile[2] + border) * (tile[3] + border) * _PITCH
    numbers += _CHUNK_BYTES * (not problem.position_sensitive) + 4 * _PLACES * problem.sampled
    warp_bytes = cdiv(numbers * sum_bytes + _CHUNK_BYTES * 4 * problem.maxima, 16) * 16
    blocks = n * groups * tile[0] * tile[1]
    more = (lanes, sets, groups, *tile, warp_bytes, blocks)
    prepare = launch("region_prepare", cdiv(problem.regions, 8), 256, 0, *more, 0)
    gradient = launch("region_gradient", blocks, 32 * WARPS, WARPS * warp_bytes, *more, 0)
    if not problem.maxima:
        return prepare, gradient
    again = min(blocks, REPAIR_BLOCKS)
    return prepare, gradient, launch("region_gradient", again, 32 * WARPS, WARPS * warp_bytes, *more, 1)


def _cells(tile: tuple[int, ...]) -> int:
    return tile[2] * tile[3]


def sources() -> Iterator[Source]:
    """Every program, so that they can be compiled before they are needed."""
    for entry, pool, dtype in product(ARRAYS, POOLS, ELEMENTS):
        for index_bytes in (4, 8) if pool == "roi_pool" else (None,):
            yield _source(entry, pool, dtype, index_bytes)


def _source(entry: str, pool: str, dtype: str, index_bytes: int | None) -> Source:
    defines = (
        *(("ELEMENT", ELEMENTS[dtype]), ("INDEX", index_bytes or 8), ("POOL", POOLS.index(pool))),
        *(("CHANNELS", CHANNELS), ("WARPS", WARPS), ("BLOCKS", BLOCKS)),
    )
    real = "double" if dtype == "FLOAT64" else "float"
    numbers = ((real, "scale"), (real, "offset"), *(("int", name) for name in _NUMBERS), ("Divider", "by_W"))
    return Source(f"{entry}.cu", entry, (*ARRAYS[entry], *numbers), defines)
