"""The registered operators: opcheck, tracing, compiling, exporting, vmap, torch.func."""

from __future__ import annotations

from types import MethodType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pools import POOLS, Pool, gradient, sample  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from shares import fast_first, fast_if, is_2d  # noqa: E402

each_pool = pytest.mark.parametrize("pool", POOLS, ids=str)
AVERAGE = (torch.ops.pooltide.avg_pool2d_backward.default, [5, 7], [3, 2], [2, 3], [1, 0], True, False, None)
CALLS = [
    AVERAGE,
    (torch.ops.pooltide.avg_pool2d_backward.default, [5, 7], [2, 2], [], [0, 0], False, True, 3),
    (torch.ops.pooltide.adaptive_avg_pool3d_backward.default, [5, 7, 4]),
    (torch.ops.pooltide.adaptive_max_pool2d_backward.default, [5, 7], "indices"),
    (torch.ops.pooltide.adaptive_max_pool3d_backward.default, [5, 7, 4], "indices"),
    (torch.ops.pooltide.adaptive_avg_pool1d_backward.default, [7]),
    (torch.ops.pooltide.adaptive_avg_pool2d_backward.default, [5, 7]),
    (torch.ops.pooltide.adaptive_max_pool1d_backward.default, [7], "indices"),
    (torch.ops.pooltide.avg_pool1d_backward.default, [7], [3], [2], [1], True, False),
    (
        torch.ops.pooltide.avg_pool3d_backward.default,
        [5, 7, 4],
        [3, 2, 2],
        [2, 3, 1],
        [1, 0, 1],
        False,
        True,
        3,
    ),
    (torch.ops.pooltide.max_pool1d_backward.default, [7], "indices", [3], [2], [1], [1], False),
    (
        torch.ops.pooltide.max_pool2d_backward.default,
        [5, 7],
        "indices",
        [3, 2],
        [2, 3],
        [1, 0],
        [1, 2],
        False,
    ),
    (torch.ops.pooltide.max_pool3d_backward.default, [5, 7, 4], "indices", [2], [], [0], [1], True),
]


def arguments(op: Any, plane: list[int], *rest: Any, lead: tuple[int, ...] = (2, 3)) -> tuple[Any, ...]:
    strided = [value for value in rest if value != "indices"]
    if strided:
        kernel, stride, padding, *more = strided
        pool = getattr(torch.nn.functional, op._schema.name.split("::")[1].removesuffix("_backward"))
        spread = {"dilation": more.pop(0)} if "indices" in rest else {}
        probe = pool(torch.zeros(1, *plane), kernel, stride or None, padding, ceil_mode=more[0], **spread)
        outputs = tuple(probe.shape[1:])
    else:
        outputs = (3, 2, 5)[: len(plane)]
    random = torch.Generator().manual_seed(2)
    g = torch.randn(*lead, *outputs, generator=random, dtype=torch.float64)
    cells = torch.Size(plane).numel()
    indices = torch.randint(0, cells, g.shape, generator=random)
    return g, plane, *(indices if value == "indices" else value for value in rest)


@pytest.mark.parametrize("call", fast_if(is_2d, CALLS), ids=lambda call: str(call[0]))
@pytest.mark.parametrize("last", fast_first([True, False]))
def test_opcheck(call: Any, last: bool) -> None:
    op, *rest = call
    for lead in ((2, 3), (3,)):
        g, *others = arguments(op, *rest, lead=lead)
        for needs in (False, True):
            args = (g.clone().requires_grad_(needs), *others, last and len(lead) == 2, True, False)
            torch.library.opcheck(op, args)


@each_pool
def test_vmap_and_func(pool: Pool) -> None:
    xs = torch.stack([sample(pool, torch.float64) + i for i in range(2)])
    loss = lambda module: lambda x: pool.forward(x, module).pow(3).sum()  # noqa: E731
    ours = torch.func.vmap(torch.func.grad(loss(functional)))(xs)
    one_by_one = torch.stack([torch.func.grad(loss(torch.nn.functional))(x) for x in xs])
    assert torch.equal(ours, one_by_one)
    slices = xs.transpose(0, 2)  # each sample is (N, batch, ...): unbatched pools under vmap over dim 1
    ours = torch.func.vmap(torch.func.grad(loss(functional)), in_dims=1, out_dims=1)(slices[:, :, 0])
    each = [torch.func.grad(loss(torch.nn.functional))(slices[:, i, 0]) for i in range(slices.shape[1])]
    assert torch.equal(ours, torch.stack(each, 1))


def test_vmap_of_the_gradient_alone() -> None:
    g = torch.randn(7, 2, 3, 5, 4)
    indices = torch.randint(0, 99, (2, 3, 5, 4))
    ours = torch.vmap(lambda g: pt.adaptive_max_pool2d_backward(g, (2, 3, 9, 11), indices))(g)
    assert torch.equal(
        ours, torch.stack([pt.adaptive_max_pool2d_backward(one, (2, 3, 9, 11), indices) for one in g])
    )
    many = torch.randint(0, 99, (2, 3, 5, 4, 7))
    ours = torch.vmap(lambda i: pt.adaptive_max_pool2d_backward(g[0], (2, 3, 9, 11), i), in_dims=-1)(many)
    assert torch.equal(ours[5], pt.adaptive_max_pool2d_backward(g[0], (2, 3, 9, 11), many[..., 5]))
    ours = torch.vmap(lambda g: pt.avg_pool2d_backward(g, (3, 10, 8), 2))(g[0])
    assert torch.equal(ours, pt.avg_pool2d_backward(g[0], (2, 3, 10, 8), 2))


def test_fakes_have_the_results_strides() -> None:
    with FakeTensorMode():
        g = torch.empty(2, 3, 5, 7).to(memory_format=torch.channels_last)
        found = pt.avg_pool2d_backward(g, (2, 3, 10, 14), 2)
    assert found.shape == (2, 3, 10, 14)
    assert found.stride() == (420, 1, 42, 3)


def test_fakes_refuse_what_kernels_refuse() -> None:
    with FakeTensorMode(), pytest.raises(ValueError, match="grad_output has plane"):
        pt.avg_pool2d_backward(torch.empty(2, 3, 5, 7), (2, 3, 10, 15), 2, padding=1)
    with FakeTensorMode(), pytest.raises(ValueError, match="indices has shape"):
        pt.adaptive_max_pool2d_backward(
            torch.empty(2, 3, 5, 7), (2, 3, 10, 15), torch.empty(2, 3, 5, 6, dtype=int)
        )


@pytest.mark.slow
def test_compile_with_dynamic_shapes_in_one_graph() -> None:
    sizes = ((3, 5, 13, 17), (2, 7, 19, 23, 11)), ((2, 7, 11, 19), (3, 5, 29, 13, 7))
    inputs = [[torch.randn(size).requires_grad_() for size in pair] for pair in sizes]

    def both(x: Any, y: Any, module: Any) -> Any:
        flat = sum(pool.forward(x, module).sin().sum() for pool in POOLS if pool.axes == 2)
        deep = sum(pool.forward(y, module).sin().sum() for pool in POOLS if pool.axes == 3)
        return flat + deep

    def compiled(module: Any) -> tuple[int, list[Any]]:
        """Returns the number of graphs that the sizes need, and the gradients."""
        torch.compiler.reset()
        counted = CompileCounterWithBackend("aot_eager")
        run = torch.compile(lambda x, y: both(x, y, module), backend=counted, fullgraph=True, dynamic=True)
        found = [torch.autograd.grad(run(*pair), pair) for pair in inputs]
        return counted.frame_count, found

    graphs, found = compiled(functional)
    for pair, gradients in zip(inputs, found, strict=True):
        must = torch.autograd.grad(both(*pair, torch.nn.functional), pair)
        assert all(map(torch.equal, gradients, must))
    # PyTorch 2.6 and 2.9 compile their own pools twice, too.
    assert graphs == 1 or graphs == compiled(torch.nn.functional)[0]


def test_compiled_gradients_called_directly() -> None:
    torch.compiler.reset()

    def run(g: Any, indices: Any) -> Any:
        n, c, h, w = g.shape
        return pt.avg_pool2d_backward(g, (n, c, 2 * h, 2 * w), 2), pt.adaptive_max_pool2d_backward(
            g, (n, c, 9, 11), indices
        )

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=True)
    for shape in ((2, 3, 5, 7), (3, 5, 4, 2)):
        g, indices = torch.randn(shape), torch.randint(0, 99, shape)
        for ours, must in zip(compiled(g, indices), run(g, indices), strict=True):
            assert torch.equal(ours, must)


def test_export() -> None:
    class Gradients(torch.nn.Module):
        def forward(self, g: Any, indices: Any) -> Any:
            return pt.adaptive_max_pool2d_backward(g, (*g.shape[:2], 9, 11), indices)

    args = torch.randn(2, 3, 5, 7), torch.randint(0, 99, (2, 3, 5, 7))
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(Gradients(), args, dynamic_shapes=({0: batch}, {0: batch}))
    assert "pooltide.adaptive_max_pool2d_backward.default" in exported.graph_module.code
    other = torch.randn(5, 3, 5, 7), torch.randint(0, 99, (5, 3, 5, 7))
    assert torch.equal(exported.module()(*other), Gradients()(*other))


def test_forward_mode_has_the_gradient_of_the_tangent() -> None:
    forward_ad = torch.autograd.forward_ad
    g, tangent, at = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 5, 7), torch.randint(0, 140, (2, 3, 5, 7))
    calls = [
        lambda g: pt.avg_pool2d_backward(g, (2, 3, 10, 14), 2),
        lambda g: pt.adaptive_max_pool2d_backward(g, (2, 3, 10, 14), at),
    ]
    for call in calls:
        with forward_ad.dual_level():
            found = forward_ad.unpack_dual(call(forward_ad.make_dual(g, tangent)))
            assert torch.equal(found.primal, call(g))
        assert torch.equal(found.tangent, call(tangent))
        assert torch.equal(torch.func.jvp(call, (g,), (tangent,))[1], call(tangent))


class MaxPool2d(torch.nn.Module):
    """A layer in Hugging Face's form: no state, only a forward, which is bound to PyTorch's module."""

    has_backward = True
    can_torch_compile = True

    def forward(self, input: Any) -> Any:
        arguments = self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        return functional.max_pool2d(input, *arguments, return_indices=self.return_indices)


def test_a_layer_without_state_computes_for_pytorchs_module() -> None:
    x, theirs = torch.randn(2, 3, 13, 17), torch.nn.MaxPool2d(3, 2, 1)
    must = gradient(theirs, x)
    ours = torch.nn.MaxPool2d(3, 2, 1)
    ours.forward = MethodType(MaxPool2d.forward, ours)
    assert torch.equal(gradient(ours, x), must)


def test_negated_views_are_read_as_what_they_mean() -> None:
    z = torch.randn(2, 3, 5, 7, dtype=torch.complex64)
    g = z.conj().imag
    assert g.is_neg()
    assert torch.equal(
        pt.avg_pool2d_backward(g, (2, 3, 10, 14), 2), -pt.avg_pool2d_backward(z.imag, (2, 3, 10, 14), 2)
    )


def test_gradient_of_a_half_is_differentiable() -> None:
    assert (
        gradient(lambda x: functional.avg_pool2d(x, 2), torch.randn(1, 2, 4, 6, dtype=torch.bfloat16)).dtype
        == torch.bfloat16
    )
