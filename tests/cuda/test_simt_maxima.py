"""Two GPU gradients of maxima on the host, with indices of all kinds: simt_few.py and simt_walk.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import simt
import simt_few
import simt_walk
from cuda_problems import H200
from geometries import maxima_gradient
from paths import SUPPORT
from pooltide.kernels.cuda.choice import candidates
from pooltide.operators.dtypes import DTYPES

FEW, WALK = SUPPORT / "simt_few.py", SUPPORT / "simt_walk.py"
WAYS = {
    FEW: "faults, more windows than threads, one launch, two launches",
    WALK: "1 groups, 2 groups, 4 ahead, 4 groups, 8 ahead, a launch, faults, parts of rows, "
    "rows of one cell, two launches, walks, whole rows",
}
TYPES = ("BFLOAT16", "FLOAT32", "FLOAT64", "FLOAT16")
on_host = pytest.mark.skipif(simt.why_not() is not None, reason=simt.why_not() or "")
of_all = pytest.mark.parametrize(
    "script",
    [FEW, pytest.param(WALK, marks=pytest.mark.slow)],
    ids=lambda path: path.stem,
)


# WALK takes minutes for all problems of a dtype, so the tests deal the problems out to the dtypes, and leave out
# 19 of 23 shares.
# `python tests/support/simt_walk.py FLOAT64`, started by `simt.start`, runs all problems of one dtype.
SWEEPS = [*((FEW, dtype) for dtype in TYPES), (WALK, ",".join(TYPES) + 19 * ",")]


@on_host
@pytest.mark.parametrize(
    ("script", "dtypes"),
    [SWEEPS[0], *(pytest.param(*sweep, marks=pytest.mark.slow) for sweep in SWEEPS[1:])],
    ids=lambda given: getattr(given, "stem", given),
)
def test_all_kinds_of_indices_have_the_expected_bits(script: Path, dtypes: str) -> None:
    done = simt.start(script, dtypes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(f"problems: {WAYS[script]}"), done.stdout


@on_host
@pytest.mark.slow
@of_all
@pytest.mark.parametrize("broken", ["barrier", "sign"])
def test_a_broken_kernel_is_found(script: Path, broken: str) -> None:
    barrier = "__syncwarp" if script == WALK else "__syncthreads"
    lines = {"barrier": f"#define {barrier}() ((void)0)", "sign": "#define widen(...) (-widen(__VA_ARGS__))"}
    done = simt.start(script, "FLOAT32,,,", lines[broken])
    assert done.returncode == 1
    assert "cells are wrong" in done.stderr, done.stderr


@pytest.mark.slow
def test_nvrtc_compiles_scatters_of_few_windows(compile_for_gpu: Callable[..., None]) -> None:
    _, axes = simt_few.POOLS[3]
    sources = {
        launch.source
        for dtype in TYPES
        for index in ("INT32", "INT64", "UINT8")
        for images in ((3, 2), (2, 300))
        for launch in dict(
            candidates(maxima_gradient(images, axes, DTYPES[dtype], DTYPES[index]), "channels_last", H200)
        )[simt_few.NAME]
    }
    assert len(sources) == 4 * 3 * 3
    assert {source.file for source in sources} == {"scatter_few.cu"}
    compile_for_gpu(sources)


@pytest.mark.slow
def test_nvrtc_compiles_walks(compile_for_gpu: Callable[..., None]) -> None:
    listed = list(simt_few.dealt(simt_walk.problems, ",".join(TYPES)))
    assert {problem.dtype.name for problem, *_ in listed} == set(TYPES)
    sources = {launch.source for _, _, found, _ in listed for launch in found}
    assert len(sources) >= len(TYPES) * len(simt_walk.POOLS)
    assert all(dict(source.defines)["WALK"] == 1 for source in sources)
    compile_for_gpu(sources)
