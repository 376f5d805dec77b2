"""Files of cases: CSV, JSON lines and bare notation; a bad line is an answer."""

from __future__ import annotations

import json

from pooltide.acceptance.cases import FIELDS, Line, lines
from pooltide.acceptance.notation import parse


def read(text: str) -> list[Line]:
    return list(lines(part.encode() + b"\n" for part in text.split("\n")))


def test_bare_notation_with_comments() -> None:
    found = read("# a comment\n\navg2d:2x3x11x13:k3\n  adaptive_max2d:2x3x5:o2:f16\n")
    assert [(line.number, line.name) for line in found] == [(3, "case-000003"), (4, "case-000004")]
    assert [str(line.case) for line in found] == [
        "avg2d:2x3x11x13:k3:f32",
        "adaptive_max2d:2x3x5:o2x2:f16:i32",
    ]


def test_csv_under_a_header() -> None:
    (line,) = read("name,case,seed,nan\nstem, avg2d:2x3x11x13:k3 ,7,true\n")
    assert (line.name, str(line.case)) == ("stem", "avg2d:2x3x11x13:k3:f32:nan:seed7")


def test_every_field_of_an_object() -> None:
    fields = {
        "name": "full", "operator": "avg2d", "input": [1, 16, 4, 4], "output": [2, 2], "kernel": [4, 3],
        "stride": 1, "padding": [1, 0], "ceil_mode": True, "count_include_pad": False,
        "divisor_override": -3, "cube_math_type": 1, "dtype": "bf16", "format": "NCHW", "layout": "cl",
        "distribution": "wide", "seed": 7, "nan": True, "inf": True, "product": "atlas-a2",
        "words": "self.f16",
    }  # fmt: skip
    (line,) = read(json.dumps(fields))
    assert str(line.case) == (
        "avg2d:1x16x4x4:o2x2:k4x3:s1:p1x0:ceil:nopad:div-3:cube1:bf16:NCHW:cl:self.f16:wide:nan:inf:seed7:atlas-a2"
    )
    indexed = {
        "operator": "adaptive_max2d",
        "input": "2x3x5",
        "output": 2,
        "index_dtype": "i64",
        "anywhere": 1,
    }
    (line,) = read(json.dumps(indexed))
    assert line.case == parse("adaptive_max2d:2x3x5:o2:i64:anywhere")
    dilated = {"operator": "max2d", "input": "2x3x11x13", "kernel": 3, "dilation": [2, 3]}
    (line,) = read(json.dumps(dilated))
    assert str(line.case) == "max2d:2x3x11x13:k3:d2x3:f32:i32"
    regional = {
        "operator": "roi_align", "input": [1, 3, 9, 9], "output": 2, "boxes": 7, "spatial_scale": 0.25,
        "sampling_ratio": 2, "aligned": True,
    }  # fmt: skip
    (line,) = read(json.dumps(regional))
    assert str(line.case) == "roi_align:1x3x9x9:o2x2:boxes7:scale0.25:ratio2:aligned:f32"
    (line,) = read(json.dumps({**regional, "boxes": None, "boxes_file": "none.npy"}))
    assert "word boxes=none.npy: none.npy: can't be read" in line.error
    known = fields.keys() | indexed.keys() | dilated.keys() | regional.keys() | {"boxes_file"}
    assert FIELDS.keys() <= known


def test_a_bad_line_is_reported_and_the_others_go_on() -> None:
    found = read("avg2d:2x3x11x13:k3\nnonsense\navg2d:2x3x11x13:k5")
    assert [line.case is None for line in found] == [False, True, False]
    assert "the operator is 'nonsense'" in found[1].error


def test_sentences_for_wrong_lines() -> None:
    for text, says in [
        ("name,case\na,b,c", "the line has 3 cells; it must have 2, as the header has"),
        ("a,b", "the first line must name the fields"),
        ("[1]", "JSON of list; it must be an object or a string"),
        ("{", "the line is no JSON"),
        ('{"case": 3}', "case is 3; it must be text"),
        ('{"operator": "avg2d"}', "there is no case; give the field case, or operator and input"),
        ('{"case": "avg2d:1x2x3:k1", "kernal": 3}', "field 'kernal' is unknown; known are name, case"),
        ('{"case": "avg2d:1x2x3:k1", "ceil_mode": 3}', "ceil_mode is '3'; it must be true or false"),
        ('{"case": "avg2d:1x2x3:k1", "seed": 1.5}', "seed is 1.5; it must be ints"),
        ('{"case": "avg2d:1x2x3:k1", "name": "../x"}', "name is '../x'; it must be letters"),
        ('{"case": "avg2d:1x2x3:k1", "name": "-rf"}', "must not begin with . or -"),
        ("[" * 100_000, "the line is no JSON"),
    ]:
        error = read(text)[-1].error
        assert says in error, (text[:50], error)


def test_a_name_stands_once() -> None:
    found = read("name,case\na,avg2d:1x2x3:k1\na,avg2d:1x2x3:k1")
    assert found[1].error == "name is 'a', which line 2 has; it must be unique"
