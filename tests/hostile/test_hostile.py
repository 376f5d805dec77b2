"""A short share of the hostile suite, and the proof that the suite can fail. `python -m tests.hostile` has more."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import numpy as np
import pytest

from hostile.memory import Memory
from hostile.supervise import Report, describe, entrances, run
from paths import ROOT

CALLS = {
    "numpy": 3000,
    "regions": 1000,
    "torch": 1000,
    "functional": 400,
    "patch": 600,
    "acl": 2000,
    "cli": 60,
    "files": 150,
}
ENTRANCES = [name for name in entrances() if name in CALLS]


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {report.entrance: report for report in run({name: CALLS[name] for name in ENTRANCES}, seed=20)}


def _told(report: Report) -> str:
    return "\n".join(f"{f.kind}: {f.text}\n  {f.call}\n  {f.reproduce}" for f in report.findings.values())


@pytest.mark.slow
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_no_call_crashes_or_hangs_or_writes_outside(reports: dict[str, Report], entrance: str) -> None:
    report = reports[entrance]
    assert [report.counts[name] for name in ("crashes", "hangs", "outside")] == [0, 0, 0], _told(report)
    assert report.counts["calls"] >= CALLS[entrance] // 2, "the calls were not made"


@pytest.mark.slow
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_every_refusal_is_in_our_words(reports: dict[str, Report], entrance: str) -> None:
    report = reports[entrance]
    assert not report.findings, _told(report)
    assert min(report.counts["results"], report.counts["refusals"]) > report.counts["calls"] // 10


@pytest.fixture(scope="module")
def faulty() -> Report:
    """Twelve trials: each fault of hostile.faulty at least once, "input" four times."""
    (report,) = run({"hostile.faulty": 12}, seed=4, limit=1.0)
    return report


def test_the_suite_counts_every_kind_of_fault(faulty: Report) -> None:
    found = {
        f.kind: " ".join(g.text for g in faulty.findings.values() if g.kind == f.kind)
        for f in faulty.findings.values()
    }
    counts = dict(faulty.counts)
    assert counts.pop("outside") == 4 * 60 + 16324
    assert counts == {"calls": 12, "results": 6, "refusals": 2, "crashes": 3, "hangs": 1, "odd": 1}
    assert "SIGABRT" in found["crash"]
    assert "in string_at" in found["crash"]
    assert "in _beyond" in found["crash"], "the page behind an array is forbidden"
    assert "input changed 60 bytes outside" in found["outside"], "an argument that is only read was written"
    assert "outside changed 16324 bytes outside" in found["outside"], (
        "all of the slot but the 60 bytes of out"
    )
    assert found["odd error"] == "odd raised KeyError: 'odd'"


def test_a_finding_can_be_reproduced(faulty: Report) -> None:
    finding = next(f for f in faulty.findings.values() if "KeyError" in f.text)
    index = int(finding.reproduce.rpartition(" ")[2])
    assert describe("hostile.faulty", 4, index) == finding.call
    again = subprocess.run(
        [sys.executable, *finding.reproduce.split()[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1, again.stderr
    assert finding.text in again.stdout


@pytest.mark.parametrize("layout", ["planes", "channels_last", "view", "unaligned", "broadcast"])
def test_guarded_memory_sees_one_byte(layout: str) -> None:
    memory, rng = Memory(), Random(3)
    for _ in range(20):
        memory.begin()
        place = memory.place(rng, (2, 3, 4, 5), 4, layout)
        memory.seal()
        place.array(np.float32)[...] = 7
        assert memory.outside([place]) == 0
        place.slot.bytes[rng.randrange(place.slot.size)] ^= 1
        assert memory.outside([]) == 1
