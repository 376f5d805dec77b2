"""The house's own rules: what importing costs, what may import what, formatting, types, the README."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pooltide
from paths import ROOT, TESTS
from pooltide.kernels.cuda.choice import KERNELS
from pooltide.kernels.cuda.cost import family
from pooltide.operators.catalog import documented, operators, regions
from tool_modules import load_tool

SOURCE = ROOT / "src" / "pooltide"
# Import order is the architecture: a module may import those before it, never one after it.
ORDER = [
    "writing", "display", "cache", "geometry", "operators", "problem", "kernels", "arrays", "acceptance", "acl", "aclnn", "c", "torch", "examples", "cli",
    "__main__",
]  # fmt: skip
HEAVY = ("torch", "rich")


def _heavy_modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_import_pulls_nothing_heavy() -> None:
    assert _heavy_modules_after("import pooltide, pooltide.acl, pooltide.aclnn, pooltide.cli") == set()


def test_that_test_can_fail() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed, so importing it can't be seen")
    assert "torch" in _heavy_modules_after("import pooltide, torch")


def _first_party_imports(path: Path) -> set[str]:
    """Top-level modules of the package that a file imports when it is imported itself."""
    package = ("pooltide", *path.relative_to(SOURCE).parts)[:-1]
    found = set()
    tree = ast.parse(path.read_text("utf-8"))
    lazy = {inner for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node in lazy:
            continue
        base = list(package[: len(package) - node.level + 1]) if node.level else []
        names = base + (node.module.split(".") if node.module else [])
        for alias in node.names:
            target = names if len(names) > 1 else [*names, alias.name]
            if target[0] == "pooltide" and len(target) > 1:
                found.add(target[1])
    return found


def test_no_import_points_back() -> None:
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        assert own in ORDER, f"{own} has no place in the order yet"
        for target in _first_party_imports(path):
            if target in ORDER:
                assert ORDER.index(target) <= ORDER.index(own), f"{path.relative_to(ROOT)} imports {target}"


def _tool(*command: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


_BY_NAME = re.compile(
    r"""(name|function)\[-\d|"(max|avg|adaptive|[123]d)[_a-z]*" (not )?in |(ends|starts)with\("(avg|adaptive|[123]d)"""
)


def test_an_operator_is_known_by_its_page_not_by_the_letters_of_its_name() -> None:
    for bad in ("int(name[-2])", '"max" in name', 'name.endswith("1d")', '"1d" not in function'):
        assert _BY_NAME.search(bad)
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if _BY_NAME.search(line)
    ]
    assert found == []


def test_ruff() -> None:
    _tool("ruff", "check", "src", "tests", "tools")
    _tool("ruff", "format", "--check", "src", "tests", "tools")


@pytest.mark.slow
def test_mypy_strict() -> None:
    _tool("mypy")


def test_readme_has_the_commands_and_ci_runs_the_last() -> None:
    commands = re.findall(r"^    (pip install .+)$", (ROOT / "README.md").read_text("utf-8"), re.M)
    assert len(commands) == 3, commands
    assert commands[0].startswith("pip install dist/pooltide-*_")
    assert all(command.endswith("pooltide demo") for command in commands[:2])
    assert commands[2].endswith("pytest")
    assert "README.md" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_readme_says_what_an_install_needs_and_how_long_it_takes() -> None:
    parts = (ROOT / "README.md").read_text("utf-8").split("\n## ")
    install, *doors = [part for part in parts if part.startswith(("Install", "You "))]
    assert "    apt install python3-venv python3-dev g++\n" in install
    assert re.search(r"about ten seconds \(20\d\d-", install)
    assert re.search(r"about one minute of processor time, .* \(20\d\d-", install)
    assert len(doors) == 3
    for door in doors:  # what it needs besides, and no second install of this package
        assert re.match(r".*\n\n(Beyond the install you need|You need nothing beyond the install)", door), (
            door
        )
        assert not re.search(r"pip install '?(\.|pooltide)", door), door


@pytest.mark.parametrize("name", ["operators.md", "reference.md", "pytorch.md"])
def test_the_printed_pages_are_what_their_tool_prints(name: str) -> None:
    pytest.importorskip("torch")
    page = _page(name)
    assert page == load_tool("printed_pages.py").PAGES[name](), "run: python tools/printed_pages.py"
    if name == "operators.md":
        functions, products = (
            page.partition(f"| {head} |")[2].partition("\n\n")[0] for head in ("function", "operator")
        )
        found = functions.count("\n"), products.count("\n")
        assert found == (len(operators()) + len(regions()) + 1, len(documented()) + 1)
    elif name == "pytorch.md":
        rows = tomllib.loads((TESTS / "torch" / "pytorch_differences.toml").read_text("utf-8"))["difference"]
        assert all(f": {row['reason']}\n" in page for row in rows)
    else:
        assert set(re.findall("^### (.+)$", page, re.M)) >= {*pooltide.__all__, "patch", "aclrtMemcpy"}


def test_reference_and_operators_link_to_each_other() -> None:
    """Every link between them leads to a heading, and every operator and function has one."""
    pages = {name: _page(name) for name in ("operators.md", "reference.md")}
    anchors = {
        name: {
            re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-")
            for head in re.findall("^#+ (.+)$", text, re.M)
        }
        for name, text in pages.items()
    }
    for name, text in pages.items():
        for target, anchor in re.findall(r"\]\((operators\.md|reference\.md|)#([^)]+)\)", text):
            assert anchor in anchors[target or name], f"{name}: {target}#{anchor}"
    assert pages["operators.md"].count("](reference.md#") >= len(operators()) + len(documented())
    assert pages["reference.md"].count("](operators.md#") >= len(operators()) + 2 * len(documented())
    assert pages["reference.md"].count("](regions.md)") == 2 * len(regions())
    assert "](regions.md)" in pages["operators.md"]


CHINESE = {"README.zh.md": "README.md"} | {
    f"docs/zh/{path.name}": f"docs/{path.name}" for path in (ROOT / "docs" / "zh").glob("*.md")
}


@pytest.mark.parametrize("page", CHINESE)
def test_both_languages_have_the_same_headings_and_commands(page: str) -> None:
    parts = {
        "heading": r"^(#+ (?:\d+\. )?)",
        "snippet": r"^(```[\s\S]*?^```)",
        "indented": r"^    .+$",
        "link": r"\]\((?:\.\./|docs/|zh/)*([^)#]+)(?:#[^)]*)?\)",
        "item": r"^- ",
        "code": r"(?<!`)`[^`\n]+`(?!`)",
        "figure": r"\d[\d,.]+\d",
    }
    texts = [(ROOT / name).read_text("utf-8") for name in (CHINESE[page], page)]
    for name, part in parts.items():
        english, chinese = (re.findall(part, text.replace(".zh.", "."), re.M) for text in texts)
        if name in ("link", "code", "figure"):  # word order differs
            english, chinese = sorted(english), sorted(chinese)
        assert english == chinese, name


def test_every_tutorial_and_the_readme_are_there_in_chinese() -> None:
    tutorials = {f"docs/{path.name}" for path in (ROOT / "docs").glob("tutorial_*.md")}
    assert set(CHINESE.values()) >= {"README.md", *tutorials}
    assert len(tutorials) == 4


def test_the_repository_holds_no_generated_files() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    run = subprocess.run(["git", "ls-files"], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert not [name for name in run.stdout.split() if name.endswith((".so", ".pyc", ".o"))]


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def _first_column(page: str, title: str) -> list[str]:
    """The first cells of the table whose head begins with `title`, without backticks."""
    table = page.partition(f"| {title} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|", table, re.M)


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md", "README.md", "README.zh.md"]
)
def test_documents_name_files_that_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    named = set(
        re.findall(
            r"(?:\.\./)?\b[\w/]+(?:\.zh)?\.(?:py|toml|h|md|cu)\b|\b(?:\w+/)+(?!\w)|\b[\w/]+/\w+\.(?:cpp|c)\b",
            text,
        )
    )
    folders = (SOURCE, ROOT, ROOT / "docs", SOURCE / "kernels" / "cuda")
    made_up = {"operators/pages/NAME.toml"}
    assert not [name for name in named - made_up if not any((folder / name).exists() for folder in folders)]
    assert page != "docs/architecture.md" or len(named) > 60


def test_the_architecture_lists_the_rooms_in_import_order() -> None:
    rooms = _first_column(_page("architecture.md"), "room")
    assert [room.removesuffix("/").removesuffix(".py") for room in rooms] == ORDER


def test_the_architecture_lists_the_kernels_in_their_order() -> None:
    rows = _first_column(_page("architecture.md"), "kernel")
    texts = [path.read_text("utf-8") for path in sorted((ROOT / "native" / "kernels").glob("*.cpp"))]
    lists = [re.findall(r'>\("(\w+)"', part) for text in texts for part in text.split("kernels[] = ")[1:]]
    assert len(lists) == 4  # float32 and half types have lists of their own for gradients of maxima
    assert sorted(rows) == sorted({name for names in lists for name in names})
    for names in lists:
        assert names == [name for name in rows if name in names]


def test_the_architecture_lists_the_gpu_kernels_in_their_order() -> None:
    listed = dict.fromkeys(family(name) for kernels in KERNELS.values() for name, _ in kernels)
    assert _first_column(_page("architecture.md"), "GPU kernel") == list(listed)


@pytest.mark.parametrize("room", ["kernels/cuda/", "acl/"])
def test_the_architecture_lists_the_files_of_a_room_in_import_order(room: str) -> None:
    folder = SOURCE / room
    listed = [
        name.removesuffix(".py") for name in _first_column(_page("architecture.md"), f"file of `{room}`")
    ]
    files = {str(path.relative_to(SOURCE).with_suffix("")) for path in folder.rglob("*.py")}
    assert sorted(listed) == sorted(name for name in files if not name.endswith("/__init__"))
    for number, name in enumerate(listed):
        imported = _modules_of_the_room(SOURCE / f"{name}.py", files)
        assert imported <= set(listed[:number]), f"{name} imports {imported - set(listed[:number])}"


def _modules_of_the_room(path: Path, files: set[str]) -> set[str]:
    """The modules among `files` that a module imports, also in functions, but not for types alone."""
    tree = ast.parse(path.read_text("utf-8"))
    typing = {inner for node in tree.body if isinstance(node, ast.If) for inner in ast.walk(node)}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node not in typing:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            names |= {str(base.relative_to(SOURCE))}
            names |= {str((base / alias.name).relative_to(SOURCE)) for alias in node.names}
    return names & files


def test_the_glossary_is_short_and_its_terms_are_used() -> None:
    lines = re.findall(r"^- \*\*(.+?)\*\*: (.+)$", _page("glossary.md"), re.M)
    terms = [term for term, _ in lines]
    assert 0 < len(terms) <= 25
    assert len(set(terms)) == len(terms)
    assert not [term for term, text in lines if not text.endswith(".") or re.search(r"\. [A-Z]", text)]
    code = "\n".join(
        path.read_text("utf-8") for path in [*SOURCE.rglob("*.py"), *(ROOT / "native").rglob("*.h")]
    )
    assert not [term for term in terms if not re.search(rf"\b{term}", code, re.I)]


@pytest.mark.parametrize("tool", sorted((ROOT / "tools").glob("*.py")), ids=lambda path: path.stem)
def test_tools_import_names_that_exist(tool: Path) -> None:
    for node in ast.walk(ast.parse(tool.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pooltide"):
            try:
                module = importlib.import_module(node.module or "")
            except ModuleNotFoundError as missing:
                if str(missing.name).startswith("pooltide"):
                    raise
                pytest.skip(f"{missing.name} is not installed")
            for alias in node.names:
                assert hasattr(module, alias.name) or importlib.util.find_spec(f"{node.module}.{alias.name}")


def test_the_tables_are_what_their_tool_prints() -> None:
    tables = load_tool("tables.py")
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert len(tables.TABLE.findall(page)) >= 3
    assert tables.fill(page) == page


def test_the_chart_is_what_its_tool_draws() -> None:
    measured = json.loads((ROOT / "docs" / "measured" / "cpu.json").read_text("utf-8"))
    assert load_tool("chart.py").draw(measured) == (ROOT / "docs" / "speed.svg").read_text("utf-8")


@pytest.mark.parametrize(
    "page",
    [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_site_has_every_page_in_its_navigation() -> None:
    for part in load_tool("site.py").PARTS_OF.values():
        missing = set(part.sources) - set(re.findall(r"\w+\.md", part.navigation))
        assert not missing, f"tools/site.py, {part.language}"
