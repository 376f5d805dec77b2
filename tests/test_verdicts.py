"""The verdicts, against values worked out by hand and by other means."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from pooltide.acceptance.verdicts import (
    LEVELS,
    STANDARDS,
    Measures,
    bin_names,
    judge,
    measure,
    ratio,
    standard_of,
    ulp_distance,
    ulp_histogram,
)
from pooltide.operators.dtypes import DTYPES

F32 = STANDARDS["FLOAT32"]


def verdicts(actual: np.ndarray, golden: np.ndarray, standard=F32, third=None, level="L1") -> dict[str, bool]:
    theirs = None if third is None else measure(third, golden, standard)
    return {v.name: v.passed for v in judge(measure(actual, golden, standard), standard, theirs, level)}


def test_the_thresholds_are_the_standards() -> None:
    assert {k: (s.threshold, s.rtol, s.atol, s.limit) for k, s in STANDARDS.items() if k != "FLOAT64"} == {
        "FLOAT16": (2**-10, 2**-9, 2**-9, 1e-1),
        "BFLOAT16": (2**-7, 2**-6, 2**-6, 1.0),
        "FLOAT32": (2**-13, 2**-10, 2**-16, 1e-2),
        "HFLOAT32": (2**-11, 2**-10, 2**-16, 1e-2),
    }
    assert LEVELS == {"L0": (10, 2, 2), "L1": (5, 1.5, 1.5), "L2": (2, 1.2, 1.2)}
    assert standard_of(DTYPES["FLOAT32"], "HFLOAT32") is STANDARDS["HFLOAT32"]


def test_measures_by_hand() -> None:
    golden = np.array([1, -2, 0, 4], np.float32)
    actual = np.array([1.5, -2, 0.25, 4], np.float32)
    m = measure(actual, golden, F32)
    relative = [0.5 / (1 + 1e-7), 0, 0.25 / 1e-7, 0]
    assert m.mere == pytest.approx(sum(relative) / 4)
    assert m.mare == pytest.approx(max(relative))
    assert m.rmse == pytest.approx(math.sqrt((0.25 + 0.0625) / 4))
    assert (m.count, m.finite, m.misplaced, m.differing, m.outside, m.beyond) == (4, 4, 0, 2, 2, 2)


def test_pieces_add_up() -> None:
    rng = np.random.default_rng(3)
    g = rng.standard_normal(1009).astype(np.float32)
    a = (g * (1 + 1e-6 * rng.standard_normal(1009))).astype(np.float32)
    whole = measure(a, g, F32)
    parts = sum((measure(a[i : i + 101], g[i : i + 101], F32) for i in range(0, 1009, 101)), Measures())
    assert parts.sum_rel == pytest.approx(whole.sum_rel)
    for name in ("count", "finite", "differing", "max_rel", "max_abs", "max_ulp", "outside", "histogram"):
        assert getattr(parts, name) == getattr(whole, name)


def test_single_stands_at_its_threshold() -> None:
    golden = np.full(1000, 1, np.float32)
    for error, passes in ((9.9 * 2**-13, True), (10.1 * 2**-13, False)):  # MARE < 10·T
        actual = golden.copy()
        actual[7] += np.float32(error)
        assert verdicts(actual, golden)["single"] is passes
    for error, passes in ((0.99 * 2**-13, True), (1.01 * 2**-13, False)):  # MERE < T
        assert verdicts(golden + np.float32(error), golden)["single"] is passes


def test_mixed_stands_at_its_share_and_its_limit() -> None:
    golden = np.full(1000, 1, np.float32)
    for bad, passes in ((10, True), (11, False)):
        actual = golden.copy()
        actual[:bad] += np.float32(5e-3)  # outside the tolerance, under the limit
        assert verdicts(actual, golden)["mixed"] is passes
    actual = golden.copy()
    actual[5] += np.float32(1.1e-2)  # above the limit and above 32 ULP
    assert not verdicts(actual, golden)["mixed"]
    large = np.full(1000, 2.0**20, np.float32)  # an ULP is 1/8: 32 ULP are allowed, 33 are not
    for ulps, passes in ((32, True), (33, False)):
        actual = large.copy()
        actual[5] += np.float32(ulps / 8)
        assert verdicts(actual, large)["mixed"] is passes


def test_two_stands_at_its_ratios() -> None:
    golden = np.linspace(1, 2, 1000)
    third = (golden + 1e-4).astype(np.float32)
    for factor, passing in ((1.1, {"L0", "L1", "L2"}), (1.4, {"L0", "L1"}), (1.9, {"L0"}), (2.2, set())):
        actual = (golden + factor * 1e-4).astype(np.float32)
        found = {level for level in LEVELS if verdicts(actual, golden, third=third, level=level)["two"]}
        assert found == passing
    assert ratio(0, 0) == 1
    assert ratio(1e-9, 0) == math.inf


@pytest.mark.parametrize(
    ("actual", "golden", "placed"),
    [
        ([math.nan, 1], [math.nan, 1], True),
        ([math.inf, 1], [math.inf, 1], True),
        ([-math.inf, 1], [math.inf, 1], False),
        ([math.nan, 1], [math.inf, 1], False),
        ([1, math.nan], [math.nan, 1], False),
        ([3e38, 1], [math.inf, 1], False),
    ],
)
def test_nan_and_inf_must_match_in_place(actual: list[float], golden: list[float], placed: bool) -> None:
    found = verdicts(np.array(actual, np.float32), np.array(golden, np.float32))
    assert set(found.values()) == {placed}


def test_bits_know_the_sign_of_zero_and_forgive_a_nans_payload() -> None:
    zero = np.array([0.0], np.float32)
    assert not verdicts(-zero, zero)["bits"]
    quiet = np.array([0x7FC00000], np.uint32).view(np.float32)
    other = np.array([0xFFC00001], np.uint32).view(np.float32)
    assert verdicts(other, quiet)["bits"]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_ulp_distance_counts_values(dtype: type) -> None:
    word = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]
    one = np.array([1], dtype)
    far = (one.view(word) + word(1000)).view(dtype)
    assert ulp_distance(far, one)[0] == ulp_distance(one, far)[0] == ulp_distance(-far, -one)[0] == 1000
    least = np.array([1], word).view(dtype)
    assert ulp_distance(least, -least)[0] == 2
    assert ulp_distance(np.zeros(1, dtype), -np.zeros(1, dtype))[0] == 0
    largest = np.array([np.finfo(np.float64).max])
    assert ulp_distance(largest, -largest)[0] == 2 * int(largest.view(np.uint64)[0])


def test_histogram_bins() -> None:
    ulp = np.array([0, 0, 1, 2, 3, 4, 5, 8, 9, 2**17, 2**17 + 1, 2**63], np.uint64)
    found = {name: n for name, n in zip(bin_names(), ulp_histogram(ulp), strict=True) if n}
    assert found == {"0": 2, "1": 1, "2": 1, "3–4": 2, "5–8": 2, "9–16": 1, "65537–131072": 1, ">131072": 2}


def test_a_float64_golden_is_rounded_once() -> None:
    halfway = 1 + 2.0**-8 + 2.0**-40  # just above the middle of two bfloat16 values: up
    golden = np.array([halfway])
    up = np.array([1 + 2.0**-7], ml_dtypes.bfloat16)
    assert verdicts(up, golden, STANDARDS["BFLOAT16"])["bits"]
    assert not verdicts(np.array([1], ml_dtypes.bfloat16), golden, STANDARDS["BFLOAT16"])["bits"]
