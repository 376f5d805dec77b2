"""The GPU kernels on a GPU: the reference's bits for random problems, on every run, stream and size.

As a program, `python test_gpu.py FIRST END` checks the random problems of those seeds and prints what
differs; a memory checker can watch it. `python test_gpu.py FIRST END --compile [V]` only compiles their
kernels, with all cores, so that the memory checker need not watch the compiler; V is the version of another
machine's driver, such as 13000.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from cuda_problems import alike, expected, own_indices, random_task, strided
from geometries import lay
from gpu_paths import OnGpu, Planned, on_gpu, tiny, to_numpy, variant_of
from gpu_phases import compile_all, enumerate_on_gpu, gpu_facts, new_pool, selection, sources_in
from pooltide.geometry import UNIT, Axis
from pooltide.kernels import Arrays
from pooltide.kernels.cuda.choice import plan
from pooltide.kernels.cuda.runtime.driver import DeviceFacts
from pooltide.kernels.cuda.source import Source
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU"),
]
SEEDS = 1600  # 100 of each operator and dtype
STEP = 5  # seeds that a process takes at once
WORKERS = max(min((os.cpu_count() or 1) - 2, 14), 1)


def check_random(seed: int) -> str | None:
    """What differs from the reference in the seed's problem, or None."""
    from pooltide.kernels.cuda import launch

    problem, layout, grad, indices = random_task(seed)
    want, fault = expected(problem, grad, indices)
    out = on_gpu(lay(np.full(want.shape, np.nan, want.dtype), layout))
    record = launch.new_record(torch.device("cuda"))
    given = None if indices is None else on_gpu(lay(indices, layout))
    with tiny(seed // 16 % 2 == 0):
        prepared = launch.PreparedLaunches(problem, layout, 0)
    prepared(on_gpu(lay(grad, layout)), given, out, record)
    if not alike(np.ascontiguousarray(to_numpy(out)), want):
        return f"seed {seed}: {problem} {layout}: values differ"
    if indices is not None and record.tolist() != (
        [0, 2**63 - 1] if fault is None else [fault.number, fault.position]
    ):
        return f"seed {seed}: {problem} {layout}: counted {record.tolist()}, must be {fault}"
    return None


def random_sources(facts: DeviceFacts, first: int, end: int) -> set[Source]:
    """What the kernels of check_random are compiled from."""
    found: set[Source] = set()
    for seed in range(first, end):
        problem, layout, *_ = random_task(seed)
        with tiny(seed // 16 % 2 == 0):
            found.update(variant_of(plan(problem, layout, facts)))
    return found


def random_forward_sources(facts: DeviceFacts, first: int, end: int) -> set[Source]:
    checker = Planned(facts)
    for seed in range(first, end):
        checker.random(seed)
    return sources_in(variant for variants in checker.found.values() for variant in variants)


def check_randoms(first: int, end: int) -> list[str]:
    return [found for seed in range(first, end) if (found := check_random(seed))]


def check_random_forwards(first: int, end: int) -> list[str]:
    checker = OnGpu(gpu_facts())
    for seed in range(first, end):
        checker.random(seed)
    return checker.wrong


def compile_ahead(pool: Executor, sources: Callable[..., set[Source]], first: int, end: int) -> int:
    """Compiles each kernel once, with all processes; returns how many."""
    facts, starts = gpu_facts(), range(first, end, STEP)
    parts = pool.map(partial(sources, facts), starts, [min(i + STEP, end) for i in starts])
    found = set[Source]().union(*parts)
    compiled, wrong = compile_all(pool, found, facts.capability)
    assert not wrong, "\n".join(wrong[:20])
    return len(compiled)


def wrong_seeds(sources: Callable[..., set[Source]], check: Callable[..., list[str]], end: int) -> list[str]:
    with new_pool(WORKERS) as pool:
        compile_ahead(pool, sources, 0, end)
        starts = range(0, end, STEP)
        return [line for part in pool.map(check, starts, [i + STEP for i in starts]) for line in part]


def test_random_problems_give_the_references_bits() -> None:
    found = wrong_seeds(random_sources, check_randoms, SEEDS)
    assert not found, "\n".join(found[:20])


def test_random_forwards_give_the_references_bits() -> None:
    found = wrong_seeds(random_forward_sources, check_random_forwards, 960)
    assert not found, "\n".join(found[:20])


def test_enumerated_geometries_have_pytorchs_bits() -> None:
    """tests/support/enumeration.py --gpu has more of them."""
    with new_pool(WORKERS) as pool:
        done = enumerate_on_gpu(pool, WORKERS, selection(13, 4001), most=600)
    assert not done.wrong, "\n".join(done.wrong[:20])
    assert not done.missing


def cases() -> list[Problem]:
    f32, bf16, i64 = DTYPES["FLOAT32"], DTYPES["BFLOAT16"], DTYPES["INT64"]
    return [
        Problem(
            "average_gradient", (3, 5), (UNIT, strided(29, 3, 2, 1), strided(31, 3, 2, 1)), f32, "extent"
        ),
        Problem("average_gradient", (3, 5), (Axis(13, 5), Axis(29, 9), Axis(24, 7)), bf16, "chained"),
        Problem("maximum_gradient", (3, 5), (UNIT, Axis(29, 13), Axis(31, 17)), f32, index_dtype=i64),
        Problem("maximum_gradient", (3, 5), (Axis(13, 5), Axis(29, 9), Axis(24, 7)), bf16, index_dtype=i64),
    ]


def prepared(problem: Problem) -> tuple[Any, Any, Any, np.ndarray]:
    rng = np.random.default_rng(7)
    grad = rng.standard_normal(problem.batch + problem.output_plane).astype(problem.dtype.numpy)
    indices = own_indices(problem, rng) if problem.kind == "maximum_gradient" else None
    want, _ = expected(problem, grad, indices)
    return on_gpu(grad), None if indices is None else on_gpu(indices), torch.empty_like(on_gpu(want)), want


@pytest.mark.parametrize("problem", cases(), ids=str)
def test_twenty_runs_give_the_same_bits(problem: Problem) -> None:
    from pooltide.kernels.cuda import launch

    grad, indices, out, want = prepared(problem)
    for _ in range(20):
        out.fill_(float("nan"))
        launch.run(problem, "planes", Arrays(grad, None, indices, out))
        assert alike(to_numpy(out), want)


@pytest.mark.parametrize("problem", cases(), ids=str)
def test_another_stream_waits_for_nothing_else(problem: Problem) -> None:
    """The kernels run where the caller's stream is: behind its work, and before what it does next."""
    from pooltide.kernels.cuda import launch

    grad, indices, out, want = prepared(problem)
    launch.run(problem, "planes", Arrays(grad, None, indices, out))
    late = torch.zeros_like(grad)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late.copy_(grad)
        out.fill_(float("nan"))
        launch.run(problem, "planes", Arrays(late, None, indices, out))
        copy = out.clone()
    stream.synchronize()
    assert alike(to_numpy(copy), want)


@pytest.mark.parametrize("problem", cases(), ids=str)
def test_a_captured_graph_replays(problem: Problem) -> None:
    from pooltide.kernels.cuda import launch

    grad, indices, out, want = prepared(problem)
    launch.run(problem, "planes", Arrays(grad, None, indices, out))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch.run(problem, "planes", Arrays(grad, None, indices, out))
    for _ in range(3):
        out.fill_(float("nan"))
        graph.replay()
        assert alike(to_numpy(out), want)


@pytest.mark.parametrize("problem", cases(), ids=str)
def test_memory_that_is_not_16_byte_aligned(problem: Problem) -> None:
    from pooltide.kernels.cuda import launch

    grad, indices, out, want = prepared(problem)
    block = torch.full((out.numel() + 1,), float("nan"), dtype=out.dtype, device="cuda")
    odd = block[1:].view(out.shape)
    launch.run(problem, "planes", Arrays(grad, None, indices, odd))
    assert alike(to_numpy(odd), want)
    assert torch.isnan(block[0])


@pytest.mark.parametrize("problem", cases(), ids=str)
def test_threads_launch_at_once(problem: Problem) -> None:
    from pooltide.kernels.cuda import launch

    grad, indices, out, want = prepared(problem)
    ready = launch.PreparedLaunches(problem, "planes", 0)
    ready(grad, indices, out)

    def run(i: int) -> bool:
        outs = [torch.full_like(out, float("nan")) for _ in range(20)]
        with torch.cuda.stream(torch.cuda.Stream()):
            for target in outs:
                ready(grad, indices, target)
            torch.cuda.current_stream().synchronize()
        return all(alike(to_numpy(target), want) for target in outs)

    torch.cuda.synchronize()
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(8)))


def test_index_errors_reads_and_clears_the_devices_record() -> None:
    from pooltide.kernels.cuda import launch

    problem = cases()[2]
    grad, indices, out, _ = prepared(problem)
    launch.index_errors(0, clear=True)
    indices.view(-1)[[11, 23]] = torch.tensor([-1, 2**40], device="cuda")
    launch.run(problem, "planes", Arrays(grad, None, indices, out))
    assert launch.index_errors(0) == (2, 11)
    assert launch.index_errors(0, clear=True) == (2, 11)
    assert launch.index_errors(0) == (0, None)


@pytest.mark.parametrize(
    ("axes", "quotient"),
    [
        ((UNIT, strided(29, 3, 2, 1), strided(31, 3, 2, 1)), "extent"),
        ((Axis(7, 3), Axis(11, 4), Axis(13, 5)), "chained"),
    ],
    ids=["strided", "adaptive"],
)
def test_other_batches_compile_few_kernels(axes: Any, quotient: str) -> None:
    """Two at most: one for small batches, in which more threads are worth more instructions, and one for large ones."""
    from pooltide.kernels.cuda import launch
    from pooltide.kernels.cuda.runtime import compiler

    before = len(compiler._kernels)
    for n in (2, 1, 5, 16, 33):
        problem = Problem("average_gradient", (n, 3), axes, DTYPES["FLOAT32"], quotient)
        shape = problem.batch + problem.output_plane
        out = torch.empty(problem.batch + problem.input_plane, device="cuda")
        launch.run(problem, "planes", Arrays(torch.ones(shape, device="cuda"), None, None, out))
    assert len(compiler._kernels) - before <= 2


BIG = (2051, 1024)  # planes of 33 × 32 cells: over 2**31 elements


@pytest.mark.parametrize("layout", ["planes", "channels_last"])
@pytest.mark.parametrize(
    ("kind", "how", "axes"),
    [
        ("average_gradient", "extent", (UNIT, strided(33, 3, 3, 0), strided(32, 2, 2, 0))),
        ("average_gradient", "chained", (UNIT, Axis(33, 1), Axis(32, 1))),
        ("average_gradient", "chained", (UNIT, Axis(33, 3), Axis(32, 2))),
        ("average_gradient", "chained", (UNIT, Axis(33, 5), Axis(32, 3))),
        ("maximum_gradient", "", (UNIT, Axis(33, 5), Axis(32, 3))),
        ("maximum_gradient", "", (UNIT, Axis(33, 2), Axis(32, 1))),
    ],
    ids=["strided", "whole", "single", "rows", "indexed", "few windows"],
)
def test_more_than_2_to_the_31_elements(kind: str, how: str, axes: Any, layout: str) -> None:
    from pooltide.kernels.cuda import launch

    index = DTYPES["INT32"] if kind == "maximum_gradient" else None
    problem = Problem(kind, BIG, axes, DTYPES["BFLOAT16"], how, index_dtype=index)
    assert problem.cells > 2**31
    shape, result = problem.batch + problem.output_plane, problem.batch + problem.input_plane
    kept = {"memory_format": torch.channels_last_3d} if layout == "channels_last" else {}
    grad = torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(**kept)
    out = torch.full(result, float("nan"), device="cuda", dtype=torch.bfloat16).to(**kept)
    small = Problem(kind, (1, 4), axes, problem.dtype, how, index_dtype=index)
    indices = None
    if index:
        one = on_gpu(own_indices(small, np.random.default_rng(3))[:, :1])
        indices = one.expand(shape).clone(**kept)
    launch.run(problem, layout, Arrays(grad, None, indices, out))
    for n, c in ((0, 0), (1024, 511), (2047, 1020), (2050, 1020)):
        picked = to_numpy(grad[n : n + 1, c : c + 4].contiguous())
        named = None if indices is None else to_numpy(indices[n : n + 1, c : c + 4].contiguous())
        want, _ = expected(small, picked, named)
        assert alike(to_numpy(out[n : n + 1, c : c + 4].contiguous()), want), f"planes from {(n, c)} on"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--compile", type=int, nargs="?", const=0, metavar="V")
    given = parser.parse_args()
    if given.compile is not None:
        with new_pool(os.cpu_count() or 1, given.compile) as pool:
            print(f"{compile_ahead(pool, random_sources, given.first, given.end)} kernels compiled")
        return 0
    differing = check_randoms(given.first, given.end)
    print("\n".join(differing) or "no differences")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
