"""The GPU kernels of pools over regions on the host, with drawn and odd boxes; see simt_regions.py."""

from __future__ import annotations

import pytest

import simt
from paths import SUPPORT
from pooltide.kernels.cuda.regions.region_launches import POOLS, launches, refuse, sources
from pooltide.kernels.cuda.runtime import shipped
from pooltide.kernels.cuda.task import MAX_THREADS
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.regions import RegionProblem
from shares import fast_some

on_host = pytest.mark.skipif(simt.why_not() is not None, reason=simt.why_not() or "")


@on_host
@pytest.mark.parametrize(
    ("pool", "dtypes"),
    fast_some(
        [
            ("roi_align", "FLOAT32"),
            *((pool, "FLOAT32,FLOAT64,FLOAT16,BFLOAT16") for pool in POOLS),
        ],
        1,
    ),
)
def test_bits_are_the_references(pool: str, dtypes: str) -> None:
    done = simt.start(SUPPORT / "simt_regions.py", pool, dtypes, "1", "5")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


def test_wheels_bring_every_program_that_a_problem_needs() -> None:
    known = set(shipped.sources())
    assert set(sources()) <= known
    for pool in POOLS:
        for dtype in ("FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16"):
            for end in ("", "_gradient"):
                index = DTYPES["INT32"] if pool == "roi_pool" else None
                problem = _problem(f"{pool}{end}", dtype, index)
                assert {launch.source for launch in launches(problem, "planes")} <= known


@pytest.mark.parametrize("channels", [4, 64, 256, 1024])
@pytest.mark.parametrize("bins", [(1, 1), (7, 7), (14, 14), (20, 20)])
@pytest.mark.parametrize("pool", POOLS)
def test_launches_fit_a_device(pool: str, bins: tuple[int, int], channels: int) -> None:
    """Devices have at least 96 KB of shared memory for a block, but those of compute capability 7.5."""
    channels *= bins[0] * bins[1] if pool.startswith("ps_") else 1
    index = DTYPES["INT64"] if pool == "roi_pool" else None
    for dtype in ("FLOAT32", "FLOAT64"):
        for ratio in (-1, 2, 32767):
            problem = _problem(f"{pool}_gradient", dtype, index, channels, bins, ratio)
            if refuse(problem) is None:
                for launch in launches(problem, "planes"):
                    assert launch.block <= MAX_THREADS
                    assert launch.block % 32 == 0
                    assert launch.shared <= 96 << 10


def _problem(kind: str, dtype: str, index: object, channels: int = 8, bins=(2, 2), ratio: int = 2):  # type: ignore[no-untyped-def]
    return RegionProblem(
        kind, (2, channels), (50, 68), 300, bins, DTYPES[dtype], 0.25, ratio, True, index_dtype=index
    )
