"""Pools over regions of interest on a GPU: the bits of the CPU, and bad data counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import simt_regions

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU: the GPU is NOT tested"),
]
POOLS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
DTYPES = ("FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16")


def _same(ours: Any, theirs: Any) -> bool:
    """Equal bits; any NaN equals any other."""
    a, b = ours.cpu(), theirs
    same = (a == b) & (torch.signbit(a) == torch.signbit(b)) | (a.isnan() & b.isnan())
    return bool(same.all())


def _arguments(problem: Any) -> tuple[Any, ...]:
    return {
        "roi_align": (problem.spatial_scale, problem.sampling_ratio, problem.aligned),
        "ps_roi_align": (problem.spatial_scale, problem.sampling_ratio),
    }.get(problem.kind.removesuffix("_gradient"), (problem.spatial_scale,))


def _both_ways(problem: Any, rng: np.random.Generator, boxes: Any) -> None:
    import pooltide.torch as pt

    name, dtype = problem.kind.removesuffix("_gradient"), getattr(torch, problem.dtype.name.lower())
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    form = torch.channels_last if rng.integers(2) else torch.contiguous_format
    x = (
        torch.randn(problem.batch + problem.plane, generator=generator)
        .to(dtype)
        .contiguous(memory_format=form)
    )
    x.flatten()[:1] = float(rng.choice([1.0, np.inf, np.nan]))
    boxes, cuda = torch.from_numpy(boxes), torch.device("cuda")
    pool, options = getattr(pt.functional, name), ({"return_indices": True} if name == "roi_pool" else {})
    arguments = (problem.bins, *_arguments(problem))
    ours, theirs = (pool(x.to(d), boxes.to(d), *arguments, **options) for d in (cuda, "cpu"))
    indices = []
    if name == "roi_pool":
        assert torch.equal(ours[1].cpu(), theirs[1]), problem
        indices, ours, theirs = [theirs[1]], ours[0], theirs[0]
    assert _same(ours, theirs), problem
    grad = torch.randn(theirs.shape, generator=generator).to(dtype).contiguous(memory_format=form)
    more = () if indices else _arguments(problem)
    backward = getattr(pt, f"{name}_backward")
    results = [
        backward(grad.to(d), x.shape, boxes.to(d), *(i.to(d) for i in indices), *more) for d in (cuda, "cpu")
    ]
    assert _same(*results), problem


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pool", POOLS)
def test_bits_are_those_of_the_cpu(pool: str, dtype: str) -> None:
    for seed in range(60):
        rng = np.random.default_rng([seed, DTYPES.index(dtype)])
        problem = simt_regions.drawn(rng, pool, dtype, False)
        if seed % 4 == 0:  # several blocks of regions, channels and tiles
            channels = problem.batch[1] * (7 if pool.startswith("ps_") else 31)
            problem = replace(problem, regions=700, plane=(61, 83), batch=(problem.batch[0], channels))
        boxes = simt_regions.drawn_boxes(rng, problem)
        boxes[:, 0] = rng.integers(0, problem.batch[0], len(boxes))
        _both_ways(problem, rng, boxes)


def test_regions_of_no_image_are_counted() -> None:
    import pooltide.torch as pt

    pt.index_errors("cuda", clear=True)
    x = torch.randn(2, 8, 9, 9, device="cuda", requires_grad=True)
    boxes = torch.tensor(
        [[0, 1, 1, 5, 5], [2, 1, 1, 5, 5], [-1, 0, 0, 3, 3], [0.5, 0, 0, 3, 3]], device="cuda"
    )
    pooled = pt.functional.roi_align(x, boxes, 2)
    assert pooled[0].any()
    assert not pooled[1:].any()
    assert pt.index_errors("cuda", clear=True) == (3, 1)
    pooled.backward(torch.ones_like(pooled))
    assert pt.index_errors("cuda", clear=True) == (3, 1)
    alone = torch.autograd.grad(pt.functional.roi_align(x, boxes[:1], 2).sum(), x)[0]
    assert torch.equal(x.grad, alone)


def test_indices_outside_the_plane_are_counted() -> None:
    import pooltide.torch as pt

    pt.index_errors("cuda", clear=True)
    grad, boxes = torch.ones(1, 1, 2, 2, device="cuda"), torch.tensor([[0, 0, 0, 3, 3.0]], device="cuda")
    indices = torch.tensor([[[[3, -1], [16, -2]]]], device="cuda")
    result = pt.roi_pool_backward(grad, (1, 1, 4, 4), boxes, indices)
    assert result.sum().item() == result[0, 0, 0, 3].item() == 1
    assert pt.index_errors("cuda", clear=True) == (2, 1 + 2)


def test_a_graph_replays_a_gradient() -> None:
    import pooltide.torch as pt

    grad = torch.randn(40, 16, 7, 7, device="cuda")
    boxes = torch.rand(40, 5, device="cuda").sort().values * 50
    boxes[:, 0] = 0
    now = pt.roi_align_backward(grad, (1, 16, 50, 60), boxes, 1.0, 2, True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        later = pt.roi_align_backward(grad, (1, 16, 50, 60), boxes, 1.0, 2, True)
    graph.replay()
    assert torch.equal(now, later)
