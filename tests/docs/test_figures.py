"""Every measured figure of the pages is in docs/measured/figures.toml, and has its date in the page."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paths import ROOT
from pooltide.kernels.cuda.choice import KERNELS
from pooltide.kernels.cuda.cost import family
from pooltide.kernels.cuda.general.general import sources
from tool_modules import load_tool

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").exists(), reason="NO PAGES: the tests run outside the tree"
)


@pytest.fixture(scope="module")
def tool() -> Any:
    return load_tool("figures")


def test_every_entry_is_whole(tool: Any) -> None:
    figures, constants = tool.load()
    assert len(figures) > 20
    for figure in figures:
        assert figure.command, figure
        assert figure.machine, figure
        assert figure.paths, figure
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", figure.date), figure
        assert re.fullmatch(r"[0-9a-f]{7,40}", figure.commit), figure
        for pattern in figure.paths:
            assert next(ROOT.glob(pattern), None), f"{pattern} names no file"
    assert all(constant.reason for constant in constants)


def test_every_entry_stands_once_in_its_page(tool: Any) -> None:
    figures, constants = tool.load()
    for entry in [*figures, *constants]:
        for page, text in entry.where.items():
            rows = tool.lines(page)
            places = [row for row in rows if (row == text if text.startswith("#") else text in row)]
            assert len(places) == 1, f"{page}: {text!r} stands {len(places)} times"


def test_every_figure_has_its_date_in_its_page(tool: Any) -> None:
    for figure in tool.load()[0]:
        for page, text in figure.where.items():
            assert figure.date in tool.surroundings(page, text), f"{page}: {text}: {figure.date} is missing"


def test_every_figure_of_the_pages_is_listed(tool: Any) -> None:
    figures, constants = tool.load()
    assert {
        page: rows for page in tool.pages() if (rows := tool.uncovered(page, [*figures, *constants]))
    } == {}


@pytest.mark.parametrize(
    "line",
    [
        "A call takes 15 µs.",
        "It is 2.4 times as fast.",
        "It is 1.5× as fast.",
        "速度是 PyTorch 的 2.4 倍；",
        "347,491 enumerated small geometries go through",
        "`pytest`: 38 passed.",
        "| case | PyTorch ÷ ours |",
        "110% of it",
        "A million generated calls",
    ],
)
def test_figures_are_found(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    (tmp_path / "page.md").write_text(f"# Page\n\n    3 ms\n\n```\n4 ms\n```\n\n{line}\n", "utf-8")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    assert tool.uncovered("page.md", []) == [line]
    assert tool.uncovered("page.md", [tool.Constant({"page.md": line[3:8]}, "")]) == []
    assert tool.uncovered("page.md", [tool.Constant({"page.md": "# Page"}, "")]) == []
    assert tool.uncovered("page.md", [tool.Constant({"page.md": "## Page"}, "")]) == [line]


def test_other_numbers_are_no_figures(tool: Any) -> None:
    for line in ("windows of 3 × 3 cells", "PyTorch 2.13 with 2 cores", "`avg2d:1x2x3x4:k2`", "2026-11-17"):
        assert not tool.FIGURE.search(line), line


def test_the_pages_have_the_numbers_of_gpu_kernels() -> None:
    names = {family(name) for kernels in KERNELS.values() for name, _ in kernels}
    general = sum(name.startswith("general ") for name in names)
    readme, kernels = (ROOT / name for name in ("README.md", "docs/kernels.md"))
    assert f"all {len(names)} kernels" in readme.read_text("utf-8")
    said = f"There are {general} general kernels, one for each kind of problem, in {len(list(sources()))} variants"
    assert said in kernels.read_text("utf-8")


def _git(folder: Path, *command: str) -> str:
    options = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    run = subprocess.run(
        ["git", "-C", str(folder), *options, *command], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_a_change_of_its_paths_makes_a_figure_stale(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.delenv("GIT_DIR", raising=False)
    _git(tmp_path, "init", "-q")
    (tmp_path / "native").mkdir()
    for name in ("native/a.h", "b.py"):
        (tmp_path / name).write_text("1")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "-m", "one")
    commit = _git(tmp_path, "rev-parse", "--short", "HEAD")
    figure = tool.Figure({"page.md": "7 ms"}, "bench", "a machine", "2026-01-01", commit, ("native/**",))
    monkeypatch.setattr(tool, "load", lambda: ([figure], []))
    (tmp_path / "b.py").write_text("2")
    _git(tmp_path, "commit", "-q", "-a", "-m", "another file")
    assert tool.changes(figure) == []
    assert tool.main(["--stale"]) == 0
    assert capsys.readouterr().out == ""
    (tmp_path / "native/a.h").write_text("2")
    _git(tmp_path, "commit", "-q", "-a", "-m", "its file")
    assert [line.partition(" ")[2] for line in tool.changes(figure)] == ["its file"]
    assert tool.main([]) == 0
    assert f"1 commit since: 2026-01-01, {commit}, a machine\n" in capsys.readouterr().out
    monkeypatch.setattr(tool, "load", lambda: ([replace(figure, commit="0123456")], []))
    assert tool.main(["--stale"]) == 1
    printed = capsys.readouterr()
    assert "UNKNOWN COMMIT: 2026-01-01, 0123456, a machine\n" in printed.out
    assert "1 figures name a commit that this history lacks" in printed.err


def test_without_a_history_the_list_says_so(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "git", lambda *command: None)
    assert tool.main([]) == 1
    printed = capsys.readouterr()
    assert "NO GIT HISTORY" in printed.err
    assert "UNKNOWN COMMIT: 2026-11-17, 89006da, AMD EPYC" in printed.out


def test_every_commit_is_in_the_history(tool: Any) -> None:
    if tool.git("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("NOT TESTED: the git history is not here, or not whole")
    commits = {figure.commit for figure in tool.load()[0]}
    assert [
        commit for commit in commits if tool.git("merge-base", "--is-ancestor", commit, "HEAD") is None
    ] == []
