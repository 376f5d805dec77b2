"""What a Python program is told at its end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FORGOTTEN_WAIT = """
import numpy as np
from pooltide import acl, aclnn
acl.init()
acl.rt.set_device(0)
g, x, out = (acl.tensor_from_numpy(np.ones((1, n, n, n), np.float32)) for n in (1, 2, 2))
_, executor, _ = aclnn.aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(g, x, out)
aclnn.aclnnAdaptiveAvgPool3dBackward(None, 0, executor, None)
host = bytes(32)
for _ in range(3):
    acl.rt.memcpy(acl.util.bytes_to_ptr(host), 32, acl.aclGetRawTensorAddr(out)[0], 32, 2)
LOOK
"""


@pytest.mark.parametrize(
    ("checks", "look", "lines"),
    [
        ("warn", "", 2),
        ("strict", "", 2),
        ("strict", "[acl.rt.memcpy(0, 0, 0, 0, 9) for _ in range(4)]", 2),  # by CANN's documents
        ("off", "", 0),
    ],
)
def test_a_program_that_ignores_statuses_is_told_its_findings(
    tmp_path: Path, checks: str, look: str, lines: int
) -> None:
    settings = {"POOLTIDE_CHECKS": checks, "POOLTIDE_REPORT": str(tmp_path / "report.json")}
    command = [sys.executable, "-c", FORGOTTEN_WAIT.replace("LOOK", look)]
    run = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert run.returncode == 0
    shown = run.stderr.splitlines()
    assert len(shown) == lines, run.stderr
    if lines:
        assert "and the program has not waited for that; call aclrtSynchronizeStream first." in shown[0]
        assert shown[1].startswith("pooltide: 3 times: aclrtMemcpy: src is")
        counts = [
            finding["count"]
            for finding in json.loads(Path(settings["POOLTIDE_REPORT"]).read_text())["findings"]
        ]
        assert counts == [3] + [4] * bool(look)


def test_a_program_that_asks_for_its_messages_is_told_nothing(tmp_path: Path) -> None:
    asks = FORGOTTEN_WAIT.replace("LOOK", "").replace("32, 2)", "32, 2); acl.get_recent_err_msg()")
    command = [sys.executable, "-c", asks]
    environment = os.environ | {"POOLTIDE_CHECKS": "strict"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


LEAKS = """
from pooltide import acl
acl.init()
acl.rt.set_device(0)
acl.rt.malloc(64, 0)
acl.rt.create_stream()
x = acl.aclCreateIntArray([1])
print(acl.finalize())
"""


@pytest.mark.parametrize(("checks", "status"), [("warn", 0), ("strict", 500000), ("off", 0)])
def test_memory_and_streams_left_at_the_end_are_found(checks: str, status: int) -> None:
    environment = os.environ | {"POOLTIDE_CHECKS": checks}
    command = [sys.executable, "-c", LEAKS]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, f"{status}\n")
    lines = sorted(run.stderr.splitlines())
    assert len(lines) == (0 if checks == "off" else 2), run.stderr
    if lines:
        assert re.search(
            r"aclFinalize: 1 block of device memory, 64 bytes, .* taken at <string>:5\)", lines[0]
        )
        assert "aclFinalize: 1 stream is still live: made at <string>:6; each must be destroyed" in lines[1]
