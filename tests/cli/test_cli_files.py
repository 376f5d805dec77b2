"""What the commands do to files: they replace plain files whole, and harm nothing that is not theirs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commandline import invoke, pooltide, results_of
from pooltide.acceptance.golden import files_in
from pooltide.acceptance.manifest import read_manifest
from pooltide.acceptance.manifest_entry import first_change
from pooltide.writing import write_whole

CASE = "avg2d:2x3x5x7:k3:f32"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    (tmp_path / "cases").write_text(f"name,case\na,{CASE}\nb,adaptive_max2d:2x3x5x7:o2x3:i64\n")
    invoke("golden", tmp_path / "cases", "-o", tmp_path / "golden", "--jobs", 1)
    return tmp_path / "golden"


# Writing


def test_a_plain_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "f"
    write_whole(file, b"old")
    file.chmod(0o640)
    write_whole(file, b"n", memoryview(b"ew"))
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["f"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("there/target")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there/target").read_bytes() == b"new"
    (tmp_path / "dangling").symlink_to("nothing")
    with pytest.raises(OSError, match="the link names a file that does not exist"):
        write_whole(tmp_path / "dangling", b"new")


def test_a_pipe_and_a_device_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"x" * 100_000)
    reader.join(30)
    assert got == [b"x" * 100_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_whole(Path("/dev/null"), b"x")
    (tmp_path / "null").symlink_to("/dev/null")
    write_whole(tmp_path / "null", b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert (tmp_path / "null").is_symlink()


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the path is no plain file"):
        write_whole(tmp_path, b"x")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_whole(tmp_path / "f", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_two_writers_leave_one_whole_file(tmp_path: Path) -> None:
    contents = [bytes([n]) * 300_000 for n in range(4)]
    threads = [
        threading.Thread(target=lambda c=c: [write_whole(tmp_path / "f", c) for _ in range(20)])  # type: ignore[misc]
        for c in contents
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (tmp_path / "f").exists():
            assert (tmp_path / "f").read_bytes() in contents
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("command", ["report", "show"])
def test_the_commands_keep_devices_and_links(command: str, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    for path in (Path("/dev/null"), tmp_path / "link"):
        if command == "report":
            invoke("run", CASE, "--report", path)
        else:
            invoke("show", CASE, "-o", path)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").stat().st_size > 1000


def test_a_report_on_the_standard_output(tmp_path: Path) -> None:
    """Into a pipe here; the table that was printed before it is not lost."""
    text = pooltide("run", CASE, "--report", "/dev/stdout")
    assert text.index("1 of 1 pass") < text.index("<!doctype html>")


# What golden may remove


def test_a_directory_of_the_user_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out/stem").mkdir(parents=True)
    (tmp_path / "out/stem/thesis.tex").write_text("years of work")
    (tmp_path / "out/head").write_text("a plain file")
    (tmp_path / "out/link").symlink_to("stem")
    names = ("stem", "head", "link", "manifest.jsonl", "good")
    (tmp_path / "cases").write_text("name,case\n" + "".join(f"{name},{CASE}\n" for name in names))
    text = invoke("golden", tmp_path / "cases", "-o", tmp_path / "out", rc=1)
    assert f"{tmp_path}/out/stem is there and manifest.jsonl has no line for it; move it away" in text
    for name in ("head", "link", "manifest.jsonl"):
        assert f"{tmp_path}/out/{name} is there and is no directory" in text
    assert "1 of 5 cases, 4 bad" in text
    assert (tmp_path / "out/stem/thesis.tex").read_text() == "years of work"
    assert (tmp_path / "out/head").read_text() == "a plain file"
    assert list(read_manifest(tmp_path / "out").offsets) == ["good"]
    assert not (tmp_path / "out/.partial").exists()


def test_a_file_of_the_user_among_golden_ones_is_not_removed(golden: Path) -> None:
    (golden / "a/notes.txt").write_text("mine")
    (golden / "a/grad_input.npy").unlink()
    text = invoke("golden", golden.parent / "cases", "-o", golden, rc=1)
    assert f"{golden}/a/notes.txt is there, and pooltide golden did not write it" in text
    assert (golden / "a/notes.txt").read_text() == "mine"


def test_a_partial_directory_of_the_user_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "out/.partial").mkdir(parents=True)
    (tmp_path / "out/.partial/mine").write_text("x")
    assert ".partial is there, but manifest.jsonl is not" in invoke(
        "golden", CASE, "-o", tmp_path / "out", rc=2
    )
    assert (tmp_path / "out/.partial/mine").exists()


def test_what_a_killed_start_had_renamed_is_its_own(golden: Path) -> None:
    """Killed between the directory's name and the manifest's line: `claimed` says whose it is."""
    lines = (golden / "manifest.jsonl").read_text().splitlines(keepends=True)
    (golden / "manifest.jsonl").write_text("".join(lines[:-1]))
    (golden / ".partial").mkdir()
    (golden / ".partial/claimed").write_text("a\nb\n")
    assert "2 of 2 cases" in invoke("golden", golden.parent / "cases", "-o", golden)
    (golden / "manifest.jsonl").write_text("".join(lines[:-1]))
    assert "b is there and manifest.jsonl has no line" in invoke(
        "golden", golden.parent / "cases", "-o", golden, rc=1
    )


def test_two_golden_at_once(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr("pooltide.acceptance.locking._PATIENCE", 0.2)
    directory = os.open(golden, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        assert "another pooltide golden writes there" in invoke("golden", CASE, "-o", golden, rc=2)
    finally:
        os.close(directory)
    invoke("golden", golden.parent / "cases", "-o", golden)


# Golden data that were changed


def test_golden_and_result_changed_alike_do_not_pass(golden: Path) -> None:
    actual = golden.parent / "actual"
    shutil.copytree(golden, actual, ignore=shutil.ignore_patterns("*.bin", "manifest.jsonl"))
    for directory in (golden, actual):
        np.save(directory / "a/grad_input.npy", np.load(directory / "a/grad_input.npy") * 3)
    text = invoke("compare", actual, golden, rc=2)
    assert f"error a: {golden}/a/grad_input.npy: the file was changed after it was made" in text
    assert "1 of 2 pass, 1 could not be compared" in text


@pytest.mark.parametrize("name", ["grad_output.npy", "grad_output.bin", "grad_input.npy", "grad_input.bin"])
@pytest.mark.parametrize("how", ["changed", "missing", "longer", "a directory"])
def test_every_golden_file_counts(name: str, how: str, golden: Path) -> None:
    path = golden / "a" / name
    actual = golden.parent / "actual"
    shutil.copytree(golden, actual, ignore=shutil.ignore_patterns("*.bin", "manifest.jsonl"))
    content = bytearray(path.read_bytes())
    path.unlink()
    if how == "changed":
        content[-1] ^= 1
        path.write_bytes(content)
    elif how == "longer":
        path.write_bytes(content + b"\0")
    elif how == "a directory":
        path.mkdir()
    assert str(path) in invoke("compare", actual, golden, rc=2)
    assert "error" in invoke("compare", actual, golden, "--json", rc=2)
    assert first_change(files_in(golden), read_manifest(golden).get("a") or {})


def changes(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The entry with a checksum, a table of them or a file taken out, or with something put in."""
    found = []
    for role in entry["files"]:
        for table in ({}, {"npy": entry["files"][role]["sha256"]["npy"]}, None, {"npy": "", "bin": ""}, "x"):
            about = entry["files"][role] | {"sha256": table}
            found.append(entry | {"files": entry["files"] | {role: about}})
        found.append(entry | {"files": {k: v for k, v in entry["files"].items() if k != role}})
    found.append(entry | {"files": entry["files"] | {"more": entry["files"]["grad_input"]}})
    found.append(entry | {"more": 1})
    found.append(entry | {"case": entry["case"] + ":seed7"})
    found.append(entry | {"name": "../a"})
    return found


def test_a_manifest_that_was_changed_is_never_a_pass(golden: Path) -> None:
    path = golden / "manifest.jsonl"
    head, first, *rest = path.read_text().splitlines()
    found = changes(json.loads(first))
    assert len(found) == 16
    for entry in found:
        path.write_text("\n".join([head, json.dumps(entry), *rest]) + "\n")
        assert "manifest.jsonl, line 2: " in invoke("compare", golden, golden, rc=2)
        assert "manifest.jsonl, line 2: " in invoke("golden", golden.parent / "cases", "-o", golden, rc=2)
    for fewer in ([head], [head, first], [head, *rest]):
        path.write_text("\n".join(fewer) + "\n")
        assert "the lines were changed after they were made" in invoke("compare", golden, golden, rc=2)
    (golden.parent / "none").write_text("rubbish:1\n")
    invoke("golden", golden.parent / "none", "-o", golden.parent / "empty", rc=1)
    assert "manifest.jsonl has no case" in invoke("compare", golden, golden.parent / "empty", rc=2)
    path.write_text("\n".join([first, *rest]) + "\n")
    assert "manifest.jsonl is not complete" in invoke("compare", golden, golden, rc=2)
    path.write_text("\n".join([head.replace("true", "false"), first, *rest]) + "\n")
    assert "manifest.jsonl is not complete" in invoke("compare", golden, golden, rc=2)
    invoke("golden", golden.parent / "cases", "-o", golden)
    chip = results_of(golden, golden.parent / "chip")
    assert "2 of 2 pass" in invoke("compare", chip, golden)


@pytest.mark.parametrize(
    "arguments",
    [
        ("golden", CASE, "-o"),
        ("show", CASE, "-o"),
        ("run", CASE, "--save"),
        ("run", CASE, "--report"),
        ("compare", "{file}", "{file}", "--third"),
        ("compare", "{file}"),
    ],
    ids=" ".join,
)
def test_a_path_that_names_nothing_is_refused(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty path would mean the working directory, which golden once filled without a message."""
    file = tmp_path / "a.npy"
    np.save(file, np.ones(3, np.float32))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for path, text in (("", "the path is empty; it must"), ("\0", "has a null byte; it must")):
        assert text in " ".join(invoke(*(a.format(file=file) for a in arguments), path, rc=2).split())
    assert not list(Path().iterdir())
