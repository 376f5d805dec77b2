"""What was not compared, or was compared with the wrong thing, is no pass."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commandline import invoke as in_process
from commandline import pooltide as invoke

CASES = """\
name,case
a,avg2d:2x3x7x11:k3:s2:p1:f16
b,max2d_forward:2x3x7x11:k3:s2:p1:f32:i64
c,adaptive_avg2d:2x3x7x11:o3x5:f32
d,avg2d:2x3x7x11:k3:s2:p1:f64
"""


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    (tmp_path / "cases").write_text(CASES)
    invoke("golden", "cases", "-o", "golden", "--jobs", 1, cwd=tmp_path)
    invoke("run", "cases", "--save", "chip", cwd=tmp_path)
    return tmp_path


def save(path: Path, values: object, dtype: str = "f4") -> Path:
    np.save(path, np.asarray(values, dtype))
    return path


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_case_of_another_shard_is_no_pass(sets: Path) -> None:
    """`a` is in the first shard, so nothing would be compared."""
    text = invoke("compare", "chip", "golden", "--only", "a", "--shard", "2/2", cwd=sets, rc=2)
    assert "--only and --shard are two choices of cases; give one of them" in flat(text)


@pytest.mark.parametrize("option", ["--report", "--csv"])
def test_an_output_replaces_no_file_of_others_in_a_compared_directory(option: str, sets: Path) -> None:
    for folder in ("chip", "golden"):
        notes = sets / folder / "notes"
        notes.write_text("mine")
        text = invoke("compare", "chip", "golden", option, notes, cwd=sets, rc=2)
        assert "notes: the file is in a compared directory, and is no report or table of pooltide" in flat(
            text
        )
        assert notes.read_text() == "mine"
        for _ in range(2):  # the second time over our own
            assert "4 of 4 pass" in invoke(
                "compare", "chip", "golden", option, sets / folder / "ours", cwd=sets
            )
        (sets / folder / "ours").unlink()


def test_the_case_of_two_files_must_have_their_shape(sets: Path) -> None:
    files, case = ("chip/a.npy", "golden/a/grad_input.npy"), "avg2d:2x3x7x11:k3:s2:p1:f16"
    assert "1 of 1 pass" in invoke("compare", *files, "--case", case, cwd=sets)
    text = invoke("compare", *files, "--case", "avg2d:2x3x11x7:k3:s2:p1:f16", cwd=sets, rc=2)
    said = "error a.npy: chip/a.npy: the file has shape (2, 3, 7, 11); the result of --case "
    assert f"{said}avg2d:2x3x11x7:k3:s2:p1:f16 has (2, 3, 11, 7)" in text
    text = invoke("compare", *files, "--case", "avg2d:2x3x7x11:k9:f16", cwd=sets, rc=2)
    assert "--case avg2d:2x3x7x11:k9:f16 is refused: " in text
    raw = ("golden/a/grad_input.bin", "golden/a/grad_input.bin", "--dtype", "f16", "--case")
    assert "1 of 1 pass" in invoke("compare", *raw, case, cwd=sets)
    text = invoke("compare", *raw, "avg2d:2x3x7x13:k3:f16", cwd=sets, rc=2)
    assert "the file has shape (462,); the result of --case avg2d:2x3x7x13:k3:f16 has (2, 3, 7, 13)" in text


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_the_cosine_of_values_whose_squares_leave_the_range_of_float64(scale: float, tmp_path: Path) -> None:
    values = np.random.default_rng(3).normal(size=(5, 7)) * scale
    golden = save(tmp_path / "g.npy", values, "f8")
    wrong = save(tmp_path / "a.npy", -values, "f8")
    right = save(tmp_path / "b.npy", np.nextafter(values, np.inf), "f8")
    text = invoke("compare", wrong, golden, "--standard", "cosine", rc=1)
    assert "cosine similarity -1; it must be above 0.99" in text
    assert "1 of 1 pass" in invoke("compare", right, golden, "--standard", "cosine")
    figures = json.loads(
        invoke("compare", wrong, golden, "--standard", "cosine", "--json", rc=1).split("\n")[0]
    )
    np.testing.assert_allclose(figures["RMSE"], 2 * scale * np.sqrt(np.mean((values / scale) ** 2)))


@pytest.mark.parametrize("standard", ["two", "benchmark"])
def test_a_wrong_third_result_judges_nothing(standard: str, tmp_path: Path) -> None:
    """Against zeros, or against a result with NaN, any result would be good."""
    values = np.random.default_rng(3).normal(size=(5, 7))
    golden = save(tmp_path / "g.npy", values)
    ours = save(tmp_path / "a.npy", values * 1.5)
    zeros = save(tmp_path / "zeros.npy", values * 0)
    nan = save(tmp_path / "nan.npy", np.where(values > 1, np.nan, values * 1.4))
    near = save(tmp_path / "near.npy", values * 1.01)
    reasons = {
        zeros: "its cosine similarity is 0; it must be above 0.99",
        nan: "have a NaN or Inf out of place",
    }
    for third, reason in reasons.items():
        text = invoke("compare", ours, golden, "--standard", standard, "--third", third, rc=2)
        assert f"{third}: the third result is wrong, so nothing can be compared with it: " in text
        assert reason in text
    assert "FAIL" in invoke("compare", ours, golden, "--standard", standard, "--third", near, rc=1)


def test_a_third_result_that_fails_itself_is_named(sets: Path) -> None:
    """Ours is ten percent off, and so is the third one: their errors are alike."""
    for name in "abcd":
        values = np.load(sets / f"chip/{name}.npy")
        np.save(sets / f"chip/{name}.npy", values * values.dtype.type(1.1))
    shutil.copytree(sets / "chip", sets / "third")
    options = ("--third", "third", "--standard", "two")
    text = invoke("compare", "chip", "golden", *options, cwd=sets)
    assert text.count("; the third result fails mixed itself\n") == 4
    assert "4 of 4 pass (4 of them have a third result that fails mixed itself); " in text
    text = invoke("compare", "chip", "golden", *options, "--lang", "zh", "--report", "r.html", cwd=sets)
    assert "4 个通过（其中 4 个用例，第三方结果自身不满足 mixed）" in text
    assert "4 of them have a third result that fails mixed itself" in (sets / "r.html").read_text()
    invoke("run", "cases", "--save", "third", cwd=sets)
    assert "itself" not in invoke("compare", "chip", "golden", *options, cwd=sets, rc=1)


@pytest.mark.parametrize("standard", ["infnan", "small", "hundredth", "thousandth", "ulp"])
def test_every_standard_that_zeros_would_pass_says_so(standard: str, tmp_path: Path) -> None:
    """One cell in 3600 of this gradient is not zero."""
    (tmp_path / "cases").write_text(
        "name,case\na,max2d:1x2x60x60:k60:f16\nb,max2d:1x2x60x60:k60:f16:nan\nc,avg2d:1x2x9x9:k3:f16\n"
    )
    invoke("golden", "cases", "-o", "golden", cwd=tmp_path)
    invoke("run", "cases", "--save", "chip", cwd=tmp_path)
    judged = ("compare", "chip", "golden", "--standard", standard)
    text = invoke(*judged, cwd=tmp_path)
    dense = standard in ("infnan", "small")  # these also pass zeros where no golden value is zero
    assert text.count("; zeros would pass, too\n") == 1 + dense
    assert f"3 of 3 pass ({1 + dense} of them would pass with zeros, too); " in text
    for number in (1, 2):
        part = invoke(*judged, "--shard", f"{number}/2", "--json", cwd=tmp_path)
        (tmp_path / str(number)).write_text(part)
    text = invoke("merge", "1", "2", "-o", "all", cwd=tmp_path)
    assert f"3 pass ({1 + dense} of them would pass with zeros, too)" in text
    assert (tmp_path / "all").read_text() == invoke(*judged, "--json", cwd=tmp_path)
    np.save(tmp_path / "chip/a.npy", np.zeros((1, 2, 60, 60), np.float16))
    assert "pass  a: " in invoke(*judged, cwd=tmp_path)  # so the sentence is true


def test_shards_without_a_case_are_merged_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shards of one case: the results of both make the whole."""
    monkeypatch.chdir(tmp_path)
    Path("cases").write_text("name,case\na,avg2d:2x3x7x11:k3\n")
    in_process("run", "cases", "--save", "chip")
    for number in "12":
        in_process("golden", "cases", "-o", f"golden{number}", "--shard", f"{number}/2", "--jobs", 1)
        Path(number).write_text(in_process("compare", "chip", f"golden{number}", "--json"))
    assert "shard 2/2 is missing; give all 2" in in_process("merge", "1", "-o", "all", rc=2)
    assert "1 cases of 2 parts, 1 pass" in in_process("merge", "1", "2", "-o", "all")
    Path("bad").write_text("name,case\nq,avg2d:1x1x3x3:k9\n")
    in_process("golden", "bad", "-o", "none", "--jobs", 1, rc=1)
    assert "has no case" in in_process("compare", "chip", "none", rc=2)


def test_a_pack_judges_no_copy_of_itself(sets: Path) -> None:
    invoke("golden", "cases", "-o", "golden", "--pack", "set.tar", cwd=sets)
    shutil.copytree(sets / "golden", sets / "copy")
    for place, judge in (("golden", "set.tar"), ("copy", "set.tar"), ("copy", "golden")):
        text = flat(invoke("compare", place, judge, cwd=sets, rc=2))
        assert f"{place} has the manifest of {judge}: it is the golden data, or a copy" in text
    (sets / "copy/manifest.jsonl").unlink()
    for judge in ("set.tar", "golden"):
        assert "4 of 4 pass" in invoke("compare", "copy", judge, cwd=sets)


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_is_not_judged_by_a_link_to_itself(link: Callable[..., None], sets: Path) -> None:
    link(sets / "chip/c.npy", sets / "link.npy")
    text = invoke("compare", "link.npy", "chip/c.npy", cwd=sets, rc=2)
    assert "ACTUAL and GOLDEN are both link.npy; a result must not be judged by itself" in text


def test_a_file_that_is_not_read_is_named(sets: Path) -> None:
    """`a` is a gradient, so a newer result under the name of a forward's would be overlooked."""
    for case, file in (("a", "output.npy"), ("b", "grad_input.bin")):
        (sets / "chip" / case).mkdir()
        save(sets / "chip" / case / file, np.ones(3))
    invoke("golden", "cases", "-o", "golden", "--pack", "set.tar", cwd=sets)
    for golden in ("golden", "set.tar"):
        text = invoke("compare", "chip", golden, cwd=sets)
        assert "extra chip/a/output.npy: no case" in text
        assert "extra chip/b/grad_input.bin" in text or "extra chip/b/grad_input.npy" in text


@pytest.mark.parametrize("suffix", ["npy", "bin"])
def test_files_without_a_cell_are_no_pass(suffix: str, tmp_path: Path) -> None:
    """A program that failed leaves such files."""
    one, other = (tmp_path / f"{name}.{suffix}" for name in ("a", "g"))
    for file in (one, other):
        file.touch() if suffix == "bin" else save(file, np.zeros((0, 3)))
    text = invoke("compare", one, other, "--dtype", "f32", rc=2)
    assert f"a.{suffix}: the file has no cell; it must have cells" in text


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_result_that_is_a_link_to_the_golden_one_is_no_pass(link: object, sets: Path) -> None:
    shutil.copytree(sets / "golden", sets / "linked", copy_function=link)  # type: ignore[arg-type]
    (sets / "linked/manifest.jsonl").unlink()
    text = invoke("compare", sets / "linked", sets / "golden", rc=2)
    file = "c/grad_input.npy"
    reason = f"the file is {sets / 'golden' / file}; a result must not be judged by itself"
    assert f"error c: {sets / 'linked' / file}: {reason}" in text
    assert "0 of 4 pass, 4 could not be compared" in text


@pytest.mark.parametrize("file", ["grad_input_float64.npy", "indices.bin"])
def test_a_result_that_is_a_link_to_another_golden_file_is_no_pass(file: str, sets: Path) -> None:
    """The float64 result of float64 is the golden one, too."""
    invoke("golden", "cases", "-o", "wide", "--float64", "--jobs", 1, cwd=sets)
    name = "d" if file.endswith(".npy") else "b"
    role, _, ending = file.partition(".")
    result = sets / "chip" / (f"d.{ending}" if name == "d" else f"b.{role}.{ending}")
    for path in (sets / "chip").glob(f"{name}*.npy" if name == "d" else "b.indices.npy"):
        path.unlink()
    result.symlink_to(sets / "wide" / name / file)
    text = invoke("compare", "chip", "wide", cwd=sets, rc=2)
    assert f"error {name}: chip/{result.name}: the file is wide/{name}/{file}; a result must not be" in text


def test_shards_judge_no_copy_of_the_whole(sets: Path) -> None:
    invoke("golden", "cases", "-o", "shard", "--shard", "2/2", "--jobs", 1, cwd=sets)
    for pair in (("golden", "shard"), ("shard", "golden")):
        assert "a result must not be judged by itself" in flat(invoke("compare", *pair, cwd=sets, rc=2))


@pytest.mark.parametrize("broken", ["link", "folder"])
def test_no_older_result_takes_the_place_of_one_that_can_not_be_read(broken: str, sets: Path) -> None:
    place = sets / "chip/c/grad_input.npy"
    place.parent.mkdir()
    place.symlink_to("gone") if broken == "link" else place.mkdir()
    text = invoke("compare", "chip", "golden", cwd=sets, rc=2)
    assert "error c: chip/c/grad_input.npy" in text
    assert "3 of 4 pass, 1 could not be compared" in text


def test_a_result_that_is_a_link_to_the_third_one_is_no_pass(sets: Path) -> None:
    np.save(sets / "chip/c.npy", np.load(sets / "chip/c.npy") * np.float32(1.01))
    shutil.copytree(sets / "chip", sets / "third", copy_function=os.link)
    options = ("--standard", "two", "--third", "third")
    text = invoke("compare", "chip", "golden", *options, cwd=sets, rc=2)
    assert "error c: chip/c.npy: the file is third/c.npy; a result must not be judged by itself" in text


def test_pools_of_a_dump_without_golden_data_are_named(sets: Path) -> None:
    calls = {
        f"Functional.{name}.0.forward": {
            "input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1, 2, 7, 9]}],
            "input_kwargs": {"kernel_size": {"type": "int", "value": 3}},
        }
        for name in ("avg_pool2d", "max_pool2d", "lp_pool2d")
    }
    document = {"task": "tensor", "level": "L1", "dump_data_dir": "", "data": calls}
    for name, kept in (("one", 1), ("dump", 3)):
        (sets / name).mkdir()
        document["data"] = dict(list(calls.items())[:kept])
        (sets / name / "dump.json").write_text(json.dumps(document))
    invoke("golden", "--from", "one", "-o", "of-one", cwd=sets)
    text = invoke("compare", "dump", "of-one", cwd=sets, rc=2)  # the dump has no tensors
    path = "dump/dump_tensor_data/Functional.max_pool2d.0.forward"
    assert f"extra {path}: no case of the golden data has this name" in text
    assert text.count("extra") == 1
    (sets / "dump/dump.json").write_text("{")
    assert "dump/dump.json: " in invoke("compare", "dump", "of-one", cwd=sets, rc=2)


@pytest.mark.parametrize("tool", ["msOpST", "ATK"])
def test_a_parameter_that_a_case_has_twice_is_refused(tool: str, tmp_path: Path) -> None:
    def input_of(size: int) -> dict[str, object]:
        types = {"dtype": "fp16"} if tool == "ATK" else {}
        kind = "tensor" if tool == "ATK" else "float16"
        return {"name": "self", "type": kind, "format": "ND", "shape": [1, 1, size, size], **types}

    def size_of(size: int) -> dict[str, object]:
        return {"name": "kernelSize", "type": "attr", "range_values": [size] * 2, "value": [size] * 2}

    def case(number: int, inputs: list[int], kernels: list[int]) -> dict[str, object]:
        tensors, attributes = [input_of(n) for n in inputs], [size_of(n) for n in kernels]
        if tool == "ATK":
            return {"id": number, "name": "AvgPool2d", "inputs": tensors + attributes}
        name = f"AvgPool2d_{number}"
        return {"case_name": name, "op": "AvgPool2d", "input_desc": tensors, "attr": attributes}

    cases = [case(1, [7], [3]), case(2, [7, 9], [3]), case(3, [7], [3, 2])]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    text = invoke("golden", "--from", tmp_path / "cases.json", "-o", tmp_path / "golden", rc=1)
    assert "line 2 (AvgPool2d_2): input is there twice; it must be there once" in text
    assert "line 3 (AvgPool2d_3): kernel is there twice; it must be there once" in text
    assert "1 of 3 cases, 2 bad" in text


def test_shards_of_golden_data_of_two_lists_do_not_merge(sets: Path) -> None:
    """The first list's `b` and `d` were never compared."""
    (sets / "other").write_text(CASES.replace("\na,avg2d", "\na,avg2d_forward"))
    invoke("golden", "cases", "-o", "one", "--shard", "1/2", cwd=sets)
    invoke("golden", "other", "-o", "two", "--shard", "2/2", cwd=sets)
    for name in ("one", "two"):
        (sets / f"{name}.jsonl").write_text(invoke("compare", "chip", name, "--json", cwd=sets))
    text = invoke("merge", "one.jsonl", "two.jsonl", "-o", "all.jsonl", cwd=sets, rc=2)
    assert "the golden data were made from different lists of cases; they must be of one" in flat(text)


def test_results_of_two_chips_do_not_merge(sets: Path) -> None:
    for number, label in ((1, "chip A"), (2, "chip B")):
        share = ("--shard", f"{number}/2", "--label", label)
        (sets / str(number)).write_text(invoke("compare", "chip", "golden", *share, "--json", cwd=sets))
    text = invoke("merge", "1", "2", "-o", "all.jsonl", cwd=sets, rc=2)
    assert "1 and 2: the labels are chip A and chip B; they must be one" in flat(text)
    (sets / "2").write_text((sets / "2").read_text().replace("chip B", "chip A"))
    invoke("merge", "1", "2", "-o", "all.jsonl", "--report", "report.html", cwd=sets)
    assert "chip A" in (sets / "report.html").read_text()


def test_a_part_without_the_verdict_that_decides_is_refused(sets: Path) -> None:
    *lines, last = invoke("compare", "chip", "golden", "--json", cwd=sets).splitlines()
    record = json.loads(lines[1])
    del record["verdicts"]["mixed"]
    (sets / "part").write_text(
        "\n".join([lines[0], json.dumps(record), *lines[2:], last.replace("4", "3", 1)])
    )
    text = invoke("merge", "part", "-o", "all.jsonl", cwd=sets, rc=2)
    assert "1 of 4 cases have no verdict of the standard mixed" in flat(text)


def test_merged_shares_of_a_shard_are_not_the_whole(sets: Path) -> None:
    invoke("golden", "cases", "-o", "one", "--shard", "1/2", cwd=sets)
    for number in "12":
        share = ("--shard", f"{number}/2", "--json")
        (sets / number).write_text(invoke("compare", "chip", "one", *share, cwd=sets))
    text = invoke("merge", "1", "2", "-o", "all.jsonl", cwd=sets)
    assert "the golden data are shard 1/2 of a set, and the other shards have the other cases" in flat(text)
