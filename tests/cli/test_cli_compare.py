"""`pooltide compare`: verdicts by exit status, files of every kind, memory that does not grow."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from commandline import PROGRAM, golden_and_chip, pooltide, results_of
from pooltide import __version__

CASES = """\
name,case
stem,avg2d:2x3x11x13:k3x5:s2:p1:ceil:f32:seed1
volume,adaptive_avg3d:2x3x5x7x11:o3x4x5:bf16:seed3
peaks,adaptive_max2d:2x3x11x13:o5x3:f16:i64:nan:seed4
"""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    (tmp_path / "cases.csv").write_text(CASES)
    pooltide("golden", tmp_path / "cases.csv", "-o", tmp_path / "golden")
    return tmp_path / "golden"


def save(path: Path, values: object, dtype: object = np.float32) -> Path:
    np.save(path, np.asarray(values, dtype))  # type: ignore[arg-type]
    return path


@pytest.fixture
def copied(golden: Path) -> Path:
    """A copy of the golden data, as results."""
    return results_of(golden, golden.parent / "copied")


def test_a_directory_passes_against_its_copy(golden: Path, copied: Path) -> None:
    text = pooltide("compare", copied, golden, "--verdict", "bits")
    assert text.splitlines()[-1] == "3 of 3 pass; the standard is bits: all bits equal; a NaN is a NaN"


def test_directories_are_matched_by_the_manifest(golden: Path, tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    shutil.copy(golden / "stem/grad_input.npy", flat / "stem.npy")
    shutil.copy(golden / "volume/grad_input.bin", flat / "volume.bin")
    text = pooltide("compare", flat, golden, rc=2)
    assert (
        f"error peaks: {flat}: no result for peaks; it must be in {flat}/peaks/grad_input.npy or {flat}/peaks.npy"
        in text
    )
    assert "2 of 3 pass, 1 could not be compared; the standard is mixed" in text
    shutil.copytree(golden / "peaks", flat / "peaks")
    assert "3 of 3 pass" in pooltide("compare", flat, golden)


def test_the_chosen_verdict_decides(tmp_path: Path) -> None:
    golden = save(tmp_path / "g.npy", np.linspace(1, 2, 1000))
    near = save(tmp_path / "near.npy", np.linspace(1, 2, 1000) * (1 + 2**-20))
    off = np.linspace(1, 2, 1000, dtype=np.float32)
    off[7] += np.float32(5e-3)
    one = save(tmp_path / "one.npy", off)
    for actual, rc in ((golden, {}), (near, {"bits": 1}), (one, {"bits": 1, "single": 1})):
        for standard in ("single", "mixed", "bits"):
            pooltide("compare", actual, golden, "--standard", standard, rc=rc.get(standard, 0))


def test_a_third_result(tmp_path: Path) -> None:
    golden = save(tmp_path / "g.npy", np.linspace(1, 2, 1000), np.float64)
    ours = save(tmp_path / "a.npy", np.linspace(1, 2, 1000) + 1.3e-4)
    third = save(tmp_path / "t.npy", np.linspace(1, 2, 1000) + 1e-4)
    common = ("compare", ours, golden, "--third", third, "--verdict", "two", "--level")
    assert "two           pass: L1: ratios largest rel 1.3 (at most 5)" in pooltide(*common, "L1", "-v")
    text = pooltide(*common, "L2", rc=1)  # what fails comes first
    reason = "mean rel 1.3 (at most 1.2), RMSE 1.3 (at most 1.2), largest rel 1.3 (at most 2)"
    assert f"FAIL  a.npy: two: L2: ratios {reason}" in text
    for standard in ("two", "benchmark"):
        assert "needs --third" in pooltide("compare", ours, golden, "--standard", standard, rc=2)


def test_nan_out_of_place_fails_every_verdict(tmp_path: Path) -> None:
    golden = save(tmp_path / "g.npy", [1, np.nan, np.inf, 4])
    same = save(tmp_path / "same.npy", [1, np.nan, np.inf, 4])
    bad = save(tmp_path / "a.npy", [1, 2, np.inf, np.nan])
    for standard in ("single", "mixed", "bits", "cosine", "ulp", "infnan", "msprobe"):
        text = pooltide("compare", bad, golden, "--standard", standard, rc=1)
        assert f"FAIL  a.npy: {standard}: 2 of 4 cells have a NaN or Inf out of place" in text
        assert "1 NaN (golden 1), 1 Inf (golden 1)" in text
    assert "pass  same.npy: all 4 cells equal; 1 NaN and 1 Inf, as golden" in pooltide(
        "compare", same, golden
    )


def test_raw_files(tmp_path: Path) -> None:
    values = np.linspace(-3, 3, 101).astype(ml_dtypes.bfloat16)
    values.tofile(tmp_path / "a.bin")
    np.save(tmp_path / "g.npy", values)  # NumPy calls it V2
    for pair in (("a.bin", "g.npy"), ("g.npy", "a.bin")):
        assert f"pass  {pair[0]}: all 101 cells equal" in pooltide("compare", *pair, cwd=tmp_path)
    assert "give it with --dtype" in pooltide("compare", "a.bin", "a.bin", cwd=tmp_path, rc=2)
    values.tofile(tmp_path / "b.bin")
    pooltide("compare", "a.bin", "b.bin", "--dtype", "bf16", cwd=tmp_path)
    assert "the file has 202 bytes; whole elements of FLOAT32 must be 200" in pooltide(
        "compare", "a.bin", "b.bin", "--dtype", "hf32", cwd=tmp_path, rc=2
    )


def test_other_byte_orders_and_fortran_order(tmp_path: Path) -> None:
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    np.save(tmp_path / "g.npy", x)
    np.save(tmp_path / "big.npy", x.astype(">f4"))
    np.save(tmp_path / "f.npy", np.asfortranarray(x))
    pooltide("compare", "big.npy", "g.npy", "--verdict", "bits", cwd=tmp_path)
    np.save(tmp_path / "f2.npy", np.asfortranarray(x))
    pooltide("compare", "f.npy", "f2.npy", "--verdict", "bits", cwd=tmp_path)
    text = pooltide("compare", "f.npy", "g.npy", cwd=tmp_path, rc=2)
    assert "f.npy: the file is in Fortran order; it must be in C order, as g.npy" in text


def test_json_has_everything(golden: Path, copied: Path) -> None:
    *found, last = map(json.loads, pooltide("compare", copied, golden, "--json").splitlines())
    records = {r["name"]: r for r in found}
    digest = json.loads((golden / "manifest.jsonl").read_text().splitlines()[0])["sha256"]
    assert last["summary"] == {
        "standard": "mixed", "pass": 3, "warning": 0, "fail": 0, "error": 0, "exit_status": 0, "extra": [],
        "level": None, "pooltide": __version__, "label": None, "shard": None,
        "golden": {"sha256": digest, "cases": 3, "shard": None, "list_sha256": None, "left_out": 0},
    }  # fmt: skip
    assert records["stem"]["count"] == 2 * 3 * 11 * 13
    assert records["stem"]["ulp_histogram"] == {"0": 2 * 3 * 11 * 13}
    assert records["peaks"]["verdicts"]["bits"]["pass"] is True
    assert records["peaks"]["nan"] == records["peaks"]["golden_nan"] > 0
    assert records["stem"]["cosine"] == 1


def test_one_line_for_each_case_and_its_reproduce_command(golden: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    shutil.copytree(golden, ours, ignore=shutil.ignore_patterns("*.bin", "manifest.jsonl"))
    np.save(ours / "stem/grad_input.npy", -np.load(golden / "stem/grad_input.npy"))
    raw = np.fromfile(golden / "volume/grad_input.bin", ml_dtypes.bfloat16)
    (-raw).tofile(ours / "volume/grad_input.bin")
    (ours / "volume/grad_input.npy").unlink()
    (ours / "peaks/grad_input.npy").unlink()
    (ours / "stem/notes.txt").write_text("x")
    np.save(ours / "unknown.npy", raw.astype("f4"))
    lines = pooltide("compare", ours, golden, rc=2).splitlines()
    starts = [line.split(":")[0] for line in lines]
    assert starts == [
        "FAIL  stem", "reproduce", "FAIL  volume", "reproduce", "error peaks",
        f"extra {ours}/stem/notes.txt", f"extra {ours}/unknown.npy", "0 of 3 pass, 2 fail, 1 could not be compared; the standard is mixed",
    ]  # fmt: skip
    assert lines[1] == f"reproduce: pooltide compare {ours} {golden} --only stem -v"
    assert lines[3] == f"reproduce: pooltide compare {ours} {golden} --only volume -v"
    (verbose,) = [
        line
        for line in pooltide("compare", ours, golden, "--only", "stem", "-v", rc=1).splitlines()
        if "decides" in line
    ]
    assert verbose.split()[:2] == ["mixed", "FAIL:"]
    *_, summary = pooltide("compare", ours, golden, "--json", rc=2).splitlines()
    assert json.loads(summary)["summary"]["extra"] == [f"{ours}/stem/notes.txt", f"{ours}/unknown.npy"]


def test_a_pt_file_beside_the_names_of_golden_data_is_a_result(golden: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ours = tmp_path / "ours"
    shutil.copytree(golden, ours, ignore=shutil.ignore_patterns("*.bin", "manifest.jsonl"))
    result = ours / "stem/grad_input.npy"
    torch.save(torch.from_numpy(np.load(result)), result.with_suffix(".pt"))
    result.unlink()
    text = pooltide("compare", ours, golden)
    assert "pass  stem: all 858 cells equal" in text
    assert "extra" not in text


def test_only_compares_the_named_cases(golden: Path, copied: Path) -> None:
    text = pooltide("compare", copied, golden, "--only", "stem", "--only", "peaks")
    assert [line.split()[1] for line in text.splitlines()[:-1]] == ["stem:", "peaks:"]
    assert "2 of 2 pass" in text
    assert "--only is 'nothing'; it must be a name" in pooltide(
        "compare", golden, golden, "--only", "nothing", rc=2
    )
    file = golden / "stem/grad_input.npy"
    assert "--only and --shard are for directories" in pooltide("compare", file, file, "--only", "stem", rc=2)


def test_one_rule_for_the_exit_status(tmp_path: Path) -> None:
    """2 if a case could not be compared, else 1 if a verdict failed, else 0; run and compare alike."""
    good = save(tmp_path / "g.npy", [1, 2, 3])
    bad = save(tmp_path / "b.npy", [1, 2, 4])
    pooltide("compare", good, good)
    pooltide("compare", bad, good, rc=1)
    (tmp_path / "cut.npy").write_bytes(good.read_bytes()[:-1])
    pooltide("compare", tmp_path / "cut.npy", good, rc=2)
    case, refused = "adaptive_avg3d:2x3x7x11x13:o5x3x4", "avg2d:1x2x3x4:k3:p9"
    pooltide("run", case)
    pooltide("run", case, "--standard", "bits", rc=1)
    pooltide("run", refused, rc=2)
    (tmp_path / "both").write_text(f"{case}\n{refused}\n")
    pooltide("run", tmp_path / "both", "--standard", "bits", rc=2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file begins with b'' and is no .npy file"),
        (b"\x93NUMPY\x01", "the .npy version is"),
        (b"\x93NUMPY\x01\x00\x76", "the file ends inside its header"),
        (b"\x93NUMPY\x01\x00\x76\x00{'descr'", "the file ends inside its header"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), "the header has 2147483648 bytes"),
        (b"\x80\x04\x95\x05", "looks like a pickle, which is never loaded"),
        (b"PK\x03\x04\x00\x00", "is no .npy file"),
    ],
)
def test_a_broken_npy_file(content: bytes, says: str, tmp_path: Path) -> None:
    golden = save(tmp_path / "g.npy", [1, 2, 3])
    (tmp_path / "a.npy").write_bytes(content)
    assert says in pooltide("compare", tmp_path / "a.npy", golden, rc=2)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.arange(3), "the file has dtype INT64; it must be FLOAT16, BFLOAT16, FLOAT32, FLOAT64"),
        (np.zeros(3, [("a", "f4")]), "it must be a plain number's"),
        (np.zeros(3, "c8"), "it must be a plain number's"),
        (np.zeros(3, "S4"), "it must be a plain number's"),
        (np.zeros(4, np.float32), "the file has shape (4,); it must be (3,)"),
        (np.zeros((3, 1), np.float32), "the file has shape (3, 1); it must be (3,)"),
        (np.zeros(3, np.float16), "the file has dtype FLOAT32; it must be FLOAT16"),
    ],
)
def test_a_wrong_array(array: np.ndarray, says: str, tmp_path: Path) -> None:
    golden = save(tmp_path / "g.npy", [1, 2, 3])
    np.save(tmp_path / "a.npy", array)
    assert says in pooltide("compare", tmp_path / "a.npy", golden, rc=2)


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("exploded"),)


def test_a_pickle_is_refused_and_never_loaded(tmp_path: Path) -> None:
    golden = save(tmp_path / "g.npy", [1, 2, 3])
    np.save(tmp_path / "a.npy", np.array([Bomb()], object), allow_pickle=True)
    text = pooltide("compare", tmp_path / "a.npy", golden, rc=2, cwd=tmp_path)
    assert "holds Python objects in a pickle, which is never loaded" in text
    assert not (tmp_path / "exploded").exists()
    np.load(tmp_path / "a.npy", allow_pickle=True)  # the bomb is a real one: loaded, it goes off
    assert Path("exploded").exists()
    Path("exploded").unlink()


def test_a_broken_manifest_is_a_message(golden: Path) -> None:
    manifest = golden / "manifest.jsonl"
    good = manifest.read_text()
    for bad in ("[]", '{"name": "x"}', '{"name": "../x", "case": "", "rounding": "", "files": {}}', "{"):
        manifest.write_text(good + bad + "\n")
        assert "manifest.jsonl, line 5:" in pooltide("compare", golden, golden, rc=2)
    manifest.unlink()
    assert "manifest.jsonl: can't be read: No such file" in pooltide("compare", golden, golden, rc=2)


def sparse(path: Path, cells: int, mark: float) -> None:
    """A float32 .npy file, nearly all holes, with one other value in each stretch of a million."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({cells},), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        start = file.tell()
        file.truncate(start + cells * 4)
        for cell in range(500, cells, 1_000_000):
            file.seek(start + cell * 4)
            file.write(np.float32(mark).tobytes())


@pytest.mark.slow
def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    cells = 40_000_000  # 160 MB each
    sparse(tmp_path / "g.npy", cells, 1.0)
    sparse(tmp_path / "a.npy", cells, 1.0 + 2**-23)
    script = (
        "import resource, subprocess, sys\n"
        "rc = subprocess.run(sys.argv[1:]).returncode\n"
        "print(rc, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", script, PROGRAM, "compare", tmp_path / "a.npy", tmp_path / "g.npy"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    rc, peak = map(int, done.stdout.splitlines()[-1].split())
    assert rc == 0
    assert "pass  a.npy: 40 of 40000000 cells differ, at most 1 ULP" in done.stdout
    assert peak < 130_000  # KiB


def test_forwards_and_the_indices_of_maxima(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text(
        "name,case\nm,max2d_forward:2x3x11x13:k3:s2:i64:seed1\na,avg2d_forward:2x3x11x13:k3:s2:seed2\n"
    )
    pooltide("golden", "cases", "-o", "golden", cwd=tmp_path)
    assert {path.name for path in (tmp_path / "golden/m").glob("*.npy")} == {
        "input.npy",
        "output.npy",
        "indices.npy",
    }
    pooltide("run", "cases", "--save", "ours", cwd=tmp_path)
    assert {path.name for path in (tmp_path / "ours").iterdir()} == {"m.npy", "m.indices.npy", "a.npy"}
    text = pooltide("compare", "ours", "golden", "--standard", "bits", "--only", "m", cwd=tmp_path)
    assert "pass  m: all 180 cells and 180 indices equal" in text
    assert "extra" not in pooltide("compare", "ours", "golden", cwd=tmp_path)
    indices = np.load(tmp_path / "ours/m.indices.npy")
    indices[1, 2, 3, 4] += 1
    np.save(tmp_path / "ours/m.indices.npy", indices)
    values = np.load(tmp_path / "ours/a.npy")
    values[1, 2, 3, 4] += 1
    np.save(tmp_path / "ours/a.npy", values)
    text = pooltide("compare", "ours", "golden", "--report", "r.html", cwd=tmp_path, rc=1)
    assert "FAIL  m: mixed: 1 of 180 indices differ" in text
    # the worst cell of the average is window (3, 4): cells 6 to 8 of h and 8 to 10 of w
    section = (tmp_path / "r.html").read_text().partition('id="case-a"')[2].partition("</section>")[0]
    row = section.partition(">1, 2, 3, 4</td>")[2].partition("</tr>")[0]
    source = np.load(tmp_path / "golden/a/input.npy")[1, 2]
    for h in (6, 7, 8):
        for w in (8, 9, 10):
            assert f"({h}, {w}) {source[h, w]:.6g}" in row
    (tmp_path / "ours/m.indices.npy").unlink()
    text = pooltide("compare", "ours", "golden", cwd=tmp_path, rc=2)
    assert "error m: ours: no indices for m; it must be in ours/m/indices.npy or ours/m.indices.npy" in text


def test_the_reproduce_command_is_the_comparison_that_failed(tmp_path: Path) -> None:
    """With its files, its standard, level and dtype, quoted for the shell."""
    golden, actual, third = (tmp_path / name for name in ("the golden.npy", "our $result.bin", "third.npy"))
    values = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
    np.save(golden, values)
    np.save(third, values * np.float32(1 + 1e-6))
    (values * 2).tofile(actual)
    options = ["--third", third, "--standard", "two", "--level", "L0", "--dtype", "f32"]
    text = pooltide("compare", actual, golden, *options, rc=1)
    (line,) = [line for line in text.splitlines() if line.startswith("reproduce: ")]
    words = shlex.split(line.removeprefix("reproduce: pooltide "))
    assert words == ["compare", str(actual), str(golden), *map(str, options), "-v"]
    assert "0 of 1 pass, 1 fail; the standard is two" in pooltide(*words, rc=1)


def test_there_is_no_figure_without_a_finite_cell(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((3, 5), np.nan, np.float32))
    arguments = ["compare", tmp_path / "a.npy", tmp_path / "a.npy"]
    record = json.loads(pooltide(*arguments, "--json", "--csv", tmp_path / "d.csv").splitlines()[0])
    for key in (
        "MERE",
        "MARE",
        "RMSE",
        "max ULP",
        "cosine",
        "within_0.001",
        "mean_abs",
        "max_abs",
        "mean_ulp",
    ):
        assert record[key] is None, key
    assert (record["differing"], record["nan"]) == (0, 15)
    (row,) = csv.DictReader((tmp_path / "d.csv").open(encoding="utf-8-sig"))
    assert {
        row[name] for name in ("余弦相似度", "最大绝对误差", "双千指标", "相对误差最大值", "ULP误差平均值")
    } == {""}
    assert (row["二进制一致错误率"], row["inf/nan错误率"], row["Status"]) == ("0.0", "0.0", "pass")
    assert "no cell is finite in both" in pooltide(*arguments, "-v", "--report", tmp_path / "r.html")
    assert '["a.npy","pass","","","","","",0,15,0,"",[0,0,0,0],0]' in (tmp_path / "r.html").read_text()


def test_two_results_for_one_case_are_an_error(tmp_path: Path) -> None:
    """An old delivery in NAME/grad_input.npy must not hide the new one in NAME.npy."""
    golden, chip = golden_and_chip(tmp_path, "avg2d:1x1x4x4:k2\n")
    (chip / "case-000001").mkdir()
    shutil.copy(golden / "case-000001" / "grad_input.npy", chip / "case-000001")
    text = pooltide("compare", chip, golden, rc=2)
    assert "both are results for case-000001; it must have one" in text
