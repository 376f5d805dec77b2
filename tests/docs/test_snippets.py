"""Every snippet of the READMEs and of docs/ works when it is typed alone, in a new process and an empty folder."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commandline import PROGRAM
from paths import ROOT
from shares import fast_some

PAGES = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").glob("*.md"))]
pytestmark = pytest.mark.skipif(
    not PAGES[0].exists(), reason="NO README: the tests run outside the source tree"
)
COMMANDS = {"python": [sys.executable, "-W", "error", "-c"], "bash": ["bash", "-euo", "pipefail", "-c"]}
# Tested elsewhere: "console" is a session (test_consoles.py), "cmake" a build (test_c_process.py), "pycon" the
# example of a docstring (test_describe.py). Blocks without a language are output, cases and files.
OTHERS = {"", "console", "cmake", "pycon", "text"}


def snippets() -> list[tuple[str, str, str]]:
    """Returns page, language and text of each snippet. The READMEs share their snippets; each is there once."""
    found = {}
    for page in filter(Path.exists, PAGES):
        for language, text in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            found.setdefault((language, text), page.name)
    return [(page, language, text) for (language, text), page in found.items() if language not in OTHERS]


def test_every_language_is_tested() -> None:
    found = snippets()
    assert {language for _, language, _ in found} == set(COMMANDS)
    assert {page for page, _, _ in found} >= {"README.md", "numpy.md", "cann.md", "pytorch.md"}


@pytest.mark.parametrize(
    ("page", "language", "text"), fast_some(snippets(), 2), ids=lambda value: value.split("\n")[0][:40]
)
def test_snippet(page: str, language: str, text: str, tmp_path: Path) -> None:
    if "torch" in text and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    run = subprocess.run(
        [*COMMANDS[language], text],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, f"{page}:\n{text}\n{run.stdout}{run.stderr}"
    if page.startswith(
        "README"
    ):  # typed in the clone, a door's commands write to the folder that git ignores
        assert {path.name for path in tmp_path.iterdir()} <= {"examples", "build"}, text
        assert "/build/" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
