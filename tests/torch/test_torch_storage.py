"""Tensors whose storage is too small for their shape: PyTorch crashes when it copies one, so we refuse it first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")


import pooltide.torch as pt  # noqa: E402
import pooltide.torch.functional as F  # noqa: E402
from geometries import FUNCTIONS, axes_of  # noqa: E402
from pooltide.torch.tensors import shortage  # noqa: E402

POOLS = ("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d")
INT64 = torch.int64


def cut(*shape: int, dtype: Any = None) -> Any:
    """A tensor that is not contiguous, and whose storage was freed."""
    tensor = torch.ones(shape, dtype=dtype).mT.contiguous().mT
    tensor.untyped_storage().resize_(0)
    return tensor


def refused(start: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    with pytest.raises(ValueError, match=r"has storage of 0 bytes; it must have \d+, as .*\.$") as caught:
        function(*arguments, **options)
    assert str(caught.value).startswith(f"{start} has"), str(caught.value)


# Each of these lines crashed the process, which is why they run in another one.


def gradients() -> None:
    g, shape = torch.ones(1, 2, 2, 2), (1, 2, 4, 4)
    average, largest = pt.adaptive_avg_pool2d_backward, pt.adaptive_max_pool2d_backward
    for odd in (cut(*g.shape), cut(*g.shape).requires_grad_(), torch._neg_view(cut(*g.shape))):
        refused("adaptive_avg_pool2d_backward: grad_output", average, odd, shape)
    refused("adaptive_avg_pool2d_backward: out", average, g, shape, out=cut(*shape))
    refused("adaptive_max_pool2d_backward: indices", largest, g, shape, cut(*g.shape, dtype=INT64))
    operator = torch.ops.pooltide.adaptive_avg_pool2d_backward
    refused("adaptive_avg_pool2d_backward: grad_output", operator, cut(*g.shape), [4, 4], False, True, False)


def pools() -> None:
    for name in POOLS:
        pool = getattr(F, name)
        for size in (2, 1):
            refused(f"{name}: input", pool, cut(1, 2, 4, 4), size)
            refused(f"{name}: input", pool, cut(1, 2, 4, 4).requires_grad_(), size)
            refused(f"{name}: input", torch.func.vmap(lambda x: pool(x, size)), cut(3, 1, 2, 4, 4))  # noqa: B023
    refused("max_pool2d: input", F.max_pool2d, cut(1, 2, 4, 4), 2, return_indices=True)


def hooks() -> None:
    for name in POOLS:
        y = getattr(F, name)(torch.ones(1, 2, 4, 4, requires_grad=True), 2)
        y.register_hook(lambda g: cut(*g.shape))
        refused(f"{name}_backward: grad_output", y.sum().backward)
    freed = lambda t: cut(*t.shape, dtype=t.dtype) if t.dim() > 1 else t  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, freed):
        y = F.max_pool2d(torch.ones(1, 2, 4, 4, requires_grad=True), 2)
    with pytest.raises(ValueError, match="tensor kept for the gradient has"):
        y.sum().backward()
    g, at = torch.ones(1, 2, 2, 2, requires_grad=True), torch.zeros(1, 2, 2, 2, dtype=INT64)
    found = pt.adaptive_max_pool2d_backward(g, (1, 2, 4, 4), at)
    found.register_hook(lambda g: cut(*g.shape))
    refused("adaptive_max_pool2d_backward: grad_output", found.sum().backward)


def patched() -> None:
    aten, windows = torch.ops.aten, ([2, 2], [], [0, 0], False, True, None)
    g, x = torch.ones(1, 2, 2, 2), torch.ones(1, 2, 4, 4)
    with pt.patch():
        average, written = aten._adaptive_avg_pool2d_backward.default, aten.avg_pool2d_backward.grad_input
        refused("adaptive_avg_pool2d_backward: grad_output", average, cut(*g.shape), x)
        refused("avg_pool2d_backward: grad_output", written, cut(*g.shape), x, *windows, grad_input=x.clone())
        refused("avg_pool2d_backward: out", written, g, x, *windows, grad_input=cut(*x.shape))
        largest = aten.adaptive_max_pool2d_backward.default
        refused("adaptive_max_pool2d_backward: indices", largest, g, x, cut(*g.shape, dtype=INT64))
        y = torch.nn.functional.avg_pool2d(x.requires_grad_(), 2)
        y.register_hook(lambda g: cut(*g.shape))
        refused("avg_pool2d_backward: grad_output", y.sum().backward)


@pytest.mark.parametrize("calls", [gradients, pools, hooks, patched], ids=lambda calls: calls.__name__)
@pytest.mark.slow
def test_freed_storage_is_refused_by_a_sentence(calls: Callable[[], None]) -> None:
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"from test_torch_storage import *; {calls.__name__}()"],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, (made.returncode, made.stderr)


def test_every_byte_that_shape_strides_and_offset_reach_is_needed() -> None:
    for tensor, reached in (
        (torch.ones(3, 5), 15),
        (torch.ones(5, 3).mT, 15),
        (torch.ones(9, 5)[0:8:3, 1:4], 6 * 5 + 3 + 1),
        (torch.ones(7)[4:5], 5),
        (torch.ones(7)[4:5].expand(9, 1), 5),
    ):
        tensor.untyped_storage().resize_(4 * reached)
        assert shortage(tensor) is None
        tensor.untyped_storage().resize_(4 * reached - 1)
        assert f"{4 * reached - 1} bytes; it must have {4 * reached}," in str(shortage(tensor))
    empty = torch.ones(3, 0, 5)
    empty.untyped_storage().resize_(0)
    assert shortage(empty) is None


@pytest.mark.parametrize("offset", [0, 8])
def test_a_call_that_is_known_already_checks_again(offset: int) -> None:
    """Small calls that were made before take the shortest way to the kernel."""
    good, shape = torch.ones(16 + offset)[offset:].view(2, 2, 2, 2), (2, 2, 4, 4)
    for _ in range(3):
        pt.adaptive_avg_pool2d_backward(good, shape)
    good.untyped_storage().resize_(4 * (offset + 15))
    with pytest.raises(ValueError, match=f"has storage of {4 * (offset + 15)} bytes"):
        pt.adaptive_avg_pool2d_backward(good, shape)


def test_so_does_a_patched_call_and_one_with_indices() -> None:
    g, x = torch.ones(2, 2, 2, 2), torch.ones(2, 2, 4, 4)
    at = torch.zeros(g.shape, dtype=INT64)
    with pt.patch():
        for _ in range(3):
            torch.ops.aten.adaptive_max_pool2d_backward.default(g, x, at)
            pt.adaptive_max_pool2d_backward(g, x, at)
        at.untyped_storage().resize_(8 * 15)
        for call in (torch.ops.aten.adaptive_max_pool2d_backward.default, pt.adaptive_max_pool2d_backward):
            with pytest.raises(ValueError, match="indices has storage of 120 bytes"):
                call(g, x, at)


def test_zero_tensors_are_read_and_never_written() -> None:
    g, shape = torch.randn(1, 2, 2, 3), (1, 2, 4, 5)
    zeros = torch._efficientzerotensor(g.shape, dtype=torch.int64)
    found = pt.adaptive_max_pool2d_backward(g, shape, zeros)
    assert torch.equal(
        found, pt.adaptive_max_pool2d_backward(g, shape, torch.zeros(g.shape, dtype=torch.int64))
    )
    assert not pt.adaptive_avg_pool2d_backward(torch._efficientzerotensor(g.shape), shape).any()
    with pytest.raises(
        ValueError, match="adaptive_avg_pool2d_backward: out is a zero tensor, which is read-only; "
    ):
        pt.adaptive_avg_pool2d_backward(g, shape, out=torch._efficientzerotensor(shape))


def _unbatched(function: str) -> tuple[Any, Any, tuple[Any, ...], Any]:
    """grad_output, the input's shape, indices if any, and a channels-last result of NaN."""
    axes = axes_of(function)
    shape, outputs = (3, 5, 7, 9)[: axes + 1], (3, 2, 3, 4)[: axes + 1]
    at = (torch.randint(0, 5, outputs),) if "max" in function else ()
    return torch.randn(outputs), shape, at, torch.full((*shape[1:], 3), torch.nan).movedim(-1, 0)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if axes_of(f) > 1])
def test_an_unbatched_out_may_be_channels_last(function: str) -> None:
    g, shape, at, out = _unbatched(function)
    windows = () if "adaptive" in function else (2, 2)
    assert getattr(pt, function)(g, shape, *at, *windows, out=out) is out
    assert torch.equal(out, getattr(pt, function)(g, shape, *at, *windows))


@pytest.mark.parametrize("function", ["avg_pool2d_backward", "adaptive_max_pool3d_backward"])
def test_so_may_an_unbatched_grad_input_under_patch(function: str) -> None:
    g, shape, at, out = _unbatched(function)
    windows = () if "adaptive" in function else ([2, 2], [2, 2], [0, 0], False, True, None)
    with pt.patch():
        getattr(torch.ops.aten, function).grad_input(g, torch.ones(shape), *windows, *at, grad_input=out)
    assert torch.equal(out, getattr(pt, function)(g, shape, *at, *windows))
