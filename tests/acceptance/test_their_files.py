"""Files of other tools: msprobe's dump and table, msOpST's and ATK's cases, and the functions that they call."""

from __future__ import annotations

import copy
import csv
import importlib
import io
import json
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from commandline import invoke, pooltide, results_of
from dump_model import dump
from pooltide.acceptance.cases import CasesError, Line
from pooltide.acceptance.foreign import read_cases
from pooltide.acceptance.hooks import execute, expectation, golden_function
from pooltide.acceptance.msprobe_csv import HEADER
from pooltide.problem.rounding import round_once

# As msprobe's documentation has it, in the order of its table
COLUMNS = (
    "API Name,Bench Dtype,DEVICE Dtype,Shape,余弦相似度,最大绝对误差,双百指标,双千指标,双万指标,二进制一致错误率,误差均衡性,"
    "均方根误差,小值域错误占比,相对误差最大值,相对误差平均值,inf/nan错误率,相对误差错误率,绝对误差错误率,ULP误差最大值,"
    "ULP误差平均值,ULP误差大于阈值占比,Status,Message"
)


def cases_of(path: Path, content: Any) -> list[Line]:
    path.write_text(json.dumps(content))
    return list(read_cases(path))


# msprobe's dump


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("msprobe")
    dump(directory / "dump")
    invoke("golden", "--from", directory / "dump/dump.json", "-o", directory / "golden", "--jobs", 1)
    return directory


def test_the_pools_of_a_dump_become_cases(dumped: Path) -> None:
    found = {line.name: str(line.case) for line in read_cases(dumped / "dump/dump.json")}
    assert found == {
        "Functional.avg_pool2d.0.forward": "avg2d_forward:2x3x23x29:k3:s2:p1:f32:given",
        "Functional.max_pool2d.0.forward": "max2d_forward:2x3x12x15:k2x3:s2x2:f32:given",
        "Functional.adaptive_avg_pool2d.0.forward": "adaptive_avg2d_forward:2x3x6x7:o3x7:f32:given",
        "Functional.max_pool2d.1.forward": "max2d_forward:2x3x3x7:k2:bf16:given",
        "Functional.max_pool2d.1.backward": "max2d:2x3x3x7:k2:bf16:i64:given",
        "Functional.adaptive_avg_pool2d.0.backward": "adaptive_avg2d:2x3x6x7:o3x7:f32:given",
        "Functional.max_pool2d.0.backward": "max2d:2x3x12x15:k2x3:s2x2:f32:i64:given",
        "Functional.avg_pool2d.0.backward": "avg2d:2x3x23x29:k3:s2:p1:f32:given",
    }


def test_golden_data_have_the_dumped_tensors(dumped: Path) -> None:
    tensors = dumped / "dump/dump_tensor_data"
    for name, role in (
        ("Functional.avg_pool2d.0.forward", "input"),
        ("Functional.max_pool2d.0.backward", "grad_output"),
    ):
        theirs = torch.load(tensors / f"{name}.input.0.pt", weights_only=True).numpy()
        np.testing.assert_array_equal(np.load(dumped / "golden" / name / f"{role}.npy"), theirs)
    half = torch.load(tensors / "Functional.max_pool2d.1.forward.input.0.pt", weights_only=True)
    ours = np.fromfile(dumped / "golden/Functional.max_pool2d.1.forward/input.bin", ml_dtypes.bfloat16)
    np.testing.assert_array_equal(ours.astype("f4"), half.float().numpy().ravel())


def test_a_dump_is_compared_with_its_golden_data(dumped: Path) -> None:
    assert "8 of 8 pass" in invoke("compare", dumped / "dump", dumped / "golden")
    text = invoke("compare", dumped / "dump", dumped / "golden", "--standard", "bits", rc=1)
    assert (
        f"reproduce: pooltide compare {dumped}/dump {dumped}/golden --only Functional.avg_pool2d.0.forward "
        "--standard bits -v" in text
    )
    failed = [line for line in text.splitlines() if line.startswith("FAIL")]
    assert failed
    assert all(
        "Functional.avg_pool2d" in line for line in failed
    )  # PyTorch's float32 sums; all else is exact


@pytest.mark.parametrize("change", ["no call", "no name", "a path", "no file", "no dump", "beside"])
@pytest.mark.parametrize("folder", ["", "step0/rank1"])
def test_only_the_files_that_dump_json_names_are_results(
    folder: str, change: str, dumped: Path, tmp_path: Path
) -> None:
    """A right file is there in each case: what an earlier dump left, or what lies there by its name."""
    name = "Functional.avg_pool2d.0.backward"
    case = f"{folder}/{name}".lstrip("/").replace("/", ".")
    place = tmp_path / "dump" / folder
    shutil.copytree(dumped / "dump", place)
    invoke("golden", "--from", tmp_path / "dump", "-o", tmp_path / "golden", "--jobs", 1)
    assert "8 of 8 pass" in invoke("compare", tmp_path / "dump", tmp_path / "golden")
    file = place / f"dump_tensor_data/{name}.output.0.pt"
    document = json.loads((place / "dump.json").read_text())
    output = document["data"][name]["output"][0]
    match change:
        case "no call":
            del document["data"][name]
        case "no name":
            del output["data_name"]
        case "a path":
            output["data_name"] = f"../dump_tensor_data/{file.name}"
        case "no file":
            output["data_name"] = "gone.pt"
        case "beside":
            del output["data_name"]
            shutil.copy(file, tmp_path / f"dump/{case}.pt")
    (place / "dump.json").write_text(json.dumps(document))
    if change == "no dump":
        (place / "dump.json").unlink()
        if folder:  # another rank's dump is there
            shutil.copytree(dumped / "dump", tmp_path / "dump/step0/rank0")
    text = invoke("compare", tmp_path / "dump", tmp_path / "golden", "--only", case, rc=2)
    must = (
        f"no result for {case}; it must be in {file}, or with the ending .npy, and dump.json must name that"
    )
    assert f"error {case}: " in text
    assert ("dump_tensor_data/gone.pt: can't be read: No such file" if change == "no file" else must) in text


def test_a_changed_data_name_is_the_file_that_is_judged(dumped: Path, tmp_path: Path) -> None:
    shutil.copytree(dumped / "dump", tmp_path / "dump")
    name = "Functional.avg_pool2d.0.backward"
    file = tmp_path / f"dump/dump_tensor_data/{name}.output.0.pt"
    torch.save(-torch.load(file), file.with_name("new.pt"))
    document = changed(tmp_path, "data", name, "output", 0, "data_name", to="new.pt")
    (tmp_path / "dump/dump.json").write_text(json.dumps(document))
    text = invoke("compare", tmp_path / "dump", dumped / "golden", rc=1)
    assert f"FAIL  {name}: mixed" in text
    assert "7 of 8 pass, 1 fail" in text
    shutil.copytree(dumped / "dump", tmp_path / "right")
    options = ("--standard", "two", "--third", tmp_path / "dump", "--only", name)
    text = invoke("compare", tmp_path / "right", dumped / "golden", *options, rc=2)
    assert "new.pt: the third result is wrong" in text


def test_given_values_can_not_be_drawn() -> None:
    text = pooltide("run", "avg2d:1x2x5x7:k3:given", rc=2)
    assert (
        "the values of the case are in files, with which golden --from made it; they can't be drawn" in text
    )


def test_a_dump_of_statistics_gives_drawn_values(tmp_path: Path) -> None:
    dump(tmp_path / "dump", "statistics")
    assert not list((tmp_path / "dump/dump_tensor_data").iterdir())
    found = {line.name: line for line in read_cases(tmp_path / "dump/dump.json")}
    case = found["Functional.avg_pool2d.0.forward"].case
    assert case is not None
    assert case.data.distribution == "uniform"
    assert case.data.range is not None
    assert case.data.range[0] == 0  # after relu
    assert case.data.range[1] > 2
    assert "8 of 8 cases, 0 bad" in invoke(
        "golden", "--from", tmp_path / "dump/dump.json", "-o", tmp_path / "g", "--jobs", 1
    )
    values = np.load(tmp_path / "g/Functional.avg_pool2d.0.forward/input.npy")
    assert 0 <= values.min() < 0.1
    assert values.max() <= case.data.range[1]


def changed(dumped: Path, *path: Any, to: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dumped / "dump/dump.json").read_text())
    at: Any = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return found


AVERAGE = ("data", "Functional.avg_pool2d.0.forward")


@pytest.mark.parametrize(
    ("path", "to", "says"),
    [
        (
            (*AVERAGE, "input_args", 0),
            {"type": "int", "value": 3},
            "input is {'type': 'int', 'value': 3}; it must be a tensor",
        ),
        ((*AVERAGE, "input_args", 0, "shape"), "23", "the shape is 23; it must be a list of whole numbers"),
        (
            (*AVERAGE, "input_args", 0, "dtype"),
            "torch.complex64",
            "the dtype is 'torch.complex64'; it must be float32",
        ),
        (
            (*AVERAGE, "input_args", 0, "data_name"),
            "../x.pt",
            "data_name is '../x.pt'; it must be the name of a file",
        ),
        (
            (*AVERAGE, "input_args", 1),
            {"type": "int"},
            "an argument is {'type': 'int'}; it must have a value",
        ),
        ((*AVERAGE, "input_args", 1), "3", "an argument is 3; it must be a whole number or a flag"),
        ((*AVERAGE, "input_args"), None, "input_args must be a list"),
        ((*AVERAGE, "input_kwargs", "size"), 3, "the call has the argument 'size', which avg_pool2d"),
        (AVERAGE, [], "the call is no object"),
        (("data", "Functional.avg_pool2d.0.backward", "input"), [], "input is missing; it must be a list"),
    ],
)
def test_a_strange_call_of_a_dump_is_the_error_of_its_line(
    path: tuple[Any, ...], to: Any, says: str, dumped: Path, tmp_path: Path
) -> None:
    found = cases_of(tmp_path / "dump.json", changed(dumped, *path, to=to))
    errors = [line.error for line in found if line.case is None]
    assert any(says in error for error in errors), errors
    assert len(errors) <= 2  # the forward, and the gradient that needs it
    assert sum(line.case is not None for line in found) >= 6


def test_files_of_a_dump_that_can_not_be_read(dumped: Path, tmp_path: Path) -> None:
    shutil_copy = tmp_path / "dump"
    dump(shutil_copy)
    tensors = shutil_copy / "dump_tensor_data"
    (tensors / "Functional.avg_pool2d.0.forward.input.0.pt").write_bytes(b"PK\x03\x04 cut short")
    (tensors / "Functional.max_pool2d.0.forward.input.0.pt").unlink()
    torch.save({"a": 1}, tensors / "Functional.adaptive_avg_pool2d.0.forward.input.0.pt")
    torch.save(torch.zeros(3, dtype=torch.bfloat16), tensors / "Functional.max_pool2d.1.forward.input.0.pt")
    text = " ".join(
        invoke("golden", "--from", shutil_copy / "dump.json", "-o", tmp_path / "g", "--jobs", 1, rc=1).split()
    )
    assert "Functional.avg_pool2d.0.forward.input.0.pt: PyTorch can't read the file of 14 bytes" in text
    assert "Functional.max_pool2d.0.forward.input.0.pt: can't be read: No such file" in text
    assert "the file holds a dict; it must hold a dense tensor" in text
    assert "the file has shape (3,); it must be (2, 3, 3, 7)" in text
    assert "reproduce: pooltide run" not in text


def test_a_pickle_in_a_tensor_file_is_never_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "exploded",)

    torch.save(Bomb(), tmp_path / "a.pt")
    np.save(tmp_path / "g.npy", np.ones(3, np.float32))
    assert "PyTorch can't read the file" in invoke("compare", tmp_path / "a.pt", tmp_path / "g.npy", rc=2)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file is no JSON"),
        ("[" * 100_000, "the file is no JSON"),
        ("{}", "the file is no dump.json of msprobe and no case file of msOpST or ATK"),
        ("[]", "the file is no dump.json"),
        ("[1, 2]", "the file is no dump.json"),
        ('{"data": {}, "dump_data_dir": "", "level": "L0"}', "level is 'L0'; it must be L1 or mix"),
        ('{"data": {}, "dump_data_dir": "", "level": "L1"}', "has no pool"),
    ],
)
def test_files_of_no_known_tool(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    assert says in " ".join(
        invoke("golden", "--from", tmp_path / "x.json", "-o", tmp_path / "g", rc=2).split()
    )
    assert not (tmp_path / "g").exists()


def test_a_case_file_of_ours_is_given_without_from(tmp_path: Path) -> None:
    (tmp_path / "cases.txt").write_text("avg2d:1x2x3x4:k1\n")
    text = invoke("golden", "--from", tmp_path / "cases.txt", "-o", tmp_path / "g", rc=2)
    assert "a case file of pooltide is given without --from" in text


def test_golden_takes_one_source(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    for arguments in ((), ("avg2d:1x2x3x4:k1", "--from", tmp_path / "x.json")):
        assert "give PROBLEM or --from, one of them" in invoke(
            "golden", *arguments, "-o", tmp_path / "g", rc=2
        )


# msprobe's table


def table(path: Path) -> list[dict[str, str]]:
    content = path.read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    assert content.splitlines()[0].decode("utf-8-sig") == COLUMNS
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))


def test_the_table_has_msprobes_columns_and_statuses(dumped: Path, tmp_path: Path) -> None:
    assert ",".join(HEADER) == COLUMNS
    results = tmp_path / "results"
    results.mkdir()
    for name, factor in (
        ("avg_pool2d.0.forward", 1.0),
        ("max_pool2d.0.forward", 1.00095),
        ("adaptive_avg_pool2d.0.forward", -1.0),
    ):
        values = np.load(dumped / f"golden/Functional.{name}/output.npy")
        np.save(results / f"Functional.{name}.npy", values * np.float32(factor))
    rc = 2  # the other results are missing
    invoke("compare", results, dumped / "golden", "--csv", tmp_path / "details.csv", rc=rc)
    rows = {row["API Name"]: row for row in table(tmp_path / "details.csv")}
    good = rows["Functional.avg_pool2d.0.forward.output.0"]
    assert (good["Status"], good["Message"], good["余弦相似度"]) == ("pass", "", "1.0")
    assert (good["Bench Dtype"], good["DEVICE Dtype"], good["Shape"]) == (
        "torch.float32",
        "torch.float32",
        "[2, 3, 12, 15]",
    )
    off = rows["Functional.max_pool2d.0.forward.output.0"]
    assert off["Status"] == "warning"  # 9.5e-4 everywhere: thousandth passes, tenthousandth fails
    assert off["Message"].startswith("tenthousandth: 252 of 252 cells have rel 0.0001 or more")
    assert (off["双百指标"], off["双千指标"], off["双万指标"]) == ("1.0", "1.0", "0.0")
    wrong = rows["Functional.adaptive_avg_pool2d.0.forward.output.0"]
    assert (wrong["Status"], wrong["余弦相似度"]) == ("error", "-1.0")
    missing = rows["Functional.max_pool2d.1.backward.output.0"]
    assert missing["Status"] == "SKIP"
    assert "no result for" in missing["Message"]


def test_the_figures_of_the_table_by_hand(tmp_path: Path) -> None:
    golden, actual = (
        np.array([4, 2**-15, 3, 0], np.float32),
        np.array([4.25, 2**-15 + 2**-29, 3, 0], np.float32),
    )
    np.save(tmp_path / "g.npy", golden)
    np.save(tmp_path / "a.npy", actual)
    invoke("compare", tmp_path / "a.npy", tmp_path / "g.npy", "--csv", tmp_path / "d.csv", rc=1)
    (row,) = table(tmp_path / "d.csv")
    assert float(row["最大绝对误差"]) == 0.25
    assert row["双千指标"] == "0.75"
    assert row["二进制一致错误率"] == "0.5"
    assert row["误差均衡性"] == "0.5"
    assert row["小值域错误占比"] == row["绝对误差错误率"] == "0.5"
    assert float(row["均方根误差"]) == pytest.approx(0.125)
    assert float(row["ULP误差最大值"]) == 0.25 / 2**-21
    assert row["ULP误差大于阈值占比"] == "0.5"
    assert (row["inf/nan错误率"], row["相对误差错误率"]) == ("0.0", " ")
    assert row["Status"] == "error"


def test_the_table_has_a_row_for_indices(tmp_path: Path) -> None:
    invoke("golden", "max2d_forward:2x3x11x13:k3:i64", "-o", tmp_path / "g")
    chip = results_of(tmp_path / "g", tmp_path / "chip")
    invoke("compare", chip, tmp_path / "g", "--csv", tmp_path / "d.csv")
    rows = table(tmp_path / "d.csv")
    assert [row["API Name"] for row in rows] == ["case", "case.output.1"]
    assert (rows[1]["DEVICE Dtype"], rows[1]["二进制一致错误率"], rows[1]["Status"]) == (
        "torch.int64",
        "0.0",
        "pass",
    )


# msOpST


def opst(**changes: Any) -> dict[str, Any]:
    case = {
        "case_name": "Test_AvgPool2dBackward_001",
        "op": "AvgPool2dBackward",
        "input_desc": [
            {"format": ["NCHW"], "type": ["float16"], "shape": [2, 3, 5, 6], "data_distribute": ["uniform"], "value_range": [[0.1, 1.0]], "name": "gradOutput"},
            {"format": ["NCHW"], "type": ["float16"], "shape": [2, 3, 11, 13], "data_distribute": ["uniform"], "value_range": [[0.1, 1.0]], "name": "self"},
        ],
        "output_desc": [{"format": ["NCHW"], "type": ["float16"], "shape": [2, 3, 11, 13], "name": "gradInput"}],
        "attr": [
            {"name": "kernelSize", "type": "list_int", "value": [3, 3]},
            {"name": "stride", "type": "list_int", "value": [2, 2]},
            {"name": "padding", "type": "list_int", "value": [0, 0]},
            {"name": "ceilMode", "type": "bool", "value": False},
            {"name": "countIncludePad", "type": "bool", "value": False},
            {"name": "divisorOverride", "type": "int", "value": 0},
            {"name": "cubeMathType", "type": "int", "value": 0},
        ],
    }  # fmt: skip
    return case | changes


def test_cases_of_msopst(tmp_path: Path) -> None:
    (line,) = cases_of(tmp_path / "c.json", [opst()])
    assert (line.name, str(line.case)) == (
        "Test_AvgPool2dBackward_001",
        "avg2d:2x3x11x13:k3x3:s2x2:p0x0:nopad:f16:NCHW:uniform:range0.1x1.0",
    )
    two = opst()
    for one in two["input_desc"]:
        one |= {"type": ["float16", "float"], "format": ["NCHW", "NCHW"]}
    found = cases_of(tmp_path / "c.json", [opst(), two | {"case_name": "b"}])
    assert [(line.name, line.case and line.case.dtype.name) for line in found[1:]] == [
        ("b_01", "FLOAT16"),
        ("b_02", "FLOAT32"),
    ]
    unnamed = opst()
    for one in unnamed["input_desc"]:
        del one["name"]
    assert str(cases_of(tmp_path / "c.json", [unnamed])[0].case) == str(line.case)


def test_a_forward_and_a_maximum_of_msopst(tmp_path: Path) -> None:
    x = {
        "format": "ND",
        "type": "float",
        "shape": [2, 3, 11, 13],
        "data_distribute": "normal",
        "value_range": [0, 2],
        "name": "input",
    }
    forward = {
        "case_name": "f",
        "op": "avg_pool2d",
        "input_desc": [x],
        "attr": [{"name": "kernel_size", "type": "int", "value": 3}],
    }
    grad = x | {"shape": [2, 3, 4, 5], "name": "gradOutput"}
    index = x | {"shape": [2, 3, 4, 5], "name": "indices", "type": "int64"}
    maximum = {
        "case_name": "m",
        "op": "aclnnAdaptiveMaxPool2dBackward",
        "input_desc": [grad, x | {"name": "self"}, index],
    }
    found = cases_of(tmp_path / "c.json", [forward, maximum])
    assert [line.error for line in found] == ["", ""]
    assert str(found[0].case) == "avg2d_forward:2x3x11x13:k3:f32:ND:range0.0x2.0"
    assert str(found[1].case) == "adaptive_max2d:2x3x11x13:o4x5:f32:i64:ND:range0.0x2.0"


def test_given_values_of_msopst(tmp_path: Path) -> None:
    values = np.arange(2 * 5 * 6, dtype=np.float32).reshape(2, 5, 6)
    x = {"format": "ND", "type": "float", "shape": [2, 5, 6], "name": "input"}
    attr = [{"name": "kernel_size", "type": "int", "value": 2}]
    values.tofile(tmp_path / "x.bin")
    cases = [
        {"case_name": "file", "op": "max_pool2d", "input_desc": [x | {"value": "x.bin"}], "attr": attr},
        {
            "case_name": "list",
            "op": "max_pool2d",
            "input_desc": [x | {"value": values.tolist()}],
            "attr": attr,
        },
        {"case_name": "short", "op": "max_pool2d", "input_desc": [x | {"value": [1, 2]}], "attr": attr},
        {"case_name": "text", "op": "max_pool2d", "input_desc": [x | {"value": ["a"]}], "attr": attr},
    ]
    (tmp_path / "c.json").write_text(json.dumps(cases))
    text = invoke("golden", "--from", tmp_path / "c.json", "-o", tmp_path / "g", "--jobs", 1, rc=1)
    assert "line 3 (short): the case has 2 values; shape (2, 5, 6) needs another number" in text
    assert "line 4 (text): value: the values must be numbers" in text
    for name in ("file", "list"):
        np.testing.assert_array_equal(np.load(tmp_path / "g" / name / "input.npy"), values)
        np.testing.assert_array_equal(np.load(tmp_path / "g" / name / "output.npy"), values[:, 1:5:2, 1::2])


def test_given_indices_of_msopst(tmp_path: Path) -> None:
    """They are in the golden data as they are in the file, or the case has an error."""

    def made(name: str, indices: list[int], gradient: list[int] | None) -> dict[str, Any]:
        g, at = ({"format": "ND", "type": kind, "shape": [1, 2, 2]} for kind in ("float", "int32"))
        inputs = [g | {"name": "gradOutput"}, g | {"name": "self", "shape": [1, 4, 4]}]
        inputs.append(at | {"name": "indices", "value": indices})
        if gradient:
            inputs[0]["value"] = gradient
        attr = [{"name": "kernel_size", "type": "int", "value": 2}]
        return {"case_name": name, "op": "max_pool2d_backward", "input_desc": inputs, "attr": attr}

    cases = [made("good", [0, 2, 8, 15], [1, 2, 3, 4]), made("alone", [0, 2, 8, 15], None)]
    cases += [made("far", [0, 2, 8, 16], [1, 2, 3, 4]), made("negative", [0, -1, 8, 15], [1, 2, 3, 4])]
    (tmp_path / "c.json").write_text(json.dumps(cases))
    text = invoke("golden", "--from", tmp_path / "c.json", "-o", tmp_path / "g", "--jobs", 1, rc=1)
    assert "(alone): indices has a value and grad_output has none; give both, or neither" in text
    assert "(far): indices[0, 1, 1] is 16; it must be 0 to 15, inside the 4×4 plane" in text
    assert "(negative): indices[0, 0, 1] is -1; it must be 0 to 15" in text
    assert "1 of 4 cases, 3 bad" in text
    found = np.load(tmp_path / "g" / "good" / "grad_input.npy").ravel()
    assert [*np.flatnonzero(found)] == [0, 2, 8, 15]
    assert [*found[found > 0]] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("path", "to", "says"),
    [
        (("op",), "Conv2D", "op is 'Conv2D'; it must be an operator that pooltide ops lists"),
        (("input_desc",), [], "input_desc must be a list of objects"),
        (("input_desc", 0, "name"), "x", "an input is called 'x'; avg_pool2d_backward has no such input"),
        (("input_desc", 0, "type"), ["float16", "float"], "type must have the same number of values"),
        (("input_desc", 0, "type"), ["fuzz"], "type is 'fuzz'; it must be the name of a type"),
        (("input_desc", 1, "shape"), [[1, 2], [3, 4]], "shape has several shapes; give each its own case"),
        (("input_desc", 1, "shape"), "fuzz", "the shape is fuzz; it must be a list of whole numbers"),
        (
            ("input_desc", 0, "data_distribute"),
            ["beta"],
            "data_distribute is 'beta'; it must be uniform or normal",
        ),
        (("input_desc", 0, "value_range"), [[1]], "the range of the values is [1]; it must be two numbers"),
        (
            ("input_desc", 0, "value_range"),
            [[2, 1]],
            "the range is 2.0 to 1.0; it must be finite numbers, the first not larger",
        ),
        (
            ("attr", 0, "name"),
            "ksize",
            "an attribute is called 'ksize'; avg_pool2d_backward has no such attribute",
        ),
        (("attr", 0, "value"), "x", "word 'kx' is unknown"),
        (("attr", 0), 3, "attr must be a list of objects"),
    ],
)
def test_strange_cases_of_msopst(path: tuple[Any, ...], to: Any, says: str, tmp_path: Path) -> None:
    case = copy.deepcopy(opst())
    at: Any = case
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    (line,) = cases_of(tmp_path / "c.json", [case])
    assert line.case is None
    assert says in line.error


# ATK


def test_cases_of_atk(tmp_path: Path) -> None:
    tensor = {"type": "tensor", "dtype": "bf16", "range_values": [-2, 2]}
    inputs = [
        tensor | {"name": "gradOutput", "shape": [2, 3, 2, 3, 4]},
        tensor | {"name": "self", "shape": [2, 3, 5, 7, 11]},
    ]
    forward = [
        tensor | {"name": "input", "shape": [2, 3, 11, 13]},
        {"name": "kernel_size", "type": "attr", "dtype": "int", "range_values": 3},
        {"name": "ceil_mode", "type": "attr", "dtype": "bool", "range_values": True},
    ]
    cases = [
        {"id": 7, "name": "aclnnAdaptiveAvgPool3dBackward", "inputs": inputs},
        {"id": 8, "name": "torch.nn.functional.avg_pool2d", "inputs": forward},
        {"id": 9, "name": "torch.median", "inputs": []},
        {"id": 10, "name": "avg_pool2d", "inputs": [{"name": "x", "type": "tensor"}]},
        {"id": 11, "name": "avg_pool2d", "inputs": 3},
    ]
    for content in (cases, {"cases": cases}):
        good, pool, *bad = cases_of(tmp_path / "c.json", content)
        assert (good.name, str(good.case)) == (
            "aclnnAdaptiveAvgPool3dBackward_7",
            "adaptive_avg3d:2x3x5x7x11:o2x3x4:bf16:uniform:range-2.0x2.0",
        )
        assert str(pool.case) == "avg2d_forward:2x3x11x13:k3:ceil:bf16:uniform:range-2.0x2.0"
        assert [line.case for line in bad] == [None] * 3
        assert "name is 'torch.median'; it must be an operator" in bad[0].error
        assert "an input is called 'x'; avg_pool2d has no such input" in bad[1].error
        assert "inputs must be a list of objects" in bad[2].error


def test_a_device_is_no_case_file() -> None:
    with pytest.raises(CasesError, match="can't be read"):
        list(read_cases(Path("/nonexistent/x.json")))


# Functions that they call


def test_a_golden_function_computes_in_float64_and_rounds_once() -> None:
    g = np.random.default_rng(3).standard_normal((2, 3, 5, 6)).astype(np.float16)
    found = golden_function("avg_pool2d_backward")(g, (2, 3, 11, 13), 3, 2)
    x = torch.zeros(2, 3, 11, 13, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.avg_pool2d(x, 3, 2).backward(torch.from_numpy(g).double())
    assert x.grad is not None
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, x.grad.numpy().astype(np.float16))
    values, indices = golden_function("max_pool2d")(g, 2, return_indices=True)
    assert (values.dtype, indices.dtype) == (np.float16, np.int64)
    with pytest.raises(TypeError, match="no array of floats"):
        golden_function("avg_pool2d")(3, 2)


def described(array: np.ndarray) -> dict[str, Any]:
    return {"value": array, "dtype": str(array.dtype), "shape": list(array.shape), "format": "ND"}


def test_the_example_for_msopst() -> None:
    """As msOpST calls it: everything by name, tensors as dicts."""
    example = importlib.import_module("pooltide.examples.msopst_expectation")
    g = np.random.default_rng(3).standard_normal((2, 3, 5, 6)).astype(np.float32)
    x = np.zeros((2, 3, 11, 13), np.float32)
    attributes = {
        "kernelSize": [3],
        "stride": [2, 2],
        "padding": [0],
        "ceilMode": False,
        "countIncludePad": True,
        "divisorOverride": 0,
        "cubeMathType": 0,
    }
    out = {"dtype": "float", "shape": [2, 3, 11, 13], "format": "ND"}
    (found,) = example.avg_pool2d_backward(
        gradOutput=described(g), self=described(x), gradInput=out, **attributes
    )
    np.testing.assert_array_equal(found, golden_function("avg_pool2d_backward")(g, x.shape, 3, 2))
    indices = np.tile(np.arange(30, dtype=np.int32).reshape(5, 6), (2, 3, 1, 1))
    (found,) = example.adaptive_max_pool2d_backward(
        gradOutput=described(g), self=described(x), indices=described(indices), gradInput=out
    )
    np.testing.assert_array_equal(found.reshape(2, 3, -1)[..., :30], g.reshape(2, 3, -1))
    values, places = expectation("max_pool2d")(input=described(g), kernel_size=2)
    assert values.shape == places.shape == (2, 3, 2, 3)
    with pytest.raises(TypeError, match="there is no parameter 'x9'"):
        example.avg_pool2d_backward(x9=3)
    with pytest.raises(KeyError, match="no operator"):
        expectation("Conv2D")


def test_the_example_for_atk(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for ATK, which is not installed: its decorator and its base class."""
    registered: dict[str, type] = {}

    def register(name: str) -> Any:
        return lambda kind: registered.setdefault(name, kind)

    modules = {
        name: types.ModuleType(name)
        for name in ("atk", "atk.tasks", "atk.tasks.api_execute", "atk.tasks.api_execute.base_api")
    }
    modules["atk.tasks.api_execute"].register = register  # type: ignore[attr-defined]
    modules["atk.tasks.api_execute.base_api"].BaseApi = object  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "pooltide.examples.atk_executor", raising=False)
    importlib.import_module("pooltide.examples.atk_executor")
    executor = registered["pooltide_avg_pool2d_backward"]()
    for dtype in (torch.float32, torch.bfloat16):
        g = torch.from_numpy(np.random.default_rng(5).standard_normal((2, 3, 5, 6))).to(dtype)
        kwargs = {
            "gradOutput": g,
            "self": torch.zeros(2, 3, 11, 13, dtype=dtype),
            "kernelSize": [3, 3],
            "stride": [2],
            "padding": [0],
            "ceilMode": False,
            "countIncludePad": True,
            "divisorOverride": 0,
            "cubeMathType": 1,
        }
        found = executor(types.SimpleNamespace(args=[], kwargs=kwargs), with_output=True)
        x = torch.zeros(2, 3, 11, 13, dtype=torch.float64, requires_grad=True)
        torch.nn.functional.avg_pool2d(x, 3, 2).backward(g.double())
        assert x.grad is not None
        assert found.dtype == dtype
        # PyTorch would round from float64 to bfloat16 in two steps
        once = round_once(
            x.grad.numpy(), np.dtype(ml_dtypes.bfloat16 if dtype == torch.bfloat16 else np.float32)
        )
        np.testing.assert_array_equal(found.float().numpy(), once.astype(np.float32))
    values, indices = execute("max_pool2d", {"input": torch.randn(2, 5, 6), "kernel_size": 2})
    assert (values.shape, indices.dtype) == ((2, 2, 3), torch.int64)


# Several steps and ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ranks") / "dump"
    for step in (2, 10):
        for rank in (0, 1):
            dump(directory / f"step{step}/rank{rank}")
    (directory / "other").mkdir()
    (directory / "other/dump.json").write_text("{}")
    invoke("golden", "--from", directory, "-o", directory.parent / "golden", "--jobs", 1)
    return directory


def test_steps_and_ranks_are_one_set(ranks: Path) -> None:
    found = list(read_cases(ranks))
    assert [line.number for line in found] == list(range(1, 33))
    starts = list(dict.fromkeys(line.name.partition(".Functional")[0] for line in found))
    assert starts == ["step2.rank0", "step2.rank1", "step10.rank0", "step10.rank1"]
    assert all(line.supplied.source.startswith(f"{ranks}/{line.name[:5].rstrip('.')}") for line in found)


def test_one_comparison_judges_all_ranks(ranks: Path, tmp_path: Path) -> None:
    assert "32 of 32 pass" in invoke("compare", ranks, ranks.parent / "golden")
    shutil.copytree(ranks, tmp_path / "dump")
    name = "Functional.avg_pool2d.0.backward"
    file = tmp_path / f"dump/step10/rank1/dump_tensor_data/{name}.output.0.pt"
    torch.save(torch.load(file) * 2, file)
    text = invoke("compare", tmp_path / "dump", ranks.parent / "golden", rc=1)
    assert f"FAIL  step10.rank1.{name}: mixed" in text
    assert f"pass  step10.rank0.{name}: " in text
    assert "31 of 32 pass, 1 fail" in text
    assert "extra" not in text


def test_a_directory_without_a_dump(tmp_path: Path) -> None:
    text = invoke("golden", "--from", tmp_path, "-o", tmp_path / "out", rc=2)
    assert f"{tmp_path} has no dump.json; it must be a dump of msprobe" in text


def test_pools_that_are_not_ours_are_named_as_skipped(dumped: Path, tmp_path: Path) -> None:
    shutil.copytree(dumped / "dump", tmp_path / "dump")
    file = tmp_path / "dump/dump.json"
    content = json.loads(file.read_text())
    content["data"]["Functional.lp_pool2d.0.forward"] = {"input_args": [], "input_kwargs": {}}
    file.write_text(json.dumps(content))
    text = invoke("golden", "--from", file, "-o", tmp_path / "golden", "--jobs", 1)
    assert "skipped Functional.lp_pool2d.0.forward: pooltide has no lp_pool2d" in text
    assert "8 of 9 cases, 0 bad, 1 skipped" in text
    assert "8 of 8 pass" in invoke("compare", tmp_path / "dump", tmp_path / "golden")


# Tensors that contradict the other arguments


def contradicting(**changes: Any) -> dict[str, Any]:
    tensors = {"gradOutput": [2, 3, 3, 4], "self": [2, 3, 7, 9], "gradInput": [2, 3, 7, 9]}
    inputs = [
        {"name": name, "type": "tensor", "dtype": "fp16", "shape": shape} | changes.get(name, {})
        for name, shape in tensors.items()
    ]
    attributes = {"kernelSize": [3, 3], "stride": [2, 2], "padding": [0, 0], "ceilMode": False}
    attributes |= {"countIncludePad": True, "divisorOverride": 0, "cubeMathType": 0}
    inputs += [{"name": name, "type": "attr", "range_values": value} for name, value in attributes.items()]
    return {"id": 1, "name": "aclnnAvgPool2dBackward", "inputs": inputs}


def test_a_tensor_that_contradicts_the_others_is_refused(tmp_path: Path) -> None:
    def error(**changes: Any) -> str:
        (line,) = cases_of(tmp_path / "a.json", [contradicting(**changes)])
        return line.error

    assert error() == ""
    shape = "avg_pool2d_backward: gradOutput has shape (2, 3, 3, 5); by the other arguments it must be"
    assert error(gradOutput={"shape": [2, 3, 3, 5]}).startswith(f"{shape} (2, 3, 3, 4)")
    assert "gradOutput has shape (2, 5, 3, 4)" in error(gradOutput={"shape": [2, 5, 3, 4]})
    assert "has dtype fp32; by the other tensors it must be FLOAT16" in error(self={"dtype": "fp32"})
    assert "shape" in error(gradInput={"shape": [2, 3, 7, 8]})


def test_an_unknown_operator_of_a_case_file_gets_a_hint(tmp_path: Path) -> None:
    (line,) = cases_of(tmp_path / "a.json", [contradicting() | {"name": "aclnnAvgPool2dBackwrd"}])
    assert "name is 'aclnnAvgPool2dBackwrd' (did you mean aclnnAvgPool2dBackward?); it must be" in line.error


def test_atks_csv_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("id,name\n1,aclnnAvgPool2dBackward\n")
    text = invoke("golden", "--from", tmp_path / "cases.csv", "-o", tmp_path / "out", rc=2)
    assert (
        "no public document names the columns of ATK's CSV files; give ATK's JSON form of the cases" in text
    )
    assert "or pooltide's own case file without --from" in text
    header, _, example = text.rpartition("the columns ")[2].strip().partition(", as in ")
    (tmp_path / "ours.csv").write_text(f"{header}\n{example}\n")  # what the sentence says works
    assert "1 of 1 cases, 0 bad" in invoke("golden", tmp_path / "ours.csv", "-o", tmp_path / "out")


def test_cases_of_atk_as_a_table(tmp_path: Path) -> None:
    """The fields of the JSON form as columns give the same cases; a bad row is an error of its case."""
    inputs = [{"name": "input", "type": "tensor", "dtype": "fp16", "shape": [2, 3, 11, 13]}]
    inputs.append({"name": "kernel_size", "type": "attr", "range_values": 3})
    case = {"id": "7", "name": "avg_pool2d", "inputs": inputs}
    path = tmp_path / "c.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "name", "owner", "inputs"])
        rows.writerow([7, "avg_pool2d", "", json.dumps(inputs)])
        rows.writerow([8, "avg_pool2d", "me", "[{"])
        rows.writerow([9, "avg_pool2d", "me", ""])
    good, broken, empty = read_cases(path)
    (same,) = cases_of(tmp_path / "c.json", [case])
    assert (good.name, good.case) == (same.name, same.case) == ("avg_pool2d_7", good.case)
    assert "the cell of inputs is no JSON" in broken.error
    assert "the cell of inputs is no JSON" in empty.error
    for text, reason in {
        "id,name,inputs\n1,avg_pool2d\n": "row 1 has 2 cells; it must have 3",
        "id,name,name,inputs\n": "no public document names the columns",
        'id,name,inputs\n1,"x': "the file is no CSV",
        "": "no public document names the columns",
        "id,name,inputs\n": "the table has a header and no case",
    }.items():
        path.write_text(text)
        with pytest.raises(CasesError, match=reason):
            list(read_cases(path))
    path.write_bytes("id,name,inputs\n1,池化,[]\n".encode("gbk"))
    with pytest.raises(CasesError, match="is not UTF-8, but can be GBK"):
        list(read_cases(path))


@pytest.mark.parametrize(("name", "mark"), [("c.CSV", ","), ("c.csv", ";"), ("c.tsv", "\t")])
def test_tables_as_spreadsheets_write_them(name: str, mark: str, tmp_path: Path) -> None:
    inputs = [{"name": "input", "type": "tensor", "dtype": "fp16", "shape": [2, 3, 11]}]
    with (tmp_path / name).open("w", newline="") as file:
        rows = csv.writer(file, delimiter=mark)
        rows.writerows(
            [["id", " name", "inputs"], [7, "adaptive_avg_pool1d", json.dumps(inputs)], ["", "", ""]]
        )
    (line,) = read_cases(tmp_path / name)
    assert line.name == "adaptive_avg_pool1d_7"


@pytest.mark.parametrize("name", ["", "torchvision::roi_align", "torch.ops.torchvision.roi_align"])
def test_a_name_is_of_a_pool_over_regions_only_if_it_says_so(name: str, tmp_path: Path) -> None:
    (line,) = cases_of(tmp_path / "a.json", [contradicting() | {"name": name}])
    assert ("pools over regions are not read" in line.error) == bool(name)


def test_what_a_case_file_says_is_not_passed_over(tmp_path: Path) -> None:
    """A range that is none, and a shape in another order of the axes: drawn otherwise, golden data are of
    another case."""

    def error(**of_tensor: Any) -> str:
        tensor = {"name": "input", "type": "tensor", "dtype": "fp32", "shape": [1, 6, 6, 3]} | of_tensor
        kernel = {"name": "kernel_size", "type": "attr", "range_values": 2}
        case = {"id": 1, "name": "avg_pool2d", "inputs": [tensor, kernel]}
        (line,) = cases_of(tmp_path / "a.json", [case])
        return line.error or ""

    assert error(range_values=None) == error(format="NCHW") == ""
    assert error(range_values=3) == "the range of the values is 3; it must be two numbers"
    assert error(range_values=[float("nan"), 1]) == "the range of the values is [nan, 1]; it must be finite"
    assert error(shape=[]) == "avg_pool2d: the input has shape (), of a scalar; a pool needs a plane"
    assert "has format NHWC; it must have channels first, as NCHW has" in error(format="NHWC")
    output = opst()["output_desc"][0] | {"shape": [2, 3, 11, 12]}
    (line,) = cases_of(tmp_path / "o.json", [opst(output_desc=[output])])
    assert (
        "gradInput has shape (2, 3, 11, 12); by the other arguments it must be (2, 3, 11, 13)" in line.error
    )
