"""Operators of a user: a page, and a Python function that computes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from own_operator import CODE, PAGE
from pooltide import acl
from pooltide.acl import function_jobs
from pooltide.acl.phase_one import phase_functions
from pooltide.operators.catalog import user_operators
from pooltide.operators.pages import references, user
from pooltide.operators.toml import PageError

# The page in the docstring, and a rule.
RELU = (
    dedent(str(user.__doc__).split("\n\n")[1]) + '\nrules = [{ rule = "same_dtype", of = ["self", "out"] }]\n'
)
X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


@pytest.fixture(autouse=True)
def _runtime(runtime: None) -> Iterator[None]:
    acl.set_checks("strict")
    yield
    acl.aclrtSynchronizeStream(None)


def folder_of(tmp_path: Path, page: str, code: str, name: str = "relu") -> Path:
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / f"{name}.toml").write_text(page)
    (tmp_path / f"{name}.py").write_text(f"import numpy as np\n\n\n{code}\n")
    return tmp_path


def operator(
    tmp_path: Path, page: str, code: str, name: str = "relu"
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    functions = phase_functions(user_operators((str(folder_of(tmp_path, page, code, name)),)).values())
    one, two = functions.values()
    return one, two


def compute(phases: tuple[Callable[..., Any], Callable[..., Any]], *arguments: Any) -> tuple[int, str]:
    """The status of the stream, and the message of the first call that failed."""
    size, executor, status = phases[0](*arguments)
    if status == 0:
        workspace = acl.aclrtMalloc(size, 0)[0] if size else None
        status = phases[1](workspace, size, executor, None) or acl.aclrtSynchronizeStream(None)
    return status, acl.aclGetRecentErrMsg() or ""


def relu(tmp_path: Path, code: str, page: str = RELU) -> tuple[int, str, Any]:
    x, out = acl.tensor_from_numpy(X), acl.tensor_from_numpy(np.full_like(X, 7))
    status, message = compute(operator(tmp_path, page, code), x, out)
    assert np.array_equal(acl.tensor_to_numpy(x), X)
    return status, message, acl.tensor_to_numpy(out)


@pytest.mark.parametrize(
    "code",
    [
        "def relu(self, out):\n    np.maximum(self, 0, out=out)",
        "def relu(self):\n    return np.maximum(self, 0)",
        "def relu(self, **rest):\n    rest['out'][...] = np.maximum(self, 0)",
        "relu = lambda self, out: np.maximum(self, 0)",
    ],
)
def test_a_function_computes(tmp_path: Path, code: str) -> None:
    status, message, out = relu(tmp_path, code)
    assert (status, message) == (0, "")
    assert np.array_equal(out, np.maximum(X, 0))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "def relu(self, out):\n    helper(out)\n\n\ndef helper(out):\n    1 / 0",
            r"aclnnRelu: relu\.py:relu raised ZeroDivisionError: division by zero, at relu\.py:9 in helper, "
            r"called at relu\.py:5 in relu; the outputs are unchanged\. \[500000",
        ),
        ("def relu(self, out):\n    raise SystemExit(3)", "raised SystemExit: 3"),
        (  # the reader's own line, not the library's
            "import json\n\n\ndef relu(self, out):\n    json.loads('x')",
            r"raised json\.decoder\.JSONDecodeError: .*, at relu\.py:8 in relu; the outputs are unchanged",
        ),
        (
            "def relu(self, out):\n    out = np.maximum(self, 0)",
            r"returned None and wrote nothing to out; it must write into it, as in `out\[\.\.\.\] = …`",
        ),
        ("def relu(self, out):\n    self[0] = 0", "raised ValueError: assignment destination is read-only"),
        (
            "def relu(self, out):\n    self.flags.writeable = True",
            "raised ValueError: cannot set WRITEABLE flag",
        ),
        (
            "def relu(self, out):\n    return np.zeros((3, 2))",
            r"returned shape \(3, 2\) and dtype float64 for out",
        ),
        ("def relu(self, out):\n    return out, out", "returned 2 values; it must return None, or 1: out"),
        ("def relu(self, out):\n    return 'no'", r"returned shape \(\) and dtype <U2 for out"),
        ("def relu(self, out):\n    return self.astype(complex)", "and dtype complex128 for out"),
        (
            "def relu(self, out):\n    np.lib.stride_tricks.as_strided(out, (7,), (4,))[6] = 1",
            "wrote outside the array out; it must write inside",
        ),
        ("def relu(self, out):\n    while True:\n        pass", r"ran for more than 0\.2 s, at relu\.py:"),
        ("raise KeyError('no')\n\n\ndef relu(self, out):\n    pass", "raised KeyError: 'no', at relu.py:4"),
        ("import nowhere_to_be_found\n\n\ndef relu(self, out):\n    pass", "raised ModuleNotFoundError"),
    ],
)
def test_a_function_that_fails_is_a_failed_job(
    tmp_path: Path, code: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOLTIDE_OPERATOR_SECONDS", "0.2")
    status, message, out = relu(tmp_path, code)
    assert status == 500000
    assert re.search(says, message), message
    assert (out == 7).all()


def test_an_edit_of_equal_length_and_time_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "relu.py"
    for name in ("maximum", "minimum"):
        references._module.cache_clear()  # as at a new start
        phases = operator(tmp_path, RELU, f"def relu(self):\n    return np.{name}(self, 0)")
        os.utime(file, (1e9, 1e9))
        x, out = acl.tensor_from_numpy(X), acl.tensor_from_numpy(X)
        assert compute(phases, x, out) == (0, "")
        assert np.array_equal(acl.tensor_to_numpy(out), getattr(np, name)(X, 0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "bool", "int8", "int64"])
@pytest.mark.parametrize("checks", ["warn", "strict"])
def test_elements_that_a_function_leaves_unwritten_are_found(
    tmp_path: Path, dtype: str, checks: str, capfd: pytest.CaptureFixture[str]
) -> None:
    acl.set_checks(checks)
    page = RELU.replace('["FLOAT32"', f'["{dtype.upper()}"')
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x, out = (acl.tensor_from_numpy(np.full((3, 8), n).astype(kind)) for n in (0, 1))
    phases = operator(tmp_path, page, "def relu(self, out):\n    out[1] = self[1]")
    status, message = compute(phases, x, out)
    said = message if checks == "strict" else capfd.readouterr().err
    assert "relu.py:relu left 16 of 24 elements of out unwritten, the first at (0, 0); it must" in said
    assert status == (500000 if checks == "strict" else 0)
    assert [int(row[0]) for row in acl.tensor_to_numpy(out)] == [1, int(checks == "strict"), 1]


@pytest.mark.parametrize("count", [1, 7, 9, 16])
@pytest.mark.parametrize("dtype", ["UINT8", "INT16"])
def test_a_small_int_that_is_like_the_pattern_counts_as_written(
    tmp_path: Path, dtype: str, count: int
) -> None:
    page = RELU.replace('["FLOAT32"', f'["{dtype}"')
    values = np.resize(function_jobs._PATTERN.view(dtype.lower())[:3], count)
    x, out = acl.tensor_from_numpy(values), acl.tensor_from_numpy(np.zeros_like(values))
    phases = operator(tmp_path, page, "def relu(self, out):\n    out[...] = self")
    assert compute(phases, x, out) == (0, "")
    assert np.array_equal(acl.tensor_to_numpy(out), values)


WATCHED = """
import os, sys, threading, time
from pooltide.operators import user_code
os.environ["POOLTIDE_OPERATOR_SECONDS"] = "0.2"
def wait(seconds):
    with user_code._watched("wait"):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
def interrupted(seconds):
    try:
        wait(seconds)
    except user_code._TooLong:
        return True
    return False
print(interrupted(0.01), interrupted(9), interrupted(0.01))
calls = []
sys.setprofile(lambda *_: calls.append(1))  # hangs where the interpreter still looks for an interrupt
(lambda: time.sleep(0.3))()
sys.setprofile(None)
print(len(calls) > 0, sorted(thread.name for thread in threading.enumerate())[:1])
"""


def test_nothing_of_an_interrupt_stays_behind() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False True False\nTrue ['MainThread']\n", done.stderr
    assert "wait has run for 0.2 s" in done.stderr


def test_what_the_page_s_rules_refuse(tmp_path: Path) -> None:
    phases = operator(tmp_path, RELU, "def relu(self):\n    return np.maximum(self, 0)")
    x, half = acl.tensor_from_numpy(X), acl.tensor_from_numpy(X.astype(np.float16))
    wrong = acl.tensor_from_numpy(X.T.copy())
    ints = acl.tensor_from_numpy(X.astype(np.int32))
    for arguments, status, text in [
        ((None, x), 161001, "self is null; it must be a tensor."),
        ((ints, ints), 161002, "self has dtype INT32; on Atlas A2 training/inference it must be FLOAT32, "),
        ((x, half), 161002, "out has dtype FLOAT16; it must be FLOAT32, as self has."),
        ((x, wrong), 161002, "out has shape (3, 2); it must be (2, 3), as self has."),
        ((x, 7), 161002, "out is an int, 7; it must be a live aclTensor"),
    ]:
        found, message = compute(phases, *arguments)
        assert found == status
        assert f"aclnnRelu: {text}" in message


def test_data_are_checked_as_those_of_pools(tmp_path: Path) -> None:
    phases = operator(tmp_path, RELU, "def relu(self):\n    return np.maximum(self, 0)")
    block, _ = acl.aclrtMalloc(24, 0)
    empty = acl.aclCreateTensor((2, 3), acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_ND, (2, 3), block)
    out = acl.tensor_from_numpy(X)
    assert "self has 24 bytes that were never written" in compute(phases, empty, out)[1]
    outside = acl.aclCreateTensor((2, 3), acl.ACL_FLOAT, None, 1, acl.ACL_FORMAT_ND, (2, 3), block)
    assert "out reaches bytes 4 to 28 of a block of 24 bytes" in compute(phases, out, outside)[1]
    _, executor, _ = phases[0](out, empty)
    assert phases[1](None, 0, executor, None) == 0
    host = np.zeros_like(X)
    assert acl.aclrtMemcpy(host, 24, block, 24, acl.ACL_MEMCPY_DEVICE_TO_HOST) != 0
    assert "memory that aclnnRelu writes (out)" in (acl.aclGetRecentErrMsg() or "")
    assert acl.aclrtSynchronizeStream(None) == 0
    assert phases[1](None, 0, executor, None) == 161002  # used twice


def _many(**changed: Any) -> dict[str, Any]:
    arguments = {
        "selfRef": acl.tensor_from_numpy(X),
        "others": acl.aclCreateTensorList([acl.tensor_from_numpy(X), acl.tensor_from_numpy(X)]),
        "mask": None,
        "alpha": acl.aclCreateScalar(2.0, acl.ACL_FLOAT),
        "dims": acl.aclCreateIntArray([1, 2]),
        "scales": acl.aclCreateFloatArray([0.5]),
        "flags": acl.aclCreateBoolArray([True, False]),
        "times": 4,
        "small": -1,
        "keep": True,
        "eps": 0.25,
        "rate": 0.5,
        "mode": "sum",
        "sums": acl.tensor_from_numpy(np.zeros(3, np.float32)),
    }
    return arguments | changed


def test_every_type_reaches_the_function(tmp_path: Path) -> None:
    phases = operator(tmp_path, PAGE, CODE, "many")
    arguments = _many()
    assert compute(phases, *arguments.values()) == (0, "")
    assert np.array_equal(acl.tensor_to_numpy(arguments["selfRef"]), 5 * X)
    assert np.array_equal(acl.tensor_to_numpy(arguments["sums"]), (5 * X).sum(0) - 0.25)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"times": 10}, r"times is 10; it must be 9 at most\. \[161002"),
        ({"small": 2**31}, "small is 2147483648; it must be an int32"),
        ({"eps": "much"}, "eps is 'much'; it must be a number"),
        ({"mode": 3}, "mode is 3; it must be a text"),
        ({"alpha": None}, r"alpha is null; it must be a scalar\. \[161001"),
        ({"alpha": 7}, "alpha is an int, 7; it must be a live aclScalar"),
        ({"dims": None}, "dims is null; it must be an int array"),
        ({"scales": None}, "scales is null; it must be a float array"),
        ({"others": None}, "others is null; it must be a tensor list"),
    ],
)
def test_every_type_is_checked(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    phases = operator(tmp_path, PAGE, CODE, "many")
    size, executor, status = phases[0](**_many(**changed))
    assert (size, executor) == (0, None)
    assert status in (161001, 161002)
    assert re.search(says, acl.aclGetRecentErrMsg() or "")


def test_a_bad_member_of_a_list_is_named(tmp_path: Path) -> None:
    members = [acl.tensor_from_numpy(X), acl.tensor_from_numpy(X.astype(np.int64))]
    phases = operator(tmp_path, PAGE, CODE, "many")
    assert phases[0](**_many(others=acl.aclCreateTensorList(members)))[2] == 161002
    assert "others[1] has dtype INT64; " in (acl.aclGetRecentErrMsg() or "")


def test_the_workspace_of_the_page_is_required(tmp_path: Path) -> None:
    phases = operator(tmp_path, PAGE, CODE, "many")
    size, executor, _ = phases[0](*_many().values())
    assert size == 64
    assert phases[1](None, 64, executor, None) == 161001
    assert phases[1](acl.aclrtMalloc(32, 0)[0], 64, executor, None) == 161002


def test_a_tensor_of_a_list_gets_a_new_address(tmp_path: Path) -> None:
    phases = operator(tmp_path, PAGE, CODE, "many")
    arguments = _many()
    size, executor, _ = phases[0](*arguments.values())
    assert acl.aclSetAclOpExecutorRepeatable(executor) == 0
    other = acl.tensor_from_numpy(10 * X)
    set_address, others = acl.aclSetDynamicInputTensorAddr, arguments["others"]
    assert set_address(executor, 0, 0, others, other.address) == 0
    assert set_address(executor, 0, 2, others, other.address) == 161002
    assert acl.aclSetDynamicTensorAddr(executor, 0, 0, others, other.address) == 161002  # selfRef is no list
    assert acl.aclSetTensorAddr(executor, 1, other, other.address) == 161002  # others is one
    workspace, _ = acl.aclrtMalloc(size, 0)
    assert phases[1](workspace, size, executor, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 0
    assert np.array_equal(acl.tensor_to_numpy(arguments["selfRef"]), 23 * X)


def test_jobs_of_functions_keep_the_order_of_the_stream(tmp_path: Path) -> None:
    phases = operator(tmp_path, RELU, "def relu(self):\n    return self + 1")
    x, y = acl.tensor_from_numpy(X), acl.tensor_from_numpy(X)
    for source, target in ((x, y), (y, x), (x, y)):
        _, executor, _ = phases[0](source, target)
        assert phases[1](None, 0, executor, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 0
    assert np.array_equal(acl.tensor_to_numpy(y), X + 3)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "def sums_shape(selfRef):\n    return 3",
            "returned 3 for the shape of sums; it must return a tuple",
        ),
        (
            "def sums_shape(selfRef):\n    1 / 0",
            "the shape of sums is not known: many.py:sums_shape raised Zero",
        ),
        (
            "def sums_shape(selfRef):\n    return (4,)",
            r"sums has shape \(3\); it must be \(4\), as many.py:sums_",
        ),
        ("def at_most_nine(times):\n    return False", "the arguments break the rule many.py:at_most_nine"),
        ("def at_most_nine(times):\n    return 5", "returned 5; it must return None, a bool or a sentence"),
        (
            "def at_most_nine(times):\n    1 / 0",
            "the rule can't be checked: many.py:at_most_nine raised Zero",
        ),
    ],
)
def test_rules_and_shapes_that_fail(tmp_path: Path, code: str, says: str) -> None:
    phases = operator(tmp_path, PAGE, f"{CODE}\n{code}", "many")
    assert phases[0](*_many().values())[2] in (161002, 561000)
    assert re.search(says, acl.aclGetRecentErrMsg() or "")


def _bad(old: str, new: str, page: str = RELU) -> str:
    assert old in page
    return page.replace(old, new)


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("operator = 3 =", "is no page in TOML"),
        (_bad("summary", "sumary"), "summary is missing"),
        (RELU + "colour = 1\n", "colour is unknown; known are"),
        (_bad("aclnnRelu", "relu"), "operator is 'relu'; it must be a name of CANN"),
        (_bad("aclnnRelu", "aclnnMaxPool"), "operator is aclnnMaxPool, which pooltide has"),
        (_bad("relu.py:relu", "relu.py:other"), "does not define other; its functions are relu"),
        (_bad("relu.py:relu", "none.py:relu"), r"none\.py can't be read"),
        (_bad("relu.py:relu", "../relu.py:relu"), "it must be FILE.py:FUNCTION"),
        (_bad("relu.py:relu", "relu"), "it must be FILE.py:FUNCTION"),
        (_bad('python = "relu.py:relu"\n', ""), "has neither python and declared"),
        (_bad('"FLOAT32", ', '"FLOAT33", '), "dtypes.float names 'FLOAT33'"),
        (_bad('dtypes = "float" }', 'dtypes = "half" }'), "dtypes names 'half'; known are float"),
        (_bad('"tensor", dtypes = "float" }', '"matrix" }'), "type names 'matrix'; known are"),
        (_bad('name = "self", ', 'name = "for", '), "a parameter is named 'for', which C can't have"),
        (_bad('name = "self", ', 'name = "out", '), "two parameters share a name"),
        (_bad('role = "output", shape = "self"', 'role = "input"'), "no parameter has the role output"),
        (_bad('shape = "self"', 'shape = "selv"'), "shape is 'selv'; it must be FILE.py:FUNCTION"),
        (_bad("same_dtype", "same_colour"), "no rule same_colour takes of"),
        (_bad('of = ["self", "out"]', 'of = ["self", "input"]'), "of names 'input'; known are"),
        (_bad("dtypes.float = [", 'products = ["ascend1"]\ndtypes.float = ['), "products names 'ascend1'"),
        (_bad('"same_dtype", of = ["self", "out"]', '"relu.py:good"'), "does not define good"),
        (_bad("dtypes.float = [", 'header = "../x.h"\ndtypes.float = ['), "header is '../x.h'; it must be"),
        (_bad("dtypes.float = [", "workspace = -1\ndtypes.float = ["), "workspace is -1; it must be"),
        (_bad("dtypes.float = [", 'ranks = [9]\ndtypes.float = ['), "ranks is unknown"),
        (_bad('dtypes = "float" }', 'dtypes = [["FLOAT32"]] }'), "names \\['FLOAT32'\\]"),
        (_bad('dtypes = "float" }', 'dtypes = "float", ranks = [9] }'), "ranks names 9; known are"),
    ],
)  # fmt: skip
def test_a_bad_page_gets_a_sentence(tmp_path: Path, page: str, says: str) -> None:
    with pytest.raises(PageError, match=says):
        user_operators((str(folder_of(tmp_path, page, "def relu(self, out):\n    pass")),))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def relu(x, out):\n    pass", "which takes x; it must take some of self, out"),
        ("def relu(*all):\n    pass", "which takes arguments by position; it must take them by name"),
        ("def relu(self, out:\n    pass", r"relu\.py:4 is no Python"),
    ],
)
def test_a_bad_function_is_seen_without_running_it(tmp_path: Path, code: str, says: str) -> None:
    with pytest.raises(PageError, match=says):
        user_operators((str(folder_of(tmp_path, RELU, f"{code}\nraise SystemExit")),))


def test_two_folders_with_one_operator(tmp_path: Path) -> None:
    one, two = (folder_of(tmp_path / name, RELU, "def relu(self, out):\n    pass") for name in "ab")
    with pytest.raises(
        PageError, match=r"operator is aclnnRelu, as in .*/a/relu\.toml; one of the pages must go"
    ):
        user_operators((str(one), str(two)))
    page = _bad("aclnnRelu", "aclnnOther").replace("dtypes", 'header = "aclnnop/aclnn_relu.h"\ndtypes', 1)
    folder_of(two, page, "def relu(self, out):\n    pass")
    with pytest.raises(PageError, match=r"header is aclnnop/aclnn_relu\.h, which aclnnRelu has"):
        user_operators((str(one), str(two)))


@pytest.mark.parametrize("where", ["nowhere", "empty"])
def test_a_folder_without_pages(tmp_path: Path, where: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PageError, match="the folder of operators"):
        user_operators((str(tmp_path / where),))


def test_a_declared_operator_marks_its_outputs_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    acl.set_checks("warn")
    page = _bad('python = "relu.py:relu"', "declared = true").replace("aclnnRelu", "aclnnNobody")
    phases = operator(tmp_path, page, "")
    block, _ = acl.aclrtMalloc(24, 0)
    out = acl.aclCreateTensor((2, 3), acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_ND, (2, 3), block)
    assert compute(phases, acl.tensor_from_numpy(X), out)[0] == 0
    assert out.never_written() is None
    assert compute(phases, acl.tensor_from_numpy(X), out)[0] == 0
    said = capfd.readouterr().err
    assert (
        said.count("aclnnNobody: it is only declared, so nothing is computed; its outputs count as written.")
        == 1
    )
    assert phases[0](7, out)[2] == 161002


def test_a_narrower_result_is_not_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = RELU.replace('["FLOAT32", "FLOAT16", "BFLOAT16"]', '["FLOAT32", "INT32"]').replace("Relu", "Halve")
    phases = operator(tmp_path / "floats", page, "def relu(self):\n    return self / np.float64(2)")
    for _ in range(2):
        out = acl.tensor_from_numpy(np.zeros_like(X))
        assert compute(phases, acl.tensor_from_numpy(X), out) == (0, "")
        assert np.array_equal(acl.tensor_to_numpy(out), X / 2)
    line = "aclnnHalve: relu.py:relu returned float64 for out, which is rounded to float32; it may return float32."
    assert capfd.readouterr().err.count(line) == 1
    phases = operator(tmp_path / "ints", page, "def relu(self):\n    return self.astype(np.int64) * 4")
    ints = X.astype(np.int32)
    for factor, status in ((1, 0), (1 << 28, 500000)):
        out = acl.tensor_from_numpy(np.zeros_like(ints))
        found, message = compute(phases, acl.tensor_from_numpy(ints * factor), out)
        assert found == status
        assert np.array_equal(acl.tensor_to_numpy(out), np.zeros_like(ints) if status else ints * 4)
    assert "relu.py:relu returned int64 for out, with values beyond int32; it must return" in message
