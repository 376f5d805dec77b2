"""Two gloo processes: DTensor shards have the gradients of one process, DDP and FSDP2 those of plain PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paths import SUPPORT

torch = pytest.importorskip("torch")

WORKER = SUPPORT / "torch_worker.py"


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    command = [sys.executable, str(WORKER)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
            text=True,
        )
        for rank in range(2)
    ]
    try:
        texts = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(texts)
    assert all("same gradients" in text for text in texts)
