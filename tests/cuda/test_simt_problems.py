"""The GPU gradients on the host: some enumerated geometries and random problems; see simt_problems.py."""

from __future__ import annotations

import re

import pytest

import simt
from paths import SUPPORT
from pooltide.kernels.cuda.choice import KERNELS
from pooltide.kernels.cuda.cost import family

PROGRAM = SUPPORT / "simt_problems.py"
NAMES = [name for kind, kernels in KERNELS.items() if kind.endswith("_gradient") for name, _ in kernels]
NAMES = sorted({*map(family, NAMES), "scatter that compares lanes"})
pytestmark = pytest.mark.skipif(simt.why_not() is not None, reason=simt.why_not() or "")


@pytest.mark.parametrize(
    "problems",
    [
        pytest.param(
            ("--share", "0", "0", "--random", "15", "20", "--random", "67", "68", "--random", "245", "246"),
            id="few",
        ),
        pytest.param(
            ("--share", "7", "90007", "--random", "0", "16", "--random", "67", "68", "--corners"),
            id="more",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_every_kernel_has_the_expected_bits(problems: tuple[str, ...]) -> None:
    done = simt.start(PROGRAM, *problems)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(f"kernels: {', '.join(NAMES)}"), done.stdout


@pytest.mark.slow
def test_a_ring_of_one_slice_is_cleared_before_it_is_written_again() -> None:
    done = simt.start(PROGRAM, "--share", "0", "0", "--random", "507", "508")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "scatter of volumes" in done.stdout


@pytest.mark.parametrize(
    ("seed", "broken", "kernel"),
    [
        (17, "#define widen(...) (widen(__VA_ARGS__) * 2)", "flat average"),
        (158, "#define widen(...) (widen(__VA_ARGS__) * 2)", "scatter of bands"),
        (18, "#define widen(...) (widen(__VA_ARGS__) * 2)", "scatter of few windows"),
        (45, "#define __syncthreads() ((void)0)", "staged average"),
        (33, "#define fabsf(...) 1.0f", "flat average"),
    ],
    ids=["wrong averages", "wrong maxima", "wrong few maxima", "no barriers", "wrong small quotients"],
)
@pytest.mark.slow
def test_broken_kernels_are_found(seed: int, broken: str, kernel: str) -> None:
    done = simt.start(PROGRAM, "--share", "0", "0", "--random", str(seed), str(seed + 1), "--add", broken)
    assert done.returncode == 1
    assert re.search(rf"AssertionError: {kernel}: .* cells are wrong", done.stderr), done.stderr
