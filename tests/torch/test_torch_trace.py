"""torch.jit.trace: it records what the dispatcher sees, so our kernels must not run behind its back."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide.torch as pt  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")


def test_jit_traces_record_gradients_that_were_computed_before() -> None:
    x, g, other = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    where = torch.randint(0, 64, (2, 3, 4, 4))
    functions = {
        "average": lambda g: pt.avg_pool2d_backward(g, x, 2),
        "of a shape": lambda g: pt.avg_pool2d_backward(g, (2, 3, 8, 8), 2),
        "maximum": lambda g: pt.adaptive_max_pool2d_backward(g, x, where),
    }
    for name, function in functions.items():
        for calls in range(3):  # the first trace sees a new call
            traced = torch.jit.trace(function, (g,), check_trace=False)
            assert torch.equal(traced(other), function(other)), (name, calls)
    out, again = torch.empty(2, 3, 8, 8), torch.full((2, 3, 8, 8), 7.0)
    traced = torch.jit.trace(lambda g, o: pt.avg_pool2d_backward(g, x, 2, out=o), (g, out), check_trace=False)
    traced(other, again)
    assert torch.equal(again, pt.avg_pool2d_backward(other, x, 2))


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "adaptive_max_pool2d", "adaptive_avg_pool2d"])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_jit_traces_of_pools_are_pytorchs(name: str, needs_gradient: bool) -> None:
    x, other = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    pool = getattr(pt.functional, name)
    traced = torch.jit.trace(lambda x: pool(x, x.shape[2:]), (x.requires_grad_(needs_gradient),))
    assert torch.equal(traced(other), getattr(F, name)(other, 8 if "adaptive" not in name else (8, 8)))


def test_jit_traces_of_patched_gradients() -> None:
    def gradient(x: Any, name: str) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad((getattr(F, name)(x, 3) ** 2).sum(), x)[0]

    x, other = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    for forward in (False, True):
        with pt.patch(forward=forward):
            for name in ("avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"):
                traced = torch.jit.trace(lambda x, name=name: gradient(x, name), (x,), check_trace=False)
                assert torch.equal(traced(other), gradient(other, name)), name
