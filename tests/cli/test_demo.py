"""`pooltide demo`, through the installed command, and each example as a script."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import gettempdir

import pytest

import pooltide.examples
from pooltide.cli.demo import PROGRAMS

POOLTIDE = Path(sysconfig.get_path("scripts")) / "pooltide"


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | environment
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_the_demo_shows_results_findings_and_checks() -> None:
    run = _run(str(POOLTIDE), "demo")
    assert run.returncode == 0, run.stderr
    assert "0.5 0.5 1 1 1.5 1.5 2 2 2.5 2.5 3 3 3.5 3.5 4 4" in run.stdout
    assert "0.0625 0.0625" in run.stdout
    assert "the 2×2 plane has no cell 6" in run.stdout
    assert "indices reaches bytes 0 to 8 of a block of 4 bytes" in run.stdout
    (finding,) = (line for line in run.stdout.splitlines() if "indices reaches" in line)
    assert "adaptive_max_pool2d_backward.py:" in finding
    assert "click" not in finding  # the lines of the program alone
    assert "<string>" not in finding
    assert run.stdout.count("equals the float64 reference") == len(PROGRAMS)
    assert "4 of 4 programs agree with the float64 reference." in run.stdout


@pytest.mark.slow
def test_the_demo_ends_with_a_command_for_each_door(tmp_path: Path) -> None:
    """Each of them works in an empty folder, and leaves no file there."""
    doors = {"train with PyTorch": 17, "write for Ascend": 7, "accept operators": 1}
    lines = _run(str(POOLTIDE), "demo", COLUMNS="60").stdout.splitlines()[-len(doors) :]
    for line, (door, printed_lines) in zip(lines, doors.items(), strict=True):
        if "PyTorch" in door and importlib.util.find_spec("torch") is None:
            continue
        assert line.startswith(f"  you {door} ")
        path = f"{POOLTIDE.parent}:{os.environ['PATH']}"
        command = f"cd {tmp_path} && {line[26:]}"
        run = _run("bash", "-euo", "pipefail", "-c", command, PATH=path, TMPDIR=gettempdir())
        assert run.returncode == 0, run.stderr
        assert run.stdout.count("\n") >= printed_lines, run.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_demo_in_strict_mode_shows_the_stream_fail() -> None:
    run = _run(str(POOLTIDE), "demo", POOLTIDE_CHECKS="strict")
    assert run.returncode == 0, run.stdout
    assert "stopped: aclrtSynchronizeStream failed, status 500000" in run.stdout
    assert "3 of 4 programs agree" in run.stdout
    assert "1 was stopped by strict checks, as it should: adaptive_max_pool2d_backward." in run.stdout


def test_the_demo_fails_when_a_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from pooltide.cli import demo
    from pooltide.examples import avg_pool2d_backward

    monkeypatch.setattr(avg_pool2d_backward, "main", lambda: avg_pool2d_backward.SELF)
    result = CliRunner().invoke(demo.command)
    assert result.exit_code == 1
    assert "differs from the float64 reference" in result.output


@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_run_as_scripts(name: str) -> None:
    path = Path(pooltide.examples.__file__).with_name(f"{name}.py")
    run = _run(sys.executable, str(path))
    assert run.returncode == 0, run.stderr
    assert "[[[" in run.stdout
