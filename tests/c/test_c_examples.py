"""The C and C++ examples: their output against the NumPy functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pooltide
from c_programs import compile_with_cc, run_program
from pooltide import examples
from shares import fast_first, fast_some

EXAMPLES = Path(examples.__file__).parent


def _avg3() -> NDArray[Any]:
    grad = (np.arange(12, dtype=np.float32) ** 2).reshape(2, 1, 2, 3)
    return pooltide.adaptive_avg_pool3d_backward(grad, (2, 2, 5, 7))


def _max3() -> NDArray[Any]:
    grad = np.array([2, 3, 5, 7, 11, 13, 17, 19], np.float32).reshape(2, 1, 2, 2)
    indices = np.array([0, 7, 7, 29, 16, 3, 12, 12], np.int32).reshape(2, 1, 2, 2)
    return pooltide.adaptive_max_pool3d_backward(grad, (2, 2, 3, 5), indices)


def _avg2() -> NDArray[Any]:
    grad = (9 * (np.arange(48) * 7 % 23)).astype(np.float32).reshape(1, 2, 4, 6)
    return pooltide.avg_pool2d_backward(grad, (1, 2, 7, 11), 3, 2, 1)


def _max2() -> NDArray[Any]:
    base = np.arange(12) * 5 % 13
    indices = np.array([0, 11, 11, 28, 25, 34, 1, 10, 20, 22, 32, 27], np.int64).reshape(1, 2, 2, 3)
    rounds = [(100 * n + base).astype(np.float32).reshape(1, 2, 2, 3) for n in (1, 2)]
    return np.stack([pooltide.adaptive_max_pool2d_backward(g, (1, 2, 5, 7), indices) for g in rounds])


def _both_ways() -> NDArray[Any]:
    x = (np.arange(70) * 29 % 71).astype(np.float32).reshape(1, 2, 5, 7)
    values, indices = pooltide.adaptive_max_pool2d(x, (2, 3), return_indices=True)
    return pooltide.adaptive_max_pool2d_backward(values, x.shape, indices)


WANT = {
    "adaptive_max_pool2d_both_ways.c": _both_ways,
    "adaptive_avg_pool3d_backward.c": _avg3,
    "adaptive_max_pool3d_backward.c": _max3,
    "avg_pool2d_backward.cpp": _avg2,
    "adaptive_max_pool2d_backward.cpp": _max2,
}


def test_every_example_is_tried() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".c", ".cpp")}
    assert {*WANT, "training_step.cpp"} == files  # test_c_training_step.py tries that


@pytest.mark.parametrize("cxx", fast_first(["g++", "clang++"]))
@pytest.mark.parametrize("name", fast_some(WANT, 2))
def test_example(name: str, cxx: str, tmp_path: Path) -> None:
    standard = "-std=c99" if name.endswith(".c") else "-std=c++11"
    program = compile_with_cc(
        EXAMPLES / name, tmp_path / "program", standard, "-pedantic", "-Werror", cxx=cxx
    )
    run = run_program(program, environment={"POOLTIDE_CHECKS": "strict"})
    assert (run.returncode, run.stderr) == (0, "")
    want = WANT[name]()
    lines = run.stdout.splitlines()
    got = [[float(text) for text in line.split()] for line in lines]
    assert [len(row) for row in got] == [want.shape[-1]] * (want.size // want.shape[-1])
    # Six digits are printed.
    np.testing.assert_allclose(np.array(got).reshape(want.shape), want, rtol=1e-5)
