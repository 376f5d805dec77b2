"""The report, in a real browser: what it shows, and its script on."""

from __future__ import annotations

import json
import re
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from browser import Browser, needs_browser
from commandline import pooltide
from paths import ROOT
from pooltide.acceptance.report_page import Report, page
from pooltide.acceptance.report_rows import MOST_SECTIONS, Entry, Rows, groups_of
from shares import fast_first

ARTEFACTS = ROOT / "artefacts"
CASES = """\
name,case
stem,avg2d:2x3x23x29:k3:s2:p1:f16:seed7
global,avg2d:3x5x7x7:k7:f32:seed1
volume,adaptive_avg3d:2x3x7x23x29:o3x7x5:f32:seed2
peaks,adaptive_max2d:2x3x23x19:o5x7:f32:i64:seed3
edge,avg2d:1x2x5x5:k3:ceil:nopad:seed5
row,avg1d:2x3x41:k5:s2:f32:seed6
"""
ROWS = '[...document.querySelectorAll("#cases tr.main")]'
NAMES = f"{ROWS}.map(row => row.cells[0].textContent)"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four results of six are wrong where we know it; one is missing; one file belongs to no case."""
    directory = tmp_path_factory.mktemp("report")
    (directory / "cases.csv").write_text(CASES)
    pooltide("golden", "cases.csv", "-o", "golden", "--report", "golden.html", cwd=directory)
    shutil.copytree(
        directory / "golden", directory / "actual", ignore=shutil.ignore_patterns("*.bin", "manifest.jsonl")
    )
    for name, factor in (("stem", 1.5), ("volume", -1), ("peaks", 2), ("row", np.nan)):
        path = directory / "actual" / name / "grad_input.npy"
        values = np.load(path)
        values.reshape(-1)[200:240] *= factor
        values.reshape(-1)[-7] += 1
        np.save(path, values)
    shutil.rmtree(directory / "actual/edge")
    (directory / "actual/notes.txt").write_text("mine")
    pooltide("compare", "actual", "golden", "--report", "report.html", cwd=directory, rc=2)
    return directory / "report.html"


class Balanced(HTMLParser):
    """Fails where a tag is closed that is not open."""

    _VOID = ("meta", "input", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_one_well_formed_file(report: Path) -> None:
    text = report.read_text()
    assert not re.search(r"""(src|href|url\()=?["']?(https?:)?//""", text)
    assert set(re.findall(r'(?:href|src)="([^"#]{1,5})', text)) <= {"data:"}
    for name in ("report.html", "golden.html"):
        Balanced(report.with_name(name).read_text())


def sections(report: Path) -> dict[str, str]:
    return dict(
        re.findall(r'<section class="case" id="case-(\w+)">(.*?)</section>', report.read_text(), re.S)
    )


def test_what_a_failing_case_shows(report: Path) -> None:
    found = sections(report)
    assert list(found) == ["row", "volume", "peaks", "stem"]  # NaN out of place first, then by ULP
    for name in ("stem", "peaks"):
        assert "data:image/png;base64," in found[name]
        assert 'class="histogram"' in found[name]
        assert re.search(rf"reproduce: pooltide compare \S+ \S+ --only {name} -v", found[name])
    windows = re.search(r'class="window" d="([^"]*)"', found["stem"])
    assert windows
    assert windows[1].count("M") == 12 * 15
    # the cell seven before the last is plane (1, 2), (22, 22): fed by the output (11, 11)
    row = re.search(r">1, 2, 22, 22</td>.*?</tr>", found["stem"], re.S)
    assert row
    assert re.findall(r"\((\d+, \d+)\)", row[0]) == ["11, 11"]


def test_axes_are_named_as_the_case_has_them(report: Path) -> None:
    found = sections(report)
    heads = {name: re.search(r"<th[^>]*>(n, c[^<]*)</th>", text) for name, text in found.items()}
    assert {name: head and head[1] for name, head in heads.items()} == {
        "stem": "n, c, h, w", "volume": "n, c, d, h, w", "peaks": "n, c, h, w", "row": "n, c, w"
    }  # fmt: skip
    assert "23×29 cells, h down and w across" in found["stem"]
    assert re.search(r"d = \d of 0 to 6, 23×29 cells", found["volume"])
    assert "1×41 cells, w across" in found["row"]


def test_the_histogram_has_few_bins_and_the_misplaced_cells(report: Path) -> None:
    bars = re.findall(
        r'<b>(.*?)(?:<span lang="zh">[^<]*</span>)?</b><i class="\w*" style="width:[\d.]+%"></i><span>(\d+)</span>',
        sections(report)["row"],
    )
    assert bars[-1] == ('<span lang="en">NaN or Inf out of place</span>', "40")
    for text in sections(report).values():
        assert len(re.findall("<b>", text.partition('class="histogram"')[2].partition("</figure>")[0])) <= 14
    total = sum(int(n) for _, n in bars)
    assert total == 2 * 3 * 41


def test_text_from_files_can_not_become_markup(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("name,case\nx,</script><script>alert(1)</script>:1\n")
    pooltide("golden", "cases.csv", "-o", "g", "--report", "r.html", cwd=tmp_path, rc=1)
    text = (tmp_path / "r.html").read_text()
    assert "\\u003cscript>alert(1)" in text
    assert "<script>alert" not in text


@needs_browser
def test_it_says_what_was_compared_when_and_where(report: Path, chromium: Browser) -> None:
    chromium.open(report)
    text = chromium.evaluate("document.body.innerText")
    assert "Of 6 cases, 1 pass, 4 fail, 1 could not be compared." in text
    for words in (
        "the results of actual with the golden data of golden",
        "mixed: |a - g| <= atol + rtol·|g| in 99 % of the cells",
        "this library's functions",
        " UTC",
        "x86_64" if "x86_64" in text else "cores",
        "pooltide 0.1.0, NumPy",
        "pooltide compare actual golden --report report.html",
    ):
        assert words in text
    files = chromium.evaluate('document.getElementById("files").innerText')
    assert "no result for edge" in files
    assert "actual/notes.txt" in files
    assert "extra: no case of the golden data has this name" in files


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", fast_first([False, True]), ids=["light", "dark"])
def test_nothing_is_wider_than_the_page(report: Path, chromium: Browser, width: int, dark: bool) -> None:
    """With all details open; the picture is kept for people to look at."""
    ARTEFACTS.mkdir(exist_ok=True)
    for file in (report, report.with_name("golden.html")):
        chromium.open(file, width, dark=dark)
        chromium.evaluate('document.querySelectorAll("details").forEach(d => d.open = true)')
        assert chromium.overflow() == []
        background = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") is not dark
        picture = ARTEFACTS / f"{file.stem}-{width}-{'dark' if dark else 'light'}.png"
        chromium.picture(picture)
        assert picture.stat().st_size > 20_000  # an empty page compresses to a few kilobytes


@needs_browser
def test_that_overflow_can_be_seen(report: Path, chromium: Browser) -> None:
    chromium.open(report, 390)
    chromium.evaluate('document.querySelector("h1").style.minWidth = "500px"')
    assert chromium.overflow() != []


@needs_browser
def test_the_reason_can_be_read_on_a_telephone(report: Path, chromium: Browser) -> None:
    chromium.open(report, 390)
    reason = 'document.querySelector("#case-stem .reason")'
    assert chromium.evaluate(f"{reason}.innerText").startswith(
        "mixed fails: 6 of 4002 cells have an error above both 0.1 and 32 ULP"
    )
    box = json.loads(chromium.evaluate(f"JSON.stringify({reason}.getBoundingClientRect())"))
    assert box["left"] >= 0
    assert box["right"] <= 390
    assert box["height"] > 20
    why = chromium.evaluate('document.querySelector("#cases td.why").innerText')
    assert why.startswith("mixed fails: ")
    assert "40 NaN (golden 0)" in chromium.evaluate('document.querySelector("#case-row .reason").innerText')


@needs_browser
def test_the_address_sorts_and_filters(report: Path, chromium: Browser) -> None:
    chromium.open(report, fragment="#sort=differing&order=descending&status=fail")
    assert chromium.evaluate(NAMES) == ["stem", "volume", "row", "peaks"]
    chromium.open(report, fragment="#filter=f32+avg2d&sort=line")
    assert chromium.evaluate(NAMES) == ["global", "edge"]
    assert chromium.evaluate('document.getElementById("shown").textContent') == "2 of 6 cases"


@needs_browser
def test_the_keyboard_filters_and_sorts(report: Path, chromium: Browser) -> None:
    chromium.open(report)
    assert chromium.evaluate(NAMES) == ["row", "volume", "peaks", "stem", "edge", "global"]  # worst first
    chromium.press("/", *"avg")
    assert chromium.evaluate(NAMES) == ["row", "volume", "stem", "edge", "global"]
    chromium.press("Tab", "ArrowDown", "ArrowDown", "ArrowDown")  # the status: pass, warning, fail
    assert chromium.evaluate(NAMES) == ["row", "volume", "stem"]
    chromium.evaluate('document.querySelector("#cases th:nth-child(7) button").focus()')
    assert chromium.evaluate("document.activeElement.textContent") == "max ULP"
    chromium.press("Enter", "Enter")
    assert (
        chromium.evaluate('document.querySelector("[aria-sort]").getAttribute("aria-sort")') == "descending"
    )
    ulps = chromium.evaluate(
        f"{ROWS}.map(row => Number(row.querySelector(\"[data-label='max ULP']\").textContent))"
    )
    assert ulps == sorted(ulps, reverse=True)
    assert chromium.evaluate("location.hash") == "#filter=avg&status=fail&sort=max+ULP&order=descending"


@needs_browser
def test_every_column_says_what_it_means(report: Path, chromium: Browser) -> None:
    chromium.open(report)
    titles = chromium.evaluate('[...document.querySelectorAll("#cases th button")].map(b => b.title)')
    assert len(titles) == 11
    assert all(len(title) > 15 for title in titles)
    terms = chromium.evaluate('[...document.querySelectorAll(".legend dt")].map(d => d.textContent)')
    assert [term for term in terms if term] == [
        "MERE",
        "MARE",
        "RMSE",
        "cosine",
        "max ULP",
        "differing",
        "NaN",
        "Inf",
    ]


@needs_browser
def test_a_link_opens_the_details(report: Path, chromium: Browser) -> None:
    chromium.open(report)
    opened = 'document.querySelector("#case-volume > details").open'
    assert chromium.evaluate(opened) is False
    chromium.evaluate("document.querySelector('a[href=\"#case-volume\"]').click()")
    chromium.wait(opened)


@needs_browser
def test_on_paper_there_are_no_controls_and_all_details(report: Path, chromium: Browser) -> None:
    chromium.open(report, dark=True)
    chromium.call("Emulation.setEmulatedMedia", media="print")
    chromium.evaluate('dispatchEvent(new Event("beforeprint"))')
    assert chromium.evaluate('getComputedStyle(document.getElementById("controls")).display') == "none"
    assert chromium.evaluate('[...document.querySelectorAll("section.case > details")].every(d => d.open)')
    chromium.call("Emulation.setEmulatedMedia", media="")


def many(count: int) -> str:
    rows = Rows()
    for i in range(count):
        about = ("pass", values()) if i % 2 else ("fail", values(), "x" * 150)
        rows.add(Entry(f"case-{i:06d}", f"avg2d:2x3x{i}x29:k3:s2:p1:f16:seed{i}", *about, severity=(0, i)))
    columns = ("MERE", "MARE", "RMSE", "cosine", "max ULP", "differing", "NaN", "Inf")
    return "".join(page(Report("many", {"label": "b"}, columns, rows)))


def values() -> tuple[float, ...]:
    return 1 / 3, 1 / 7, 1 / 9, 0.999, 17, 1234, 0, 0


def test_ten_thousand_cases_are_less_than_5_mb() -> None:
    assert len(many(10_000).encode()) < 5_000_000


@needs_browser
@pytest.mark.slow
def test_ten_thousand_cases_are_quick(tmp_path: Path, chromium: Browser) -> None:
    (tmp_path / "many.html").write_text(many(10_000))
    start = time.monotonic()
    chromium.open(tmp_path / "many.html", 390)
    assert len(chromium.evaluate(NAMES)) == 200
    chromium.press("/", *"seed9999")
    assert chromium.evaluate(NAMES) == ["case-009999"]
    assert time.monotonic() - start < 30
    chromium.evaluate('filter.value = ""; update(); more.click()')
    assert len(chromium.evaluate(NAMES)) == 400
    # Each failing case can be reached: the worst has a section, the script writes that of any other one.
    worst = chromium.evaluate('document.querySelector("section.case").id')
    assert worst == "case-case-009998"
    assert chromium.evaluate('document.querySelectorAll("section.case").length') == MOST_SECTIONS
    chromium.evaluate('location.hash = "#case-case-000000"')
    chromium.wait('document.querySelector("#chosen #case-case-000000")?.innerText.includes("xxx")')


def test_groups_are_those_of_the_case_and_its_name() -> None:
    found = groups_of(
        Entry("step0.rank1.Functional.avg_pool2d.0.backward", "avg2d:2x3x5x7:k3:f16:cl", "pass")
    )
    assert found == {
        "operator": "avg2d", "dtype": "f16", "layout": "channels-last", "layer": "Functional.avg_pool2d.0"
    }  # fmt: skip
    found = groups_of(Entry("stem", "max2d:2x3x5x7:k3:i64:bf16:gradOutput.s96x24x6x2", "pass"))
    assert found == {"operator": "max2d", "dtype": "bf16", "layout": "views", "layer": ""}
    assert set(groups_of(Entry("a.b", "", "error")).values()) == {""}


@needs_browser
def test_counts_by_group_lead_to_their_cases(report: Path, chromium: Browser) -> None:
    chromium.open(report)
    rows = chromium.evaluate(
        '[...document.querySelectorAll(".counts tbody tr")].map(r => [...r.cells].map(c => c.textContent))'
    )
    assert ["avg2d", "1", "1", "1"] in rows  # pass, fail, could not be compared
    assert ["adaptive_avg3d", "0", "1", "0"] in rows
    assert ["f16", "0", "1", "0"] in rows
    chromium.evaluate(
        '[...document.querySelectorAll("a.group")].find(a => a.textContent === "avg2d").click()'
    )
    assert chromium.evaluate(NAMES) == ["stem", "edge", "global"]
    assert chromium.evaluate("location.hash") == "#filter=operator%3Davg2d"


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_many_layers_do_not_push_the_cases_away(width: int, tmp_path: Path, chromium: Browser) -> None:
    cases = "".join(f"net.layer{i}.pool,avg2d:1x1x4x4:k2:seed{i}\n" for i in range(40))
    (tmp_path / "cases").write_text(f"name,case\n{cases}")
    pooltide("run", tmp_path / "cases", "--report", tmp_path / "report.html")
    chromium.open(tmp_path / "report.html", width)
    boxes = chromium.evaluate(
        '[...document.querySelectorAll(".counts .long")].map(e => [e.clientHeight, e.scrollHeight])'
    )
    assert max(height for height, _ in boxes) < 300
    assert boxes[-1][1] > 600  # the layers, of which a part is shown
    edges = chromium.evaluate(
        '["th.number", "td.number"].map(s => { const r = document.createRange();'
        " r.selectNodeContents(document.querySelector(`.counts ${s}`)); return r.getBoundingClientRect().right; })"
    )
    assert abs(edges[0] - edges[1]) < 4  # a heading is above its numbers


@needs_browser
def test_one_button_switches_to_chinese_and_back(report: Path, chromium: Browser) -> None:
    chromium.open(report, 390)
    english = chromium.evaluate("document.body.innerText")
    chromium.evaluate('document.getElementById("language").click()')
    text = chromium.evaluate("document.body.innerText")
    for words in (
        "共 6 个用例：1 个通过，4 个失败，1 个无法比较。",
        "mixed 失败：",
        "actual 的结果与 golden 的标杆数据",
        "筛选：用例必须含有的词",
        "所有平面中的最大误差",
        "按与标杆值的距离",
        "6 个用例中的 6 个",
        "本库的函数",
    ):
        assert words in text
    for words in (
        "cells have",
        "fails:",
        "Largest error",
        "Counts by",
        "Sort by",
        "of 6 cases",
        "this library",
    ):
        assert words in english
        assert words not in text
    assert chromium.overflow() == []
    chromium.evaluate('document.getElementById("language").click()')
    assert chromium.evaluate("document.body.innerText") == english


def test_the_report_names_golden_data_versions_and_the_chip(report: Path) -> None:
    directory = report.parent
    options = ("--report", "labelled.html", "--label", "chip 7, driver 2", "--lang", "zh")
    printed = pooltide("compare", "actual", "golden", *options, cwd=directory, rc=2)
    text = (directory / "labelled.html").read_text()
    digest = json.loads((directory / "golden/manifest.jsonl").read_text().partition("\n")[0])["sha256"]
    for words in (
        "chip 7, driver 2",
        f"6 cases, sha256 {digest}, made by pooltide 0.1.0",
        '<html lang="zh">',
    ):
        assert words in text
    assert "6 个用例中 1 个通过，4 个失败，1 个无法比较；标准为 mixed：" in str(printed)


@needs_browser
def test_names_take_one_line_where_there_is_room(tmp_path: Path, chromium: Browser) -> None:
    rows = Rows()
    name = "resnet50.layer1.0.maxpool.fwd"
    rows.add(
        Entry(
            name,
            "avg2d:32x64x112x112:k3:s2:p1:ceil:nopad:div-3:cube1:bf16:normal:seed7",
            "fail",
            values(),
            "y" * 400,
        )
    )
    columns = ("MERE", "MARE", "RMSE", "cosine", "max ULP", "differing", "NaN", "Inf")
    (tmp_path / "one.html").write_text("".join(page(Report("one", {}, columns, rows))))
    chromium.open(tmp_path / "one.html", 1280)
    lines = 'document.querySelector("#cases .name a").getClientRects().length'
    assert chromium.evaluate(lines) == 1
    assert chromium.overflow() == []


def test_run_writes_one_too(tmp_path: Path) -> None:
    case = "adaptive_max2d:2x3x11x13:o5x7:f16:anywhere"
    (tmp_path / "cases.csv").write_text(
        f"name,case\na,{case}\nb,avg2d:2x3x5x7:k3:p2\nc,adaptive_avg3d:2x3x7x11x13:o5x3x4\n"
    )
    pooltide("run", "cases.csv", "--standard", "bits", "--report", "r.html", cwd=tmp_path, rc=2)
    text = (tmp_path / "r.html").read_text()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert [row[:2] for row in data["rows"]] == [["a", "pass"], ["b", "error"], ["c", "fail"]]
    assert 'id="case-c"' in text


@needs_browser
def test_numbers_are_never_broken(report: Path, chromium: Browser) -> None:
    """A number in a table of the wide page takes one line."""
    chromium.open(report, 1280)
    script = """[...document.querySelectorAll("td.number")].filter(td => {
        const range = document.createRange(); range.selectNodeContents(td);
        return new Set([...range.getClientRects()].filter(line => line.width).map(line => line.top)).size > 1;
    }).length"""
    assert chromium.evaluate(script) == 0
    assert chromium.overflow() == []
