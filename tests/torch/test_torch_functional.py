"""Differentiable pools: PyTorch's values and gradients, second ones too, and what they keep meanwhile."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pooltide  # noqa: E402
from bad_pools import BAD  # noqa: E402
from geometries import axes_of  # noqa: E402
from pools import EVERY, Pool, gradient, kept_by, sample  # noqa: E402
from pooltide.kernels import cpu, reference  # noqa: E402
from pooltide.problem.problem import Problem  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.pools import pool_nodes  # noqa: E402
from shares import fast_first, fast_if, fast_some, is_2d  # noqa: E402

each_pool = pytest.mark.parametrize("pool", fast_if(is_2d, EVERY), ids=str)
two_pools = pytest.mark.parametrize("pool", fast_some(EVERY, 2), ids=str)
MAXIMA = [pool for pool in EVERY if "max" in pool.name]


@each_pool
def test_values_and_gradients(pool: Pool) -> None:
    for dtype in (torch.float32, torch.float64):
        x = sample(pool, dtype)
        views = [x, x[0], x[:, :1], x.flip(-1), torch.stack([x, x], -1)[..., 0], x.transpose(0, 1)]
        for view in views:
            ours = gradient(lambda x: pool.forward(x, functional), view)
            assert torch.equal(pool.forward(view, functional), pool.forward(view))
            assert torch.equal(ours, gradient(pool.forward, view))
        if pool.axes > 1:
            last = x.to(memory_format=pool.channels_last)
            found = gradient(lambda x: pool.forward(x, functional), last)
            assert found.is_contiguous(memory_format=pool.channels_last)
            assert pool.forward(last, functional).stride() == pool.forward(last).stride()
            # PyTorch's own float64 values depend on the layout (adaptive_avg_pool2d).
            assert torch.equal(pool.forward(last, functional), pool.forward(x))


@each_pool
def test_halves_are_rounded_once(pool: Pool) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x = sample(pool, dtype)
        assert torch.equal(pool.forward(x, functional), pool.forward(x.float()).to(dtype))
        found = gradient(lambda x: pool.forward(x, functional), x)
        must = gradient(lambda x: pool.forward(x, functional), x.float(), rounded=dtype)
        assert torch.equal(found, must.to(dtype))


@two_pools
def test_gradcheck(pool: Pool) -> None:
    small = (2, 2, 7, 5)[: pool.axes + 2] if pool.axes < 3 else (1, 2, 3, 5, 4)
    arguments = pool.arguments
    if "adaptive" in pool.name:
        arguments = {"output_size": (2, 3, 3)[: pool.axes]}
    elif "dilation" in arguments or pool.axes == 3:
        arguments = {"kernel_size": 2, "padding": 1}
    x = (
        torch.randperm(int(np.prod(small)), generator=torch.Generator().manual_seed(5)).double().view(small)
        / 8
    )
    x.requires_grad_()  # values far apart: the maximum stays where it is
    run = lambda x: Pool(pool.name, small, arguments).forward(x, functional)  # noqa: E731
    assert torch.autograd.gradcheck(run, x)
    assert torch.autograd.gradgradcheck(run, x)


@each_pool
def test_second_gradient_is_pytorchs(pool: Pool) -> None:
    found = []
    for module in (functional, torch.nn.functional):
        x = sample(pool, torch.float64).requires_grad_()
        (first,) = torch.autograd.grad(pool.forward(x, module).pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.pow(2).sum(), x)[0])
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@each_pool
def test_autocast_and_inference_mode(pool: Pool, dtype: Any) -> None:
    x = sample(pool, dtype)
    found = []
    for module in (functional, torch.nn.functional):
        with torch.autocast("cpu", torch.bfloat16):
            inner = x.clone().requires_grad_()
            y = pool.forward(inner, module)
        y.float().pow(2).sum().backward()
        found.append((y, inner.grad))
    assert found[0][0].dtype == found[1][0].dtype
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1].dtype == x.dtype
    if y.dtype == torch.float32:
        assert torch.equal(found[0][1], found[1][1])
    with torch.inference_mode():
        assert torch.equal(pool.forward(sample(pool), functional), pool.forward(sample(pool)))


@two_pools
def test_compiled_and_mapped(pool: Pool) -> None:
    x = sample(pool)
    must = gradient(pool.forward, x)
    torch.compiler.reset()
    compiled = torch.compile(lambda x: pool.forward(x, functional), backend="aot_eager", fullgraph=True)
    assert torch.equal(gradient(compiled, x), must)
    xs = torch.stack([x, x.flip(0)])
    loss = lambda module: lambda x: pool.forward(x, module).sin().sum()  # noqa: E731
    ours = torch.func.vmap(torch.func.grad(loss(functional)))(xs)
    assert torch.equal(ours[0], torch.func.grad(loss(torch.nn.functional))(x))


@each_pool
def test_little_is_kept(pool: Pool) -> None:
    x = sample(pool).requires_grad_()
    kept = kept_by(lambda: pool.forward(x, functional))
    assert kept == ([torch.uint8] if pool in MAXIMA else [])


@pytest.mark.parametrize("pool", MAXIMA, ids=str)
def test_indices_come_beside_what_is_kept(pool: Pool) -> None:
    with_indices = Pool(pool.name, pool.shape, pool.arguments | {"return_indices": True})
    x = sample(pool).requires_grad_()
    own: Any = with_indices.forward(x)
    found: list[Any] = []
    assert kept_by(lambda: found.extend(with_indices.forward(x, functional))) == [torch.uint8]
    assert torch.equal(found[0], own[0])
    assert torch.equal(found[1], own[1])
    g = torch.randn_like(own[0])
    assert torch.equal(*[torch.autograd.grad(y, x, g)[0] for y in (found[0], own[0])])


@pytest.mark.parametrize("pool", MAXIMA, ids=str)
def test_the_gradient_reads_bytes(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = cpu.prepare

    def watched(problem: Problem, layout: str, device: None) -> Any:
        if problem.gradient and problem.index_bytes not in read:
            read.append(problem.index_bytes)
        return real(problem, layout, device)

    monkeypatch.setattr(cpu, "prepare", watched)
    gradient(lambda x: pool.forward(x, functional), sample(pool))
    assert read == [1]


def test_larger_windows_keep_indices_of_the_smallest_type() -> None:
    for cells, dtype in ((256, "uint8"), (257, "int16"), (2**15, "int16"), (2**15 + 1, "int32")):
        assert pool_nodes.smallest_index_dtype(cells) == getattr(torch, dtype)
    assert pool_nodes.smallest_index_dtype(2**31) == torch.int32
    assert pool_nodes.smallest_index_dtype(2**31 + 1) == torch.int64
    pool = Pool("max_pool2d", (2, 3, 23, 29), {"kernel_size": (17, 16), "stride": 3})
    x = sample(pool).requires_grad_()
    assert kept_by(lambda: pool.forward(x, functional)) == [torch.int16]
    assert torch.equal(
        gradient(lambda x, pool=pool: pool.forward(x, functional), x), gradient(pool.forward, x)
    )


def test_maxima_among_equals_infinities_and_nans() -> None:
    x = torch.tensor(
        [0.0, -0.0, 1.0, 1.0, float("-inf"), float("-inf"), float("nan"), float("nan"), float("inf")]
    )
    x = x.repeat(13)[: 2 * 47].reshape(1, 2, 47)
    for arguments in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 2}):
        pool = Pool("max_pool1d", tuple(x.shape), arguments)
        assert torch.equal(
            gradient(lambda x, pool=pool: pool.forward(x, functional), x), gradient(pool.forward, x)
        )


def test_what_we_have_not_is_pytorchs() -> None:
    whole = torch.arange(30).reshape(1, 1, 5, 6)
    assert torch.equal(functional.max_pool2d(whole, 2), torch.nn.functional.max_pool2d(whole, 2))
    meta = torch.empty(2, 3, 10, 14, device="meta", requires_grad=True)
    assert functional.max_pool2d(meta, 2).shape == (2, 3, 5, 7)
    with pytest.raises(RuntimeError):
        functional.avg_pool2d(torch.zeros(1, 1, 4, 4, dtype=torch.complex64), 2)


def concerns_tensors(reason: str) -> bool:
    """Not so: arrays that are no tensors of float32, outputs, a flag that PyTorch takes for true."""
    _, args, kwargs, _, _ = BAD[reason]
    plain = type(args[0]) is np.ndarray and args[0].dtype == np.float32 and args[0].dtype.isnative
    return plain and "out" not in kwargs and reason != "flag"


@pytest.mark.parametrize("reason", list(filter(concerns_tensors, BAD)))
def test_wrong_calls_are_told(reason: str) -> None:
    function, (x, *args), kwargs, error, sentence = BAD[reason]
    if function == "avg_pool3d":
        x = x[None]
    with pytest.raises(error) as caught:
        getattr(functional, function)(torch.from_numpy(x), *args, **kwargs)
    assert str(caught.value).startswith(f"{function}: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "name", fast_first([f"{what}_pool{axes}d" for what in ("avg", "max") for axes in (2, 1, 3)])
)
def test_a_window_fits_where_it_fits_in_pytorch(name: str) -> None:
    def shape(run: Any, x: Any) -> Any:
        try:
            return tuple(run(x).shape)
        except (RuntimeError, ValueError):
            return None

    found = set()
    grid = product((1, 2, 3, 5), (1, 2, 3, 5, 7), (1, 2, 8), (0, 1, 3), (False, True))
    dilations = [{"dilation": n} for n in (1, 2, 3)] if "max" in name else [{}]
    for (length, kernel, stride, padding, ceil_mode), dilation in product(grid, dilations):
        arguments = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
        arguments |= dilation
        x = torch.zeros(1, 2, *[7] * (axes_of(name) - 1), length)
        must = shape(lambda x, a=arguments: getattr(torch.nn.functional, name)(x, **a), x)
        assert shape(lambda x, a=arguments: getattr(pooltide, name)(x, **a), x.numpy()) == must, arguments
        assert shape(lambda x, a=arguments: getattr(functional, name)(x, **a), x) == must, arguments
        found.add(must)
    assert None in found
    assert len(found) > 3


def test_the_reference_computes_gradients_of_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLTIDE_BACKEND", "reference")
    read: list[bool] = []
    real = reference.run
    monkeypatch.setattr(
        reference, "run", lambda problem, *rest: read.append(problem.offsets) or real(problem, *rest)
    )
    for pool in MAXIMA:
        x = sample(pool)
        assert torch.equal(
            gradient(lambda x, pool=pool: pool.forward(x, functional), x), gradient(pool.forward, x)
        )
    assert read == [True] * len(MAXIMA)
