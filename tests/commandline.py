"""The installed `pooltide`, as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "pooltide"


def pooltide(*arguments: object, rc: int = 0, cwd: Path | None = None, **environment: str) -> str:
    """What it prints, both streams. It must end with `rc` and never with a traceback."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | environment,
        timeout=300,
    )
    text = done.stdout + done.stderr
    assert "Traceback" not in text, text
    assert done.returncode == rc, f"exit status {done.returncode}\n{text}"
    return text
