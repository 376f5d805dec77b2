"""tools/pytorch_suite: PyTorch's own tests on our pools, and the written list of differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tool_modules import load_tool

SUITE = load_tool("pytorch_suite")
Difference, Run = SUITE.Difference, SUITE.Run

TESTS = """
import os, time, unittest
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import GRAPH_EXECUTOR, TestCase

assert GRAPH_EXECUTOR is not None
import pooltide.torch as pt
OURS = F.avg_pool2d is pt.functional.avg_pool2d


class TestNN(TestCase):
    def test_pool_passes(self):
        (info,) = [info for info in op_db if info.name == "nn.functional.avg_pool2d"]
        self.assertEqual(OURS, info.op is pt.functional.avg_pool2d)

    def test_pool_not_patched(self):
        self.assertFalse(pt.is_patched(), "it is patched")

    def test_MaxPool_forward(self):
        self.assertFalse(pt.status().forward_patches, "forwards are patched")

    def test_pool_crashes(self):
        if OURS:
            os._exit(7)

    def test_pool_hangs(self):
        if OURS:
            time.sleep(1000)

    def test_pool_skips(self):
        if OURS:
            self.skipTest("not with these")

    def test_pool_subtests(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertFalse(OURS and number == 1, "the second subtest")

    def test_pool_fails(self):
        self.fail("everywhere")

    @unittest.expectedFailure
    def test_pool_expected(self):
        self.assertTrue(OURS)

if OURS:
    del TestNN.test_pool_passes
"""

PATCHED = """
import unittest
from pooltide.torch import is_patched

class TestMkldnn(unittest.TestCase):
    def test_Pool(self):
        self.assertFalse(is_patched())

    def test_other(self):
        self.assertFalse(is_patched())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("expecttest")
    pytest.importorskip("torch.testing")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_nn.py").write_text(TESTS)
    (tmp_path / "test" / "test_mkldnn.py").write_text(PATCHED)
    (tmp_path / "test" / "test_fx.py").write_text("import a_module_that_is_not_there")
    (tmp_path / "conftest.py").write_text("raise SystemExit('not to be imported')")
    return tmp_path


def differences(folder: Path, *rows: tuple[str, str]) -> list[str]:
    text = "".join(
        f'[[difference]]\nmodes = ["{mode}"]\ntests = ["{tests}"]\nreason = "Known."\n'
        for mode, tests in rows
    )
    (folder / "list.toml").write_text(text)
    return ["--differences", str(folder / "list.toml")]


@pytest.mark.slow
def test_every_mode_of_a_small_suite(folder: Path, capsys: Any) -> None:
    known = differences(folder, ("patch", "test_nn.py::*_not_patched"), ("patch", "*::test_MaxPool_*"))
    files = ["--file", "test_nn.py", "--file", "test_fx.py"]
    assert SUITE.main([str(folder), *files, "--jobs", "2", "--timeout", "10", *known]) == 1
    printed = capsys.readouterr().out
    assert "| test_nn.py | 7 of 9 | 6 passed, 1 listed | 5 passed, 2 FAILED | 2 passed, 5 FAILED |" in printed
    assert "| test_fx.py | 0 of 0 | 0 passed | 0 passed | 0 passed |" in printed
    assert "test_fx.py: did not run to its end in plain PyTorch: ModuleNotFoundError" in printed
    for line in (
        "forward: test_nn.py::TestNN::test_pool_not_patched: AssertionError",
        "forward: test_nn.py::TestNN::test_MaxPool_forward: AssertionError",
        "functional: test_nn.py::TestNN::test_pool_passes: the test was not collected",
        "functional: test_nn.py::TestNN::test_pool_crashes: the process ended with status 7",
        "functional: test_nn.py::TestNN::test_pool_hangs: the test took longer than 10 s",
        "functional: test_nn.py::TestNN::test_pool_skips: skipped",
        "functional: test_nn.py::TestNN::test_pool_subtests: ",
        "no longer differs from PyTorch; take it off the list: patch: *::test_MaxPool_*",
    ):
        assert line in printed
    assert "patch: test_nn.py::TestNN::test_pool_not_patched" not in printed
    assert "everywhere" not in printed


@pytest.mark.slow
def test_a_listed_failure_is_no_failure_and_all_runs_all(folder: Path, capsys: Any) -> None:
    words = [str(folder / "test"), "--file", "test_mkldnn.py", "--mode", "patch"]
    words += differences(folder, ("patch", "*::test_Pool"))
    assert SUITE.main(words) == 0
    assert "| test_mkldnn.py | 1 of 1 | 0 passed, 1 listed |" in capsys.readouterr().out
    assert SUITE.main([*words, "--all"]) == 1
    assert "patch: test_mkldnn.py::TestMkldnn::test_other: AssertionError" in capsys.readouterr().out


@pytest.mark.slow
def test_a_folder_where_nothing_passes_plainly_has_another_status(folder: Path, capsys: Any) -> None:
    assert SUITE.main([str(folder), "--file", "test_fx.py", "--mode", "patch"]) == 2
    assert "no test passed in plain PyTorch" in capsys.readouterr().err


def test_a_folder_without_tests_is_refused(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        SUITE.main([str(tmp_path)])
    assert "it must be a checkout of PyTorch" in capsys.readouterr().err


def test_half_a_line_of_the_log_waits_for_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    entries = SUITE.Entries(log)
    for written, read in (
        ('{"a": 1}\n{"b"', [{"a": 1}]),
        ('{"a": 1}\n{"b": 2', []),
        ('{"a": 1}\n{"b": 2}\n{"c": 3}\n', [{"b": 2}, {"c": 3}]),
    ):
        log.write_text(written)
        assert entries.new() == read


PASSED, FAILED, SKIPPED = ("passed", ""), ("failed", "why"), ("skipped", "")


def judged(plain: Any, patched: Any, *known: Any) -> tuple[Any, dict[Any, set[bool]]]:
    seen: dict[Any, set[bool]] = {}
    return SUITE.judge(Run(plain), Run(patched), "patch", list(known), seen), seen


def test_only_what_passes_plainly_counts() -> None:
    plain = {"a": PASSED, "b": FAILED, "c": SKIPPED, "d": PASSED, "e": PASSED, "f": PASSED}
    patched = {"a": PASSED, "b": FAILED, "c": FAILED, "d": FAILED, "e": SKIPPED}
    verdict, _ = judged(plain, patched)
    assert (verdict.same, verdict.listed, set(verdict.unlisted)) == (1, 0, {"d", "e", "f"})
    assert verdict.unlisted["d"] == "why"


def test_a_difference_is_of_a_mode_and_of_names() -> None:
    here, elsewhere = (Difference((mode,), ("x::*pool",), "") for mode in ("patch", "functional"))
    verdict, seen = judged({"x::a_pool": PASSED}, {"x::a_pool": FAILED}, elsewhere)
    assert (verdict.listed, len(verdict.unlisted), seen) == (0, 1, {})
    for outcome in (FAILED, SKIPPED):
        verdict, seen = judged({"x::a_pool": PASSED}, {"x::a_pool": outcome}, here)
        assert (verdict.listed, len(verdict.unlisted), seen) == (1, 0, {here: {True}})
    verdict, seen = judged({"x::a_pool": PASSED}, {"x::a_pool": PASSED}, here)
    assert (verdict.same, verdict.listed, seen) == (1, 0, {here: {False}})


def test_an_unknown_mode_in_the_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[[difference]]\nmodes = ["patched"]\ntests = []\nreason = "x"\n')
    with pytest.raises(
        ValueError, match=r"a\.toml: a difference has mode 'patched'; it must be one of patch, "
    ):
        SUITE.differences(tmp_path / "a.toml")


def test_each_difference_has_a_reason_and_names_files_of_the_suite() -> None:
    for difference in SUITE.differences():
        assert difference.modes
        assert difference.reason.endswith(".")
        for pattern in difference.tests:
            file, _, name = pattern.partition("::")
            assert file in SUITE.FILES, pattern
            assert name.strip("*:"), f"{pattern} would cover every test of the file"
