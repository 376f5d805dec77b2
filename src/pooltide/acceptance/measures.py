"""Measures the errors of a result against golden values: sums, maxima and counts, which add up over pieces.

With a the result and g the golden value of a cell, over the cells where both are finite:

    abs = |a − g|        rel = |a − g| / (|g| + 1e-7)        ULP: values of the dtype from a to g, rounded

A value is small if |g| is below the limit of its precision; the others are normal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.dtypes import DType
from ..problem.rounding import round_once
from .ulps import BINS, bits_of, ulp_distance, ulp_histogram

Array = NDArray[Any]
TINY = 1e-7
ULPS = 32
SHARES = (1e-2, 1e-3, 1e-4)  # relative errors of the dual-thousandth family


@dataclass(frozen=True, slots=True)
class Precision:
    """The thresholds for one dtype."""

    threshold: float  # of the mean relative error
    rtol: float
    atol: float
    limit: float  # that no error may exceed
    small: float  # smaller golden values are small
    small_error: float  # that an error of a small value should not exceed
    ulps: int  # that few errors may exceed


# The standards have no mixed tolerance for HFLOAT32, which gets that of FLOAT32, and nothing for FLOAT64. The
# thresholds of FLOAT64 have the same ratio to its precision as those of FLOAT32.
PRECISIONS = {
    "FLOAT16": Precision(2**-10, 2**-9, 2**-9, 1e-1, 2**-11, 2**-16, 1),
    "BFLOAT16": Precision(2**-7, 2**-6, 2**-6, 1.0, 2**-8, 2**-16, 1),
    "FLOAT32": Precision(2**-13, 2**-10, 2**-16, 1e-2, 2**-14, 2**-30, 32),
    "HFLOAT32": Precision(2**-11, 2**-10, 2**-16, 1e-2, 2**-14, 2**-30, 32),
    "FLOAT64": Precision(2**-42, 2**-39, 2**-45, 2**-36, 2**-43, 2**-59, 32),
}


def precision_of(dtype: DType, rounding: str = "keep") -> Precision:
    """The thresholds for a dtype, or for the precision to which cubeMathType rounds gradOutput."""
    if rounding == "HFLOAT32" and dtype.name == "FLOAT32":
        return PRECISIONS["HFLOAT32"]
    return PRECISIONS["FLOAT16" if rounding == "FLOAT16" else dtype.name]


@dataclass(frozen=True, slots=True)
class Measures:
    """The errors of a pair of arrays, as sums, maxima and counts. Two Measures add up."""

    count: int = 0
    finite: int = 0
    misplaced: int = 0  # cells where only one array has that NaN, Inf or −Inf
    nan: int = 0  # of the result
    inf: int = 0
    golden_nan: int = 0
    golden_inf: int = 0
    differing: int = 0  # cells whose bits differ
    larger: int = 0  # cells with a > g
    smaller: int = 0
    sum_abs: float = 0.0
    max_abs: float = 0.0
    sum_square: float = 0.0
    sum_rel: float = 0.0
    max_rel: float = 0.0
    normal: int = 0
    sum_normal_rel: float = 0.0
    max_normal_rel: float = 0.0
    small: int = 0
    small_errors: int = 0  # small values with an error above the limit for them
    above: tuple[int, ...] = (0,) * len(SHARES)  # cells with a relative error not below each of SHARES
    outside: int = 0  # cells outside the mixed tolerance
    beyond: int = 0  # cells with an error above the limit and above 32 ULP
    zero_outside: int = 0  # cells where a result of 0 would be outside the mixed tolerance
    zero_beyond: int = 0  # cells where it would have an error above the limit
    zero_above: tuple[int, ...] = (0,) * len(SHARES)  # cells where its relative error would not be below each
    zero_small_errors: int = 0  # small values whose error would be above the limit for them
    max_ulp: int = 0
    sum_ulp: float = 0.0
    many_ulps: int = 0  # cells with more ULPs than the precision's limit
    dot: float = 0.0  # of the result and the golden values
    square: float = 0.0  # of the result with itself
    golden_square: float = 0.0
    indices: int = 0  # of maxima, that were compared
    wrong_indices: int = 0
    histogram: tuple[int, ...] = (0,) * BINS

    def __add__(self, other: Measures) -> Measures:
        """Maxima by max, all else by sum."""
        return Measures(*(_added(name, getattr(self, name), getattr(other, name)) for name in _NAMES))

    @property
    def mere(self) -> float:
        """The mean relative error."""
        return self.sum_rel / self.finite if self.finite else 0.0

    @property
    def mare(self) -> float:
        """The largest relative error."""
        return self.max_rel

    @property
    def mean_abs(self) -> float:
        return self.sum_abs / self.finite if self.finite else 0.0

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.sum_square / self.finite)) if self.finite else 0.0

    @property
    def normal_mere(self) -> float:
        return self.sum_normal_rel / self.normal if self.normal else 0.0

    @property
    def cosine(self) -> float:
        """The cosine of the angle between result and golden values; 1 if both are zero, 0 if one is."""
        if self.square == self.golden_square:
            lengths = self.square
        else:
            lengths = np.sqrt(self.square) * np.sqrt(self.golden_square)
        if lengths == 0:
            return float(self.square == self.golden_square)
        return float(np.clip(self.dot / lengths, -1.0, 1.0))

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of the finite cells with a relative error below each of SHARES."""
        return tuple(1 - n / self.finite if self.finite else 1.0 for n in self.above)

    @property
    def small_ratio(self) -> float:
        return self.small_errors / self.small if self.small else 0.0

    @property
    def balance(self) -> float:
        """How one-sided the errors are: 0 if as many are above the golden values as below, 1 if all are."""
        return abs(self.larger - self.smaller) / self.count if self.count else 0.0

    @property
    def misplaced_ratio(self) -> float:
        return self.misplaced / self.count if self.count else 0.0

    @property
    def mean_ulp(self) -> float:
        return self.sum_ulp / self.finite if self.finite else 0.0

    @property
    def ulp_share(self) -> float:
        return self.many_ulps / self.finite if self.finite else 0.0


_NAMES = tuple(Measures.__slots__)


def _added(name: str, one: Any, other: Any) -> Any:
    if isinstance(one, tuple):
        return tuple(a + b for a, b in zip(one, other, strict=True))
    return max(one, other) if name.startswith("max_") else one + other


def measure(actual: Array, golden: Array, precision: Precision) -> Measures:
    """The errors of `actual`. `golden` has the same dtype, or is float64 and not rounded."""
    with np.errstate(invalid="ignore"):  # NumPy warns of a signaling NaN
        if actual.dtype != golden.dtype:
            return _measure(actual, golden, precision)
        differ = bits_of(actual) != bits_of(golden)  # equal cells, most of a good result, need less work
        if not differ.any():
            return _measure_equal(golden, precision)
        equal = _measure_equal(golden[~differ], precision)
        return equal + _measure(actual[differ], golden[differ], precision)


def _measure_equal(golden: Array, precision: Precision) -> Measures:
    values = golden.astype(np.float64)
    kept = values[np.isfinite(values)]
    nan = int(np.isnan(values).sum())
    inf = values.size - kept.size - nan
    small = int((np.abs(kept) < precision.small).sum())
    square = _dot(kept, kept, golden.dtype)
    return Measures(
        count=values.size,
        finite=kept.size,
        nan=nan,
        inf=inf,
        golden_nan=nan,
        golden_inf=inf,
        normal=kept.size - small,
        small=small,
        dot=square,
        square=square,
        golden_square=square,
        **_zeros(np.abs(kept), precision),
        histogram=(kept.size,) + (0,) * (BINS - 1),
    )


def _measure(actual: Array, golden: Array, precision: Precision) -> Measures:
    a, g = actual.astype(np.float64), golden.astype(np.float64)
    rounded = round_once(golden, actual.dtype)
    nans = np.isnan(a), np.isnan(rounded)
    infs = np.isinf(a), np.isinf(rounded)
    both = np.isfinite(a) & np.isfinite(rounded)
    same = (nans[0] & nans[1]) | (infs[0] & (actual == rounded))
    differing = (bits_of(actual) != bits_of(rounded)) & ~(nans[0] & nans[1])
    ulp = ulp_distance(actual[both], rounded[both])
    a, g = a[both], g[both]
    return Measures(
        count=actual.size,
        finite=a.size,
        misplaced=int((~both & ~same).sum()),
        nan=int(nans[0].sum()),
        inf=int(infs[0].sum()),
        golden_nan=int(nans[1].sum()),
        golden_inf=int(infs[1].sum()),
        differing=int(differing.sum()),
        max_ulp=int(ulp.max(initial=0)),
        sum_ulp=float(ulp.sum(dtype=np.float64)),
        many_ulps=int((ulp > precision.ulps).sum()),
        histogram=ulp_histogram(ulp),
        **_errors(a, g, ulp, precision, actual.dtype),
        **_zeros(np.abs(g), precision),
    )


def _zeros(magnitude: Array, precision: Precision) -> dict[str, Any]:
    """What a result of zeros would have, whose errors above the limit are always above 32 ULP."""
    small = magnitude < precision.small
    return {
        "zero_outside": int((magnitude > precision.atol + precision.rtol * magnitude).sum()),
        "zero_beyond": int((magnitude > precision.limit).sum()),
        "zero_above": tuple(int((magnitude >= share * TINY / (1 - share)).sum()) for share in SHARES),
        "zero_small_errors": int((small & (magnitude > precision.small_error)).sum()),
    }


def _dot(one: Array, other: Array, dtype: np.dtype[Any]) -> Any:
    """The sum of products of results of a dtype. Squares of float64 values can leave its range."""
    if dtype == np.float64:
        one, other = one.astype(np.longdouble), other.astype(np.longdouble)
    return np.dot(one, other)


def _errors(a: Array, g: Array, ulp: Array, precision: Precision, dtype: np.dtype[Any]) -> dict[str, Any]:
    """The measures of the differences of finite values of results of a dtype."""
    magnitude = np.abs(g)
    small = magnitude < precision.small
    with np.errstate(over="ignore"):
        error = np.abs(a - g)
        relative = error / (magnitude + TINY)
        outside = error > precision.atol + precision.rtol * magnitude
    products = {
        "sum_square": _dot(error, error, dtype),
        "dot": _dot(a, g, dtype),
        "square": _dot(a, a, dtype),
        "golden_square": _dot(g, g, dtype),
    }
    normal = relative[~small]
    return products | {
        "larger": int((a > g).sum()),
        "smaller": int((a < g).sum()),
        "sum_abs": float(error.sum()),
        "max_abs": float(error.max(initial=0)),
        "sum_rel": float(relative.sum()),
        "max_rel": float(relative.max(initial=0)),
        "normal": normal.size,
        "sum_normal_rel": float(normal.sum()),
        "max_normal_rel": float(normal.max(initial=0)),
        "small": int(small.sum()),
        "small_errors": int((small & (error > precision.small_error)).sum()),
        "above": tuple(int((relative >= share).sum()) for share in SHARES),
        "outside": int(outside.sum()),
        "beyond": int(((error > precision.limit) & (ulp > ULPS)).sum()),
    }


def index_measures(actual: Array, golden: Array) -> Measures:
    """The indices of maxima, which must be equal."""
    return Measures(indices=golden.size, wrong_indices=int((actual != golden).sum()))


def measure_all(pairs: Iterable[tuple[Array, Array]], precision: Precision) -> Measures:
    return sum((measure(a, g, precision) for a, g in pairs), Measures())
