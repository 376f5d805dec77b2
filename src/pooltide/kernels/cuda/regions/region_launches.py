"""Plans the launches of pools over regions of interest. Pure: no device is touched.

A forward is one launch. A gradient is two: `region_prepare` finds the cells that each region reaches; then a
tile of cells is computed from the regions that reach it, for roi_align by a block of `region_gather`, for the
other pools by a warp of `region_tiles`. A third launch, for roi_pool, computes all again if an index names a
cell outside its bin, which `region_tiles` does not expect.
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
CHANNELS = 4  # of a thread of region_forward and region_gather
TILE = (4, 8)  # rows and columns of a block of region_gather
MOST_WEIGHTS = 64  # of a list in shared memory; rows with more samples are computed without lists
LIST_BYTES = 40 << 10  # of a block, about
WARPS = 4  # of a block of region_tiles
BLOCKS = 4  # of these on a multiprocessor, for which registers must suffice; with 8, roi_pool takes twice as long
# Rows and columns of a warp of region_tiles, powers of two; smaller ones for fewer than BUSY_WARPS. So 22 of 24
# drawn problems have the fastest of these tiles and of (8, 16), or one that takes at most 1.14 times as long.
TILES, BUSY_WARPS = ((2, 4), (4, 4), (4, 8), (8, 8)), 2560
REPAIR_BLOCKS = 1 << 10  # of a launch that does nothing if indices are good
_SIDE = 32  # of region_prepare.cu
_PITCH, _CHUNK = 33, 8 * 36  # of region_tiles.cu

# The arrays of each kernel. reaches: five int32 for each region, and one more. moved: grad_output with
# channels innermost.
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
    "region_tiles": (
        *(("const Sum*", "boxes"), ("const Element*", "grad"), ("const Index*", "indices")),
        *(("int*", "reaches"), ("Element*", "out"), ("u64*", "faults")),
    ),
}  # fmt: skip
_NUMBERS = (
    *("K", "N", "H", "W", "PH", "PW", "channels", "ratio", "inner", "indexed", "stride", "moves", "lanes"),
    *("at_once", "most", "sets", "groups", "tiles_y", "tiles_x", "tile_h", "tile_w", "warp_bytes", "blocks"),
    "repair",
)
_Numbers = dict[str, int]


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


def launches(problem: RegionProblem, layout: str, direct: bool = False) -> tuple[Launch, ...]:
    """The launches. `direct`: region_gather reads grad_output itself, whose channels are innermost."""
    if not problem.gradient:
        groups = cdiv(problem.channels, CHANNELS)
        grid = min(cdiv(problem.regions * prod(problem.bins) * groups, 256), MAX_BLOCKS)
        return (_launch(problem, layout, "region_forward", grid, 256, 0, {"groups": groups}),)
    return (_gather if problem.kind == "roi_align_gradient" else _tiles)(problem, layout, direct)


def _gather(problem: RegionProblem, layout: str, direct: bool) -> tuple[Launch, ...]:
    sum_bytes, channels = problem.dtype.accumulator.itemsize, problem.channels
    stride = channels if direct else cdiv(channels, CHANNELS) * CHANNELS
    groups = cdiv(channels, CHANNELS)
    lanes = min(max(1 << (groups - 1).bit_length(), 4), 32)
    groups = cdiv(channels, lanes * CHANNELS)
    block = min(max(16 * lanes, 128), 512)
    samples = problem.sampling_ratio * max(problem.bins)  # of a row; a box says how many if this is not positive
    most = min(2 * samples if samples > 0 else MOST_WEIGHTS // 2, MOST_WEIGHTS)
    list_bytes = sum(TILE) * (most * 2 * sum_bytes + 4) + 3 * sum_bytes
    at_once = max(min(LIST_BYTES // list_bytes, 32), 1)
    shared = prod(TILE) * (lanes + 1) * CHANNELS * sum_bytes + at_once * list_bytes + 4 * (block + 32)
    tiles = [cdiv(side, length) for side, length in zip(problem.plane, TILE, strict=True)]
    numbers = {"stride": stride, "moves": int(not direct), "lanes": lanes, "at_once": at_once, "most": most}
    numbers |= {"groups": groups, "tiles_y": tiles[0], "tiles_x": tiles[1]}
    slabs = 1 if direct else cdiv(stride, _SIDE)
    return (
        _launch(problem, layout, "region_prepare", problem.regions * slabs, 256, 0, numbers),
        _launch(
            *(problem, layout, "region_gather", prod(tiles) * groups * problem.batch[0], block, shared),
            numbers,
        ),
    )


def _tiles(problem: RegionProblem, layout: str, direct: bool) -> tuple[Launch, ...]:
    sum_bytes, channels, bins = problem.dtype.accumulator.itemsize, problem.channels, prod(problem.bins)
    lanes = min(1 << (channels - 1).bit_length(), 32) if problem.position_sensitive else 32
    sets = cdiv(channels, lanes) * (cdiv(bins, 32 // lanes) if problem.position_sensitive else 1)
    groups = cdiv(sets, WARPS)
    for tile in TILES[::-1]:
        tiles_y, tiles_x = (cdiv(side, length) for side, length in zip(problem.plane, tile, strict=True))
        if problem.batch[0] * sets * tiles_y * tiles_x >= BUSY_WARPS:
            break
    warp_bytes = prod(tile) * _PITCH * sum_bytes + problem.maxima * _CHUNK * (sum_bytes + 4)
    warp_bytes = cdiv(warp_bytes, 16) * 16
    blocks = problem.batch[0] * groups * tiles_y * tiles_x
    numbers = {"lanes": lanes, "sets": sets, "groups": groups, "tiles_y": tiles_y, "tiles_x": tiles_x}
    numbers |= {"tile_h": tile[0], "tile_w": tile[1], "warp_bytes": warp_bytes, "blocks": blocks}
    shared, block = WARPS * warp_bytes, 32 * WARPS
    planned = (
        _launch(problem, layout, "region_prepare", cdiv(problem.regions, 8), 256, 0, numbers),
        _launch(problem, layout, "region_tiles", blocks, block, shared, numbers),
    )
    if not problem.maxima:
        return planned
    again, numbers = min(blocks, REPAIR_BLOCKS), numbers | {"repair": 1}
    return *planned, _launch(problem, layout, "region_tiles", again, block, shared, numbers)


def _launch(
    problem: RegionProblem, layout: str, entry: str, grid: int, block: int, shared: int, more: _Numbers
) -> Launch:
    sizes = problem.batch[0], *problem.plane, *problem.bins
    known = dict(zip(("N", "H", "W", "PH", "PW"), sizes, strict=True))
    known |= {"K": problem.regions, "channels": problem.channels, "ratio": problem.sampling_ratio}
    known |= {"inner": int(layout == "channels_last"), "indexed": int(problem.index_dtype is not None)}
    numbers: list[Argument] = [problem.spatial_scale, 0.5 if problem.aligned else 0.0]
    numbers += [(known | more).get(name, 0) for name in _NUMBERS]
    pool = problem.kind.removesuffix("_gradient")
    index_bytes = problem.index_dtype.itemsize if problem.index_dtype else 8
    source = _source(entry, pool, problem.dtype.name, index_bytes)
    return Launch(source, grid, block, shared, (), (*numbers, divider(problem.plane[1])))


def sources() -> Iterator[Source]:
    """Every program, so that they can be compiled before they are needed."""
    for entry, pool, dtype in product(ARRAYS, POOLS, ELEMENTS):
        if entry == ("region_tiles" if pool == "roi_align" else "region_gather"):
            continue
        for index_bytes in (4, 8) if pool == "roi_pool" else (8,):
            yield _source(entry, pool, dtype, index_bytes)


def _source(entry: str, pool: str, dtype: str, index_bytes: int) -> Source:
    defines = (
        *(("ELEMENT", ELEMENTS[dtype]), ("INDEX", index_bytes), ("POOL", POOLS.index(pool))),
        *(("CHANNELS", CHANNELS), ("TILE_H", TILE[0]), ("TILE_W", TILE[1])),
        *(("WARPS", WARPS), ("BLOCKS", BLOCKS)),
    )
    real = "double" if dtype == "FLOAT64" else "float"
    numbers = ((real, "scale"), (real, "offset"), *(("int", name) for name in _NUMBERS), ("Divider", "by_W"))
    return Source(f"{entry}.cu", entry, (*ARRAYS[entry], *numbers), defines)
