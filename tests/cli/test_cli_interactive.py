"""`pooltide show CASE -o page.html`, in a browser: what mouse, keyboard and touch show of cells and windows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from browser import Browser, needs_browser
from commandline import pooltide
from pooltide.acceptance.interactive import interactive_page
from pooltide.acceptance.notation import parse
from shares import fast_first

CASES = [
    "avg2d:1x1x6x8:k3:s2:p1:ceil:nopad:f32:seed3",
    "avg2d:1x1x7x11:k3x2:s2x1:p1:f16:seed7",
    "avg2d:1x1x5x7:k3:s1:p1:div-3",
    "adaptive_avg2d:2x3x7x11:o3x4:f64",
    "adaptive_avg3d:1x2x5x4x3:o3x3x2:bf16",
    "max2d:1x1x7x9:k3:s2:p1:f32:i64",
    "max1d:1x3x13:k3:s2:p1:anywhere",
    "avg3d_forward:1x1x4x5x3:k2x3x3:s2:p1:ceil",
    "adaptive_max2d_forward:1x1x5x7:o3x4:nan",
    "max2d_forward:1x1x7x9:k2:s2:d2:p1:inf",
]
# What is different from the golden values, by the page's own sums: term by term, in the order of the windows or cells.
DIFFERENT = """allWindows.concat(product(range(D.length), range(H.length), range(W.length))).filter((p, i) => {
    const isWindow = i < allWindows.length, grid = isWindow ? "windows" : "cells";
    if (grid !== result) return false;
    let sum = 0;
    if (data.kind === "average_gradient") for (const o of windowsOf(p)) sum += quotient(o);
    else if (data.kind === "maximum_gradient") { for (const o of allWindows) if (same(named(o), p)) sum += values.windows[flat("windows", o)]; }
    else if (data.kind === "average") { for (const c of cellsOf(p)) sum += values.cells[flat("cells", c)]; sum = divisors(p).reduce((x, n) => x / n, sum); }
    else sum = values.cells[data.indices[flat("windows", p)]];
    return !Object.is(sum + 0, values[grid][flat(grid, p)] + 0);
}).length"""


def write(case: str, folder: Path) -> Path:
    page = folder / "page.html"
    page.write_text(interactive_page(parse(case)), encoding="utf-8")
    return page


def at(grid: str, h: int, w: int) -> str:
    return f'td[data-grid={grid}][data-h="{h}"][data-w="{w}"]'


def said(browser: Browser) -> str:
    parts = "[...document.querySelectorAll('#explanation > :not(ol), #terms li')]"
    text: str = browser.evaluate(f"{parts}.map(e => e.textContent).filter(Boolean).join(' | ')")
    return text


def marked(browser: Browser, kind: str, grid: str = "cells") -> list[list[int]]:
    places = f"[...document.querySelectorAll('#grids td.{kind}[data-grid={grid}]')]"
    found: list[list[int]] = browser.evaluate(
        f"{places}.map(e => [Number(e.dataset.h), Number(e.dataset.w)])"
    )
    return found


@needs_browser
@pytest.mark.parametrize("case", fast_first(CASES, 2))
@pytest.mark.parametrize("width", [390, 1280])
def test_the_terms_add_up_to_the_golden_values(
    case: str, width: int, chromium: Browser, tmp_path: Path
) -> None:
    chromium.open(write(case, tmp_path), width)
    assert chromium.evaluate(DIFFERENT) == 0
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert str(parse(case)) == chromium.evaluate("document.querySelector('h1').textContent")


@needs_browser
def test_that_test_can_fail(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(write(CASES[0], tmp_path))
    chromium.evaluate("values.windows[3] += 1")
    assert chromium.evaluate(DIFFERENT) > 0


@needs_browser
def test_the_mouse_shows_padding_ceil_mode_and_the_divisor(chromium: Browser, tmp_path: Path) -> None:
    """3×3 windows, stride 2, padding 1 over 6×8: the last row of windows reaches beyond the padding."""
    chromium.open(write("avg2d:1x1x6x8:k3:s2:p1:ceil:f32:integers:seed3", tmp_path))
    chromium.move(at("windows", 0, 0))
    assert marked(chromium, "held") == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert marked(chromium, "used") == [[-1, -1], [-1, 0], [-1, 1], [0, -1], [1, -1]]
    assert "divisor 9 = 3 × 3: 5 of them padding, which is counted" in said(chromium)
    chromium.move(at("windows", 3, 4))
    assert marked(chromium, "held") == [[5, 7]]
    assert "divisor 4 = 2 × 2: 3 of them padding, which is counted; 5 beyond the padding" in said(chromium)
    chromium.move(at("cells", 1, 3))
    assert marked(chromium, "held", "windows") == [[0, 1], [0, 2], [1, 1], [1, 2]]
    text = said(chromium)
    assert re.findall(r"window (\(\d, \d\)): \S+ ÷ 9 = ", text) == ["(0, 1)", "(0, 2)", "(1, 1)", "(1, 2)"]
    assert "in 4 windows" in text


@needs_browser
def test_ragged_adaptive_windows_are_divided_axis_by_axis(chromium: Browser, tmp_path: Path) -> None:
    """7 cells in 3 windows: 0–2, 2–4, 4–6; 11 cells in 4: 0–2, 2–5, 5–8, 8–10."""
    chromium.open(write("adaptive_avg2d:1x1x7x11:o3x4:f64", tmp_path))
    chromium.move(at("windows", 1, 1))
    assert marked(chromium, "held") == [[h, w] for h in (2, 3, 4) for w in (2, 3, 4, 5)]
    assert "divisor 12 = 3 × 4: its cells, divided axis by axis" in said(chromium)
    chromium.move(at("cells", 2, 5))
    assert marked(chromium, "held", "windows") == [[0, 1], [0, 2], [1, 1], [1, 2]]
    assert said(chromium).count(" ÷ 3 ÷ 4 = ") == 4


@needs_browser
def test_maxima_name_the_cell_that_they_chose(chromium: Browser, tmp_path: Path) -> None:
    page = write("max2d:1x1x7x9:k3:s2:p1:f32:i64", tmp_path)
    chromium.open(page)
    data = json.loads(chromium.evaluate("document.getElementById('data').textContent"))
    h, w = divmod(data["indices"][0], 9)
    chromium.move(at("windows", 0, 0))
    assert f"index {data['indices'][0]} names ({h}, {w}), which alone gets" in said(chromium)
    chromium.move(at("cells", h, w))
    assert "window (0, 0)" in said(chromium)
    chromium.open(write("max2d_forward:1x1x7x9:k2:s2:d2:p1", tmp_path))
    chromium.move(at("windows", 1, 1))
    assert marked(chromium, "held") == [[1, 1], [1, 3], [3, 1], [3, 3]]
    assert "largest: (" in said(chromium)


@needs_browser
def test_the_keyboard_reaches_every_cell_and_slice(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(write("adaptive_avg3d:1x2x5x4x3:o3x3x2:bf16", tmp_path))
    chromium.press("Tab", "Tab", "Tab")  # the language, the slice, the cells
    assert "grad_input (2, 0, 0)" in said(chromium)
    chromium.press("ArrowRight", "ArrowDown", "ArrowDown", "PageDown")
    assert "grad_input (3, 2, 1)" in said(chromium)
    assert marked(chromium, "chosen") == [[2, 1]]
    chromium.press("Tab", "Tab", "ArrowDown")
    assert "window (1, 1, 0): grad_output" in said(chromium)


@needs_browser
def test_a_click_keeps_the_choice_until_escape(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(write(CASES[0], tmp_path))
    chromium.move(at("cells", 1, 1))
    chromium.click(at("cells", 1, 1))
    chromium.move(at("cells", 2, 2))
    assert "grad_input (1, 1)" in said(chromium)
    chromium.press("Escape")
    chromium.move(at("cells", 3, 3))
    assert "grad_input (3, 3)" in said(chromium)


@needs_browser
def test_a_finger_chooses_on_a_telephone(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(write(CASES[0], tmp_path), 390)
    chromium.tap(at("windows", 1, 1))
    assert "window (1, 1): grad_output" in said(chromium)
    assert len(marked(chromium, "held")) == 9


@needs_browser
def test_the_page_speaks_both_languages(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(write(CASES[0], tmp_path), fragment="#zh")
    chromium.move(at("windows", 0, 0))
    assert "除数 4 = 2 × 2: 只数输入之内的元素，填充不计入" in said(chromium)
    assert chromium.evaluate("Object.keys(words.en).sort().join() === Object.keys(words.zh).sort().join()")
    chromium.click("#language")
    assert "divisor 4 = 2 × 2" in said(chromium)
    assert chromium.evaluate("document.documentElement.lang") == "en"


def test_the_page_needs_no_other_file(tmp_path: Path) -> None:
    message = pooltide("show", CASES[1], "-o", "page.html", cwd=tmp_path)
    text = (tmp_path / "page.html").read_text("utf-8")
    assert message == f"page.html: a page of {len(text.encode())} bytes for the browser, {CASES[1]}\n"
    assert not re.search(r"https?:|\bsrc=|<link|@import|\bimport\b|fetch\(|\{\{", text)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (
            "avg2d:1x1x65x5:k3",
            "the input's plane is 65×5, 325 cells in all; a page has at most 64 cells a side",
        ),
        ("avg3d:1x1x64x64x64:k3", "262144 cells in all; a page has at most"),
        ("avg2d:1x1x5x5:k300:p150", "axis h has kernel 300, padding 150, dilation 1; a page has at most 64"),
        ("max_unpool2d:1x1x4x4:k2", "an unpool has no windows; a picture needs some"),
    ],
)
def test_what_has_no_page_gives_status_2(case: str, says: str, tmp_path: Path) -> None:
    assert says in " ".join(pooltide("show", case, "-o", "page.html", rc=2, cwd=tmp_path).split())
    assert list(tmp_path.iterdir()) == []
