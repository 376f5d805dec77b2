"""`pooltide.torch` and `patch()` on a GPU: the CPU's bits, run after run, and what bad indices do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from geometries import DTYPES, FUNCTIONS, geometry

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pools import EVERY, Pool, deterministic, sample  # noqa: E402
from pooltide.kernels.calls import CALLS  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.aten import ATEN  # noqa: E402
from pooltide.torch.patching import forward_overrides  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU: the GPU is NOT tested"),
]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def tensor(array: Any) -> Any:
    array = np.ascontiguousarray(array.copy())
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_are_the_cpus(function: str, dtype: np.dtype[Any]) -> None:
    for seed in range(4):  # test_gpu.py has 1200 more, below PyTorch
        case = geometry(function, seed, dtype)
        arguments = [tensor(case.grad_output), case.input_shape]
        if case.indices is not None:
            arguments.append(tensor(case.indices))
        run = getattr(pt, function)
        on_cpu = run(*arguments, **case.attributes)
        on_gpu = run(*[a.cuda() if hasattr(a, "cuda") else a for a in arguments], **case.attributes)
        word = {2: torch.int16, 4: torch.int32, 8: torch.int64}[on_cpu.element_size()]
        assert torch.equal(on_gpu.cpu().view(word), on_cpu.view(word)), f"seed {seed}: {case}"


def pools(x: Any) -> Any:
    flat = F.avg_pool2d(x[:, :, 0], 3, 2, 1, ceil_mode=True).square().sum()
    flat = flat + F.adaptive_max_pool2d(x[:, :, 1], (5, 7)).square().sum()
    flat = flat + F.max_pool2d(x[:, :, 2], 3, 2, 1, dilation=2).square().sum()
    flat = flat + F.adaptive_avg_pool2d(x[:, :, 3], (5, 7)).square().sum()
    flat = flat + F.max_pool3d(x, 3, 2, 1).square().sum() + F.avg_pool3d(x.float(), 2).square().sum()
    return (
        flat
        + F.adaptive_avg_pool3d(x, (3, 5, 4)).square().sum()
        + F.adaptive_max_pool3d(x, (3, 5, 4)).square().sum()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_twenty_runs_are_one_under_deterministic_algorithms(dtype: Any) -> None:
    x = torch.randn(4, 7, 11, 13, 17, device="cuda", dtype=dtype)
    runs = []
    with deterministic(), pt.patch():
        for _ in range(20):
            leaf = x.clone().requires_grad_()
            pools(leaf).backward()
            runs.append(leaf.grad.clone())
    assert all(torch.equal(run, runs[0]) for run in runs)
    leaf = x.cpu().requires_grad_()
    with pt.patch():
        pools(leaf).backward()
    torch.testing.assert_close(runs[0].cpu().float(), leaf.grad.float(), rtol=2e-2, atol=1e-3)


def test_bad_indices_raise_or_are_counted() -> None:
    g = torch.ones(2, 3, 4, 5, device="cuda")
    indices = torch.zeros(2, 3, 4, 5, dtype=torch.int64, device="cuda")
    indices[1, 2, 3, 1], indices[1, 2, 3, 3] = 7 * 9, 2**32
    with pytest.raises(IndexError, match=r"indices\[1, 2, 3, 1\] is 63; it must be 0 to 62"):
        pt.adaptive_max_pool2d_backward(g, (2, 3, 7, 9), indices)
    pt.index_errors("cuda", clear=True)
    got = pt.adaptive_max_pool2d_backward(g, (2, 3, 7, 9), indices, check_indices=False)
    assert got.sum().item() == g.numel() - 2
    assert pt.index_errors("cuda") == (2, 116)
    assert pt.index_errors("cuda", clear=True) == (2, 116)
    assert pt.index_errors("cuda") == (0, None)


@pytest.fixture
def launched(monkeypatch: Any) -> list[Any]:
    """The kinds of the problems for which kernels are prepared, in order, with the bytes of an index."""
    from pooltide.kernels.cuda import launch

    found: list[Any] = []
    prepare = launch.prepare
    monkeypatch.setattr(
        launch, "prepare", lambda p, *rest: found.append((p.kind, p.index_bytes)) or prepare(p, *rest)
    )
    return found


@pytest.mark.parametrize("pool", EVERY, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_differentiable_pools_have_the_cpus_forwards(pool: Pool, dtype: Any, launched: list[Any]) -> None:
    x = sample(pool, dtype)
    x.view(-1)[::37] = float("nan")
    strided = torch.stack([x, x], -1)[..., 1]
    for given in [x, x[1], strided, *([x.to(memory_format=pool.channels_last)] if pool.axes > 1 else [])]:
        launched.clear()
        CALLS.clear()
        found, must = pool.forward(given.cuda(), functional), pool.forward(given, functional)
        assert found.stride() == must.stride()
        torch.testing.assert_close(found.cpu(), must, rtol=0, atol=0, equal_nan=True)
        assert launched == [("maximum" if "max" in pool.name else "average", 0)]


@pytest.mark.parametrize("pool", [pool for pool in EVERY if "max" in pool.name], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_indices_are_pytorchs(pool: Pool, dtype: Any, launched: list[Any]) -> None:
    x = sample(pool, dtype)
    x.view(-1)[::37] = float("nan")
    for given in [x, *([x.to(memory_format=pool.channels_last)] if pool.axes > 1 else [])]:
        launched.clear()
        CALLS.clear()
        found = getattr(functional, pool.name)(given.cuda(), **pool.arguments, return_indices=True)
        assert ("maximum", 8) in launched
        must = getattr(F, pool.name)(given.cuda(), **pool.arguments, return_indices=True)
        for ours, theirs in zip(found, must, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
            assert ours.stride() == theirs.stride()


def replayed_with_twice(x: Any, step: Callable[[], Any]) -> Any:
    """The result of a captured step, replayed after the values of x were doubled."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        x.mul_(2)
    graph.replay()
    return captured


@pytest.mark.parametrize("pool", EVERY, ids=str)
def test_graphs_capture_a_training_step(pool: Pool) -> None:
    x = sample(pool).cuda().requires_grad_()

    def step() -> Any:
        y = pool.forward(x, functional)
        return torch.autograd.grad(y.square().sum(), x)[0]

    must = step()  # compiles, and fills the caches
    captured = replayed_with_twice(x, step)
    assert torch.equal(captured, must * 2)


@pytest.mark.parametrize("pool", EVERY, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_differentiable_pools_have_the_cpus_gradients(pool: Pool, dtype: Any) -> None:
    """Of maxima one byte is kept per window, which the forward writes."""
    x = sample(pool, dtype)
    layouts = [x, x.to(memory_format=pool.channels_last)] if pool.axes > 1 else [x]
    kept: list[Any] = []
    for given in layouts:
        kept.clear()
        leaf = given.cuda().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            y = pool.forward(leaf, functional)
        g = torch.randn(y.shape, dtype=torch.float64).to(dtype)
        y.backward(g.cuda())
        leaf_on_cpu = given.clone().requires_grad_()
        pool.forward(leaf_on_cpu, functional).backward(g)
        assert torch.equal(leaf.grad.cpu(), leaf_on_cpu.grad)
        saved = [t.dtype for t in kept if t.numel()]  # less the empty token of the graph
        assert saved == ([torch.uint8] if "max" in pool.name else [])


@pytest.mark.parametrize("pool", EVERY, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("cheap", [0, 2**14])
def test_patched_forwards_are_those_of_the_cpu(
    pool: Pool, dtype: Any, cheap: int, launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte is kept per maximum, or PyTorch's index, if an adaptive maximum has at most `cheap` results."""
    monkeypatch.setattr(forward_overrides, "CHEAP_INDICES", cheap)
    x = sample(pool, dtype)
    for given in [x, *([x.to(memory_format=pool.channels_last)] if pool.axes > 1 else [])]:
        kept: list[Any] = []
        leaf, on_cpu = given.cuda().requires_grad_(), given.clone().requires_grad_()
        launched.clear()
        CALLS.clear()
        with (
            pt.patch(forward=True),
            torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t) or t, lambda t: t),
        ):
            y, must = pool.forward(leaf), pool.forward(on_cpu)
        assert [kind for kind, _ in launched] == ["maximum" if "max" in pool.name else "average"]
        assert torch.equal(y.detach().cpu(), must.detach())
        index = torch.int64 if cheap and "adaptive" in pool.name else torch.uint8
        offsets = {index} if "max" in pool.name else set()
        assert {t.dtype for t in kept if t.numel()} <= {dtype} | offsets  # PyTorch's nodes may keep the input
        assert offsets <= {t.dtype for t in kept}
        g = torch.randn(y.shape, dtype=torch.float64).to(dtype)
        with pt.patch(forward=True):
            y.backward(g.cuda())
            must.backward(g)
        assert torch.equal(leaf.grad.cpu(), on_cpu.grad)
        if dtype == torch.float32 and "max" in pool.name:
            plain = given.cuda().requires_grad_()
            theirs = pool.forward(plain)
            assert torch.equal(y, theirs)
            assert y.stride() == theirs.stride()


@pytest.mark.parametrize("pool", EVERY, ids=str)
def test_patched_forwards_under_autocast(pool: Pool, launched: list[Any]) -> None:
    x = sample(pool).cuda().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        must = pool.forward(x)
        CALLS.clear()
        with pt.patch(forward=True):
            found = pool.forward(x)
    assert len(launched) == 1
    assert found.dtype == must.dtype
    torch.testing.assert_close(found, must)


def test_patched_training_in_a_graph() -> None:
    """A whole step is captured, and replayed on other values."""
    x = torch.randn(4, 7, 11, 13, 17, device="cuda", requires_grad=True)

    def step() -> Any:
        return torch.autograd.grad(pools(x), x)[0]

    with pt.patch(forward=True):
        must = step()
        captured = replayed_with_twice(x, step)
    assert torch.equal(captured, must * 2)


def test_deterministic_results_are_not_filled_first() -> None:
    g, x = torch.randn(2, 8, 4, 6, device="cuda"), torch.empty(2, 8, 7, 11, device="cuda")
    expected = pt.avg_pool2d_backward(g, x, 3, 2, 1)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with deterministic(), torch.profiler.profile(activities=activities) as profile:
        found = pt.avg_pool2d_backward(g, x, 3, 2, 1)
        torch.cuda.synchronize()
    assert torch.equal(found, expected)
    kernels = [event.name for event in profile.events() if event.device_type.name == "CUDA"]
    assert not [name for name in kernels if "fill" in name.lower()], kernels


def test_channels_last_stays_so() -> None:
    g = torch.randn(2, 8, 4, 6, device="cuda").to(memory_format=torch.channels_last)
    x = torch.empty(2, 8, 7, 11, device="cuda").to(memory_format=torch.channels_last)
    got = pt.avg_pool2d_backward(g, x, 3, 2, 1)
    assert got.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(got, pt.avg_pool2d_backward(g.contiguous(), x.contiguous(), 3, 2, 1))


def test_streams_and_graphs() -> None:
    g, x = torch.randn(2, 8, 4, 6, device="cuda"), torch.empty(2, 8, 7, 11, device="cuda")
    expected = pt.avg_pool2d_backward(g, x, 3, 2, 1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.equal(pt.avg_pool2d_backward(g, x, 3, 2, 1), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = pt.avg_pool2d_backward(g, x, 3, 2, 1)
    g.mul_(2)
    graph.replay()
    assert torch.equal(captured, expected * 2)


def test_compiled_models_are_patched() -> None:
    x = torch.randn(2, 3, 7, 7, device="cuda")
    with pt.patch():
        step = torch.compile(lambda x: F.avg_pool2d(x, 2, ceil_mode=True).square().sum(), fullgraph=True)
        leaf = x.clone().requires_grad_()
        step(leaf).backward()
    plain = x.clone().requires_grad_()
    F.avg_pool2d(plain, 2, ceil_mode=True).square().sum().backward()
    torch.testing.assert_close(leaf.grad, plain.grad)


@pytest.mark.parametrize("function", sorted(ATEN))
def test_a_small_patched_call_made_again_takes_the_shortcut(function: str, monkeypatch: Any) -> None:
    from pooltide.cli.bench import overhead
    from pooltide.torch import shortcuts
    from pooltide.torch.patching import gradient_overrides

    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this PyTorch has no DLPack exchange API: there are no shortcuts")
    known = []

    def find(*call: Any) -> Any:
        known.append(shortcuts.find(*call))
        return known[-1]

    monkeypatch.setattr(gradient_overrides, "find", find)
    own, ours = overhead.calls_of(function, "cuda")
    must = ours()
    with pt.patch():
        known.clear()  # of what a release's traces were asked
        for _ in range(3):
            assert torch.equal(own(), must)
        with torch.cuda.stream(torch.cuda.Stream()):
            found = own()
            torch.cuda.current_stream().synchronize()
    assert torch.equal(found, must)
    assert all(result is not None for result in known[1:])  # another test may have made the first known
    assert len(known) == 4
