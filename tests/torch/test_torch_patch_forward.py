"""patch(forward=True): PyTorch's own pools with our forward, one byte per maximum, and the same bits."""

from __future__ import annotations

import ctypes
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from models import CBAM  # noqa: E402
from pools import EVERY, Pool, gradient, kept_by, quiet_patch, sample  # noqa: E402
from pooltide import _native  # noqa: E402
from pooltide.kernels.calls import CALLS  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.patching import compiled_kernels, forward_overrides, installation  # noqa: E402
from pooltide.torch.pools import forward  # noqa: E402

MAXIMA = [pool for pool in EVERY if "max" in pool.name]
each_pool = pytest.mark.parametrize("pool", EVERY, ids=str)


@pytest.fixture
def ran(monkeypatch: Any) -> Iterator[list[str]]:
    """The kinds of the forwards that our kernels computed, in order."""
    kinds: list[str] = []
    run = forward._run
    monkeypatch.setattr(
        forward, "_run", lambda pool, *rest: kinds.append(pool.problem.kind) or run(pool, *rest)
    )
    _native.aten_watch(
        lambda name: None if "backward" in name else kinds.append("maximum" if "max" in name else "average")
    )
    yield kinds
    _native.aten_watch(None)
    assert not pt.is_patched(), "a test left PyTorch patched"
    assert forward_overrides.depth == 0


@pytest.fixture(autouse=True)
def adaptive_maxima_save_offsets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As those with many maxima do."""
    monkeypatch.setattr(forward_overrides, "CHEAP_INDICES", 0)
    CALLS.clear()
    yield
    CALLS.clear()


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
def test_one_byte_per_maximum_is_saved(pool: Pool, ran: list[str]) -> None:
    x = sample(pool).requires_grad_()
    module = {"adaptive": "Adaptive", "avg": "Avg", "max": "Max"}
    words = pool.name.replace("_pool", "").split("_")
    made = getattr(
        nn, "".join(module.get(w[:-2], "") or module[w] for w in words) + f"Pool{pool.axes}d", None
    )
    with patched():
        saved = kept_by(lambda: pool.forward(x))
        assert saved == [torch.float32, *([torch.uint8] if "max" in pool.name else [])]  # the input, too
        if made is not None:
            assert kept_by(lambda: made(**pool.arguments)(x)) == saved
    assert kept_by(lambda: pool.forward(x)) == [torch.float32, *([torch.int64] if "max" in pool.name else [])]


def test_large_windows_save_indices(ran: list[str]) -> None:
    x = torch.randn(2, 3, 19, 23, requires_grad=True)
    must = gradient(lambda x: F.adaptive_max_pool2d(x, 1), x)
    with patched():
        assert kept_by(lambda: F.adaptive_max_pool2d(x, 1)) == [torch.float32, torch.int64]
        assert torch.equal(gradient(lambda x: F.adaptive_max_pool2d(x, 1), x), must)
    assert ran == ["maximum"] * 2


@pytest.mark.parametrize("pool", [pool for pool in MAXIMA if "adaptive" in pool.name], ids=str)
def test_few_adaptive_maxima_save_indices(
    pool: Pool, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_overrides, "CHEAP_INDICES", 2**14)
    x = sample(pool)
    must = gradient(pool.forward, x)
    with patched():
        for _ in range(3):
            assert torch.equal(gradient(pool.forward, x), must)
            assert kept_by(lambda: pool.forward(x.detach().requires_grad_())) == [torch.float32, torch.int64]
    assert ran == ["maximum"] * 6
    assert torch.equal(gradient(pool.forward, x), must)


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
            # A strided pool's node keeps the indices that the caller has; an adaptive one does not know.
            kept = torch.uint8 if "adaptive" in pool.name else torch.int64
            assert kept_by(lambda x=x: run(x)) == [torch.float32, kept]


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
    monkeypatch.setattr(installation, "_forward_library", None)
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


def test_dilation_of_a_window_of_one_cell_means_nothing() -> None:
    """Windows of -inf channels-last, where PyTorch's own kernel gives indices outside of the window."""
    x = torch.full((1, 7, 8, 1, 6), -torch.inf)
    sizes = {"kernel_size": (1, 1, 2), "stride": 1, "dilation": (1, 3, 1), "return_indices": True}
    must = F.max_pool3d(x, **sizes)
    last = x.contiguous(memory_format=torch.channels_last_3d)
    with patched():
        found = F.max_pool3d(last, **sizes)
    for values, indices in (found, functional.max_pool3d(last, **sizes)):
        assert torch.equal(values, must[0])
        assert torch.equal(indices, must[1])


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


STRIDED, ADAPTIVE = (lambda x: F.max_pool2d(x, 3, 2, 1)), (lambda x: F.adaptive_max_pool2d(x, (3, 5)))
each_maximum = pytest.mark.parametrize("pool", [STRIDED, ADAPTIVE], ids=["max_pool2d", "adaptive_max_pool2d"])


def image() -> Any:
    return torch.randn(2, 3, 11, 13, generator=torch.Generator().manual_seed(5))


@each_maximum
def test_the_node_is_pytorchs_own(pool: Callable[[Any], Any], ran: list[str]) -> None:
    x = image().requires_grad_()
    name = pool(x).grad_fn.name()
    with patched():
        y = pool(x)
        assert y.grad_fn.name() == name
        assert y.grad_fn._saved_result1.dtype == torch.uint8
        assert y.grad_fn._saved_result1.untyped_storage().nbytes() == y.numel()


def test_indices_of_direct_calls_are_int64(ran: list[str]) -> None:
    x = image().requires_grad_()
    calls = [
        lambda: torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [2, 2]),
        lambda: torch._C._nn.max_pool2d_with_indices(x, 3),
        lambda: torch.max_pool1d_with_indices(x[0], 3),
        lambda: torch._C._nn.max_pool3d_with_indices(x, 3),
        lambda: torch.ops.aten.adaptive_max_pool2d(x, [3, 5]),
        lambda: torch.ops.aten.adaptive_max_pool3d(x, [1, 3, 5]),
        lambda: torch.adaptive_max_pool1d(x[0], 5),
    ]
    must = [call() for call in calls]
    with patched():
        for call, (values, indices) in zip(calls, must, strict=True):
            F.max_pool2d(x, 3)  # wants offsets, which the next call must not get
            found = call()
            assert torch.equal(found[0], values)
            assert torch.equal(found[1], indices)
            assert found[1].dtype == torch.int64


@each_maximum
def test_second_derivatives_read_real_indices(pool: Callable[[Any], Any], ran: list[str]) -> None:
    def second(x: Any) -> Any:
        x = x.double().requires_grad_()
        (first,) = torch.autograd.grad(pool(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    must = second(image())
    with patched():
        assert torch.equal(second(image()), must)
        assert torch.autograd.gradgradcheck(pool, image().double().requires_grad_())


@each_maximum
def test_batches_of_gradients(pool: Callable[[Any], Any], ran: list[str]) -> None:
    def batched(x: Any) -> Any:
        x = x.requires_grad_()
        y = pool(x)
        g = torch.randn(4, *y.shape, generator=torch.Generator().manual_seed(3))
        return torch.autograd.grad(y, x, g, is_grads_batched=True)[0]

    must = batched(image())
    with patched():
        assert torch.equal(batched(image()), must)


@each_maximum
def test_transforms_and_forward_mode(pool: Callable[[Any], Any], ran: list[str]) -> None:
    x = image()

    def square(x: Any) -> Any:
        return pool(x).square().sum()

    calls = [
        lambda: torch.func.grad(square)(x),
        lambda: torch.func.vmap(torch.func.grad(square))(x[:, None]),
        lambda: torch.func.jacrev(pool)(x[:1, :1]),
        lambda: torch.func.jvp(pool, (x,), (x.cos(),))[1],
        lambda: torch.func.jacfwd(pool)(x[:1, :1, :4, :5]),
        lambda: torch.autograd.functional.hvp(square, x, x.cos())[1],
        lambda: torch.func.hessian(square)(x[:1, :1, :5, :6]),
    ]
    must = [call() for call in calls]
    with patched():
        for call, expected in zip(calls, must, strict=True):
            assert torch.equal(call(), expected)


@each_maximum
def test_a_dispatch_mode_sees_int64(pool: Callable[[Any], Any], ran: list[str]) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[Any] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            seen.extend(getattr(t, "dtype", None) for t in (found if isinstance(found, tuple) else (found,)))
            return found

    x = image().requires_grad_()
    must = torch.autograd.grad(pool(x).square().sum(), x)[0]
    with patched():
        with Watch():
            (found,) = torch.autograd.grad(pool(x).square().sum(), x)
        assert torch.uint8 not in seen
        assert torch.int64 in seen
        assert torch.equal(found, must)
        y = pool(x).square().sum()
        with Watch():  # the forward ran outside of it
            assert torch.equal(torch.autograd.grad(y, x)[0], must)


@each_maximum
def test_saved_tensors_may_travel(pool: Callable[[Any], Any], ran: list[str]) -> None:
    """Hooks that save elsewhere, and threads that call the backward pass of another."""
    import threading

    must = gradient(pool, image())
    with patched():
        with torch.autograd.graph.save_on_cpu():
            assert torch.equal(gradient(pool, image()), must)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), torch.from_numpy):
            assert torch.equal(gradient(pool, image()), must)
        found: list[Any] = []
        x = image().requires_grad_()
        y = pool(x)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).float()
        thread = threading.Thread(target=lambda: found.append(torch.autograd.grad(y, x, g)[0]))
        thread.start()
        thread.join()
    assert torch.equal(found[0], must)


def test_a_hook_that_changes_the_saved_tensor_is_refused(ran: list[str]) -> None:
    x = image().requires_grad_()
    with patched():
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: t, lambda t: t[..., 1:] if t.dtype == torch.uint8 else t
        ):
            y = STRIDED(x)
        with pytest.raises(RuntimeError, match=r"max_pool2d_backward: indices has shape"):
            y.sum().backward()
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: t, lambda t: t.fill_(255) if t.dtype == torch.uint8 else t
        ):
            y = STRIDED(x)
        text = r"max_pool2d_backward: indices\[0, 0, 0, 0\] is an offset of no cell of its window .*A hook"
        with pytest.raises(IndexError, match=text):
            y.sum().backward()


COTANGENTS = {
    "expanded": lambda shape: torch.ones(()).expand(shape),
    "of a concatenation": lambda shape: torch.cat([torch.randn(shape)] * 3, 1).chunk(3, 1)[1],
    "every second": lambda shape: torch.randn(*shape, 2)[..., 1],
    "channels innermost": lambda shape: torch.randn(shape).transpose(1, -1).contiguous().transpose(1, -1),
}


@each_pool
@pytest.mark.parametrize("cotangent", COTANGENTS)
@pytest.mark.parametrize("forward", [False, True])
def test_strided_tensors_are_copied_in_compiled_code(pool: Pool, cotangent: str, forward: bool) -> None:
    """Inputs that are slices, and the cotangents of sums and concatenations."""
    strided = torch.stack([sample(pool)] * 2, -1)[..., 0]
    for given in (strided, *layouts(pool, sample(pool))):
        x = given.detach().requires_grad_()
        g = COTANGENTS[cotangent](pool.forward(x).shape)

        def run(x: Any = x, g: Any = g) -> Any:
            y = pool.forward(x)
            return y.detach(), *torch.autograd.grad(y, x, g)

        must, names = run(), []
        with quiet_patch(forward=forward):
            run()
            _native.aten_watch(names.append)
            found = run()
            _native.aten_watch(None)
        assert all(map(torch.equal, found, must))
        if not compiled_kernels.available():
            continue  # this release has Python functions in their place
        assert sum("backward" in name for name in names) == 1
        in_python = "adaptive_max" in pool.name or given.stride() != strided.stride()
        assert in_python or len(names) == 1 + forward


def test_a_small_pool_sets_the_threads_of_a_new_thread(ran: list[str]) -> None:
    """As PyTorch's pools do; before, PyTorch's convolutions take as many as OpenMP has."""
    import threading

    from pooltide.torch import openmp

    if not openmp.use_team():
        pytest.skip("PyTorch has no OpenMP")
    threads, found, x = torch.get_num_threads(), [], torch.ones(1, 1, 4, 4)

    def run() -> None:
        F.avg_pool2d(x, 2)
        found.append(ctypes.CDLL(None).omp_get_max_threads())

    with patched():
        F.avg_pool2d(x, 2)
        torch.set_num_threads(threads + 1)
        try:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        finally:
            torch.set_num_threads(threads)
    assert found == [threads + 1]
    assert len(ran) == 2


@each_maximum
def test_deterministic_algorithms(pool: Callable[[Any], Any], ran: list[str]) -> None:
    from pools import deterministic

    must = gradient(pool, image())
    with patched(), deterministic():
        assert torch.equal(gradient(pool, image()), must)


@each_maximum
def test_a_backward_pass_that_is_traced_reads_offsets(pool: Callable[[Any], Any], ran: list[str]) -> None:
    """The forward ran before: its node has offsets, and the graph must hold what they mean."""
    from torch.fx.experimental.proxy_tensor import make_fx

    x = image().requires_grad_()
    must = gradient(pool, image())
    with patched():
        y = pool(x)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).float()
        traced = make_fx(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0])(g)
        assert torch.equal(traced(g), must)


def test_subclasses_see_int64(ran: list[str]) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    x = image()
    with patched():
        both = TwoTensor(x, x.clone()).requires_grad_()
        _, indices = F.max_pool2d(both, 3, return_indices=True)
        assert indices.dtype == indices.a.dtype == torch.int64
        y = F.max_pool2d(both, 3)
        assert y.grad_fn._saved_result1.dtype == torch.int64
        assert torch.equal(y.a, F.max_pool2d(x, 3))


def test_compiled_kernels_keep_no_tensor(ran: list[str]) -> None:
    """Neither calls that the cache knows nor those that Python computes."""
    x = image().requires_grad_()
    dense, held = torch.randn(2, 3, 6, 7), x._use_count()
    with patched():
        for pool in (
            lambda x: F.max_pool2d(x, 3, 2, 1),
            lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=2),
        ):
            for g in (dense, dense[:1, :1, :1, :1].expand(2, 3, 6, 7)):
                before = g._use_count()
                for _ in range(3):
                    torch.autograd.grad(pool(x), x, g)
                    with torch.no_grad():
                        pool(x)
                assert g._use_count() == before
        for _ in range(3):
            F.adaptive_max_pool2d(x, 3)
            with pytest.raises(RuntimeError, match="Output size is too small"):
                F.max_pool2d(x, 99)
        assert x._use_count() == held


def test_errors_of_python_keep_their_class(monkeypatch: Any, ran: list[str]) -> None:
    class Odd(Exception):
        pass

    def fail(*_: Any) -> Any:
        raise Odd("this one")

    monkeypatch.setattr(forward_overrides, "_on_device", fail)
    with patched():
        with pytest.raises(Odd, match="this one"):
            F.avg_pool2d(image(), 5)
        with pytest.raises(Odd, match="this one"):
            F.max_pool2d(image().requires_grad_(), 5)


def test_lazy_negation_is_seen(ran: list[str]) -> None:
    x = image()
    with patched():
        for pool in (STRIDED, ADAPTIVE, lambda x: F.avg_pool2d(x, 3)):
            for _ in range(2):
                assert torch.equal(pool(torch._neg_view(x)), pool(-x))


@pytest.mark.parametrize("forward", [False, True])
def test_calls_that_follow_each_other_keep_their_own_results(forward: bool) -> None:
    """From the second round on, compiled kernels compute them: no call may take what another one left."""
    x = torch.randn(4, 7, 11, 13, 17, requires_grad=True)
    plane = x[:, :, 1]

    def calls() -> list[Any]:
        values = [
            *F.adaptive_max_pool2d(plane, (5, 7), return_indices=True),
            *F.max_pool2d(plane, 3, 2, 1, dilation=2, return_indices=True),
            F.max_pool2d(plane, 3, 2, 1, dilation=2),
            F.max_pool3d(x, 3, 2, 1),
            *F.adaptive_max_pool3d(x, (3, 5, 4), return_indices=True),
            F.adaptive_max_pool3d(x, (3, 5, 4)),
            F.avg_pool2d(plane, 3, 2, 1),
            *F.max_pool1d(plane[0], 3, return_indices=True),
            F.adaptive_avg_pool3d(x, (3, 5, 4)),
        ]
        total = sum(value.square().sum() for value in values if value.is_floating_point())
        return [*(value.detach() for value in values), *torch.autograd.grad(total, x)]

    must = calls()
    with quiet_patch(forward):
        for _ in range(4):
            for found, expected in zip(calls(), must, strict=True):
                assert found.dtype == expected.dtype
                assert torch.equal(found, expected)


def test_hooks_for_saved_tensors_may_compute_pools() -> None:
    """PyTorch calls them between its autograd kernel and ours: they must not get the offsets of the outer pool."""
    dtypes = []

    def pack(saved: Any) -> Any:
        if saved.dtype == torch.float32:
            with torch.no_grad():
                dtypes.append(F.max_pool2d(saved.detach(), 3, return_indices=True)[1].dtype)
        return saved

    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    with patched(), torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        for _ in range(3):  # Python makes the first call, compiled kernels the others
            pooled = F.max_pool2d(x * 1, 2)
            F.adaptive_max_pool2d(x * 1, 2, return_indices=True)
            assert pooled.grad_fn._saved_result1.dtype == torch.uint8
    assert dtypes == [torch.int64] * 6


def test_a_checkpoint_that_ends_with_a_pool_leaves_no_tensors() -> None:
    """Its hook stops the second forward by an exception, inside the pool."""

    def step() -> None:
        x = torch.randn(1, 4, 16, 16, requires_grad=True)
        kept.append(weakref.ref(x))
        made = torch.utils.checkpoint.checkpoint(lambda x: F.max_pool2d(x * 2, 2), x, use_reentrant=False)
        made.sum().backward()

    kept: list[Any] = []
    storages = []
    with patched():
        for _ in range(4):
            step()
            gc.collect()
            storages.append(sum(isinstance(each, torch.Tensor) for each in gc.get_objects()))
    assert [each() for each in kept] == [None] * 4
    assert len(set(storages[1:])) == 1, storages
