"""New problems on a GPU, while their kernels are compiled in the background: the same bits, and no wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuda_problems import alike, expected, random_task
from geometries import lay
from gpu_paths import on_gpu, to_numpy

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pooltide.cache import CALLS  # noqa: E402
from pooltide.kernels.cuda.general.general import FILE, general  # noqa: E402
from pooltide.kernels.cuda.runtime import background  # noqa: E402
from pooltide.kernels.cuda.task import Task  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU: the GPU is NOT tested"),
]


@pytest.fixture(autouse=True)
def in_background(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Nothing is compiled yet, on disk or in this process, except general kernels."""
    from pooltide.kernels.cuda.runtime import compiler

    monkeypatch.setenv("POOLTIDE_COMPILE", "background")
    monkeypatch.setenv("POOLTIDE_CACHE", str(tmp_path))
    for key in [key for key in compiler._kernels if key[0].file != FILE]:
        del compiler._kernels[key]
    CALLS.clear()


@pytest.mark.parametrize("part", range(8))
def test_general_kernels_have_the_references_bits(part: int) -> None:
    from pooltide.kernels.cuda import launch
    from pooltide.kernels.cuda.runtime.driver import device_facts

    for seed in range(part * 50, part * 50 + 50):
        problem, layout, grad, indices = random_task(seed)
        planned = general(Task(problem, layout, device_facts(0)))
        assert not isinstance(planned, str), planned
        want, fault = expected(problem, grad, indices)
        out = on_gpu(lay(np.full(want.shape, np.nan, want.dtype), layout))
        record = launch.new_record(torch.device("cuda"))
        given = None if indices is None else on_gpu(lay(indices, layout))
        launch.PreparedLaunches(problem, layout, 0, planned=planned)(
            on_gpu(lay(grad, layout)), given, out, record
        )
        assert alike(np.ascontiguousarray(to_numpy(out)), want), f"seed {seed}: {problem} {layout}"
        if indices is not None:
            counted = [0, 2**63 - 1] if fault is None else [fault.number, fault.position]
            assert record.tolist() == counted, f"seed {seed}: {problem} {layout}"


def test_a_problem_takes_its_own_kernel_as_soon_as_it_is_compiled() -> None:
    from pooltide.kernels.cuda import choice, launch
    from pooltide.kernels.cuda.runtime import compiler, driver

    for seed in range(16):
        problem, layout, grad, indices = random_task(seed)
        want, _ = expected(problem, grad, indices)
        given = None if indices is None else on_gpu(lay(indices, layout))
        planned = choice.plan(problem, layout, driver.device_facts(0))
        new = any(compiler.ready(one.source, 0) is None for one in planned)
        prepared = launch.PreparedLaunches(problem, layout, 0)
        assert bool(prepared.jobs) == new  # an earlier problem may have needed the same kernel
        for _ in range(3):
            out = on_gpu(lay(np.full(want.shape, np.nan, want.dtype), layout))
            prepared(on_gpu(lay(grad, layout)), given, out)
            assert alike(np.ascontiguousarray(to_numpy(out)), want), f"seed {seed}: {problem} {layout}"
            assert pt.wait_for_kernels()
            assert not prepared.jobs
            assert (prepared.loaded.second is None) == (len(planned) == 1)


def test_a_first_call_may_be_captured() -> None:
    """The graph keeps the general kernel; calls after the capture take the kernel of choice."""
    x = torch.randn(2, 8, 37, 41, device="cuda")
    g = torch.randn(2, 8, 19, 21, device="cuda")
    must = pt.avg_pool2d_backward(g.cpu(), x.cpu(), 3, 2, 1).cuda()
    indices = F.max_pool2d(x, 3, 2, 1, return_indices=True)[1]
    most = pt.max_pool2d_backward(g.cpu(), x.cpu(), indices.cpu(), 3, 2, 1).cuda()
    F.avg_pool2d(x, 2).sum()
    pt.avg_pool2d_backward(g, x, 3, 2, 1, count_include_pad=False)  # loads general kernels
    pt.max_pool2d_backward(g, x, indices, 3, 2, 1, ceil_mode=True, check_indices=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        average = pt.avg_pool2d_backward(g, x, 3, 2, 1)
        maximum = pt.max_pool2d_backward(g, x, indices, 3, 2, 1, check_indices=False)
        assert background.unfinished()
    pt.wait_for_kernels()
    for _ in range(2):
        average.fill_(float("nan")), maximum.fill_(float("nan"))
        graph.replay()
        assert torch.equal(average, must)
        assert torch.equal(maximum, most)
    assert torch.equal(pt.avg_pool2d_backward(g, x, 3, 2, 1), must)


def test_a_compiler_that_fails_leaves_the_general_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from pooltide.kernels.cuda import launch
    from pooltide.kernels.cuda.runtime import compiler

    def fail(*_: Any) -> Any:
        raise compiler.NoCompiler("the compiler is broken")

    x, g = torch.randn(2, 8, 35, 43, device="cuda"), torch.randn(2, 8, 18, 22, device="cuda")
    must = pt.avg_pool2d_backward(g.cpu(), x.cpu(), 3, 2, 1).cuda()
    pt.avg_pool2d_backward(g, x, 3, 2, 1, count_include_pad=False)  # loads the general kernel
    pt.wait_for_kernels()
    launch.warn_once.cache_clear()
    monkeypatch.setattr(background, "compiled", fail)
    with pytest.warns(RuntimeWarning, match="general kernel computes its problems: the compiler is broken"):  # noqa: PT031
        for _ in range(2):
            assert torch.equal(pt.avg_pool2d_backward(g, x, 3, 2, 1), must)
            background.wait()
    assert torch.equal(pt.avg_pool2d_backward(g, x, 3, 2, 1), must)
    background._forget()
