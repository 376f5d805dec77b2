"""Differentiable pools where something follows the call: torch.func, export, scripts, modes and subclasses."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pools import EVERY, Dispatched, Pool, quiet_patch, sample  # noqa: E402
from shares import fast_if, fast_some, is_2d  # noqa: E402

F, functional = torch.nn.functional, pt.functional
func = torch.func
ONE_OF_EACH = list({pool.name: pool for pool in EVERY}.values())
MAXIMA = [pool for pool in ONE_OF_EACH if "max" in pool.name]
MEANS = [
    Pool(f"adaptive_avg_pool{axes}d", (2, 3, 5, 4, 3)[: axes + 2], {"output_size": 1}) for axes in (1, 2, 3)
]
SMALL = [
    Pool(
        f"{kind}_pool{axes}d",
        (1, 2, 3, 4, 3)[: axes + 2],
        {"output_size": 2} if "adaptive" in kind else {"kernel_size": 2, "padding": 1},
    )
    for kind in ("avg", "adaptive_avg", "max", "adaptive_max")
    for axes in (1, 2, 3)
]
each_pool = pytest.mark.parametrize("pool", fast_if(is_2d, ONE_OF_EACH), ids=str)
both_doors = pytest.mark.parametrize("patched", [False, True], ids=["plain", "patched"])


def indexed(pool: Pool) -> Pool:
    return Pool(pool.name, pool.shape, pool.arguments | {"return_indices": True})


def kinds_of(pool: Pool) -> list[Pool]:
    return [pool, indexed(pool)] if pool in MAXIMA else [pool]


def assert_same(ours: Any, theirs: Any) -> None:
    for our, their in zip(*map(pytree.tree_leaves, (ours, theirs)), strict=True):
        assert torch.equal(our, their)


SECOND = {
    "hessian": func.hessian,
    "jacfwd of jacfwd": lambda f: func.jacfwd(func.jacfwd(f)),
    "jacrev of jacfwd": lambda f: func.jacrev(func.jacfwd(f)),
    "jacrev of jacrev": lambda f: func.jacrev(func.jacrev(f)),
    "vmap of hessian": lambda f: lambda x: func.vmap(func.hessian(f))(torch.stack([x, x + 1])),
    "functionalize of grad": lambda f: func.functionalize(func.grad(f)),
    "grad of functionalize": lambda f: func.grad(func.functionalize(f)),
    "jvp of grad": lambda f: lambda x: func.jvp(func.grad(f), (x,), (x + 1,)),
}


@pytest.mark.parametrize("how", SECOND)
@pytest.mark.parametrize("pool", fast_if(is_2d, SMALL), ids=str)
def test_transforms_of_torch_func(pool: Pool, how: str) -> None:
    x = sample(pool, torch.float64)
    found = [
        SECOND[how](lambda x, module=module: pool.forward(x, module).pow(3).sum())(x)
        for module in (functional, F)
    ]
    assert_same(*found)


@pytest.mark.parametrize("pool", fast_some(ONE_OF_EACH, 2), ids=str)
def test_forward_mode_is_pytorchs_own(pool: Pool) -> None:
    x, tangent = sample(pool), sample(pool).flip(0)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        found = [
            torch.autograd.forward_ad.unpack_dual(pool.forward(dual, module)) for module in (functional, F)
        ]
        assert_same([*found[0]], [*found[1]])
    compiled = torch.compile(
        lambda x, v: func.jvp(lambda x: pool.forward(x, functional), (x,), (v,)), backend="aot_eager"
    )
    assert_same(compiled(x, tangent), func.jvp(pool.forward, (x,), (tangent,)))


class Model(torch.nn.Module):
    """A pool of weighted inputs."""

    def __init__(self, pool: Pool, module: Any) -> None:
        super().__init__()
        self.pool, self.module = pool, module
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: Any) -> Any:
        return self.pool.forward(x * self.weight, self.module)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
@pytest.mark.parametrize("pool", fast_some([*ONE_OF_EACH, *map(indexed, MAXIMA), *MEANS], 4), ids=str)
def test_an_exported_model_has_its_gradient(pool: Pool, strict: bool) -> None:
    if not hasattr(torch.compiler, "_is_exporting_flag"):
        pytest.skip("this release does not say that it exports")
    x, found = sample(pool), []
    for module in (functional, F):
        program = torch.export.export(Model(pool, module), (x,), strict=strict)
        leaf, exported = x.clone().requires_grad_(), program.module()
        result = pytree.tree_leaves(exported(leaf))
        result[0].sum().backward()
        targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        found.append((result, leaf.grad, *[p.grad for p in exported.parameters()], targets))
    assert_same(found[0][:-1], found[1][:-1])
    assert found[0][-1] == found[1][-1]  # PyTorch's operators, the same ones


@each_pool
def test_a_symbolic_trace_records_our_function(pool: Pool) -> None:
    for kind in kinds_of(pool):
        traced = torch.fx.symbolic_trace(Model(kind, functional))
        targets = [node.target for node in traced.graph.nodes if node.op == "call_function"]
        assert getattr(functional, pool.name) in targets
        x = sample(pool).requires_grad_()
        result, must = traced(x), kind.forward(x)
        assert_same(result, must)
        ours, theirs = (pytree.tree_leaves(r)[0] for r in (result, must))
        assert ("Average" in str(ours.grad_fn)) or ("Maximum" in str(ours.grad_fn))
        assert_same(torch.autograd.grad(ours.sum(), x), torch.autograd.grad(theirs.sum(), x))


@both_doors
@each_pool
def test_a_mode_sees_one_call_of_our_function(pool: Pool, patched: bool) -> None:
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    x = sample(pool).requires_grad_()
    for kind in kinds_of(pool):
        seen.clear()
        with quiet_patch(forward=False) if patched else torch.enable_grad(), Mode():
            result = kind.forward(x, functional)
        assert seen == [getattr(functional, pool.name)]
        assert_same(result, kind.forward(x))


class Tagged(torch.Tensor):
    """A tensor that keeps a note through every function, as MONAI's MetaTensor does."""

    note: Any = None

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(function, types, args, kwargs or {})
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, Tagged):
                tensor.note = function
        return result


@both_doors
@each_pool
def test_a_subclass_is_asked_and_kept(pool: Pool, patched: bool) -> None:
    for kind in kinds_of(pool):
        x = sample(pool).as_subclass(Tagged).requires_grad_()
        with quiet_patch(forward=False) if patched else torch.enable_grad():
            result = pytree.tree_leaves(kind.forward(x, functional))
            (gradient,) = torch.autograd.grad(result[0].sum(), x)
        assert all(type(tensor) is Tagged for tensor in result)
        assert all(tensor.note is getattr(functional, pool.name) for tensor in result)
        plain = sample(pool).requires_grad_()
        must = pytree.tree_leaves(kind.forward(plain))
        assert_same([t.as_subclass(torch.Tensor) for t in result], must)
        assert_same(gradient.as_subclass(torch.Tensor), torch.autograd.grad(must[0].sum(), plain))


@both_doors
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_modes_subclasses_and_traces_get_the_call_of_an_unpool(axes: int, patched: bool) -> None:
    ours, seen = getattr(functional, f"max_unpool{axes}d"), []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    x = torch.randn(2, 5, *[3] * axes).requires_grad_()
    cells = torch.arange(6**axes).reshape([6] * axes)[(slice(None, None, 2),) * axes]
    indices = cells.expand(x.shape).contiguous()
    must = getattr(F, ours.__name__)(x, indices, 2)
    with quiet_patch(forward=False) if patched else torch.enable_grad():
        with Mode():
            result = ours(x, indices, 2)
        assert seen == [ours]
        tagged = ours(x.detach().as_subclass(Tagged), indices, 2)
        traced = torch.fx.symbolic_trace(lambda x: ours(x, indices, 2))
        found = traced(x)
    assert (type(tagged), tagged.note) == (Tagged, ours)
    assert ours in [node.target for node in traced.graph.nodes]
    assert_same([result, tagged.as_subclass(torch.Tensor), found], [must] * 3)
    assert_same(*(torch.autograd.grad(y.square().sum(), x) for y in (result, must)))


@each_pool
def test_a_dispatch_mode_sees_pytorchs_operators(pool: Pool) -> None:
    rows = []
    for module in (functional, F):
        x = sample(pool).requires_grad_()
        with Dispatched() as dispatched:
            pool.forward(x, module).sum().backward()
        rows.append(dispatched.names)
    assert rows[0] == rows[1]
    assert rows[0]


SCRIPTED = """
import sys
import torch
import torch.nn.functional as F
import pooltide.torch as pt
P = pt.functional

def averages(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
    return (
        M.avg_pool1d(x, 2), M.avg_pool2d(y, 2, 1, ceil_mode=True), M.avg_pool3d(z, 2),
        M.adaptive_avg_pool1d(x, 3), M.adaptive_avg_pool2d(y, (3, 2)), M.adaptive_avg_pool3d(z, 2),
    )

def maxima(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
    return (
        M.max_pool1d(x, 2), M.max_pool2d(y, 2, 1, ceil_mode=True), M.max_pool3d(z, 2),
        M.adaptive_max_pool1d(x, 3), M.adaptive_max_pool2d(y, (3, 2)), M.adaptive_max_pool3d(z, 2),
    )

def indexed(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
    return (
        M.max_pool1d(x, 2, return_indices=True), M.max_pool2d(y, 2, 2, 0, 1, False, True),
        M.max_pool3d(z, 2, return_indices=True), M.adaptive_max_pool1d(x, 3, return_indices=True),
        M.adaptive_max_pool2d(y, (3, 2), True), M.adaptive_max_pool3d(z, 2, return_indices=True),
    )

def unpools(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
    i, j, k = torch.arange(6), torch.arange(30).view(6, 5), torch.arange(120).view(4, 5, 6)
    return (
        M.max_unpool1d(x, i.expand(2, 3, 6), [2], None, [0]),
        M.max_unpool2d(y, j.expand(2, 3, 6, 5), [2, 2], [2, 1], [0, 0], [13, 6]),
        M.max_unpool3d(z, k.expand(2, 3, 4, 5, 6), [2, 2, 2], [2, 2, 2], [1, 0, 0]),
    )

tensors = torch.randn(2, 3, 6), torch.randn(2, 3, 6, 5), torch.randn(2, 3, 4, 5, 6)
M = F
functions = averages, maxima, indexed, unpools
must = [f(*tensors) for f in functions]
if sys.argv[1] == "replaced":
    for name in P.__all__:
        for module in (F, torch):
            if hasattr(module, name) and (module is F or name != "adaptive_max_pool1d"):
                setattr(module, name, getattr(P, name))
else:
    M = P
scripts = [torch.jit.script(f) for f in functions]
found = [f(*tensors) for f in scripts]
torch.testing.assert_close(found, must, rtol=0, atol=0)
if sys.argv[1] == "replaced":  # PyTorch's modules now call our pools
    for module, x in ((torch.nn.MaxPool2d(2), tensors[1]), (torch.nn.AdaptiveAvgPool3d(2), tensors[2])):
        assert torch.equal(torch.jit.script(module)(x), module(x))
        assert torch.equal(torch.vmap(module)(x.unsqueeze(0))[0], module(x))
        assert torch.equal(torch.compile(module, backend="aot_eager", fullgraph=True)(x), module(x))
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["by name", "replaced"])
def test_a_script_compiles_pytorchs_pools(way: str, tmp_path: Path) -> None:
    """In another process, because a script keeps what the functions of PyTorch's modules were."""
    program = tmp_path / "scripted.py"  # TorchScript reads the source
    program.write_text(SCRIPTED)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), way],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]


def what_a_max_pool_does(module: Any, x: Any) -> Any:
    try:
        return module.max_pool2d(x, 2).to_dense().tolist()
    except RuntimeError:
        return "raises"


@pytest.mark.slow
def test_our_pools_do_not_call_those_that_a_program_may_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    def trap(*_: Any, **__: Any) -> Any:
        raise AssertionError("a pool of torch or torch.nn.functional was called")

    pools = [*ONE_OF_EACH, *MEANS]
    must = [[kind.forward(sample(pool)) for kind in kinds_of(pool)] for pool in pools]
    x = torch.randint(9, (1, 2, 8, 8))
    odd = [x.int(), x, x[:0].float(), x.float().to_mkldnn(), x.float().to_sparse()]  # PyTorch computes these
    odd_must = [what_a_max_pool_does(F, x) for x in odd]
    for name, module in product(functional.__all__, (F, torch)):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, trap)
    assert [what_a_max_pool_does(functional, x) for x in odd] == odd_must
    for pool, results in zip(pools, must, strict=True):
        for kind, result in zip(kinds_of(pool), results, strict=True):
            x = sample(pool)
            assert_same(kind.forward(x, functional), result)
            mapped = func.vmap(lambda x, kind=kind: kind.forward(x, functional))(x.unsqueeze(0))
            assert_same([t[0] for t in pytree.tree_leaves(mapped)], pytree.tree_leaves(result))
            func.jvp(lambda x, kind=kind: pytree.tree_leaves(kind.forward(x, functional))[0], (x,), (x,))
            kind.forward(x.to("meta"), functional)
        torch.jit.trace(lambda x, pool=pool: pool.forward(x, functional), x)


@pytest.mark.parametrize("name", ["avg_pool2d", "avg_pool3d"])
def test_out_is_pytorchs(name: str) -> None:
    x = torch.randn(1, 2, *[4] * int(name[-2]))
    ours, theirs = getattr(functional, name), getattr(F, name)
    out = torch.empty_like(theirs(x, 2))
    assert ours(x, 2, out=out) is out
    assert torch.equal(out, theirs(x, 2))
    for leaf, result in ((x.requires_grad_(), out), (x.detach(), out.clone().requires_grad_())):
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            ours(leaf, 2, out=result)


def test_mkldnn_tensors_are_refused_with_pytorchs_text() -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build has no mkldnn")
    x = torch.randn(1, 2, 8, 8)
    for name, size, more in (
        ("max_pool2d", 2, {"dilation": 2}),
        ("avg_pool2d", 2, {"divisor_override": 3}),
        ("adaptive_avg_pool2d", 7, {}),
        ("adaptive_max_pool2d", 4, {}),
    ):
        with pytest.raises(RuntimeError) as theirs:
            getattr(F, name)(x.to_mkldnn(), size, **more)
        with pytest.raises(RuntimeError) as ours:
            getattr(functional, name)(x.to_mkldnn(), size, **more)
        assert str(theirs.value) in str(ours.value)
    assert torch.equal(functional.max_pool2d(x.to_mkldnn(), 2).to_dense(), F.max_pool2d(x, 2))


@pytest.mark.parametrize("pool", MEANS, ids=str)
def test_the_mean_of_planes_is_pytorchs(pool: Pool) -> None:
    """Its bits, and how values and gradients lie in memory."""
    for form in (torch.contiguous_format, pool.channels_last)[: 1 + (pool.axes > 1)]:
        found = []
        for module in (functional, F):
            x = sample(pool).contiguous(memory_format=form).requires_grad_()
            y = pool.forward(x, module)
            (g,) = torch.autograd.grad(y, x, torch.randn(y.shape, generator=torch.Generator().manual_seed(1)))
            found.append((y, g))
        assert_same(*found)
        assert [t.stride() for t in found[0]] == [t.stride() for t in found[1]]


USER = """
import torch
import pooltide.torch as pt
from pooltide.torch import functional as P

def step(x: torch.Tensor, flag: bool) -> torch.Tensor:
    y: torch.Tensor = P.max_pool2d(x, 2)
    values, indices = P.max_pool2d(x, (2, 2), stride=2, return_indices=True)
    pair: tuple[torch.Tensor, torch.Tensor] = P.max_pool1d(x, 2, None, 0, 1, False, True)
    either: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = P.max_pool3d(x, 2, return_indices=flag)
    small: torch.Tensor = P.adaptive_max_pool2d(x, (None, 3))
    one, two = P.adaptive_max_pool3d(x, 2, return_indices=True)
    mean: torch.Tensor = P.adaptive_avg_pool2d(x, 1)
    with pt.patch(forward=True):
        return P.avg_pool2d(y + small + values + one, x.shape[-2:], out=mean) + indices + two + pair[0]
"""


@pytest.mark.slow
def test_a_program_passes_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(USER.replace("y: torch.Tensor = ", "y: int = "))
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "user.py", "wrong.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert "user.py" not in run.stdout, run.stdout
    assert 'wrong.py:7: error: Incompatible types in assignment (expression has type "Tensor"' in run.stdout
