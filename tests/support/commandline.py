"""The `pooltide` command: `PROGRAM` is the installed program; the functions are quicker.

`pooltide` runs the command in a fork of a server, which has imported the command line once. Otherwise most
of the time of these tests would be the start of Python. `invoke` runs it in this process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from pooltide.cli import COMMANDS, main
from pooltide.operators.catalog import operators

PROGRAM = Path(sys.executable).parent / "pooltide"
HANG = 300  # seconds, after which a call is killed


def invoke(*arguments: object, rc: int = 0) -> str:
    """What it prints, both streams. It must end with `rc`."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == rc, result.output
    return result.output


def golden_and_chip(folder: Path, cases: str) -> tuple[Path, Path]:
    """The golden data of the cases, and our results in place of those of a chip."""
    golden, chip = folder / "golden", folder / "chip"
    (folder / "cases.txt").write_text(cases)
    invoke("golden", folder / "cases.txt", "-o", golden)
    invoke("run", folder / "cases.txt", "--save", chip)
    return golden, chip


def results_of(golden: Path, to: Path) -> Path:
    """Copies golden data as results of a chip: without the manifest, which says that they are golden data."""
    return Path(shutil.copytree(golden, to, ignore=shutil.ignore_patterns("manifest.jsonl")))


def pooltide(*arguments: object, rc: int = 0, cwd: Path | None = None, **environment: str) -> str:
    """What it prints, both streams. It must end with `rc` and never with a traceback."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        call = {
            "arguments": [*map(str, arguments)],
            "folder": folder,
            "cwd": str(cwd or Path.cwd()),
            "environment": os.environ | environment,
        }
        print(json.dumps(call), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        text = "".join((Path(folder) / name).read_text() for name in ("stdout", "stderr"))
    assert "Traceback" not in text, text
    assert status == rc, f"exit status {status}\n{text}"
    return text


@cache
def _server() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _serve() -> None:
    """Forks for every line of the standard input, and prints the exit status of each fork."""
    for name in COMMANDS:
        import_module(f"pooltide.cli.{name}")
    operators()  # reads the pages
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            _run(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(arguments: list[str], folder: str, cwd: str, environment: dict[str, str]) -> Any:
    for number, name in enumerate(("/dev/null", f"{folder}/stdout", f"{folder}/stderr")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    signal.alarm(HANG)
    main(arguments, prog_name="pooltide")


if __name__ == "__main__":
    _serve()
