"""Our autograd nodes: they have the names and attributes of any node, and notice what PyTorch's notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pools import EVERY, Pool, quiet_patch, sample  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402

F = torch.nn.functional
calls_aten = pytest.mark.skipif(not can_call_aten(), reason="this release has no patch(forward=True)")
each_module = pytest.mark.parametrize(
    "module", [functional, pytest.param(F, marks=calls_aten)], ids=["functional", "patched"]
)
MAXIMA = [pool for pool in EVERY if "max" in pool.name]
LARGE = Pool("adaptive_max_pool2d", (2, 3, 19, 23), {"output_size": 1})  # no offsets: more than 256 cells


class Empty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def nodes_of(tensor: Any) -> Iterator[Any]:
    """All nodes of the graph of a tensor."""
    seen, todo = set(), [tensor.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            todo += [before for before, _ in node.next_functions]


def patched(module: Any) -> Any:
    return quiet_patch(forward=True) if module is F else nullcontext()


@each_module
def test_what_nodes_keep_hides_nothing(module: Any) -> None:
    own = set(dir(Empty.apply(torch.ones(1, requires_grad=True)).grad_fn))
    ours = set()
    with patched(module):
        for pool in EVERY:
            x = sample(pool, torch.float64).requires_grad_()
            (first,) = torch.autograd.grad(pool.forward(x, module).square().sum(), x, create_graph=True)
            for node in nodes_of(first):
                ours.add(node.name())
                assert not own & set(vars(node) if hasattr(node, "__dict__") else ())
        values, indices = functional.max_pool2d(
            torch.randn(1, 4, 4, requires_grad=True), 2, return_indices=True
        )
        unpooled = functional.max_unpool2d(values, indices, 2)
        assert not own & set(vars(unpooled.grad_fn))
    assert ({"AverageBackward", "MaximumBackward"} <= ours) == (module is functional)


@each_module
@pytest.mark.parametrize("pool", [*MAXIMA, LARGE], ids=str)
def test_indices_that_were_changed_in_place(pool: Pool, module: Any) -> None:
    x = sample(pool).requires_grad_()
    with patched(module):
        for changed in (False, True):
            values, indices = getattr(module, pool.name)(x, **pool.arguments, return_indices=True)
            if not changed:
                values.sum().backward()
                continue
            indices.view(-1)[:1].add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                values.sum().backward()


def test_returned_indices_are_not_kept() -> None:
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    values, indices = functional.max_pool2d(x, 2, return_indices=True)
    saved = values.grad_fn.saved_tensors
    assert sum(tensor.untyped_storage().nbytes() for tensor in saved) == values.numel()
    assert indices.dtype == torch.int64
