"""Shortcuts: a call made again skips Python, and nothing that would change its answer is skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pooltide  # noqa: E402
import pooltide.torch as pt  # noqa: E402
from geometries import FUNCTIONS, axes_of  # noqa: E402
from pools import Dispatched  # noqa: E402
from pooltide.torch import gradients, shortcuts  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="this PyTorch has no DLPack exchange API: there are no shortcuts",
)
PLANE, OUTPUTS = (7, 11, 13), (3, 5, 6)  # of kernel 3, stride 2


def good(function: str) -> tuple[Any, ...]:
    axes = axes_of(function)
    g, x = torch.randn(2, 5, *OUTPUTS[3 - axes :]), torch.empty(2, 5, *PLANE[3 - axes :])
    at = (torch.randint(0, 13, g.shape),) if "max" in function else ()
    return (g, x, *at) if "adaptive" in function else (g, x, *at, 3, 2)


@pytest.fixture
def found(monkeypatch: Any) -> list[str]:
    """The calls that were known."""
    known: list[str] = []

    def find(function: str, *rest: Any) -> Any:
        if (result := shortcuts.find(function, *rest)) is not None:
            known.append(function)
        return result

    monkeypatch.setattr(gradients, "find", find)
    return known


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_second_call_is_known_and_the_same(function: str, found: list[str]) -> None:
    run, arguments = getattr(pt, function), good(function)
    first = run(*arguments)
    found.clear()
    assert torch.equal(run(*arguments), first)
    by_shape = (arguments[0], tuple(arguments[1].shape), *arguments[2:])
    assert torch.equal(run(*by_shape), first)
    assert torch.equal(run(*by_shape), first)
    assert len(found) >= 2
    other = (torch.randn_like(arguments[0]), *arguments[1:])
    assert torch.equal(run(*other), run(*other, out=torch.full_like(first, float("nan"))))


@pytest.mark.parametrize("cells", [1 << 14, 1 << 18, 1 << 21])
@pytest.mark.parametrize("threads", [1, 2])
def test_large_calls_are_known_too(cells: int, threads: int, found: list[str]) -> None:
    """In deterministic mode PyTorch would fill a large result, so such a call is not known then."""
    x = torch.empty(cells // (1 << 10), 2, 16, 32)
    g = torch.randn(x.shape[0], 2, 8, 16)
    pooltide.set_num_threads(threads)
    try:
        first = pt.avg_pool2d_backward(g, x, 2)
        assert torch.equal(pt.avg_pool2d_backward(g, x, 2), first)
        assert found == ["avg_pool2d_backward"]
        torch.use_deterministic_algorithms(True)
        assert torch.equal(pt.avg_pool2d_backward(g, x, 2), first)
        assert len(found) == (2 if cells == 1 << 14 else 1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first, g.repeat_interleave(2, 2).repeat_interleave(2, 3) / 4)


@pytest.mark.parametrize("pool", ["avg_pool2d", "adaptive_avg_pool2d"])
def test_the_backward_of_our_pools_is_known_again(pool: str, found: list[str]) -> None:
    x = torch.randn(2, 5, 11, 13, requires_grad=True)
    y = getattr(pt.functional, pool)(x, 3)
    first, second = (torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert f"{pool}_backward" in found


def channels_last(t: Any) -> Any:
    return t.to(memory_format=torch.channels_last)


CHANGES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "dtype": lambda g, x: (g.double(), x),
    "half": lambda g, x: (g.bfloat16(), x),
    "gradient's strides": lambda g, x: (channels_last(g), x),
    "input's strides": lambda g, x: (g, channels_last(x)),
    "expanded": lambda g, x: (g[:1, :1].expand(g.shape), x),
    "offset": lambda g, x: (torch.cat([g, g])[1:3], x),
    "batch": lambda g, x: (g[:1], x[:1]),
    "plane": lambda g, x: (g, torch.empty(2, 5, 12, 14)),
    "unbatched": lambda g, x: (g[0], x[0]),
    "negative view": lambda g, x: (torch.complex(g, g).conj().imag, x),
    "parameter": lambda g, x: (torch.nn.Parameter(g, requires_grad=False), x),
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_call_gets_its_own_answer(name: str) -> None:
    g, x, *sizes = good("avg_pool2d_backward")
    pt.avg_pool2d_backward(g, x, *sizes)
    g, x = CHANGES[name](g, x)
    for _ in range(2):
        result = pt.avg_pool2d_backward(g, x, *sizes)
        must = pt.avg_pool2d_backward(g, x, *sizes, out=torch.full(x.shape, float("nan"), dtype=g.dtype))
        assert torch.equal(result, must)
        assert result.dtype == g.dtype
        assert result.stride() == x.stride()


def test_attributes_count_by_value_and_type(found: list[str]) -> None:
    g, x, kernel, stride = good("avg_pool2d_backward")
    for _ in range(2):
        plain = pt.avg_pool2d_backward(g, x, kernel, stride)
    found.clear()
    assert torch.equal(pt.avg_pool2d_backward(g, x, kernel, stride, divisor_override=9), plain)
    assert not torch.equal(pt.avg_pool2d_backward(g, x, kernel, stride, divisor_override=5), plain)
    assert torch.equal(pt.avg_pool2d_backward(g, x, (3, 3), [2, 2]), plain)
    assert found == []
    for bad in ((3.0, stride), (kernel, 2.0), (kernel, stride, False), (kernel, stride, 0, 0)):
        with pytest.raises(TypeError):
            pt.avg_pool2d_backward(g, x, *bad)


def test_lazy_indices_are_read_as_their_values(found: list[str]) -> None:
    """A negated view and a zero tensor have other values than their memory."""
    g, x, at = good("adaptive_max_pool2d_backward")
    for _ in range(2):
        pt.adaptive_max_pool2d_backward(g, x, at)
    assert found
    found.clear()
    zeros = torch.zeros_like(at)
    must = pt.adaptive_max_pool2d_backward(g, x, zeros, out=torch.empty_like(x))
    assert torch.equal(pt.adaptive_max_pool2d_backward(g, x, torch._neg_view(zeros)), must)
    with pytest.raises(IndexError, match="is -1; it must be 0 to 142"):
        pt.adaptive_max_pool2d_backward(g, x, torch._neg_view(zeros + 1))
    lazy = torch._efficientzerotensor(at.shape, dtype=torch.int64)
    assert torch.equal(pt.adaptive_max_pool2d_backward(g, x, lazy), must)
    assert found == []


def test_channels_last_calls_are_known_too(found: list[str]) -> None:
    g, x, *sizes = good("avg_pool2d_backward")
    g, x = channels_last(g), channels_last(x)
    first, second = (pt.avg_pool2d_backward(g, x, *sizes) for _ in range(2))
    assert torch.equal(first, second)
    assert second.stride() == x.stride()
    assert found == ["avg_pool2d_backward"]


def test_a_bad_index_is_still_found() -> None:
    g, x, at = good("adaptive_max_pool2d_backward")
    pt.adaptive_max_pool2d_backward(g, x, at)
    at = at.clone()
    at[1, 2, 3, 4] = 143
    with pytest.raises(IndexError, match=r"indices\[1, 2, 3, 4\] is 143; it must be 0 to 142"):
        pt.adaptive_max_pool2d_backward(g, x, at)


def test_whoever_has_a_say_is_asked(found: list[str]) -> None:
    """Autograd, transforms, forward mode and dispatch modes get the calls that were known without them."""
    from torch.autograd import forward_ad

    g, x, *sizes = good("avg_pool2d_backward")
    run = lambda g: pt.avg_pool2d_backward(g, x, *sizes)  # noqa: E731
    must = run(g)
    run(g)
    found.clear()
    leaf = g.clone().requires_grad_()
    run(leaf).sum().backward()
    assert leaf.grad is not None
    assert torch.equal(torch.func.vmap(run)(torch.stack([g, g]))[1], must)
    with Dispatched() as dispatched:
        run(g)
    assert "pooltide.avg_pool2d_backward.default" in dispatched.names
    with forward_ad.dual_level():
        assert torch.equal(forward_ad.unpack_dual(run(forward_ad.make_dual(g, g))).tangent, must)
    assert found == []
    with torch.no_grad():
        assert torch.equal(run(leaf.detach().requires_grad_()), must)
    assert found == ["avg_pool2d_backward"]


@pytest.mark.slow
def test_more_calls_than_there_is_room_for() -> None:
    for _ in range(2):
        for size in range(2, 2600):
            g = torch.arange(1.0, size)
            assert torch.equal(
                pt.avg_pool1d_backward(g[None], (1, size), 2, 1)[0, 1:-1], (g[1:] + g[:-1]) / 2
            )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_out_is_known_too_and_marked_as_written(function: str, found: list[str]) -> None:
    run, arguments = getattr(pt, function), good(function)
    want, out = run(*arguments), torch.empty_like(arguments[1])
    run(*arguments, out=out)
    found.clear()
    version = out.fill_(float("nan"))._version
    assert run(*arguments, out=out) is out
    assert torch.equal(out, want)
    assert out._version == version + 1
    assert found == [function]


def small_out(kind: str, g: Any, x: Any) -> Any:
    """An `out` with the metadata of a known one, which the kernel must not simply write to."""
    if kind == "overlaps grad_output":
        return g.as_strided(x.shape, x.stride())
    out = torch.empty_like(x, requires_grad=kind == "takes part in autograd")
    if kind == "short storage":
        out.untyped_storage().resize_(8)
    return out


@pytest.mark.parametrize("kind", ["overlaps grad_output", "takes part in autograd", "short storage"])
def test_out_is_checked_on_every_call(kind: str, found: list[str]) -> None:
    g, x, *sizes = good("avg_pool2d_backward")
    g = torch.empty(x.numel() + 1)[: g.numel()].view(g.shape).copy_(g)  # `out` fits behind its first element
    for _ in range(2):
        want = pt.avg_pool2d_backward(g, x, *sizes, out=torch.empty_like(x)).clone()
    found.clear()
    out = small_out(kind, g, x)
    if kind == "overlaps grad_output":
        assert torch.equal(pt.avg_pool2d_backward(g, x, *sizes, out=out), want)
    else:
        with pytest.raises(ValueError, match="out"):
            pt.avg_pool2d_backward(g, x, *sizes, out=out)
    assert found == []


def test_an_inference_tensor_is_no_out(found: list[str]) -> None:
    g, x, *sizes = good("avg_pool2d_backward")
    for _ in range(2):
        pt.avg_pool2d_backward(g, x, *sizes, out=torch.empty_like(x))
    with torch.inference_mode():
        out = torch.empty_like(x)
    found.clear()
    with pytest.raises(ValueError, match="inference"):
        pt.avg_pool2d_backward(g, x, *sizes, out=out)
    assert found == []
