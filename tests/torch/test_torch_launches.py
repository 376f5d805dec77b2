"""The way of tensors to the GPU kernels, without a GPU: fake_gpu.py computes what is launched."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import fake_gpu  # noqa: E402
import pooltide.torch as pt  # noqa: E402
from pools import EVERY, Pool, gradient, kept_by, sample, shifted  # noqa: E402
from pooltide.geometry import UNIT, Axis  # noqa: E402
from pooltide.kernels import plan  # noqa: E402
from pooltide.kernels.cuda import launch  # noqa: E402
from pooltide.kernels.cuda.runtime import background  # noqa: E402
from pooltide.kernels.cuda.runtime.driver import NoCompiler  # noqa: E402
from pooltide.operators.dtypes import DTYPES as TYPES  # noqa: E402
from pooltide.problem.problem import Problem  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.patching import compiled_kernels, forward_overrides  # noqa: E402
from shares import fast_if, fast_some, is_2d  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
each_pool = pytest.mark.parametrize("pool", fast_if(is_2d, EVERY), ids=str)


def layouts(pool: Pool, x: Any) -> list[Any]:
    strided = torch.stack([x, x], -1)[..., 1]
    return [x, x[1], strided, *([x.to(memory_format=pool.channels_last)] if pool.axes > 1 else [])]


def saved_in(pool: Pool, x: Any) -> tuple[Any, list[Any]]:
    """The result of our pool, and the dtypes of the elements that it keeps for the gradient."""
    found: list[Any] = []
    kept = kept_by(lambda: found.append(pool.forward(x, functional)))
    return found[0], kept


@each_pool
@pytest.mark.parametrize("dtype", fast_some(DTYPES, 2), ids=str)
def test_pools_have_the_bits_of_the_cpu(pool: Pool, dtype: Any, monkeypatch: Any) -> None:
    x = sample(pool, dtype)
    x.view(-1)[::37] = float("nan")
    musts = [(pool.forward(given, functional), gradient(lambda x: pool.forward(x, functional), given))
             for given in layouts(pool, x)]  # fmt: skip
    launched = fake_gpu.install(monkeypatch)
    forward, offsets = ("maximum", True) if "max" in pool.name else ("average", False)
    for given, (values, must) in zip(layouts(pool, x), musts, strict=True):
        launched.clear()
        found = pool.forward(given, functional)
        torch.testing.assert_close(found, values, rtol=0, atol=0, equal_nan=True)
        assert found.stride() == values.stride()
        assert [(p.kind, p.index_bytes) for p in launched] == [(forward, 0)]
        launched.clear()
        found = gradient(lambda x: pool.forward(x, functional), given)
        torch.testing.assert_close(found, must, rtol=0, atol=0, equal_nan=True)
        assert [(p.kind, p.offsets) for p in launched] == [
            (forward, offsets),
            (f"{forward}_gradient", offsets),
        ]
        y, kept = saved_in(pool, given.detach().requires_grad_())
        assert kept == ([torch.uint8] if offsets else [])
        assert y.requires_grad


@pytest.mark.parametrize("pool", [pool for pool in EVERY if "max" in pool.name], ids=str)
def test_indices_are_pytorchs(pool: Pool, monkeypatch: Any) -> None:
    x = sample(pool)
    launched = fake_gpu.install(monkeypatch)
    for given in layouts(pool, x):
        must = getattr(F, pool.name)(given, **pool.arguments, return_indices=True)
        launched.clear()
        found = getattr(functional, pool.name)(given, **pool.arguments, return_indices=True)
        assert torch.equal(found[0], must[0])
        assert torch.equal(found[1], must[1])
        assert [p.index_bytes for p in launched] == [8]


@each_pool
def test_gradients_of_patched_pools(pool: Pool, monkeypatch: Any) -> None:
    x = sample(pool)
    musts = [gradient(pool.forward, given) for given in layouts(pool, x)]
    launched = fake_gpu.install(monkeypatch)
    with pt.patch():
        for given, must in zip(layouts(pool, x), musts, strict=True):
            launched.clear()
            assert torch.equal(gradient(pool.forward, given), must)
            assert [p.gradient for p in launched] == [True]


@each_pool
def test_patched_forwards(pool: Pool, monkeypatch: Any) -> None:
    """The forward of an unmodified call and its gradient are launched, with one byte per maximum.

    An adaptive maximum with few indices keeps these.
    """
    x = sample(pool)
    musts = [(pool.forward(given), gradient(pool.forward, given)) for given in layouts(pool, x)]
    launched = fake_gpu.install(monkeypatch)
    forward, offsets = ("maximum", True) if "max" in pool.name else ("average", False)
    with pt.patch(forward=True):
        for given, (values, must) in zip(layouts(pool, x), musts, strict=True):
            launched.clear()
            assert torch.equal(pool.forward(given), values)
            assert torch.equal(gradient(pool.forward, given), must)
            assert [p.kind for p in launched] == [forward, forward, f"{forward}_gradient"]
            sizes = pool.arguments.get("output_size", ())
            sizes = sizes if isinstance(sizes, tuple) else (sizes,) * pool.axes
            few = bool(sizes) and forward_overrides._indices_are_cheap(given, (sizes,))
            assert [p.offsets for p in launched[1:]] == [offsets and not few] * 2


def test_a_mean_of_whole_planes_and_empty_tensors_launch_nothing(monkeypatch: Any) -> None:
    launched = fake_gpu.install(monkeypatch)
    x = torch.randn(2, 3, 7, 5)
    assert torch.equal(functional.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 1))
    assert functional.max_pool2d(x[:0], 2).shape == (0, 3, 3, 2)
    assert launched == []


@pytest.mark.parametrize("missing", ["no compiler", "no kernel", "refused"])
def test_without_kernels_the_forward_is_pytorchs(missing: str, monkeypatch: Any) -> None:
    launched = fake_gpu.install(monkeypatch)

    def refuse(*_: Any) -> Any:
        raise NoCompiler("NVRTC is not found.")

    if missing == "no compiler":
        monkeypatch.setattr(plan, "gpu_backend", lambda: "there are no CUDA kernels: NVRTC is not found.")
    elif missing == "no kernel":
        monkeypatch.setattr(launch, "prepare", refuse)
    else:
        monkeypatch.setattr(launch, "refuse", lambda *_: "it refuses")
    x = torch.randn(2, 3, 7, 5)
    for name in ("max_pool2d", "avg_pool2d"):
        assert torch.equal(getattr(functional, name)(x, 2), getattr(F, name)(x, 2))
        leaf = x.clone().requires_grad_()
        assert torch.equal(getattr(functional, name)(leaf, 2), getattr(F, name)(x, 2))
    assert launched == []


def test_a_bad_index_is_named(monkeypatch: Any) -> None:
    fake_gpu.install(monkeypatch)
    bad = torch.zeros(2, 3, 5, 7, dtype=torch.int64)
    bad[1, 2, 3, 4] = 2**32 + 5
    text = r"indices\[1, 2, 3, 4\] is 4294967301; it must be 0 to 142, inside the 11×13 plane\."
    with pytest.raises(IndexError, match=f"^adaptive_max_pool2d_backward: {text}$"):
        pt.adaptive_max_pool2d_backward(torch.ones(2, 3, 5, 7), (2, 3, 11, 13), bad)


def test_misaligned_tensors_of_gradients_take_other_launches(monkeypatch: Any) -> None:
    launched = fake_gpu.install(monkeypatch)
    x = torch.randn(2 * 3 * 8 * 8 + 1)[1:].view(2, 3, 8, 8)
    assert torch.equal(functional.avg_pool2d(x, 2), F.avg_pool2d(x, 2))
    g = torch.randn(2 * 3 * 4 * 4 + 1)[1:].view(2, 3, 4, 4)
    must = torch.ops.aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None)
    assert torch.equal(pt.avg_pool2d_backward(g, x, 2), must)
    assert [p.kind for p in launched] == ["average", "average_gradient"]


def test_tensors_between_elements_are_copied(monkeypatch: Any) -> None:
    launched = fake_gpu.install(monkeypatch)
    x, g = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 4, 4)
    y, at = F.max_pool2d(x, 2, return_indices=True)
    must = torch.ops.aten.max_pool2d_with_indices_backward(g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, at)
    for check in (True, False):
        for tensors in ((shifted(g), at), (g, shifted(at))):
            assert torch.equal(
                pt.max_pool2d_backward(tensors[0], x, tensors[1], 2, check_indices=check), must
            )
    assert torch.equal(functional.max_pool2d(shifted(x), 2), y)
    assert [p.kind for p in launched] == ["maximum_gradient"] * 4 + ["maximum"]


@pytest.mark.parametrize("mode", ["background", "wait"])
def test_a_first_call_in_a_capture_copies_no_tables(mode: str, monkeypatch: Any) -> None:
    """Also if the problem's kernel is compiled already, for another size."""
    g, copied = torch.randn(2, 3, 9, 7), []
    must = pt.avg_pool2d_backward(g, (2, 3, 18, 14), 2)
    fake_gpu.install(monkeypatch)
    background._forget()  # jobs that failed
    monkeypatch.setenv("POOLTIDE_COMPILE", mode)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, device: copied.append(tensor) or tensor)
    monkeypatch.setattr(launch, "ready", lambda source, device: source)
    monkeypatch.setattr(background, "compiled", lambda source, device: source)
    monkeypatch.setattr(launch, "_is_capturing", lambda: True)
    torch.testing.assert_close(pt.avg_pool2d_backward(g, (2, 3, 18, 14), 2), must, rtol=0, atol=0)
    background.wait()
    torch.testing.assert_close(pt.avg_pool2d_backward(g, (2, 3, 18, 14), 2), must, rtol=0, atol=0)
    assert not copied
    monkeypatch.setattr(launch, "_is_capturing", lambda: False)
    torch.testing.assert_close(pt.avg_pool2d_backward(g, (2, 3, 18, 14), 2), must, rtol=0, atol=0)
    assert copied


def test_threads_may_take_a_compiled_kernel_at_the_same_time(monkeypatch: Any) -> None:
    """Both see that the kernel is compiled; the second one finds it taken."""
    fake_gpu.install(monkeypatch)
    problem = Problem(
        "average", (2, 3), (UNIT, Axis(8, 4, 2, 2), Axis(8, 4, 2, 2)), TYPES["FLOAT32"], "extent"
    )
    prepared = launch.PreparedLaunches(problem, "planes", 0)
    loaded = prepared.loaded
    prepared.improve()
    assert prepared.loaded is loaded
    x, out = torch.randn(2, 3, 8, 8), torch.empty(2, 3, 4, 4)
    prepared(x, None, out)
    assert torch.equal(out, F.avg_pool2d(x, 2))


def python_of(call: Callable[[], Any]) -> list[str]:
    """The functions of pooltide's Python that a call enters, outside of the fake GPU."""
    entered: list[str] = []
    on_gpu = False

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal on_gpu
        code = frame.f_code
        if code.co_filename.endswith("fake_driver.py") and event in ("call", "return"):
            on_gpu = event == "call"
        elif event == "call" and not on_gpu and "/pooltide/" in code.co_filename:
            entered.append(code.co_qualname)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


@pytest.mark.skipif(not compiled_kernels.available(), reason="this release has no compiled kernels")
@pytest.mark.parametrize("name", ["avg_pool2d", "max_pool2d", "adaptive_max_pool2d"])
def test_a_call_made_before_launches_without_python(name: str, monkeypatch: Any) -> None:
    launched = fake_gpu.install(monkeypatch)
    x, pool = torch.randn(2, 8, 12, 12), getattr(F, name)
    leaf, must = x.clone().requires_grad_(), pool(x, 2)

    def step() -> Any:
        return torch.autograd.grad(pool(leaf, 2), leaf, must)[0]

    gradient = step()
    with pt.patch(forward=True):
        for known in (False, True):
            launched.clear()
            assert bool(python_of(lambda: pool(x, 2))) is not known
            assert bool(python_of(step)) is not known
            assert [p.gradient for p in launched] == [False, False, True]
        assert torch.equal(pool(x, 2), must)
        assert torch.equal(step(), gradient)


def test_calls_on_other_streams_and_devices_enter_python(monkeypatch: Any) -> None:
    """The allocator must know each stream that reads tables; a launch needs its device to be current."""
    fake_gpu.install(monkeypatch)
    stream, device, capturing = 0, 0, False
    known, captured = list[int](), list[Any]()

    class Device:
        def __init__(self, number: int) -> None:
            self.number = number

        def __enter__(self) -> None:
            nonlocal device
            device, self.number = self.number, device

        def __exit__(self, *_: Any) -> None:
            self.__enter__()

    monkeypatch.setattr(launch, "current_stream", lambda device: stream)
    monkeypatch.setattr(launch, "current_device", lambda: device)
    monkeypatch.setattr(launch, "_is_capturing", lambda: capturing)
    monkeypatch.setattr(launch, "_captured", captured)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda stream, device: stream)
    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: known.append(stream))
    axis = Axis(13, 6, 3, 2, 1)
    problem = Problem("average_gradient", (2, 3), (UNIT, axis, axis), TYPES["FLOAT32"], "valid")
    prepared = launch.PreparedLaunches(problem, "planes", 0)
    assert prepared.loaded.tables
    g, out = torch.randn(2, 3, 6, 6), torch.empty(2, 3, 13, 13)

    def enters() -> bool:
        out.fill_(float("nan"))
        entered = python_of(lambda: prepared.run(g.data_ptr(), None, None, out.data_ptr(), 1))
        assert not out.isnan().any()
        return "PreparedLaunches.enqueue" in entered

    assert not enters()
    stream = 7
    assert enters()
    assert known == [7]
    assert captured == []
    capturing = True
    assert enters()
    assert (known, captured) == ([7], [prepared.loaded])
    stream, device, capturing = 0, 1, False
    assert enters()
    assert device == 1
    device = 0
    assert not enters()
    assert prepared.run(g.data_ptr() + 2, None, None, out.data_ptr(), 1) is NotImplemented


def test_tables_stay_while_a_launch_may_read_them(monkeypatch: Any) -> None:
    """Another thread may exchange the launches: `tune` does, and `improve`."""
    fake_gpu.install(monkeypatch)
    axis = Axis(13, 6, 3, 2, 1)
    problem = Problem("average_gradient", (2, 3), (UNIT, axis, axis), TYPES["FLOAT32"], "valid")
    prepared = launch.PreparedLaunches(problem, "planes", 0)
    (table,) = map(weakref.ref, prepared.loaded.tables)
    compute, there = fake_gpu.compute, []

    def other_thread() -> None:
        prepared.loaded = launch.PreparedLaunches(problem, "planes", 0).loaded
        there.append(table() is not None)
        prepared._launch_directly()
        there.append(table() is not None)

    def launched(*arguments: Any) -> None:
        if not there:
            other_thread()
        compute(*arguments)

    monkeypatch.setattr(fake_gpu, "compute", launched)
    g, out = torch.randn(2, 3, 6, 6), torch.empty(2, 3, 13, 13)
    prepared(g, None, out)
    assert there == [True, True]
    assert table() is None


def test_what_is_no_launch_is_refused() -> None:
    from pooltide import _native

    launches = _native.Launches()
    with pytest.raises(TypeError, match=r"^launches must be methods Launch\.run$"):
        launches.use(print, None, None, None, False, True, True)
    with pytest.raises(TypeError, match=r"^run comes after use$"):
        launches.run(16, None, None, 16, 1)
    with pytest.raises(ValueError, match=r"^Launch: arguments have 5000 bytes; a kernel takes 4096$"):
        _native.Launch(1, 1, 1, 1, 0, False, bytes(5000), print)
    with pytest.raises(
        TypeError, match=r"^run takes a stream and the addresses of tensors, not 4 arguments$"
    ):
        _native.Launch(1, 1, 1, 1, 0, False, bytes(16), print).run(0, 1, 2, 3)
