"""What a wheel needs: the stable ABI, types, a version in one place, and `python -m pooltide`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib.resources import files
from pathlib import Path

import pytest

import pooltide

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "native" / "python"
in_the_source_tree = pytest.mark.skipif(
    not SOURCES.exists(), reason="NO SOURCES: the tests run outside the tree"
)


def _compile(source: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: the limited API is NOT checked")
    include = sysconfig.get_path("include")
    command = [
        "g++",
        "-std=c++17",
        "-fsyntax-only",
        "-DPy_LIMITED_API=0x030B0000",
        f"-I{include}",
        f"-I{SOURCES}",
    ]
    return subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)


@in_the_source_tree
@pytest.mark.parametrize("name", ["module.cpp", "shortcuts.cpp"])
def test_the_extension_uses_only_the_limited_api(name: str) -> None:
    run = _compile(SOURCES / name)
    assert run.returncode == 0, run.stderr


@in_the_source_tree
def test_that_test_can_fail(tmp_path: Path) -> None:
    source = tmp_path / "other.cpp"
    source.write_text('#include "memory.h"\nlong f(PyObject* o) { return PyTuple_GET_SIZE(o); }\n')
    assert "PyTuple_GET_SIZE" in _compile(source).stderr


def test_types_are_packaged() -> None:
    assert files("pooltide").joinpath("py.typed").is_file()


def test_python_m() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pooltide", "--version"], capture_output=True, text=True, check=True
    )
    assert pooltide.__version__ in run.stdout


@in_the_source_tree
def test_the_citation_has_the_version() -> None:
    assert f"version: {pooltide.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
