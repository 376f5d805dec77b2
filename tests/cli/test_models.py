"""Models as users have them, trained three steps with patch() and without: the same gradients, bit for bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import models  # noqa: E402
import pooltide.torch as pt  # noqa: E402
from pools import deterministic, watch_computed, watch_patched  # noqa: E402
from pooltide.cli.bench.networks import NETWORKS  # noqa: E402
from shares import fast_if  # noqa: E402

MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...], set[str]]] = {
    "resnet50": (NETWORKS["ResNet-50"].make, (2, 3, 67, 53), {"max_pool2d_backward"}),
    "vgg": (models.vgg, (2, 3, 83, 101), {"max_pool2d_backward", "adaptive_avg_pool2d_backward"}),
    "inception": (
        models.Inception, (3, 3, 29, 37),
        {"avg_pool2d_backward", "max_pool2d_backward", "adaptive_avg_pool2d_backward"},
    ),
    "cbam": (models.CBAM, (3, 3, 31, 23), {"max_pool2d_backward", "adaptive_max_pool2d_backward"}),
    "unet3d": (models.UNet3d, (2, 1, 12, 20, 28), {"max_pool3d_backward", "avg_pool3d_backward"}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def always_deterministic() -> Iterator[None]:
    with deterministic():
        yield


def train(name: str, patched: bool, compiled: bool = False) -> list[Any]:
    """The gradients of every weight after each of three steps."""
    make, shape, _ = MODELS[name]
    torch.manual_seed(17)
    model = make()
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = torch.randn(3, *shape, generator=torch.Generator().manual_seed(19))
    labels = torch.arange(shape[0]) % 11
    gradients = []
    with pt.patch() if patched else nullcontext():
        for batch in data:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(run(batch), labels).backward()
            gradients += [p.grad.clone() for p in model.parameters()]
            optimizer.step()
    return gradients


def same(found: list[Any], must: list[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, must, strict=True))


@pytest.mark.parametrize("name", fast_if(lambda name: name != "resnet50", MODELS))
def test_gradients_are_pytorchs_and_the_same_every_time(name: str, monkeypatch: Any) -> None:
    must = train(name, patched=False)
    reached: set[str] = set()
    watch_patched(monkeypatch, reached.add)
    found = train(name, patched=True)
    assert reached == MODELS[name][2]
    assert all(g.abs().sum() > 0 for g in found[: len(found) // 3])
    assert same(found, must)
    assert same(train(name, patched=True), found)


@pytest.mark.parametrize("name", ["inception", "cbam", "unet3d"])
@pytest.mark.slow
def test_compiled_models_have_the_same_gradients(name: str, monkeypatch: Any) -> None:
    """By aot_eager: the graphs that any compiler behind it gets, run as they are."""
    torch.compiler.reset()
    must = train(name, patched=False)
    reached: set[str] = set()
    watch_computed(monkeypatch, reached.add)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # patched before anything was compiled, which patch can't know
        found = train(name, patched=True, compiled=True)
    torch.compiler.reset()
    assert reached == MODELS[name][2]
    assert same(found, must)
