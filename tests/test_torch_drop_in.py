"""Differentiable pools in PyTorch's place: what PyTorch accepts, refuses, returns and how that lies in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations, product
from math import prod
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pools import EVERY, Pool, sample  # noqa: E402
from torch._prims_common import suggest_memory_format  # noqa: E402

import pooltide  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.errors import BadIndexError, DtypeError, ShapeError, as_pytorch  # noqa: E402

F = torch.nn.functional
TWELVE = [
    f"{kind}_pool{axes}d" for kind in ("avg", "adaptive_avg", "max", "adaptive_max") for axes in (1, 2, 3)
]
ONE_OF_EACH = list({pool.name: pool for pool in EVERY}.values())
MAXIMA = [pool for pool in ONE_OF_EACH if "max" in pool.name]
each_pool = pytest.mark.parametrize("pool", ONE_OF_EACH, ids=str)
each_max_pool = pytest.mark.parametrize("pool", MAXIMA, ids=str)

Geometry = tuple[int, int, int, int, int]  # length, kernel, stride, padding, dilation


def geometries() -> Iterator[Geometry]:
    for n, k, s, dilation in product((1, 2, 3, 4, 5), (1, 2, 3), (1, 2, 3), (1, 2, 3)):
        for p in range(k // 2 + 1):
            yield n, k, s, p, dilation


def dilated_calls(axes: int) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
    """The lengths and the arguments of max pools: each geometry on the first axis and on the last."""
    others = [(3, 2, 1, 1, 1), (1, 2, 1, 1, 2), (2, 2, 2, 1, 3)] if axes > 1 else [(1, 1, 1, 0, 1)]
    for geometry, other in product(geometries(), others):
        if axes > 1 and (geometry[4] <= geometry[0] or geometry[3] == 0):  # no empty window by this axis
            continue
        whole = [geometry] + [other] * (axes - 1)
        for order in (whole, whole[::-1])[:axes]:
            n, *arguments = zip(*order, strict=True)
            for ceil_mode in (False, True):
                yield n, [*arguments, ceil_mode]


def scattered(indices: Any, g: Any, lengths: tuple[int, ...]) -> Any:
    """The gradient by its definition. PyTorch writes outside the plane for an index that lies there."""
    cells = prod(lengths)
    flat = torch.zeros(*g.shape[:2], cells + 1, dtype=torch.float64)
    flat.scatter_add_(2, indices.flatten(2).clamp(max=cells), g.double().flatten(2))
    return flat[..., :-1].reshape(*g.shape[:2], *lengths)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_windows_that_dilation_leaves_empty(axes: int) -> None:
    name, empty = f"max_pool{axes}d", 0
    ours, theirs, arrays = (getattr(module, name) for module in (functional, F, pooltide))
    random = torch.Generator().manual_seed(3)
    layouts = [torch.contiguous_format, torch.channels_last if axes == 2 else torch.channels_last_3d]
    for lengths, arguments in dilated_calls(axes):
        exact = torch.randint(-50, 50, (2, 3, *lengths), generator=random).double()
        try:
            values, indices = theirs(exact, *arguments, return_indices=True)
        except RuntimeError:
            with pytest.raises(ShapeError):
                ours(exact, *arguments)
            continue
        found = arrays(exact.numpy(), *arguments, return_indices=True)
        assert torch.equal(torch.from_numpy(found[1]), indices)
        empty += (some := bool(torch.isinf(values).any()))
        dtypes = (torch.float32, torch.float64, torch.float16, torch.bfloat16) if some else (torch.float32,)
        for dtype, layout in product(dtypes, layouts[: 1 + (some and axes > 1)]):
            x = exact.to(dtype).contiguous(memory_format=layout).requires_grad_()
            values, indices = theirs(x.detach(), *arguments, return_indices=True)
            pair = ours(x, *arguments, return_indices=True)
            assert torch.equal(pair[1], indices), (lengths, arguments)
            for y in (pair[0], ours(x, *arguments), ours(x.detach(), *arguments)):
                assert torch.equal(y, values), (lengths, arguments)
            g = torch.randint(-9, 9, values.shape, generator=random).to(dtype)
            must = scattered(indices, g, lengths)
            for y in (pair[0], ours(x, *arguments)):
                assert torch.equal(torch.autograd.grad(y, x, g)[0].double(), must), (lengths, arguments)
    assert empty > 10


def test_an_index_outside_the_plane_is_kept_and_differentiated_again() -> None:
    x = torch.ones(1, 2, 1, 3, dtype=torch.float64, requires_grad=True)
    y = functional.max_pool2d(x, 2, 1, 1, (2, 1))
    assert torch.isinf(y).all()
    (first,) = torch.autograd.grad(y.sum() + y.nan_to_num(neginf=1).pow(2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert not first.any()
    assert not second.any()


MEANS = [
    Pool(f"adaptive_avg_pool{axes}d", (2, 3, 5, 4, 3)[: axes + 2], {"output_size": 1}) for axes in (1, 2, 3)
]


@pytest.mark.parametrize("pool", [*ONE_OF_EACH, *MEANS], ids=str)
@pytest.mark.parametrize("leaf", [True, False], ids=["leaf", "result"])
def test_a_gradient_depends_on_the_input_where_pytorchs_does(pool: Pool, leaf: bool) -> None:
    found = []
    for module in (functional, F):
        x = sample(pool, torch.float64).requires_grad_()
        y = pool.forward(x if leaf else x * 2, module)
        v = torch.ones_like(y).requires_grad_()
        (plain,) = torch.autograd.grad(y.sum(), x, retain_graph=True, create_graph=True)
        (by_v,) = torch.autograd.grad(y, x, v, create_graph=True)
        second = torch.autograd.grad(plain.sum(), x, retain_graph=True)[0] if plain.requires_grad else None
        of_both = torch.autograd.grad(by_v.pow(2).sum(), [x, v], allow_unused=True)
        assert torch.equal(plain, by_v)
        found.append((plain, second, *of_both))
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert ours.requires_grad == theirs.requires_grad
            assert torch.equal(ours, theirs)


def test_the_input_is_not_kept_and_nodes_are_freed() -> None:
    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    freed = []
    for pool in (functional.avg_pool2d, functional.max_pool2d):
        node = pool(x * 2, 2).grad_fn
        node.metadata["gone"] = Goner(freed)
        del node
    assert freed == [True, True]


class Goner:
    def __init__(self, freed: list[bool]) -> None:
        self.freed = freed

    def __del__(self) -> None:
        self.freed.append(True)


SMALL = [
    Pool(f"{kind}_pool{axes}d", (2, 2, 3, 4, 3)[: axes + 2], {"output_size": 2} if "adaptive" in kind else {"kernel_size": 2, "padding": 1})
    for kind in ("avg", "adaptive_avg", "max", "adaptive_max") for axes in (1, 2, 3)
]  # fmt: skip
GAPS = Pool(  # some of its windows are empty
    "max_pool1d", (1, 2, 3), {"kernel_size": 2, "padding": 1, "stride": 1, "dilation": 4}
)


def far_apart(pool: Pool) -> Any:
    """Values whose maximum stays where it is when gradcheck moves them."""
    order = torch.randperm(prod(pool.shape), generator=torch.Generator().manual_seed(5))
    return order.double().view(pool.shape).div(8).requires_grad_()


@pytest.mark.parametrize("pool", [*SMALL, GAPS], ids=str)
def test_gradcheck_of_batches(pool: Pool) -> None:
    run = lambda x: pool.forward(x, functional)  # noqa: E731
    assert torch.autograd.gradcheck(run, far_apart(pool), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(run, far_apart(pool), check_batched_grad=True)


@pytest.mark.parametrize("pool", [*SMALL, *MEANS], ids=str)
def test_batches_of_gradients(pool: Pool) -> None:
    x = far_apart(pool)
    rows = []
    for module in (functional, F):
        run = lambda x, module=module: pool.forward(x, module)  # noqa: E731
        y = run(x)
        gs = torch.randn(5, *y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        (one,) = torch.autograd.grad(y, x, gs, is_grads_batched=True, retain_graph=True)
        (two,) = torch.autograd.grad(y, x, gs, is_grads_batched=True, create_graph=True)
        _, vjp = torch.func.vjp(run, x.detach())
        (mapped,) = torch.func.vmap(vjp)(gs)
        cubes = lambda x, run=run: run(x).pow(3).sum()  # noqa: E731
        hessian = torch.func.jacrev(torch.func.jacrev(cubes))(x.detach())
        jacobian = torch.autograd.functional.jacobian(run, x.detach(), vectorize=True)
        rows.append((one, two.detach(), mapped, torch.func.jacrev(run)(x.detach()), jacobian, hessian))
    for ours, theirs in zip(*rows, strict=True):
        assert torch.equal(ours, theirs)


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TWELVE:
        monkeypatch.setattr(F, name, getattr(functional, name))


@pytest.mark.usefixtures("replaced")
@pytest.mark.parametrize("pool", [*ONE_OF_EACH, *MEANS], ids=str)
def test_pools_in_the_place_of_pytorchs(pool: Pool) -> None:
    x = sample(pool)
    must = pool.forward(x, functional)
    assert torch.equal(pool.forward(x), must)
    assert pool.forward(x.double()).dtype == torch.float64
    assert pool.forward(x.to("meta")).shape == must.shape
    with torch.autocast("cpu", torch.bfloat16):
        pool.forward(x.requires_grad_()).sum().backward()
    assert torch.func.vmap(pool.forward)(torch.stack([x, x])).shape == (2, *must.shape)
    assert torch.func.grad(lambda x: pool.forward(x).sum())(x).shape == x.shape
    torch.compiler.reset()
    compiled = torch.compile(pool.forward, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x.detach().requires_grad_()), must)
    if "max" in pool.name:
        with_indices = Pool(pool.name, pool.shape, pool.arguments | {"return_indices": True})
        for y in (x, x.double(), x.to("meta")):
            assert with_indices.forward(y)[1].shape == must.shape
        if pool.axes == 2:
            assert pool.forward(x.long()).dtype == torch.int64
    else:
        with pytest.raises(RuntimeError):
            pool.forward(x.to(torch.complex64))


def layouts_of(shape: tuple[int, ...]) -> Iterator[Any]:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    for order in permutations(range(len(shape))):
        back = [order.index(axis) for axis in range(len(shape))]
        yield x.permute(order).contiguous().permute(back)
    yield x[..., :1].expand(shape)
    yield torch.stack([x, x], -1)[..., 0]
    if len(shape) == 4:
        yield x.contiguous(memory_format=torch.channels_last)
    if len(shape) == 5:
        yield x.contiguous(memory_format=torch.channels_last_3d)


def strides_of(module: Any, name: str, x: Any, size: int, return_indices: bool) -> list[Any]:
    """The strides of the values with a gradient asked for and without, of the indices, of the gradient."""
    more = {"return_indices": True} if return_indices else {}
    found = []
    for leaf in (x.detach().requires_grad_(), x.detach()):
        result = getattr(module, name)(leaf, size, **more)
        tensors = result if return_indices else (result,)
        found += [tensor.stride() for tensor in tensors]
        if leaf.requires_grad:
            y = tensors[0]
            g = torch.empty_strided(y.shape, y.stride()).normal_()
            gradient = torch.autograd.grad(y, leaf, g)[0].stride()
    return [*found, gradient]


def looks_channels_last(x: Any) -> bool:
    """Whether PyTorch takes an unbatched volume for a batch of planes in channels_last, which it refuses."""
    return x.dim() == 4 and suggest_memory_format(x) == torch.channels_last


@pytest.mark.parametrize("name", TWELVE)
def test_strides_are_pytorchs(name: str) -> None:
    """But for gradients of inputs in channels_last_3d, and of means: those lie as the input does."""
    axes, compared = int(name[-2]), 0
    keeps = axes == 3 and name != "max_pool3d"
    leads = [(2, 3), (2, 1), (1, 3), (3,), (1,)]
    for lead, size in product(leads, (2, 1) if "adaptive_avg" in name else (2,)):
        for x in layouts_of((*lead, *(4, 5, 6)[:axes])):
            for return_indices in (False, True) if "max" in name else (False,):
                found = strides_of(functional, name, x, size, return_indices)
                if name == "max_pool3d" and looks_channels_last(x):
                    with pytest.raises(RuntimeError, match="Unsupported memory format"):
                        strides_of(F, name, x, size, return_indices)
                    continue
                must = strides_of(F, name, x, size, return_indices)
                last = len(lead) == 2 and axes > 1 and found[-1] != must[-1]
                if last and (keeps or size == 1):
                    assert found[-1] == x.stride()
                    found[-1] = must[-1]
                assert found == must, (x.shape, x.stride(), size)
                compared += 1
    assert compared > 30


def outcome(module: Any, name: str, x: Any, arguments: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """What a call has: shapes and the gradient, or the error."""
    leaf = x.clone().requires_grad_()
    try:
        result = getattr(module, name)(leaf, *arguments, **more)
    except RuntimeError as error:
        return error
    values, *indices = result if more else (result,)
    found = [values.shape, [(i.shape, i.dtype) for i in indices]]
    try:
        return [*found, torch.autograd.grad(values.sum(), leaf)[0]]
    except RuntimeError:
        return [*found, "gradient raises"]


@pytest.mark.parametrize("name", TWELVE)
def test_sizes_of_zero_are_taken_and_refused_as_by_pytorch(name: str) -> None:
    axes, seen = int(name[-2]), set()
    calls: list[tuple[Any, ...]] = [(2,), (2, 1, 1), (2, 2, 0)]
    if "adaptive" in name:
        calls = [(2,), (0,), (1,)] + ([((0, 2, 1)[:axes],), ((2, 0, 0)[:axes],)] if axes > 1 else [])
    for arguments, lead in product(calls, [(2, 3), (0, 3), (2, 0), (0, 0), (3,), (0,)]):
        for lengths in product((0, 4), repeat=axes):
            for more in ({}, {"return_indices": True}) if "max" in name else ({},):
                x = torch.randn(*lead, *lengths)
                must = outcome(F, name, x, arguments, more)
                found = outcome(functional, name, x, arguments, more)
                if isinstance(must, RuntimeError):
                    assert isinstance(found, ShapeError), (x.shape, arguments, more)
                    assert str(found).startswith(f"{name}: ")
                    seen.add("raises")
                else:
                    assert str(found) == str(must), (x.shape, arguments, more)
                    seen.add("gradient raises" if isinstance(must[-1], str) else "has a gradient")
    assert seen == {"raises", "has a gradient"} | ({"gradient raises"} if "adaptive" in name else set())


def test_errors_are_pytorchs_and_ours() -> None:
    for error, both in ((ValueError, ShapeError), (TypeError, DtypeError), (IndexError, BadIndexError)):
        found = as_pytorch(error("f: x has 1; it must be 2."))
        assert type(found) is both
        assert isinstance(found, error)
        assert isinstance(found, RuntimeError)
        assert str(found) == "f: x has 1; it must be 2."
    other = KeyError("k")
    assert as_pytorch(other) is other
    for wrong in ((torch.zeros(1, 1, 4, 4), "2"), ([[1.0]], 2)):
        with pytest.raises(DtypeError, match=r"^max_pool2d: \w+ is .*; it must be "):
            functional.max_pool2d(*wrong)


HANDED_BACK = """
import sys
import torch
from pooltide.torch import functional

name, size, change = sys.argv[1], (1, 2, *[5] * int(sys.argv[1][-2])), eval(sys.argv[2])
x = torch.randn(size, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: change(t) if t.numel() else t):
    y = getattr(functional, name)(x, 2)
    try:
        y.sum().backward()
        print("no error")
    except RuntimeError as error:
        print(type(error).__name__, error)
"""

DIRECT = """
import sys
import torch
from pooltide.torch import functional

name, size, change = sys.argv[1], (1, 2, *[5] * int(sys.argv[1][-2])), eval(sys.argv[2])
x = torch.randn(size, requires_grad=True)
y = getattr(functional, name)(x, 2)
try:
    y.grad_fn.apply(change(torch.ones_like(y)))
    print("no error")
except RuntimeError as error:
    print(type(error).__name__, error)
"""


def told(program: str, *arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, (run.returncode, run.stderr)  # a negative one is a signal
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("lambda t: t[..., :1]", "ShapeError {}_backward: the tensor kept for the gradient has shape ("),
        ("lambda t: t.long()", "DtypeError {}_backward: the tensor kept for the gradient has dtype torch.int64; it must be torch.uint8"),
        ("lambda t: t.to('meta')", "ShapeError {}_backward: the tensor kept for the gradient is on meta; it must be on cpu"),
        ("lambda t: t.to_sparse()", "DtypeError {}_backward: the tensor kept for the gradient has layout torch.sparse_coo; it must be"),
        ("lambda t: t.fill_(255)", "BadIndexError {}_backward: indices"),
        ("lambda t: torch.stack([t, t], -1)[..., 0]", "no error"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d", "adaptive_max_pool3d"])
def test_what_hooks_hand_back_is_checked(name: str, change: str, sentence: str) -> None:
    assert told(HANDED_BACK, name, change).startswith(sentence.format(name))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("lambda t: t.flatten()[:1].view([1] * t.dim())", "ShapeError {}_backward: grad_output has shape (1, 1"),
        ("lambda t: t.long()", "DtypeError {}_backward: grad_output has dtype torch.int64; it must be torch.float32"),
        ("lambda t: t.to('meta')", "ShapeError {}_backward: grad_output is on meta; it must be on cpu"),
        ("lambda t: t.to_sparse()", "DtypeError {}_backward: grad_output has layout torch.sparse_coo; it must be"),
        ("lambda t: t.expand(t.shape)", "no error"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["max_pool2d", "adaptive_max_pool1d", "avg_pool2d", "adaptive_avg_pool3d"])
def test_a_gradient_handed_over_directly_is_checked(name: str, change: str, sentence: str) -> None:
    assert told(DIRECT, name, change).startswith(sentence.format(name))
