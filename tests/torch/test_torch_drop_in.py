"""Differentiable pools in PyTorch's place: what PyTorch accepts, refuses, returns and how that lies in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._prims_common import suggest_memory_format  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import pooltide  # noqa: E402
from pools import BEFORE_2_11, BEFORE_2_13, EVERY, Pool, quiet_patch, sample  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.errors import BadIndexError, DtypeError, NoRoomError, ShapeError, as_pytorch  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402
from shares import fast_if, fast_some, is_2d  # noqa: E402

F = torch.nn.functional
PATCHES = [False, True] if can_call_aten() else [False]
TWELVE = [
    f"{kind}_pool{axes}d" for kind in ("avg", "adaptive_avg", "max", "adaptive_max") for axes in (1, 2, 3)
]
ONE_OF_EACH = list({pool.name: pool for pool in EVERY}.values())
MAXIMA = [pool for pool in ONE_OF_EACH if "max" in pool.name]
each_pool = pytest.mark.parametrize("pool", fast_if(is_2d, ONE_OF_EACH), ids=str)

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


@pytest.mark.slow
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


def test_an_index_outside_the_plane_has_no_gradient_in_any_mode() -> None:
    x = torch.ones(1, 2, 1, 3, dtype=torch.float64, requires_grad=True)
    run = lambda x: functional.max_pool2d(x, 2, 1, 1, (2, 1))  # noqa: E731
    y = run(x)
    assert torch.isinf(y).all()
    (first,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
    (batched,) = torch.autograd.grad(y, x, torch.ones(5, *y.shape).double(), is_grads_batched=True)
    transformed = torch.func.vmap(torch.func.grad(lambda x: run(x).sum()))(torch.stack([x, x]))
    torch.compiler.reset()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)(x)
    for found in (first, second, batched, transformed, *torch.autograd.grad(compiled.sum(), x)):
        assert not found.any()


MEANS = [
    Pool(f"adaptive_avg_pool{axes}d", (2, 3, 5, 4, 3)[: axes + 2], {"output_size": 1}) for axes in (1, 2, 3)
]


@pytest.mark.parametrize("pool", fast_if(is_2d, [*ONE_OF_EACH, *MEANS]), ids=str)
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
        y = pool(x * 2, 2)
        y.grad_fn.metadata["gone"] = Goner(freed)
        del y
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


def far_apart(pool: Pool) -> Any:
    """Values whose maximum stays where it is when gradcheck moves them."""
    order = torch.randperm(prod(pool.shape), generator=torch.Generator().manual_seed(5))
    return order.double().view(pool.shape).div(8).requires_grad_()


@pytest.mark.parametrize("pool", fast_if(is_2d, SMALL), ids=str)
def test_gradcheck_of_batches(pool: Pool) -> None:
    run = lambda x: pool.forward(x, functional)  # noqa: E731
    assert torch.autograd.gradcheck(run, far_apart(pool), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(run, far_apart(pool), check_batched_grad=True)


@pytest.mark.parametrize("pool", fast_if(is_2d, [*SMALL, *MEANS]), ids=str)
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
        if pool in MEANS:  # PyTorch multiplies where we divide
            torch.testing.assert_close(ours, theirs, rtol=1e-15, atol=0)
        else:
            assert torch.equal(ours, theirs)


def in_every_mode(pool: Pool) -> list[Any]:
    """The results, or the kinds of error, of a pool eager, in dtypes that we have not, transformed and compiled."""
    x = sample(pool).requires_grad_()
    run = lambda x: getattr(F, pool.name)(x, **pool.arguments)  # noqa: E731
    torch.compiler.reset()
    modes = [
        lambda: run(x),
        lambda: run(x.detach()),
        lambda: run(x.double()),
        lambda: [tuple(t.shape) for t in pytree.tree_leaves(run(x.to("meta")))],
        lambda: run(x.detach().long()),
        lambda: run(x.detach().to(torch.complex64)),
        lambda: run(x.detach().to_sparse()),
        lambda: torch.func.vmap(run)(torch.stack([x, x])),
        lambda: torch.func.grad(lambda x: pytree.tree_leaves(run(x))[0].sum())(x),
        lambda: torch.compile(run, backend="aot_eager", fullgraph=True)(x),
    ]
    found = []
    for autocast, mode in product((False, True), modes):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            try:
                found.append(mode())
            except (RuntimeError, NotImplementedError):
                found.append("raises")
    return found


@pytest.mark.parametrize("pool", fast_some([*ONE_OF_EACH, *MEANS], 2), ids=str)
def test_pools_in_the_place_of_pytorchs(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [pool]
    if "max" in pool.name:
        kinds.append(Pool(pool.name, pool.shape, pool.arguments | {"return_indices": True}))
    theirs = [in_every_mode(kind) for kind in kinds]
    for name in TWELVE:
        monkeypatch.setattr(F, name, getattr(functional, name))
    ours = [in_every_mode(kind) for kind in kinds]
    for our, their in zip(*map(pytree.tree_leaves, (ours, theirs)), strict=True):
        assert torch.equal(our, their) if isinstance(their, torch.Tensor) else our == their


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


@pytest.mark.parametrize("name", fast_some(TWELVE, 2))
def test_strides_are_pytorchs(name: str) -> None:
    """But for gradients of inputs in channels_last_3d: those lie as the input does."""
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
                if found[-1] != must[-1] and len(lead) == 2 and keeps:
                    assert found[-1] == x.stride()
                    found[-1] = must[-1]
                assert found == must, (x.shape, x.stride(), size)
                compared += 1
    assert compared > 30


def outcome(module: Any, name: str, x: Any, arguments: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """What a call has: shapes, strides and the gradient, or the error."""
    leaf = x.clone().requires_grad_()
    try:
        result = getattr(module, name)(leaf, *arguments, **more)
    except RuntimeError as error:
        return error
    values, *indices = result if more else (result,)
    found = [values.shape, values.stride(), [(i.shape, i.stride(), i.dtype) for i in indices]]
    try:
        gradient = torch.autograd.grad(values.sum(), leaf)[0]
        return [*found, gradient.stride(), gradient]
    except RuntimeError:
        return [*found, "gradient raises"]


@pytest.mark.parametrize("name", fast_if(is_2d, TWELVE))
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
                for forward in PATCHES:
                    with quiet_patch(forward):
                        assert str(outcome(F, name, x, arguments, more)) == str(must)
                if isinstance(must, RuntimeError):
                    assert isinstance(found, ShapeError), (x.shape, arguments, more)
                    assert str(found).startswith(f"{name}: ")
                    seen.add("raises")
                else:
                    assert str(found) == str(must), (x.shape, arguments, more)
                    seen.add("gradient raises" if isinstance(must[-1], str) else "has a gradient")
    assert seen == {"raises", "has a gradient"} | ({"gradient raises"} if "adaptive" in name else set())


def test_errors_are_pytorchs_and_ours() -> None:
    classes = (
        (ValueError, ShapeError),
        (TypeError, DtypeError),
        (IndexError, BadIndexError),
        (MemoryError, NoRoomError),
    )
    for error, both in classes:
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


# Each line of the input is a pool, what to do to a tensor, and the sentence that must come of it.
HANDED_BACK = """
import sys
import torch
from pooltide.torch import functional

for line in sys.stdin:
    name, how, sentence = line.strip().split("|")
    change = eval(how)
    x = torch.randn(1, 2, *[5] * int(name[-2]), requires_grad=True)
    try:
        if sys.argv[1] == "hooks":
            keep, give = lambda t: t, lambda t: change(t) if t.numel() else t
            with torch.autograd.graph.saved_tensors_hooks(keep, give):
                getattr(functional, name)(x, 2).sum().backward()
        else:
            y = getattr(functional, name)(x, 2)
            y.grad_fn.apply(change(torch.ones_like(y)))
        found = "no error"
    except RuntimeError as error:
        found = f"{type(error).__name__} {error}"
    if not found.startswith(sentence):
        print(line, found)
"""
KEPT = "{}_backward: the tensor kept for the gradient"
GIVEN = "{}_backward: grad_output"
ONE_CELL = "t.flatten()[:1].view([1] * t.dim())"
FROM_HOOKS = {
    "t[..., :1]": f"ShapeError {KEPT} has shape (",
    "t.expand(2, *t.shape)": f"ShapeError {KEPT} has shape (2, ",
    "t.long()": f"DtypeError {KEPT} has dtype torch.int64; it must be torch.uint8",
    "t.to('meta')": f"ShapeError {KEPT} is on meta; it must be on cpu",
    "t.to_sparse()": f"DtypeError {KEPT} has layout torch.sparse_coo; it must be",
    "t.fill_(255)": "BadIndexError {}_backward: indices",
    "torch.stack([t, t], -1)[..., 0]": "no error",
}
GIVEN_DIRECTLY = {
    ONE_CELL: f"ShapeError {GIVEN} has shape (1, 1",
    "t.long()": f"DtypeError {GIVEN} has dtype torch.int64; it must be torch.float32",
    "t.to('meta')": f"ShapeError {GIVEN} is on meta; it must be on cpu",
    "t.to_sparse()": f"DtypeError {GIVEN} has layout torch.sparse_coo; it must be",
    "t.expand(t.shape)": "no error",
}


@pytest.mark.parametrize(
    ("way", "names", "cases"),
    [("hooks", [pool.name for pool in MAXIMA], FROM_HOOKS), ("directly", TWELVE, GIVEN_DIRECTLY)],
    ids=["hooks", "directly"],
)
@pytest.mark.slow
def test_what_a_gradient_is_handed_is_checked(way: str, names: list[str], cases: dict[str, str]) -> None:
    """In another process: unchecked, most of these end it with SIGSEGV."""
    lines = [
        f"{name}|lambda t: {how}|{sentence.format(name)}" for name in names for how, sentence in cases.items()
    ]
    run = subprocess.run(
        [sys.executable, "-c", HANDED_BACK, way],
        input="\n".join(lines), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, (run.returncode, run.stderr)  # a negative one is a signal
    assert run.stdout == ""


@pytest.mark.parametrize(("name", "size"), [("avg_pool3d", 4), ("adaptive_max_pool3d", 1)])
def test_results_of_one_cell_have_pytorchs_strides(name: str, size: int) -> None:
    x = torch.randn(2, 3, 4, 4, 4).contiguous(memory_format=torch.channels_last_3d)
    assert getattr(functional, name)(x, size).stride() == getattr(torch.nn.functional, name)(x, size).stride()


def test_with_out_the_tensor_that_needs_a_gradient_is_named() -> None:
    g, x = torch.randn(2, 3, 4, 4, requires_grad=True), torch.randn(2, 3, 8, 8)
    with pytest.raises(ValueError, match=r"grad_output requires a gradient; with out= no argument may\."):
        pooltide.torch.avg_pool2d_backward(g, x, 2, out=torch.empty_like(x))


def test_sizes_and_indices_that_only_ours_take_or_refuse() -> None:
    """As the list of differences says."""
    x = torch.randn(1, 2, 6, 4)
    y, at = F.max_pool2d(x, 2, return_indices=True)
    two, sizes = np.int64(2), np.array([2, 2])
    beyond: list[tuple[str, list[Any], list[Any]]] = [
        ("adaptive_avg_pool2d", [x, (2,)], [x, 2]),
        ("adaptive_max_pool2d", [x, (2,)], [x, 2]),
        ("adaptive_avg_pool2d", [x, two], [x, 2]),
        ("avg_pool2d", [x, sizes], [x, 2]),
        ("max_pool2d", [x, 3, 2, 0, 1, np.bool_(True)], [x, 3, 2, 0, 1, True]),
        ("max_unpool2d", [y, at, (2,)], [y, at, 2]),
        ("max_unpool2d", [y, at, two], [y, at, 2]),
        ("max_unpool2d", [y, at.int(), 2], [y, at, 2]),
    ]
    for name, odd, usual in beyond:
        refused = not (BEFORE_2_13 and name == "max_unpool2d" and odd[-1] is two)
        with pytest.raises((RuntimeError, TypeError)) if refused else nullcontext():
            getattr(F, name)(*odd)
        assert torch.equal(getattr(functional, name)(*odd), getattr(F, name)(*usual))
    if not BEFORE_2_11:  # older releases refuse it, too
        assert F.avg_pool2d(x, torch.tensor(2)).shape == (1, 2, 3, 2)
    with pytest.raises(DtypeError, match="kernel_size is tensor"):
        functional.avg_pool2d(x, torch.tensor(2))
