"""What a wheel needs: the stable ABI, types, metadata, links; and the table of releases of PyTorch."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.resources import files
from pathlib import Path
from zipfile import ZipFile

import pytest

import pooltide
from native_build import LISTS
from paths import ROOT
from pooltide.kernels.cuda.runtime import shipped
from tool_modules import load_tool

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


@in_the_source_tree
@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        *(f"{name}.cpp" for name in LISTS),
        "prepared.cpp",
        "unpool.cpp",
        "regions/regions.cpp",
        "threads/thread_pool.cpp",
    ],
)
def test_the_kernels_compile_for_macos(source: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="ziglang is not installed: the kernels are NOT compiled for macOS")
    command = [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-macos", "-std=c++17"]
    command += ["-ffp-contract=off", "-DPOOLTIDE_ISA=baseline", "-c", str(SOURCES.parent / source)]
    run = subprocess.run(
        [*command, "-o", str(tmp_path / "object.o")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "object.o").read_bytes()[:4] == b"\xcf\xfa\xed\xfe"  # Mach-O, 64 bits


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


@in_the_source_tree
def test_every_python_that_the_workflow_tests_is_a_classifier() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    said = {text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r":: 3\.\d+$", text)}
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text("utf-8")
    tested = re.findall(r'"(3\.\d+)"', workflow.partition("python: [")[2].partition("]")[0])
    assert said == set(tested)
    assert min(said, key=lambda version: int(version[2:])) == project["requires-python"].removeprefix(">=")
    assert project["keywords"]
    assert "Typing :: Typed" in project["classifiers"]


@in_the_source_tree
@pytest.mark.parametrize("url", ["https://example.org/pooltide", ""], ids=["url", "none"])
def test_the_long_description_has_no_relative_link(url: str) -> None:
    tool = load_tool("wheel_links.py")
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(re.findall(r"\]\((?!http)", readme)) > 10
    header, _, text = tool.with_links(f"Name: pooltide\n\n{readme}", url).partition("\n\n")
    assert not re.findall(r"\]\((?!https://example.org/pooltide/(?:blob|raw)/HEAD/)", text)
    if url:
        assert f"[docs/pytorch.md]({url}/blob/HEAD/docs/pytorch.md)" in text
        assert f"]({url}/raw/HEAD/docs/speed.svg)" in text
        assert f"\nProject-URL: Repository, {url}\n" in header
    else:
        assert "中文 (README.zh.md)" in text
        assert ", docs/pytorch.md has the rest" in text
        assert header == "Name: pooltide"


@in_the_source_tree
def test_a_wheel_gets_the_compiled_kernels(tmp_path: Path) -> None:
    tool = load_tool("wheel_kernels.py")
    assert Path(pooltide.__file__).parent.parent / tool.PLACE == shipped.SHIPPED
    record, code = "pooltide-0.1.0.dist-info/RECORD", b"machine code"
    (tmp_path / "compiled").write_bytes(code)
    wheel = tmp_path / "pooltide.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("pooltide/__init__.py", "1")
        archive.writestr(record, f"pooltide/__init__.py,,\n{record},,\n")
    tool.main(wheel, tmp_path / "compiled")
    with ZipFile(wheel) as archive:
        assert sorted(archive.namelist()) == sorted(["pooltide/__init__.py", record, tool.PLACE])
        assert archive.read(tool.PLACE) == code
        (line,) = (line for line in archive.read(record).decode().splitlines() if tool.PLACE in line)
    _, digest, size = line.split(",")
    hashed = base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
    assert (hashed, int(size)) == (hashlib.sha256(code).digest(), len(code))
    with pytest.raises(SystemExit, match="without it"):
        tool.main(wheel, tmp_path / "compiled")


@in_the_source_tree
def test_git_ignores_the_compiled_kernels() -> None:
    place = shipped.SHIPPED.relative_to(Path(pooltide.__file__).parent.parent)
    assert f"/src/{place}" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


@in_the_source_tree
def test_the_summary_of_pytest_is_read() -> None:
    matrix = load_tool("torch_matrix")
    line = "2 failed, 1205 passed, 31 skipped, 85 deselected, 3 xfailed, 2 warnings, 1 error in 210.13s (0:03:30)"
    assert matrix.counts(line) == [1205, 31, 3, 3]
    assert matrix.counts("== 7 passed in 1.0s ==") == [7, 0, 0, 0]


@in_the_source_tree
def test_a_row_takes_the_place_of_the_row_of_its_release() -> None:
    old = "| 2.9.1 | 3.11.7 | 1 |\n| 2.13.0+cpu | 3.11.7 | 1 |\n"
    new = load_tool("torch_matrix").with_row(old, "| 2.13.0+cu130 | 3.11.7 | 2 |")
    assert new == "| 2.9.1 | 3.11.7 | 1 |\n| 2.13.0+cu130 | 3.11.7 | 2 |\n"
    assert load_tool("torch_matrix").with_row(old, "| 2.11.0 | x |").splitlines()[1] == "| 2.11.0 | x |"


@in_the_source_tree
def test_the_table_has_the_releases_that_the_package_calls_tested() -> None:
    pytest.importorskip("torch")
    from pooltide.torch import releases

    found = load_tool("torch_matrix").TABLE.search((ROOT / "docs" / "pytorch.md").read_text("utf-8"))
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in found[1].splitlines()]
    assert [".".join(row[0].split(".")[:2]) for row in rows] == list(releases.TESTED)
    for version, _, passed, _, _, failed, _ in rows:
        assert int(passed) > 500, version
        assert failed == "0", version
