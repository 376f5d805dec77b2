"""Nothing is lost and nothing is green by mistake: counts, older cases, outputs, hints and summaries."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commandline import golden_and_chip, invoke, pooltide, results_of
from pooltide.acceptance import oracle, workers
from pooltide.acceptance.cases import count, lines
from pooltide.acceptance.errormap import ErrorMap
from pooltide.acceptance.golden import make
from pooltide.acceptance.manifest import read_manifest
from pooltide.acceptance.report_section import _heat_map
from pooltide.acceptance.saved_tensor import SavedError, _check_archive
from pooltide.cli import golden_maker

CASE = "avg2d:2x3x5x7:k3"


def cases_file(path: Path, *names: str, case: str = CASE) -> Path:
    path.write_text("name,case\n" + "".join(f"{name},{case}:seed{i}\n" for i, name in enumerate(names)))
    return path


def save(path: Path, *values: float, dtype: Any = np.float32) -> Path:
    np.save(path, np.array(values, dtype))
    return path


# Counts


def test_cases_are_counted_without_headers_and_comments(tmp_path: Path) -> None:
    for text in (
        f"name,case\na,{CASE}\n# no case\n\n  \nb,{CASE}\n",
        f"\ufeffname;case\r\na;{CASE}\r\nrubbish\r\n",
        f"{CASE}\n{CASE}",
        f'# header\n{{"case": "{CASE}"}}\n"{CASE}"\n',
        "",
    ):
        (tmp_path / "cases").write_bytes(text.encode())
        assert count(tmp_path / "cases") == len(list(lines(text.encode().splitlines(keepends=True))))


def test_an_interruption_counts_the_whole_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = cases_file(tmp_path / "cases", *"abcdefgh")

    def interrupted(task: Any, *rest: Any) -> Any:
        if task.name == "d":
            raise KeyboardInterrupt
        return make(task, *rest)

    monkeypatch.setattr(workers, "make", interrupted)
    text = invoke("golden", cases, "-o", tmp_path / "out", "--jobs", 1, rc=1)
    assert "manifest.jsonl: 3 of 8 cases, 0 bad" in text
    assert "interrupted; start it again to go on" in text
    text = invoke("golden", cases, "-o", tmp_path / "of", "--jobs", 1, "--shard", "2/3", "--json")
    assert json.loads(text.splitlines()[-1])["summary"]["cases"] == 3  # b, e, h


def test_a_full_disk_counts_the_whole_list(tmp_path: Path) -> None:
    cases = cases_file(tmp_path / "cases", *"abcd", case="avg2d:2x3x50x70:k3")
    done = subprocess.run(
        [sys.executable, "-m", "pooltide", "golden", cases, "-o", tmp_path / "out", "--jobs", "1"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "manifest.jsonl: 0 of 4 cases, 0 bad" in done.stdout
    assert "Usage" not in done.stderr


def test_json_rows_are_in_the_order_of_the_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = tmp_path / "cases"
    cases.write_text(cases_file(cases, *"abcdefgh").read_text().replace(f"e,{CASE}", "e,rubbish"))
    real = golden_maker.make_all
    monkeypatch.setattr(golden_maker, "make_all", lambda *rest: reversed(list(real(*rest))))
    text = invoke("golden", cases, "-o", tmp_path / "out", "--jobs", 1, "--json", rc=1)
    *records, last = map(json.loads, text.splitlines())
    assert [record["line"] for record in records] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert ["error" in record for record in records].index(True) == 4
    assert (last["summary"]["made"], last["summary"]["bad"]) == (7, 1)


def test_warnings_are_counted_as_warnings(tmp_path: Path) -> None:
    golden = save(tmp_path / "g.npy", *np.linspace(1, 2, 5000))
    values = np.linspace(1, 2, 5000)
    values[:3] *= 1.002  # below a thousandth of the cells, above a ten-thousandth of them
    actual = save(tmp_path / "a.npy", *values)
    command = ("compare", actual, golden, "--standard", "msprobe")
    assert "0 of 1 pass, 1 warning; the standard is msprobe" in invoke(*command, rc=1)
    assert json.loads(invoke(*command, "--json", rc=1).splitlines()[-1])["summary"]["warning"] == 1
    invoke(*command, "--report", tmp_path / "r.html", rc=1)
    page = (tmp_path / "r.html").read_text()
    assert '<span class="warning"><b>1</b> warn</span>' in page
    assert '<span class="badge warning">warning</span>' in page


# Older cases


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    invoke("golden", cases_file(tmp_path / "old", *"abc"), "-o", tmp_path / "golden", "--jobs", 1)
    return tmp_path / "golden"


def test_older_cases_are_named_and_pruned(golden: Path) -> None:
    (new := golden.parent / "new").write_text(f"name,case\na,{CASE}\nb,avg2d:2x3x5x7:k9\n")
    text = invoke("golden", new, "-o", golden, "--jobs", 1, rc=1)
    stay = "older cases that were not made now stay, and are compared too; --prune removes them: 2 (b, c)"
    assert f"{golden}: {stay}" in text
    chip = results_of(golden, golden.parent / "chip")
    assert "3 of 3 pass, 1 without golden data" in invoke("compare", chip, golden, rc=1)
    (golden / "c/mine.txt").write_text("not ours")
    text = invoke("golden", new, "-o", golden, "--jobs", 1, "--prune", rc=1)
    assert "are no longer in the manifest: 2 (b, c)" in text
    assert list(read_manifest(golden).offsets) == ["a"]
    assert sorted(path.name for path in golden.iterdir()) == ["a", "c", "manifest.jsonl"]
    assert (golden / "c/mine.txt").read_text() == "not ours"
    assert "older cases" not in invoke("golden", new, "-o", golden, "--jobs", 1, rc=1)


def test_an_interruption_prunes_nothing(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*rest: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "make", interrupted)
    new = cases_file(golden.parent / "new", "d")
    invoke("golden", new, "-o", golden, "--jobs", 1, "--prune", rc=1)
    assert sorted(path.name for path in golden.iterdir() if path.is_dir()) == ["a", "b", "c"]


def test_merged_golden_data_have_no_older_cases(golden: Path) -> None:
    parts = [golden.parent / "1", golden.parent / "2"]
    for number, part in enumerate(parts, 1):
        cases = cases_file(golden.parent / "new", "x", "y")
        invoke("golden", cases, "-o", part, "--jobs", 1, "--shard", f"{number}/2")
    text = invoke("merge", *parts, "-o", golden, rc=2)
    assert "has the case a, which no part has; give another --output" in text
    assert list(read_manifest(golden).offsets) == ["a", "b", "c"]


# Outputs and errors


@pytest.mark.parametrize(
    "command",
    [
        ("run", CASE, "--report", "no/r.html"),
        ("run", CASE, "--save", "old/x"),
        ("golden", CASE, "-o", "out", "--report", "no/r.html"),
        ("compare", "golden", "golden", "--report", "no/r.html"),
        ("compare", "golden", "golden", "--csv", "no/t.csv"),
        ("show", CASE, "-o", "no/p.svg"),
        ("compare", "nothing", "golden"),
        ("golden", "--from", "nothing.json", "-o", "out"),
        ("golden", CASE, "-o", "old/x"),
        ("check", "/"),
    ],
)
def test_outputs_are_checked_before_the_work(
    command: tuple[str, ...], golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(golden.parent)
    before = sorted(os.listdir())
    text = invoke(*command, rc=2)
    assert re.match(r"Error: .*(can't be (written|made|read)|does not exist)", text), text
    assert "Usage" not in text
    assert "pass" not in text
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (("compare", "chip", "golden", "--csv", "x", "--report", "x"), "--csv and --report"),
        (("compare", "chip", "golden", "--csv", "x", "--report", "chip/../x"), "--csv and --report"),
        (("compare", "chip", "set.tar", "--report", "set.tar"), "--report and GOLDEN"),
        (("merge", "part", "-o", "x", "--report", "x"), "--output and --report"),
        (("merge", "part", "-o", "x", "--report", "part"), "--report and PARTS"),
        (("golden", "old", "-o", "golden", "--pack", "x.tar", "--report", "x.tar"), "--pack and --report"),
        (("golden", "old", "-o", "golden", "--report", "old"), "--report and SOURCE"),
        (("run", "old", "--report", "old"), "--report and PROBLEMS"),
    ],
)
def test_no_file_is_written_over_another(
    command: tuple[str, ...], arguments: str, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(golden.parent)
    invoke("golden", "old", "-o", "golden", "--pack", "set.tar")
    shutil.copytree("golden/a", "chip/a")
    Path("part").write_text("kept")
    before = {path: path.read_bytes() for path in Path().glob("*") if path.is_file()}
    text = " ".join(invoke(*command, rc=2).split())
    assert f"{arguments} are both {command[-1]}; each needs its own file" in text
    assert {path: path.read_bytes() for path in Path().glob("*") if path.is_file()} == before
    devices = ("--csv", "/dev/null", "--report", "/dev/null")
    invoke("compare", "chip", "golden", "--only", "a", *devices)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("compare chip golden --report chip/a.npy", "the name is that of data"),
        ("compare chip golden --report golden/manifest.jsonl", "the name is that of data"),
        ("compare chip golden --report link.html", "the name is that of data"),
        ("compare chip golden --csv golden/a/grad_input.npy", "the name is that of data"),
        ("compare chip golden --csv golden/a/t.csv", "would lie in the golden data of"),
        ("golden old -o golden --report golden/a/grad_input.bin", "the name is that of data"),
        ("golden --from dump -o out --report dump/dump.json", "the name is that of data"),
        ("merge part -o golden/manifest.jsonl", "the name is that of data"),
        ("run old --save golden/a", "would lie in the golden data of"),
        ("run old --save golden/a/new", "would lie in the golden data of"),
        ("run sub/b.npy --save sub", "PROBLEMS and --save are both sub/b.npy; each needs its own file"),
    ],
)
def test_no_output_takes_the_place_of_data(
    command: str, says: str, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(golden.parent)
    invoke("run", "old", "--save", "chip")
    for folder in ("sub", "dump"):
        Path(folder).mkdir()
    shutil.copy("old", "sub/b.npy")
    Path("dump/dump.json").write_text('{"data": {}, "dump_data_dir": "", "level": "L1"}')
    Path("part").write_text(invoke("compare", "chip", "golden", "--json"))
    Path("link.html").symlink_to("golden/a/grad_input.npy")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert says in " ".join(invoke(*command.split(), rc=2).split())
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
    invoke("compare", "chip", "golden", "--report", "chip/report.html", "--csv", "golden/table.csv")


def test_outputs_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "link.html").symlink_to("old.html")
    for name in ("new.html", "old.html", "link.html", "/dev/null"):
        invoke("run", CASE, "--report", name)
    (tmp_path / "dangling.html").symlink_to("nothing")
    text = invoke("run", CASE, "--report", "dangling.html", rc=2)
    assert "dangling.html: can't be written: the link names a file that does not exist" in text
    invoke("run", CASE, "--save", "deep/er")
    assert (tmp_path / "deep/er/case.npy").exists()


def test_the_failing_condition_comes_first(tmp_path: Path) -> None:
    right = np.linspace(1, 2, 100)
    golden = save(tmp_path / "g.npy", *right)
    actual = save(tmp_path / "a.npy", *right * 1.002)
    text = invoke("compare", actual, golden, rc=1)
    assert (
        "mixed: 0.00% of the cells are within 1.53e-05 + 0.000977·|g| (at least 99% must), 0 of 100" in text
    )
    right[3] *= 1.002
    text = invoke("compare", save(tmp_path / "b.npy", *right), golden, "--standard", "single", rc=1)
    assert "single: largest rel 0.002 (must be below 0.00122), mean rel" in text


def test_verdicts_without_a_finite_cell_have_no_figures(tmp_path: Path) -> None:
    nan = save(tmp_path / "n.npy", np.nan, np.nan)
    text = invoke("compare", nan, nan, "-v")
    assert "cosine        pass: no cell is finite in both, so there are no figures" in text
    assert "msprobe       pass: no cell is finite in both, so there are no figures" in text
    assert "similarity" not in text


# Hints


@pytest.mark.parametrize(
    ("name", "meant"),
    [("avg_pool2d", "avg2d_forward"), ("AvgPool2dBackward", "avg2d"), ("adaptive_avg2", "adaptive_avg2d")],
)
def test_an_unknown_operator_gets_a_hint(name: str, meant: str) -> None:
    assert f"the operator is {name!r} (did you mean {meant}?)" in invoke("check", f"{name}:1x2x5x7:k3", rc=2)
    assert "did you mean" not in invoke("check", "conv2d:1x2x5x7:k3", rc=2)


def test_a_gbk_file_gets_a_hint(tmp_path: Path) -> None:
    (tmp_path / "cases").write_bytes("name,case\n池化,".encode("gbk") + CASE.encode())
    hint = "is not UTF-8, but can be GBK; it must be UTF-8: iconv -f GBK -t UTF-8"
    assert hint in invoke("check", tmp_path / "cases", rc=1)
    (tmp_path / "cases.json").write_bytes('[{"case_name": "池化"}]'.encode("gbk"))
    assert hint in invoke("golden", "--from", tmp_path / "cases.json", "-o", tmp_path / "out", rc=2)
    (tmp_path / "cases").write_bytes(b"\xff\xff," + CASE.encode())
    assert "GBK" not in invoke("check", tmp_path / "cases", rc=1)


def test_bfloat16_that_was_saved_as_integers_gets_a_hint(tmp_path: Path) -> None:
    words = save(tmp_path / "w.npy", 1, 2, dtype=np.uint16)
    hint = "bits of bfloat16 must have NumPy's dtype V2: save x.view('V2')"
    assert hint in invoke("compare", words, words, rc=2)
    assert hint in invoke("compare", words, words, "--dtype", "bf16", rc=2)
    good = tmp_path / "v.npy"
    np.save(good, np.load(words).view("V2"))
    assert "all 2 cells equal" in invoke("compare", good, good)
    wide = save(tmp_path / "i.npy", 1, 2, dtype=np.int32)
    assert "bits of" not in invoke("compare", wide, wide, rc=2)


def test_a_missing_result_names_every_ending(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    text = invoke("compare", tmp_path / "ours", golden, rc=2)
    assert "ours/a/grad_input.npy or" in text
    assert "ours/a.npy, or with the ending .bin or .pt" in text
    (tmp_path / "ours/dump_tensor_data").mkdir()
    text = invoke("compare", tmp_path / "ours", golden, rc=2)
    assert "ours/dump_tensor_data/a.output.0.pt, or with the ending .npy" in text
    assert "grad_input" not in text.partition("it must be in ")[2].splitlines()[0]


@pytest.mark.parametrize(
    ("result", "golden", "says", "also"),
    [
        ([-0.0] * 12, [0.0] * 12, "12 of 12 cells differ in the sign of zero", "12 个元素中有 12 个只有零的符号不同"),
        ([-0.0, 1, 2], [0, 1, 2], "1 of 3 cells differ in the sign of zero", "3 个元素中有 1 个只有零的符号不同"),
        ([-0.0, 1, np.nextafter(np.float32(2), 3)], [0, 1, 2], "2 of 3 cells differ, at most 1 ULP", "最多相差 1 ULP"),
        ([np.nan, 1, 2], [0, 1, 2], "1 of 3 cells differ, at most 0 ULP where both are finite",
         "3 个元素中有 1 个不同，两边都有限的元素最多相差 0 ULP"),
        ([np.nan] * 2, [0, np.inf], "out of place; 2 of 2 cells differ\n", "2 个元素中有 2 个不同\n"),
        ([np.inf], [-np.inf], "1 of 1 cells differ\n", "1 个元素中有 1 个不同\n"),
    ],
)  # fmt: skip
def test_how_cells_differ_is_said_truly(
    result: list[float], golden: list[float], says: str, also: str, tmp_path: Path
) -> None:
    """−0 is no ULP away from +0, and NaN and Inf have no distance at all."""
    files = [save(tmp_path / name, *values) for name, values in (("a.npy", result), ("g.npy", golden))]
    rc = 0 if np.isfinite(result).all() else 1
    assert says in invoke("compare", *files, "-v", rc=rc)
    assert also in invoke("compare", *files, "-v", "--lang", "zh", rc=rc)


# Summaries


def test_check_of_a_file_ends_with_a_summary(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text(f"{CASE}\navg2d:2x3x5x7:k9\nrubbish:3\n")
    assert "1 of 3 accepted, 1 refused, 1 can't be read\n" in pooltide("check", tmp_path / "cases", rc=1)
    *_, last = invoke("check", tmp_path / "cases", "--json", rc=1).splitlines()
    assert json.loads(last) == {"summary": {"accepted": 1, "refused": 1, "unreadable": 1}}
    assert "of 1" not in invoke("check", CASE)
    text = pooltide("check", tmp_path / "cases", "--all-products", rc=1)
    assert "1 of 3 accepted on a product at least, 1 refused, 1 can't be read\n" in text


def test_merge_writes_the_report_of_all(tmp_path: Path) -> None:
    cases = cases_file(tmp_path / "cases", *"abcde")
    invoke("golden", cases, "-o", tmp_path / "golden", "--jobs", 1)
    invoke("run", cases, "--save", tmp_path / "ours")
    wrong = np.load(tmp_path / "ours/c.npy")
    wrong[0, 0, 0, 0] += 1
    np.save(tmp_path / "ours/c.npy", wrong)
    (tmp_path / "ours/e.npy").unlink()
    np.save(tmp_path / "ours/b.npy", np.full_like(wrong, np.nan))
    parts = [tmp_path / "1", tmp_path / "2"]
    for number, part in enumerate(parts, 1):
        command = ("compare", tmp_path / "ours", tmp_path / "golden", "--shard", f"{number}/2", "--json")
        part.write_text(invoke(*command, rc=2 if number == 1 else 1))
    report = tmp_path / "r.html"
    text = invoke("merge", *parts, "-o", tmp_path / "all", "--report", report, rc=2)
    assert "5 cases of 2 parts, 2 pass, 2 fail, 1 could not be compared" in text
    page = report.read_text()
    assert 'Of 5 cases, <span class="pass"><b>2</b> pass</span>' in page
    assert '<section class="case" id="case-c">' in page
    assert f"reproduce: pooltide compare {tmp_path}/ours {tmp_path}/golden --only c -v" in page
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    rows = {row[0]: row for row in data["rows"]}
    assert [row[1] for row in rows.values()] == ["pass", "fail", "fail", "pass", "error"]
    invoke("compare", tmp_path / "ours", tmp_path / "golden", "--report", report, rc=2)
    data = json.loads(report.read_text().partition('id="data">')[2].partition("</script>")[0])
    assert rows == {row[0]: row for row in data["rows"]}  # as one comparison has them
    text = invoke("merge", tmp_path / "golden", "-o", tmp_path / "x", "--report", report, rc=2)
    assert "--report is of results" in text


# The report


@pytest.mark.parametrize("axes", [("row", "column"), ("h", "w")])
@pytest.mark.parametrize("shape", [(1, 5, 7), (1, 70000, 3), (1, 3, 1)])
def test_no_label_of_a_heat_map_is_clipped(axes: tuple[str, str], shape: tuple[int, int, int]) -> None:
    picture = _heat_map(ErrorMap(np.ones(shape), (), None, axes))
    left, _, width, _ = map(float, re.findall(r'viewBox="([^"]+)"', picture)[0].split())
    for at, anchor, text in re.findall(r'<text x="([^"]+)" y="[^"]+" text-anchor="(\w+)">([^<]+)<', picture):
        start = float(at) - (6.6 * len(text) if anchor == "end" else 0)
        assert left <= start, text
        assert start + 6.6 * len(text) <= left + width, text


# Results and shards that do not belong together


@pytest.mark.parametrize("ending", [".bin", ".pt"])
@pytest.mark.parametrize("place", ["a", "a/grad_input"])
def test_two_files_with_different_results_are_an_error(tmp_path: Path, ending: str, place: str) -> None:
    invoke("golden", cases_file(tmp_path / "cases", "a"), "-o", tmp_path / "golden")
    golden, result = tmp_path / "golden" / "a" / "grad_input", tmp_path / "chip" / place
    result.parent.mkdir(parents=True)
    Path(f"{result}.npy").write_bytes(Path(f"{golden}.npy").read_bytes())
    data = Path(f"{golden}.bin").read_bytes()
    Path(f"{result}{ending}").write_bytes(bytes(len(data)))
    text = invoke("compare", tmp_path / "chip", tmp_path / "golden", rc=2)
    assert "both are results for a; it must have one" in text
    if ending == ".bin":
        Path(f"{result}.bin").write_bytes(data)
        assert "1 of 1 pass" in invoke("compare", tmp_path / "chip", tmp_path / "golden")


def test_shards_of_different_lists_are_not_merged(tmp_path: Path) -> None:
    one, other = cases_file(tmp_path / "one", "a", "b"), cases_file(tmp_path / "other", "a", "b", "c", "d")
    for path, shard in ((one, "1/2"), (other, "2/2")):
        invoke("golden", path, "-o", tmp_path / shard[0], "--shard", shard)
    text = invoke("merge", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "all", rc=2)
    assert "were made from different lists of cases; make all shards from one list" in text


def test_merge_says_that_shards_left_cases_out(tmp_path: Path) -> None:
    cases = tmp_path / "cases"
    cases.write_text(f"name,case\na,{CASE}\nb,avg2d:1x1x6x6:k99\n")
    for number, status in ((1, 0), (2, 1)):
        invoke("golden", cases, "-o", tmp_path / str(number), "--shard", f"{number}/2", rc=status)
    text = invoke("merge", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "all", rc=1)
    assert "1 cases of 2 parts; the parts left out 1, which could not be made" in text
    invoke("golden", cases, "-o", tmp_path / "one", rc=1)
    assert (tmp_path / "all/manifest.jsonl").read_bytes() == (tmp_path / "one/manifest.jsonl").read_bytes()


# What must not pass


def test_cases_without_golden_data_are_no_pass(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text(f"name,case\na,{CASE}\nb,avg2d:1x1x6x6:k99\n")
    golden, chip = tmp_path / "golden", tmp_path / "chip"
    invoke("golden", tmp_path / "cases", "-o", golden, "--pack", tmp_path / "set.tar", rc=1)
    shutil.copytree(golden / "a", chip / "a")
    for place in (golden, tmp_path / "set.tar"):
        text = invoke("compare", chip, place, "--report", tmp_path / "report.html", rc=1)
        assert "1 of 1 pass, 1 without golden data, which could not be made; " in text
        assert "1 more cases of the list could not be made" in (tmp_path / "report.html").read_text()
        assert "1 个没有标杆数据" in invoke("compare", chip, place, "--lang", "zh", rc=1)
    assert "1 of 1 pass; " in invoke("compare", chip, golden, "--only", "a")
    (tmp_path / "part").write_text(invoke("compare", chip, golden, "--json", rc=1))
    text = invoke("merge", tmp_path / "part", "-o", tmp_path / "all", "--report", tmp_path / "all.html", rc=1)
    assert "1 pass, 0 fail, 0 could not be compared; the parts left out 1" in text
    assert "1 more cases of the list could not be made" in (tmp_path / "all.html").read_text()
    (tmp_path / "cases").write_text(f"name,case\na,{CASE}\n")  # once the list is right, so is the verdict
    invoke("golden", tmp_path / "cases", "-o", golden)
    assert "1 of 1 pass; " in invoke("compare", chip, golden)


def test_left_out_cases_of_golden_shards_count_in_merged_results(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text(f"name,case\na,{CASE}\nb,avg2d:1x1x6x6:k99\nc,{CASE}\nd,{CASE}\n")
    parts = []
    for number, status in ((1, 0), (2, 1)):
        golden, chip, part = (tmp_path / f"{kind}{number}" for kind in ("golden", "chip", "part"))
        invoke("golden", tmp_path / "cases", "-o", golden, "--shard", f"{number}/2", rc=status)
        shutil.copytree(golden, chip, ignore=shutil.ignore_patterns("manifest.jsonl"))
        text = invoke("compare", chip, golden, rc=status)
        assert f"{golden} is shard {number}/2 of a set; the other shards have the other cases" in text
        part.write_text(invoke("compare", chip, golden, "--json", rc=status))
        parts.append(part)
    assert "3 pass" in invoke("merge", *parts, "-o", tmp_path / "all", rc=1)


def test_a_result_is_not_judged_by_itself(golden: Path, tmp_path: Path) -> None:
    chip = results_of(golden, tmp_path / "chip")
    (tmp_path / "link").symlink_to(golden)
    for place in (golden, tmp_path / "link"):
        text = invoke("compare", place, golden, rc=2)
        assert f"ACTUAL and GOLDEN are both {place}; a result must not be judged by itself" in text
    text = invoke("compare", chip, golden, "--standard", "two", "--third", chip, rc=2)
    assert f"ACTUAL and --third are both {chip}; a result must not be judged by itself" in text
    file, other = (place / "a/grad_input.npy" for place in (chip, golden))
    text = invoke("compare", file, other, "--standard", "two", "--third", file, rc=2)
    assert "a result must not be judged by itself" in text


def test_names_that_look_the_same_are_refused(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    found = list(lines([b"name,case", f"{composed},{CASE}".encode(), f"{decomposed},{CASE}".encode()]))
    assert [line.error for line in found] == [
        "",
        f"name is '{decomposed}', which line 2 has; it must be unique",
    ]
    cases = [
        {"case_name": name, "op": "AvgPool2dBackward", "input_desc": []} for name in (composed, decomposed)
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    text = invoke("golden", "--from", tmp_path / "cases.json", "-o", tmp_path / "golden", rc=1)
    assert "which case 1 has; it must be unique" in text


def test_a_verdict_that_zeros_would_pass_says_so(tmp_path: Path) -> None:
    """The gradient of a large mean is smaller than the absolute tolerance of float16."""
    cases = "name,case\nmean,adaptive_avg2d:1x2x56x56:o1:f16\nstem,avg2d:1x2x9x9:k3:f16\n"
    golden, chip = golden_and_chip(tmp_path, cases)
    text = invoke("compare", chip, golden)
    assert re.search("pass  mean: .*; zeros would pass, too\n", text)
    assert re.search("pass  stem: .*cells equal\n", text)
    assert "2 of 2 pass (1 of them would pass with zeros, too); the standard is mixed" in text
    assert "（其中 1 个用例，全零的结果也会通过）" in invoke("compare", chip, golden, "--lang", "zh")
    *records, _ = map(json.loads, invoke("compare", chip, golden, "--json").splitlines())
    assert [record["zeros_pass"] for record in records] == [True, False]
    np.save(chip / "mean.npy", np.zeros((1, 2, 56, 56), np.float16))
    assert "zeros would pass, too" in invoke("compare", chip, golden)  # the standard says so: a pass
    assert "would pass" not in invoke("compare", chip, golden, "--standard", "cosine", rc=1)


def test_an_older_result_of_a_case_that_fails_now_is_named(tmp_path: Path) -> None:
    cases = cases_file(tmp_path / "cases", "a", case="max2d_forward:1x1x9x9:k3:i64")
    invoke("run", cases, "--save", tmp_path / "s")
    text = invoke("run", cases, "--save", tmp_path / "s", "--product", "atlas-a2", rc=2)
    assert f"{tmp_path / 's' / 'a'}.npy is an older result, and stays" in text


def test_pruned_cases_with_other_files_stay_and_are_named(tmp_path: Path) -> None:
    invoke("golden", cases_file(tmp_path / "both", "a", "b"), "-o", tmp_path / "out")
    (tmp_path / "out" / "b" / "mine.txt").write_text("mine")
    text = invoke("golden", cases_file(tmp_path / "one", "a"), "-o", tmp_path / "out", "--prune")
    assert f"{tmp_path / 'out' / 'b'} stays, because it has files that pooltide golden did not write" in text
    assert (tmp_path / "out" / "b" / "mine.txt").read_text() == "mine"


# Each case has its own line


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_unpools_of_no_plane_are_cases_as_others(axes: int, tmp_path: Path) -> None:
    sizes, out = "x2" * axes, "x".join("4" * axes)
    words = [
        f"max_unpool{axes}d{kind}:{batch}{sizes}:o{out}:k2"
        for kind in ("_forward", "")
        for batch in ("1x0", "0x1")
    ]
    (tmp_path / "cases").write_text("\n".join([*words, CASE]))
    text = invoke("run", tmp_path / "cases", "--save", tmp_path / "chip")
    assert "5 of 5 pass" in text
    invoke("golden", tmp_path / "cases", "-o", tmp_path / "golden", "--jobs", 1)
    assert "5 of 5 pass" in invoke("compare", tmp_path / "chip", tmp_path / "golden")


def test_a_defect_in_one_case_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = oracle.run

    def broken(problem: Any, *rest: Any) -> Any:
        if problem.batch == (1, 1):
            raise IndexError("out of bounds")
        return reference(problem, *rest)

    monkeypatch.setattr(oracle, "run", broken)
    (tmp_path / "cases").write_text(f"name,case\na,avg2d:1x1x3x3:k2\nb,{CASE}\n")
    says = "line 2 (a): pooltide has a defect here, please report it: IndexError: out of bounds, in line"
    text = invoke("run", tmp_path / "cases", "--save", tmp_path / "chip", rc=2)
    assert says in text
    assert "1 of 2 pass, 1 could not be compared" in text
    text = invoke("golden", tmp_path / "cases", "-o", tmp_path / "golden", "--jobs", 1, rc=1)
    assert says in text
    assert "1 of 2 cases, 1 bad" in text


def test_indices_of_a_case_without_indices_are_named(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text("name,case\na,max1d_forward:1x1x5:k2\nb,max1d_forward:1x1x5:k2:i64\n")
    golden, chip = tmp_path / "golden", tmp_path / "chip"
    invoke("golden", tmp_path / "cases", "-o", golden, "--jobs", 1)
    invoke("run", tmp_path / "cases", "--save", chip)
    shutil.copy(chip / "b.indices.npy", chip / "a.indices.npy")
    text = invoke("compare", chip, golden)
    assert [line.split(":")[0] for line in text.splitlines()[2:-1]] == [f"extra {chip}/a.indices.npy"]


def test_messages_say_what_a_file_must_be(tmp_path: Path) -> None:
    wide = save(tmp_path / "wide.npy", 1, 2, dtype=np.float64)
    text = invoke("compare", wide, save(tmp_path / "g.npy", 1, 2), rc=2)
    assert f"the file has dtype FLOAT32; it must be FLOAT64, as {wide}\n" in text
    for name, order in (("c", "C"), ("f", "F")):
        np.save(tmp_path / f"{name}.npy", np.asarray(np.ones((2, 3), np.float32), order=order))
    text = invoke("compare", tmp_path / "c.npy", tmp_path / "f.npy", rc=2)
    assert "save it with numpy.asarray(x, order='F')" in text


def test_a_changed_record_of_a_pt_file_is_an_error(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data/0", b"payload")
    _check_archive(tmp_path / "a.pt")
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes().replace(b"payload", b"paylaod"))
    with pytest.raises(SavedError, match="the record a/data/0 of the archive was changed"):
        _check_archive(tmp_path / "a.pt")
