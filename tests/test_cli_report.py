"""The report, in a real browser: what it shows, and its script on."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from commandline import pooltide

CHROMIUM = shutil.which("chromium")
ARTEFACTS = Path(__file__).parent.parent / "artefacts"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
browser = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER: chromium is not installed (apt-get install chromium)"
)

CASES = """\
name,case
stem,avg2d:2x3x23x29:k3:s2:p1:f16:seed7
global,avg2d:3x5x7x7:k7:f32:seed1
volume,adaptive_avg3d:2x3x7x23x29:o3x7x5:f32:seed2
peaks,adaptive_max2d:2x3x23x19:o5x7:f32:i64:seed3
edge,avg2d:1x2x5x5:k3:ceil:nopad:seed5
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three results of five are wrong where we know it; one is missing."""
    directory = tmp_path_factory.mktemp("report")
    (directory / "cases.csv").write_text(CASES)
    pooltide("golden", "cases.csv", "-o", "golden", "--report", "golden.html", cwd=directory)
    shutil.copytree(directory / "golden", directory / "actual")
    for name, factor in (("stem", 1.5), ("volume", -1), ("peaks", 2)):
        path = directory / "actual" / name / "grad_input.npy"
        values = np.load(path)
        values.reshape(-1)[400:440] *= factor
        values.reshape(-1)[500] += 1
        np.save(path, values)
    shutil.rmtree(directory / "actual/edge")
    pooltide("compare", "actual", "golden", "--report", "report.html", cwd=directory, rc=2)
    return directory / "report.html"


class Page(HTMLParser):
    """The cases' rows as the document has them: (name, hidden), in order; and the marks of the rest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[tuple[str, bool]] = []
        self.sections: list[str] = []
        self.shown = ""
        self._row: bool | None = None
        self._shown = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "tr" and "data-status" in given:
            self._row = "hidden" in given
        if tag == "section":
            self.sections.append(given["id"] or "")
        self._shown = given.get("id") == "shown"

    def handle_data(self, data: str) -> None:
        if self._row is not None:
            self.rows.append((data, self._row))
            self._row = None
        if self._shown:
            self.shown, self._shown = data, False


def chromium(tmp_path: Path, page: Path, *flags: str, fragment: str = "") -> str:
    assert CHROMIUM is not None
    profile = tmp_path / "profile"
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *flags, f"file://{page}{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_needs_no_network(report: Path) -> None:
    text = report.read_text()
    assert not re.search(r"""(src|href|url\()=?["']?(https?:)?//""", text)
    assert set(re.findall(r'(?:href|src)="([^"#]{1,5})', text)) <= {"data:"}


def test_what_a_failing_case_shows(report: Path) -> None:
    text = report.read_text()
    sections = dict(re.findall(r'<section id="case-(\w+)">(.*?)</section>', text, re.S))
    assert set(sections) == {"stem", "volume", "peaks"}
    for name, case in (("stem", "avg2d:2x3x23x29:k3:s2:p1:f16:seed7"), ("peaks", "adaptive_max2d")):
        assert "data:image/png;base64," in sections[name]
        assert 'class="histogram"' in sections[name]
        assert f"reproduce: pooltide run {case}" in sections[name]
    assert sections["stem"].count('class="window"') == 12 * 15
    # cell 500 of stem is plane 0, (17, 7): fed by the outputs (8, 3), (8, 4), (9, 3), (9, 4)
    assert "<td>0, 0, 0, 17, 7</td>" in sections["stem"]
    row = re.search(r"<td>0, 0, 0, 17, 7</td>.*?</tr>", sections["stem"], re.S)
    assert row
    assert re.findall(r"\((\d+, \d+, \d+)\)", row[0]) == ["0, 8, 3", "0, 8, 4", "0, 9, 3", "0, 9, 4"]


def test_text_from_files_can_not_become_markup(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("name,case\nx,<script>alert(1)</script>:1\n")
    pooltide("golden", "cases.csv", "-o", "g", "--report", "r.html", cwd=tmp_path, rc=1)
    text = (tmp_path / "r.html").read_text()
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text


@browser
def test_rows_in_the_order_of_the_cases(report: Path, tmp_path: Path) -> None:
    page = Page(chromium(tmp_path, report, "--dump-dom"))
    assert page.rows == [(name, False) for name in ("stem", "global", "volume", "peaks", "edge")]
    assert page.shown == "5 of 5 cases"
    assert page.sections == ["case-stem", "case-volume", "case-peaks"]


@browser
def test_the_address_sorts_and_filters(report: Path, tmp_path: Path) -> None:
    page = Page(
        chromium(tmp_path, report, "--dump-dom", fragment="#sort=differing&order=descending&status=fail")
    )
    assert [name for name, _ in page.rows] == ["stem", "volume", "peaks", "global", "edge"]
    assert [name for name, hidden in page.rows if not hidden] == ["stem", "volume", "peaks"]
    page = Page(chromium(tmp_path, report, "--dump-dom", fragment="#filter=f32+avg2d"))
    assert [name for name, hidden in page.rows if not hidden] == ["global", "edge"]
    assert page.shown == "2 of 5 cases"


@browser
def test_clicks_and_typing(report: Path, tmp_path: Path) -> None:
    """The page's own handlers, driven by a script at its end; the outcome is read from the document."""
    script = """<script>{
    const click = name => [...document.querySelectorAll("#cases th")].find(t => t.textContent === name).click();
    click("max ULP"); click("max ULP");
    const filter = document.getElementById("filter");
    filter.value = "avg"; filter.dispatchEvent(new Event("input"));
    document.title = location.hash;
    }</script></body>"""
    driven = tmp_path / "driven.html"
    driven.write_text(report.read_text().replace("</body>", script))
    text = chromium(tmp_path, driven, "--dump-dom")
    page = Page(text)
    assert [name for name, _ in page.rows] == ["volume", "peaks", "stem", "global", "edge"]
    assert [name for name, hidden in page.rows if not hidden] == ["volume", "stem", "global", "edge"]
    assert "<title>#filter=avg&amp;sort=max+ULP&amp;order=descending</title>" in text
    assert 'aria-sort="descending"' in text


@browser
def test_it_looks_right(report: Path, tmp_path: Path) -> None:
    """A picture for people; an empty page of this size would compress to a few kilobytes."""
    ARTEFACTS.mkdir(exist_ok=True)
    for page in (report, report.with_name("golden.html")):
        picture = ARTEFACTS / f"{page.stem}.png"
        picture.unlink(missing_ok=True)
        chromium(tmp_path, page, "--window-size=1500,2600", f"--screenshot={picture}")
        assert picture.stat().st_size > 40_000


def test_run_writes_one_too(tmp_path: Path) -> None:
    case = "adaptive_max2d:2x3x11x13:o5x7:f16:anywhere"
    (tmp_path / "cases.csv").write_text(
        f"name,case\na,{case}\nb,avg2d:2x3x5x7:k3:p2\nc,adaptive_avg3d:2x3x7x11x13:o5x3x4\n"
    )
    pooltide("run", "cases.csv", "--standard", "bits", "--report", "r.html", cwd=tmp_path, rc=2)
    text = (tmp_path / "r.html").read_text()
    assert re.findall(r'<tr data-status="(\w+)"><td>(?:<a href="#case-\w+">)?(\w)', text) == [
        ("pass", "a"),
        ("error", "b"),
        ("fail", "c"),
    ]
    assert 'id="case-c"' in text
