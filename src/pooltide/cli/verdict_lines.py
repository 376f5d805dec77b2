"""What run and compare say of verdicts: lines, counts and JSON; the options --standard, --lang and -v.

Exit status of run and compare: 2 if a case could not be compared, else 1 if a verdict failed, else 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import click

from ..acceptance import chinese
from ..acceptance.chinese import CHINESE, ENGLISH, LANGUAGES
from ..acceptance.measures import SHARES, Measures
from ..acceptance.summaries import summed
from ..acceptance.ulps import bin_names
from ..acceptance.verdicts import DEFAULT, STANDARDS, WARNING, WEAK_THIRD, ZEROS, Verdict, differences

_LANGUAGE = "pooltide.language"


def _keep_language(context: click.Context, _: click.Parameter, value: str) -> None:
    context.meta[_LANGUAGE] = value


language_option = click.option(
    "--lang",
    type=click.Choice(LANGUAGES),
    default=ENGLISH,
    expose_value=False,
    callback=_keep_language,
    help="Language of verdicts and of the report.",
)
standard_option = click.option(
    "--standard",
    "--verdict",
    "standard",
    type=click.Choice(list(STANDARDS)),
    default=DEFAULT,
    metavar="NAME",
    show_default=True,
    help=f"What decides the exit status: {', '.join(STANDARDS)}.",
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Print all verdicts and figures of each case."
)
MEASURES = ("MERE", "MARE", "RMSE", "max ULP", "differing")


@dataclass(slots=True)
class Tally:
    """How many cases passed, gave a warning, failed, or could not be compared."""

    passed: int = 0
    warnings: int = 0
    failed: int = 0
    errors: int = 0
    left_out: int = 0  # cases of the list that have no golden data
    doubts: Counter[str] = field(default_factory=Counter)  # of cases that passed

    def add(self, verdict: Verdict | None) -> None:
        """Count a case; None: it could not be compared."""
        if verdict is None:
            self.errors += 1
        elif verdict.passed:
            self.passed += 1
            self.doubts.update(verdict.doubts)
        elif verdict.status == WARNING:
            self.warnings += 1
        else:
            self.failed += 1

    @property
    def exit_status(self) -> int:
        return 2 if self.errors else 1 if self.failed or self.warnings or self.left_out else 0

    def summary(self, standard: str) -> str:
        total = self.passed + self.warnings + self.failed + self.errors
        english, other = doubted(self.doubts)
        if language() == CHINESE:
            kinds = {"警告": self.warnings, "失败": self.failed, "无法比较": self.errors}
            kinds["没有标杆数据（golden 无法生成）"] = self.left_out
            others = "".join(f"，{n} 个{kind}" for kind, n in kinds.items() if n)
            passed = f"{total} 个用例中 {self.passed} 个通过" if total else "没有比较任何用例：该分片没有用例"
            counts = f"{passed}{f'（{other}）' if other else ''}{others}"
            return f"{counts}；标准为 {standard}：{chinese.STANDARDS[standard]}"
        rest = [f"{self.warnings} warning{'s' if self.warnings > 1 else ''}"] if self.warnings else []
        rest += [f"{self.failed} fail"] if self.failed else []
        rest += [f"{self.errors} could not be compared"] if self.errors else []
        rest += [f"{self.left_out} without golden data, which could not be made"] if self.left_out else []
        passed = (
            f"{self.passed} of {total} pass" if total else "no case was compared, because the shard has none"
        )
        counts = ", ".join([f"{passed}{f' ({english})' if english else ''}", *rest])
        return f"{counts}; the standard is {standard}: {STANDARDS[standard]}"

    def record(self, standard: str) -> dict[str, Any]:
        counts = {"pass": self.passed, "warning": self.warnings, "fail": self.failed, "error": self.errors}
        return summed(standard, counts, self.exit_status, self.doubts)


def language() -> str:
    """The language that --lang chose."""
    context = click.get_current_context(silent=True)
    return str(context.meta.get(_LANGUAGE, ENGLISH)) if context else ENGLISH


def worded(text: str) -> str:
    """A sentence about a verdict in the language that --lang chose."""
    return chinese.chinese(text) if language() == CHINESE else text


def doubted(doubts: Mapping[str, int]) -> tuple[str, str]:
    """How many of the passes say little, in English and Chinese; "" if none does."""
    phrases = {ZEROS: "would pass with zeros, too", WEAK_THIRD: "have a third result that fails mixed itself"}
    english = "; ".join(f"{n} of them {phrases[doubt]}" for doubt, n in doubts.items())
    return english, "；".join(f"其中 {n} 个用例，{chinese.chinese(doubt)}" for doubt, n in doubts.items())


def measured(m: Measures) -> tuple[Any, ...]:
    """The values of MEASURES."""
    return m.mere, m.mare, m.rmse, m.max_ulp, m.differing


def case_line(label: str, verdict: Verdict, m: Measures, about: str = "") -> str:
    """The one line of a case: its status, its name, and what decided."""
    indices = f" and {m.indices} indices" if m.indices else ""
    text = differences(m) if m.differing else f"all {m.count} cells{indices} equal"
    text = text if verdict.passed else f"{verdict.name}: {verdict.text}"
    text += "".join(f"; {doubt}" for doubt in verdict.doubts if verdict.passed)
    return f"{verdict.status:4}  {label}: {about}{worded(text + nonfinite(m))}"


def nonfinite(m: Measures) -> str:
    """How many NaN and Inf there are, in the result and in the golden values; "" if there are none."""
    if not (m.nan or m.inf or m.golden_nan or m.golden_inf):
        return ""
    if m.misplaced == 0:
        return f"; {m.nan} NaN and {m.inf} Inf, as golden"
    return f"; {m.nan} NaN (golden {m.golden_nan}), {m.inf} Inf (golden {m.golden_inf})"


def details(m: Measures, verdicts: Sequence[Verdict], standard: str) -> list[str]:
    """The lines that -v adds to a case; the verdict that decides is marked."""
    ulps = ", ".join(f"{name}: {n}" for name, n in histogram(m).items())
    measures = [
        f"error    MERE {m.mere:.3g}, MARE {m.mare:.3g}, RMSE {m.rmse:.3g}, mean abs {m.mean_abs:.3g}, "
        f"largest abs {m.max_abs:.3g}",
        f"cosine   {m.cosine:.9g}, balance {m.balance:.3g}, wrong small values {m.small_errors} of {m.small}",
        f"ULP      {ulps}",
    ]
    lines = measures if m.finite else ["error    no cell is finite in both, so there are no figures"]
    for v in verdicts:
        lines.append(f"{v.name:13} {v.status}: {worded(v.text)}{' (decides)' if v.name == standard else ''}")
    decided = next(v.passed for v in verdicts if v.name == standard)
    if decided and not all(v.passed for v in verdicts):
        lines.append(f"{standard} decides; docs/acceptance.md says why others can fail a good result")
    return [f"      {line}" for line in lines]


def histogram(m: Measures) -> dict[str, int]:
    """The cells by their distance in ULPs, without the distances that no cell has."""
    return {name: n for name, n in zip(bin_names(), m.histogram, strict=True) if n}


def figures(m: Measures, verdicts: Sequence[Verdict], standard: str = DEFAULT) -> dict[str, Any]:
    """Measures and verdicts for JSON. Infinite measures, and those of no finite cell, are None."""
    doubts = [doubt for v in verdicts if v.name == standard for doubt in v.doubts]
    counts = ("count", "misplaced", "nan", "inf", "golden_nan", "golden_inf")
    values = {
        **dict(zip(MEASURES, measured(m), strict=True)),
        "mean_abs": m.mean_abs,
        "max_abs": m.max_abs,
        "cosine": m.cosine,
        **{f"within_{error:g}": share for error, share in zip(SHARES, m.shares, strict=True)},
        "small_error_ratio": m.small_ratio,
        "balance": m.balance,
        "mean_ulp": m.mean_ulp,
        "ulp_share": m.ulp_share,
    }
    return {
        **{name: getattr(m, name) for name in counts},
        **{name: value if m.finite and isfinite(value) else None for name, value in values.items()},
        "differing": m.differing,
        "zeros_pass": ZEROS in doubts,
        "doubts": doubts,
        "ulp_histogram": histogram(m),
        "verdicts": {v.name: {"pass": v.passed, "status": v.status, "text": v.text} for v in verdicts},
    }
