"""Large campaigns: shards that merge to the bytes of one run, progress, a full disk, a million cases."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent import futures
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from commandline import PROGRAM, invoke, pooltide, results_of
from paths import DOCS
from pooltide import __version__
from pooltide.acceptance import golden as making
from pooltide.acceptance import summaries, workers
from pooltide.acceptance.golden import Task
from pooltide.acceptance.manifest import Manifest, begin, finish_manifest
from pooltide.acceptance.manifest_entry import expected
from pooltide.acceptance.shard import Shard, read_shard
from pooltide.cli import output
from shares import fast_first

CASES = "name,case\n" + "".join(f"c{i},avg2d:2x3x{5 + i}x7:k3:s{1 + i % 2}:f16:seed{i}\n" for i in range(11))


SUMMARY = json.dumps(
    {"summary": {"standard": "mixed", "pass": 1, "warning": 0, "fail": 0, "error": 0, "exit_status": 0, "extra": [], "level": None, "pooltide": "0", "label": None, "shard": None, "golden": None}}
)  # fmt: skip
CASE = json.dumps(
    {
        "line": 1,
        "name": "a",
        "case": "",
        "misplaced": 0,
        "nan": 0,
        "inf": 0,
        "golden_nan": 0,
        "golden_inf": 0,
        "differing": 0,
        "MERE": 0.0,
        "MARE": 0.0,
        "RMSE": 0.0,
        "cosine": None,
        "max ULP": 0,
        "ulp_histogram": {},
        "verdicts": {"mixed": {"pass": True, "status": "pass", "text": ""}},
    }
)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`all` was made by one run, `1` to `3` are its shards; `chip` has the right results."""
    directory = tmp_path_factory.mktemp("sets")
    (directory / "cases").write_text(CASES)
    invoke("golden", directory / "cases", "-o", directory / "all", "--jobs", 1)
    results_of(directory / "all", directory / "chip")
    for number in (1, 2, 3):
        invoke(
            "golden",
            directory / "cases",
            "-o",
            directory / str(number),
            "--shard",
            f"{number}/3",
            "--jobs",
            1,
        )
    return directory


def flat(text: str) -> str:
    return " ".join(text.split())


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_shards_merge_to_the_bytes_of_one_run(sets: Path, tmp_path: Path) -> None:
    parts = [sets / str(number) for number in (3, 1, 2)]
    assert [len(list(part.glob("c*"))) for part in parts] == [3, 4, 4]
    text = invoke("merge", *parts, "-o", tmp_path / "merged")
    assert text == f"{tmp_path}/merged/manifest.jsonl: 11 cases of 3 parts\n"
    assert contents(tmp_path / "merged") == contents(sets / "all")
    assert "11 of 11 pass" in invoke("compare", sets / "chip", tmp_path / "merged")
    again = json.loads(invoke("merge", *parts, "-o", tmp_path / "merged", "--json"))
    assert again == {"output": f"{tmp_path}/merged/manifest.jsonl", "cases": 11, "parts": 3, "left_out": 0}
    assert contents(tmp_path / "merged") == contents(sets / "all")


def test_a_shard_can_be_compared_alone(sets: Path) -> None:
    assert "4 of 4 pass" in invoke("compare", sets / "chip", sets / "1")
    assert "4 of 4 pass" in invoke("compare", sets / "chip", sets / "all", "--shard", "1/3")


def test_results_merge_to_what_one_run_prints(sets: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(sets / "all", results, ignore=shutil.ignore_patterns("*.bin", "manifest.jsonl"))
    np.save(results / "c4/grad_input.npy", -np.load(results / "c4/grad_input.npy"))
    (results / "extra.txt").write_text("")
    for number in (1, 2, 3):
        rc = 1 if number == 2 else 0
        text = invoke("compare", results, sets / "all", "--json", "--shard", f"{number}/3", rc=rc)
        (tmp_path / f"{number}.jsonl").write_text(text)
    one = invoke("compare", results, sets / "all", "--json", rc=1)
    parts = [tmp_path / f"{number}.jsonl" for number in (2, 3, 1)]
    text = invoke("merge", *parts, "-o", tmp_path / "all.jsonl", rc=1)
    assert "11 cases of 3 parts, 10 pass, 1 fail, 0 could not be compared" in text
    assert (tmp_path / "all.jsonl").read_text() == one
    assert json.loads(one.splitlines()[-1])["summary"]["fail"] == 1


def test_results_of_shards_of_golden_data_merge(sets: Path, tmp_path: Path) -> None:
    parts = [tmp_path / number for number in "123"]
    for part in parts:
        part.write_text(invoke("compare", sets / "chip", sets / part.name, "--json"))
    assert "11 cases of 3 parts, 11 pass" in invoke("merge", *parts, "-o", tmp_path / "out")
    text = " ".join(invoke("merge", *parts[:2], "-o", tmp_path / "out", rc=2).split())
    assert "shard 3/3 is missing; give all 3" in text


def test_no_failure_vanishes_when_results_are_merged(sets: Path, tmp_path: Path) -> None:
    """A shard that is missing, twice, of other golden data, or without one of its lines."""
    results, other = tmp_path / "results", tmp_path / "other"
    shutil.copytree(sets / "all", results, ignore=shutil.ignore_patterns("*.bin", "manifest.jsonl"))
    np.save(results / "c4/grad_input.npy", -np.load(results / "c4/grad_input.npy"))  # in shard 2
    one, two, three = parts = [tmp_path / number for number in "123"]
    for part in parts:
        shard = f"--shard={part.name}/3"
        part.write_text(invoke("compare", results, sets / "all", "--json", shard, rc=int(part == two)))

    def says(text: str, *parts: Path) -> None:
        assert text in " ".join(invoke("merge", *parts, "-o", tmp_path / "out", rc=2).split())
        assert not (tmp_path / "out").exists()

    says("shard 2/3 is missing; give all 3", one, three)
    says(f"{one} is shard 1/3, as {one} is; give each once", one, one, three)
    (tmp_path / "cases").write_text(CASES.replace("seed3", "seed99"))
    invoke("golden", tmp_path / "cases", "-o", other, "--jobs", 1)
    right = results_of(other, tmp_path / "right")
    (tmp_path / "foreign").write_text(invoke("compare", right, other, "--json", "--shard", "2/3"))
    says("the golden data are", one, tmp_path / "foreign", three)
    (tmp_path / "whole").write_text(invoke("compare", right, other, "--json"))
    says("whole is shard 1/1; it must be one of 3", one, tmp_path / "whole")
    *lines, last = two.read_text().splitlines(keepends=True)
    others = "".join(line for line in lines if '"name": "c4"' not in line)
    (tmp_path / "cut").write_text(others + last)
    says("fail is 1; the lines have 0", one, tmp_path / "cut", three)
    (tmp_path / "cut").write_text(others + last.replace('"fail": 1', '"fail": 0'))
    says("cut: the file has 3 cases; it must have all 4 of its share", one, tmp_path / "cut", three)
    (tmp_path / "only").write_text(invoke("compare", right, other, "--json", "--only", "c1"))
    says("only: the file has 1 cases; it must have all 11 of its share", tmp_path / "only")
    assert "is one of the parts" in " ".join(invoke("merge", *parts, "-o", one, rc=2).split())
    assert "1 fail" in invoke("merge", *parts, "-o", tmp_path / "out", rc=1)


def test_parts_that_do_not_fit_together(sets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def says(text: str, *parts: Path) -> None:
        assert text in " ".join(invoke("merge", *parts, "-o", out, rc=2).split())

    one, two = sets / "1", sets / "2"
    says("shard 3/3 is missing; give all 3", one, two)
    says(f"{one} is shard 1/3, as {one} is", one, one)
    says("one is a shard, the other is not; all must be alike", one, sets / "all")
    says("PARTS are files and directories", one, sets / "cases")
    shutil.copytree(sets / "all", tmp_path / "copy")
    says("has the case c0, as", sets / "all", tmp_path / "copy")
    manifest = tmp_path / "copy/manifest.jsonl"
    manifest.write_text(manifest.read_text().replace('"pooltide": "', '"pooltide": "9', 1))
    says("copy: pooltide is 9", sets / "all", tmp_path / "copy")
    manifest.write_text(manifest.read_text().replace('"complete": true', '"complete": false', 1))
    says("manifest.jsonl is not complete", tmp_path / "copy")
    manifest.unlink()
    says("manifest.jsonl: can't be read: No such file", tmp_path / "copy")
    shutil.copytree(sets / "all", tmp_path / "cut")
    (tmp_path / "cut/c3/grad_input.bin").unlink()
    says("cut/c3/grad_input.bin: the file is missing", tmp_path / "cut")
    invoke("golden", sets / "cases", "-o", tmp_path / "of5", "--shard", "1/5", "--jobs", 1)
    says("is shard 1/5; it must be one of 3", one, tmp_path / "of5")
    (tmp_path / "one.tar").touch()
    says("one.tar is a pack; it must be the directory that it was made from", tmp_path / "one.tar")


def test_merge_takes_only_the_files_that_the_manifests_have(sets: Path, tmp_path: Path) -> None:
    """A part of another size, one with a changed byte, and a file of the merged set that was changed later."""
    parts = [shutil.copytree(sets / number, tmp_path / number) for number in "123"]
    out, file = tmp_path / "out", parts[1] / "c4/grad_output.bin"
    right = file.read_bytes()
    for wrong in (right[:-2], bytes([right[0] ^ 1]) + right[1:]):
        file.write_bytes(wrong)
        text = flat(invoke("merge", *parts, "-o", out, rc=2))
        assert f"{file}: the file was changed after it was made; its sha256 is not the manifest's" in text
        assert "is not complete" in flat(invoke("compare", sets / "chip", out, rc=2))
    file.write_bytes(right)
    invoke("merge", *parts, "-o", out)
    merged = out / "c3/grad_input.npy"
    merged.unlink()
    merged.write_bytes(b"other")
    invoke("merge", *parts, "-o", out)
    assert contents(out) == contents(sets / "all")


def test_a_shard_without_a_case_is_no_pass_but_a_part_of_the_whole(sets: Path, tmp_path: Path) -> None:
    """An array of tasks may be longer than the list, so the status of an empty shard is 0."""
    for number in range(1, 13):
        folder, shard = tmp_path / f"g{number}", f"{number}/12"
        made = invoke("golden", sets / "cases", "-o", folder, "--shard", shard, "--jobs", 1)
        assert ("the shard 12/12 of the list has no case" in made) == (number == 12)
        file = tmp_path / f"{number}.jsonl"
        file.write_text(invoke("compare", sets / "chip", sets / "all", "--shard", shard, "--json"))
    for of in ((sets / "all", "--shard", "12/12"), (tmp_path / "g12",)):
        text = invoke("compare", sets / "chip", *of)
        assert "no case was compared, because the shard has none; the standard is mixed" in text
        assert "pass" not in text
        assert "没有比较任何用例：该分片没有用例；标准" in invoke(
            "compare", sets / "chip", *of, "--lang", "zh"
        )
    files = [tmp_path / f"{number}.jsonl" for number in range(1, 13)]
    assert "11 cases of 12 parts, 11 pass" in invoke("merge", *files, "-o", tmp_path / "all.jsonl")
    parts = [tmp_path / f"g{number}" for number in range(1, 13)]
    assert "11 cases of 12 parts" in invoke("merge", *parts, "-o", tmp_path / "merged")
    assert contents(tmp_path / "merged") == contents(sets / "all")


def test_a_refused_merge_leaves_no_folder(sets: Path, tmp_path: Path) -> None:
    assert "shard 3/3 is missing" in invoke("merge", sets / "1", sets / "2", "-o", tmp_path / "out", rc=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no summary at its end"),
        (f"{CASE}\n", "has no summary at its end"),
        ('{"line": 1, "name": "a"}\n', "line 1: the line is not one that compare --json prints"),
        (f"{CASE}\n{SUMMARY}\n", "two files were compared; it must be directories"),
        ("rubbish\n", "line 1: the line is not one that compare --json prints"),
        (f"{CASE}\n".replace("true", "false"), "line 1: the line is not one that compare --json prints"),
        ('{"summary": {}}\n', "line 1: the line is not one that compare --json prints"),
        (f"{SUMMARY}\n{CASE}\n", "line 2: there is a line after the summary"),
    ],
)
def test_files_that_are_no_results(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content)
    assert says in " ".join(invoke("merge", tmp_path / "a", "-o", tmp_path / "out", rc=2).split())
    assert not (tmp_path / "out").exists()


def test_results_that_were_judged_otherwise_do_not_merge(
    sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = f"--third={sets / 'all'}"

    def says(text: str, *judged: tuple[str, ...]) -> None:
        for number, options in enumerate(judged, 1):
            shard = f"--shard={number}/2"
            found = invoke("compare", sets / "chip", sets / "all", "--json", shard, *options)
            (tmp_path / str(number)).write_text(found)
        said = invoke("merge", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "out", rc=2 if text else 0)
        assert text in " ".join(said.split())
        assert (tmp_path / "out").exists() == (text == "")

    two = ("--standard=two", third)
    says("the standards are bits and mixed; they must be one", ("--standard=bits",), ("--standard=mixed",))
    says("the levels are L0 and L2; they must be one", (*two, "--level=L0"), (*two, "--level=L2"))
    says("the levels are none and L1; they must be one", (), (third,))
    with monkeypatch.context() as older:
        older.setattr(summaries, "__version__", "0.0.9")
        says("", (), ())
        (tmp_path / "out").unlink()
        old = (tmp_path / "1").read_text()
    says("", ("--level=L0",), ("--level=L2",))  # no third result, so no level was used
    (tmp_path / "1").write_text(old)
    said = invoke("merge", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "out", rc=2)
    assert f"the versions of pooltide are 0.0.9 and {__version__}; they must be one" in " ".join(said.split())


def test_kept_cases_get_their_new_lines(sets: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases"
    first, *others = CASES.splitlines(keepends=True)
    for lines in ([first, *others], [first, *others[::-1]]):
        cases.write_text("".join(lines))
        invoke("golden", cases, "-o", tmp_path / "out", "--jobs", 1)
    invoke("golden", cases, "-o", tmp_path / "new", "--jobs", 1)
    assert contents(tmp_path / "out") == contents(tmp_path / "new")


def test_a_directory_keeps_its_shard(sets: Path) -> None:
    text = invoke("golden", sets / "cases", "-o", sets / "1", "--shard", "2/3", rc=2)
    assert "has shard 1/3; give the same --shard" in " ".join(text.split())
    assert "has all cases; give the same" in " ".join(
        invoke("golden", sets / "cases", "-o", sets / "all", "--shard", "2/3", rc=2).split()
    )


@pytest.mark.parametrize("key", ["pooltide", "numpy", "byteorder"])
def test_one_directory_has_golden_data_of_one_version(key: str, sets: Path, tmp_path: Path) -> None:
    shutil.copytree(sets / "all", tmp_path / "old")
    head, *lines = (tmp_path / "old/manifest.jsonl").read_text().splitlines(keepends=True)
    old = json.loads(head) | {key: "other"}
    (tmp_path / "old/manifest.jsonl").write_text(json.dumps(old) + "\n" + "".join(lines))
    text = " ".join(invoke("golden", sets / "cases", "-o", tmp_path / "old", rc=2).split())
    assert f"was made with {key} other, and this is" in text
    assert "11 of 11 pass" in invoke("compare", sets / "all", tmp_path / "old")  # they can still be compared


@pytest.mark.parametrize("text", ["", "3", "0/3", "4/3", "1/0", "a/b", "1/3/5", "-1/3", "1/9999999"])
def test_a_shard_is_two_numbers(text: str, sets: Path, tmp_path: Path) -> None:
    said = invoke("golden", sets / "cases", "-o", tmp_path / "out", "--shard", text, rc=2)
    assert "it must be two numbers such as 3/16" in " ".join(said.split())
    assert not (tmp_path / "out").exists()


def test_every_case_is_in_one_shard() -> None:
    for count in (1, 2, 7):
        shards = [read_shard(f"{number}/{count}") for number in range(1, count + 1)]
        assert all(sum(shard.has(place) for shard in shards) == 1 for place in range(50))
    assert str(Shard(3, 16)) == "3/16"


def test_golden_says_its_cases_as_json(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text("avg2d:1x2x5x7:k3\nrubbish:1\n")
    *cases, last = map(
        json.loads, invoke("golden", tmp_path / "cases", "-o", tmp_path / "out", "--json", rc=1).splitlines()
    )
    assert [("error" in case, case["name"]) for case in cases] == [
        (False, "case-000001"),
        (True, "case-000002"),
    ]
    assert last["summary"] == {
        "cases": 2, "made": 1, "bad": 1, "skipped": 0, "older": [], "pruned": False, "stopped": "",
    }  # fmt: skip


def test_a_log_shows_progress_with_an_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_SECONDS", 0.0)
    (tmp_path / "cases").write_text(CASES)
    text = invoke("golden", tmp_path / "cases", "-o", tmp_path / "out", "--jobs", 1)
    assert "golden: 1 of 11 cases, about a minute left" in text
    chip = results_of(tmp_path / "out", tmp_path / "chip")
    assert "compare: 5 of 11 cases, about a minute left" in invoke("compare", chip, tmp_path / "out")


@pytest.mark.parametrize(
    ("done", "total", "seconds", "says"),
    [
        (10, 100, 1.0, "of 100 cases, about a minute left"),
        (10, 100, 60.0, "of 100 cases, about 9 minutes left"),
        (1, 1001, 36.0, "of 1001 cases, about 10.0 hours left"),
        (10, None, 1.0, "cases"),
        (10, 9, 1.0, "cases"),
    ],
)
def test_the_estimate(done: int, total: int | None, seconds: float, says: str) -> None:
    assert output.estimate(done, total, seconds) == says


@pytest.mark.parametrize("jobs", fast_first([1, 2]))
def test_a_full_disk_stops_at_once(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After three cases no file can be written; forked workers inherit the fault."""
    write, tried = making._write, 0

    def full(directory: Path, entry: dict[str, object], arrays: object) -> None:
        nonlocal tried
        tried += 1
        if tried > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(directory, entry, arrays)  # type: ignore[arg-type]

    monkeypatch.setattr(making, "_write", full)
    (tmp_path / "cases").write_text("\n".join(f"avg2d:1x2x5x7:k3:seed{i}" for i in range(300)))
    text = invoke("golden", tmp_path / "cases", "-o", tmp_path / "out", "--jobs", jobs, rc=2)
    assert text.count("No space left on device") == 1
    assert (
        "out: can't be written: No space left on device; what is finished was kept: start it again to go on"
        in text
    )
    assert tried <= 4
    monkeypatch.undo()
    kept = {path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("grad_input.npy")}
    assert len(kept) >= 3
    assert "300 of 300 cases, 0 bad" in invoke(
        "golden", tmp_path / "cases", "-o", tmp_path / "out", "--jobs", 1
    )
    assert kept <= {path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("grad_input.npy")}


def test_finished_cases_come_before_the_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's next message, all of it refused, may be read before its finished one."""

    def last_first(
        waiting: set[futures.Future[list[making.Made]]], return_when: str
    ) -> tuple[object, object]:
        done, _ = futures.wait(waiting)
        return sorted(done, key=lambda future: not future.result()[0].full), set()

    write = making._write

    def full(directory: Path, entry: dict[str, object], arrays: object) -> None:
        if entry["name"] > "c02":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(directory, entry, arrays)  # type: ignore[arg-type]

    monkeypatch.setattr(making, "_write", full)
    monkeypatch.setattr(workers, "wait", last_first)
    (tmp_path / ".partial").mkdir()
    tasks = ((Task(i, f"c{i:02}", "avg2d:1x1x3x3:k3:f32"), None) for i in range(8))
    outcomes = [(made.name, made.full) for made in workers.make_all(tasks, tmp_path, 2, 8)]
    assert sorted(outcomes[:3]) == [("c00", False), ("c01", False), ("c02", False)]
    assert all(full for _, full in outcomes[3:])


def test_tasks_are_drawn_while_others_are_done(tmp_path: Path) -> None:
    """A million tasks never wait at once."""
    drawn = 0

    def work() -> object:
        nonlocal drawn
        while True:
            drawn += 1
            yield Task(drawn, f"c{drawn}", "avg2d:1x1x3x3:k3:f32"), None

    (tmp_path / ".partial").mkdir()
    found = list(islice(workers.make_all(work(), tmp_path, 2, 1_000_000), 100))  # type: ignore[arg-type]
    assert len(found) == 100
    assert drawn < 500


def many(directory: Path, count: int) -> None:
    """A manifest as golden would write it; the files of one case only are there."""
    entry = expected("NAME", 7, "avg2d:1x2x5x7:k3:f32:seed9", False)
    entry |= {"line": 0, "case": "CASE", "seed": 0}
    for about in entry["files"].values():
        about["sha256"] = {"npy": "0" * 64, "bin": "1" * 64}
    parts = (
        json.dumps(entry)
        .replace('"line": 0', '"line": %d')
        .replace("NAME", "c%07d")
        .replace("CASE", "avg2d:1x2x5x7:k3:f32:seed%d")
    )
    template = parts.replace('"seed": 0', '"seed": %d') + "\n"
    found = Manifest(directory / "manifest.jsonl")
    begin(found, None)
    with found.path.open("ab") as file:
        at = file.tell()
        for i in range(1, count + 1):
            line = (template % (i, i, i, i)).encode()
            found.offsets[f"c{i:07d}"] = at
            at += file.write(line)
    finish_manifest(found, complete=True)


@pytest.mark.slow
def test_a_manifest_of_many_cases(tmp_path: Path) -> None:
    """200,000 are checked in a fifth of a minute and of 500 MB, and one line that was changed is noticed."""
    golden = tmp_path / "golden"
    golden.mkdir()
    (chip := tmp_path / "chip").mkdir()
    many(golden, 200_000)
    script = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(done.stdout + done.stderr)\n"
        "print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    command = [sys.executable, "-c", script, PROGRAM, "compare", chip, golden, "--only", "c0100000"]

    def run() -> tuple[str, int]:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        text, last = done.stdout.rsplit("\n", 2)[:2]
        rc, seconds, peak = last.split()
        assert float(seconds) < 12
        assert int(peak) < 50_000 + 90_000  # KiB: of the program alone, and a fifth of the rest
        return text, int(rc)

    text, rc = run()
    assert "error c0100000" in text
    assert "the file is missing; manifest.jsonl has it" in text
    assert rc == 2
    with (golden / "manifest.jsonl").open("r+b") as file:
        file.seek(-80, 2)
        file.write(b"2")
    text, rc = run()
    assert "the lines were changed after they were made" in text
    assert rc == 2


def test_the_digest_is_of_the_lines(sets: Path) -> None:
    head, *lines = (sets / "all/manifest.jsonl").read_bytes().splitlines(keepends=True)
    assert json.loads(head)["sha256"] == hashlib.sha256(b"".join(lines)).hexdigest()


def test_help() -> None:
    assert "Join PARTS" in pooltide("merge", "--help")


@pytest.mark.slow
def test_the_commands_of_the_docs_for_clusters(sets: Path, tmp_path: Path) -> None:
    """Slurm by its variables, GNU parallel where it is installed, and pytest-xdist."""
    page = (DOCS / "acceptance.md").read_text("utf-8").partition("## Many cases")[2]
    blocks = re.findall(r"^```text\n(.*?)^```$", page, re.M | re.S)
    golden, compare, merge, parallel, chip = blocks
    environment = os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}

    def shell(text: str, **variables: str) -> None:
        subprocess.run(["bash", "-euc", text], cwd=tmp_path, env=environment | variables, check=True)

    shutil.copy(sets / "cases", tmp_path / "cases.csv")
    invoke("run", tmp_path / "cases.csv", "--save", tmp_path / "chip")
    slurm = [{"SLURM_ARRAY_TASK_ID": str(i), "SLURM_ARRAY_TASK_COUNT": "3"} for i in (1, 2, 3)]
    for task in slurm:
        shell(golden, **task)
    shell("pooltide merge golden.*/ -o golden")
    assert contents(tmp_path / "golden") == contents(sets / "all")
    for task in slurm:
        shell(compare, **task)
    shell(merge)
    summary = json.loads((tmp_path / "all.jsonl").read_text().splitlines()[-1])["summary"]
    assert summary["pass"] == 11
    (tmp_path / "test_chip.py").write_text(chip)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "4", "-p", "no:cacheprovider", "test_chip.py"]
    text = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert "11 passed" in text or "16 passed" in text, text
    if shutil.which("parallel"):
        shell("rm -r golden golden.*/ part.*.jsonl all.jsonl report.html")
        shell(parallel)
        assert contents(tmp_path / "golden") == contents(sets / "all")
        assert (tmp_path / "report.html").exists()
