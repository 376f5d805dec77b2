"""The GPU forwards on the host: a share of the enumerated geometries, and random problems; see simt_forwards.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import simt
from paths import SUPPORT
from pooltide.kernels.cuda.choice import KERNELS
from simt_forwards import ROWS, VOLUMES, launches, random_forward

PROGRAM = SUPPORT / "simt_forwards.py"
FILES = {
    *("average_columns.cu", "average_staged.cu", "average_wide.cu", "general.cu", "mean.cu"),
    *(
        "maximum_columns.cu",
        "maximum_axes.cu",
        "maximum_reduce.cu",
        "maximum_staged.cu",
    ),
}
NAMES = sorted(name for kind in ("maximum", "average") for name, _ in KERNELS[kind])
on_host = pytest.mark.skipif(simt.why_not() is not None, reason=simt.why_not() or "")


@on_host
@pytest.mark.slow
def test_enumerated_geometries_have_the_expected_bits() -> None:
    done = simt.start(PROGRAM, "--share", "5", "16007")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "direct maximum" in done.stdout


@on_host
def test_one_cell_of_a_dilated_window_inside_the_plane_is_not_the_whole_plane() -> None:
    """Geometry 27080: 3 rows, k2 s3 p1 d2. The window has row 1 alone; it was computed from row 0."""
    done = simt.start(PROGRAM, "--share", "27080", str(10**9), "--only", "strided_max2d")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "maximum of shared windows" in done.stdout


@on_host
@pytest.mark.slow
def test_random_problems_have_the_expected_bits_and_reach_every_kernel() -> None:
    done = simt.start(PROGRAM, "--share", "0", "1000000", "--random", "0", "40", "--corners")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(f"kernels: {', '.join(NAMES)}")


@on_host
@pytest.mark.slow
def test_random_volumes_have_the_expected_bits() -> None:
    done = simt.start(PROGRAM, "--share", "0", "0", "--random", str(VOLUMES), str(VOLUMES + 12))
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("maximum by axes", "average of staged windows"):
        assert name in done.stdout


@on_host
@pytest.mark.slow
def test_random_rows_have_the_expected_bits() -> None:
    done = simt.start(PROGRAM, "--share", "0", "0", "--random", str(ROWS), str(ROWS + 30))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rolling maximum" in done.stdout
    assert "average of columns" in done.stdout


@pytest.mark.slow
def test_nvrtc_compiles_every_kind_of_source(compile_for_gpu: Callable[..., None]) -> None:
    sources = {
        launch.source
        for seed in range(24)
        for layout in ("planes", "channels_last")
        for _, found in launches(random_forward(seed)[0], layout, small=seed % 3 == 0)
        for launch in found
    }
    assert {source.file for source in sources} == FILES
    compile_for_gpu(sources)
