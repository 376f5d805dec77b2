"""The `console` blocks of a page: commands after "$ ", each followed by what it prints."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from commandline import PROGRAM


def steps(page: Path) -> list[tuple[str, str]]:
    """Returns the commands of a page in order, each with its output."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)
    found = (step.partition("\n") for block in blocks for step in re.split(r"^\$ ", block, flags=re.M)[1:])
    return [(command, output) for command, _, output in found]


def type_in(page: Path, folder: Path) -> int:
    """Types the commands of a page in one folder, and returns their number. Each must print what the page says.

    `cat FILE` of a file that is not there yet stands for a file that the reader writes. In an output, … stands
    for text that differs from run to run. A command may fail only if its output says so.
    """
    environment = os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    for command, output in steps(page):
        if command.startswith("cat ") and not (file := folder / command[4:]).exists():
            file.write_text(output, encoding="utf-8")
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # as on a terminal
            text=True,
            cwd=folder,
            env=environment,
            timeout=300,
        )
        pattern = ".*?".join(map(re.escape, output.split("…")))
        assert re.fullmatch(pattern, done.stdout), f"{command}\n{done.stdout}"
        assert done.returncode == ("refused" in output or "FAIL" in output), f"{command}\n{done.stdout}"
    return len(steps(page))
