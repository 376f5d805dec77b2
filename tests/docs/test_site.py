"""The documentation site in a browser: nothing is cut off, links lead somewhere, tables scroll, code is copied
without its outputs, and both languages are searched."""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from browser import Browser, needs_browser
from paths import ROOT
from tool_modules import TOOLS, load_tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TOOLS.exists(), reason="NO TOOLS: the tests run outside the source tree"),
]

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
    pytest.importorskip("jieba", reason="jieba is not installed: the site is NOT built")
    tool = load_tool("site.py")
    folder = tmp_path_factory.mktemp("site")
    tool.SOURCE = folder / "source"
    tool.build(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site on a server of this machine: its search needs one."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert (site / "pytorch" / "index.html").exists()


def test_a_lost_link_ends_the_build(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else the build of `site` would prove nothing. The Chinese part is the smaller one."""
    tool = load_tool("site.py")
    monkeypatch.setattr(tool, "SOURCE", tmp_path)
    (tmp_path / "report.html").write_text("")
    linked, lost = tool.linked, "\n[a page that is not there](nowhere.md)\n"
    monkeypatch.setattr(tool, "linked", lambda text, *rest: linked(text, *rest) + lost)
    with pytest.raises(subprocess.CalledProcessError):
        tool.build_part(tool.PARTS_OF["zh"], tmp_path / "site")
    assert "'nowhere.md'" in capfd.readouterr().err


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_cut_off(width: int, site: Path, chromium: Browser) -> None:
    pages = sorted(site.rglob("index.html"))
    assert len(pages) > 25
    for page in pages:
        chromium.open(page, width)
        name = str(page.relative_to(site))
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width, name
        assert chromium.evaluate(CUT_OFF) == [], name


@needs_browser
def test_that_test_can_fail(chromium: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<div class='md-content'><pre><b>{'wide ' * 99}</b></pre></div>")
    chromium.open(page, 390)
    assert chromium.evaluate("document.documentElement.scrollWidth") > 390
    assert chromium.evaluate(CUT_OFF) != []


def test_every_link_leads_to_a_file_and_a_heading(site: Path) -> None:
    texts = {page: page.read_text("utf-8") for page in sorted(site.rglob("*.html"))}
    anchors = {page: set(re.findall(r'\bid="?([^"\s>]+)', text)) for page, text in texts.items()}
    for page, text in texts.items():
        if page.name == "404.html":  # its links are absolute
            continue
        for link in re.findall(r'<(?:a|img|iframe|link|script)\b[^>]*?(?:href|src)="?([^"\s>]+)', text):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            where = f"{page.relative_to(site)}: {link}"
            assert target.exists(), where
            if parts.fragment and target.suffix == ".html" and parts.fragment not in ("en", "zh", "__"):
                assert unquote(parts.fragment) in anchors[target], where


def test_no_link_has_the_name_of_a_file_as_its_text(site: Path) -> None:
    for page in site.rglob("index.html"):
        found = re.findall(r"<a [^>]*>([\w/]+\.md)</a>", page.read_text("utf-8"))
        assert not found, page


def test_a_file_to_save_has_no_commands_in_it(site: Path) -> None:
    for page in site.rglob("index.html"):
        for name, block in re.findall(
            r'<span class="filename">(.*?)</span>(.*?)</code>', page.read_text("utf-8"), re.S
        ):
            assert not re.search(r"^\$ ", re.sub(r"<[^>]+>", "", block), re.M), (page, name)


def test_pages_have_a_next_and_a_previous_one(site: Path) -> None:
    text = (site / "tutorial_ascend" / "index.html").read_text("utf-8")
    assert "md-footer__link--prev" in text
    assert "md-footer__link--next" in text


def test_the_chinese_part_has_its_own_pages_and_navigation(site: Path) -> None:
    pages = {page.parent.name for page in (site / "zh").rglob("index.html")}
    assert pages >= {"zh", "start", "windows", "tutorial_pytorch", "tutorial_ascend", "tutorial_acceptance"}
    for page in (site / "zh").rglob("index.html"):
        text = page.read_text("utf-8")
        assert '<html lang="zh"' in text
        assert "教程" in text
    home = (site / "zh" / "index.html").read_text("utf-8")
    assert all(door in home for door in ("您用 PyTorch 训练模型", "您为昇腾编写程序", "您验收算子"))
    assert "PyTorch 模型只需两行代码" in home.partition("</h1>")[2].partition("<h2")[0]
    for part, language in (("", "en"), ("zh", "zh")):
        assert f'<html lang="{language}">' in (site / part / "report.html").read_text("utf-8")


def test_both_languages_of_the_own_pages_have_the_same_parts() -> None:
    folder = ROOT / "tools" / "site_pages"
    for name in ("home", "windows"):
        texts = [(folder / f"{name}{suffix}.md").read_text("utf-8") for suffix in ("", ".zh")]
        for part in (r"^#+ ", r"^```[\s\S]*?^```", r"\{\{.+?\}\}", r"<\w+[^>]*>"):
            english, chinese = (re.findall(part, text, re.M) for text in texts)
            assert english == chinese, (name, part)


@needs_browser
def test_the_first_column_stays_when_a_table_scrolls(site: Path, chromium: Browser) -> None:
    chromium.open(site / "operators" / "index.html", 390)
    script = """(() => { const tables = [...document.querySelectorAll(".md-typeset table:not([class])")];
        const table = tables.reduce((a, b) => a.scrollWidth < b.scrollWidth ? b : a);
        let box = table; while (box.scrollWidth <= box.clientWidth) box = box.parentElement;
        box.scrollLeft = 200; const cell = table.rows[1].cells;
        return [box.scrollLeft, cell[0].getBoundingClientRect().left, cell[1].getBoundingClientRect().left]; })()"""
    scrolled, first, second = chromium.evaluate(script)
    assert scrolled == 200
    assert 0 <= first < 40
    assert second < first


@needs_browser
def test_names_in_the_first_column_stay_whole_on_a_wide_screen(site: Path, chromium: Browser) -> None:
    chromium.open(site / "acceptance" / "index.html", 1280)
    script = """[...document.querySelectorAll("td:first-child code")]
        .filter(e => !e.textContent.includes("_") && e.getClientRects().length > 1).map(e => e.textContent)"""
    assert chromium.evaluate("document.querySelectorAll('td:first-child code').length") > 20
    assert chromium.evaluate(script) == []


@needs_browser
@pytest.mark.parametrize("page", ["", "start", "performance", "zh", "zh/start"])
def test_pictures_can_be_read_on_a_telephone(page: str, site: Path, chromium: Browser) -> None:
    """They scroll in their paragraph; the page does not."""
    chromium.open(site / page / "index.html", 390)
    chromium.wait("[...document.images].every(e => e.complete)")
    widths = chromium.evaluate(
        "[...document.querySelectorAll('.md-content p > img')].map(e => [e.clientWidth, e.parentElement.clientWidth])"
    )
    assert widths
    assert all(image > 500 and paragraph < 390 for image, paragraph in widths)


@needs_browser
@pytest.mark.parametrize("page", ["tutorial_acceptance", "zh/tutorial_acceptance"])
def test_code_is_copied_without_prompts_and_outputs(page: str, address: str, chromium: Browser) -> None:
    chromium.call("Page.navigate", url=f"{address}/{page}/")
    chromium.wait(
        'document.readyState === "complete" && document.querySelectorAll(".md-code__button, .md-clipboard").length'
    )
    chromium.evaluate("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); };"
        "document.execCommand = () => { window.copied = document.activeElement.value; return true; }; 0")  # fmt: skip
    blocks = chromium.evaluate("document.querySelectorAll('.highlight').length")
    copied = []
    for number in range(blocks):
        chromium.evaluate(
            f"document.querySelectorAll('.highlight')[{number}].querySelector('button').click()"
        )
        copied.append(chromium.evaluate("window.copied"))
    assert copied[0].startswith("name,case\nstem,avg2d:")  # a file to save, whole
    assert copied[1] == "pooltide check cases.csv --product atlas-inference"
    assert copied[2].split("\n")[:2] == [
        "pooltide golden cases.csv -o golden",
        "pooltide run cases.csv --save chip > run.txt",
    ]
    assert not [text for text in copied if "$ " in text or "FAIL" in text]


@needs_browser
@pytest.mark.parametrize(
    ("part", "query", "title"),
    [("", "ceil mode", "Ceil mode"), ("zh/", "反池化", "PyTorch"), ("zh/", "标杆数据", "标杆数据")],
)
def test_the_search_answers(part: str, query: str, title: str, address: str, chromium: Browser) -> None:
    chromium.call("Page.navigate", url=f"{address}/{part}?q={query}")
    chromium.wait("document.querySelectorAll('.md-search-result__item').length")
    found = chromium.evaluate(
        "[...document.querySelectorAll('.md-search-result__item')].map(e => e.textContent).join()"
    )
    assert title in found.replace("\u200b", "")


@needs_browser
def test_a_diagram_scrolls_and_is_not_wrapped(site: Path, chromium: Browser) -> None:
    chromium.open(site / "architecture" / "index.html", 390)
    code = "document.querySelector('.diagram code')"
    assert "─" in chromium.evaluate(f"{code}.textContent")
    assert chromium.evaluate(f"{code}.scrollWidth > {code}.clientWidth")
    assert not chromium.evaluate(
        "[...document.querySelectorAll('.highlight:not(.diagram)')].some(e => e.textContent.includes('─'))"
    )


@needs_browser
def test_a_flag_stays_on_one_line(site: Path, chromium: Browser) -> None:
    chromium.open(site / "cli" / "index.html", 390)
    broken = "[...document.querySelectorAll('.flag')].filter(e => e.getClientRects().length > 1).length"
    assert chromium.evaluate("document.querySelectorAll('.flag').length") > 50
    assert chromium.evaluate(broken) == 0


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("part", ["", "zh"])
def test_a_frame_has_room_for_its_picture(part: str, width: int, site: Path, chromium: Browser) -> None:
    """Else a reader would scroll inside the frame, and miss the sum below the picture."""
    chromium.open(site / part / "windows" / "index.html", width)
    script = """[...document.querySelectorAll("iframe.windows")].map(
        e => [e.getAttribute("src"), e.clientWidth, e.clientHeight])"""
    frames = chromium.evaluate(script)
    assert len(frames) == 6
    for source, wide, high in frames:
        path, _, language = source.partition("#")
        chromium.open((site / part / "windows" / path).resolve(), wide, fragment=f"#{language}")
        assert chromium.evaluate("document.body.getBoundingClientRect().height") <= high, source


@needs_browser
def test_frames_have_the_colours_of_the_page(site: Path, chromium: Browser) -> None:
    for dark in (False, True):
        chromium.open(site / "windows" / "index.html", 1280, dark=dark)
        scheme = chromium.evaluate("getComputedStyle(document.querySelector('iframe.windows')).colorScheme")
        assert scheme == ("dark" if dark else "light")
        text = chromium.evaluate("getComputedStyle(document.querySelector('.md-typeset')).color")
        assert (text == "rgba(0, 0, 0, 0.87)") is not dark


# Words of the smallest contrast to what is behind them, as the WCAG defines it.
CONTRAST = r"""(() => {
    const numbers = text => text.match(/[\d.]+/g).map(Number);
    const over = (a, b) => { const k = a.length > 3 ? a[3] : 1; return [0, 1, 2].map(i => a[i] * k + b[i] * (1 - k)); };
    const behind = e => { if (!e) return [255, 255, 255]; const c = numbers(getComputedStyle(e).backgroundColor);
        return c.length < 4 || c[3] === 1 ? c : over(c, behind(e.parentElement)); };
    const light = c => { const [r, g, b] = c.map(v => { v /= 255;
        return v <= 0.04 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const ratio = e => { const back = behind(e), text = over(numbers(getComputedStyle(e).color), back);
        const [a, b] = [light(text), light(back)]; return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };
    return [...document.querySelectorAll(".md-content *, .md-nav__title")]
        .filter(e => e.getClientRects().length && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
        .map(e => [ratio(e), e.className + " " + e.textContent.slice(0, 30)])
        .reduce((least, one) => one[0] < least[0] ? one : least); })()"""


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out(dark: bool, site: Path, chromium: Browser) -> None:
    for page in ("c", "cann", "tutorial_acceptance"):
        chromium.open(site / page / "index.html", 390, dark=dark)
        least, words = chromium.evaluate(CONTRAST)
        assert least >= 4.5, (page, words)


def test_names_in_tables_break_between_their_words() -> None:
    html = '<td><a href="a_b/cD">aclrtResetDevice</a> native/max_pool.h</td>'
    shown = load_tool("site.py").on_page_content(html)
    assert shown == '<td><a href="a_b/cD">aclrt<wbr>Reset<wbr>Device</a> native/<wbr>max_<wbr>pool.h</td>'


def test_long_names_and_headings_break_between_their_words() -> None:
    page = load_tool("site.py").on_page_content
    assert page('<h2 id="a_b.c">a_b.c</h2>') == '<h2 id="a_b.c">a_<wbr>b.c</h2>'
    long = "torch.use_deterministic_algorithms(True)"
    broken = "torch.<wbr>use_<wbr>deterministic_<wbr>algorithms(<wbr>True)"
    assert page(f'<p><a href="{long}">x</a> <code>{long}</code> max_pool2d</p>') == (
        f'<p><a href="{long}">x</a> <code>{broken}</code> max_pool2d</p>'
    )
    assert page(f"<pre><span></span><code>{long}</code></pre>") == (
        f"<pre><span></span><code>{long}</code></pre>"
    )


def test_a_wrong_address_leads_home_in_both_languages(site: Path) -> None:
    for page, home, says in (
        ("404.html", "/", "There is no such page"),
        ("zh/404.html", "/zh/", "没有这个页面"),
    ):
        text = (site / page).read_text("utf-8")
        assert f"<h1>{says}</h1>" in text
        assert f'<a href="{home}">pooltide</a>' in text


@needs_browser
def test_no_heading_breaks_inside_a_word_on_a_telephone(site: Path, chromium: Browser) -> None:
    """A name that may break only between its words is as wide as the screen lets it be."""
    inside = """[...document.querySelectorAll(".md-content :is(h1, h2, h3)")].filter(e => {
        e.style.overflowWrap = e.style.wordBreak = "normal"; return e.scrollWidth > e.clientWidth + 1;
    }).map(e => e.textContent)"""
    for page in ("examples", "operators", "reference", "start", "zh/start"):
        chromium.open(site / page / "index.html", 390)
        assert chromium.evaluate(inside) == [], page
