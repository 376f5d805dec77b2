"""A thousand mutated files: each gives a message and a status, never a traceback, never a crash."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from commandline import pooltide

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


def mutated(content: bytes, rng: random.Random, within: int | None = None) -> bytes:
    """A few bytes changed, dropped, doubled or cut off; most of them in the first `within` bytes."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(len(data), within or len(data)) or 1)
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randint(1, 9)]
            case 2:
                data[at:at] = data[at : at + rng.randint(1, 20)]
            case 3:
                data = data[: rng.randrange(len(data) + 1)]
            case 4:
                data[at:at] = rng.choice(
                    [b"9" * 30, b"-", b"\0", b'"', b"[" * 5000, b"\xff\xfe", b"x0", b"\n{"]
                )
            case 5:
                data[at : at + 1] = rng.choice(b"0123456789:,x{}\n'\"").to_bytes()
    return bytes(data)


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
        read += "single" in invoke("compare", actual, golden)
        if i % 50 == 0:
            invoke("compare", actual, golden, "--report", tmp_path / "r.html", "--verdict", "bits")
            pooltide_any("compare", actual, golden)
    assert 10 < read < 490


def test_mutated_manifests(tmp_path: Path) -> None:
    rng = random.Random(19)
    (tmp_path / "cases").write_bytes(CASES)
    pooltide("golden", tmp_path / "cases", "-o", tmp_path / "golden")
    shutil.copytree(tmp_path / "golden", tmp_path / "actual")
    manifest = tmp_path / "golden/manifest.jsonl"
    content = manifest.read_bytes()
    for _ in range(200):
        manifest.write_bytes(mutated(content, rng))
        invoke("compare", tmp_path / "actual", tmp_path / "golden", "--report", tmp_path / "r.html")


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
