"""The memory behind tensors: addresses between elements, shared buffers, writes that autograd must know of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from geometries import FUNCTIONS, axes_of  # noqa: E402
from pools import shifted  # noqa: E402
from pooltide.kernels.calls import CALLS  # noqa: E402
from pooltide.torch import tensor_calls  # noqa: E402

SMALL, LARGE = 4, 4096  # the side of a plane; results of 64 MB are written past the cache
PLANE, OUTPUTS = (7, 11, 13), (3, 5, 6)  # of kernel 3, stride 2


def arguments(function: str, dtype: Any = None) -> tuple[Any, ...]:
    axes = axes_of(function)
    g = torch.randn(2, 5, *OUTPUTS[3 - axes :], dtype=torch.float64).to(dtype or torch.float32)
    shape = (2, 5, *PLANE[3 - axes :])
    at = (torch.randint(0, PLANE[-1], g.shape),) if "max" in function else ()
    return (g, shape, *at) if "adaptive" in function else (g, shape, *at, 3, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_small_tensors_at_any_address(function: str, dtype: Any) -> None:
    run, (g, *rest) = getattr(pt, function), arguments(function, dtype)
    must = run(g, *rest)
    for by in range(1, g.element_size()):
        for _ in range(2):  # the second time is a shortcut's
            assert torch.equal(run(shifted(g, by), *rest), must)
        out = shifted(torch.full_like(must, float("nan")), by)
        assert torch.equal(run(g, *rest, out=out), must)
        if "max" in function:
            shape, at, *sizes = rest
            assert torch.equal(run(g, shape, shifted(at, by), *sizes), must)


@pytest.mark.parametrize("entrance", ["direct", "patched"])
@pytest.mark.parametrize("which", ["grad_output", "out"])
def test_large_averages_at_any_address(entrance: str, which: str) -> None:
    g = torch.randn(1, 1, LARGE // 2, LARGE // 2)
    x = torch.empty(1, 1, LARGE, LARGE)
    must = pt.avg_pool2d_backward(g, x, 2)
    given = shifted(g) if which == "grad_output" else g
    out = shifted(x) if which == "out" else x
    if entrance == "direct":
        pt.avg_pool2d_backward(given, x, 2, out=out)
    else:
        with pt.patch():
            torch.ops.aten.avg_pool2d_backward.grad_input(
                given, x, [2, 2], [2, 2], [0, 0], False, True, None, grad_input=out
            )
    assert torch.equal(out, must)


@pytest.mark.parametrize("side", [SMALL, LARGE])
def test_our_pools_at_any_address(side: int) -> None:
    x = torch.randn(1, 1, side, side)
    off = shifted(x).requires_grad_()
    for pool in (F.avg_pool2d, F.max_pool2d):
        ours = getattr(pt.functional, pool.__name__)(off, 2)
        assert torch.equal(ours, pool(x, 2))
        g = torch.randn_like(ours)
        must = torch.autograd.grad(pool(off, 2), off, g)[0]
        assert torch.equal(torch.autograd.grad(ours, off, shifted(g))[0], must)


def test_channels_last_at_any_address() -> None:
    last = {"memory_format": torch.channels_last}
    g, x = torch.randn(2, 5, 5, 6), torch.empty(2, 5, 10, 12)
    must = pt.avg_pool2d_backward(g, x, 2)
    out = shifted(x.permute(0, 2, 3, 1).contiguous()).permute(0, 3, 1, 2)
    assert out.is_contiguous(**last)
    assert torch.equal(pt.avg_pool2d_backward(g.to(**last), x.to(**last), 2, out=out), must)


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 5, 64, 255])
def test_one_buffer_behind_two_storages(offset: int) -> None:
    """Neither storage knows of the other; out is written while grad_output is read, so that is copied."""
    buffer = np.zeros(400, np.uint8)
    out = torch.from_numpy(buffer[:256]).view(torch.float32).view(1, 1, 8, 8)
    g = torch.from_numpy(buffer[offset : offset + 64]).view(torch.float32).view(1, 1, 4, 4)
    g.copy_(torch.arange(16.0).view(1, 1, 4, 4))
    must = pt.avg_pool2d_backward(g.clone(), out, 2)
    assert torch.equal(pt.avg_pool2d_backward(g, out, 2, out=out), must)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_autograd_is_told_that_out_changes(function: str) -> None:
    run, given = getattr(pt, function), arguments(function)
    dense = torch.zeros(given[1])
    for saved in (dense, torch.stack([dense, dense], -1)[..., 1], shifted(dense)):
        loss = (torch.ones_like(saved, requires_grad=True) * saved).sum()
        run(*given, out=saved)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_autograd_is_told_even_where_an_index_is_bad() -> None:
    g, shape, at = arguments("adaptive_max_pool2d_backward")
    saved = torch.zeros(shape)
    before = saved._version
    with pytest.raises(IndexError):
        pt.adaptive_max_pool2d_backward(g, shape, at + 1000, out=saved)
    assert saved._version > before


def test_a_bad_index_touches_nothing_outside_out() -> None:
    """What out itself holds then is not specified."""
    g, shape, at = arguments("adaptive_max_pool2d_backward")
    frame = torch.full((4, *shape[1:]), 7.0)
    for value in (143, -1, 2**40, -(2**63)):
        at[1, 4, 4, 5] = value
        with pytest.raises(IndexError):
            pt.adaptive_max_pool2d_backward(g, shape, at, out=frame[1:3])
        assert (frame[[0, 3]] == 7).all()


@pytest.mark.parametrize("pool", ["avg_pool2d", "max_pool2d"])
def test_the_environment_chooses_the_backend_of_each_call(pool: str, monkeypatch: Any) -> None:
    """Not of all later calls of that shape, whether the choice came first or second."""
    function = f"{pool}_backward"
    g, shape, *rest = arguments(function)
    x = torch.randn(2, 5, 19, 23)
    used: list[str] = []
    planned = tensor_calls.plan

    def watched(*args: Any) -> Any:
        executable = planned(*args)
        used.append(executable.backend)
        return executable

    monkeypatch.setattr(tensor_calls, "plan", watched)

    def every_way() -> list[str]:
        """The backends that new gradients were prepared for: directly, and by a backward pass of our pool."""
        used.clear()
        getattr(pt, function)(
            g[:, :3].contiguous(),
            (2, 3, *shape[2:]),
            *(r[:, :3].contiguous() if isinstance(r, torch.Tensor) else r for r in rest),
        )
        leaf = x.clone().requires_grad_()
        getattr(pt.functional, pool)(leaf, 3).pow(2).sum().backward()
        return list(used)

    monkeypatch.setenv("POOLTIDE_BACKEND", "reference")
    assert set(every_way()) == {"reference"}
    monkeypatch.delenv("POOLTIDE_BACKEND")
    assert set(every_way()) == {"cpu"}
    every_way()  # by now small calls are shortcuts
    monkeypatch.setenv("POOLTIDE_BACKEND", "nobody")
    with pytest.raises(RuntimeError, match="backend 'nobody' is unknown"):
        every_way()
    with pytest.raises(RuntimeError, match="backend 'nobody' is unknown"):
        getattr(pt.functional, pool)(x, 3)


def test_tables_of_long_axes_count_in_the_cache() -> None:
    for outputs in (1, 3, 1 << 21):
        x = torch.randn(1, 1, 1 << 20, requires_grad=True)
        y = pt.functional.adaptive_max_pool1d(x, outputs)
        (found,) = torch.autograd.grad(y.sum(), x)
        assert found.sum() == outputs
        g = torch.ones(1, 1, outputs)
        assert pt.adaptive_avg_pool1d_backward(g, x.shape).shape == x.shape
        assert pt.adaptive_avg_pool1d_backward(torch.ones(1, 1, 1 << 21), (1, 1, 3)).shape == (1, 1, 3)
        pt.functional.adaptive_avg_pool1d(x.detach(), outputs + 1)
        assert CALLS.nbytes > 12 * max(outputs, 1 << 20), "first cell, length and divisor of each window"
