"""The documentation site in a browser: on telephones and desktops, nothing is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from browser import Browser, needs_browser
from tool_modules import TOOLS, load_tool

# The elements beyond the right edge that no box around them lets the reader scroll to.
CUT_OFF = """[...document.querySelectorAll(".md-content *")].filter(e => {
    if (!e.textContent.trim() || e.getBoundingClientRect().right <= innerWidth + 0.5) return false;
    for (let box = e.parentElement; box; box = box.parentElement)
        if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return false;
    return true;
}).map(e => `${e.tagName} ${e.textContent.slice(0, 40)}`)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="mkdocs-material is not installed: the site is NOT built")
    tool = load_tool("site.py")
    folder = tmp_path_factory.mktemp("site")
    tool.SOURCE = folder / "source"
    tool.build(folder / "site")
    return folder / "site"


@pytest.mark.slow
@needs_browser
@pytest.mark.skipif(not TOOLS.exists(), reason="NO TOOLS: the tests run outside the source tree")
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_cut_off(width: int, site: Path, chromium: Browser) -> None:
    pages = sorted(site.rglob("index.html"))
    assert len(pages) > 15
    for page in pages:
        chromium.open(page, width)
        name = page.parent.name
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width, name
        assert chromium.evaluate(CUT_OFF) == [], name


@pytest.mark.slow
@needs_browser
def test_that_test_can_fail(chromium: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<div class='md-content'><pre><b>{'wide ' * 99}</b></pre></div>")
    chromium.open(page, 390)
    assert chromium.evaluate("document.documentElement.scrollWidth") > 390
    assert chromium.evaluate(CUT_OFF) != []
