"""Copy-on-write inputs: a call that only reads them leaves their memory shared, as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pooltide.torch as pt  # noqa: E402
from pools import EVERY, Pool, quiet_patch, sample  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.skipif(
    not hasattr(torch._C, "_is_cow_tensor"), reason="this PyTorch cannot say what is shared"
)
NAMES = sorted({f"nn.functional.{pool.name}" for pool in EVERY})
WAYS = ["functional", "gradients", *(["forwards"] if can_call_aten() else [])]


def shared(tensor: Any) -> Any:
    return torch._lazy_clone(tensor.detach()).requires_grad_(tensor.requires_grad)


def is_shared(tensor: Any) -> bool:
    return bool(torch._C._is_cow_tensor(tensor))


def samples(name: str) -> Iterator[Any]:
    """Some of PyTorch's own samples of a pool; a prime step finds each choice again."""
    methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    (info,) = [info for info in methods.op_db if info.name == name and not info.variant_test_name]
    found = list(info.sample_inputs("cpu", torch.float32, requires_grad=True))
    return iter(found[:: 1 if len(found) < 100 else 61])


def left_shared(pool: Callable[..., Any], given: Any) -> list[bool]:
    """Whether the input and the cotangent are still shared after the forward, and after the backward."""
    x = shared(given.input)
    found = pool(x, *given.args, **given.kwargs)
    y = found[0] if isinstance(found, tuple) else found
    states = [is_shared(x)]
    g = shared(torch.ones_like(y))
    torch.autograd.grad(y, x, g)
    return [*states, is_shared(x), is_shared(g)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_pools_and_gradients(name: str, way: str) -> None:
    pool = name.removeprefix("nn.functional.")
    module = functional if way == "functional" else F
    for given in samples(name):
        must = left_shared(getattr(F, pool), given)
        with nullcontext() if way == "functional" else quiet_patch(way == "forwards"):
            for _ in range(2):  # the second call takes a shortcut
                found = left_shared(getattr(module, pool), given)
                assert all(ours or not theirs for ours, theirs in zip(found, must, strict=True)), given


@pytest.mark.parametrize("pool", EVERY, ids=str)
def test_views_have_their_own_values(pool: Pool) -> None:
    """The address of shared memory counts the storage's offset."""
    whole = torch.stack([sample(pool), sample(pool) * 3])
    x = shared(whole)[1]
    assert is_shared(x)
    assert torch.equal(pool.forward(x, functional), pool.forward(whole[1]))
    assert is_shared(x)


def test_gradient_functions() -> None:
    x, g = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 2, 2)
    indices = torch.zeros(g.shape, dtype=torch.int64)
    must = pt.max_pool2d_backward(g, x, indices, 2)
    for out in (None, torch.zeros(x.shape)):
        tensors = [shared(tensor) for tensor in (g, x, indices)]
        for _ in range(2):
            assert torch.equal(pt.max_pool2d_backward(*tensors, 2, out=out), must)
        assert all(map(is_shared, tensors))


def test_an_out_that_shares_memory_with_what_is_read() -> None:
    x, whole = torch.randn(1, 1, 4, 4), torch.randn(1, 1, 2, 2)
    g, out = shared(whole), shared(torch.cat([whole.flatten()] * 4).view(x.shape))
    must = pt.avg_pool2d_backward(whole, x, 2)
    kept = whole.clone()
    assert pt.avg_pool2d_backward(g, x, 2, out=out) is out
    assert torch.equal(out, must)
    assert torch.equal(g, kept)
    assert torch.equal(whole, kept)
    both = torch.ones(1, 1, 4, 4)
    g, out = shared(both), shared(both)
    assert torch.equal(pt.avg_pool2d_backward(g, out, 1, out=out), both)
    assert torch.equal(g, both)
