"""Max unpools under transforms, tracers, compilers and in subclasses: results are plain PyTorch's.

Each mode runs each check: patched, and our functions in place of PyTorch's.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from pools import Dispatched  # noqa: E402
from shares import fast_first  # noqa: E402
from unpools import each_mode, mode, pooled, unpool  # noqa: E402

# Each check returns what must be equal in every mode.


def batched_gradients(axes: int) -> Any:
    x, indices, plane = pooled(axes)
    y = unpool(x.requires_grad_(), indices, plane)
    gs = torch.randn(4, *y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad(y, x, gs, is_grads_batched=True)


def vmap(axes: int) -> Any:
    x, indices, plane = pooled(axes)
    both, at = torch.stack([x, 2 * x], 1), torch.stack([indices, indices], 2)
    return (
        torch.vmap(lambda v: unpool(v, indices, plane), in_dims=1)(both),
        torch.vmap(lambda v, i: unpool(v, i, plane), in_dims=(1, 2), out_dims=1)(both, at),
        torch.vmap(lambda i: unpool(x, i, plane), in_dims=2)(at),
    )


def functional_transforms(axes: int) -> Any:
    x, indices, plane = pooled(axes, (1, 1))

    def squares(v: Any) -> Any:
        return (unpool(v, indices, plane) ** 2).sum()

    def run(v: Any) -> Any:
        return unpool(v, indices, plane)

    return (
        torch.func.grad(squares)(x),
        torch.func.hessian(squares)(x),
        torch.func.jacrev(run)(x),
        torch.func.jacfwd(run)(x),
        torch.func.jvp(run, (x,), (2 * x,)),
        torch.func.vmap(torch.func.grad(squares))(torch.stack([x, x])),
        torch.func.functionalize(run)(x),
    )


def second_gradients(axes: int) -> Any:
    x, indices, plane = pooled(axes)
    y = unpool(x.requires_grad_(), indices, plane)
    g = torch.ones_like(y, requires_grad=True)
    (first,) = torch.autograd.grad(y, x, g, create_graph=True)
    return first, torch.autograd.grad((first**2).sum(), g)


def make_fx(axes: int) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    x, indices, plane = pooled(axes)

    def step(v: Any, i: Any) -> Any:
        v = v.detach().requires_grad_()
        return torch.autograd.grad((unpool(v, i, plane) ** 2).sum(), v)

    graphs = [make_fx(step, tracing_mode=kind)(x, indices) for kind in ("real", "fake", "symbolic")]
    return [(str(graph.graph), graph(x, indices)) for graph in graphs]


def shapes_without_data(axes: int) -> Any:
    from torch._subclasses import FakeTensorMode

    x, indices, plane = pooled(axes)
    found = []
    with FakeTensorMode() as fake:
        for v, i in (
            (fake.from_tensor(x), fake.from_tensor(indices)),
            (torch.empty(x.shape, device="meta"), torch.empty(x.shape, device="meta", dtype=torch.int64)),
        ):
            y = unpool(v.requires_grad_(), i, plane)
            (g,) = torch.autograd.grad(y.sum(), v)
            found += [(t.shape, t.stride(), t.dtype, str(t.device), type(t)) for t in (y, g)]
    return found


def dispatch_mode(axes: int) -> Any:
    x, indices, plane = pooled(axes)
    with Dispatched() as dispatched:
        y = unpool(x, indices, plane)
    return y, [name for name in dispatched.names if "unpool" in name]


def jit_trace(axes: int) -> Any:
    x, indices, plane = pooled(axes)
    traced = torch.jit.trace(lambda v, i: unpool(v, i, plane), (x, indices))
    return traced(2 * x, indices), "max_unpool" in str(traced.graph)


def unpool1d(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return F.max_unpool1d(x, indices, 2, 2, 0)


def unpool2d(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return F.max_unpool2d(x, indices, 2, 2, 0)


def unpool3d(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return F.max_unpool3d(x, indices, 2, 2, 0)


def jit_script(axes: int) -> Any:
    x = torch.tensor([2.0, 4.0]).reshape(1, *(1,) * axes, 2)
    return torch.jit.script((unpool1d, unpool2d, unpool3d)[axes - 1])(x, x.long() - 1)


def symbolic_trace(axes: int) -> Any:
    x = torch.tensor([2.0, 4.0]).reshape(1, *(1,) * axes, 2)
    return torch.fx.symbolic_trace((unpool1d, unpool2d, unpool3d)[axes - 1])(x, x.long() - 1)


def subclasses(axes: int) -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    class Named(torch.Tensor):
        pass

    x, indices, plane = pooled(axes)
    named = unpool(x.as_subclass(Named), indices, plane)
    pair = TwoTensor(x, 2 * x).requires_grad_()
    y = unpool(pair, TwoTensor(indices, indices), plane)
    (g,) = torch.autograd.grad(y.sum(), pair)
    return type(named).__name__, named.as_subclass(torch.Tensor), type(y).__name__, y.a, y.b, g.a


def distributed_tensors(axes: int) -> Any:
    import torch.distributed as dist
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    x, indices, plane = pooled(axes)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        try:
            mesh = init_device_mesh("cpu", (1,))
            for placement in (Replicate(), Shard(0)):
                v = distribute_tensor(x, mesh, [placement]).requires_grad_()
                y = unpool(v, distribute_tensor(indices, mesh, [placement]), plane)
                y.sum().backward()
                found += [type(y).__name__, y.to_local(), v.grad.to_local()]
        finally:
            dist.destroy_process_group()
    return found


def odd_memory(axes: int) -> Any:
    x, indices, plane = pooled(axes)
    zeros = torch._efficientzerotensor(x.shape, dtype=x.dtype)
    views = torch._neg_view(x), torch.complex(x, x).conj().imag, zeros
    return [unpool(view, indices, plane) for view in views]


def shared_memory(axes: int) -> Any:
    """A call that reads a copy-on-write tensor must not copy it."""
    found = []
    for training in (False, True):
        x, indices, plane = pooled(axes)
        v, i = torch._lazy_clone(x).requires_grad_(training), torch._lazy_clone(indices)
        y = unpool(v, i, plane)
        given = [v, i]
        if training:
            given.append(torch._lazy_clone(torch.ones_like(y)))
            y.backward(given[-1])
        found += [y.detach(), [torch._C._is_cow_tensor(t) for t in given]]
    return found


def autocast(axes: int) -> Any:
    x, indices, plane = pooled(axes, dtype=torch.float32)
    v = x.bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = unpool(v, indices, plane)
        y.sum().backward()
    return y.detach(), v.grad


def inference(axes: int) -> Any:
    x, indices, plane = pooled(axes)
    with torch.inference_mode():
        y = unpool(x, indices, plane)
        return y.is_inference(), y.clone()


def checkpoint(axes: int) -> Any:
    from torch.utils.checkpoint import checkpoint

    x, indices, plane = pooled(axes)
    y = checkpoint(lambda v: unpool(v, indices, plane) ** 2, x.requires_grad_(), use_reentrant=False)
    y.sum().backward()
    return x.grad


def exported(axes: int) -> Any:
    class Net(torch.nn.Module):
        def forward(self, x: Any, indices: Any) -> Any:
            return (unpool1d, unpool2d, unpool3d)[axes - 1](x, indices) * 2

    x = torch.tensor([2.0, 4.0]).reshape(1, *(1,) * axes, 2)
    program = torch.export.export(Net(), (x, x.long() - 1))
    return [p.module()(x, x.long() - 1) for p in (program, program.run_decompositions())]


def compiled(axes: int, backend: str = "aot_eager") -> Any:
    x, indices, plane = pooled(axes, dtype=torch.float32)
    torch.compiler.reset()
    step = torch.compile(lambda v, i: unpool(v, i, plane) * 2, backend=backend, fullgraph=True)
    y = step(x.requires_grad_(), indices)
    (y**2).sum().backward()
    torch.compiler.reset()
    return y.detach(), x.grad


def inductor(axes: int) -> Any:
    return compiled(axes, "inductor")


CHECKS = [
    autocast, batched_gradients, checkpoint, compiled, dispatch_mode, distributed_tensors, exported,
    functional_transforms, inference, jit_script, jit_trace, make_fx, odd_memory, second_gradients,
    shapes_without_data, shared_memory, subclasses, symbolic_trace, vmap,
]  # fmt: skip


def attempt(check: Callable[[int], Any], axes: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check(axes)


@pytest.mark.parametrize("axes", fast_first([2, 1, 3]))
@each_mode
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_everything_that_follows_a_call(check: Any, axes: int, name: str) -> None:
    try:
        must = attempt(check, axes)
    except (AttributeError, ImportError, NotImplementedError) as missing:
        pytest.skip(f"PyTorch {torch.__version__} cannot do this: {missing}")
    with mode(name):
        found = attempt(check, axes)
    torch.testing.assert_close(found, must, rtol=0, atol=0) if _all_tensors(must) else _compare(found, must)


def _all_tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, tuple) and all(map(_all_tensors, value)))


def _compare(found: Any, must: Any) -> None:
    if isinstance(must, (list, tuple)):
        assert len(found) == len(must)
        for one, other in zip(found, must, strict=True):
            _compare(one, other)
    elif isinstance(must, torch.Tensor):
        torch.testing.assert_close(found, must, rtol=0, atol=0)
    else:
        assert found == must


@pytest.mark.slow
@each_mode
def test_inductor(name: str) -> None:
    test_everything_that_follows_a_call(inductor, 2, name)
