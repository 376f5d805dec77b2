"""Max unpools and fractional max pools on a GPU: the CPU's bits, deterministic, and what bad indices do."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pools import deterministic  # noqa: E402
from pooltide.torch.patching import index_overrides  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU: the GPU is NOT tested"),
]
each_rank = pytest.mark.parametrize("axes", [1, 2, 3])
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SMALL, LARGE = (5, 7, 6), (11, 16, 12)


def drawn(axes: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Values, indices of which many are equal, and the plane."""
    generator = torch.Generator().manual_seed(axes)
    plane = LARGE[:axes]
    values = torch.randn(3, 4, *SMALL[:axes], generator=generator).to(dtype)
    indices = torch.randint(0, int(torch.tensor(plane).prod()), values.shape, generator=generator)
    indices[0] = indices[0] % 3
    return values, indices, plane


@each_rank
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bits_are_the_cpus(axes: int, dtype: Any) -> None:
    unpool, backward = (
        getattr(pt.functional, f"max_unpool{axes}d"),
        getattr(pt, f"max_unpool{axes}d_backward"),
    )
    values, indices, plane = drawn(axes, dtype)
    want = unpool(values, indices, 3, 2, 0, plane)
    g = torch.randn(want.shape).to(dtype)
    gradient = backward(g, values, indices, 3, 2, 0, plane)
    for _ in range(3):
        x = values.cuda().requires_grad_()
        with deterministic():
            got = unpool(x, indices.cuda(), 3, 2, 0, plane)
            got.backward(g.cuda())
            direct = backward(g.cuda(), values.cuda(), indices.cuda(), 3, 2, 0, plane)
        assert torch.equal(got.cpu(), want)
        assert torch.equal(x.grad.cpu(), gradient)
        assert torch.equal(direct.cpu(), gradient)


@each_rank
def test_a_bad_index_raises_in_the_functions_and_is_dropped_by_the_patch(axes: int) -> None:
    name = f"max_unpool{axes}d"
    values, indices, plane = drawn(axes, torch.float32)
    bad = indices.clone()
    bad.view(-1)[7] = 10**9
    bad.view(-1)[8] = -1
    with pytest.raises(IndexError, match=f"{name}: indices.* is 1000000000; it must be 0 to "):
        getattr(pt.functional, name)(values.cuda(), bad.cuda(), 3, 2, 0, plane)
    pt.index_errors("cuda", clear=True)
    with pt.patch():
        for given in (values.cuda(), values.cuda().requires_grad_()):
            got = getattr(F, name)(given, bad.cuda(), 3, 2, 0, plane).detach()
            assert pt.index_errors("cuda", clear=True) == (2, 7)
        getattr(F, name)(values.cuda(), indices.cuda(), 3, 2, 0, plane)
    assert pt.index_errors("cuda") == (0, None)
    good = torch.ones(values.numel(), dtype=torch.bool)
    good[7] = good[8] = False
    flat, at = values.flatten(2), indices.flatten(2)
    want = torch.zeros(3, 4, int(torch.tensor(plane).prod()))
    for n in range(3):
        for c in range(4):
            for q in range(flat.shape[-1]):
                if good[(n * 4 + c) * flat.shape[-1] + q]:
                    want[n, c, at[n, c, q]] = flat[n, c, q]
    assert torch.equal(got.cpu(), want.reshape(got.shape))


@each_rank
def test_strides_and_gradients_are_pytorchs(axes: int) -> None:
    values, _, plane = drawn(axes, torch.float32)
    indices = torch.arange(values[0, 0].numel()).reshape(values.shape[2:]).expand(values.shape)
    form = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}[axes]
    for x in (
        values,
        values.contiguous(memory_format=form),
        values.transpose(0, 1).contiguous().transpose(0, 1),
    ):

        def outcome(unpool: Any) -> Any:
            leaf = x.cuda().requires_grad_()  # noqa: B023
            y = unpool(leaf, indices.cuda().contiguous(), 3, 2, 0, plane)
            (g,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
            return y.detach(), g, y.stride(), g.stride()

        must = outcome(getattr(F, f"max_unpool{axes}d"))
        with pt.patch():
            patched = outcome(getattr(F, f"max_unpool{axes}d"))
        for found in (patched, outcome(getattr(pt.functional, f"max_unpool{axes}d"))):
            assert torch.equal(found[0], must[0])
            assert torch.equal(found[1], must[1])
            assert found[2:] == must[2:]


@each_rank
def test_unpools_in_a_cuda_graph(axes: int) -> None:
    values, indices, plane = drawn(axes, torch.float32)
    x, at = values.cuda(), indices.cuda()
    unpool = getattr(pt.functional, f"max_unpool{axes}d")
    must = unpool(x, at, 3, 2, 0, plane)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = unpool(x, at, 3, 2, 0, plane)
    graph.replay()
    assert torch.equal(found, must)


@each_rank
def test_patched_unpools_are_deterministic(axes: int, monkeypatch: Any) -> None:
    reached: list[str] = []
    move = index_overrides.move
    monkeypatch.setattr(
        index_overrides, "move", lambda name, *rest, **more: reached.append(name) or move(name, *rest, **more)
    )
    values, indices, plane = drawn(axes, torch.float32)
    pool = getattr(F, f"max_unpool{axes}d")
    with pt.patch():
        want = pool(values, indices, 3, 2, 0, plane)
        with deterministic():
            found = [pool(values.cuda(), indices.cuda(), 3, 2, 0, plane) for _ in range(5)]
    assert all(torch.equal(got.cpu(), want) for got in found)
    assert len(reached) == 6
    with deterministic(), pytest.raises(RuntimeError, match="deterministic"):
        pool(values.cuda(), indices.cuda(), 3, 2, 0, plane)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_patched_fractional_gradients_are_deterministic_and_the_cpus(axes: int, dtype: Any) -> None:
    pool = getattr(F, f"fractional_max_pool{axes}d")
    data = torch.randn(2, 3, *LARGE[:axes], dtype=dtype)
    samples = torch.rand(2, 3, axes, dtype=dtype)
    size = SMALL[:axes]
    x = data.clone().requires_grad_()
    y = pool(x, 3, output_size=size, _random_samples=samples)
    g = torch.randn_like(y)
    (want,) = torch.autograd.grad(y, x, g)
    on_gpu = data.cuda().requires_grad_()
    z = pool(on_gpu, 3, output_size=size, _random_samples=samples.cuda())
    assert torch.equal(z.cpu(), y), "the forwards choose the same windows"
    with deterministic(), pytest.raises(RuntimeError, match="deterministic"):
        torch.autograd.grad(z, on_gpu, g.cuda(), retain_graph=True)
    for _ in range(3):
        with deterministic(), pt.patch():
            (got,) = torch.autograd.grad(z, on_gpu, g.cuda(), retain_graph=True)
        assert torch.equal(got.cpu(), want)
