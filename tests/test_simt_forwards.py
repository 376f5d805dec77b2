"""The GPU forwards on the host: a share of the enumerated geometries, and random problems; see simt_forwards.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from simt_forwards import launches, random_forward

import simt
from pooltide.kernels.cuda import compiler, nvrtc
from pooltide.kernels.cuda.choice import KERNELS
from pooltide.kernels.cuda.source import headers, program

PROGRAM = Path(__file__).parent / "simt_forwards.py"
FILES = {"average.cu", "average_wide.cu", "maximum.cu", "maximum_reduce.cu", "mean.cu"}
NAMES = sorted(name for kind in ("maximum", "average") for name, _ in KERNELS[kind])
on_host = pytest.mark.skipif(simt.why_not() is not None, reason=simt.why_not() or "")


@on_host
@pytest.mark.slow
def test_enumerated_geometries_have_the_expected_bits() -> None:
    done = simt.start(PROGRAM, "--share", "5", "4001")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "direct maximum" in done.stdout


@on_host
@pytest.mark.slow
def test_random_problems_have_the_expected_bits_and_reach_every_kernel() -> None:
    done = simt.start(PROGRAM, "--share", "0", "1000000", "--random", "0", "80")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(f"kernels: {', '.join(NAMES)}")


@pytest.mark.slow
def test_nvrtc_compiles_every_kind_of_source() -> None:
    try:
        library = nvrtc.library()
    except compiler.NoCompiler as why:
        pytest.skip(str(why))
    sources = {
        launch.source
        for seed in range(64)
        for layout in ("planes", "channels_last")
        for _, found in launches(random_forward(seed)[0], layout, small=seed % 3 == 0)
        for launch in found
    }
    assert {source.file for source in sources} == FILES
    for source in sources:
        nvrtc.compile_program(library, program(source), headers(), "sm_90")
