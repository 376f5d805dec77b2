"""patch(): PyTorch's own pools on our kernels, eager and compiled, there and back again."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pools import (  # noqa: E402
    EVERY,
    POOLS,
    Dispatched,
    Pool,
    deterministic,
    gradient,
    quiet_patch,
    sample,
    watch_computed,
    watch_patched,
)
from pooltide.kernels.plan import NoBackend  # noqa: E402
from pooltide.torch import aten  # noqa: E402
from pooltide.torch.patching import gradient_overrides, installation  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402

each_patch = pytest.mark.parametrize("forward", [False, True], ids=["gradients", "forwards"])
each_pool = pytest.mark.parametrize("pool", EVERY, ids=str)
calls_aten = pytest.mark.skipif(
    not can_call_aten(), reason="this release of PyTorch cannot call a kernel that is overridden"
)
GRADIENTS = {pool.gradient for pool in EVERY}


@pytest.fixture
def reached(monkeypatch: Any) -> Iterator[list[str]]:
    """Whom the patched operators call: the functions that reached our kernel, in order."""
    calls: list[str] = []
    watch_patched(monkeypatch, calls.append)
    yield calls
    assert not pt.is_patched(), "a test left PyTorch patched"


@each_pool
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_bits_and_strides_are_pytorchs(pool: Pool, dtype: Any, reached: list[str]) -> None:
    x = sample(pool, dtype)
    views = [x, x[0], torch.stack([x, x], -1)[..., 1]]
    for given in [*views, x.to(memory_format=pool.channels_last)] if pool.axes > 1 else views:
        must = gradient(pool.forward, given)
        assert reached == []
        with pt.patch():
            found = gradient(pool.forward, given)
        assert reached == [pool.gradient]
        reached.clear()
        assert torch.equal(found, must)
        if pool.axes == 2:
            assert found.stride() == must.stride()
    if pool.axes > 1:
        with pt.patch():
            last = gradient(pool.forward, x.to(memory_format=pool.channels_last))
        assert last.is_contiguous(memory_format=pool.channels_last)
    reached.clear()


def test_out_forms(reached: list[str]) -> None:
    aten = torch.ops.aten
    g, x = torch.randn(2, 3, 2, 5), torch.randn(2, 3, 5, 11)
    strided = (g, x, [2, 2], [2, 2], [0, 0], False, True, None)
    deep, volume = torch.randn(2, 3, 2, 5, 4), torch.randn(2, 3, 5, 11, 7)
    flat_indices, deep_indices = torch.randint(0, 55, g.shape), torch.randint(0, 385, deep.shape)
    forms = [
        (aten.avg_pool2d_backward.default, aten.avg_pool2d_backward.grad_input, strided, "grad_input"),
        (aten._adaptive_avg_pool3d_backward.default, aten.adaptive_avg_pool3d_backward.grad_input, (deep, volume), "grad_input"),
        (aten._adaptive_avg_pool3d_backward.default, aten._adaptive_avg_pool3d_backward.out, (deep, volume), "out"),
        (aten.adaptive_max_pool2d_backward.default, aten.adaptive_max_pool2d_backward.grad_input, (g, x, flat_indices), "grad_input"),
        (aten.adaptive_max_pool3d_backward.default, aten.adaptive_max_pool3d_backward.grad_input, (deep, volume, deep_indices), "grad_input"),
        (aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool2d_backward.out, (g, x), "out"),
        (aten.avg_pool3d_backward.default, aten.avg_pool3d_backward.grad_input, (deep, volume, [2, 4, 4], [2, 2, 1], [0, 1, 0], False, False, None), "grad_input"),
        (aten.max_pool2d_with_indices_backward.default, aten.max_pool2d_with_indices_backward.grad_input, (g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, flat_indices), "grad_input"),
        (aten.max_pool3d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.grad_input, (deep, volume, [2, 2, 2], [2, 2, 1], [0, 0, 0], [1, 1, 3], False, deep_indices), "grad_input"),
    ]  # fmt: skip
    for functional, form, args, name in forms:
        must = functional(*args)
        with pt.patch():
            for out in (
                torch.full_like(must, float("nan")),
                torch.empty(0),
                torch.stack([must * 0] * 2, -1)[..., 1],
            ):
                assert form(*args, **{name: out}) is out
                assert torch.equal(out, must)
            with torch.inference_mode():
                assert torch.equal(functional(*args), must)
    assert len(reached) == 4 * len(forms)


def test_out_is_resized_and_counted_as_pytorch_does(reached: list[str]) -> None:
    g, x = torch.randn(2, 3, 2, 5), torch.randn(2, 3, 4, 10)
    form = torch.ops.aten.avg_pool2d_backward.grad_input

    def write(x: Any, out: Any) -> Any:
        before = out._version
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="An output with one or more elements was resized")
            form(g, x, [2, 2], [2, 2], [0, 0], False, True, None, grad_input=out)
        return out, out.stride(), out._version - before

    for given in (x, x.to(memory_format=torch.channels_last)):
        for out in (torch.empty(0), torch.zeros(3, 5), torch.zeros(x.shape)):
            must = write(given, out.clone())
            with pt.patch():
                found = write(given, out.clone())
            assert torch.equal(found[0], must[0])
            assert found[1:] == must[1:]
    assert len(reached) == 6


def test_what_was_saved_and_is_overwritten_is_found_out(reached: list[str]) -> None:
    g, x, saved = torch.randn(1, 1, 2, 2), torch.randn(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)
    loss = (torch.ones_like(saved, requires_grad=True) * saved).sum()
    with pt.patch():
        torch.ops.aten._adaptive_avg_pool2d_backward.out(g, x, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@each_patch
@pytest.mark.slow
def test_second_gradients_and_torch_func(forward: bool, reached: list[str]) -> None:
    func = torch.func

    def every_way(pool: Pool) -> list[Any]:
        loss = lambda x: pool.forward(x).pow(3).sum()  # noqa: E731
        x = sample(pool, torch.float64)
        xs = torch.stack([x, x + 1])
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
        second = torch.autograd.grad(first.pow(2).sum(), leaf)[0]
        if not can_call_aten():
            return [second]
        return [
            second,
            func.grad(loss)(x),
            func.vmap(pool.forward)(xs),
            func.vmap(func.grad(loss))(xs),
            *func.jvp(pool.forward, (x,), (x + 1,)),
        ]

    for pool in EVERY:
        must = every_way(pool)
        with quiet_patch(forward):
            found = every_way(pool)
        assert all(map(torch.equal, found, must)), pool
    assert set(reached) == GRADIENTS or not can_call_aten()  # then torch.ops.pooltide computes


@pytest.mark.skipif(can_call_aten(), reason="this release of PyTorch can call a kernel that is overridden")
def test_torch_func_is_refused_where_aten_cannot_be_called() -> None:
    with pt.patch(), pytest.raises(NotImplementedError, match="has no way back to its own"):
        torch.func.grad(lambda x: F.avg_pool2d(x, 2).sum())(torch.ones(1, 4, 4))


def second_gradient(pool: Pool) -> tuple[Any, Any]:
    """Of the sum, whose cotangent requires no gradient: only the input ties the first gradient to the graph."""
    x = sample(pool, torch.float64).requires_grad_()
    (first,) = torch.autograd.grad(pool.forward(x).sum(), x, create_graph=True)
    assert first.requires_grad
    return first, torch.autograd.grad(first.sum(), x)[0]


@each_pool
def test_a_gradient_stays_a_function_of_the_input(pool: Pool, reached: list[str]) -> None:
    must = second_gradient(pool)
    assert not must[1].any()
    with pt.patch():
        for _ in range(2):
            found = second_gradient(pool)
            assert torch.equal(found[0], must[0])
            assert torch.equal(found[1], must[1])
    assert set(reached) == {pool.gradient} or not can_call_aten()


def test_a_traced_gradient_stays_a_function_of_the_input(reached: list[str]) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def second(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(F.avg_pool2d(x, 2).sum(), x, create_graph=True)
        return first, torch.autograd.grad(first.sum(), x)[0]

    with pt.patch():
        graph = make_fx(second, tracing_mode="fake")(torch.ones(1, 1, 4, 4))
    assert "pooltide.avg_pool2d_backward" in graph.code
    first, zero = graph(torch.ones(1, 1, 4, 4))
    assert torch.equal(first, torch.full((1, 1, 4, 4), 0.25))
    assert not zero.any()


@each_patch
def test_deterministic_algorithms(forward: bool, reached: list[str]) -> None:
    with deterministic(), quiet_patch(forward):
        for pool in EVERY:
            first = gradient(pool.forward, sample(pool))
            assert torch.equal(first, gradient(pool.forward, sample(pool)))
    assert forward or len(reached) == 2 * len(EVERY)


def test_nesting_and_removing(reached: list[str]) -> None:
    run = lambda: gradient(POOLS[0].forward, sample(POOLS[0]))  # noqa: E731
    outer = pt.patch()
    with pt.patch() as inner:
        outer.remove()
        outer.remove()
        assert pt.is_patched()
        run()
        assert len(reached) == 1
    assert not pt.is_patched()
    inner.remove()
    run()
    assert len(reached) == 1
    with pytest.raises(RuntimeError, match="boom"), pt.patch():
        raise RuntimeError("boom")
    assert not pt.is_patched()


@pytest.mark.parametrize("forwards", [(False, False), (True, True, False)], ids=str)
def test_threads_may_patch_while_others_compute(forwards: tuple[bool, ...]) -> None:
    def results(pool: Pool) -> list[Any]:
        return [pool.forward(sample(pool)), gradient(pool.forward, sample(pool))]

    must = {str(pool): results(pool) for pool in EVERY}
    wrong: list[Pool] = []
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            wrong.extend(pool for pool in EVERY if not all(map(torch.equal, results(pool), must[str(pool)])))

    workers = [threading.Thread(target=compute) for _ in range(2)]
    patchers = [
        threading.Thread(
            target=lambda forward=forward: [pt.patch(forward=forward).remove() for _ in range(500)]
        )
        for forward in forwards
    ]
    for thread in workers + patchers:
        thread.start()
    for thread in patchers:
        thread.join()
    stop.set()
    for thread in workers:
        thread.join()
    assert wrong == []
    assert not pt.is_patched()


@calls_aten
def test_what_we_refuse_goes_to_pytorch_and_is_said_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(aten, "_warned", Counter())
    g, x = torch.full((1, 2, 2, 2), 8), torch.ones(1, 2, 4, 4, dtype=torch.int64)
    args = (g, x, [2, 2], [2, 2], [0, 0], False, True, None)
    must = torch.ops.aten.avg_pool2d_backward.default(*args)
    with pt.patch(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert torch.equal(torch.ops.aten.avg_pool2d_backward.default(*args), must)
    assert [str(w.message) for w in caught] == [
        "avg_pool2d_backward: pooltide leaves this gradient to PyTorch: it has no kernel for torch.int64"
    ]


@calls_aten
def test_a_refusing_backend_goes_to_pytorch(monkeypatch: Any) -> None:
    monkeypatch.setattr(aten, "_warned", Counter())
    must = [gradient(pool.forward, sample(pool)) for pool in EVERY]

    def refuse(*_: Any) -> Any:
        raise NoBackend("not today")

    monkeypatch.setattr(gradient_overrides, "prepare_gradient", refuse)
    monkeypatch.setattr(gradient_overrides, "find", lambda *_: None)
    with pt.patch(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for pool, expected in zip(EVERY, must, strict=True):
            assert torch.equal(gradient(pool.forward, sample(pool)), expected)
    assert len(caught) == len(GRADIENTS)
    assert all("not today" in str(w.message) for w in caught)


def test_a_release_that_traces_past_us_is_named(monkeypatch: Any) -> None:
    with quiet_patch(False):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            installation._check_traces()
        monkeypatch.setattr(gradient_overrides, "_in_graph", lambda tensor: False)
        with pytest.warns(UserWarning, match="past pooltide|cannot trace"):
            installation._check_traces()


def layers_of(run: Callable[[], Any]) -> int:
    """How often PyTorch enters our Python code while `run` runs."""
    names: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "override":
            names.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return len(names)


@calls_aten
@each_patch
@each_pool
def test_after_removal_one_layer_of_python_is_left(pool: Pool, forward: bool, reached: list[str]) -> None:
    quiet_patch(forward).remove()
    x = sample(pool).requires_grad_()
    y = pool.forward(x)
    g = torch.ones_like(y)
    assert layers_of(lambda: torch.autograd.grad(y, x, g, retain_graph=True)) == 1
    assert layers_of(lambda: torch.autograd.grad(y, x, g, create_graph=True)) == 2  # autograd records it
    if pool.name.startswith("avg_pool") or pool.name.startswith("adaptive_max"):
        with torch.no_grad():  # PyTorch computes the other pools by a second operator
            assert layers_of(lambda: pool.forward(x)) <= 1 + (pool.axes == 1)


@calls_aten
@each_patch
def test_after_removal_autograd_transforms_and_modes_follow(forward: bool, reached: list[str]) -> None:
    quiet_patch(forward).remove()
    aten, g, x = torch.ops.aten, torch.randn(1, 2, 2, 2), torch.randn(1, 2, 4, 4)
    run = lambda g: aten.avg_pool2d_backward.default(g, x, [2, 2], [2, 2], [0, 0], False, True, None)  # noqa: E731
    must = run(g)
    with torch.no_grad():
        with Dispatched() as dispatched:
            found = run(g)
        assert torch.equal(found, must)
        assert dispatched.names == ["aten.avg_pool2d_backward.default"]
        assert torch.equal(torch.func.vmap(run)(torch.stack([g, g]))[1], must)
        assert torch.equal(torch.func.jvp(run, (g,), (g,))[1], must)
        assert torch.equal(run(torch._neg_view(-g)), must)
        assert not run(g.clone().requires_grad_()).requires_grad
    assert run(g.clone().requires_grad_()).requires_grad


def _overhanging(x: Any) -> Any:
    """Each pool has its own slice and a gradient of whole numbers: no compiler can round it otherwise."""
    pools = [
        F.avg_pool2d(x[0], 2, 2, ceil_mode=True),
        F.adaptive_max_pool2d(x[1], (3, 2)),
        F.max_pool2d(x[2], 3, 2, 1, ceil_mode=True),
        F.adaptive_avg_pool2d(x[3], (3, 2)),
        F.avg_pool3d(x[4:5], 2, ceil_mode=True),
        F.max_pool3d(x[5:], 2, 1, dilation=2),
    ]
    return sum((pool * (torch.arange(pool.numel()) % 7 - 3).view_as(pool)).sum() for pool in pools)


@pytest.mark.slow
def test_compiled_models_use_our_gradients(monkeypatch: Any) -> None:
    """Also when the same model was compiled without the patch, and its code lies in the cache on disk."""
    x = torch.randn(6, 2, 5, 7, 11)
    must = gradient(_overhanging, x)
    torch.compiler.reset()
    wrong = gradient(torch.compile(_overhanging, fullgraph=True), x)
    torch.compiler.reset()
    reached: list[str] = []
    watch_computed(monkeypatch, reached.append)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch = pt.patch()
    with patch:
        compiled = torch.compile(_overhanging, fullgraph=True)
        assert torch.equal(gradient(compiled, x), must)
        assert sorted(reached) == sorted(
            f"{pool}_backward"
            for pool in (
                "adaptive_max_pool2d",
                "avg_pool2d",
                "max_pool2d",
                "adaptive_avg_pool2d",
                "avg_pool3d",
                "max_pool3d",
            )
        )
    torch.compiler.reset()
    assert torch.compiler.config.cache_key_tag == ""
    if torch.equal(wrong, must):
        warnings.warn("Inductor's own gradient of overhanging windows is right in this release", stacklevel=1)


def test_models_compiled_before_are_warned_about() -> None:
    torch.compiler.reset()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    with pytest.warns(UserWarning, match="compiled before"):
        pt.patch().remove()
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pt.patch().remove()


WITHOUT_A_WAY_BACK = """
import torch
if hasattr(torch.library, "get_kernel"):
    del torch.library.get_kernel
import torch.nn.functional as F
import pooltide.torch as pt
from pooltide.torch.patching import installation
def gradient():
    x = torch.arange(35.0).reshape(1, 1, 5, 7).requires_grad_()
    return torch.autograd.grad(F.avg_pool2d(x, 3, 2, 1).square().sum(), x)[0]
must = gradient()
with pt.patch():
    assert torch.equal(gradient(), must)
    whole = torch.ones(1, 1, 2, 2, dtype=torch.int64)
    try:
        torch.ops.aten.avg_pool2d_backward.default(
            whole[..., :1, :1], whole, [2, 2], [2, 2], [0, 0], False, True, None
        )
    except NotImplementedError as error:
        assert "no way back" in str(error)
    else:
        raise AssertionError("an integer gradient was computed")
assert installation._library is None
assert torch.equal(gradient(), must)
print("done")
"""


def test_releases_without_a_way_back() -> None:
    """Before PyTorch had get_kernel, removing takes the overrides out of the dispatcher."""
    command = [sys.executable, "-c", WITHOUT_A_WAY_BACK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_decorated_function_runs_patched() -> None:
    @pt.patch()
    def inside(x: int, *, y: int = 2) -> tuple[bool, int]:
        """Its text."""
        return pt.is_patched(), x + y

    assert not pt.is_patched()
    assert inside(1, y=3) == (True, 4)
    assert not pt.is_patched()
    assert (inside.__name__, inside.__doc__) == ("inside", "Its text.")
    handle = pt.patch()
    with handle, pytest.raises(TypeError, match=r"^patch: it decorates 3; it must be a function\.$"):
        handle(3)
    assert not pt.is_patched()


def test_unpatch_removes_what_has_no_handle() -> None:
    kept = pt.patch()
    quiet_patch(forward=can_call_aten())
    pt.unpatch()
    assert not pt.is_patched()
    with pt.patch():
        kept.remove()  # a handle of before removes nothing
        assert pt.is_patched()
    pt.unpatch()
    pt.unpatch()
    assert not pt.is_patched()


def test_a_removed_handle_says_so() -> None:
    with pt.patch() as handle:
        assert repr(handle) == "<pooltide.torch.Patch of gradients, active>"
    assert repr(handle) == "<pooltide.torch.Patch of gradients, removed>"
    with pytest.raises(RuntimeError, match=r"^patch: the handle was removed; it must be active\."):
        handle.__enter__()
    handle = pt.patch()
    pt.unpatch()
    assert "removed" in repr(handle)


def test_a_fallback_is_logged_once_for_each_reason(caplog: Any) -> None:
    from pooltide.torch import aten

    caplog.set_level("INFO", "pooltide.torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            aten.warn_once("avg_pool2d_backward", "a reason of this test")
    assert [r.levelname for r in caplog.records if "a reason of this test" in r.message] == ["INFO"]


def test_code_that_runs_after_its_call_is_not_decorated() -> None:
    def generator() -> Any:
        yield pt.is_patched()

    async def coroutine() -> bool:
        return pt.is_patched()

    for function in (generator, coroutine, torch.nn.Module):
        with pytest.raises(
            TypeError, match=r"^patch: it decorates .*, whose code runs after the call; it must"
        ):
            pt.patch()(function)
    assert not pt.is_patched()
