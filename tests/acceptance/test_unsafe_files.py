"""Files that someone else wrote, with ill will: nothing outside the output changes, and every fault is a sentence.

`hostile.file_calls` draws such files at random; these are the ones that did harm.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import commandline
from hostile.saved import SAVED, content_of, packed_again
from pooltide.acceptance.msprobe_csv import Details
from pooltide.c.build import CannotBuild, _locked
from pooltide.cli import main
from pooltide.kernels.cuda.runtime import code_cache

CASES = "name,case\na,avg2d:1x2x5x7:k2\nb,avg2d:1x2x5x7:k2:seed1\nc,max2d_forward:1x2x5x7:k2:i64\n"


def invoke(*arguments: object, rc: int = 0) -> str:
    """As commandline.invoke, on one line."""
    return " ".join(commandline.invoke(*arguments, rc=rc).split())


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    (folder / "cases").write_text(CASES)
    invoke("golden", folder / "cases", "-o", folder / "golden", "--jobs", 1)
    return folder


@pytest.fixture
def world(good: Path, tmp_path: Path) -> Path:
    """Golden data, results, and a folder of files that no command may change."""
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    commandline.results_of(good / "golden", tmp_path / "results")
    (tmp_path / "precious").mkdir()
    for name in ("grad_input.npy", "grad_output.bin", "bashrc"):
        (tmp_path / "precious" / name).write_text("mine")
    return tmp_path


def untouched(world: Path) -> bool:
    return {path.name: path.read_text() for path in (world / "precious").iterdir()} == dict.fromkeys(
        ("grad_input.npy", "grad_output.bin", "bashrc"), "mine"
    )


def write_manifest(folder: Path, lines: list[str]) -> None:
    """The manifest with these lines and their sha256."""
    head = json.loads((folder / "manifest.jsonl").read_text().splitlines()[0])
    body = "".join(f"{line}\n" for line in lines)
    head["sha256"] = hashlib.sha256(body.encode()).hexdigest()
    (folder / "manifest.jsonl").write_text(json.dumps(head) + "\n" + body)


def lines_of(folder: Path) -> list[str]:
    return (folder / "manifest.jsonl").read_text().splitlines()[1:]


# Manifests


@pytest.mark.parametrize("role", ["../../precious/", "../../../precious/", "/tmp/", "x"])
def test_merge_stays_in_its_output(role: str, world: Path) -> None:
    entry = json.loads(lines_of(world / "golden")[0])
    entry["files"] = {role: {"sha256": {"bashrc": "0" * 64}}}
    (world / "golden/a/.bashrc").write_text("theirs")
    write_manifest(world / "golden", [json.dumps(entry)])
    text = invoke("merge", world / "golden", "-o", world / "out", rc=2)
    assert "manifest.jsonl, case a: files." in text
    assert untouched(world)
    assert {path.name for path in (world / "out").iterdir()} <= {"manifest.jsonl", ".partial"}


@pytest.mark.parametrize("command", ["merge", "compare", "golden"])
def test_a_line_with_two_names_is_refused(command: str, world: Path) -> None:
    first, *rest = lines_of(world / "golden")
    write_manifest(world / "golden", [f'{first[:-1]}, "name": "../precious/new"}}', *rest])
    before = sorted(world.rglob("*"))
    if command == "golden":  # the line is made again
        invoke("golden", world / "cases", "-o", world / "golden", "--jobs", 1)
    else:
        arguments = {"merge": ["-o", world / "out"], "compare": [world / "results"]}[command]
        text = (
            invoke(command, world / "golden", *arguments, rc=2)
            if command == "merge"
            else invoke(command, *arguments, world / "golden", rc=2)
        )
        assert "an object has the key 'name' twice; each key must be there once" in text
    assert [path for path in sorted(world.rglob("*")) if "out" not in path.parts] == before
    assert untouched(world)


def test_a_case_that_is_in_a_manifest_twice_is_refused(world: Path) -> None:
    """The failures of the first line would vanish behind the second."""
    lines = lines_of(world / "golden")
    write_manifest(world / "golden", [*lines, lines[0]])
    text = invoke("compare", world / "results", world / "golden", rc=2)
    assert "line 5: name is a, which a line before has; each case may be there once" in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("files", {}), ("files", {"grad_input": 5}), ("files", {"grad_input": {"dtype": "FLOAT32", "shape": [1]}}),
        ("case", "avg2d"), ("case", 5), ("rounding", []), ("seed", 10**4000), ("line", "x"), ("name", "b"),
    ],
)  # fmt: skip
def test_every_field_of_a_manifest_is_checked(key: str, value: Any, world: Path) -> None:
    first, *rest = lines_of(world / "golden")
    write_manifest(world / "golden", [json.dumps(json.loads(first) | {key: value}), *rest])
    assert "manifest.jsonl, " in invoke("compare", world / "results", world / "golden", rc=2)
    assert "manifest.jsonl, " in invoke("merge", world / "golden", "-o", world / "out", rc=2)


def test_merge_takes_no_part_for_its_output(world: Path) -> None:
    text = invoke("merge", world / "golden", "-o", world / "golden", rc=2)
    assert "golden is one of the parts, which stay as they are; give another --output" in text


def test_merge_copies_what_a_link_in_a_part_leads_to(world: Path) -> None:
    file = world / "golden/a/grad_input.npy"
    file.rename(world / "stored.npy")
    file.symlink_to(world / "stored.npy")
    invoke("merge", world / "golden", "-o", world / "out")
    assert not (world / "out/a/grad_input.npy").is_symlink()
    assert (world / "out/a/grad_input.npy").read_bytes() == (world / "stored.npy").read_bytes()
    file.unlink()
    os.mkfifo(file)
    assert "no plain file" in invoke("merge", world / "golden", "-o", world / "other", rc=2)


# Links


@pytest.mark.parametrize(
    ("link", "target"),
    [
        (".partial/a.123", "precious"),
        (".partial/a.123.old", "precious"),
        (".partial/claimed", "precious/bashrc"),
        (".partial", "precious"),
        ("manifest.jsonl", "stored.jsonl"),
    ],
)
@pytest.mark.parametrize("command", ["golden", "merge"])
def test_links_in_the_output_are_refused(command: str, link: str, target: str, world: Path) -> None:
    shutil.copytree(world / "golden", world / "out")
    (world / "out/manifest.jsonl").rename(world / "stored.jsonl")
    if link != "manifest.jsonl":
        shutil.copy(world / "stored.jsonl", world / "out/manifest.jsonl")
    stored = (world / "stored.jsonl").read_bytes()
    (world / "out" / link).parent.mkdir(exist_ok=True)
    (world / "out" / link).symlink_to(world / target)
    source = world / ("cases" if command == "golden" else "golden")
    text = invoke(command, source, "-o", world / "out", rc=2)
    assert "is a link; pooltide golden writes there: remove the link" in text or "is there, but" in text
    assert untouched(world)
    assert (world / "stored.jsonl").read_bytes() == stored


def test_a_claimed_directory_with_other_files_stays(world: Path) -> None:
    (world / "golden/.partial").mkdir()
    (world / "golden/.partial/claimed").write_text("mine\nlinked\n")
    (world / "golden/mine").mkdir()
    for name in ("grad_input.npy", "notes"):
        (world / "golden/mine" / name).write_text("mine")
    (world / "golden/linked").symlink_to(world / "precious")
    invoke("golden", world / "cases", "-o", world / "golden", "--jobs", 1)
    assert sorted(path.name for path in (world / "golden/mine").iterdir()) == ["grad_input.npy", "notes"]
    assert untouched(world)


def test_saved_results_replace_a_link(world: Path) -> None:
    (world / "saved").mkdir()
    (world / "saved/a.npy").symlink_to(world / "precious/bashrc")
    invoke("run", world / "cases", "--save", world / "saved")
    assert untouched(world)
    assert np.load(world / "saved/a.npy").shape == (1, 2, 5, 7)


def test_the_cache_of_kernels_replaces_a_link(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLTIDE_CACHE", str(world / "cache"))
    (world / "cache").mkdir()
    (world / "cache/name.cubin").symlink_to(world / "precious/bashrc")
    code_cache.store("name", b"code")
    assert untouched(world)
    assert code_cache.load("name") == b"code"


def test_the_lock_of_the_library_is_no_link(world: Path) -> None:
    (world / "lib").mkdir()
    (world / "lib/lock").symlink_to(world / "precious/bashrc")
    with pytest.raises(CannotBuild, match="can't be written"), _locked(world / "lib"):
        pass
    assert untouched(world)


# Results


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("float8", "the file has dtype float8_e4m3fn; it must be one of FLOAT32"),
        ("bits", "the file has dtype bits8; it must be one of"),
        ("complex", "the file has dtype complex64; it must be one of"),
        ("conjugate", "the file has dtype complex64; it must be one of"),
        ("meta", "the file holds a tensor of the device meta; it must have values"),
        ("nested", "the file holds a nested tensor; it must hold a dense tensor"),
        ("sparse", "the file holds a tensor of the layout sparse_coo; it must hold a dense tensor"),
        ("quantized", "the file holds a quantized tensor; it must hold a dense tensor"),
        (
            "huge",
            "the file holds an expanded tensor, 4294967296 bytes of values in 4; save tensor.contiguous()",
        ),
        ("endless", "the file holds an expanded tensor"),
        ("dict", "the file holds a dict; it must hold a dense tensor"),
        ("transposed", None),
        ("expanded", None),
        ("negative", None),
        ("overlapping", None),
        ("parameter", None),
    ],
)
def test_a_saved_tensor_is_one_result_or_one_error(kind: str, says: str | None, world: Path) -> None:
    (world / "results/a/grad_input.npy").unlink()
    (world / "results/a/grad_input.bin").unlink()
    (world / "results/a/grad_input.pt").write_bytes(content_of(kind))
    text = invoke("compare", world / "results", world / "golden", rc=1 if says is None else 2)
    assert text.count("pass ") >= 2, "the other cases are compared"
    assert says is None or f"error a: {world}/results/a/grad_input.pt: {says}" in text
    assert says is not None or "FAIL a: " in text


def test_values_of_a_strided_tensor_are_in_order(world: Path) -> None:
    import torch

    golden = np.load(world / "golden/a/grad_input.npy")
    tensor = torch.from_numpy(golden).permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    assert not tensor.is_contiguous()
    torch.save(tensor, world / "a.pt")
    assert "1 of 1 pass" in invoke(
        "compare", world / "a.pt", world / "golden/a/grad_input.npy", "--verdict", "bits"
    )


def test_an_archive_that_grows_is_refused(world: Path) -> None:
    class Packed:
        """Draws: compress, and replace each record by 4 MiB of zeros."""

        def choice(self, values: Any) -> Any:
            return 8 if values == (0, 8) else values[2]

        def random(self) -> float:
            return 0.0

        def randint(self, low: int, high: int) -> int:
            return low

        def randrange(self, stop: int) -> int:
            return 0

    (world / "a.pt").write_bytes(packed_again(content_of("good"), Packed()))  # type: ignore[arg-type]
    text = invoke("compare", world / "a.pt", world / "golden/a/grad_input.npy", rc=2)
    assert "its records must not be compressed" in text


def test_there_are_kinds_of_tensors() -> None:
    assert len(SAVED) > 20


# Summaries of compare --json


@pytest.mark.parametrize(
    ("key", "value"),
    [("pass", []), ("fail", "x"), ("error", None), ("extra", 5), ("extra", [[]]), ("standard", []), ("standard", "x"),
     ("exit_status", {}), ("pass", -1), ("pass", True), ("shard", "9/3"), ("level", "L3"), ("level", 1), ("level", []), ("pooltide", None),
     ("golden", {}), ("golden", {"sha256": 5, "cases": 3, "shard": None})],
)  # fmt: skip
def test_a_summary_is_checked(key: str, value: Any, world: Path) -> None:
    *cases, last = (
        CliRunner()
        .invoke(main, ["compare", str(world / "results"), str(world / "golden"), "--json"])
        .stdout.splitlines()
    )
    summary = {"summary": json.loads(last)["summary"] | {key: value}}
    (world / "a").write_text("\n".join([*cases, json.dumps(summary)]))
    text = invoke("merge", world / "a", "-o", world / "out", rc=2)
    assert "a, line 4: the line is not one that compare --json prints" in text
    (world / "a").write_text("\n".join([json.dumps(json.loads(cases[0]) | {"line": [1]}), *cases[1:], last]))
    assert "a, line 1: the line is not one that" in invoke("merge", world / "a", "-o", world / "out", rc=2)
    assert not (world / "out").exists()


# Files of other tools

X = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1, 2, 5, 7], "Max": 1.0, "Min": -1.0}
TWO = {"type": "int", "value": 2}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"input_args": [X, TWO, *[TWO] * 40]}, "the call has 42 arguments; avg_pool2d has 8"),
        ({"input_args": [X, TWO], "input_kwargs": {"input": X}}, "the argument 'input' twice, by place and by name"),
        ({"input_args": [{**X, "data_name": "a\0b.npy"}, TWO]}, "no file can have this name"),
        ({"input_args": [{**X, "data_name": "a" * 300 + ".npy"}, TWO]}, "File name too long"),
        ({"input_args": [{**X, "Max": 10**400}, TWO]}, "the range of the values is"),
    ],
)  # fmt: skip
def test_a_bad_call_of_a_dump_is_one_bad_case(call: dict[str, Any], says: str, tmp_path: Path) -> None:
    calls = {
        "Functional.avg_pool2d.0.forward": call,
        "Functional.avg_pool2d.1.forward": {"input_args": [X, TWO]},
    }
    dump = {"level": "L1", "dump_data_dir": "x", "data": calls}
    (tmp_path / "dump_tensor_data").mkdir()
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    text = invoke("golden", "--from", tmp_path / "dump.json", "-o", tmp_path / "out", "--jobs", 1, rc=1)
    assert says in text
    assert "1 of 2 cases, 1 bad" in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('[{"case_name": "a", "case_name": "b"}]', "an object has the key 'case_name' twice"),
        ("[" * 900 + "]" * 900, "too many brackets are nested"),
        ("[" * 100_000, "too many brackets are nested"),
        ("9" * 5000, "a number has too many digits"),
    ],
)
def test_a_bad_document_is_refused(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    text = invoke("golden", "--from", tmp_path / "a.json", "-o", tmp_path / "out", rc=2)
    assert f"a.json: the file is no JSON: {says}" in text


@pytest.mark.parametrize(
    ("attr", "says"),
    [
        (1.5, "attr must be a list of objects"),
        ([{"name": "input", "value": 2}], "avg_pool2d: input is an attribute; it must be a tensor"),
    ],
)
def test_attributes_of_another_kind(attr: Any, says: str, tmp_path: Path) -> None:
    case = {"case_name": "a", "op": "avg_pool2d", "attr": attr}
    case["input_desc"] = [{"type": "float", "format": "ND", "shape": [1, 2, 5, 7]}]
    (tmp_path / "a.json").write_text(json.dumps([case]))
    assert says in invoke("golden", "--from", tmp_path / "a.json", "-o", tmp_path / "out", "--jobs", 1, rc=1)


def test_no_case_of_another_tool_is_lost_to_its_name(tmp_path: Path) -> None:
    """Names stay as they are; a name that a second case has, or that is too long, is an error of its case."""
    base = {"op": "avg_pool2d", "attr": [{"name": "kernel_size", "value": 2}]}
    base["input_desc"] = [{"type": "float", "format": "ND", "shape": [1, 2, 5, 7]}]
    names = ["平均池化", "最大池化", "a/b", "a b", "same", "same", "x" * 220]
    (tmp_path / "a.json").write_text(json.dumps([base | {"case_name": name} for name in names]))
    text = invoke("golden", "--from", tmp_path / "a.json", "-o", tmp_path / "out", "--jobs", 1, rc=1)
    assert "4 of 7 cases, 3 bad" in text
    made = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert made == {"平均池化", "最大池化", "a_b", "same"}
    assert "line 4 (a_b): name is 'a_b', which case 3 has; it must be unique" in text
    assert "line 6 (same): name is 'same', which case 5 has; it must be unique" in text
    assert "line 7 (case-000007): the name has 220 bytes; it must be letters, digits" in text


# Tables


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"])
def test_no_cell_of_a_table_is_a_formula(name: str) -> None:
    table = Details()
    table.add(name, f"{name}: can't be read")
    table.add("good", "no result")
    text = b"".join(table.parts()).decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[1][0] == f"'{name}"
    assert rows[1][-1] == f"'{name}: can't be read"
    assert rows[2][0] == "good"
