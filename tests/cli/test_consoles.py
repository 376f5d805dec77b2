"""The commands in the documents work: typed in order in an empty folder, they print what the page prints."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from consoles import steps, type_in
from paths import ROOT
from shares import fast_if

ELSEWHERE = {"acceptance.md"}  # test_acceptance_docs.py, which also looks at the files that were made
PAGES = [
    page
    for page in sorted((ROOT / "docs").glob("*.md"))
    if page.name not in ELSEWHERE and "```console" in page.read_text("utf-8")
]
TUTORIALS = sorted((ROOT / "docs").glob("tutorial_*.md"))
pytestmark = pytest.mark.skipif(not PAGES, reason="NO DOCS: the tests run outside the source tree")


@pytest.mark.parametrize(
    "page", fast_if(lambda page: page not in TUTORIALS, PAGES), ids=lambda page: page.stem
)
def test_the_commands_of_a_page(page: Path, tmp_path: Path) -> None:
    if "import torch" in page.read_text("utf-8") and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    if page not in TUTORIALS:
        (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert type_in(page, tmp_path) > 0


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_begins_with_what_the_reader_has_and_ends_with_output(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.split("\n")[2].startswith("You have ")
    assert steps(page)[-1][1], "the last command prints nothing"
    for door, folder in {"README.md": "docs", "README.zh.md": "docs/zh"}.items():
        assert f"({folder}/{page.name})" in (ROOT / door).read_text("utf-8")


def test_there_is_a_tutorial_for_each_door() -> None:
    assert {page.stem for page in TUTORIALS} == {
        "tutorial_pytorch",
        "tutorial_ascend",
        "tutorial_operators",
        "tutorial_acceptance",
    }


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one\ntwo\n```\n")
    with pytest.raises(AssertionError):
        type_in(page, tmp_path)
