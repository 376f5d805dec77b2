"""PyTorch's own samples of the twelve pools (OpInfo): our gradients, patched in or of our own pools.

Each is held to the gradient that PyTorch computes eagerly on the CPU without us, wherever it runs: float32
and float64 have its bits, on a GPU too; halves are the float64 gradient rounded once.
Forward mode is tested in test_torch_suite.py.

A compiler gets many samples in one function, because it takes seconds for each. By aot_eager, which runs
the graphs that any compiler gets as they are, go all samples in float32 (`distinct`) and some in the other
dtypes (`few`). Inductor compiles a program for each forward, and takes fewer (`fewest`): what it must show
is that it leaves our operators alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from geometries import FUNCTIONS  # noqa: E402
from pools import quiet_patch, watch_computed, watch_patched  # noqa: E402
from pooltide.torch import gradients  # noqa: E402
from pooltide.torch.dispatch import custom_operators  # noqa: E402
from pooltide.torch.pools import forward as our_pools  # noqa: E402

EXACT, HALVES = (torch.float32, torch.float64), (torch.float16, torch.bfloat16)
POOLS = {function.removesuffix("_backward") for function in FUNCTIONS}

on_each_device = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(
                    not torch.cuda.is_available(), reason="no NVIDIA GPU: the GPU is NOT tested"
                ),
            ],
        ),
    ],
)


@dataclass(frozen=True)
class Sample:
    pool: str
    x: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@cache
def every(dtype: Any, device: str) -> list[Sample]:
    """All samples of the pools that PyTorch has in this dtype on this device, themselves on the CPU."""
    methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    infos = [info for info in methods.op_db if info.name.removeprefix("nn.functional.") in POOLS]
    assert len(infos) == len(POOLS) == 12
    torch.manual_seed(3)
    samples = [
        Sample(info.name.removeprefix("nn.functional."), given.input.detach(), given.args, given.kwargs)
        for info in infos
        if dtype in info.supported_dtypes(device)
        for given in info.sample_inputs("cpu", dtype)
    ]
    assert len(samples) > 2000
    return samples


def distinct(dtype: Any, device: str) -> list[Sample]:
    """Without those that differ from another in writing only: 3 for (3, 3), or with indices returned."""

    def meaning(s: Sample) -> str:
        axes = int(s.pool[-2])
        written = {
            k: (v,) * axes if type(v) is int else v for k, v in s.kwargs.items() if k != "return_indices"
        }
        return str((s.pool, s.x.shape, s.x.stride(), s.args, written))

    return list({meaning(s): s for s in every(dtype, device)}.values())


def few(dtype: Any, device: str) -> list[Sample]:
    """All but the max pools', which are a product of few choices; a prime step finds each choice again."""
    found = []
    for _, group in groupby(every(dtype, device), lambda s: s.pool):
        samples = list(group)
        thinned = samples[:: 1 if len(samples) < 100 else 61]
        assert {choice for s in thinned for choice in map(str, s.kwargs.items())} == {
            choice for s in samples for choice in map(str, s.kwargs.items())
        }
        found += thinned
    return found


def fewest(dtype: Any, device: str) -> list[Sample]:
    """Four or five of each pool, the first and the last among them."""
    groups = [list(group) for _, group in groupby(every(dtype, device), lambda s: s.pool)]
    return [sample for group in groups for sample in group[:: (len(group) - 1) // 3]]


def gradients_of(
    samples: list[Sample],
    module: Any = F,
    device: str = "cpu",
    backend: str | None = None,
    dtype: Any = None,
) -> list[Any]:
    """By autograd, for random cotangents whose values the sample's dtype has, brought to the CPU."""
    parts = [samples[at : at + 300] for at in range(0, len(samples), 300)]
    return [g for part in parts for g in _gradients_at_once(part, module, device, backend, dtype)]


def _gradients_at_once(
    samples: list[Sample], module: Any, device: str, backend: str | None, dtype: Any
) -> list[Any]:
    calls = [(getattr(module, s.pool), s.args, s.kwargs) for s in samples]

    def run(xs: list[Any]) -> list[Any]:
        found = [pool(x, *args, **kwargs) for x, (pool, args, kwargs) in zip(xs, calls, strict=True)]
        return [y[0] if isinstance(y, tuple) else y for y in found]

    xs = [s.x.to(device, dtype, copy=True).requires_grad_() for s in samples]
    if backend is not None:
        torch.compiler.reset()
        run = torch.compile(run, backend=backend, fullgraph=True)
    ys = run(xs)
    random = torch.Generator().manual_seed(1)
    gs = [
        torch.randn(y.shape, generator=random, dtype=torch.float64).to(s.x.dtype).to(y)
        for s, y in zip(samples, ys, strict=True)
    ]
    found = torch.autograd.grad(ys, xs, gs)
    if backend is not None:
        torch.compiler.reset()
    return [g.cpu() for g in found]


def judge(dtype: Any, device: str) -> str:
    """Where PyTorch's own gradients are those to be held to: its CPU has not all pools in halves."""
    return "cpu" if dtype in EXACT else device


@cache
def pytorchs(dtype: Any, device: str, on: str, which: Callable[[Any, str], list[Sample]]) -> list[Any]:
    assert not pt.is_patched()
    return gradients_of(which(dtype, device), device=on)


@pytest.fixture
def reached(monkeypatch: Any) -> Iterator[set[str]]:
    """Which of our gradients were computed, whoever asked for them."""
    functions: set[str] = set()
    find, by_offsets = gradients.find, our_pools.gradient_from
    watch_computed(monkeypatch, functions.add, gradients, custom_operators)

    def found(function: str, *rest: Any) -> Any:
        if (result := find(function, *rest)) is not None:
            functions.add(function)
        return result

    def of_maxima(problem: Any, function: str, *rest: Any) -> Any:
        functions.add(function)
        return by_offsets(problem, function, *rest)

    monkeypatch.setattr(gradients, "find", found)
    monkeypatch.setattr(our_pools, "gradient_from", of_maxima)
    watch_patched(monkeypatch, functions.add)
    yield functions
    assert not pt.is_patched(), "a test left PyTorch patched"


def ours(
    entrance: str,
    dtype: Any,
    device: str,
    which: Callable[[Any, str], list[Sample]],
    backend: str | None,
    reached: set[str],
) -> list[Any]:
    """The gradients by `patch()` or by our pools, all of which must have been computed by our kernels."""
    samples = which(dtype, device)
    assert reached == set()
    with nullcontext() if entrance == "functional" else quiet_patch(forward="forward" in entrance):
        found = gradients_of(samples, pt.functional if entrance == "functional" else F, device, backend)
    expected = {f"{s.pool}_backward" for s in samples}
    if "patched" in entrance:  # PyTorch's 1-D pools are 2-D ones of height 1
        expected = {function.replace("1d", "2d") for function in expected}
    assert reached == expected
    return found


def is_mean(sample: Sample) -> bool:
    """PyTorch takes these for means, and divides once (on a GPU it multiplies by 1 / n), not once per axis."""
    return sample.pool.startswith("adaptive_avg") and sample.args[0] in (1, (1,), (1, 1), (1, 1, 1))


def hold(
    dtype: Any,
    device: str,
    which: Callable[[Any, str], list[Sample]],
    found: list[Any],
) -> None:
    """Exact types to PyTorch's bits on the CPU; halves to one rounding, and nearer than PyTorch in sum."""
    samples = which(dtype, device)
    own = pytorchs(dtype, device, judge(dtype, device), which)
    if dtype in EXACT:
        for sample, ours, must in zip(samples, found, own, strict=True):
            if is_mean(sample):
                torch.testing.assert_close(ours, must)
            else:
                assert torch.equal(ours, must), sample
        return
    exact = gradients_of(samples, dtype=torch.float64)
    off = theirs_off = 0.0
    for sample, ours, theirs, must in zip(samples, found, own, exact, strict=True):
        if must.numel() == 0:
            assert ours.shape == must.shape
            continue
        # One rounding to `dtype` of a float32 sum that is itself off by a few float32 ulps.
        ulp = torch.finfo(dtype).eps * must.abs().clamp(min=torch.finfo(dtype).tiny)
        assert ((ours.double() - must).abs() <= 0.505 * ulp + 1e-6 * must.abs().max()).all(), sample
        off += float((ours.double() - must).abs().sum())
        theirs_off += float((theirs.double() - must).abs().sum())
    assert off > 0
    assert off < theirs_off if device == "cpu" else off <= theirs_off


@pytest.mark.slow
@on_each_device
@pytest.mark.parametrize("entrance", ["patched", "forward patched", "functional"])
@pytest.mark.parametrize("dtype", EXACT + HALVES, ids=str)
def test_eager(dtype: Any, entrance: str, device: str, reached: set[str]) -> None:
    pytorchs(dtype, device, judge(dtype, device), every)
    hold(dtype, device, every, ours(entrance, dtype, device, every, None, reached))


@pytest.mark.slow
@on_each_device
@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_pytorchs_own_return_when_the_patch_is_removed(dtype: Any, device: str, reached: set[str]) -> None:
    """On the CPU bit for bit; a GPU's differ from run to run, by rounding."""
    before = pytorchs(dtype, device, device, few)
    with pt.patch():
        pass
    for sample, found, must in zip(
        few(dtype, device), gradients_of(few(dtype, device), device=device), before, strict=True
    ):
        torch.testing.assert_close(found, must, **({"rtol": 0, "atol": 0} if device == "cpu" else {}))
        assert found.shape == sample.x.shape
    assert reached == set()


@pytest.mark.slow
@on_each_device
def test_each_sample_compiled(device: str, reached: set[str]) -> None:
    dtype = torch.float32
    pytorchs(dtype, device, "cpu", distinct)
    hold(dtype, device, distinct, ours("patched", dtype, device, distinct, "aot_eager", reached))


@pytest.mark.slow
@on_each_device
@pytest.mark.parametrize(
    ("entrance", "dtype"),
    [
        ("patched", torch.float64),
        ("patched", torch.float16),
        ("patched", torch.bfloat16),
        ("functional", torch.float32),
        ("functional", torch.bfloat16),
    ],
    ids=str,
)
def test_few_samples_compiled(entrance: str, dtype: Any, device: str, reached: set[str]) -> None:
    pytorchs(dtype, device, judge(dtype, device), few)
    hold(dtype, device, few, ours(entrance, dtype, device, few, "aot_eager", reached))


@pytest.mark.slow
@on_each_device
@pytest.mark.parametrize("entrance", ["patched", "functional"])
def test_inductor(entrance: str, device: str, reached: set[str]) -> None:
    dtype = torch.float32
    pytorchs(dtype, device, "cpu", fewest)
    hold(dtype, device, fewest, ours(entrance, dtype, device, fewest, "inductor", reached))
