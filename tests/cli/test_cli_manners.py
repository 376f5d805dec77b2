"""What the command line owes a reader: tables that fit, colours where they help, one rule for the exit status."""

from __future__ import annotations

import errno
import os
import pty
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from commandline import PROGRAM, pooltide, results_of
from pooltide.acceptance.case_names import is_name
from pooltide.acceptance.cases import lines
from pooltide.c import build
from pooltide.cli import COMMANDS, main
from pooltide.cli.output import aligned

CASE = "avg2d:2x3x5x7:k2:f32"


@pytest.mark.parametrize(
    "arguments",
    [
        ("ops",),
        ("ops", "--all"),
        ("ops", "--support"),
        ("ops", "avg2d"),
        ("ops", "max3d"),
        ("check", "avg2d:1x16x4x4:k3:f32", "--all-products"),
    ],
    ids=" ".join,
)
def test_tables_fit_80_columns(arguments: tuple[str, ...]) -> None:
    text = pooltide(*arguments, COLUMNS="40")
    assert max(map(len, text.splitlines())) <= 80
    wide = pooltide(*arguments, COLUMNS="400")
    assert len(wide.splitlines()) <= len(text.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns(command: str) -> None:
    assert max(map(len, pooltide(command, "--help", COLUMNS="80").splitlines())) <= 80


def test_a_long_text_goes_on_in_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = " ".join(f"word{n}" for n in range(30))
    head, rule, *rows = aligned(["name", "text"], [["one", words], ["two", ""]]).splitlines()
    start = rule.index(" ") + 2
    assert (head, rule[start:].strip("-")) == ("name  text", "")
    assert " ".join(row[start:] for row in rows[:-1]) == words
    assert [row[:start].strip() for row in rows] == ["one", *[""] * (len(rows) - 2), "two"]


def test_names_are_broken_after_an_underscore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = aligned(["a", "b"], [[f"{'x' * 30}_{'y' * 30}", f"{'v' * 30}/{'w' * 30}"]])
    assert f"{'x' * 30}_" in table
    assert f"{'v' * 30}/" in table
    assert max(map(len, table.splitlines())) <= 80


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What the program prints on a terminal."""
    ours, theirs = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen([PROGRAM, *arguments], stdout=theirs, stderr=theirs, env=clean | environment):
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode()


def test_verdicts_have_colours_on_a_terminal_only(tmp_path: Path) -> None:
    (tmp_path / "pass.csv").write_text(f"name,case\none,{CASE}\n")
    bad = "avg2d:1x1x23x29:k3:s2:p1:bf16"
    assert "\x1b[32m\x1b[1mpass\x1b[0m  " in on_a_terminal("run", CASE)
    assert "\x1b[31m\x1b[1mFAIL\x1b[0m  " in on_a_terminal("run", bad, "--standard", "thousandth")
    assert "\x1b" not in on_a_terminal("run", CASE, NO_COLOR="1")
    assert "\x1b" not in pooltide("run", CASE)
    assert "\x1b" not in pooltide("run", bad, "--standard", "thousandth", rc=1)
    assert "\x1b" not in on_a_terminal("run", CASE, "--json")


@pytest.mark.parametrize("mark", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
def test_spreadsheets_may_separate_by(mark: str, tmp_path: Path) -> None:
    rows = [["name", "case", "seed"], ["one", CASE, "7"], ['"two"', f'"{CASE}"', ""]]
    source = "\n".join(mark.join(row) for row in rows)
    found = list(lines(source.encode().splitlines(keepends=True)))
    assert [(line.name, str(line.case)) for line in found] == [("one", f"{CASE}:seed7"), ("two", CASE)]


def test_cells_without_a_header_are_explained() -> None:
    for mark, name in ((",", "commas"), (";", "semicolons"), ("\t", "tabs")):
        (line,) = lines([f"one{mark}{CASE}\n".encode()])
        assert (
            line.error == f"the line has {name} but the file no header; the first line must name the fields"
        )
    (line,) = lines([f"\t{CASE}\n".encode()])
    assert str(line.case) == CASE


def test_too_many_cells_are_explained() -> None:
    (line,) = lines([b"name;case\n", f"one;{CASE};7\n".encode()])
    assert line.error == "the line has 3 cells; it must have 2, as the header has"


def test_names_of_any_script(tmp_path: Path) -> None:
    names = ["标准池化", "Übergröße-1", "ปูล", "पूल", "проба.2", "プール"]
    (tmp_path / "cases.csv").write_text("name,case\n" + "".join(f"{name},{CASE}\n" for name in names))
    pooltide("golden", "cases.csv", "-o", "golden", cwd=tmp_path)
    pooltide("run", "cases.csv", "--save", "ours", cwd=tmp_path)
    text = pooltide("compare", "ours", "golden", "--report", "r.html", cwd=tmp_path)
    for name in names:
        assert f"pass  {name}: all" in text
        assert name in (tmp_path / "r.html").read_text("utf-8")


@pytest.mark.parametrize(
    "name",
    ["", ".a", "-a", "a/b", "a b", "a\u202eb", "a\u200bb", "a\nb", "a\x00", "\udcff", "a" * 201, "标" * 67],
)
def test_names_that_no_file_should_have(name: str) -> None:
    assert not is_name(name)


def test_names_may_have_200_bytes(tmp_path: Path) -> None:
    names = ["a" * 200, "标" * 66 + "ab"]
    (tmp_path / "cases.csv").write_text("name,case\n" + "".join(f"{name},{CASE}\n" for name in names))
    pooltide("golden", "cases.csv", "-o", "golden", "--jobs", 1, cwd=tmp_path)
    results_of(tmp_path / "golden", tmp_path / "chip")
    text = pooltide("compare", "chip", "golden", cwd=tmp_path)
    assert all(f"pass  {name}: all" in text for name in names)


def test_a_name_that_the_file_system_can_not_have_gives_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(f"name,case\n标准,{CASE}\n", encoding="utf-8")
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [PROGRAM, "run", "cases.csv", "--save", "ours"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert b"can't be written in ascii; it must be" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("value", ["no-such-compiler", "/tmp", '"unbalanced'])
def test_a_bad_compiler_gives_a_sentence(value: str, tmp_path: Path) -> None:
    """test_c_process.py tests CC."""
    (tmp_path / "p.cpp").write_text("int main() { return 0; }\n")
    text = pooltide("cc", tmp_path / "p.cpp", "-o", tmp_path / "p", rc=2, CXX=value)
    assert text.startswith(f"Error: $CXX is {value!r}; it must be a command")
    assert text.count("\n") == 1


def test_a_full_disk_gives_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(build, "write_own", full)
    with pytest.raises(build.CannotBuild, match=r"can't be written: No space left on device$"):
        build.install(root=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("avg2d:1x1x5x5:k9:f32",), "avg2d:1x1x5x5:k9:f32: "),
        (("avg2d:99999x99999x99x99:k3:f32",), "this machine has"),
    ],
    ids=["refused", "too large"],
)
def test_bench_of_a_case_that_can_not_be_measured_gives_status_2(
    arguments: tuple[str, ...], says: str
) -> None:
    run = CliRunner().invoke(main, ["bench", *arguments, "--rounds", "3", "--json"])
    assert run.exit_code == 2, run.output
    assert says in run.stderr


def test_bench_of_a_file_with_a_line_that_can_not_be_read_gives_status_2(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text(f"{CASE}\nrubbish:1\n")
    run = CliRunner().invoke(main, ["bench", str(tmp_path / "cases"), "--rounds", "3", "--json"])
    assert run.exit_code == 2
    assert "the operator is 'rubbish'" in run.stderr


@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        (0, ("check", CASE)),
        (0, ("run", CASE)),
        (1, ("check", "avg2d:1x16x4x4:k4:s1:p3")),
        (1, ("run", "avg2d:1x1x23x29:k3:s2:p1:bf16", "--standard", "thousandth")),
        (2, ("run", "avg2d:1x1x5x5:k9")),
        (2, ("show", "max_unpool2d:1x1x4x4:k2", "-o", "p.svg")),
        (2, ("compare", "nothing", "nowhere")),
        (2, ("check", "rubbish")),
        (2, ("run", CASE, "--nonsense")),
    ],
    ids=str,
)
def test_one_rule_for_the_exit_status(status: int, arguments: tuple[str, ...], tmp_path: Path) -> None:
    pooltide(*arguments, rc=status, cwd=tmp_path)


def test_the_values_of_the_demo_fit_80_columns() -> None:
    values = [line for line in pooltide("demo").splitlines() if line.startswith(("  result", "  gradOutput"))]
    assert len(values) == 8
    assert max(map(len, values)) <= 80
