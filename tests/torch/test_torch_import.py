"""Importing pooltide.torch: without PyTorch, twice, and again after its modules were removed."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
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


FIRST = """
import sys, torch, pooltide.torch
import torch.nn.functional as F
early = "sympy" in sys.modules
for form in (torch.contiguous_format, torch.channels_last):
    x = torch.randn(2, 3, 8, 8).to(memory_format=form).requires_grad_()
    pooltide.torch.avg_pool2d_backward(torch.randn(2, 3, 4, 4), x, 2)
    pooltide.torch.functional.max_pool2d(x, 2).sum().backward()
    with pooltide.torch.patch():
        F.max_pool2d(x, 2).sum().backward()
print(early or "sympy" not in sys.modules)
"""


def test_first_calls_do_not_import_sympy() -> None:
    """PyTorch's suggest_memory_format imports sympy, which made the first call take a second."""
    pytest.importorskip("torch")
    run = _python(FIRST)
    assert run.stdout.split() == ["True"], run.stdout + run.stderr


def test_no_name_hides_a_module() -> None:
    """`import pooltide.torch.x.y as z` reads the attribute `x` of `pooltide.torch`: it must be the module."""
    pytest.importorskip("torch")
    import pooltide.torch

    found = pkgutil.walk_packages(pooltide.torch.__path__, "pooltide.torch.")
    names = [module.name for module in found if not module.name.endswith("__main__")]
    assert "pooltide.torch.patching.handle" in names
    for name in names:
        package, _, last = name.rpartition(".")
        module = importlib.import_module(name)
        assert getattr(sys.modules[package], last) is module, name


def test_channels_last_is_what_pytorch_says() -> None:
    torch = pytest.importorskip("torch")
    from torch._prims_common import suggest_memory_format

    from pools import BEFORE_2_11

    if BEFORE_2_11:
        pytest.skip("PyTorch before 2.11 takes some planes of one channel for channels-last")
    from pooltide.torch.tensors import is_channels_last

    for axes, form, steps in (
        (2, torch.channels_last, (0, 1, 2, 6, 12)),
        (3, torch.channels_last_3d, (1, 2, 4)),
    ):
        for shape in itertools.product((0, 1, 2), repeat=axes + 2):
            for strides in itertools.product(steps, repeat=axes + 2):
                tensor = torch.empty_strided(shape, strides, device="meta")
                expected = suggest_memory_format(tensor) == form
                assert is_channels_last(tensor, axes) == expected, (shape, strides)
