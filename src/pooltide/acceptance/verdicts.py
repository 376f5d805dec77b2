"""Judges the errors of a result by standards that acceptance teams use: `judge` gives all verdicts.

STANDARDS has a sentence for each, docs/acceptance.md the formulas; measures.py says what a, g, abs, rel, ULP
and small mean. `two` and `benchmark` need a third result, which another implementation computed.
Every verdict fails if a NaN or Inf of the result is not where the golden values have the same, or if an index
of a maximum differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from ..display import html_table
from .measures import SHARES, ULPS, Measures, Precision

PASS, WARNING, FAIL = "pass", "warning", "FAIL"
STANDARDS = {
    "mixed": "|a - g| <= atol + rtol·|g| in 99 % of the cells, and no error above both the limit and 32 ULP",
    "single": "mean rel below T, and largest rel below 10·T",
    "two": "largest rel, mean rel and RMSE over the third result's: at most 10, 2, 2 (L0), 5, 1.5, 1.5 (L1) "
    "or 2, 1.2, 1.2 (L2)",
    "bits": "all bits equal; a NaN is a NaN",
    "cosine": "cosine similarity above 0.99",
    "hundredth": "rel below 1e-2 in more than 99 % of the cells",
    "thousandth": "rel below 1e-3 in more than 99.9 % of the cells",
    "tenthousandth": "rel below 1e-4 in more than 99.99 % of the cells",
    "small": "no error of a small value above the limit for small values",
    "ulp": "float16, bfloat16: fewer than 0.1 % of the cells above 1 ULP; float32, float64: mean below 64 "
    "ULP, or fewer than 5 % of the cells above 32 ULP",
    "infnan": "NaN, Inf and -Inf where the golden values have the same",
    "msprobe": "cosine above 0.99, then either largest abs below 1e-3, or hundredth and thousandth (float16, "
    "bfloat16) or thousandth and tenthousandth (float32, float64)",
    "benchmark": "over the third result's: RMSE and mean rel at most 2 (L0), 1.5 (L1), 1.2 (L2), largest rel "
    "10, 5, 2, wrong small values 2; rel of normal values alone",
}
DEFAULT = "mixed"
THIRD = ("two", "benchmark")  # the standards that need a third result
LEVELS = {"L0": (10.0, 2.0, 2.0), "L1": (5.0, 1.5, 1.5), "L2": (2.0, 1.2, 1.2)}  # largest rel, mean rel, RMSE
_SHARE = 0.99
COSINE = 0.99
_FAMILY = ("hundredth", "thousandth", "tenthousandth")
_COUNTING = ("bits", "infnan")  # they count cells, so that they need no finite one
ZEROS, WEAK_THIRD = "zeros would pass, too", "the third result fails mixed itself"  # why a pass says little
_NO_FIGURE = "no cell is finite in both, so there are no figures"


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str  # of the standard
    status: str  # PASS, WARNING or FAIL
    text: str  # the figures that decided
    doubts: tuple[str, ...] = ()  # why a pass by this standard says little here

    @property
    def passed(self) -> bool:
        return self.status == PASS

    def _repr_html_(self) -> str:
        return html_table([(self.name, self.status, self.text)])


def judge(
    m: Measures, precision: Precision, third: Measures | None = None, level: str = "L1"
) -> list[Verdict]:
    """All verdicts, in the order of STANDARDS; those of THIRD only with a third result."""
    outcomes = {name: judges(m, precision) for name, judges in _JUDGES.items()}
    if third is not None:
        outcomes["two"] = _two(m, third, level)
        outcomes["benchmark"] = _benchmark(m, third, level)
    if not m.finite:  # every figure is that of no cell
        outcomes = {name: o if name in _COUNTING else (PASS, _NO_FIGURE) for name, o in outcomes.items()}
    weak = third is not None and _mixed(third, precision)[0] != PASS
    doubts = {name: (WEAK_THIRD,) for name in THIRD if weak}
    doubts |= {name: (ZEROS,) for name, judges in _JUDGES.items() if _zeros_pass(m, precision, judges)}
    verdicts = [
        Verdict(name, *outcomes[name], doubts.get(name, ())) for name in STANDARDS if name in outcomes
    ]
    wrong = [f"{m.misplaced} of {m.count} cells have a NaN or Inf out of place"] if m.misplaced else []
    wrong += [f"{m.wrong_indices} of {m.indices} indices differ"] if m.wrong_indices else []
    if not wrong:
        return verdicts
    text = "; ".join(wrong)
    return [Verdict(v.name, FAIL, text if v.name == "infnan" else f"{text}; {v.text}") for v in verdicts]


def _zeros_pass(m: Measures, precision: Precision, judges: Callable[[Measures, Precision], Judged]) -> bool:
    """Whether a standard would pass a result of zeros, although the golden values are not zero.

    The distance of a value from zero counts as many ULPs if its relative error does not count as small.
    """
    if not m.golden_square or m.golden_nan or m.golden_inf:
        return False
    zeros = Measures(
        count=m.count,
        finite=m.finite,
        differing=m.count,
        max_abs=inf,
        sum_rel=m.finite,
        max_rel=1.0,
        small_errors=m.zero_small_errors,
        above=m.zero_above,
        outside=m.zero_outside,
        beyond=m.zero_beyond,
        sum_ulp=inf,
        many_ulps=m.zero_above[0],
        golden_square=m.golden_square,
    )
    return judges(zeros, precision)[0] == PASS


Judged = tuple[str, str]  # status, text


def _status(passed: bool) -> str:
    return PASS if passed else FAIL


def _all_of(*conditions: tuple[bool, str]) -> Judged:
    """The verdict of conditions that must all hold; those that fail come first in its text."""
    texts = [text for _, text in sorted(conditions, key=lambda condition: condition[0])]
    return _status(all(holds for holds, _ in conditions)), ", ".join(texts)


def _single(m: Measures, precision: Precision) -> Judged:
    t = precision.threshold
    return _all_of(
        (m.mere < t, f"mean rel {m.mere:.3g} (must be below {t:.3g})"),
        (m.mare < 10 * t, f"largest rel {m.mare:.3g} (must be below {10 * t:.3g})"),
    )


def _mixed(m: Measures, precision: Precision) -> Judged:
    share = 1 - m.outside / m.finite if m.finite else 1.0
    tolerance = f"{precision.atol:.3g} + {precision.rtol:.3g}·|g|"
    limits = f"{precision.limit:g} and {ULPS} ULP"
    return _all_of(
        (m.beyond == 0, f"{m.beyond} of {m.finite} cells have an error above both {limits} (none may)"),
        (share >= _SHARE, f"{share:.2%} of the cells are within {tolerance} (at least {_SHARE:.0%} must)"),
    )


def _bits(m: Measures, _: Precision) -> Judged:
    return _status(m.differing == 0), differences(m)


def differences(m: Measures) -> str:
    """How many cells differ, and how much. NaN and Inf have no distance, and −0 has none from +0."""
    text = f"{m.differing} of {m.count} cells differ"
    if m.misplaced:
        return f"{text}, at most {m.max_ulp} ULP where both are finite" if m.finite else text
    by_sign = m.differing and not m.max_ulp
    return f"{text} in the sign of zero" if by_sign else f"{text}, at most {m.max_ulp} ULP"


def _cosine(m: Measures, _: Precision) -> Judged:
    return _status(m.cosine > COSINE), f"cosine similarity {m.cosine:.6g}; it must be above {COSINE}"


def _within(which: int) -> Callable[[Measures, Precision], Judged]:
    """The judge of one member of the dual-thousandth family."""

    def judged(m: Measures, _: Precision) -> Judged:
        share, error = m.shares[which], SHARES[which]
        text = (
            f"{m.above[which]} of {m.finite} cells have rel {error:g} or more; it must be below {error:.2%}"
        )
        return _status(share > 1 - error), text

    return judged


def _small(m: Measures, precision: Precision) -> Judged:
    text = (
        f"{m.small_errors} of {m.small} small values (|g| below {precision.small:.3g}) "
        f"with an error above {precision.small_error:.3g}"
    )
    return _status(m.small_errors == 0), text


def _ulp(m: Measures, precision: Precision) -> Judged:
    share, mean = m.ulp_share, m.mean_ulp
    good = share < 0.001 if precision.ulps == 1 else mean < 64 or share < 0.05
    return _status(good), (
        f"{share:.3%} of the cells above {precision.ulps} ULP, mean {mean:.3g} ULP, largest {m.max_ulp} ULP"
    )


def _infnan(m: Measures, _: Precision) -> Judged:
    return PASS, f"{m.nan} NaN and {m.inf} Inf, all in place"


def _msprobe(m: Measures, precision: Precision) -> Judged:
    if not m.cosine > COSINE:
        return FAIL, _cosine(m, precision)[1]
    if m.max_abs < 1e-3:
        return PASS, f"cosine similarity {m.cosine:.6g}, largest abs {m.max_abs:.3g} below 0.001"
    first = 0 if precision.ulps == 1 else 1
    for which, status in ((first, FAIL), (first + 1, WARNING)):
        if m.shares[which] <= 1 - SHARES[which]:
            return status, f"{_FAMILY[which]}: {_within(which)(m, precision)[1]}"
    return PASS, f"{_FAMILY[first]} and {_FAMILY[first + 1]} pass"


_JUDGES: dict[str, Callable[[Measures, Precision], Judged]] = {
    "mixed": _mixed,
    "single": _single,
    "bits": _bits,
    "cosine": _cosine,
    "small": _small,
    "ulp": _ulp,
    "infnan": _infnan,
    "msprobe": _msprobe,
} | {name: _within(which) for which, name in enumerate(_FAMILY)}


def _two(m: Measures, third: Measures, level: str) -> Judged:
    largest, mean, rmse = LEVELS[level]
    return _ratios(
        level,
        ("largest rel", m.mare, third.mare, largest),
        ("mean rel", m.mere, third.mere, mean),
        ("RMSE", m.rmse, third.rmse, rmse),
    )


def _benchmark(m: Measures, third: Measures, level: str) -> Judged:
    largest, mean, rmse = LEVELS[level]
    return _ratios(
        level,
        ("wrong small values", m.small_ratio, third.small_ratio, 2.0),
        ("RMSE", m.rmse, third.rmse, rmse),
        ("largest rel", m.max_normal_rel, third.max_normal_rel, largest),
        ("mean rel", m.normal_mere, third.normal_mere, mean),
    )


def _ratios(level: str, *figures: tuple[str, float, float, float]) -> Judged:
    """Each figure is a name, our value, the third's, and the largest ratio that is good."""
    ratios = [(name, ratio(ours, theirs), limit) for name, ours, theirs, limit in figures]
    conditions = ((r <= limit, f"{name} {r:.3g} (at most {limit:g})") for name, r, limit in ratios)
    status, text = _all_of(*conditions)
    return status, f"{level}: ratios {text}"


def ratio(ours: float, theirs: float) -> float:
    """ours / theirs; 1 if neither has an error, and infinite if only ours has one."""
    if theirs == 0:
        return 1.0 if ours == 0 else float("inf")
    return ours / theirs
