"""patch(forward=True): PyTorch's own pools with our forward, one byte per maximum, and the same bits."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from models import CBAM  # noqa: E402
from pools import EVERY, Pool, gradient, kept_by, quiet_patch, sample  # noqa: E402
from pooltide.torch import forward_overrides, patching, pools  # noqa: E402

MAXIMA = [pool for pool in EVERY if "max" in pool.name]
each_pool = pytest.mark.parametrize("pool", EVERY, ids=str)


@pytest.fixture
def ran(monkeypatch: Any) -> Iterator[list[str]]:
    """The kinds of the forwards that our kernels computed, in order."""
    kinds: list[str] = []
    run = pools._run
    monkeypatch.setattr(
        pools, "_run", lambda pool, *rest: kinds.append(pool.problem.kind) or run(pool, *rest)
    )
    yield kinds
    assert not pt.is_patched(), "a test left PyTorch patched"
    assert forward_overrides.depth == 0


def patched() -> pt.Patch:
    return quiet_patch(forward=True)


def layouts(pool: Pool, x: Any) -> list[Any]:
    views = [x, x[0], torch.stack([x, x], -1)[..., 1], x.transpose(-1, 1).contiguous().transpose(-1, 1)]
    return [*views, x.to(memory_format=pool.channels_last)] if pool.axes > 1 else views


@each_pool
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_and_gradients_have_pytorchs_bits(pool: Pool, dtype: Any, ran: list[str]) -> None:
    kind = "maximum" if "max" in pool.name else "average"
    for number, given in enumerate(layouts(pool, sample(pool, dtype))):
        must = pool.forward(given), gradient(pool.forward, given)
        assert ran == []
        with patched():
            found = pool.forward(given), gradient(pool.forward, given)
        # PyTorch's max_pool1d without a gradient, of channels-last tensors, is none of its 2-D pools.
        assert ran == [kind] * (1 if pool.name == "max_pool1d" and number == 3 else 2)
        ran.clear()
        if dtype == torch.float64:  # PyTorch's adaptive averages round otherwise, channels-last
            torch.testing.assert_close(found[0], must[0], rtol=1e-14, atol=1e-15)
        else:
            assert torch.equal(found[0], must[0])
        assert found[0].stride() == must[0].stride()
        assert torch.equal(found[1], must[1])
        if pool.axes < 3:
            assert found[1].stride() == must[1].stride()


@each_pool
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves(pool: Pool, dtype: Any, ran: list[str]) -> None:
    """One rounding of a float32 result; maxima are exact."""
    x = sample(pool, dtype)
    must = pool.forward(x.float()).to(dtype)
    with patched():
        assert torch.equal(pool.forward(x), must)
    assert len(ran) == 1


@each_pool
def test_one_byte_per_maximum_is_saved_and_no_input(pool: Pool, ran: list[str]) -> None:
    x = sample(pool).requires_grad_()
    module = {"adaptive": "Adaptive", "avg": "Avg", "max": "Max"}
    words = pool.name.replace("_pool", "").split("_")
    made = getattr(
        nn, "".join(module.get(w[:-2], "") or module[w] for w in words) + f"Pool{pool.axes}d", None
    )
    with patched():
        saved = kept_by(lambda: pool.forward(x))
        assert saved == ([torch.uint8] if "max" in pool.name else [])
        if made is not None:
            assert kept_by(lambda: made(**pool.arguments)(x)) == saved
    assert kept_by(lambda: pool.forward(x)) not in ([], [torch.uint8])


def test_large_windows_save_the_smallest_integers(ran: list[str]) -> None:
    x = torch.randn(2, 3, 19, 23, requires_grad=True)
    must = gradient(lambda x: F.adaptive_max_pool2d(x, 1), x)
    with patched():
        assert kept_by(lambda: F.adaptive_max_pool2d(x, 1)) == [torch.int16]
        assert torch.equal(gradient(lambda x: F.adaptive_max_pool2d(x, 1), x), must)
    assert ran == ["maximum"] * 2


@pytest.mark.parametrize("pool", MAXIMA, ids=str)
def test_indices_are_pytorchs(pool: Pool, ran: list[str]) -> None:
    def run(x: Any) -> Any:
        return getattr(F, pool.name)(x, **pool.arguments, return_indices=True)

    for given in layouts(pool, sample(pool)):
        must = run(given)
        with patched():
            for x in (given, given.detach().requires_grad_()):
                found = run(x)
                assert torch.equal(found[0], must[0])
                assert torch.equal(found[1], must[1])
                assert [t.stride() for t in found] == [t.stride() for t in must]
                assert not found[1].requires_grad
            assert torch.equal(
                gradient(lambda x: run(x)[0], given), gradient(lambda x: pool.forward(x), given)
            )
            assert kept_by(lambda x=x: run(x)) == [torch.uint8]


def test_removing_and_nesting(ran: list[str]) -> None:
    x = sample(MAXIMA[0])

    def ours() -> tuple[bool, bool]:
        """Whether a pool takes our forward, and whether any patch is active."""
        ran.clear()
        MAXIMA[0].forward(x)
        return bool(ran), pt.is_patched()

    assert ours() == (False, False)
    with patched() as outer:
        assert ours() == (True, True)
        with pt.patch():
            assert ours() == (True, True)
        assert ours() == (True, True)
        with patched():
            outer.remove()
            outer.remove()
            assert ours() == (True, True)
        assert ours() == (False, False)
    with pt.patch():
        assert ours() == (False, True)
        with patched():
            assert ours() == (True, True)
        assert ours() == (False, True)
    assert ours() == (False, False)
    with pytest.raises(RuntimeError, match="boom"), patched():
        raise RuntimeError("boom")
    assert ours() == (False, False)


def test_a_gradient_after_removal_is_still_right(ran: list[str]) -> None:
    for pool in EVERY:
        x = sample(pool)
        must = gradient(pool.forward, x)

        def forward(x: Any, pool: Pool = pool) -> Any:
            with patched():
                return pool.forward(x)

        assert torch.equal(gradient(forward, x), must)


@pytest.mark.parametrize("forward", [1, None, "yes"])
def test_forward_must_be_a_bool(forward: Any, ran: list[str]) -> None:
    with pytest.raises(TypeError, match=r"^patch: forward is .*; it must be True or False\.$"):
        pt.patch(forward=forward)


def test_releases_without_a_way_back(monkeypatch: Any, ran: list[str]) -> None:
    monkeypatch.setattr(patching, "_forward_library", None)
    monkeypatch.delattr(torch.library, "get_kernel", raising=False)
    with pytest.raises(NotImplementedError, match="patch: forward is True; it must be False with PyTorch"):
        pt.patch(forward=True)


def weights_after(steps: int) -> tuple[list[Any], list[float]]:
    torch.manual_seed(3)
    model = CBAM()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        x, label = torch.randn(5, 3, 23, 29), torch.randint(0, 11, (5,))
        loss = F.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [parameter.detach() for parameter in model.parameters()], losses


def test_a_model_learns_the_same_weights(ran: list[str]) -> None:
    must = weights_after(3)
    with patched():
        found = weights_after(3)
    assert len(ran) >= 9
    assert found[1] == must[1]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found[0], must[0], strict=True))


@each_pool
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_casts_as_in_pytorch(pool: Pool, dtype: Any, ran: list[str]) -> None:
    x = sample(pool, dtype).requires_grad_()

    def run() -> tuple[Any, Any]:
        with torch.autocast("cpu", torch.bfloat16):
            y = pool.forward(x)
        return y, torch.autograd.grad(y.float().square().sum(), x)[0]

    try:
        must = run()
    except RuntimeError as missing:
        pytest.skip(f"PyTorch has no such forward: {missing}")
    with patched():
        found = run()
    assert len(ran) == 1
    assert [t.dtype for t in found] == [t.dtype for t in must]
    for ours, theirs in zip(found, must, strict=True):  # PyTorch rounds sums of halves several times
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


def test_what_our_kernels_do_not_take_is_pytorchs(ran: list[str]) -> None:
    x = torch.randn(2, 3, 7, 9)
    quantized = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
    calls: list[Callable[[], Any]] = [
        lambda: F.max_pool2d(x.long(), 2),
        lambda: F.avg_pool2d(x.long(), 2),
        lambda: F.max_pool2d(x[:0], 2),
        lambda: F.adaptive_avg_pool2d(x, 1),
        lambda: F.max_pool2d(x.to_mkldnn(), 2).to_dense(),
        lambda: F.avg_pool2d(x.to_mkldnn(), 2).to_dense(),
        lambda: F.max_pool2d(quantized, 2).dequantize(),
        lambda: F.adaptive_avg_pool2d(quantized, (2, 3)).dequantize(),
        lambda: F.max_pool2d(x[..., :2], 2, dilation=(1, 3), padding=(0, 1)),
    ]
    must = [call() for call in calls]
    with patched():
        for call, theirs in zip(calls[:-1], must, strict=False):
            assert torch.equal(call(), theirs)
        assert ran == []
        assert torch.equal(calls[-1](), must[-1])  # a window without cells: -inf
        for empty in (F.max_pool2d(x.to("meta"), 2), F.adaptive_max_pool2d(x.to("meta"), (3, 4))):
            assert empty.is_meta
            assert empty.shape == (2, 3, 3, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.max_pool2d(x, 99),
        lambda x: F.max_pool2d(x, 2, padding=2),
        lambda x: F.avg_pool2d(x, (1, 2, 3)),
        lambda x: F.avg_pool2d(x, 2, divisor_override=0),
        lambda x: F.adaptive_max_pool2d(x, -1),
        lambda x: F.max_pool3d(x[0, 0], 2),
        lambda x: F.max_pool2d(x.to_sparse(), 2),
        lambda x: torch.max_pool2d(None, 2),
    ],
)
def test_errors_are_pytorchs(call: Callable[[Any], Any], ran: list[str]) -> None:
    x = torch.randn(2, 3, 7, 9)
    with pytest.raises(Exception) as must:  # noqa: PT011
        call(x)
    with patched(), pytest.raises(must.type) as found:
        call(x)
    assert str(found.value).splitlines()[0] == str(must.value).splitlines()[0]


def test_a_tensor_without_storage_is_refused(ran: list[str]) -> None:
    x = torch.randn(2, 3, 64, 64)
    x.untyped_storage().resize_(0)
    with patched(), pytest.raises(RuntimeError, match=r"max_pool2d: input has storage of 0 bytes"):
        F.max_pool2d(x, 2)


def everything(x: Any) -> Any:
    flat = F.max_pool2d(x, 3, 2, 1).square().sum() + F.avg_pool2d(x, 2, ceil_mode=True).square().sum()
    flat = flat + F.adaptive_max_pool2d(x, (3, 2)).square().sum()
    return flat + F.adaptive_avg_pool2d(x, (3, 2)).square().sum() + F.max_pool1d(x[0], 2).square().sum()


def test_compiled_models_are_as_under_patch(ran: list[str]) -> None:
    """Under a tracer the forward is PyTorch's; the graph has our gradients."""
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.randn(2, 3, 9, 11)

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(everything(x), x)[0]

    must = step(x)
    with pt.patch():
        without = make_fx(step, tracing_mode="fake")(x).code
    with patched():
        traced = make_fx(step, tracing_mode="fake")(x)
        assert traced.code == without
        assert "pooltide.max_pool2d_backward" in traced.code
        torch.testing.assert_close(traced(x), must)
        torch.compiler.reset()
        leaf = x.clone().requires_grad_()
        torch.compile(everything, backend="aot_eager", fullgraph=True)(leaf).backward()
    torch.compiler.reset()
    torch.testing.assert_close(leaf.grad, must)


def test_scripted_and_jit_traced_models(ran: list[str]) -> None:
    model = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2, ceil_mode=True), nn.AdaptiveMaxPool2d((2, 1)))
    x = torch.randn(2, 3, 13, 11)
    must = gradient(model, x)
    with patched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for made in (torch.jit.script(model), torch.jit.trace(model, x)):
            ran.clear()
            assert torch.equal(gradient(made, x), must)
            assert len(ran) == 3


@each_pool
def test_inference_mode(pool: Pool, ran: list[str]) -> None:
    """PyTorch's max_pool1d without a gradient is none of its 2-D pools there."""
    for given in layouts(pool, sample(pool)):
        must = pool.forward(given)
        ran.clear()
        with patched(), torch.inference_mode():
            found = pool.forward(given)
        assert torch.equal(found, must)
        assert found.stride() == must.stride()
        assert len(ran) == (pool.name != "max_pool1d")


def test_checkpoints_and_inference(ran: list[str]) -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(2, 3, 13, 11)
    must = gradient(lambda x: F.max_pool2d(x, 3, 2), x), F.max_pool2d(x, 3, 2)
    with patched():
        found = gradient(lambda x: checkpoint(lambda x: F.max_pool2d(x, 3, 2), x, use_reentrant=False), x)
        assert torch.equal(found, must[0])
        with torch.inference_mode():
            assert torch.equal(F.max_pool2d(x, 3, 2), must[1])
        with torch.no_grad():
            assert torch.equal(F.max_pool2d(x, 3, 2), must[1])
