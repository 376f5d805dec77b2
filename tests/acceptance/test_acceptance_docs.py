"""docs/acceptance.md: its walk-through is what happens, and it names what the program has."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest

from browser import Browser, needs_browser
from commandline import invoke
from consoles import type_in
from paths import DOCS
from pooltide.acceptance.msprobe_csv import HEADER
from pooltide.acceptance.verdicts import STANDARDS

PAGE = DOCS / "acceptance.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="NO DOCS: the tests run outside the source tree")


def first_column(title: str) -> list[str]:
    table = PAGE.read_text("utf-8").partition(f"| {title} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|", table, re.M)


def test_the_page_has_every_standard_in_order() -> None:
    assert first_column("standard") == list(STANDARDS)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the walk-through was done; every command printed what the page prints."""
    directory = tmp_path_factory.mktemp("walk")
    shutil.copy(PAGE.parent.parent / "tests/support/dump_model.py", directory)
    assert type_in(PAGE, directory) == 7
    return directory


@pytest.mark.slow
def test_the_walk_through(walked: Path) -> None:
    with (walked / "details.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert tuple(rows[0]) == HEADER
    assert len(rows) == 9
    assert all(len(row) == len(HEADER) for row in rows)


@pytest.mark.slow
@needs_browser
def test_the_reason_can_be_read_from_the_report_on_a_telephone(walked: Path, chromium: Browser) -> None:
    chromium.open(walked / "report.html", 390)
    assert chromium.overflow() == []
    section = 'document.getElementById("case-Functional.avg_pool2d.0.backward")'
    reason = f'{section}.querySelector(".reason")'
    assert (
        chromium.evaluate(f"{reason}.innerText")
        == "msprobe fails: cosine similarity 0.989756; it must be above 0.99"
    )
    assert chromium.evaluate(f"{reason}.getBoundingClientRect().right") <= 390
    text = chromium.evaluate("document.body.innerText")
    assert "msprobe warns: tenthousandth: 252 of 252 cells have rel 0.0001 or more" in text
    assert "Of 8 cases, 6 pass, 1 warn, 1 fail." in text


@pytest.mark.slow
def test_golden_files_that_were_touched_are_named(walked: Path, tmp_path: Path) -> None:
    """After the walk-through, on copies: each kind of bad input gives a sentence."""
    golden = tmp_path / "golden"
    faults = {
        "output.npy: the file was changed": lambda: _flip(
            golden / "Functional.max_pool2d.0.forward/output.npy"
        ),
        "input.npy: the file was changed": lambda: _cut(golden / "Functional.avg_pool2d.0.forward/input.npy"),
        "manifest.jsonl, line 2: ": lambda: _replace(golden / "manifest.jsonl", '"seed": 0', '"seed": 1'),
        "the lines were changed after they were made": lambda: _drop_last_line(golden / "manifest.jsonl"),
        "sha256 is None; it must be 64 hexadecimal digits": lambda: _replace(
            golden / "manifest.jsonl", '"sha256": "', '"sha1": "', 1
        ),
    }
    for says, harm in faults.items():
        shutil.copytree(walked / "golden", golden)
        harm()
        assert says in invoke("compare", walked / "dump", golden, rc=2)
        shutil.rmtree(golden)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _replace(path: Path, old: str, new: str, count: int = -1) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))


def _drop_last_line(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
