"""The verdicts, against values worked out by hand and by other means."""

from __future__ import annotations

import math
import warnings

import ml_dtypes
import numpy as np
import pytest

from pooltide.acceptance.errormap import distances
from pooltide.acceptance.inputs import draw
from pooltide.acceptance.measures import PRECISIONS, Measures, Precision, measure, precision_of
from pooltide.acceptance.notation import parse
from pooltide.acceptance.oracle import golden_result
from pooltide.acceptance.trial import problem_of
from pooltide.acceptance.ulps import bin_names, ulp_distance, ulp_histogram
from pooltide.acceptance.verdicts import LEVELS, STANDARDS, THIRD, WEAK_THIRD, ZEROS, judge, ratio
from pooltide.operators.dtypes import DTYPES

F32, F16, BF16 = (PRECISIONS[name] for name in ("FLOAT32", "FLOAT16", "BFLOAT16"))


def statuses(
    actual: np.ndarray,
    golden: np.ndarray,
    precision: Precision = F32,
    third: np.ndarray | None = None,
    level: str = "L1",
) -> dict[str, str]:
    theirs = None if third is None else measure(third, golden, precision)
    return {v.name: v.status for v in judge(measure(actual, golden, precision), precision, theirs, level)}


def verdicts(*arguments: np.ndarray | Precision, **named: np.ndarray | str) -> dict[str, bool]:
    return {name: status == "pass" for name, status in statuses(*arguments, **named).items()}  # type: ignore[arg-type]


def test_the_thresholds_are_the_standards() -> None:
    found = {
        k: (p.threshold, p.rtol, p.atol, p.limit, p.small, p.small_error, p.ulps)
        for k, p in PRECISIONS.items()
    }
    assert found == {
        "FLOAT16": (2**-10, 2**-9, 2**-9, 1e-1, 2**-11, 2**-16, 1),
        "BFLOAT16": (2**-7, 2**-6, 2**-6, 1.0, 2**-8, 2**-16, 1),
        "FLOAT32": (2**-13, 2**-10, 2**-16, 1e-2, 2**-14, 2**-30, 32),
        "HFLOAT32": (2**-11, 2**-10, 2**-16, 1e-2, 2**-14, 2**-30, 32),
        "FLOAT64": (2**-42, 2**-39, 2**-45, 2**-36, 2**-43, 2**-59, 32),
    }
    assert LEVELS == {"L0": (10, 2, 2), "L1": (5, 1.5, 1.5), "L2": (2, 1.2, 1.2)}
    assert precision_of(DTYPES["FLOAT32"], "HFLOAT32") is PRECISIONS["HFLOAT32"]


def test_every_standard_gives_a_verdict() -> None:
    one = np.ones(3, np.float32)
    assert list(verdicts(one, one, third=one)) == list(STANDARDS)
    assert set(STANDARDS) - set(verdicts(one, one)) == set(THIRD)
    assert set(verdicts(one, one, third=one).values()) == {True}


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
    for name in Measures.__slots__:
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-12), name


# By hand: golden 4, 2^-15 (small), 3, 0 (small); result 4.25, 2^-15 + 2^-29, 3, 0.
HAND = np.array([4, 2**-15, 3, 0], np.float32), np.array([4.25, 2**-15 + 2**-29, 3, 0], np.float32)


def test_the_measures_of_other_tools_by_hand() -> None:
    golden, actual = HAND
    m = measure(actual, golden, F32)
    small, error = 2.0**-15, 2.0**-29
    assert m.mean_abs == pytest.approx((0.25 + error) / 4)
    assert m.max_abs == 0.25
    assert m.rmse == pytest.approx(math.sqrt((0.0625 + error**2) / 4))
    length, golden_length = (math.sqrt(x * x + y * y + 9) for x, y in ((4.25, small + error), (4, small)))
    assert m.cosine == pytest.approx((4.25 * 4 + (small + error) * small + 9) / length / golden_length)
    assert (m.small, m.small_errors, m.small_ratio) == (2, 1, 0.5)  # 2^-29 is above 2^-30
    assert m.max_normal_rel == pytest.approx(0.0625, rel=1e-6)
    assert m.normal_mere == pytest.approx(0.03125, rel=1e-6)
    assert m.above == (1, 1, 1)  # 0.0625, and 6.1e-5 for the small value
    assert m.shares == (0.75,) * 3
    assert m.balance == 0.5  # two of four cells are larger, none is smaller
    assert (m.nan, m.inf, m.misplaced_ratio) == (0, 0, 0)
    ulps = [0.25 / 2**-21, error / 2**-38]  # the steps of float32 at 4 and at 2^-15
    assert m.max_ulp == max(ulps)
    assert m.mean_ulp == sum(ulps) / 4
    assert m.many_ulps == 2
    assert m.ulp_share == 0.5


@pytest.mark.parametrize(
    ("actual", "golden", "cosine"),
    [
        ([0, 0], [0, 0], 1),
        ([0, 0], [1, 2], 0),
        ([3, 4], [0, 0], 0),
        ([1, 0], [0, 1], 0),
        ([1, 2], [-1, -2], -1),
        ([1e-30, 0], [1, 0], 1),
    ],
)
def test_the_cosine_of_odd_vectors(actual: list[float], golden: list[float], cosine: float) -> None:
    found = measure(np.array(actual, np.float32), np.array(golden, np.float32), F32).cosine
    assert found == pytest.approx(cosine)


def test_nan_and_inf_are_counted_on_both_sides() -> None:
    golden = np.array([1, np.nan, np.inf, 4, np.nan], np.float32)
    actual = np.array([1, 2, -np.inf, np.nan, np.nan], np.float32)
    m = measure(actual, golden, F32)
    assert (m.nan, m.inf, m.golden_nan, m.golden_inf, m.misplaced) == (2, 1, 2, 1, 3)
    assert m.misplaced_ratio == 0.6


@pytest.mark.parametrize("name", ["FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64"])
def test_a_signaling_nan_is_a_nan_without_a_warning(name: str) -> None:
    dtype = DTYPES[name].numpy
    golden = np.array([1, 2, np.inf, 3], dtype)
    actual = golden.copy()
    words = actual.view(f"u{dtype.itemsize}")
    words[1:3] = words[2] + 1  # the exponent of infinity, and a fraction without its first bit
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m = measure(actual, golden, PRECISIONS[name])
        assert (m.nan, m.golden_inf, m.misplaced) == (2, 1, 2)
        assert np.isinf(distances(actual, golden)).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    "text",
    ["avg2d:1x1x4x4:k2:bf16", "max2d:1x1x4x4:k2:f32", "avg2d_forward:1x1x4x4:k2:f32", "max2d_forward:1x1x4x4:k2:bf16"],
)  # fmt: skip
def test_golden_results_of_a_signaling_nan_come_without_a_warning(text: str) -> None:
    case = parse(text)
    problem = problem_of(case)
    source, indices = draw(problem, case.data)
    words = source.view(f"u{source.itemsize}")
    words.flat[0] = np.array([np.inf], source.dtype).view(words.dtype)[0] + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(golden_result(problem, source, indices).rounded.astype(np.float64)).any()


def test_cosine_stands_at_its_limit() -> None:
    golden = np.array([1, 0], np.float32)
    for angle, passes in ((8.1, True), (8.2, False)):  # cos 8.1 deg is 0.99002, cos 8.2 deg is 0.98978
        turned = np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))], np.float32)
        assert verdicts(turned, golden)["cosine"] is passes


@pytest.mark.parametrize(
    ("name", "error"), [("hundredth", 1e-2), ("thousandth", 1e-3), ("tenthousandth", 1e-4)]
)
def test_the_dual_thousandth_family_stands_at_its_share(name: str, error: float) -> None:
    """Of 100,000 cells, fewer than the share may have a relative error of the share or more."""
    golden = np.full(100_000, 8, np.float32)
    for bad, passes in ((round(100_000 * error) - 1, True), (round(100_000 * error), False)):
        actual = golden.copy()
        actual[:bad] *= np.float32(1 + 1.1 * error)
        actual[bad:] *= np.float32(1 + 0.9 * error)  # below the error: it does not count
        assert verdicts(actual, golden)[name] is passes


def test_small_values_have_a_limit_of_their_own() -> None:
    for precision, dtype in ((F32, np.float32), (F16, np.float16), (BF16, ml_dtypes.bfloat16)):
        golden = np.array([precision.small / 2, precision.small, 1], dtype)
        for error, passes in ((precision.small_error, True), (2 * precision.small_error, False)):
            actual = golden.copy()
            actual[0] += dtype(error)
            assert verdicts(actual, golden, precision)["small"] is passes
        actual = golden.copy()
        actual[1] *= dtype(2)  # a value at the limit is not small
        assert verdicts(actual, golden, precision)["small"]


@pytest.mark.parametrize(("precision", "dtype"), [(F16, np.float16), (BF16, ml_dtypes.bfloat16)])
def test_ulp_of_halves_stands_at_its_share(precision: Precision, dtype: type) -> None:
    golden = np.ones(10_000, dtype)
    one, two = ((golden.view(np.uint16) + np.uint16(n)).view(dtype) for n in (1, 2))
    assert verdicts(one, golden, precision)["ulp"]  # 1 ULP everywhere
    for bad, passes in ((9, True), (10, False)):  # fewer than 0.1 %
        actual = golden.copy()
        actual[:bad] = two[:bad]
        assert verdicts(actual, golden, precision)["ulp"] is passes


def test_ulp_of_float32_is_a_mean_or_a_share() -> None:
    golden = np.ones(1000, np.float32)

    def moved(cells: int, ulps: int) -> np.ndarray:
        actual = golden.copy()
        actual[:cells] = (golden[:cells].view(np.uint32) + np.uint32(ulps)).view(np.float32)
        return actual

    assert verdicts(moved(1000, 63), golden)["ulp"]  # the mean is below 64, though all are above 32
    assert not verdicts(moved(1000, 64), golden)["ulp"]
    assert verdicts(moved(49, 100_000), golden)["ulp"]  # 4.9 % are above 32
    assert not verdicts(moved(50, 100_000), golden)["ulp"]


def test_msprobe_has_three_answers() -> None:
    golden = np.full(100_000, 8, np.float32)

    def status(cells: int, relative: float, precision: Precision = F32, dtype: type = np.float32) -> str:
        actual = golden.astype(dtype)
        actual[:cells] *= dtype(1 + relative)
        return statuses(actual, golden.astype(dtype), precision)["msprobe"]

    assert status(100_000, 1e-4) == "pass"  # the largest error, 8e-4, is below 1e-3
    assert status(9, 2e-4) == "pass"  # fewer than 0.01 % above 1e-4
    assert status(10, 2e-4) == "warning"
    assert status(99, 2e-3) == "warning"
    assert status(100, 2e-3) == "FAIL"  # 0.1 % above 1e-3
    assert status(1000, 0.02, F16, np.float16) == "FAIL"  # 1 % above 1e-2
    assert status(999, 0.02, F16, np.float16) == "warning"
    assert status(99, 0.005, F16, np.float16) == "pass"
    opposed = np.array([1, -1], np.float32)
    assert statuses(opposed, -opposed)["msprobe"] == "FAIL"  # the cosine


def test_benchmark_leaves_small_values_out_of_the_relative_errors() -> None:
    golden = np.array([1.0, 2, 4, 2**-20, 2**-20])
    third = (golden + np.array([1e-4, 1e-4, 1e-4, 2**-29, 0])).astype(
        np.float32
    )  # one wrong small value of two
    ours = (golden + np.array([1.4e-4, 1.4e-4, 1.4e-4, 2**-22, 2**-22])).astype(
        np.float32
    )  # both are wrong: a ratio of 2
    for level, passes in (("L0", True), ("L1", True), ("L2", False)):  # RMSE 1.4 of 2, 1.5, 1.2
        assert verdicts(ours, golden, third=third, level=level)["benchmark"] is passes
    assert not verdicts(ours, golden, third=third, level="L1")["two"]  # there small values count
    third[3] = np.float32(2**-20)  # none is wrong: the ratio is infinite
    assert not verdicts(ours, golden, third=third, level="L0")["benchmark"]


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
    assert verdicts(up, golden, BF16)["bits"]
    assert not verdicts(np.array([1], ml_dtypes.bfloat16), golden, BF16)["bits"]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_the_standards_that_zeros_pass_are_known(dtype: type) -> None:
    """Golden values from dense to empty, large and small: zeros are judged by every standard."""
    rng = np.random.default_rng(7)
    precision = precision_of(DTYPES[np.dtype(dtype).name.upper()])
    passed = set()
    for share in (1.0, 0.04, 0.008, 0.0008, 0.00008, 0.0):
        for scale in (1.0, 0.03, 1e-3, 1e-5):
            values = rng.normal(size=50_000) * scale * (rng.random(50_000) < share)
            golden = values.astype(dtype)
            zeros = judge(measure(golden * 0, golden, precision), precision)
            expected = {v.name for v in zeros if v.passed} if golden.any() else set()
            for actual in (golden, -golden):
                found = judge(measure(actual, golden, precision), precision)
                assert {v.name for v in found if ZEROS in v.doubts} == expected, (share, scale)
            passed |= expected
    expected = {"infnan", "small", "ulp", "hundredth", "thousandth"}
    assert passed >= (expected if dtype is np.float64 else expected | {"mixed"})
    golden = np.array([1e-6, np.nan], dtype)  # zeros would not have the NaN
    assert not any(v.doubts for v in judge(measure(golden, golden, precision), precision))


def test_a_third_result_that_fails_mixed_is_doubted() -> None:
    golden = np.linspace(1, 2, 500, dtype=np.float32)
    for factor, doubts in ((1.1, {"two": (WEAK_THIRD,), "benchmark": (WEAK_THIRD,)}), (1 + 1e-6, {})):
        third = measure(golden * np.float32(factor), golden, F32)
        found = judge(measure(golden, golden, F32), F32, third)
        assert {v.name: v.doubts for v in found if v.name in THIRD and v.doubts} == doubts
