"""Judges a result by the measures that acceptance teams use: `measure`, piece by piece, then `judge`.

With a the result, g the golden value, and rel = |a − g| / (|g| + 1e-7) over the finite cells:

    single   mean rel < T and largest rel < 10·T
    two      the ratios to a third result's largest rel, mean rel and RMSE are within the level's limits
    mixed    |a − g| ≤ atol + rtol·|g| in 99 % of the cells, and no error above max(limit, 32 ULP)
    bits     equal bits (a NaN is a NaN)

Every verdict fails if a NaN or Inf of the result is not where the golden values have the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.dtypes import DType
from ..problem.rounding import round_once

Array = NDArray[Any]
VERDICTS = ("single", "two", "mixed", "bits")
TINY = 1e-7
SHARE = 0.99
ULPS = 32


@dataclass(frozen=True, slots=True)
class Standard:
    """The thresholds for one precision."""

    threshold: float
    rtol: float
    atol: float
    limit: float


# The standards have no mixed tolerance for HFLOAT32, which gets that of FLOAT32, and nothing for FLOAT64. The
# thresholds of FLOAT64 have the same ratio to its precision as those of FLOAT32.
STANDARDS = {
    "FLOAT16": Standard(2**-10, 2**-9, 2**-9, 1e-1),
    "BFLOAT16": Standard(2**-7, 2**-6, 2**-6, 1.0),
    "FLOAT32": Standard(2**-13, 2**-10, 2**-16, 1e-2),
    "HFLOAT32": Standard(2**-11, 2**-10, 2**-16, 1e-2),
    "FLOAT64": Standard(2**-42, 2**-39, 2**-45, 2**-36),
}
LEVELS = {"L0": (10.0, 2.0, 2.0), "L1": (5.0, 1.5, 1.5), "L2": (2.0, 1.2, 1.2)}  # MARE, MERE, RMSE
BINS = 20  # of the ULP histogram: 0, 1, 2, 3–4, 5–8, …, more


@dataclass(frozen=True, slots=True)
class Measures:
    """The errors of a pair of arrays, as sums, maxima and counts. Two Measures add up."""

    count: int = 0
    finite: int = 0
    misplaced: int = 0  # cells where only one array has that NaN, Inf or −Inf
    differing: int = 0  # cells whose bits differ
    sum_rel: float = 0.0
    max_rel: float = 0.0
    sum_square: float = 0.0
    max_abs: float = 0.0
    outside: int = 0  # cells outside the mixed tolerance
    beyond: int = 0  # cells with an error above the limit and above 32 ULP
    max_ulp: int = 0
    histogram: tuple[int, ...] = (0,) * BINS

    def __add__(self, other: Measures) -> Measures:
        """Maxima by max, all else by sum."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in Measures.__slots__}
        bins = tuple(map(sum, zip(*pairs.pop("histogram"), strict=True)))
        found = {name: max(pair) if name.startswith("max_") else sum(pair) for name, pair in pairs.items()}
        return Measures(**found, histogram=bins)

    @property
    def mere(self) -> float:
        return self.sum_rel / self.finite if self.finite else 0.0

    @property
    def mare(self) -> float:
        return self.max_rel

    @property
    def rmse(self) -> float:
        return float((self.sum_square / self.finite) ** 0.5) if self.finite else 0.0


def measure(actual: Array, golden: Array, standard: Standard) -> Measures:
    """The errors of `actual`. `golden` has the same dtype, or is float64 and not rounded."""
    if actual.dtype != golden.dtype:
        return _measure(actual, golden, standard)
    differ = bits_of(actual) != bits_of(golden)  # equal cells, most of a good result, need no work
    differing = golden[differ]
    finite = int(np.isfinite(golden).sum()) - int(np.isfinite(differing).sum())
    equal = Measures(actual.size - differing.size, finite, histogram=(finite,) + (0,) * (BINS - 1))
    return equal + _measure(actual[differ], differing, standard) if differing.size else equal


def _measure(actual: Array, golden: Array, standard: Standard) -> Measures:
    a, g = actual.astype(np.float64), golden.astype(np.float64)
    rounded = round_once(golden, actual.dtype)
    both = np.isfinite(a) & np.isfinite(rounded)
    same = (np.isnan(a) & np.isnan(rounded)) | (np.isinf(a) & (actual == rounded))
    differing = (bits_of(actual) != bits_of(rounded)) & ~(np.isnan(a) & np.isnan(rounded))
    ulp = ulp_distance(actual[both], rounded[both])
    a, g = a[both], g[both]
    error = np.abs(a - g)
    with np.errstate(over="ignore"):
        relative = error / (np.abs(g) + TINY)
        outside = int((error > standard.atol + standard.rtol * np.abs(g)).sum())
        square = float(np.dot(error, error))
    return Measures(
        actual.size,
        int(both.sum()),
        int((~both & ~same).sum()),
        int(differing.sum()),
        float(relative.sum()),
        float(relative.max(initial=0)),
        square,
        float(error.max(initial=0)),
        outside,
        int(((error > standard.limit) & (ulp > ULPS)).sum()),
        int(ulp.max(initial=0)),
        ulp_histogram(ulp),
    )


def bits_of(x: Array) -> Array:
    """The bits of each element, as unsigned integers."""
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


def ulp_distance(a: Array, g: Array) -> NDArray[np.uint64]:
    """The number of steps from a to g through the values of their dtype; both finite; +0 and −0 are equal."""
    bits = a.itemsize * 8
    magnitude = np.uint64(2 ** (bits - 1) - 1)

    def ordered(x: Array) -> NDArray[np.int64]:
        word = bits_of(x).astype(np.uint64)
        signed = (word & magnitude).astype(np.int64)
        return np.where(word > magnitude, -signed, signed)

    i, j = ordered(a), ordered(g)
    with np.errstate(over="ignore"):  # the difference of two int64 fits uint64
        return (np.maximum(i, j) - np.minimum(i, j)).view(np.uint64)


def ulp_histogram(ulp: NDArray[np.uint64]) -> tuple[int, ...]:
    """Counts for 0, 1, 2, 3–4, 5–8, …: bin b > 1 ends at 2^(b−1); the last bin has no end."""
    edges = np.array([0, *(2**b for b in range(BINS - 2))], dtype=np.uint64)
    bins = np.searchsorted(edges, ulp, side="left")
    return tuple(int(n) for n in np.bincount(bins, minlength=BINS))


def bin_names() -> list[str]:
    edges = [2**b for b in range(BINS - 2)]
    spans = [f"{low + 1}–{2 * low}" if low > 1 else "2" for low in edges[:-1]]
    return ["0", "1", *spans, f">{edges[-1]}"]


def measure_all(pairs: Iterable[tuple[Array, Array]], standard: Standard) -> Measures:
    return sum((measure(a, g, standard) for a, g in pairs), Measures())


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    passed: bool
    text: str


def judge(m: Measures, standard: Standard, third: Measures | None = None, level: str = "L1") -> list[Verdict]:
    """All verdicts; `two` only with a third result."""
    placed = m.misplaced == 0
    t = standard.threshold
    verdicts = [
        Verdict(
            "single",
            placed and m.mere < t and m.mare < 10 * t,
            f"MERE {m.mere:.3g} of {t:.3g}, MARE {m.mare:.3g} of {10 * t:.3g}",
        )
    ]
    if third is not None:
        verdicts.append(_two(m, third, level))
    share = 1 - m.outside / m.finite if m.finite else 1.0
    mixed = f"{share:.2%} within {standard.atol:.3g} + {standard.rtol:.3g}·|g|, {m.beyond} beyond the limit"
    verdicts.append(Verdict("mixed", placed and share >= SHARE and m.beyond == 0, mixed))
    verdicts.append(
        Verdict("bits", m.differing == 0, f"{m.differing} of {m.count} differ, at most {m.max_ulp} ULP")
    )
    if placed:
        return verdicts
    return [Verdict(v.name, False, f"{m.misplaced} NaN or Inf out of place; {v.text}") for v in verdicts]


def _two(m: Measures, third: Measures, level: str) -> Verdict:
    pairs = ((m.mare, third.mare), (m.mere, third.mere), (m.rmse, third.rmse))
    ratios = [ratio(ours, theirs) for ours, theirs in pairs]
    good = all(r <= limit for r, limit in zip(ratios, LEVELS[level], strict=True))
    spelled = (
        f"{name} {r:.3g} of {limit:g}"
        for name, r, limit in zip(("MARE", "MERE", "RMSE"), ratios, LEVELS[level], strict=True)
    )
    return Verdict("two", good and m.misplaced == 0, f"{level}: ratios {', '.join(spelled)}")


def ratio(ours: float, theirs: float) -> float:
    """ours / theirs; 1 if neither has an error, and infinite if only ours has one."""
    if theirs == 0:
        return 1.0 if ours == 0 else float("inf")
    return ours / theirs


def standard_of(dtype: DType, rounding: str = "keep") -> Standard:
    """The standard for a dtype, or for the precision to which cubeMathType rounds gradOutput."""
    if rounding == "HFLOAT32" and dtype.name == "FLOAT32":
        return STANDARDS["HFLOAT32"]
    return STANDARDS["FLOAT16" if rounding == "FLOAT16" else dtype.name]
