"""The notebooks of examples/ print what they show, and values show themselves in notebooks."""

from __future__ import annotations

import importlib.util
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from paths import ROOT
from pooltide.acceptance.notation import parse
from pooltide.acceptance.show import draw_case
from pooltide.acceptance.trial import plan_of, run
from pooltide.acceptance.verdicts import Verdict
from pooltide.display import html_table
from tool_modules import load_tool

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
CASE = parse("max2d:2x3x7x11:k3:s2:p1:f16:i64:seed7")


def texts(outputs: list[dict[str, Any]]) -> list[list[str]]:
    """What is printed, and values as text and tables. Pictures are left out: packed colours may differ."""
    found = []
    for output in outputs:
        data = output.get("data", {})
        found += [output.get("text", []), data.get("text/plain", []), data.get("text/html", [])]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_outputs_of_its_cells(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    cells = load_tool("notebooks.py").code_cells(notebook)
    if path.stem == "pytorch" and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    fresh = load_tool("notebooks.py").run(notebook)
    for number, (cell, outputs) in enumerate(zip(cells, fresh, strict=True), 1):
        assert texts(cell["outputs"]) == texts(outputs), "run: python tools/notebooks.py"
        assert cell["execution_count"] == number
    assert any(texts(outputs) for outputs in fresh)


def test_there_is_a_small_notebook_for_each_door() -> None:
    if not NOTEBOOKS:
        pytest.skip("NO EXAMPLES: the tests run outside the source tree")
    assert [path.stem for path in NOTEBOOKS] == ["acceptance", "ascend", "pytorch"]
    for path in NOTEBOOKS:
        assert path.stat().st_size < 100_000
        assert f"examples/{path.name}" in (ROOT / "docs" / f"tutorial_{path.stem}.md").read_text("utf-8")


def test_a_cell_that_fails_is_noticed() -> None:
    if not NOTEBOOKS:
        pytest.skip("NO EXAMPLES: the tests run outside the source tree")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        load_tool("notebooks.py").run({"cells": [{"cell_type": "code", "source": ["1 / 0"]}]})


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (CASE, ["case", str(CASE), "kernel", "3", "dtype of indices", "INT64"]),
        (plan_of(CASE), ["backend", "cpu, working on planes", "scratch"]),
        (run(CASE), ["time", "mixed", "pass"]),
        (Verdict("<b>", "FAIL", "1 < 2 & 3"), ["<b>", "FAIL", "1 < 2 & 3"]),
    ],
    ids=["case", "plan", "trial", "verdict"],
)
def test_values_are_tables(value: Any, words: list[str]) -> None:
    found = Tags(value._repr_html_())
    assert set(found.tags) == {"table", "tr", "th", "td"}
    assert set(words) <= set(found.words)


def test_cells_are_escaped() -> None:
    assert "<script>" not in html_table([("<script>", '"&')])
    assert Tags(html_table([("<script>", '"&')])).words == ["<script>", '"&']


def test_texts_of_cases_and_pictures_are_short() -> None:
    assert repr(CASE) == f"<case {CASE}>"
    assert repr(draw_case(CASE)).endswith(f"pixels: {CASE}>")
    assert draw_case(CASE)._repr_svg_().startswith("<svg ")
