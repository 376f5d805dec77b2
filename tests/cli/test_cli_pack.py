"""A golden set in one file: its bytes, what compare makes of it, and damaged packs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from commandline import pooltide

LONG = "n" * 190
CASES = f"""\
name,case
stem,avg2d:2x3x23x29:k3:s2:p1:f16:seed7
池化,adaptive_max2d:2x3x23x19:o5x7:f32:i64:seed3
{LONG},max2d_forward:1x2x9x11:k3:i64:bf16:seed1
last,adaptive_avg3d:2x3x7x9x8:o3x7x5:f32:seed2
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`golden`, its pack, and results of which one is wrong."""
    directory = tmp_path_factory.mktemp("pack")
    (directory / "cases.csv").write_text(CASES)
    text = pooltide("golden", "cases.csv", "-o", "golden", "--float64", "--pack", "set.tar", cwd=directory)
    digest = hashlib.sha256((directory / "set.tar").read_bytes()).hexdigest()
    assert f"set.tar: 4 cases, sha256 {digest}\n" in text
    pooltide("run", "cases.csv", "--save", "chip", cwd=directory)
    wrong = np.load(directory / "chip/last.npy")
    wrong[1, 2, 3] *= 1.5
    np.save(directory / "chip/last.npy", wrong)
    return directory


def test_any_tar_program_unpacks_the_same_directory(packed: Path, tmp_path: Path) -> None:
    with tarfile.open(packed / "set.tar") as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    assert names[0] == "manifest.jsonl"
    for path in (packed / "golden").rglob("*.*"):
        assert (tmp_path / path.relative_to(packed / "golden")).read_bytes() == path.read_bytes()
    assert len(names) == sum(path.is_file() for path in (packed / "golden").rglob("*"))


def test_the_bytes_depend_on_the_cases_alone(packed: Path, tmp_path: Path) -> None:
    options = ("--float64", "--jobs", 2, "--pack", tmp_path / "again.tar", "--json")
    text = pooltide("golden", packed / "cases.csv", "-o", tmp_path / "golden", *options)
    assert (tmp_path / "again.tar").read_bytes() == (packed / "set.tar").read_bytes()
    summary = json.loads(text.splitlines()[-1])["summary"]
    assert summary["sha256"] == hashlib.sha256((packed / "set.tar").read_bytes()).hexdigest()


@pytest.mark.parametrize("options", [(), ("--shard", "2/2"), ("--only", "last"), ("--standard", "bits")])
def test_compare_says_of_the_pack_what_it_says_of_the_directory(
    packed: Path, options: tuple[str, ...]
) -> None:
    texts, sections = [], []
    for golden in ("golden", "set.tar"):
        texts.append(
            pooltide("compare", "chip", golden, "-v", *options, "--report", "r.html", cwd=packed, rc=1)
        )
        sections.append((packed / "r.html").read_text().partition('<section class="case"')[2])
    assert "FAIL  last" in texts[1]
    assert texts[1].replace("set.tar", "golden") == texts[0]
    assert "data:image/png;base64," in sections[1]
    assert sections[1].replace("set.tar", "golden") == sections[0]
    json_texts = [
        pooltide("compare", "chip", golden, "--json", *options, cwd=packed, rc=1)
        for golden in ("golden", "set.tar")
    ]
    assert json_texts[1].replace("set.tar", "golden") == json_texts[0]


def damaged(packed: Path, tmp_path: Path, content: bytes) -> str:
    (tmp_path / "bad.tar").write_bytes(content)
    return " ".join(pooltide("compare", packed / "chip", tmp_path / "bad.tar", rc=2).split())


def test_damaged_packs_are_refused_or_named(packed: Path, tmp_path: Path) -> None:
    whole = (packed / "set.tar").read_bytes()
    assert "the first member is not manifest.jsonl" in damaged(packed, tmp_path, bytes(1024))
    assert "the pack has no end" in damaged(packed, tmp_path, b"")
    assert "a header of a member is damaged" in damaged(packed, tmp_path, b"x" * 2048)
    assert "the pack ends inside manifest.jsonl" in damaged(packed, tmp_path, whole[:1024])
    assert "the pack ends inside last/" in damaged(packed, tmp_path, whole[:-4096])
    with tarfile.open(packed / "set.tar") as archive:
        at = archive.getmember("stem/grad_input_float64.npy").offset_data
    changed = bytearray(whole)
    changed[at + 200] ^= 1
    text = damaged(packed, tmp_path, bytes(changed))
    assert "bad.tar/stem/grad_input_float64.npy: the file was changed" in text
    assert "1 could not be compared" in text


def test_members_that_are_missing_are_named(packed: Path, tmp_path: Path) -> None:
    for without, words in (
        ("stem/indices.npy", ""),
        ("stem/grad_output.bin", "the member stem/grad_output.bin is missing"),
        ("last/", "the case last has no members"),
    ):
        with (
            tarfile.open(packed / "set.tar") as source,
            tarfile.open(tmp_path / "s.tar", "w", format=tarfile.GNU_FORMAT) as target,
        ):
            for member in source.getmembers():
                if not member.name.startswith(without):
                    target.addfile(member, source.extractfile(member))
        text = " ".join(
            pooltide("compare", packed / "chip", tmp_path / "s.tar", rc=2 if words else 1).split()
        )
        assert words in text


def test_links_and_other_kinds_of_members_are_refused(packed: Path, tmp_path: Path) -> None:
    link = tarfile.TarInfo("manifest.jsonl")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "s.tar", "w") as target:
        target.addfile(link)
    text = pooltide("compare", packed / "chip", tmp_path / "s.tar", rc=2)
    assert "manifest.jsonl is no plain file" in " ".join(text.split())


def test_a_golden_file_that_was_changed_is_not_packed(packed: Path, tmp_path: Path) -> None:
    shutil.copytree(packed / "golden", tmp_path / "golden")
    before = pooltide("golden", packed / "cases.csv", "-o", tmp_path / "golden", "--float64")
    assert "4 of 4 cases" in before
    (tmp_path / "older.csv").write_text("name,case\nnew,avg2d:1x1x4x4:k2\n")
    with (tmp_path / "golden/stem/grad_input.npy").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x55")
    pack = tmp_path / "p.tar"
    text = pooltide("golden", tmp_path / "older.csv", "-o", tmp_path / "golden", "--pack", pack, rc=2)
    assert "grad_input.npy: the file was changed after it was made" in " ".join(text.split())
    assert not pack.exists()


def test_the_name_must_say_what_it_is(tmp_path: Path) -> None:
    text = pooltide("golden", "avg2d:1x1x4x4:k2", "-o", tmp_path / "g", "--pack", tmp_path / "p.zip", rc=2)
    assert "the name must end in .tar" in " ".join(text.split())
