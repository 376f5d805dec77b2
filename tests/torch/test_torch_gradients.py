"""pooltide.torch's functions and differentiable pools against PyTorch's and the NumPy functions' bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pooltide  # noqa: E402
import pooltide.torch as pt  # noqa: E402
from pools import EVERY, POOLS, Pool, deterministic, gradient, sample  # noqa: E402
from pooltide.kernels import cpu  # noqa: E402
from pooltide.torch import functional, gradients, tensor_calls  # noqa: E402

each_pool = pytest.mark.parametrize("pool", POOLS, ids=str)
each_of_all = pytest.mark.parametrize("pool", EVERY, ids=str)


def backward(pool: Pool, g: Any, input: Any, indices: Any = None, module: Any = pt, **out: Any) -> Any:
    function = getattr(module, f"{pool.name}_backward")
    at = () if indices is None else (indices,)
    return function(g, input, *at, **({} if "output_size" in pool.arguments else pool.arguments), **out)


def case(pool: Pool, dtype: Any = torch.float32) -> tuple[Any, Any, Any, Any]:
    """x, a random cotangent, indices, and PyTorch's own gradient."""
    x = sample(pool, dtype).requires_grad_()
    found = (
        pool.forward(x)
        if "max" not in pool.name
        else getattr(torch.nn.functional, pool.name)(x, **pool.arguments, return_indices=True)
    )
    y, indices = found if isinstance(found, tuple) else (found, None)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)
    (own,) = torch.autograd.grad(y, x, g)
    return x.detach(), g, indices, own


def poison(monkeypatch: Any) -> None:
    real = tensor_calls.allocate
    monkeypatch.setattr(tensor_calls, "allocate", lambda *args: real(*args).fill_(float("nan")))
    monkeypatch.setattr(tensor_calls, "_empty_like", lambda t: torch.empty_like(t).fill_(float("nan")))


@each_of_all
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_bits_are_pytorchs(pool: Pool, dtype: Any, monkeypatch: Any) -> None:
    poison(monkeypatch)
    x, g, indices, own = case(pool, dtype)
    for input in (x, tuple(x.shape), list(x.shape)):
        found = backward(pool, g, input, indices)
        assert found.dtype == dtype
        assert torch.equal(found, own)
    if indices is not None:
        assert torch.equal(backward(pool, g, x, indices.int()), own)


@each_of_all
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_rounded_once(pool: Pool, dtype: Any) -> None:
    x, g, indices, _ = case(pool)
    g = g.to(dtype)
    kind = ml_dtypes.bfloat16 if dtype == torch.bfloat16 else np.float16
    array = g.double().numpy().astype(kind)
    must = backward(pool, array, tuple(x.shape), None if indices is None else indices.numpy(), pooltide)
    found = backward(pool, g, x, indices)
    assert np.array_equal(found.double().numpy(), must.astype(np.float64))


@each_of_all
def test_layouts(pool: Pool) -> None:
    x, g, indices, own = case(pool)
    apart = torch.stack([g, g], -1)[..., 0]
    assert not apart.is_contiguous()
    assert torch.equal(backward(pool, apart, x, indices), own)
    assert torch.equal(backward(pool, g.flip(-1).flip(-1), x, indices), own)
    if pool.axes == 1:  # rows may lie channel by channel too, but PyTorch has no name for it
        rows = g.transpose(1, 2).contiguous().transpose(1, 2)
        assert torch.equal(backward(pool, rows, x.mT.contiguous().mT, indices), own)
        out = torch.full_like(x.mT, float("nan")).mT
        assert torch.equal(backward(pool, rows, x, indices, out=out), own)
        return
    last = {"memory_format": pool.channels_last}
    kept = backward(pool, g, x.to(**last), indices)
    assert torch.equal(kept, own)
    assert kept.is_contiguous(**last)
    both = None if indices is None else indices.to(**last)
    kept = backward(pool, g.to(**last), tuple(x.shape), both)
    assert torch.equal(kept, own)
    assert kept.is_contiguous(**last)


@each_pool
def test_expanded_gradient_unbatched_and_empty(pool: Pool) -> None:
    x = sample(pool)
    one = x.clone().requires_grad_()
    pool.forward(one, functional).sum().backward()
    own = x.clone().requires_grad_()
    pool.forward(own).sum().backward()
    assert torch.equal(one.grad, own.grad)
    run = lambda pt_or_torch, x: gradient(lambda x: pool.forward(x, pt_or_torch), x)  # noqa: E731
    assert torch.equal(run(functional, x[0]), run(torch.nn.functional, x[0]))
    empty = run(functional, x[:0])
    assert empty.shape == x[:0].shape


@each_of_all
def test_out(pool: Pool) -> None:
    x, g, indices, own = case(pool)
    out = torch.full_like(x, float("nan"))
    assert backward(pool, g, x, indices, out=out) is out
    assert torch.equal(out, own)
    frame = torch.full((*x.shape, 3), float("nan"))
    assert torch.equal(backward(pool, g, x, indices, out=frame[..., 1]), own)
    assert frame[..., [0, 2]].isnan().all()
    shared = torch.zeros(own.numel() + g.numel())
    alias = shared[: g.numel()].view(g.shape).copy_(g)
    assert torch.equal(backward(pool, alias, x, indices, out=shared[: own.numel()].view(own.shape)), own)


@each_of_all
def test_the_compiled_kernel_is_reached(pool: Pool, monkeypatch: Any) -> None:
    x, g, indices, own = case(pool)
    reached = []
    real = cpu.prepare
    monkeypatch.setattr(cpu, "prepare", lambda *args: reached.append(args) or real(*args))
    monkeypatch.setattr(gradients, "find", lambda *_: None)
    assert torch.equal(backward(pool, g, x, indices), own)
    assert len(reached) == 1
    assert torch.equal(backward(pool, g, x, indices), own)
    assert len(reached) == 1  # planned once


def test_the_reference_backend_gives_the_same_bits(monkeypatch: Any) -> None:
    must = [backward(pool, *case(pool, torch.bfloat16)[1:2], pool.shape, case(pool)[2]) for pool in POOLS]
    monkeypatch.setenv("POOLTIDE_BACKEND", "reference")
    monkeypatch.setattr(gradients, "find", lambda *_: None)
    monkeypatch.setattr(cpu, "prepare", None)
    for pool, halves in zip(POOLS, must, strict=True):
        x, g, indices, own = case(pool)
        assert torch.equal(backward(pool, g, x, indices), own)
        assert torch.equal(backward(pool, case(pool, torch.bfloat16)[1], pool.shape, indices), halves)


def test_a_large_result_in_huge_pages_and_in_deterministic_mode(monkeypatch: Any) -> None:
    asked = []
    from pooltide.torch import tensors

    real = tensors.cpu.use_huge_pages
    monkeypatch.setattr(tensors.cpu, "use_huge_pages", lambda *a: asked.append(a) or real(*a))
    g = torch.randn(2, 67, 61, 53)
    plain = pt.avg_pool2d_backward(g, (2, 67, 122, 106), 2)
    assert [nbytes for _, nbytes in asked] == [plain.numel() * 4]
    with deterministic():
        again = pt.avg_pool2d_backward(g, (2, 67, 122, 106), 2)
    assert torch.equal(plain, again)
    assert torch.equal(plain[..., ::2, ::2], g / 4)
    assert again.is_contiguous()


def test_threads_do_not_change_bits() -> None:
    g = torch.randn(3, 31, 29, 23, dtype=torch.float32)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(pt.avg_pool2d_backward(g, (3, 31, 59, 47), 3, 2))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@each_of_all
def test_gradients_have_gradients(pool: Pool) -> None:
    """In g they are linear: each is its own derivative, forwards and backwards, and under vmap."""
    x, g, indices, _ = case(pool, torch.float64)
    run = lambda g: backward(pool, g, tuple(x.shape), indices)  # noqa: E731
    assert torch.autograd.gradcheck(run, g.clone().requires_grad_(), fast_mode=True)
    assert torch.autograd.gradgradcheck(run, g.clone().requires_grad_(), fast_mode=True)
    many = torch.stack([g, 3 - g], 1)
    assert torch.equal(torch.vmap(run, 1)(many), torch.stack([run(g), run(3 - g)]))


@each_of_all
def test_inference_mode(pool: Pool) -> None:
    x, g, indices, own = case(pool)
    with torch.inference_mode():
        assert torch.equal(backward(pool, g, x, indices), own)


def test_meta_tensors_have_the_shape_and_no_data() -> None:
    g = torch.empty(2, 3, 5, 7, device="meta")
    assert pt.avg_pool2d_backward(g, (2, 3, 10, 14), 2).shape == (2, 3, 10, 14)
