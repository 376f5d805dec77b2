"""Max unpools patched and in place of PyTorch's: each result, stride, gradient and error is plain PyTorch's.

Training, layouts, bad arguments, and PyTorch's own samples. test_torch_unpool_transforms.py has the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pools import deterministic, quiet_patch  # noqa: E402
from pooltide.torch.pools import unpool_kernels  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402
from shares import fast_first  # noqa: E402
from unpools import each_mode, each_rank, mode, pooled, unpool  # noqa: E402


def error_of(call: Callable[[], Any]) -> Exception:
    with pytest.raises((RuntimeError, ValueError)) as caught:
        call()
    return caught.value


def text_of(call: Callable[[], Any]) -> str:
    return str(error_of(call)).partition("\n")[0]


# Training


@each_rank
@each_mode
def test_training_runs_on_our_kernel(axes: int, name: str, monkeypatch: Any) -> None:
    kernel, reached = unpool_kernels._move_on_cpu, []
    monkeypatch.setattr(
        unpool_kernels, "_move_on_cpu", lambda f, *rest: reached.append(f) or kernel(f, *rest)
    )
    x, indices, plane = pooled(axes)
    with mode(name):
        y = unpool(x.requires_grad_(), indices, plane)
        y.sum().backward()
    called = f"max_unpool{axes}d"
    if name != "functional" and axes == 1:
        called += ", or max_unpool2d of width 1"  # which PyTorch calls
    # PyTorch's own gradient of an unpool is a gather, which patch() leaves to PyTorch.
    assert reached == [called] + [f"{called}_backward"] * (name == "functional")
    assert torch.equal(x.grad, torch.ones_like(x))


@each_rank
@each_mode
@pytest.mark.parametrize("bad", [-1, "cells", 2**32, 2**63 - 1, -(2**63)])
def test_a_bad_index_raises_with_pytorchs_text(axes: int, name: str, bad: Any) -> None:
    x, indices, plane = pooled(axes)
    indices[1, 2].view(-1)[-1] = plane.numel() if bad == "cells" else bad
    must = text_of(lambda: unpool(x, indices, plane))
    assert "Found an invalid max index" in must
    for given in (x, x.clone().requires_grad_(), x.clone()[None][0].requires_grad_() * 1):
        with mode(name):
            error = error_of(lambda: unpool(given, indices, plane))  # noqa: B023
        assert must in str(error)
        assert str(error).startswith(f"max_unpool{axes}d")
        assert isinstance(error, IndexError)


def layouts(tensor: Any, axes: int) -> dict[str, Any]:
    found = {
        "contiguous": tensor,
        "images inside channels": tensor.transpose(0, 1).contiguous().transpose(0, 1),
        "with holes": torch.stack([tensor, tensor], -1)[..., 1],
        "expanded": tensor[:1].expand(tensor.shape),
    }
    if axes > 1 and tensor.dim() == axes + 2:
        form = torch.channels_last if axes == 2 else torch.channels_last_3d
        found["channels last"] = tensor.contiguous(memory_format=form)
        strides = torch.empty(tensor.shape).contiguous(memory_format=form).stride()
        found["channels last by strides"] = torch.empty_strided(
            tensor.shape, strides, dtype=tensor.dtype
        ).copy_(tensor)
    return found


def outcome(x: Any, indices: Any, plane: Any, window: Any, g: Any) -> Any:
    """What a call returns in inference and in training, and its gradient, each with its strides."""
    found = [unpool(x, indices, plane, window)]
    leaf = x.detach().requires_grad_()
    found.append(unpool(leaf, indices, plane, window))
    found += torch.autograd.grad(found[-1], leaf, g)
    return [(t.detach(), t.stride(), t.dtype, t.requires_grad) for t in found]


def assert_same(found: Any, must: Any) -> None:
    torch.testing.assert_close([t[0] for t in found], [t[0] for t in must], rtol=0, atol=0)
    assert [t[1:] for t in found] == [t[1:] for t in must]


@each_mode
@each_rank
@pytest.mark.parametrize("batch", fast_first([[2, 3], [2, 1], [1, 1], [1, 3], [3]], 2), ids=str)
@pytest.mark.parametrize("window", fast_first([[3, 2, 0], [2, 2, 0], [3, 2, 1], [2, 1, 0]]), ids=str)
def test_layouts(name: str, axes: int, batch: Any, window: Any) -> None:
    values, indices, plane = pooled(axes, batch, window, torch.float32)
    g = torch.randn(*batch, *plane, generator=torch.Generator().manual_seed(1))
    for (kind, x), (_, grad) in product(layouts(values, axes).items(), layouts(g, axes).items()):
        at = indices[:1].expand(indices.shape) if kind == "expanded" else indices
        must = outcome(x, at, plane, window, grad)
        with mode(name):
            assert_same(outcome(x, at, plane, window, grad), must)


@each_mode
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves(name: str, dtype: Any) -> None:
    x, indices, plane = pooled(2, dtype=torch.float32)
    g = torch.randn(2, 3, *plane).to(dtype)
    must = outcome(x.to(dtype), indices, plane, (2, 2, 0), g)
    with mode(name):
        assert_same(outcome(x.to(dtype), indices, plane, (2, 2, 0), g), must)


@each_mode
@each_rank
def test_one_channel_by_strides_and_empty_batches(name: str, axes: int) -> None:
    """PyTorch takes the first for channels-last, in one dimension too."""
    one = torch.zeros(8).as_strided((2, 1, 4), (4, 1, 1))[(...,) + (None,) * (axes - 1)]
    none = torch.zeros(0, 3, *(4,) * axes)
    for x in (one, none):
        indices, plane = x.long(), torch.Size([2 * n for n in x.shape[2:]])
        g = torch.ones(*x.shape[:2], *plane)
        must = outcome(x, indices, plane, (2, 2, 0), g)
        with mode(name):
            assert_same(outcome(x, indices, plane, (2, 2, 0), g), must)
            with deterministic():
                assert_same(outcome(x, indices, plane, (2, 2, 0), g), must)


@each_mode
def test_a_channels_last_module_stays_channels_last(name: str) -> None:
    x = torch.randn(2, 10, 9, 9).contiguous(memory_format=torch.channels_last)
    values, indices = F.max_pool2d(x, 3, 2, return_indices=True)
    assert values.is_contiguous(memory_format=torch.channels_last)
    with mode(name):
        for given in (values, values.clone().requires_grad_()):
            assert torch.nn.MaxUnpool2d(3, 2)(given, indices).is_contiguous(memory_format=torch.channels_last)


def test_backward_refuses_tensors_that_the_forward_did_not_make() -> None:
    x, indices, plane = pooled(2)
    y = pt.functional.max_unpool2d(x.requires_grad_(), indices, 2, 2, 0, plane)
    with pytest.raises(ValueError, match=r"max_unpool2d_backward: grad_output has shape \(2, 3, 9, 3\)"):
        y.grad_fn.apply(torch.ones_like(y)[..., :3])
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[..., :1]):
        y = pt.functional.max_unpool2d(x, indices, 2, 2, 0, plane)
        with pytest.raises(ValueError, match=r"max_unpool2d_backward: indices has shape"):
            y.sum().backward()
    y = pt.functional.max_unpool2d(x, indices, 2, 2, 0, plane)
    indices += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# Arguments


X, AT = torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4, dtype=torch.int64)
REFUSED = {
    "indices of another shape": ((X, AT[..., :1], 2), {}),
    "output_size too large": ((X, AT, 2), {"output_size": (99, 99)}),
    "output_size of one value": ((X, AT, 2), {"output_size": (6,)}),
    "too few dimensions": ((X[0, 0], AT[0, 0], 2), {}),
    "too many dimensions": ((X[None], AT[None], 2), {}),
    "padding that leaves no plane": ((X, AT, 2, 2, 9), {}),
    "no channels": ((X[:, :0], AT[:, :0], 2), {}),
    "no rows": ((X[:, :, :0], AT[:, :, :0], 2), {}),
    "integers": ((X.long(), AT, 2), {}),
    "complex": ((X.cfloat(), AT, 2), {}),
    "sparse": ((X.to_sparse(), AT, 2), {}),
    "int16 indices": ((X, AT.short(), 2), {}),
    "float indices": ((X, AT.float(), 2), {}),
    "indices elsewhere": ((X, AT.to("meta"), 2), {}),
}


@each_mode
@pytest.mark.parametrize("what", REFUSED)
def test_errors_have_pytorchs_text(name: str, what: str) -> None:
    args, kwargs = REFUSED[what]
    must = text_of(lambda: F.max_unpool2d(*args, **kwargs))
    if name == "patched" and not can_call_aten():
        pytest.skip("this release has no way back to its own kernel, so the text is ours")
    with mode(name):
        assert must in str(error_of(lambda: F.max_unpool2d(*args, **kwargs)))


@each_mode
@pytest.mark.parametrize("args", [(0,), (2, 2, 1), (2, 2, -1), (2, 0)], ids=str)
def test_what_pytorch_takes_is_taken(name: str, args: Any) -> None:
    """Windows and planes without cells, and negative padding."""
    x, indices = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int64)
    must = F.max_unpool2d(x, indices, *args)
    with mode(name):
        found = F.max_unpool2d(x, indices, *args)
    assert torch.equal(found, must)
    assert found.stride() == must.stride()


@each_rank
def test_the_functions_take_int32_indices(axes: int) -> None:
    x, indices, plane = pooled(axes)
    must = unpool(x, indices, plane)
    with mode("functional"):
        assert torch.equal(unpool(x, indices.int(), plane), must)
        assert torch.equal(torch.vmap(lambda v: unpool(v, indices.int(), plane))(x[None])[0], must)


@pytest.mark.parametrize("axes", [2, 3])
def test_patched_out_takes_pytorchs_dtype_and_any_strides(axes: int) -> None:
    op = getattr(torch.ops.aten, f"max_unpool{axes}d").out
    x, indices, plane = pooled(axes)
    more = ([2] * 3, [0] * 3) if axes == 3 else ()
    must = unpool(x, indices, plane)
    whole = torch.full((*must.shape, 2), 7.0, dtype=x.dtype)
    with quiet_patch(forward=False), warnings.catch_warnings():
        warnings.simplefilter("error")
        op(x, indices, plane, *more, out=whole[..., 0])
        assert torch.equal(op(x, indices, plane, *more, out=torch.empty(5, dtype=x.dtype)), must)
        if can_call_aten():
            with pytest.raises(RuntimeError, match="expected scalar type Double but found Float"):
                op(x, indices, plane, *more, out=torch.empty(0))
    assert torch.equal(whole[..., 0], must)
    assert bool((whole[..., 1] == 7).all())


# PyTorch's own samples


@cache
def samples(axes: int, dtype: Any) -> list[Any]:
    methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    infos = [info for info in methods.op_db if info.name == f"nn.functional.max_unpool{axes}d"]
    assert len(infos) == 2
    torch.manual_seed(3)
    return [sample for info in infos for sample in info.sample_inputs("cpu", dtype, requires_grad=True)]


@each_mode
@each_rank
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_samples(name: str, axes: int, dtype: Any) -> None:
    def results(sample: Any) -> Any:
        y = getattr(F, f"max_unpool{axes}d")(sample.input, *sample.args, **sample.kwargs)
        random = torch.Generator().manual_seed(1)
        g = torch.randn(y.shape, generator=random).to(dtype)
        (grad,) = torch.autograd.grad(y, sample.input, g)
        return [(t.detach(), t.stride(), t.dtype) for t in (y, grad)]

    given = samples(axes, dtype)
    assert len(given) > 10
    for sample in given:
        must = results(sample)
        with mode(name):
            assert_same(results(sample), must)
