"""Rounding, against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np

from pooltide.problem.rounding import round_once, to_float16, to_hfloat32


def _patterns() -> np.ndarray:
    rng = np.random.default_rng(11)
    words = rng.integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32)
    edges = np.array([0, 0x80000000, 1, 0x7FF, 0x800, 0x801, 0x7F7FFFFF, 0x7F7FF800, 0x7F7FF7FF, 0x7F800000,
                      0xFF800000, 0x7F800001, 0x7FC00000, 0x3F800800, 0x3F801800], np.uint32)  # fmt: skip
    return np.concatenate([words, edges]).view(np.float32)


def test_hfloat32_is_the_word_formula() -> None:
    x = _patterns()
    got = to_hfloat32(x).view(np.uint32)
    for u, r in zip(x.view(np.uint32).tolist(), got.tolist(), strict=True):
        if u & 0x7F800000 == 0x7F800000:
            assert r == u  # NaN and Inf are kept
        else:
            assert r == (u + 0x7FF + ((u >> 12) & 1)) & ~0xFFF & 0xFFFFFFFF


def test_hfloat32_is_the_nearest_with_eleven_bits_ties_to_even() -> None:
    x = _patterns()
    x = x[np.isfinite(x) & (np.abs(x) > 1e-30) & (np.abs(x) < 1e30)][:2000]
    for value, rounded in zip(x.tolist(), to_hfloat32(x).tolist(), strict=True):
        unit = Fraction(2) ** (int(np.frexp(abs(value))[1]) - 12)
        steps = Fraction(value) / unit
        assert Fraction(rounded) == round(steps) * unit


def test_float16_overflow_becomes_inf() -> None:
    got = to_float16(np.array([65504, 65519.9, 65520, -1e9, 1e-8, np.nan], np.float32))
    np.testing.assert_array_equal(got, np.array([65504, 65504, np.inf, -np.inf, 0, np.nan], np.float32))


def test_float64_to_bfloat16_rounds_once() -> None:
    bits = np.random.default_rng(3).integers(0, 2**16, 4000, dtype=np.uint64).astype(np.uint16)
    exact = bits.view(ml_dtypes.bfloat16)
    exact = exact[np.isfinite(exact.astype(np.float32))]
    near = exact.astype(np.float64)
    following = (exact.view(np.uint16) + np.uint16(1)).view(ml_dtypes.bfloat16).astype(np.float64)
    keep = np.isfinite(following)
    near, following, exact = near[keep], following[keep], exact[keep]
    middle = (near + following) / 2
    above = middle + (following - middle) * 2.0**-40  # lost when float32 comes between
    below = middle + (near - middle) * 2.0**-40
    assert (round_once(below, np.dtype(ml_dtypes.bfloat16)) == exact).all()
    np.testing.assert_array_equal(
        round_once(above, np.dtype(ml_dtypes.bfloat16)).astype(np.float64), following
    )
    special = np.array([np.inf, -np.inf, np.nan, 1e300, -0.0])
    got = round_once(special, np.dtype(ml_dtypes.bfloat16)).astype(np.float64)
    np.testing.assert_array_equal(got, [np.inf, -np.inf, np.nan, np.inf, -0.0])
