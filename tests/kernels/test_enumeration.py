"""A share of the enumerated geometries (tests/support/enumeration.py runs them all), and the ones that once were wrong."""

from __future__ import annotations

import ctypes
from inspect import unwrap
from typing import Any

import numpy as np
import pytest

import enumeration
import pooltide
from enumeration import Checker, Geometry, adaptive, geometries, strided
from pooltide import _native
from pooltide.geometry import UNIT, Axis, strided_outputs
from pooltide.kernels import cpu
from shares import fast_first

KERNELS = {name for kind in range(4) for store in range(4) for name, _ in _native.Prepared(
    kind, store, 0, 1.0, False, 4 * (kind == 3), 1, 1, (1, 1, 1), (1, 1, 1), (1, 1, 1), *[np.ones(1, np.int32) - (i % 3 == 0) for i in range(9)]
).kernels(True)}  # fmt: skip
SHARE = 600  # one geometry of so many; 3-D ones more often than their number alone would give
PARTS = ((strided, 12), (adaptive, 4))  # of the share


@pytest.mark.parametrize("pool", ["avg1d", "avg2d", "avg3d", "max1d", "max2d", "max3d"])
@pytest.mark.parametrize(
    ("how", "part", "parts"),
    [
        pytest.param(how, part, parts, id=f"{how.__name__}-{part}", marks=[pytest.mark.slow] if part else [])
        for how, parts in PARTS
        for part in range(parts)
    ],
)
def test_a_share_of_all_small_geometries(pool: str, how: Any, part: int, parts: int) -> None:
    kind = f"{how.__name__}_{pool}"
    share = {"1d": SHARE // 60, "2d": SHARE, "3d": SHARE // 8}[pool[-2:]]
    checker, count = Checker(), 0
    for number, geometry in geometries((7 + part * share, parts * share), kind):
        checker.check(number, geometry)
        count += 1
    assert count >= 1
    assert checker.runs > 10 * count


@pytest.mark.slow
def test_the_geometries_reach_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = set()
    paths = Checker.paths

    def watched(self: Checker, prepared: Any, *rest: Any) -> None:
        for isa in _native.instruction_sets():
            _native.use_instruction_set(isa)
            reached.update(name for name, reason in prepared.kernels(True) if reason is None)
        paths(self, prepared, *rest)

    monkeypatch.setattr(Checker, "paths", watched)
    row = Axis(7, 7, 3, 1, 1)
    for number, geometry in [*geometries((0, 4999)), (0, Geometry("avg", 2, (UNIT, row, row)))]:
        for dtype in range(3):
            Checker().check(number * 3 + dtype, geometry)
    assert reached == KERNELS


@pytest.mark.parametrize(
    ("height", "width", "k", "s", "p"),
    fast_first([(3, 7, 3, 1, 0), (4, 4, 3, 1, 0), (4, 40, 4, 3, 1), (3, 33, 3, 1, 0), (4, 9, 3, 1, 0)]),
)
def test_rows_that_share_all_their_windows(height: int, width: int, k: int, s: int, p: int) -> None:
    """The kernel for 3 × 3 windows once wrote only the first of such rows."""
    h, w = (Axis(n, strided_outputs(n, k, s, p, False), k, s, p) for n in (height, width))
    for number in range(21):
        Checker().check(number, Geometry("avg", 2, (UNIT, h, w)))
        Checker().check(number, Geometry("avg", 3, (Axis(1, 1, 1, 1, 0), h, w)))
    grad = np.ones((1, 1, h.outputs, w.outputs), np.float32)
    found = pooltide.avg_pool2d_backward(grad, (1, 1, height, width), k, s, p)
    if p == 0:  # every gradient arrives whole
        assert found.sum() == pytest.approx(grad.size)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("before", "bytes outside the result are written"),
        ("after", "bytes outside the result are written"),
        ("cell", "1 of .* cells are wrong"),
        ("place", "1 of .* cells are wrong"),
    ],
)
def test_that_a_wrong_byte_is_seen(where: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = unwrap(cpu.prepare)

    class Spoiled:
        """A prepared problem that changes one byte after it computed."""

        def __init__(self, problem: Any, layout: str) -> None:
            self.prepared = prepare(problem, layout)
            self.kernels, self.size = self.prepared.kernels, problem.dtype.itemsize * problem.cells
            self.gradient = problem.gradient

        def run_forced(self, grad: Any, x: Any, indices: Any, out: int, *how: Any) -> Any:
            fault = self.prepared.run_forced(grad, x, indices, out, *how)
            places = indices if isinstance(indices, int) else None  # a forward writes them
            at = {"before": out - 1, "after": out + self.size, "cell": out, "place": places}[where]
            if at is not None and self.gradient == (where != "place"):
                byte = ctypes.c_ubyte.from_address(at)
                byte.value ^= 1
            return fault

    monkeypatch.setattr(cpu, "prepare", Spoiled)
    number, geometry = next(iter(geometries((100, 1000), "strided_max2d")))
    with pytest.raises(AssertionError, match=says):
        Checker().check(number, geometry)


def test_that_a_wrong_cell_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = enumeration.torch_averages

    def wrong(*given: Any) -> Any:
        values, gradient = right(*given)
        gradient = gradient.copy()
        gradient.flat[-1] = np.nextafter(gradient.flat[-1], np.inf)
        return values, gradient

    monkeypatch.setattr(enumeration, "torch_averages", wrong)
    number, geometry = next(iter(geometries((100, 1000), "strided_avg2d")))
    with pytest.raises(AssertionError, match=r"1 of .* cells are wrong"):
        Checker().check(number, geometry)
