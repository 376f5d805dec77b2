"""The training examples: with patch() the same weights twice; and what they keep in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pools import watch_patched  # noqa: E402
from pooltide.examples.training import table  # noqa: E402
from shares import fast_first  # noqa: E402


@pytest.mark.parametrize("name", fast_first(["train_cbam", "train_densenet3d"]))
def test_the_same_weights_bit_for_bit(name: str, monkeypatch: Any) -> None:
    reached: set[str] = set()
    watch_patched(monkeypatch, reached.add)
    example = import_module(f"pooltide.examples.{name}")
    rows = {(device, whose): result for device, whose, result in table(example.Network, example.SHAPE)}
    assert len(reached) == 2
    assert rows["cpu", "pooltide"].startswith("the same weights")
    assert rows["cpu", "pooltide"] == rows["cpu", "PyTorch"]  # on the CPU ours are PyTorch's bits
    if torch.cuda.is_available():
        assert rows["cuda", "pooltide"].startswith("the same weights")


@pytest.mark.slow
def test_an_example_runs_as_a_script() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pooltide.examples.train_cbam"], capture_output=True, text=True, check=True
    )
    assert "pooltide  the same weights" in run.stdout


PEAK = """
import re, sys, torch
import torch.nn.functional
import pooltide.torch.functional
F = pooltide.torch.functional if sys.argv[1] == "ours" else torch.nn.functional
# Of this program alone: getrusage's peak begins with that of whoever started it.
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
torch.set_num_threads(1)
x = torch.ones(1, 1, 8, 8, requires_grad=True)
step = lambda x: F.avg_pool2d(F.adaptive_max_pool2d(x * 2, x.shape[-1] // 2), 2)
step(x).sum().backward()
start = peak()
x = torch.ones(1, 1, 2048, 2048, requires_grad=True)
ys = [step(x) for _ in range(12)]
sum(y.sum() for y in ys).backward()
print(peak() - start)
"""


@pytest.mark.slow
def test_peak_memory(tmp_path: Path) -> None:
    """Twelve branches of two pools on 16 MB each: PyTorch keeps 16 + 8 + 4 MB per branch, we keep 4.

    Large blocks come straight from the system, so that the peak is what is alive, not holes in a heap.
    """
    script = tmp_path / "peak.py"
    script.write_text(PEAK)
    peaks = {}
    for whose in ("ours", "theirs"):
        run = subprocess.run(
            [sys.executable, script, whose],
            env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},
            capture_output=True,
            text=True,
            check=True,
        )
        peaks[whose] = int(run.stdout) / 1024
    assert peaks["theirs"] - peaks["ours"] > 12 * 20 * 0.8, peaks
