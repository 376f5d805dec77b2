"""Builds the documentation site with MkDocs Material; a warning is an error.

    pip install 'mkdocs-material>=9.5' jieba         (jieba divides Chinese into words, for the search)
    python tools/site.py [FOLDER]                    (build/site)

The site has two parts, English and, in the folder zh, Chinese, each with its own navigation and search. A
part has a home page and a page of windows from tools/site_pages, the README, and pages of docs/ or docs/zh/;
the English part has CONTRIBUTING.md, CHANGELOG.md, SECURITY.md and the example programs, too. They are copied
to a folder of their own, because MkDocs takes pages from one folder and links must stay inside it. The
commands of the package make a report, and the pictures that a reader moves over.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from html import escape, unescape
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "build" / "site-source"
PARTS = Path(__file__).with_name("site_pages")
OTHERS = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
ENGLISH_NAVIGATION = """\
- Home: index.md
- start.md
- windows.md
- Tutorials: [tutorial_pytorch.md, tutorial_ascend.md, tutorial_operators.md, tutorial_acceptance.md]
- Use it: [pytorch.md, numpy.md, regions.md, cann.md, c.md, torch_npu.md, cli.md, acceptance.md, examples.md]
- Reference: [reference.md, operators.md, glossary.md]
- Behind it: [performance.md, kernels.md, architecture.md, CONTRIBUTING.md, SECURITY.md, CHANGELOG.md]
"""
CHINESE_NAVIGATION = """\
- 首页: index.md
- start.md
- windows.md
- 教程: [tutorial_pytorch.md, tutorial_ascend.md, tutorial_operators.md, tutorial_acceptance.md]
"""
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)#\s]+)(#[^)\s]+)?\)")
IMAGE = re.compile(r"\]\((?:\.\./|docs/)*([\w.]+\.(?:png|svg))\)")
# A session that begins by showing a file stands for a file that the reader writes; commands may follow.
FILE = re.compile(r"^```console\n\$ cat (\S+\.(\w+))\n((?!\$ ).*?\n)(\$ .*?)?^```$", re.M | re.S)
FLAG = re.compile(r"<[^>]+>|(?<![\w-])(--?[a-z][\w-]*)")  # a tag of HTML is no flag
CONSOLE = re.compile(r'<div class="highlight"><pre><span></span><code><span class="gp">.*?</div>', re.S)
DIAGRAM = re.compile(r'<div class="highlight">(?=(?:(?!</div>).)*─)', re.S)
NAME_PART = re.compile(
    r"(?:[_/:]|(?<=[a-z\d])(?=[A-Z][a-z]))(?=\w[^<>]*<)"
)  # in the text of a cell or heading, not in an address
LONG_WORD = re.compile(  # nearly as wide as a telephone
    r"<pre.*?</pre>|(?<![^\s>])[^\s<>]{30,}(?=[^<>]*<)", re.S
)
CHINESE_LINE_END = re.compile(r"(?<=[。：；])\n(?=[^\n#>|-])(?!```)")  # a line feed would become a space
MISSING = {"en": ("There is no such page", ""), "zh": ("没有这个页面", "zh/")}  # and where home is
SHOWN = re.compile(r"\{\{show (\S+)\}\}")
REPORT_CASES = """\
name,case
stem,avg2d:2x3x23x29:k3:s2:p1:f16
odd-window,avg2d:1x16x4x4:k4x3:s1:ceil:nopad:div-3:bf16
volume,adaptive_avg3d:2x4x9x14x14:o5x7x7:bf16
head,adaptive_max2d:2x8x28x28:o7x7:f32:i64
volume-max,adaptive_max3d:1x4x9x14x14:o4x7x7:f32:i32
resnet-max,max2d:2x8x29x31:k3:s2:p1:f32:i64
"""
WITH_NAN = (
    "import numpy as np; x = np.load('chip/head.npy'); x[1, 3, 8, 9] = np.nan; np.save('chip/head.npy', x)"
)


@dataclass(frozen=True, slots=True)
class Part:
    """One language of the site. `sources`: by the name of a page, the file that it is made from."""

    language: str
    folder: str  # of the part on the site
    sources: dict[str, Path]
    navigation: str
    overview: str  # title of the README's page
    note: str  # after the title of a page in the other language

    def named(self, file: Path) -> str | None:
        """The page that is made from a file, or None."""
        return next((name for name, source in self.sources.items() if source == file), None)


def parts() -> list[Part]:
    docs = {path.name: path for path in sorted((ROOT / "docs").glob("*.md"))}
    docs["examples.md"] = (ROOT / "examples").resolve()
    chinese = {path.name: path for path in sorted((ROOT / "docs" / "zh").glob("*.md"))}
    top = {name: ROOT / name for name in OTHERS}
    return [
        Part("en", "", _own("", "README.md") | docs | top, ENGLISH_NAVIGATION, "Overview", " (English)"),
        Part("zh", "zh", _own(".zh", "README.zh.md") | chinese, CHINESE_NAVIGATION, "概览", "（英文）"),
    ]


def _own(suffix: str, readme: str) -> dict[str, Path]:
    own = {f"{name}.md": PARTS / f"{name}{suffix}.md" for name in ("home", "windows")}
    return {"index.md": own["home.md"], "start.md": ROOT / readme, "windows.md": own["windows.md"]}


def title_of(text: str, anchor: str) -> str:
    """The first heading of a page, or the one that an anchor names."""
    from pymdownx.slugs import slugify

    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    slug = slugify(case="lower")
    return next((h for h in headings if anchor and slug(h, "-") == anchor[1:]), headings[0]).replace("`", "")


def linked(text: str, source: Path, part: Part) -> str:
    """Returns a page with links to pages of the site; a link whose text is a file's name gets a title."""

    def replaced(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        file = (source.parent / target).resolve()
        owner = next((other for other in PARTS_OF.values() if other.named(file)), None)
        if owner is None:  # a file that is no page
            return f"[{words}]({target.removeprefix('docs/')}{anchor})"
        page = owner.named(file) or ""
        if words.endswith(file.name):
            words = title_of(prepared(file, page, owner), anchor) + ("" if owner == part else part.note)
        if owner == part:
            return f"[{words}]({page}{anchor})"
        return f'<a href="{_elsewhere(part, owner, source, page)}{anchor}">{escape(words)}</a>'

    return LINK.sub(replaced, IMAGE.sub(r"](\1)", text))


def _elsewhere(part: Part, owner: Part, source: Path, page: str) -> str:
    """The address of a page of `owner`, from the page of `part` that is made from `source`."""
    here = posixpath.join("/", part.folder, _address(part.named(source) or ""))
    there = posixpath.join("/", owner.folder, _address(page))
    return posixpath.relpath(there, here) + "/"


def _address(page: str) -> str:
    return "" if page == "index.md" else page.removesuffix(".md")


def prepared(file: Path, page: str, part: Part) -> str:
    """The text of a page, before its links are changed."""
    text = examples() if page == "examples.md" else file.read_text("utf-8")
    if page == "start.md":
        text = text.replace("# pooltide", f"# {part.overview}", 1)
    if page == "index.md":
        text = text.replace("{{LEAD}}", lead(part.sources["start.md"]))
    text = FILE.sub(shown_file, text)
    if file.name == "CONTRIBUTING.md":  # Markdown for Python indents lists by four
        text = re.sub(r"^   (?=\S)", "    ", text, flags=re.M)
    return CHINESE_LINE_END.sub("", text)


def shown_file(session: re.Match[str]) -> str:
    """The file as a block of its own, and the commands that follow as another."""
    name, language, content, commands = session.groups()
    file = f'```{language} title="{name}"\n{content}```'
    return f"{file}\n\n```console\n{commands}```" if commands else file


def lead(readme: Path) -> str:
    """The paragraph that says what pooltide is, after the title and the link to the other language."""
    return readme.read_text("utf-8").split("\n\n")[2]


def examples() -> str:
    """Returns a page with the example programs."""
    found = ["# Examples"]
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in (".py", ".c", ".cpp", ".h") and path.stem != "__init__":
            found.append(f"## {path.name}\n\n```{path.suffix[1:]}\n{path.read_text('utf-8').strip()}\n```")
    return "\n\n".join(found) + "\n"


def pooltide(*arguments: str, folder: Path, rc: int = 0) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pooltide", *arguments], cwd=folder, stdout=subprocess.DEVNULL
    )
    assert done.returncode == rc, arguments


def report(folder: Path) -> None:
    """Writes report.html: six cases, with a NaN put into one result."""
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "cases.csv").write_text(REPORT_CASES)
    pooltide("golden", "cases.csv", "-o", "golden", folder=work)
    pooltide("run", "cases.csv", "--save", "chip", folder=work)
    subprocess.run([sys.executable, "-c", WITH_NAN], cwd=work, check=True)
    pooltide("compare", "chip", "golden", "--report", "report.html", folder=work, rc=1)
    (work / "report.html").rename(folder / "report.html")
    shutil.rmtree(work)


def with_pictures(text: str, pages: Path, language: str, depth: str) -> str:
    """Writes a page for each {{show CASE}}, and puts it into the text as a frame."""

    def framed(mark: re.Match[str]) -> str:
        case, name = mark[1], re.sub(r"\W", "-", mark[1]) + ".html"
        (pages / "windows").mkdir(exist_ok=True)
        pooltide("show", case, "-o", str(pages / "windows" / name), folder=pages)
        address = f"{depth}windows/{name}#{language}"
        return (
            f'<iframe class="windows" src="{address}" title="{case}" loading="lazy"></iframe>\n'
            f"```bash\npooltide show {case} -o page.html\n```"
        )

    return SHOWN.sub(framed, text)


def commands(html: str) -> str:
    """The lines after a prompt of a session."""
    lines = unescape(re.sub(r"<[^>]+>", "", html)).split("\n")
    return "\n".join(line[2:] for line in lines if line.startswith("$ "))


def on_page_content(html: str, **_: Any) -> str:
    """Called by MkDocs for each page.

    Flags stay on one line, names in tables and headings and long ones anywhere may break between their words,
    cells with sentences are wide, diagrams do not wrap, and sessions are copied as commands alone.
    """
    html = DIAGRAM.sub('<div class="diagram highlight">', html)
    html = re.sub(r"<td.*?</td>", _cell, html)
    html = re.sub(r"<(h\d).*?</\1>", lambda heading: NAME_PART.sub(r"\g<0><wbr>", heading[0]), html)
    html = LONG_WORD.sub(_breakable, html)
    html = CONSOLE.sub(lambda block: f'<div data-copy="{escape(commands(block[0]))}"{block[0][4:]}', html)
    return re.sub(r"<code.*?</code>", lambda code: FLAG.sub(_on_one_line, code[0]), html, flags=re.S)


def _cell(cell: re.Match[str]) -> str:
    text = re.sub("<[^>]+>", "", cell[0])
    wide = cell[0].replace("<td", "<td class=sentence", 1) if len(text) > 60 and " " in text else cell[0]
    return NAME_PART.sub(r"\g<0><wbr>", wide)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Called by MkDocs for each page without Markdown: that of a wrong address links to the home page."""
    if template_name != "404.html":
        return output_content
    what, home = MISSING[config.theme["language"]]
    return re.sub(r"<h1>404.*?</h1>", f'<h1>{what}</h1><p><a href="/{home}">pooltide</a></p>', output_content)


def _breakable(word: re.Match[str]) -> str:
    return word[0] if word[0].startswith("<") else re.sub(r"[_/:.(](?=\w)", r"\g<0><wbr>", word[0])


def _on_one_line(text: re.Match[str]) -> str:
    return f"<span class=flag>{text[1]}</span>" if text[1] else text[0]


PARTS_OF = {part.language: part for part in parts()}


def build_part(part: Part, target: Path) -> None:
    pages = SOURCE / part.language / "pages"
    pages.mkdir(parents=True)
    for name, file in part.sources.items():
        text = linked(prepared(file, name, part), file, part)
        text = with_pictures(text, pages, part.language, "" if name == "index.md" else "../")
        (pages / name).write_text(text, encoding="utf-8")
    for path in (ROOT / "docs").iterdir():
        if path.suffix in (".png", ".svg"):
            shutil.copy(path, pages)
    shutil.copy(PARTS / "site.css", pages)
    report_page = (SOURCE / "report.html").read_text("utf-8")
    (pages / "report.html").write_text(
        report_page.replace('<html lang="en">', f'<html lang="{part.language}">', 1), encoding="utf-8"
    )
    shutil.copytree(ROOT / "docs" / "measured", pages / "measured")
    english = part.language == "en"
    configuration = SOURCE / part.language / "mkdocs.yml"
    text = Template((PARTS / "mkdocs.yml").read_text("utf-8")).substitute(
        pages=pages,
        target=target / part.folder,
        language=part.language,
        auto="Colours of the system" if english else "跟随系统配色",
        light="Light" if english else "浅色",
        dark="Dark" if english else "深色",
        search="en" if english else "zh, en",
        hooks=Path(__file__).resolve(),
        to_english="." if english else "..",
        to_chinese="zh/" if english else ".",
        navigation=part.navigation,
    )
    configuration.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(configuration)]
    subprocess.run(command, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})


def build(target: Path) -> None:
    """Builds the site in the folder `target`. Raises CalledProcessError if MkDocs warns."""
    if find_spec("jieba") is None:
        raise SystemExit(
            "site: jieba is not installed, so the Chinese search finds nothing: pip install jieba"
        )
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    report(SOURCE)
    for part in PARTS_OF.values():  # the English one first: MkDocs empties its folder
        build_part(part, target)


if __name__ == "__main__":
    if len(sys.argv) > 2 or "".join(sys.argv[1:]).startswith("-"):
        raise SystemExit(__doc__)
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve())
