"""Faults in right results: every kind changes the result, and the standards catch what they must."""

from __future__ import annotations

import json
import re
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner

from paths import DOCS
from pooltide.acceptance.faults import FAULTS, Sample, summed
from pooltide.acceptance.inputs import draw
from pooltide.acceptance.mutation import RIGHT, Tally, Trial, tables, trials
from pooltide.acceptance.notation import parse
from pooltide.acceptance.oracle import golden_result
from pooltide.acceptance.trial import problem_of
from pooltide.acceptance.trial import run as run_case
from pooltide.acceptance.verdicts import STANDARDS
from pooltide.cli import main

SHARE = 120


@pytest.fixture(scope="module")
def found() -> list[Trial]:
    return list(trials(SHARE, 7))


def sample_of(text: str) -> Sample:
    case = parse(text)
    problem = problem_of(case)
    source, indices = draw(problem, case.data)
    return Sample(case, problem, source, indices, golden_result(problem, source, indices))


def test_every_kind_has_its_share(found: list[Trial]) -> None:
    counts = Counter(trial.kind for trial in found)
    assert counts == {kind: SHARE // len(FAULTS) for kind in FAULTS} | dict.fromkeys(RIGHT, SHARE // 4)


def test_bits_catches_every_fault(found: list[Trial]) -> None:
    assert not [trial for trial in found if trial.kind in FAULTS and "bits" in trial.passed]


def test_every_standard_catches_misplaced_nan_and_indices(found: list[Trial]) -> None:
    assert not [t for t in found if t.kind in ("NaN routing", "index tie") and t.passed]


def test_the_default_standard_takes_other_orders_and_catches_gross_faults(found: list[Trial]) -> None:
    assert all("mixed" in trial.passed for trial in found if trial.kind == RIGHT[1])
    gross = ("swapped axes", "shifted windows", "planes exchanged")
    assert not [trial for trial in found if trial.kind in gross and "mixed" in trial.passed]


def test_rounding_towards_zero_is_within_an_ulp(found: list[Trial]) -> None:
    """So the standards with tolerances must pass it, as the documentation says."""
    passed = [trial.passed for trial in found if trial.kind == "rounding towards zero"]
    assert all({"mixed", "ulp"} <= names for names in passed)


def test_a_seed_gives_the_same_faults() -> None:
    assert list(trials(24, 3)) == list(trials(24, 3))
    assert [t.case for t in trials(12, 3)] != [t.case for t in trials(12, 4)]


@pytest.mark.parametrize(
    "case",
    [
        "avg2d:2x3x11x13:k3x5:s2:p1:ceil:nopad",
        "avg3d_forward:2x3x5x7x6:k3x2x2:s2",
        "adaptive_avg2d:2x3x11x7:o5x3",
        "adaptive_avg2d_forward:2x3x11x7:o5x3",
        "max2d:2x3x11x13:k3:s1:i64",
        "adaptive_max1d:2x3x17:o5:i64:f16",
    ],
)
def test_sums_in_the_contracts_order_have_the_contracts_bits(case: str) -> None:
    sample = sample_of(case)
    result = summed(sample, sample.problem.dtype.accumulator, None)
    assert result is not None
    trial = run_case(sample.case)
    assert np.array_equal(result[0] + 0, np.asarray(trial.actual) + 0)
    other = summed(sample, sample.problem.dtype.accumulator, np.random.default_rng(1))
    assert other is not None
    assert np.allclose(other[0].astype(float), result[0].astype(float), rtol=1e-2, atol=1e-5)


def test_a_lost_addition_is_one_cell() -> None:
    sample = sample_of("avg2d:2x3x11x13:k3:s1:seed1")
    result = FAULTS["one addition lost"](sample, np.random.default_rng(2))
    assert result is not None
    assert int((result[0] != sample.golden.rounded).sum()) == 1


def test_kinds_that_do_not_apply() -> None:
    random = np.random.default_rng(0)
    assert FAULTS["wrong divisor"](sample_of("adaptive_avg2d:1x1x5x7:o2x3"), random) is None
    assert FAULTS["float16 sums"](sample_of("avg2d:1x1x5x7:k3:f16"), random) is None
    assert FAULTS["index tie"](sample_of("avg2d:1x1x5x7:k3"), random) is None
    assert FAULTS["planes exchanged"](sample_of("avg2d:1x1x5x7:k3"), random) is None
    assert FAULTS["one addition lost"](sample_of("max2d_forward:1x1x5x7:k3"), random) is None


def test_the_command_prints_what_was_counted() -> None:
    text = CliRunner().invoke(main, ["mutate", "--faults", "24", "--seed", "3"]).stdout
    assert [line.split()[0] for line in text.splitlines() if line.split(" ")[0] in STANDARDS] == [*STANDARDS]
    assert re.search(r"^NaN routing +2 +none$", text, re.M)
    *records, last = map(
        json.loads,
        CliRunner().invoke(main, ["mutate", "--faults", "24", "--seed", "3", "--json"]).stdout.splitlines(),
    )
    assert len(records) == 24 + 2 * 6
    for name, counts in last["summary"].items():
        faults = [record for record in records if record["kind"] in FAULTS]
        assert counts["caught"] == sum(name in record["failed_by"] for record in faults)
        assert counts["caught"] + counts["missed"] == 24
        row = next(line for line in text.splitlines() if line.startswith(f"{name} "))
        assert row.split()[1:] == [str(count) for count in counts.values()]


def test_the_documentation_names_every_kind_and_standard() -> None:
    section = (DOCS / "acceptance.md").read_text("utf-8").partition("## What the standards catch")[2]
    section = section.partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == list(STANDARDS)
    kinds = re.findall(r"^\| ([^|`]+) \| [^|]*[a-z][^|]* \|$", section, re.M)
    assert [kind for kind in kinds if kind in FAULTS] == list(FAULTS)


@pytest.mark.slow
def test_the_documentation_has_the_counts() -> None:
    tally = Tally()
    for trial in trials(1000, 1):
        tally.add(trial)
    text = (DOCS / "acceptance.md").read_text("utf-8")
    standards, kinds = tables(tally)
    for row in [[f"`{row[0]}`", *row[1:]] for row in standards] + kinds:
        assert f"| {' | '.join(row)} |" in text
