"""Kernels of tensors run on PyTorch's threads; those of arrays, and all after fork(), on threads of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

PROGRAM = """
import os, sys, torch, pooltide.torch
from pooltide.torch import openmp

def threads():
    return len(os.listdir("/proc/self/task"))

def gradient():
    return pooltide.torch.avg_pool2d_backward(grad, x, 3, 2, 1)

torch.set_num_threads(3)
pooltide.set_num_threads(3)
x, grad = torch.randn(8, 64, 64, 64), torch.randn(8, 64, 32, 32)
torch.relu(x)  # starts PyTorch's threads
before, used = threads(), openmp.use_team()
first = gradient()
added = threads() - before
torch.set_num_threads(1)
alone = gradient()
torch.set_num_threads(3)
wanted = first.numpy().tobytes()
child = os.fork()
if child == 0:  # PyTorch's own operations may hang here
    openmp.use_team()  # as an import does
    same = gradient().numpy().tobytes() == wanted
    os._exit(0 if same and threads() > 1 else 1)
child = os.waitpid(child, 0)[1]
before = threads()
pooltide.avg_pool2d_backward(grad.numpy(), x.numpy(), 3, 2, 1)
print(used, added, torch.equal(alone, first), child, threads() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it counts threads in /proc")
def test_kernels_use_the_threads_of_pytorch_until_a_fork() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    used, added, same, child, of_arrays = done.stdout.split()
    assert (same, child) == ("True", "0")
    if used == "True":
        assert added == "0", "the call started threads of its own"
        assert of_arrays == "2", "NumPy arrays use threads of pooltide's"


def test_without_openmp_there_is_no_team(monkeypatch: pytest.MonkeyPatch) -> None:
    from pooltide.torch import openmp

    monkeypatch.setattr(torch.backends.openmp, "is_available", lambda: False)
    assert not openmp.use_team()
    monkeypatch.undo()
    monkeypatch.setattr(openmp, "PARALLEL", "no_such_function")
    assert not openmp.use_team()
