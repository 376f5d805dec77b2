"""A thousand mutated files: each gives a message and a status, never a traceback, never a crash."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from commandline import pooltide, results_of
from hostile.mutation import mutated
from pooltide.cli import main

CASES = b"""\
name,case,seed,nan
stem,avg2d:2x3x11x13:k3x5:s2:p1:ceil:f32,1,true
halves,avg2d:2x3x11x13:k3:nopad:f16,2,
volume,adaptive_avg3d:2x3x5x7x11:o3x4x5:bf16,3,no
"""
OBJECTS = b"""\
{"name": "a", "case": "adaptive_max2d:2x3x11x13:o5x3:f32:i64", "inf": true}
{"operator": "avg2d", "input": [2, 3, 11, 13], "kernel": [3, 3], "stride": 2, "ceil_mode": true}
"adaptive_max3d:3x5x7x11:o2x3x5:f64:anywhere"
"""


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    trouble = result.exception
    assert trouble is None or isinstance(trouble, SystemExit), f"{arguments}: {trouble!r}"
    assert result.exit_code in (0, 1, 2)
    assert result.exit_code == 0 or result.output.strip(), "a failure without a word"
    return result.output


def test_mutated_case_files(tmp_path: Path) -> None:
    rng = random.Random(11)
    file = tmp_path / "cases"
    good = 0
    for i in range(500):
        file.write_bytes(mutated((CASES, OBJECTS)[i % 2], rng))
        good += "accepted" in invoke("check", file)
        if i % 5 == 0:
            invoke("golden", file, "-o", tmp_path / f"out{i}", "--jobs", 1)
        if i % 50 == 0:
            pooltide_any("check", file)
    assert 100 < good < 500


@pytest.mark.slow
def test_mutated_npy_files(tmp_path: Path) -> None:
    rng = random.Random(13)
    golden, actual = tmp_path / "g.npy", tmp_path / "a.npy"
    values = np.random.default_rng(17).standard_normal((3, 5, 7))
    read = 0
    for i in range(500):
        array = values.astype((np.float32, np.float16)[i % 2])
        np.save(golden, array)
        np.save(actual, array)
        which = (golden, actual)[i % 3 == 0]
        which.write_bytes(mutated(which.read_bytes(), rng, within=(None, 140)[i % 4 > 0]))
        read += not invoke("compare", actual, golden).startswith("error")
        if i % 50 == 0:
            invoke("compare", actual, golden, "--report", tmp_path / "r.html", "--verdict", "bits")
            pooltide_any("compare", actual, golden)
    assert 10 < read < 490


def test_mutated_manifests(tmp_path: Path) -> None:
    rng = random.Random(19)
    (tmp_path / "cases").write_bytes(CASES)
    pooltide("golden", tmp_path / "cases", "-o", tmp_path / "golden")
    results_of(tmp_path / "golden", tmp_path / "actual")
    manifest = tmp_path / "golden/manifest.jsonl"
    content = manifest.read_bytes()
    for _ in range(200):
        manifest.write_bytes(mutated(content, rng))
        invoke("compare", tmp_path / "actual", tmp_path / "golden", "--report", tmp_path / "r.html")


HUGE = "9" * 5000
SWAPS = [None, True, -1, 1.5, float("nan"), 10**4000, "", "x", "\x1b[31m", "\ud800", [], {}, [[]], {"a": [1]}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a JSON document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def swapped(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = swapped(value[path[0]], path[1:], new)
    return copy


def test_every_value_of_a_manifest_by_every_other_type(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text("name,case\na,adaptive_max2d:2x3x5x7:o2x3:i64\n")
    golden = tmp_path / "golden"
    invoke("golden", tmp_path / "cases", "-o", golden, "--jobs", 1)
    head, entry = (golden / "manifest.jsonl").read_text().splitlines()
    tried = 0
    for path in places(document := json.loads(entry)):
        for new in SWAPS:
            if path == ("name",) and new == "x":  # a good name, of a case that has no files
                continue
            text = json.dumps(swapped(document, path, new))
            (golden / "manifest.jsonl").write_text(f"{head}\n{text}\n")
            for arguments in (("compare", golden, golden), ("golden", tmp_path / "cases", "-o", golden)):
                result = CliRunner().invoke(main, [*map(str, arguments)])
                said = result.output
                assert result.exit_code == 2, (path, new, said)
                assert "manifest.jsonl, line 2: " in said
                assert "\x1b" not in said
            tried += 1
    assert tried > 400


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        f'{{"case": "avg2d:2x3x5x7:k3", "seed": {HUGE}}}',
        f'{{"name": {HUGE}}}',
        '{"case": ' + "[" * 900 + "]" * 900 + "}",
        '{"operator": "avg2d", "input": [NaN, Infinity], "kernel": 3}',
        f'{{"operator": "avg2d", "input": [{"9" * 4000}], "kernel": 3}}',
        '{"case": "\\ud800"}',
        '{"\\ud800": 1}',
        f"avg2d:{HUGE}:k3",
        f"avg2d:2x3x5x7:k3:seed{HUGE}",
        "avg2d:2x3x5x7:\x1b]0;title\x07",
        "name,name\na,b",
    ],
)
def test_lines_that_no_one_would_write(line: str, tmp_path: Path) -> None:
    good = "avg2d:2x3x5x7:k3:f32"
    for end, start in (("\n", ""), ("\r\n", "\ufeff")):
        (tmp_path / "cases").write_bytes(f"{start}{line}{end}{good}{end}".encode())
        said = invoke("check", tmp_path / "cases")
        assert "line 1 " in said
        assert "\x1b" not in said
        if "," not in line or line[0] == "{":
            assert f"accepted: aclnnAvgPool2dBackward on Atlas A2 training/inference: {good}" in said
        (tmp_path / "manifest.jsonl").write_bytes(f"{start}{line}{end}".encode())
        assert "manifest.jsonl, line 1: " in invoke("compare", tmp_path, tmp_path)


def test_files_that_never_end_or_never_begin(tmp_path: Path) -> None:
    assert "the path is a device" in invoke("check", "/dev/zero")
    (tmp_path / "long").write_bytes(b"x" * (2 << 20))
    assert "line 1 has more than 1048576 bytes" in invoke("check", tmp_path / "long")
    (tmp_path / "utf16").write_bytes("avg2d:2x3x5x7:k3\n".encode("utf-16"))
    assert "line 1 (case-000001): byte 0 is not UTF-8" in invoke("check", tmp_path / "utf16")


@pytest.mark.parametrize(
    "sizes", [f"({HUGE},)", f"({'9' * 4000},) * 3", f"({2**63},)", f"({2**62}, {2**62}, 0)"]
)
def test_npy_headers_with_huge_sizes(sizes: str, tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.ones(3, np.float32))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {sizes}, }}\n".encode()
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "a.npy").write_bytes(content)
    assert "a.npy: " in invoke("compare", tmp_path / "a.npy", tmp_path / "g.npy")
    assert "a.npy" in invoke("compare", tmp_path / "g.npy", tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("command", "problem", "says"),
    [
        ("run", f"avg2d:{2**62}x1x1x1:k1", "GiB; this machine has"),
        ("run", f"avg2d:0x1x{2**62}x1:k1", "GiB; this machine has"),
        ("run", f"adaptive_max2d:0x1x5x5:o{2**62}x{2**62}", "GiB; this machine has"),
        ("bench", "avg1d:1x1x1000000000000:k1", "GiB; this machine has"),
        ("run", "avg2d:1x1x10000x10000:k1:s1", "100000000 windows in each of 1 planes"),
        ("bench", "avg2d:1x64x1000x1000:k500:s1", "251001 windows in each of 64 planes"),
        ("bench", "avg2d:0x1x5x5:k3", "the case has no cell"),
        ("bench", "adaptive_max2d:1x1x0x0:o1x1", "the case has no cell"),
        ("bench", f"avg2d:1x1x5x5:k{2**62}:p{2**61}", "it must be smaller than 2**62"),
    ],
)
def test_absurd_sizes_are_refused_at_once(command: str, problem: str, says: str) -> None:
    assert says in invoke(command, problem)


def pooltide_any(*arguments: object) -> None:
    """Through the installed program, whatever its status."""
    for rc in (0, 1, 2):
        try:
            pooltide(*arguments, rc=rc)
            return
        except AssertionError as error:
            if not str(error).startswith("exit status"):
                raise
    raise AssertionError("the exit status is none of 0, 1, 2")
