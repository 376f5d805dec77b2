"""`pooltide ops` and `pooltide check`, and what is common to all commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from commandline import PROGRAM, pooltide
from pooltide.acceptance.words import short_names
from pooltide.operators.catalog import documented, gradients, operators
from pooltide.operators.pages import ASCEND_PRODUCTS, PRODUCTS


def test_ops_fits_a_screen() -> None:
    text = pooltide("ops")
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 2 * (len(gradients()) + len(documented()))
    names = {word for line in text.splitlines() for word in line.split()}
    assert names >= {*operators(), *documented()}
    for product in ASCEND_PRODUCTS:
        assert PRODUCTS[product] in text
    assert re.search(r"^aclnnAvgPool2dBackward +yes +yes +yes +no +yes +yes$", text, re.M)


def test_ops_prints_every_page() -> None:
    text = pooltide("ops", "--all", COLUMNS="400")
    for operator in [*gradients().values(), *documented().values()]:
        assert operator.name in text
        for rule in operator.rules:
            assert rule.name in text
    for product in ASCEND_PRODUCTS:
        assert PRODUCTS[product] in text


def test_ops_as_json() -> None:
    pages = {page["short"]: page for page in json.loads(pooltide("ops", "--json"))}
    assert pages["avg2d"]["products"]["atlas-200i-500-a2"] is False
    assert pages["avg2d"]["parameters"][0]["dtypes"]["atlas-inference"] == ["FLOAT32", "FLOAT16"]
    assert pages["adaptive_max3d"]["parameters"][2]["dtypes"]["atlas-a2"] == ["INT32"]
    assert [rule["item"] for rule in pages["avg2d"]["rules"]][:3] == [1, None, 1]


def test_ops_says_what_is_wrong_in_a_document() -> None:
    text = " ".join(pooltide("ops", "avg2d").split())
    for words in ("The formula of the documents is wrong", "rounding up", "non-deterministic by default"):
        assert words in text
    assert "declares an INT64 tensor" in " ".join(pooltide("ops", "adaptive_max2d").split())
    notes = {page["short"]: page["notes"] for page in json.loads(pooltide("ops", "--json"))}
    assert any("ceil((m+1)*H/Ho)" in note for note in notes["adaptive_max3d"])
    assert notes["avg3d"] == []


def test_ops_as_markdown() -> None:
    lines = pooltide("ops", "--markdown").splitlines()
    assert lines[0].startswith("| operator | Ascend 950PR/950DT | Atlas A3 training/inference | ")
    assert "| aclnnAvgPool2dBackward | yes | yes | yes | no | yes | yes |" in lines


def test_ops_of_one_operator_by_any_name() -> None:
    texts = {pooltide("ops", name) for name in ("avg2d", "avg_pool2d_backward", "aclnnAvgPool2dBackward")}
    assert len(texts) == 1
    refusal = pooltide("ops", "lp2d", rc=2)
    known = refusal.partition("known are ")[2].strip().split(", ")
    assert set(known) == {*short_names(), *documented()}
    for name in known[::9]:
        assert pooltide("ops", name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("AvgPool2d", "aclnnAvgPool2d"),
        ("aclnnAvgPool2dBackwrd", "aclnnAvgPool2dBackward"),
        ("avg_pool2", "avg_pool2d"),
        ("adaptive_avg2", "adaptive_avg2d"),
    ],
)
def test_ops_suggests_a_near_name(name: str, meant: str) -> None:
    assert f"operator {name!r} is unknown (did you mean {meant}?); known are" in pooltide("ops", name, rc=2)
    assert "did you mean" not in pooltide("ops", "aclnnNope", rc=2)


@pytest.mark.parametrize(
    "options",
    [
        ("--stub", "--json"),
        ("--json", "--markdown"),
        ("--support", "--json"),
        ("--support", "--stub"),
        ("--support", "--all"),
        ("avg2d", "--all"),
        ("avg2d", "--stub"),
        ("avg2d", "--support"),
    ],
    ids=" ".join,
)
def test_ops_ignores_no_option(options: tuple[str, ...]) -> None:
    assert "Error: --" in pooltide("ops", *options, rc=2)


def test_ops_says_of_each_rule_who_made_it() -> None:
    """Documents found for an operator without a function: its ranks are documented, its shapes decided."""
    text = pooltide("ops", "aclnnGlobalMaxPool", COLUMNS="400")
    lines = [line for line in text.splitlines() if line.endswith(("documented", "decided"))]
    assert len(lines) == len(documented()["aclnnGlobalMaxPool"].rules)
    basis = {line.lstrip(" 0123456789").split()[0]: line.split()[-1] for line in lines}
    assert basis["rank_supported"] == "documented"
    assert basis["result_shape"] == "decided"
    both = pooltide("ops", "max_pool2d", COLUMNS="400")
    assert "aclnnMaxPool2dWithIndices (max_pool2d)" in both
    assert "pooltide's function" in both


def test_accepted() -> None:
    text = pooltide("check", "avg2d:1x16x4x4:k4:s1:cube1")
    assert text == (
        "accepted: aclnnAvgPool2dBackward on Atlas A2 training/inference: avg2d:1x16x4x4:k4:s1:cube1:f32\n"
    )


def test_what_the_documents_lack_is_asked_of_our_functions() -> None:
    text = pooltide("check", "max1d:2x3x13:k3:d2")
    assert text == "accepted: max_pool1d_backward on this library's functions: max1d:2x3x13:k3:d2:f32:i32\n"
    text = pooltide("check", "max1d:2x3x13:k3", "--product", "atlas-a2", rc=1)
    assert (
        "not supported on Atlas A2 training/inference; it is supported on this library's functions." in text
    )
    text = pooltide("check", "max1d:2x3x4:k3:d2", rc=1)
    assert "kernel_size is (3), dilation (2) with padding (0); no window fits" in text


def test_refused_with_status_rule_and_reason() -> None:
    text = pooltide("check", "avg2d:1x16x4x4:k4:s1:p3", rc=1)
    assert "padding is 3 on axis H; it must be at most 2, half of kernelSize 4." in text
    assert "[161002 ACLNN_ERR_PARAM_INVALID]" in text
    assert "rule padding_half_kernel, item 6 of 161002 in the document's error table" in text
    assert text.splitlines()[-1] == (
        "reproduce: pooltide check avg2d:1x16x4x4:k4:s1:p3:f32 --product atlas-a2"
    )


def test_a_function_of_this_library_is_a_product_too() -> None:
    assert "avg_pool2d_backward: grad_output has plane (4, 4)" in pooltide(
        "check", "avg2d:2x3x11x13:k3:o4", "--product", "host", rc=1
    )


def test_all_products_in_one_table() -> None:
    text = pooltide("check", "avg2d:2x3x11x13:k3:bf16", "--all-products", COLUMNS="400")
    rows = {line.split("  ")[0]: line for line in text.splitlines()[3:]}
    assert set(rows) == {PRODUCTS[p] for p in ASCEND_PRODUCTS}
    assert "accepted" in rows["Atlas A2 training/inference"]
    assert "161002" in rows["Atlas inference"]
    assert "gradOutput has dtype BFLOAT16" in rows["Atlas inference"]
    pooltide("check", "avg2d:2x3x11x13:k3:f64", "--all-products", rc=1)


def test_json_for_scripts() -> None:
    text = pooltide("check", "adaptive_max2d:2x3x5x7:o2", "--all-products", "--json")
    answers = {record["product"]: record["accepted"] for record in map(json.loads, text.splitlines())}
    assert answers == {p: p in ("atlas-a2", "atlas-a3") for p in ASCEND_PRODUCTS}


def test_a_file_of_cases(tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text("name,case\ngood,avg2d:2x3x11x13:k3\nbad,avg2d:2x3x11x13:k3:cube9\nworse,avg2d:k3\n")
    text = pooltide("check", file, rc=1)
    assert "line 2 (good): accepted" in text
    assert "line 3 (bad): refused" in text
    assert "cubeMathType is 9; it must be 0 to 3." in text
    assert "line 4 (case-000004): case 'avg2d:k3': self's shape is 'k3'" in text


def test_cases_from_the_standard_input() -> None:
    done = subprocess.run(
        [PROGRAM, "check", "-"], input="avg2d:2x3x11x13:k3\n", capture_output=True, text=True, check=True
    )
    assert "accepted" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "nonsense"], "'nonsense' is no case and no file; a case is one word such as avg2d:"),
        (["check", "avg2d:1x2"], "the kernel is missing"),
        (["check", "avg2d:1x2x3:k1", "--product", "tpu"], "'tpu' is not one of 'ascend950'"),
        (["check", "/"], "can't be read: Is a directory"),
        (["check", "avg2d:1x2x3:k1", "--all-products", "--product", "host"], "exclude each other"),
        (["what"], "No such command"),
        (["run", "avg2d:1x2x3:k1", "--repeat", "0"], "0 is not in the range"),
        (["show", "avg2d:1x2x3:k1"], "Missing option '-o'"),
        (["golden", "avg2d:1x2x3:k1", "-o", "/proc/none"], "/proc/none: can't be made"),
        (["compare", "/", "/etc/passwd"], "must all be files, or all directories"),
    ],
)
def test_wrong_usage(arguments: list[str], says: str) -> None:
    assert says in " ".join(pooltide(*arguments, rc=2).split())


def test_version() -> None:
    assert pooltide("--version") == f"pooltide, version {version('pooltide')}\n"


@pytest.mark.parametrize("command", ["check", "run", "golden", "show"])
def test_help_teaches_the_notation_in_one_screen(command: str) -> None:
    lines = pooltide(command, "--help").splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    words = (
        "k3x2 s2x1 p1x0 ceil nopad div-3 cube1 o7x7 f32 bf16 i64 NCHW cl seed7 wide nan inf anywhere atlas-a2"
    )
    for word in words.split():
        assert word in text


def test_shell_completion() -> None:
    def complete(words: str) -> str:
        last = str(len(words.split(" ")) - 1)
        return pooltide(_POOLTIDE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=last)

    assert complete("pooltide com") == "plain,compare\n"
    assert "plain,avg2d:" in complete("pooltide run avg")
    assert complete("pooltide check avg2d:1x2x3:k1 --product atlas-inf") == "plain,atlas-inference\n"
    names = {f"adaptive_max{n}d{end}" for n in (1, 2, 3) for end in ("", "_forward")}
    assert set(complete("pooltide ops adaptive_max").split()) == {f"plain,{name}" for name in names}
    assert "complete" in pooltide(_POOLTIDE_COMPLETE="zsh_source")


def test_output_without_a_terminal_has_no_escapes(tmp_path: Path) -> None:
    for arguments in (
        ["ops"],
        ["--help"],
        ["run", "avg2d:2x3x5x7:k2"],
        ["golden", "avg2d:2x3x5x7:k2", "-o", "g"],
    ):
        assert "\x1b" not in pooltide(*arguments, cwd=tmp_path)


def test_check_loads_nothing_that_it_does_not_need() -> None:
    script = (
        "import sys; from pooltide.cli import main\n"
        "try: main(['check', 'avg2d:2x3x11x13:k3'])\n"
        "except SystemExit: pass\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "numpy" in loaded
    assert not loaded & {"rich", "torch", "multiprocessing"}
