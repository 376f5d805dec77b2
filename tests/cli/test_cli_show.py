"""`pooltide show`: what the picture shows, its text, and the formats of the file."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import numpy as np
import pytest

from commandline import pooltide
from pooltide.acceptance.notation import parse
from pooltide.acceptance.picture import Cells, Words, heat, svg
from pooltide.acceptance.show import draw_case
from shares import fast_first

CASES = [
    "avg2d:2x3x7x11:k3:s2:p1:f16:seed7",
    "max2d_forward:2x3x11x13:k3:s2:p1:d2:bf16:i64:nan",
    "max1d_forward:3x41:k5:f32",
    "adaptive_avg3d_forward:2x3x5x7x11:o3x4x5:f64:cl",
    "avg2d:2x3x11x13:k3:s2:f32:gradInput.off7:gradInput.s1000x200x15x1:gradOutput.s0x0x6x1",
    "adaptive_max2d:1x1x300x200:o50x40:f32:i32",
    "avg2d:1x1x1x1:k1:f32",
]
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="NO MATPLOTLIB: PNG and PDF are not tested"
)
SPACE = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("case", CASES)
def test_the_words_of_a_picture_are_text_inside_it(case: str, tmp_path: Path) -> None:
    said = pooltide("show", case, "-o", "p.svg", cwd=tmp_path)
    root = ET.parse(tmp_path / "p.svg").getroot()
    width, height = (int(root.attrib[side]) for side in ("width", "height"))
    assert said == f"p.svg: {width}×{height} pixels, {case}\n"
    assert root.findtext(f"{SPACE}title") == case
    words = root.findall(f"{SPACE}text")
    assert (words[0].text or "").split(",")[0] == case
    for word in words:
        assert 0 <= float(word.attrib["x"]) <= width
        assert 0 <= float(word.attrib["y"]) <= height
    texts = [word.text or "" for word in words]
    for name in ("windows", "coverage", "input", "output"):
        assert any(name in text for text in texts[1:])
    assert texts.count("w") + texts.count("l") == 4  # an axis with a name on each panel
    assert len(root.findall(f"{SPACE}image")) == 4 + 3  # the cells of four panels, three colour scales


def panels(case: str) -> list[Cells]:
    """The cells of each panel, without those of the colour scales."""
    found = [shape for shape in draw_case(parse(case)).shapes if isinstance(shape, Cells)]
    return [cells for cells in found if cells.colours.shape[:2] != (256, 1)]


def test_each_cell_has_the_colour_and_number_of_its_windows() -> None:
    counts = np.zeros((5, 7), int)
    for top in (0, 2):
        for left in (0, 2, 4):
            counts[top : top + 3, left : left + 3] += 1
    coverage = panels("avg2d:1x1x5x7:k3:s2")[1]
    assert np.array_equal(coverage.colours, heat(counts / 4))
    inside = [
        int(shape.text)
        for shape in draw_case(parse("avg2d:1x1x5x7:k3:s2")).shapes
        if isinstance(shape, Words)
        and 0 < shape.x - coverage.x < coverage.width
        and 0 < shape.y - coverage.y < coverage.height
    ]
    assert inside == counts.ravel().tolist()


def test_a_cell_that_dilation_skips_is_not_covered() -> None:
    coverage = panels("max1d:1x1x5:k2:s9:d3")[1]
    assert np.array_equal(coverage.colours, heat(np.array([[1, 0, 0, 1, 0]])))


def test_the_colour_scale_has_the_largest_value() -> None:
    shapes = draw_case(parse("avg2d_forward:1x1x5x7:k1:integers:seed3")).shapes
    texts = [shape.text for shape in shapes if isinstance(shape, Words)]
    assert texts.count("8") >= 2  # −8 to 8, of the input and of the output
    assert texts.count("-8") >= 2


def test_names_are_escaped() -> None:
    picture = draw_case(parse("avg2d:1x1x5x7:k3"))
    object.__setattr__(picture, "title", "<b>&")
    assert b"<title>&lt;b&gt;&amp;</title>" in svg(picture)


def test_equal_cases_give_equal_files_and_a_name_without_suffix_means_svg(tmp_path: Path) -> None:
    for name in ("a.svg", "b.SVG", "c"):
        pooltide("show", CASES[0], "-o", name, cwd=tmp_path)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


@needs_matplotlib
@pytest.mark.parametrize("case", fast_first(CASES, 1))
def test_png(case: str, tmp_path: Path) -> None:
    said = pooltide("show", case, "-o", "p.png", cwd=tmp_path)
    content = (tmp_path / "p.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert f"{width}×{height} pixels" in said
    assert b"Title\0" + case.encode() in content


@needs_matplotlib
def test_pdf_has_the_notation_as_text(tmp_path: Path) -> None:
    """Fonts of type 42 map glyphs to characters, so the text can be copied."""
    pooltide("show", CASES[0], "-o", "p.pdf", cwd=tmp_path)
    content = (tmp_path / "p.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert b"/ToUnicode" in content
    assert CASES[0].encode() in content  # the title of the document
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.S)
    drawn = b"".join(zlib.decompress(part) for part in streams if part[:1] == b"x")
    assert b"Tj" in drawn or b"TJ" in drawn


WITHOUT = """\
import sys
sys.modules["matplotlib"] = None
from pooltide.cli import main
main(sys.argv[1:], prog_name="pooltide")
"""


@pytest.mark.parametrize("format", fast_first(["png", "pdf"]))
def test_without_matplotlib_a_sentence_says_what_to_install(format: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, "show", CASES[0], "-o"]
    done = subprocess.run([*command, f"p.{format}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"a .{format} file needs matplotlib" in done.stderr
    assert "pip install 'pooltide[plot]'" in done.stderr
    assert "Traceback" not in done.stderr
    subprocess.run([*command, "p.svg"], cwd=tmp_path, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["p.svg"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((CASES[0], "-o", "p.gif"), "-o has the suffix '.gif'; it must be .svg, .png, .pdf or .html"),
        (("max_unpool2d:1x1x4x4:k2", "-o", "p.svg"), "an unpool has no windows; a picture needs some"),
        (
            ("adaptive_avg3d:1x1x7x11x13:o3x4x5", "-o", "p.svg", "--slice", 7),
            "the slice is 7; it must be 0 to 6",
        ),
        (("avg2d:1x9999x9999:k1", "-o", "p.svg"), "at most 1024 cells a side"),
        (("avg2d:0x1x5x5:k1", "-o", "p.svg"), "the case has no cell"),
        (("avg2d:1x1x5x5:k9", "-o", "p.svg"), "avg_pool2d_backward: "),
    ],
    ids=str,
)
def test_what_can_not_be_drawn_gives_status_2(
    arguments: tuple[object, ...], says: str, tmp_path: Path
) -> None:
    assert says in " ".join(pooltide("show", *arguments, rc=2, cwd=tmp_path).split())
    assert list(tmp_path.iterdir()) == []


def test_the_slice_that_was_asked_for(tmp_path: Path) -> None:
    case = "adaptive_avg3d:1x1x7x11x13:o3x4x5"
    pictures = set()
    for depth in (0, 3):
        pooltide("show", case, "-o", "p.svg", "--slice", depth, cwd=tmp_path)
        text = (tmp_path / "p.svg").read_text()
        assert f"slice d={depth} of 7" in text
        pictures.add(text)
    assert len(pictures) == 2


def test_show_and_check_speak_json(tmp_path: Path) -> None:
    found = json.loads(pooltide("show", "avg2d:1x1x5x7:k3", "-o", "p.svg", "--json", cwd=tmp_path))
    root = ET.parse(tmp_path / "p.svg").getroot()
    assert (found["height"], found["width"]) == (int(root.attrib["height"]), int(root.attrib["width"]))
    assert found["case"] == "avg2d:1x1x5x7:k3:f32"
    (tmp_path / "cases").write_text("rubbish:1\n")
    (record,) = map(json.loads, pooltide("check", tmp_path / "cases", "--json", rc=1).splitlines())
    assert "the operator is 'rubbish'" in record["error"]
