"""What the program prints, and where it ends when nobody can or will read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from commandline import PROGRAM
from pooltide.cli import main
from pooltide.cli.output import one_line, reproduce, visible
from shares import fast_some

CASE = "avg2d:2x3x5x7:k3"
COMMANDS = [
    ["ops"],
    ["--help"],
    ["check", CASE],
    ["run", CASE],
    ["check", "-h"],
    ["show", CASE, "-o", "/dev/null"],
]


@pytest.mark.parametrize("command", fast_some(COMMANDS, 2), ids=" ".join)
def test_a_full_disk_is_one_sentence(command: list[str], tmp_path: Path) -> None:
    """A limit of 0 bytes on the size of a file takes the place of a full disk."""
    script = f'ulimit -f 0; exec "$0" "$@" > {tmp_path}/out'
    done = subprocess.run(["bash", "-c", script, PROGRAM, *command], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "the output can't be written: File too large\n"


@pytest.mark.parametrize("command", fast_some(COMMANDS, 2), ids=" ".join)
def test_a_closed_pipe_is_silent(command: list[str]) -> None:
    script = (
        "import subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE); p.stdout.close()"
    )
    script += "; sys.exit(p.wait())"
    done = subprocess.run([sys.executable, "-c", script, PROGRAM, *command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_closed_output_and_input() -> None:
    done = subprocess.run(["bash", "-c", '"$0" ops >&-', PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "the standard output is closed\n")
    done = subprocess.run(["bash", "-c", '"$0" check - <&-', PROGRAM], capture_output=True, text=True)
    assert done.returncode == 2
    assert "the standard input is closed" in done.stderr
    done = subprocess.run([PROGRAM, "check", "-"], capture_output=True, text=True, input="# none\n")
    assert done.returncode == 2
    assert "the standard input has no case" in done.stderr


def test_the_module_is_the_same_program() -> None:
    command = [sys.executable, "-m", "pooltide", "check", "avg2d:5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: pooltide check")


def test_control_characters_are_shown_not_sent() -> None:
    assert visible("a\x1b[31m\x9b\u202e\udcffé–\n") == "a\\u001b[31m\\u009b\\u202e\\udcffé–\n"
    assert one_line("a\nreproduce: rm") == "a\\nreproduce: rm"
    assert (
        reproduce("show", CASE, "-o", "a b'\n")
        == "reproduce: pooltide show avg2d:2x3x5x7:k3 -o 'a b'\"'\"'\n'"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "avg2d:\x1b[31m"],
        ["check", "\x1b[31m"],
        ["ops", "\x1b[31m"],
        ["show", "avg2d:1x1x5x5:k9", "-o", "\x1b[31m.png"],
        ["compare", "\x1b[31m.npy", "\x1b[31m.npy"],
        ["\x1b[31m"],
    ],
)
def test_no_command_sends_them(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (1, 2)
    assert "\x1b" not in result.output


def test_a_report_of_any_name(tmp_path: Path) -> None:
    """The page shows the command, whose words need not be UTF-8."""
    (tmp_path / "cases").write_text(f"{CASE}\n\x1b[31m:<b>\n")
    command = [PROGRAM, "golden", "cases", "-o", b"\xff", "--report", b"r\xff\x1b.html"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    page = next(tmp_path.glob("r*.html")).read_bytes()
    assert b"\x1b" not in page
    assert b"<b>'" not in page
