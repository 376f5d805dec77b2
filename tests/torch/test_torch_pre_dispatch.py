"""Traces before dispatch, make_fx(…, pre_dispatch=True) and torch.export: their graphs hold for other inputs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pools import EVERY, Pool, quiet_patch, sample  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402

PATCHES = [False, True] if can_call_aten() else [False]
each_patch = pytest.mark.parametrize("forward", PATCHES, ids=["gradients", "forwards"][: len(PATCHES)])
each_pool = pytest.mark.parametrize("pool", EVERY, ids=str)
MAXIMA = [pool for pool in EVERY if "max" in pool.name]


def other(pool: Pool) -> Any:
    return sample(pool).flip(0, -1) * 2


def steps_of(pool: Pool, module: Any) -> list[Callable[[Any], Any]]:
    """The pool, and its gradient."""

    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(pool.forward(x, module).square().sum(), x)[0]

    return [lambda x: pool.forward(x, module), gradient]


def traced(step: Callable[..., Any], *arguments: Any) -> Any:
    return make_fx(step, pre_dispatch=True)(*arguments)


def assert_same(graph: Any, step: Callable[..., Any], *arguments: Any) -> None:
    found, must = graph(*arguments), step(*arguments)
    assert torch.is_grad_enabled(), "the graph left autograd off"
    pairs = zip(found, must, strict=True) if isinstance(must, tuple) else [(found, must)]
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


@each_pool
def test_graphs_of_our_pools_and_gradients(pool: Pool) -> None:
    for step in steps_of(pool, functional):
        assert_same(traced(step, sample(pool)), step, other(pool))


@pytest.mark.parametrize("pool", MAXIMA, ids=str)
def test_graphs_with_indices(pool: Pool) -> None:
    indexed = Pool(pool.name, pool.shape, pool.arguments | {"return_indices": True})
    (step, _) = steps_of(indexed, functional)
    assert_same(traced(step, sample(pool)), step, other(pool))


def test_graphs_of_gradient_functions_and_unpools() -> None:
    x, indices = torch.randn(2, 3, 4, 4), torch.zeros(2, 3, 2, 2, dtype=torch.int64)
    steps: list[Callable[..., Any]] = [
        lambda g: pt.avg_pool2d_backward(g, x, 2),
        lambda g: pt.max_pool2d_backward(g, x, indices, 2),
        lambda g: pt.adaptive_avg_pool2d_backward(g, x),
        lambda g: functional.max_unpool2d(g, indices, 2),
    ]
    g = torch.randn(2, 3, 2, 2)
    for step in steps:
        step(g)  # the call is known now, and has a shortcut
        assert_same(traced(step, g), step, g * 3)


@each_pool
@each_patch
def test_graphs_of_patched_pools_are_pytorchs(pool: Pool, forward: bool) -> None:
    """Also where PyTorch's graph keeps the indices of the traced input: max_pool1d, max_pool2d, max_pool3d."""
    for step in steps_of(pool, torch.nn.functional):
        plain = traced(step, sample(pool))
        with quiet_patch(forward):
            graph = traced(step, sample(pool))
            assert graph.code == plain.code
            assert_same(graph, plain, other(pool))


class Model(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        F = torch.nn.functional
        values, indices = F.max_pool2d(x, 2, return_indices=True)
        return F.avg_pool2d(values, 2), F.adaptive_max_pool2d(x, 3), F.adaptive_avg_pool2d(x, 3), indices


class OurModel(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        values, indices = functional.max_pool2d(x, 2, return_indices=True)
        ours = functional.adaptive_max_pool2d(x, 3), functional.adaptive_avg_pool2d(x, 3)
        return functional.avg_pool2d(values, 2), *ours, indices


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
@pytest.mark.parametrize("forward", [None, *PATCHES], ids=str)
def test_exported_programs(strict: bool, forward: bool | None) -> None:
    x = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(2))
    models = [OurModel()] if forward is None else [Model(), OurModel()]
    with nullcontext() if forward is None else quiet_patch(forward):
        for model in models:
            torch.compiler.reset()
            program = torch.export.export(model, (x,), strict=strict).module()
            assert_same(program, model, x.flip(0) * 2)
    torch.compiler.reset()


# argv: what the process does, and the folder of the graphs.
PROCESS = """
import sys
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

role, folder = sys.argv[1:]
x = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(3))
other = x.flip(0, -1) * 2
NAMES = {"avg_pool2d": (3, 2), "max_pool2d": (3, 2), "adaptive_avg_pool2d": ((4, 3),), "adaptive_max_pool2d": ((4, 3),)}

def gradient(module, name):
    def step(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(getattr(module, name)(x, *NAMES[name]).square().sum(), x)[0]
    return step

def forward(module, name):
    return lambda x: getattr(module, name)(x, *NAMES[name])

def model_of(module):
    class Model(torch.nn.Module):
        def forward(self, x):
            return tuple(getattr(module, name)(x, *NAMES[name]) for name in NAMES)
    return Model()

def check(graph, must):
    torch.full((64, 1024), float("nan"))  # memory that is freed again, for results that nobody writes
    assert torch.equal(graph(other), must), role

traced = lambda step: make_fx(step, pre_dispatch=True)(x)
load = lambda name: torch.load(f"{folder}/{name}", weights_only=False)
if role == "writer":
    import pooltide.torch as pt
    for name in NAMES:
        torch.save(traced(forward(pt.functional, name)), f"{folder}/ours_{name}")
        torch.save(traced(gradient(pt.functional, name)), f"{folder}/ours_{name}_gradient")
    torch.export.save(torch.export.export(model_of(pt.functional), (x,)), f"{folder}/exported.pt2")
    with pt.patch(forward=FORWARD):
        for name in NAMES:
            torch.save(traced(forward(F, name)), f"{folder}/patched_{name}")
            torch.save(traced(gradient(F, name)), f"{folder}/patched_{name}_gradient")
    sys.exit()
if role == "without":
    assert "pooltide" not in sys.modules
else:
    import pooltide.torch as pt
musts = {name: (forward(F, name)(other), gradient(F, name)(other), traced(gradient(F, name))(other)) for name in NAMES}
if role == "patched":
    pt.patch(forward=FORWARD)
for name, (values, its_gradient, its_traced_gradient) in musts.items():
    check(load(f"ours_{name}"), values)
    check(load(f"patched_{name}"), values)
    check(load(f"patched_{name}_gradient"), its_traced_gradient)  # PyTorch's keeps the indices of the traced input
    if role != "without":
        check(load(f"ours_{name}_gradient"), its_gradient)
        continue
    try:
        load(f"ours_{name}_gradient")
    except AttributeError as error:
        assert "'pooltide'" in str(error) and f"{name}_backward" in str(error), error
    else:
        raise AssertionError("the graph of our gradient was loaded without our operators")
for found, (values, *_) in zip(torch.export.load(f"{folder}/exported.pt2").module()(other), musts.values(), strict=True):
    assert torch.equal(found, values)
print("done")
"""


@pytest.mark.slow
def test_graphs_that_another_process_traced(tmp_path: Path) -> None:
    """A process that never imports pooltide runs each graph but those with our gradients, which name us."""
    program = PROCESS.replace("FORWARD", str(PATCHES[-1]))
    for role in ("writer", "without", "with", "patched"):
        found = subprocess.run(
            [sys.executable, "-c", program, role, str(tmp_path)], capture_output=True, text=True, timeout=600
        )
        assert found.returncode == 0, f"{role}: {found.stderr}"
        assert role == "writer" or found.stdout == "done\n"
