"""Window arithmetic against its definition, cell by cell, and beyond 2³¹."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor, inf
from time import process_time

import numpy as np
import pytest

import pooltide
from pooltide.geometry import UNIT, Axis, is_long, spans, strided_outputs, tables
from pooltide.kernels.calls import CALLS
from pooltide.problem.offsets import offsets_of


def _axes() -> list[Axis]:
    adaptive = [Axis(length, outputs) for length in range(1, 14) for outputs in range(1, 18)]
    strided = []
    for length in range(1, 12):
        for k in range(1, 8):
            for s in range(1, 9):
                for p in range(k // 2 + 1):
                    for mode in (False, True):
                        outputs = strided_outputs(length, k, s, p, mode)
                        if outputs > 0:
                            strided.append(Axis(length, outputs, k, s, p))
    return adaptive + strided


@pytest.mark.parametrize("axis", [Axis(7, 3), Axis(3, 7), Axis(11, 11), Axis(13, 1)])
def test_adaptive_windows_are_the_formula(axis: Axis) -> None:
    for o in range(axis.outputs):
        start = floor(Fraction(o * axis.length, axis.outputs))
        end = ceil(Fraction((o + 1) * axis.length, axis.outputs))
        assert axis.window(o) == (start, end, end - start)


def test_tables_say_what_the_windows_say() -> None:
    for axis in _axes():
        found = tables(axis)
        windows = [axis.window(o) for o in range(axis.outputs)]
        assert [*zip(found.start, found.end, found.extent, strict=True)] == windows
        for cell in range(axis.length):
            holding = [o for o, w in enumerate(windows) if w.start <= cell < w.end]
            first, count = int(found.first_window[cell]), int(found.window_count[cell])
            assert list(range(first, first + count)) == holding or (count == 0 and not holding), axis


def test_every_window_holds_a_cell() -> None:
    for axis in _axes():
        assert all(axis.window(o).start < axis.window(o).end for o in range(axis.outputs)), axis


def test_disjoint_and_whole_are_what_they_say() -> None:
    for axis in _axes():
        counts = tables(axis).window_count
        if axis.disjoint:
            assert counts.max() <= 1, axis
        if axis.adaptive:
            assert axis.disjoint == (counts.max() <= 1), axis
        assert axis.whole == (axis.outputs == 1 and bool((counts == 1).all())), axis


def test_outputs_agree_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for length in range(1, 12):
        for k, s, p in ((2, 1, 0), (3, 2, 1), (3, 5, 1), (4, 3, 2), (5, 4, 0), (2, 6, 1)):
            for mode in (False, True):
                expected = strided_outputs(length, k, s, p, mode)
                if length + 2 * p < k:
                    assert expected <= 0 or mode
                    continue
                x = torch.zeros(1, 1, length)
                y = torch.nn.functional.avg_pool1d(x, k, s, p, ceil_mode=mode)
                assert y.shape[-1] == expected, (length, k, s, p, mode)


def test_windows_beyond_32_and_53_bits() -> None:
    axis = Axis(2**40 + 1, 2**33 + 7)
    o = axis.outputs - 2
    assert axis.window(o).start == o * axis.length // axis.outputs
    assert axis.window(axis.outputs - 1).end == axis.length
    strided = Axis(2**62, 2**61, 3, 2, 1)
    assert strided.window(2**60) == (2**61 - 1, 2**61 + 2, 3)


def test_tables_whose_products_pass_64_bits() -> None:
    axis = Axis(3, 7)
    wide = Axis(2**61, 5)
    assert [axis.window(o) for o in range(7)] == [*zip(*_per_window(axis), strict=True)]
    assert [wide.window(o) for o in range(5)] == [*zip(*_per_window(wide), strict=True)]


def _per_window(axis: Axis) -> list[list[int]]:
    """The tables per window alone: those per cell of so long an axis don't fit anywhere."""
    return [table.tolist() for table in spans(axis)]


def test_tables_of_a_long_axis_cost_a_few_passes_over_it() -> None:
    """5 to 10 times what a sum of two tables takes; bisection for each cell takes 50 times that."""
    axis, table = Axis(1 << 23, (1 << 23) // 3), np.zeros(1 << 23, np.int64)
    assert _seconds(lambda: tables(axis)) < 25 * _seconds(lambda: table + table)


def _seconds(work: Callable[[], object]) -> float:
    best = inf
    for _ in range(5):
        begin = process_time()
        work()
        best = min(best, process_time() - begin)
    return best


def test_tables_count_in_the_cache() -> None:
    g, shape = np.ones((1, 1, 1 << 19), np.float16), (1, 1, (1 << 20) + 1)
    assert is_long([Axis(shape[-1], g.shape[-1])])
    assert not is_long([Axis(1 << 10, 1 << 9)])
    for name, call in {
        "kernel": lambda: pooltide.adaptive_avg_pool1d_backward(g, shape),
        "tables": lambda: tables(Axis(shape[-1], g.shape[-1])),
        "offsets": lambda: offsets_of((UNIT, UNIT, Axis(shape[-1], g.shape[-1]))),
    }.items():
        CALLS.clear()
        call()
        assert CALLS.nbytes >= 4 * g.size, name
