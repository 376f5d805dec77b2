"""Importing pooltide.torch: without PyTorch, twice, and again after its modules were removed."""

from __future__ import annotations

import subprocess
import sys

import pytest

USE = """
import torch, pooltide.torch
import torch.nn.functional as F

def gradient():
    x = torch.arange(77.0).reshape(1, 7, 11).requires_grad_()
    F.max_pool2d(x, 3).sum().backward()
    return x.grad

def check():
    import pooltide.torch
    grad = torch.randn(1, 2, 3)
    torch.ops.pooltide.avg_pool2d_backward  # the operators are there
    assert pooltide.torch.avg_pool2d_backward(grad, (1, 7, 11), 3).shape == (1, 7, 11)
    with pooltide.torch.patch():
        assert pooltide.torch.is_patched()
        assert torch.equal(gradient(), plain)
    assert not pooltide.torch.is_patched()
    y = pooltide.torch.functional.max_pool2d(torch.randn(1, 7, 11, requires_grad=True), 3)
    y.sum().backward()

plain = gradient()
check()
"""
RELOAD = "import importlib, pooltide.torch; importlib.reload(pooltide.torch); check()\n"
COMPILED = """
with pooltide.torch.patch():
    assert torch.equal(torch.compile(gradient, backend="aot_eager")(), plain)
"""
PURGE = (
    "import sys; [sys.modules.pop(n) for n in list(sys.modules) if n.split('.')[0] == 'pooltide']; check()\n"
)


def _python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_without_pytorch_the_import_says_what_to_install() -> None:
    run = _python("import sys; sys.modules['torch'] = None\nimport pooltide.torch")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: pooltide.torch: PyTorch is not installed; it must be, in version 2.6 or newer. "
        "Install it with: pip install 'pooltide[torch]', or: pip install 'torch>=2.6'."
    )


@pytest.mark.slow
def test_another_import() -> None:
    pytest.importorskip("torch")
    run = _python(USE + RELOAD + PURGE + RELOAD)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_modules_may_be_removed_while_pytorch_is_patched() -> None:
    pytest.importorskip("torch")
    program = USE + "kept = pooltide.torch.patch(); gradient()\n" + PURGE
    program += "kept.remove(); assert torch.equal(gradient(), plain); check()\n" + RELOAD + COMPILED
    run = _python(program)
    assert run.returncode == 0, run.stderr
