"""The caches of compiled code: what a patched process writes, no other process finds, and the reverse."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pooltide.torch as pt  # noqa: E402
from pools import BEFORE_2_12, quiet_patch  # noqa: E402
from pooltide.torch.patching.compile_caches import CACHE_TAG  # noqa: E402

config = pytest.importorskip("torch.compiler.config")
tagged = pytest.mark.skipif(not hasattr(config, "cache_key_tag"), reason="this release has no tag of caches")

PROGRAM = """
import sys, threading
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

torch._functorch.config.enable_autograd_cache = torch._inductor.config.fx_graph_cache = True
patched, threaded = sys.argv[1] == "patched", sys.argv[2] == "thread"
if patched:
    import pooltide.torch
    from pooltide.torch.dispatch import custom_operators
    calls, compute = [], custom_operators.compute
    custom_operators.compute = lambda *rest: calls.append(rest) or compute(*rest)
    pooltide.torch.patch()

def work():
    x = torch.arange(54.).reshape(1, 2, 3, 3, 3).requires_grad_()
    torch.compile(lambda x: F.max_pool3d(x, 2, 1).square().sum())(x).backward()
    values.append(x.grad.sum().item())

values = []
if threaded:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
else:
    work()
assert values == [sum(2 * (27 * c + 9 * d + 3 * h + w + 13.) for c in (0, 1) for d in (0, 1) for h in (0, 1) for w in (0, 1))]
assert not patched or len(calls) == 1, "PyTorch computed the gradient of a patched process"
print("found", counters["aot_autograd"]["autograd_cache_hit"])
"""


def run(cache: Path, who: str, where: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, who, where],
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()[-1]


@tagged
@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [("patched thread", "plain main"), ("plain main", "patched thread"), ("patched main", "patched thread")],
    ids=str,
)
def test_no_process_finds_the_code_of_another_kind(order: tuple[str, str], tmp_path: Path) -> None:
    first, second = (run(tmp_path, *kind.split()) for kind in order)
    assert first == "found 0"
    assert second == ("found 1" if order[0].split()[0] == order[1].split()[0] else "found 0")


def tag_in_thread() -> str:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(config.cache_key_tag))
    thread.start()
    thread.join()
    return found[0]


@tagged
def test_all_threads_have_the_tag_exactly_while_patched(monkeypatch: Any) -> None:
    own = config.cache_key_tag
    with quiet_patch(False), quiet_patch(False):
        assert tag_in_thread() == CACHE_TAG
        assert config.cache_key_tag == own + CACHE_TAG
        config.cache_key_tag += "mine"
        assert config.cache_key_tag == f"{own}mine{CACHE_TAG}"
    assert config.cache_key_tag == f"{own}mine"
    assert tag_in_thread() == (f"{own}mine" if BEFORE_2_12 else "")  # threads had one tag
    config.cache_key_tag = own


@tagged
def test_a_tag_that_is_no_string(monkeypatch: Any) -> None:
    """PyTorch reads TORCH_COMPILE_CACHE_KEY_TAG=1 as True."""
    own = config.cache_key_tag
    config.cache_key_tag = True
    with quiet_patch(False):
        assert config.cache_key_tag == f"True{CACHE_TAG}"
    assert config.cache_key_tag is True
    config.cache_key_tag = own


def test_a_patch_waits_for_the_end_of_a_compilation() -> None:
    """Else the key would be computed before the patch, and the code after it."""
    from torch._dynamo.convert_frame import compile_lock

    handles: list[pt.Patch] = []
    thread = threading.Thread(target=lambda: handles.append(quiet_patch(False)))
    with compile_lock:
        thread.start()
        thread.join(0.2)
        assert not pt.is_patched()
        with quiet_patch(False):  # a thread that compiles does not wait for itself
            assert pt.is_patched()
    thread.join()
    assert pt.is_patched()
    handles[0].remove()
    assert not pt.is_patched()
