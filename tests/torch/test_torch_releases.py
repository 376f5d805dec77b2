"""Releases of PyTorch: what pooltide needs of a release, and the sentence for one that lacks it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pooltide.torch as pt  # noqa: E402
from pools import POOLS, gradient, sample  # noqa: E402
from pooltide.torch import releases  # noqa: E402
from pooltide.torch.patching import installation  # noqa: E402

SOURCES = sorted(Path(pt.__file__).parent.rglob("*.py"))
UNTESTED = """
import warnings
import torch, pooltide.torch
from pooltide.torch import releases
import torch.nn.functional as F

def gradient():
    x = torch.arange(77.0).reshape(1, 7, 11).requires_grad_()
    F.max_pool2d(x, 3).sum().backward()
    return x.grad

plain = gradient()
releases.TESTED = ()
warnings.simplefilter("error")
with pooltide.torch.patch(forward=hasattr(torch.library, "get_kernel")):
    assert torch.equal(gradient(), plain)
"""


def _python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_every_private_name_is_listed() -> None:
    text = "\n".join(path.read_text("utf-8") for path in SOURCES if path.stem != "releases")
    used = set(re.findall(r"\btorch\.(_(?!_)[\w.]+\.\w+|_C\.\w+)", text)) - {"_dynamo.convert_frame"}
    for module, names in re.findall(r"from torch\.(_[\w.]+) import ([\w, ]+)", text):
        used |= {f"{module}.{name}" for name in names.split(", ")}
    used -= {"_prims_common.wrappers"}  # a module of the loop above
    used |= {f"autograd.{name}" for name in re.findall(r"\bforward_ad\._\w+", text)}
    assert used == set(releases.PRIVATE)


@pytest.mark.slow
def test_a_release_without_a_private_name_is_refused() -> None:
    run = _python("import torch; del torch._C._has_storage\nimport pooltide.torch")
    assert run.stderr.splitlines()[-1] == (
        f"ImportError: pooltide.torch: PyTorch {torch.__version__} has no torch._C._has_storage; it must be a "
        f"release that has, as {', '.join(releases.TESTED)}."
    )


@pytest.mark.slow
def test_an_old_release_is_refused() -> None:
    run = _python("import torch; torch.__version__ = '2.5.1+cpu'\nimport pooltide.torch")
    assert run.stderr.splitlines()[-1] == (
        "ImportError: pooltide.torch: PyTorch is 2.5.1+cpu; it must be 2.6 or newer."
    )


def test_the_arguments_of_every_overridden_operator_are_those_of_aten() -> None:
    releases.check_operators(installation._arguments())
    releases.check_operators(installation._forward_arguments())


@pytest.mark.slow
def test_patch_works_with_a_release_that_was_not_tested() -> None:
    run = _python(UNTESTED)
    assert run.returncode == 0, run.stderr


@pytest.fixture
def untested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that was not tested, in which nothing was patched yet."""
    monkeypatch.setattr(releases, "TESTED", ("2.6",))
    monkeypatch.setattr(torch, "__version__", "9.9.0")
    monkeypatch.setattr(installation, "_library", None)
    monkeypatch.setattr(installation, "_forward_library", None)


def _operator(*names: str) -> Any:
    return SimpleNamespace(
        default=SimpleNamespace(
            _schema=SimpleNamespace(arguments=[SimpleNamespace(name=name) for name in names])
        )
    )


@pytest.mark.parametrize(
    ("operator", "given"),
    [
        (SimpleNamespace(), "is missing"),
        (_operator("grad_output", "self", "mode"), "takes (grad_output, self, mode)"),
    ],
    ids=["missing", "changed"],
)
def test_changed_operators_are_named_and_nothing_is_patched(
    operator: Any, given: str, untested: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = POOLS[0]
    must = gradient(pool.forward, sample(pool))
    monkeypatch.setattr(torch.ops.aten, "_adaptive_avg_pool3d_backward", operator)
    with pytest.raises(NotImplementedError) as error:
        pt.patch()
    assert str(error.value) == (
        f"patch: aten::_adaptive_avg_pool3d_backward {given} in PyTorch 9.9.0; it must take "
        "(grad_output, self), as in PyTorch 2.6. Nothing is patched."
    )
    assert installation._library is None
    assert not pt.is_patched()
    assert torch.equal(gradient(pool.forward, sample(pool)), must)


@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="this release cannot patch forwards")
def test_changed_pools_are_named_and_nothing_is_patched(
    untested: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.aten, "adaptive_max_pool2d", SimpleNamespace())
    with pytest.raises(NotImplementedError, match=r"^patch: aten::adaptive_max_pool2d is missing in PyTorch"):
        pt.patch(forward=True)
    assert installation._library is installation._forward_library is None
    assert not pt.is_patched()


def test_a_release_that_cannot_trace_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.fx.experimental import proxy_tensor

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no graph")

    monkeypatch.setattr(proxy_tensor, "make_fx", fail)
    with pytest.warns(UserWarning, match=r"cannot trace the patched pools: no graph; models compiled"):
        installation._check_traces()
    assert not pt.is_patched()
