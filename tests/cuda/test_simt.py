"""The host build of CUDA kernels: it computes what CUDA would, and reports what CUDA forbids."""

from __future__ import annotations

import pytest

import simt
from paths import SUPPORT
from shares import fast_some

reason = simt.why_not()
pytestmark = pytest.mark.skipif(reason is not None, reason=reason or "")
PROGRAM = SUPPORT / "simt_kernels.py"


def test_right_kernels_have_the_right_results() -> None:
    done = simt.start(PROGRAM, "right")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_missing_barrier_gives_wrong_results() -> None:
    done = simt.start(PROGRAM, "missing")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize(
    ("kernel", "report"),
    fast_some(
        [
            ("divergent", "simt: threads of a block wait at different barriers (divergent, line "),
            ("lonely", "simt: a thread waits for ever"),
            ("0", "heap-buffer-overflow"),
            ("1", "heap-buffer-overflow"),
            ("2", "heap-buffer-overflow"),
            ("3", "misaligned address"),
            ("4", "signed integer overflow"),
        ],
        3,
    ),
)
def test_faults_are_reported(kernel: str, report: str) -> None:
    done = simt.start(PROGRAM, kernel)
    assert done.returncode != 0
    assert report in done.stderr, done.stderr
    assert "done" not in done.stdout
